//! Real files through the source and the sink.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, StringViewArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::util::pretty::pretty_format_batches;
use millstream_engine::source::{Offset, Split};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use super::*;
use crate::testing::{check_source, read_all, read_split};

mod sink;

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

fn path(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

fn micros() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, t)| Field::new(*name, t.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn bids() -> SchemaRef {
    schema(&[("auction", DataType::Int64), ("channel", DataType::Utf8View), ("at", micros())])
}

/// Rows as the columns of `bids`.
fn bid_rows(rows: std::ops::Range<i64>) -> RecordBatch {
    let time = |row: i64| 1_436_918_400_000_000 + row * 1_000;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.clone())),
        Arc::new(
            rows.clone()
                .map(|row| Some(format!("channel number {row}")))
                .collect::<StringViewArray>(),
        ),
        Arc::new(TimestampMicrosecondArray::from_iter_values(rows.map(time))),
    ];
    RecordBatch::try_new(bids(), columns).unwrap()
}

/// The same rows as another system writes them: plain strings, milliseconds, another order, a column more.
fn write_parquet(path: &Path, rows: std::ops::Range<i64>, group: usize) {
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "at",
            Arc::new(TimestampMillisecondArray::from_iter_values(
                rows.clone().map(|row| 1_436_918_400_000 + row),
            )),
        ),
        ("more", Arc::new(Float64Array::from_iter_values(rows.clone().map(|row| row as f64)))),
        (
            "Channel",
            Arc::new(
                rows.clone()
                    .map(|row| Some(format!("channel number {row}")))
                    .collect::<StringArray>(),
            ),
        ),
        ("auction", Arc::new(Int64Array::from_iter_values(rows))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group)).build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn source(schema: &SchemaRef, pairs: &[(&str, &str)]) -> Arc<dyn Source> {
    FileConnector.source(schema, &options(pairs)).unwrap()
}

fn shown(source: &dyn Source, schema: &SchemaRef) -> (String, String) {
    let (rows, bad) = read_all(source, schema).unwrap();
    let bad = bad.iter().map(|bad| format!("{}: {} [{}]", bad.position, bad.message, bad.row));
    let bad = bad.collect::<Vec<_>>().join("\n");
    (pretty_format_batches(&[rows]).unwrap().to_string(), bad)
}

#[test]
fn parquet_holds_the_contract() {
    let directory = TempDir::new().unwrap();
    let file = path(&directory, "bids.parquet");
    write_parquet(Path::new(&file), 0..1000, 70);
    for splits in ["1", "2", "3", "40"] {
        let source = source(&bids(), &[("path", &file), ("file.split.num", splits)]);
        assert_eq!(source.rows_hint(), Some(1000));
        assert!(source.is_bounded() && !source.discovers_splits());
        check_source(source.as_ref(), &bids());
    }
    let source = source(&bids(), &[("path", &file), ("file.split.num", "1")]);
    let (rows, _) = read_all(source.as_ref(), &bids()).unwrap();
    assert_eq!(rows, bid_rows(0..1000));
}

#[test]
fn parquet_columns_by_name_and_bad_rows() {
    let directory = TempDir::new().unwrap();
    let file = path(&directory, "x.parquet");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(StringArray::from(vec![Some("1"), Some("x"), None, Some("4")]))),
        ("b", Arc::new(StringArray::from(vec![Some("p"), Some("q"), Some("r"), None]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(&file).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("b", DataType::Utf8View, false),
        Field::new("a", DataType::Int64, true),
        Field::new("missing", DataType::Float64, true),
    ]));
    let source = source(&schema, &[("path", &file), ("file.split.num", "1")]);
    check_source(source.as_ref(), &schema);
    let (rows, bad) = shown(source.as_ref(), &schema);
    expect_test::expect![[r#"
        +---+---+---------+
        | b | a | missing |
        +---+---+---------+
        | p | 1 |         |
        | r |   |         |
        +---+---+---------+"#]]
    .assert_eq(&rows);
    expect_test::expect![[r#"
        FILE:2: column "a": "x" is no value of type BIGINT [a: x, b: q]
        FILE:4: column "b" is NULL, which it may not be [a: 4, b: NULL]"#]]
    .assert_eq(&bad.replace(&file, "FILE"));
}

#[test]
fn broken_parquet_is_an_error_that_names_the_file() {
    let directory = TempDir::new().unwrap();
    let file = path(&directory, "bids.parquet");
    write_parquet(Path::new(&file), 0..1000, 100);
    let whole = fs::read(&file).unwrap();
    for broken in [&whole[..whole.len() - 30], &b"not a Parquet file at all"[..], b""] {
        fs::write(&file, broken).unwrap();
        let source = source(&bids(), &[("path", &file)]);
        let error = read_all(source.as_ref(), &bids()).unwrap_err();
        assert_eq!(error.fault(), millstream_engine::Fault::External);
        assert!(error.to_string().starts_with(&format!("reading {file}: ")), "{error}");
        let error = FileConnector.infer_schema(&options(&[("path", &file)])).unwrap_err();
        assert!(error.to_string().contains(&file), "{error}");
    }
    let gone = path(&directory, "gone.parquet");
    let error =
        FileConnector.source(&bids(), &options(&[("path", &gone)])).unwrap_err().to_string();
    assert!(error.contains(&gone), "{error}");
}

const CSV: &str = "at,auction,channel,more\n\
    2015-07-15 00:00:00,1,Google,x\n\
    2015-07-15 00:00:01,two,Google,x\n\
    2015-07-15 00:00:02,3,\"a\nb\",x\n\
    2015-07-15 00:00:03,4\n\
    1436918404000,5,Apple,x\n\
    ,,,\n";

const JSON: &str = "{\"auction\": 1, \"channel\": \"Google\", \"at\": \"2015-07-15T00:00:00Z\"}\n\
    {\"auction\": \"two\"}\n\
    \n\
    {\"auction\": 3, \"channel\": {\"a\": [1]}}\n\
    {\"auction\": 4\n\
    {\"at\": 1436918404000}";

fn write_compressed(directory: &TempDir, name: &str, text: &str) -> Vec<String> {
    let names = ["", ".gz", ".zst"].map(|ending| path(directory, &format!("{name}{ending}")));
    fs::write(&names[0], text).unwrap();
    // Two members, as from appending.
    let mut gzip = Vec::new();
    for half in [&text[..20], &text[20..]] {
        let mut encoder = flate2::write::GzEncoder::new(&mut gzip, flate2::Compression::default());
        encoder.write_all(half.as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
    fs::write(&names[1], gzip).unwrap();
    fs::write(&names[2], zstd::encode_all(text.as_bytes(), 0).unwrap()).unwrap();
    names.to_vec()
}

/// Reads each file, checks the contract, and that all give the same.
fn shown_alike(names: &[String]) -> (String, String) {
    let all = names.iter().map(|name| {
        let source = source(&bids(), &[("path", name)]);
        check_source(source.as_ref(), &bids());
        let (rows, bad) = shown(source.as_ref(), &bids());
        (rows, bad.replace(name, "FILE"))
    });
    let mut all: Vec<_> = all.collect();
    all.dedup();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn csv_files() {
    let directory = TempDir::new().unwrap();
    let (rows, bad) = shown_alike(&write_compressed(&directory, "bids.csv", CSV));
    expect_test::expect![[r#"
        +---------+---------+---------------------+
        | auction | channel | at                  |
        +---------+---------+---------------------+
        | 1       | Google  | 2015-07-15T00:00:00 |
        | 3       | a       | 2015-07-15T00:00:02 |
        |         | b       |                     |
        | 5       | Apple   | 2015-07-15T00:00:04 |
        |         |         |                     |
        +---------+---------+---------------------+"#]]
    .assert_eq(&rows);
    expect_test::expect![[r#"
        FILE:3: column "auction": "two" is no value of type BIGINT [2015-07-15 00:00:01,two,Google,x]
        FILE:6: incorrect number of fields: expected 4 got 2 [2015-07-15 00:00:03,4]"#]]
    .assert_eq(&bad);
}

#[test]
fn json_files() {
    let directory = TempDir::new().unwrap();
    let (rows, bad) = shown_alike(&write_compressed(&directory, "bids.json", JSON));
    expect_test::expect![[r#"
        +---------+------------+---------------------+
        | auction | channel    | at                  |
        +---------+------------+---------------------+
        | 1       | Google     | 2015-07-15T00:00:00 |
        | 3       | {"a": [1]} |                     |
        |         |            | 2015-07-15T00:00:04 |
        +---------+------------+---------------------+"#]]
    .assert_eq(&rows);
    expect_test::expect![[r#"
        FILE:2: column "auction": "two" is no value of type BIGINT [{"auction": "two"}]
        FILE:5: the line ends inside an object [{"auction": 4]"#]]
    .assert_eq(&bad);
}

#[test]
fn csv_headers() {
    let directory = TempDir::new().unwrap();
    let file = path(&directory, "x.csv");
    let two = schema(&[("a", DataType::Int64), ("b", DataType::Int64)]);
    let read = |text: &str, more: &[(&str, &str)]| {
        fs::write(&file, text).unwrap();
        let mut pairs = vec![("path", file.as_str())];
        pairs.extend(more);
        let source = source(&two, &pairs);
        let (rows, bad) = read_all(source.as_ref(), &two).map_err(|error| error.to_string())?;
        assert_eq!(bad, []);
        let column = |place: usize| {
            rows.column(place).as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()
        };
        Ok::<_, String>((column(0), column(1)))
    };
    assert_eq!(read("b,x,A\n1,2,3\n", &[]), Ok((vec![3], vec![1])));
    assert_eq!(read("p,q\n1,2\n", &[]), Ok((vec![1], vec![2])));
    assert_eq!(read("1,2\n3,4", &[("csv.header", "false")]), Ok((vec![1, 3], vec![2, 4])));
    assert_eq!(
        read("1|2", &[("without_header", "true"), ("delimiter", "|")]),
        Ok((vec![1], vec![2]))
    );
    assert_eq!(read("", &[]), Ok((vec![], vec![])));
    assert_eq!(read("a,b\n", &[]), Ok((vec![], vec![])));
    let error = read("a,x,y\n1,2,3\n", &[]).unwrap_err();
    assert_eq!(error, format!("the header of {file} has no column b; it has: a, x, y"));
}

#[test]
fn schemas_are_inferred() {
    let directory = TempDir::new().unwrap();
    let infer = |name: &str, text: &[u8]| {
        let file = path(&directory, name);
        if !text.is_empty() {
            fs::write(&file, text).unwrap();
        }
        let schema = FileConnector.infer_schema(&options(&[("path", &file)])).unwrap();
        let source = source(&schema, &[("path", &file)]);
        check_source(source.as_ref(), &schema);
        let fields = schema.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type()));
        fields.collect::<Vec<_>>().join(", ")
    };
    let csv = b"id,price,name,at,day,ok,none\n1,1.5,x,2015-07-15 00:00:00,2015-07-15,true,\nbad\n2,2,,,,,\n";
    assert_eq!(
        infer("a.csv", csv),
        "id Int64, price Float64, name Utf8View, at Timestamp(µs), day Date32, ok Boolean, none Utf8View"
    );
    let json = br#"{"id": 1, "p": {"x": 1.5}, "at": "2015-07-15T00:00:00.5Z", "l": ["a"]}
broken
{"id": 2, "name": "x"}
"#;
    let inferred = infer("a.json", json);
    expect_test::expect![[
        r#"id Int64, p Struct("x": Float64), at Timestamp(µs), l List(Utf8View), name Utf8View"#
    ]]
    .assert_eq(&inferred);
    write_parquet(&directory.path().join("b.parquet"), 0..10, 5);
    let inferred = infer("b.parquet", b"");
    expect_test::expect!["at Timestamp(µs), more Float64, Channel Utf8View, auction Int64"]
        .assert_eq(&inferred);
}

#[test]
fn arrow_files_and_streams() {
    let directory = TempDir::new().unwrap();
    let (file, stream) = (path(&directory, "a.arrow"), path(&directory, "b.arrow"));
    let batches = [bid_rows(0..100), bid_rows(100..101), bid_rows(101..400)];
    let mut to_file =
        arrow::ipc::writer::FileWriter::try_new(File::create(&file).unwrap(), &bids()).unwrap();
    let mut to_stream =
        arrow::ipc::writer::StreamWriter::try_new(File::create(&stream).unwrap(), &bids()).unwrap();
    for batch in &batches {
        to_file.write(batch).unwrap();
        to_stream.write(batch).unwrap();
    }
    to_file.finish().unwrap();
    to_stream.finish().unwrap();
    for name in [file, stream] {
        let source = source(&bids(), &[("path", &name)]);
        check_source(source.as_ref(), &bids());
        assert_eq!(read_all(source.as_ref(), &bids()).unwrap().0, bid_rows(0..400));
        let inferred = FileConnector.infer_schema(&options(&[("path", &name)])).unwrap();
        assert_eq!(inferred, bids());
    }
}

#[test]
fn directories_are_watched_and_globs_are_not() {
    let directory = TempDir::new().unwrap();
    let write = |name: &str, number: u32| {
        fs::write(directory.path().join(name), format!("{{\"auction\": {number}}}\n")).unwrap();
    };
    write("a.json", 1);
    write(".hidden.json", 2);
    write("_partial.json", 3);
    write("other.csv", 4);
    let folder = directory.path().display().to_string();
    let watched = source(&bids(), &[("path", &folder), ("format", "json")]);
    assert!(!watched.is_bounded() && watched.discovers_splits());
    assert_eq!(watched.list_splits().unwrap(), [Split("a.json".into())]);
    write("b.jsonl", 5);
    assert_eq!(watched.list_splits().unwrap(), [Split("a.json".into()), Split("b.jsonl".into())]);
    let bounded = source(&bids(), &[("path", &folder), ("encode", "json"), ("watch", "false")]);
    assert!(bounded.is_bounded() && !bounded.discovers_splits());
    assert_eq!(read_all(bounded.as_ref(), &bids()).unwrap().0.num_rows(), 2);
    let glob = source(&bids(), &[("path", &path(&directory, "*.json"))]);
    assert!(glob.is_bounded());
    assert_eq!(read_all(glob.as_ref(), &bids()).unwrap().0.num_rows(), 1);
}

#[test]
fn a_bad_line_has_its_number_after_a_seek() {
    let directory = TempDir::new().unwrap();
    let file = path(&directory, "x.json");
    fs::write(&file, "{}\n{}\n\n{}\nbad\n").unwrap();
    let source = source(&bids(), &[("path", &file)]);
    let from = (Offset(6), None);
    let stretch =
        read_split(source.as_ref(), &bids(), &Split(file.as_str().into()), from, &[0], (10, 10))
            .unwrap();
    assert_eq!(stretch.rows.num_rows(), 1);
    assert_eq!(stretch.bad[0].position, format!("{file}:5"));
    assert_eq!(stretch.bad[0].row, "bad");
}

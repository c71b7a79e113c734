//! Text formats: cutting, decoding, and finding the bad records.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::util::pretty::pretty_format_batches;

use super::csv::{CsvDecoder, CsvDialect};
use super::json::{JsonDecoder, JsonLines};
use super::records::RecordReader;
use super::*;

/// The good rows as a table, and the bad records as `line: message`.
fn decode(
    format: &dyn TextFormat,
    decoder: &mut dyn RecordDecoder,
    text: &[u8],
) -> (String, Vec<String>) {
    let mut reader = RecordReader::new(Box::new(std::io::Cursor::new(text.to_vec())), 0, 1);
    let records = reader.next(format, usize::MAX, u64::MAX).unwrap();
    let whole: Vec<_> = records.iter().filter(|r| r.fault.is_none()).cloned().collect();
    let ranges: Vec<_> = whole.iter().map(|r| r.range.clone()).collect();
    let (good, bad) = decode_records(decoder, reader.text(), &ranges);
    let mut messages: Vec<(u64, String)> =
        bad.into_iter().map(|(at, message)| (whole[at].line, message)).collect();
    messages.extend(records.iter().filter_map(|r| Some((r.line, r.fault?.to_string()))));
    messages.sort();
    let messages = messages.into_iter().map(|(line, message)| format!("{line}: {message}"));
    (pretty_format_batches(&good).unwrap().to_string(), messages.collect())
}

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, t)| Field::new(*name, t.clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn three() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    schema(&[("a", DataType::Int64), ("b", DataType::Utf8View), ("t", time)])
}

#[test]
fn csv_good_and_bad_records() {
    let text = b"1,x,2020-01-01 00:00:00\n\
        2,\"two\nlines, and \"\"quotes\"\"\",2020-01-01T00:00:00.5Z\n\
        x,y,\n\
        4,y\n\
        \n\
        5,y,,z\n\
        6,\xff,\n\
        99999999999999999999,y,\n\
        8,y,yesterday\n\
        9,,1577836800000\n\
        10,\"never closed,\n\
        11,\"b\",\n\
        12,\"c\", \n\
        13,\"open\n";
    let schema = three();
    let mut decoder = CsvDecoder::new(CsvDialect::default(), &schema, &[0, 1, 2], &[0, 1, 2], 3);
    let (rows, bad) = decode(&CsvDialect::default(), &mut decoder, text);
    expect_test::expect![[r#"
        +----+---------------------+-------------------------+
        | a  | b                   | t                       |
        +----+---------------------+-------------------------+
        | 1  | x                   | 2020-01-01T00:00:00     |
        | 2  | two                 | 2020-01-01T00:00:00.500 |
        |    | lines, and "quotes" |                         |
        | 9  |                     | 2020-01-01T00:00:00     |
        | 11 | b                   |                         |
        +----+---------------------+-------------------------+"#]]
    .assert_eq(&rows);
    expect_test::expect![[r#"
        4: column "a": "x" is no value of type BIGINT
        5: incorrect number of fields: expected 3 got 2
        7: incorrect number of fields: expected 3 got 4
        8: invalid UTF-8
        9: column "a": "99999999999999999999" is no value of type BIGINT
        10: column "t": "yesterday" is no value of type TIMESTAMP
        12: a quoted field is not closed on its line, or text follows its end
        14: column "t": " " is no value of type TIMESTAMP
        15: a quoted field is not closed"#]]
    .assert_eq(&bad.join("\n"));
}

#[test]
fn csv_dialects() {
    let dialect = CsvDialect {
        delimiter: b';',
        quote: b'\'',
        escape: Some(b'\\'),
        comment: Some(b'#'),
        null: "NA".into(),
    };
    let schema = schema(&[("a", DataType::Int32), ("b", DataType::Utf8View)]);
    let mut decoder = CsvDecoder::new(dialect.clone(), &schema, &[1, 0], &[0, 1], 2);
    let text = b"# a comment\n1;'it\\'s; fine'\nNA;NA\n2;\n;x\n3;'a''b'";
    let (rows, bad) = decode(&dialect, &mut decoder, text);
    expect_test::expect![[r#"
        +------------+---+
        | b          | a |
        +------------+---+
        | it's; fine | 1 |
        |            |   |
        |            | 2 |
        | a'b        | 3 |
        +------------+---+"#]]
    .assert_eq(&rows);
    assert_eq!(bad, ["5: column \"a\": \"\" is no value of type INT"]);
    assert_eq!(dialect.fields(b"1;'it\\'s; fine';;'a''b'\r\n"), ["1", "it's; fine", "", "a'b"]);
}

#[test]
fn json_good_and_bad_records() {
    let text = br#"{"a": 1, "b": "x", "t": "2020-01-01 00:00:00", "unknown": [1, {}]}
{"t": 1577836800000, "b": 12.50}
{"a": 1.5}
{"a": 1e3, "b": true}
{"a": "7"}
{"a": 1} {"a": 2}
{"a": [1}
{"a": 99999999999999999999}
[1]
"text"
{"a": 1

{"b": {"deep": [1, "\"}"]}, "a": 3}
{"b": [1, 2]}
{"b": {deep: 1}}
{"a": tru}
{}
{"b": "no end}"#;
    let schema = three();
    let (rows, bad) = decode(&JsonLines, &mut JsonDecoder::new(&schema, &[0, 1, 2]), text);
    expect_test::expect![[r#"
        +------+----------------------+---------------------+
        | a    | b                    | t                   |
        +------+----------------------+---------------------+
        | 1    | x                    | 2020-01-01T00:00:00 |
        |      | 12.50                | 2020-01-01T00:00:00 |
        | 1000 | true                 |                     |
        | 7    |                      |                     |
        | 3    | {"deep": [1, "\"}"]} |                     |
        |      | [1, 2]               |                     |
        |      |                      |                     |
        +------+----------------------+---------------------+"#]]
    .assert_eq(&rows);
    expect_test::expect![[r#"
        3: column "a": "1.5" is no value of type BIGINT
        6: the line holds more than one value
        7: Encountered unexpected '}' whilst parsing value
        8: column "a": "99999999999999999999" is no value of type BIGINT
        9: expected { got [1]
        10: expected { got "text"
        11: the line ends inside an object
        15: Encountered unexpected 'd' whilst parsing object
        16: Encountered unexpected '}' whilst parsing literal
        18: the line ends inside an object"#]]
    .assert_eq(&bad.join("\n"));
}

#[test]
fn json_nested_columns() {
    let point = DataType::Struct(vec![Field::new("x", DataType::Float64, true)].into());
    let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
    let schema = schema(&[("p", point), ("l", list), ("ok", DataType::Boolean)]);
    let text = br#"{"p": {"x": 1.5, "y": 2}, "l": [1, null], "ok": true}
{"p": null, "l": []}
{"l": ["x"]}
"#;
    let (rows, bad) = decode(&JsonLines, &mut JsonDecoder::new(&schema, &[0, 1, 2]), text);
    expect_test::expect![[r#"
        +----------+-------+------+
        | p        | l     | ok   |
        +----------+-------+------+
        | {x: 1.5} | [1, ] | true |
        |          | []    |      |
        +----------+-------+------+"#]]
    .assert_eq(&rows);
    expect_test::expect![[r#"3: whilst decoding field 'l': failed to parse "x" as Int64"#]]
        .assert_eq(&bad.join("\n"));
}

#[test]
fn a_record_is_bad_whatever_is_projected() {
    let schema = three();
    let csv = b"1,x,\nx,y,\n3,z,\n";
    let json = b"{\"a\": 1}\n{\"a\": \"x\"}\n{}\n";
    for projection in [vec![], vec![1], vec![0], vec![2, 1]] {
        let places = [0, 1, 2];
        let mut decoder = CsvDecoder::new(CsvDialect::default(), &schema, &projection, &places, 3);
        let (_, bad) = decode(&CsvDialect::default(), &mut decoder, csv);
        assert_eq!(bad.len(), 1, "{projection:?}");
        let (_, bad) = decode(&JsonLines, &mut JsonDecoder::new(&schema, &projection), json);
        assert_eq!(bad.len(), 1, "{projection:?}");
    }
}

#[test]
fn not_null_columns() {
    let fields =
        vec![Field::new("a", DataType::Utf8View, false), Field::new("b", DataType::Utf8View, true)];
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let mut decoder = CsvDecoder::new(CsvDialect::default(), &schema, &[1], &[0, 1], 2);
    let (_, bad) = decode(&CsvDialect::default(), &mut decoder, b"x,y\n,y\n");
    assert_eq!(bad.len(), 1, "{bad:?}");
    let mut decoder = JsonDecoder::new(&schema, &[1]);
    let (_, bad) = decode(&JsonLines, &mut decoder, b"{\"a\":\"x\"}\n{}\n");
    assert_eq!(bad.len(), 1, "{bad:?}");
}

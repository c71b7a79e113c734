//! The catalog: names, options, and connectors of the user's own.

use std::collections::BTreeMap;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use millstream_engine::source::{Offset, Polled, Split, SplitReader};

use super::*;

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<BTreeMap<_, _>>()
}

#[test]
fn lists_all_connectors() {
    let names: Vec<&str> = catalog().connectors().iter().map(|info| info.name).collect();
    assert_eq!(names, ["nexmark", "datagen", "file", "blackhole", "print"]);
}

#[test]
fn errors_name_what_is_wrong() {
    let schema: SchemaRef = Arc::new(Schema::empty());
    let source = |pairs: &[(&str, &str)]| {
        catalog().source(&schema, &options(pairs)).unwrap_err().to_string()
    };
    let expect = [
        (vec![], "option \"connector\" is missing"),
        (
            vec![("connector", "kafak")],
            "unknown connector \"kafak\"; there are: nexmark, datagen, file, blackhole, print",
        ),
        (
            vec![("connector", "nexmrk")],
            "unknown connector \"nexmrk\" (did you mean \"nexmark\"?); there are: nexmark, datagen, file, blackhole, \
             print",
        ),
        (vec![("connector", "print")], "connector \"print\" cannot be read from"),
        (
            vec![("connector", "nexmark"), ("nexmark.table.type", "bids")],
            "nexmark source: invalid value \"bids\" for option \"nexmark.table.type\": expected one of: person, \
             auction, bid",
        ),
        (vec![("connector", "file")], "file source: option \"path\" is missing"),
        (
            vec![("connector", "file"), ("path", "x.txt")],
            "file source: the format of \"x.txt\" cannot be told from its name; set \"format\" to one of: json, csv, \
             parquet, arrow",
        ),
        (
            vec![("connector", "file"), ("path", "x"), ("encode", "avro")],
            "file: invalid value \"avro\" for option \"encode\": expected one of: json, csv, parquet, arrow",
        ),
    ];
    for (pairs, message) in expect {
        assert_eq!(source(&pairs), message);
    }
    let sink =
        |pairs: &[(&str, &str)]| catalog().sink(&schema, &options(pairs)).unwrap_err().to_string();
    assert_eq!(sink(&[("connector", "nexmark")]), "connector \"nexmark\" cannot be written to");
    assert_eq!(
        sink(&[("connector", "file"), ("path", "x"), ("format", "json"), ("type", "upsert")]),
        "file sink: invalid value \"upsert\" for option \"type\": expected one of: append-only, changelog"
    );
}

/// Counts to a number.
#[derive(Debug)]
struct Counter;

#[derive(Debug)]
struct CounterSource(SchemaRef);

struct CounterReader(SchemaRef, u64);

impl Connector for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn description(&self) -> &'static str {
        "counts to ten"
    }

    fn is_source(&self) -> bool {
        true
    }

    fn is_sink(&self) -> bool {
        false
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef> {
        Ok(Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)])))
    }

    fn source(&self, schema: &SchemaRef, _options: &Options) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(CounterSource(Arc::clone(schema))))
    }
}

impl Source for CounterSource {
    fn list_splits(&self) -> Result<Vec<Split>> {
        Ok(vec![Split("all".into())])
    }

    fn open(&self, _: &Split, from: Offset, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        let schema = millstream_engine::change_batch::project_schema(&self.0, projection);
        Ok(Box::new(CounterReader(schema, from.0)))
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

impl SplitReader for CounterReader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled> {
        let end = until.map_or(10, |until| until.0).min(10).min(self.1 + rows_max as u64);
        if end <= self.1 {
            return Ok(Polled::Finished);
        }
        let numbers: Vec<i64> = (self.1..end).map(|n| n as i64).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(numbers.len()));
        let columns: Vec<arrow::array::ArrayRef> = match self.0.fields().is_empty() {
            true => Vec::new(),
            false => vec![Arc::new(Int64Array::from(numbers))],
        };
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.0), columns, &options)?;
        self.1 = end;
        Ok(Polled::Rows { rows, next: Offset(end), bad: Vec::new() })
    }
}

#[test]
fn a_connector_of_ones_own() {
    let connectors = BuiltinConnectors::new().with(Arc::new(Counter));
    let options = options(&[("connector", "counter")]);
    let schema = connectors.infer_schema(&options).unwrap();
    let source = connectors.source(&schema, &options).unwrap();
    testing::check_source(source.as_ref(), &schema);
    assert_eq!(testing::read_all(source.as_ref(), &schema).unwrap().0.num_rows(), 10);
    assert_eq!(connectors.connectors().len(), 6);
    assert_eq!(connectors.with(Arc::new(Counter)).connectors().len(), 6);
}

//! Kinds, types, spellings, and the contract.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int64Type, IntervalUnit, Schema, TimeUnit};
use arrow::util::pretty::pretty_format_batches;

use super::*;
use crate::testing::{check_source, read_all};

fn make(
    columns: Vec<(&str, DataType)>,
    options: &[(&str, &str)],
) -> Result<(Arc<dyn Source>, SchemaRef)> {
    let fields = columns.into_iter().map(|(name, data_type)| Field::new(name, data_type, true));
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    Ok((DatagenConnector.source(&schema, &options)?, schema))
}

fn all_types() -> Vec<(&'static str, DataType)> {
    let point = DataType::Struct(vec![Field::new("x", DataType::Float64, true)].into());
    vec![
        ("b", DataType::Boolean),
        ("i2", DataType::Int16),
        ("i4", DataType::Int32),
        ("i8", DataType::Int64),
        ("f4", DataType::Float32),
        ("f8", DataType::Float64),
        ("n", DataType::Decimal128(10, 2)),
        ("t", DataType::Utf8View),
        ("y", DataType::Binary),
        ("d", DataType::Date32),
        ("h", DataType::Time64(TimeUnit::Nanosecond)),
        ("ts", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ("tz", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        ("v", DataType::Interval(IntervalUnit::MonthDayNano)),
        ("u", DataType::FixedSizeBinary(16)),
        ("l", DataType::List(Arc::new(Field::new("item", DataType::Int64, true)))),
        ("p", point),
    ]
}

#[test]
fn all_types_hold_the_contract() {
    let nulls: Vec<(String, &str)> =
        all_types().iter().map(|(name, _)| (format!("fields.{name}.null-rate"), "0.2")).collect();
    let mut options = vec![("number-of-rows", "300"), ("seed", "3"), ("datagen.split.num", "2")];
    let (source, schema) = make(all_types(), &options).unwrap();
    check_source(source.as_ref(), &schema);
    options.extend(nulls.iter().map(|(name, value)| (name.as_str(), *value)));
    let (source, schema) = make(all_types(), &options).unwrap();
    check_source(source.as_ref(), &schema);
    let (rows, _) = read_all(source.as_ref(), &schema).unwrap();
    for column in rows.columns() {
        assert!((20..120).contains(&column.null_count()), "{}", column.null_count());
    }
}

#[test]
fn kinds() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let columns = vec![
        ("id", DataType::Int64),
        ("state", DataType::Utf8View),
        ("amount", DataType::Decimal128(6, 2)),
        ("temp", DataType::Float64),
        ("note", DataType::Utf8View),
        ("at", time.clone()),
        ("seen", time),
    ];
    let options = [
        ("number-of-rows", "4"),
        ("fields.id.kind", "sequence"),
        ("fields.id.start", "10"),
        ("fields.id.end", "1000"),
        ("fields.state.values", "on,off"),
        ("fields.amount.kind", "random"),
        ("fields.amount.min", "1.50"),
        ("fields.amount.max", "2"),
        ("fields.temp.kind", "sequence"),
        ("fields.temp.step", "0.5"),
        ("fields.note.kind", "text"),
        ("fields.note.length", "8"),
        ("fields.at.step", "1 min"),
        ("fields.seen.max_past", "1 h"),
        ("fields.seen.basetime", "2020-01-01 00:00:00"),
    ];
    let (source, schema) = make(columns, &options).unwrap();
    let (rows, _) = read_all(source.as_ref(), &schema).unwrap();
    expect_test::expect![[r#"
        +----+-------+--------+------+----------+---------------------+----------------------------+
        | id | state | amount | temp | note     | at                  | seen                       |
        +----+-------+--------+------+----------+---------------------+----------------------------+
        | 10 | off   | 1.75   | 0.0  | ocean ap | 2015-07-15T00:00:00 | 2019-12-31T23:14:25.584332 |
        | 11 | off   | 1.80   | 0.5  | apple ap | 2015-07-15T00:01:00 | 2019-12-31T23:48:33.208385 |
        | 12 | on    | 1.72   | 1.0  | apple ye | 2015-07-15T00:02:00 | 2019-12-31T23:49:25.054235 |
        | 13 | on    | 1.81   | 1.5  | early br | 2015-07-15T00:03:00 | 2019-12-31T23:16:56.953164 |
        +----+-------+--------+------+----------+---------------------+----------------------------+"#]].assert_eq(&pretty_format_batches(&[rows]).unwrap().to_string());
}

#[test]
fn a_sequence_with_an_end_bounds_the_source() {
    let options = [("fields.id.start", "1"), ("fields.id.end", "5"), ("rows-per-second", "0")];
    let (source, schema) = make(vec![("id", DataType::Int64)], &options).unwrap();
    assert!(source.is_bounded());
    let (rows, _) = read_all(source.as_ref(), &schema).unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3, 4, 5]);
    let (source, schema) =
        make(vec![("id", DataType::Int64)], &[("rows-per-second", "0")]).unwrap();
    assert!(!source.is_bounded());
    check_source(source.as_ref(), &schema);
}

#[test]
fn random_values_stay_in_their_range_and_spread() {
    let options = [("number-of-rows", "10000"), ("fields.x.min", "-5"), ("fields.x.max", "5")];
    let (source, schema) = make(vec![("x", DataType::Int64)], &options).unwrap();
    let (rows, _) = read_all(source.as_ref(), &schema).unwrap();
    let mut counts = [0; 11];
    for value in rows.column(0).as_primitive::<Int64Type>().values() {
        counts[usize::try_from(value + 5).unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| (700..1100).contains(count)), "{counts:?}");
}

#[test]
fn errors() {
    let fails = |data_type: DataType, options: &[(&str, &str)]| {
        make(vec![("x", data_type)], options).unwrap_err().to_string()
    };
    let expect = [
        (
            fails(DataType::Int64, &[("fields.y.kind", "random")]),
            "datagen source: option \"fields.y.kind\" is about no column (did you mean \"x\"?)",
        ),
        (
            fails(DataType::Int64, &[("fields.x.kind", "randon")]),
            "datagen column \"x\": invalid value \"randon\" for option \"kind\": expected one of: sequence, random, \
             choice, text",
        ),
        (
            fails(DataType::Int64, &[("fields.x.min", "a")]),
            "datagen column \"x\": \"a\" is no value of type BIGINT",
        ),
        (
            fails(DataType::Int64, &[("fields.x.min", "3"), ("fields.x.max", "2")]),
            "datagen column \"x\": option \"min\" is greater than \"max\"",
        ),
        (
            fails(DataType::Int64, &[("fields.x.kind", "text")]),
            "datagen column \"x\": kind \"text\" is not for BIGINT",
        ),
        (
            fails(DataType::Int64, &[("rows-per-sekond", "3")]),
            "datagen source: unknown option \"rows-per-sekond\" (did you mean \"rows-per-second\"?); options are: \
             rows-per-second, number-of-rows, split-num, seed, format, encode",
        ),
    ];
    for (error, message) in expect {
        assert_eq!(error, message);
    }
}

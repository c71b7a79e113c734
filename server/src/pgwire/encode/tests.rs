//! Expected texts and bytes are what PostgreSQL 15 prints and sends for the same values.

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Int32Type, IntervalMonthDayNano, TimeUnit};

use super::*;
use crate::pgwire::input::Builder;

fn text_of(column: &Column, row: usize, zone: &Zone) -> String {
    let mut out = BytesMut::new();
    column.write(row, Format::Text, zone, &mut out).unwrap();
    String::from_utf8(out.to_vec()).unwrap()
}

fn hex_of(column: &Column, row: usize) -> String {
    let mut out = BytesMut::new();
    column.write(row, Format::Binary, &Zone::Utc, &mut out).unwrap();
    out.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn column(array: impl Array + 'static) -> Column {
    let array: ArrayRef = Arc::new(array);
    Column::new(&array, &PgType::from_arrow(array.data_type())).unwrap()
}

/// Reads a text as a type and prints it again, both ways.
fn through(name: &str, target: &DataType, text: &str) -> (String, String) {
    let pg_type = PgType::from_name(name).unwrap();
    let mut builder = Builder::new(&pg_type, target, &Zone::Utc).unwrap();
    builder.append_text(text).unwrap_or_else(|bad| panic!("{name} {text}: {bad}"));
    let column = Column::new(&builder.finish().unwrap(), &pg_type).unwrap();
    let printed = text_of(&column, 0, &Zone::Utc);
    let mut binary = BytesMut::new();
    column.write(0, Format::Binary, &Zone::Utc, &mut binary).unwrap();
    // What is sent in binary reads back as the same value.
    let mut again = Builder::new(&pg_type, target, &Zone::Utc).unwrap();
    again.append_binary(&binary.freeze()).unwrap();
    let column = Column::new(&again.finish().unwrap(), &pg_type).unwrap();
    assert_eq!(text_of(&column, 0, &Zone::Utc), printed, "{name} {text}");
    (printed, hex_of(&column, 0))
}

#[test]
fn numerics() {
    for (text, scale, hex) in [
        ("0", 0, "0000000000000000"),
        ("0.00", 2, "0000000000000002"),
        ("1", 0, "00010000000000000001"),
        ("-1.5", 1, "000200004000000100011388"),
        ("10000", 0, "00010001000000000001"),
        ("12345678.90", 2, "000300010000000204d2162e2328"),
        ("0.00012", 5, "0002ffff00000005000107d0"),
        ("-0.5000", 4, "0001ffff400000041388"),
        ("99999999999999999999.9999", 4, "0006000400000004270f270f270f270f270f270f"),
        ("100000000", 0, "00010002000000000001"),
        ("0.1", 1, "0001ffff0000000103e8"),
        ("1234.5678", 4, "000200000000000404d2162e"),
        ("10000.0001", 4, "0003000100000004000100000001"),
    ] {
        let expected = (text.to_owned(), hex.to_owned());
        assert_eq!(through("numeric", &DataType::Decimal128(38, scale), text), expected);
        assert_eq!(through("numeric", &DataType::Decimal256(76, scale), text), expected);
    }
    // 12 with scale -2 is 1200.
    let column = column(Decimal128Array::from(vec![12]).with_precision_and_scale(5, -2).unwrap());
    assert_eq!(text_of(&column, 0, &Zone::Utc), "1200");
    assert_eq!(hex_of(&column, 0), "000100000000000004b0");
}

#[test]
fn floats() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.5, "1.5"),
        (1e15, "1e+15"),
        (123_456_789_012_345.0, "123456789012345"),
        (1e23, "9.999999999999999e+22"),
        (1e22, "1e+22"),
        (8.41e21, "8.409999999999999e+21"),
        (9_007_199_254_740_993.0, "9.007199254740992e+15"),
        (5e-324, "5e-324"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1e100, "1e+100"),
        (-1.797_693_134_862_315_7e308, "-1.7976931348623157e+308"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
        (0.1, "0.1"),
        (100.0, "100"),
        (123_456.789, "123456.789"),
    ] {
        let column = column(Float64Array::from(vec![value]));
        assert_eq!(text_of(&column, 0, &Zone::Utc), text);
    }
    for (value, text) in [
        (1e6_f32, "1e+06"),
        (123_456.0, "123456"),
        (16_777_216.0, "1.6777216e+07"),
        (0.1, "0.1"),
        (3.402_823_5e38, "3.4028235e+38"),
        (1e-45, "1e-45"),
        (999_999.5, "999999.5"),
        (1e10, "1e+10"),
        (8.5e9, "8.4999997e+09"),
    ] {
        let column = column(Float32Array::from(vec![value]));
        assert_eq!(text_of(&column, 0, &Zone::Utc), text);
    }
}

#[test]
fn intervals() {
    let target = DataType::Interval(IntervalUnit::MonthDayNano);
    for (written, text, hex) in [
        ("0", "00:00:00", "00000000000000000000000000000000"),
        (
            "1 year 2 mons 3 days 04:05:06.789",
            "1 year 2 mons 3 days 04:05:06.789",
            "000000036c97ca88000000030000000e",
        ),
        (
            "P1Y2M3DT4H5M6.789S",
            "1 year 2 mons 3 days 04:05:06.789",
            "000000036c97ca88000000030000000e",
        ),
        ("-1 year", "-1 years", "000000000000000000000000fffffff4"),
        ("1 mon -1 day", "1 mon -1 days", "0000000000000000ffffffff00000001"),
        ("-1 mon +1 day", "-1 mons +1 day", "000000000000000000000001ffffffff"),
        ("1 day -00:00:01", "1 day -00:00:01", "fffffffffff0bdc00000000100000000"),
        ("-1 day 00:00:01", "-1 days +00:00:01", "00000000000f4240ffffffff00000000"),
        ("100:00:00", "100:00:00", "00000053d1ac10000000000000000000"),
        ("1000000:00:00.5", "1000000:00:00.5", "000cca2e5138a1200000000000000000"),
        ("13 mons", "1 year 1 mon", "0000000000000000000000000000000d"),
        ("-00:00:00.000001", "-00:00:00.000001", "ffffffffffffffff0000000000000000"),
        ("1.5 days", "1 day 12:00:00", "0000000a0eebb0000000000100000000"),
        (
            "13 mons 1 day 1 sec ago",
            "-1 years -1 mons -1 days -00:00:01",
            "fffffffffff0bdc0fffffffffffffff3",
        ),
    ] {
        let found = through("interval", &target, written);
        assert_eq!(found, (text.to_owned(), hex.to_owned()), "{written}");
    }
}

#[test]
fn dates_and_times() {
    let plain = DataType::Timestamp(TimeUnit::Microsecond, None);
    let time = DataType::Time64(TimeUnit::Microsecond);
    for (name, target, text, hex) in [
        ("timestamp", &plain, "2024-02-29 12:34:56.789", "0002b58341728608"),
        ("timestamp", &plain, "1970-01-01 00:00:00", "fffca2fec4c82000"),
        ("timestamp", &plain, "0044-03-15 00:00:00 BC", "ff1af9deec5b2000"),
        ("timestamp", &plain, "infinity", "7fffffffffffffff"),
        ("timestamp", &plain, "-infinity", "8000000000000000"),
        ("timestamp", &plain, "12345-01-01 00:00:00.000001", "0487cea306fec001"),
        ("timestamp", &plain, "1999-12-31 23:59:59.999999", "ffffffffffffffff"),
        ("timestamp", &plain, "0001-01-01 00:00:00", "ff1fe2ffc59c6000"),
        ("date", &DataType::Date32, "2024-02-29", "00002279"),
        ("date", &DataType::Date32, "1969-12-31", "ffffd532"),
        ("date", &DataType::Date32, "0044-03-15 BC", "fff49d7b"),
        ("date", &DataType::Date32, "infinity", "7fffffff"),
        ("date", &DataType::Date32, "10000-01-01", "002c95d4"),
        ("time", &time, "00:00:00", "0000000000000000"),
        ("time", &time, "23:59:59.1", "000000141dc9a460"),
        ("time", &time, "24:00:00", "000000141dd76000"),
    ] {
        assert_eq!(through(name, target, text), (text.to_owned(), hex.to_owned()), "{name} {text}");
    }
}

#[test]
fn instants_in_the_zone_of_the_session() {
    let zone = Zone::parse("Asia/Kolkata").unwrap();
    let target = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let pg_type = PgType::from_name("timestamptz").unwrap();
    for (written, printed) in [
        ("2024-02-29 12:34:56.789+00", "2024-02-29 18:04:56.789+05:30"),
        ("2024-02-29T12:34:56.789Z", "2024-02-29 18:04:56.789+05:30"),
        ("2024-02-29 18:04:56.789", "2024-02-29 18:04:56.789+05:30"),
        ("2024-02-29 13:34:56.789 Europe/Berlin", "2024-02-29 18:04:56.789+05:30"),
        ("1900-01-01 00:00:00+00", "1900-01-01 05:21:10+05:21:10"),
        ("1800-01-01 00:00:00+00", "1800-01-01 05:53:28+05:53:28"),
    ] {
        let mut builder = Builder::new(&pg_type, &target, &zone).unwrap();
        builder.append_text(written).unwrap();
        let column = Column::new(&builder.finish().unwrap(), &pg_type).unwrap();
        assert_eq!(text_of(&column, 0, &zone), printed);
    }
}

#[test]
fn the_rules_of_a_zone_go_on_behind_its_table() {
    let zone = Zone::parse("america/new_york").unwrap();
    for (written, printed) in [
        ("2114-09-06 22:29:52.8288+00", "2114-09-06 18:29:52.8288-04"),
        ("2114-01-06 22:29:52+00", "2114-01-06 17:29:52-05"),
        ("2024-09-06 22:29:52+00", "2024-09-06 18:29:52-04"),
    ] {
        let pg_type = PgType::from_name("timestamptz").unwrap();
        let mut builder = Builder::new(&pg_type, &pg_type.arrow_type(), &zone).unwrap();
        builder.append_text(written).unwrap();
        let column = Column::new(&builder.finish().unwrap(), &pg_type).unwrap();
        assert_eq!(text_of(&column, 0, &zone), printed);
        let mut again = Builder::new(&pg_type, &pg_type.arrow_type(), &zone).unwrap();
        again.append_text(printed.rsplit_once(['-', '+']).unwrap().0).unwrap();
        let column = Column::new(&again.finish().unwrap(), &pg_type).unwrap();
        assert_eq!(text_of(&column, 0, &zone), printed);
    }
}

#[test]
fn arrays() {
    let values = [
        Some("a"),
        Some("b c"),
        Some(""),
        Some("NULL"),
        None,
        Some("q\"\\"),
        Some("{x}"),
        Some("a,b"),
    ];
    let mut builder = ListBuilder::new(StringViewBuilder::new());
    builder.append_value(values);
    let list = column(builder.finish());
    let text = r#"{a,"b c","","NULL",NULL,"q\"\\","{x}","a,b"}"#;
    assert_eq!(text_of(&list, 0, &Zone::Utc), text);
    let hex = "000000010000000100000019000000080000000100000001610000000362206300000000000000044e554c4cffffffff0000000371225c000000037b787d00000003612c62";
    assert_eq!(hex_of(&list, 0), hex);
    let element = Arc::new(Field::new_list_field(DataType::Utf8View, true));
    assert_eq!(
        through("text[]", &DataType::List(element), text),
        (text.to_owned(), hex.to_owned())
    );

    let inner = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(3), None]),
        Some(vec![Some(4)]),
    ]);
    let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
    let nested = |lengths: [usize; 2]| {
        let offsets = OffsetBuffer::from_lengths(lengths);
        ListArray::new(
            Arc::clone(&field),
            offsets,
            Arc::new(inner.slice(0, lengths.iter().sum())),
            None,
        )
    };
    let even = column(nested([2, 0]));
    assert_eq!(text_of(&even, 0, &Zone::Utc), "{{1,2},{3,NULL}}");
    let hex = "00000002000000010000001700000002000000010000000200000001000000040000000100000004000000020000000400000003ffffffff";
    assert_eq!(hex_of(&even, 0), hex);
    assert_eq!(text_of(&even, 1, &Zone::Utc), "{}");
    assert_eq!(hex_of(&even, 1), "000000000000000000000017");
    let ragged = column(nested([3, 0]));
    let refused = ragged.write(0, Format::Binary, &Zone::Utc, &mut BytesMut::new());
    assert_eq!(refused.unwrap_err().sqlstate, "2202E");
}

#[test]
fn records() {
    let record = StructArray::from(vec![
        (
            Arc::new(Field::new("a", DataType::Int32, true)),
            Arc::new(Int32Array::from(vec![1])) as ArrayRef,
        ),
        (Arc::new(Field::new("b", DataType::Utf8, true)), Arc::new(StringArray::from(vec!["a b"]))),
        (
            Arc::new(Field::new("c", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![None::<&str>])),
        ),
        (Arc::new(Field::new("d", DataType::Utf8, true)), Arc::new(StringArray::from(vec![""]))),
        (
            Arc::new(Field::new("e", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec!["q\"\\(x)"])),
        ),
        (
            Arc::new(Field::new("f", DataType::Float64, true)),
            Arc::new(Float64Array::from(vec![1.5])),
        ),
    ]);
    assert_eq!(text_of(&column(record), 0, &Zone::Utc), r#"(1,"a b",,"","q""\\(x)",1.5)"#);
}

#[test]
fn other_types() {
    let bytes = column(BinaryArray::from(vec![&b"\x00\xff\x10"[..]]));
    assert_eq!(text_of(&bytes, 0, &Zone::Utc), "\\x00ff10");
    assert_eq!(hex_of(&bytes, 0), "00ff10");
    let id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let (text, hex) = through("uuid", &DataType::Utf8View, "{A0EEBC99-9C0B4EF8-bb6d6bb9bd380a11}");
    assert_eq!((text.as_str(), hex), (id, id.replace('-', "")));
    let json = through("jsonb", &DataType::Utf8View, "{\"a\": 1}");
    assert_eq!(json, ("{\"a\": 1}".to_owned(), "017b2261223a20317d".to_owned()));
    assert_eq!(through("bool", &DataType::Boolean, "yes"), ("t".to_owned(), "01".to_owned()));
    assert_eq!(through("int8", &DataType::Int64, "-5").1, "fffffffffffffffb");
    assert_eq!(
        through("int2vector", &PgType::from_name("int2vector").unwrap().arrow_type(), "1 2").0,
        "1 2"
    );
    // Unsigned numbers widen; what does not fit is an error, not a wrong number.
    assert_eq!(text_of(&column(UInt64Array::from(vec![7])), 0, &Zone::Utc), "7");
    let large: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    let refused = Column::new(&large, &PgType::from_arrow(&DataType::UInt64));
    assert_eq!(refused.err().unwrap().sqlstate, "22003");
    let dictionary: DictionaryArray<Int32Type> = ["x", "y", "x"].into_iter().collect();
    assert_eq!(text_of(&column(dictionary), 2, &Zone::Utc), "x");
    let interval = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(0, 1, 0)]);
    assert_eq!(text_of(&column(interval), 0, &Zone::Utc), "1 day");
}

#[test]
fn metadata_names_the_type() {
    let field = Field::new("a", DataType::Utf8View, true)
        .with_metadata([("pg.type".to_owned(), "varchar(10)".to_owned())].into());
    let schema = Schema::new(vec![field, Field::new("b", DataType::UInt64, true)]);
    let mut out = BytesMut::new();
    row_description(&schema, &[Format::Text, Format::Binary], &mut out);
    let mut expected =
        b"T\0\0\0\x2e\0\x02a\0\0\0\0\0\0\0\0\0\x04\x13\xff\xff\0\0\0\x0e\0\0".to_vec();
    expected.extend(b"b\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\x01");
    assert_eq!(out[..], expected[..]);
}

#[test]
fn a_data_row_holds_lengths_and_nulls() {
    let schema = Schema::new(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Utf8View, true),
    ]);
    let encoder = RowEncoder::new(&schema, &[], Styles::utc()).unwrap();
    let batch = RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int32Array::from(vec![Some(42)])),
            Arc::new(StringViewArray::from(vec![None::<&str>])),
        ],
    );
    let columns = encoder.columns(&batch.unwrap()).unwrap();
    let mut out = BytesMut::new();
    encoder.data_row(&columns, 0, &mut out).unwrap();
    assert_eq!(out[..], b"D\0\0\0\x10\0\x02\0\0\0\x0242\xff\xff\xff\xff"[..]);
}

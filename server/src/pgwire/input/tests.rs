//! What is refused, and with which SQLSTATE: as PostgreSQL 15 answers.

use arrow::datatypes::TimeUnit;
use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn refused(name: &str, text: &str) -> &'static str {
    let pg_type = PgType::from_name(name).unwrap();
    let mut builder = Builder::new(&pg_type, &pg_type.arrow_type(), &Zone::Utc).unwrap();
    match builder.append_text(text) {
        Ok(()) => panic!("{name} took {text}"),
        Err(bad) => bad.sqlstate,
    }
}

#[test]
fn bad_values_are_refused_with_postgres_codes() {
    for (name, text, code) in [
        ("int4", "abc", "22P02"),
        ("int4", "", "22P02"),
        ("int4", "1.5", "22P02"),
        ("int4", "2147483648", "22003"),
        ("int8", "9223372036854775808", "22003"),
        ("float8", "1e400", "22003"),
        ("float8", "1e-400", "22003"),
        ("float8", "1,5", "22P02"),
        ("bool", "maybe", "22P02"),
        ("bool", "o", "22P02"),
        ("numeric", "1.2.3", "22P02"),
        ("numeric", "1e40", "22003"),
        ("date", "2024-02-30", "22008"),
        ("date", "2024-13-01", "22008"),
        ("date", "tuesday", "22007"),
        ("timestamp", "2024-01-01 25:00:00", "22008"),
        ("timestamp", "2024-01-01 1", "22007"),
        ("timestamptz", "2024-01-01 00:00:00 Mars/Olympus", "22007"),
        ("time", "12", "22007"),
        ("interval", "1 fortnight", "22007"),
        ("interval", "99999999999 years", "22008"),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1", "22P02"),
        ("json", "{a:1}", "22P02"),
        ("bytea", "\\x1", "22023"),
        ("bytea", "\\9", "22P02"),
        ("int4[]", "{1,2", "22P02"),
        ("int4[]", "{1,,2}", "22P02"),
        ("int4[]", "{1,x}", "22P02"),
    ] {
        assert_eq!(refused(name, text), code, "{name} {text}");
    }
}

#[test]
fn numbers_round_half_away_from_zero_to_the_column() {
    for (text, value) in [
        ("1.005", 101),
        ("-1.005", -101),
        ("1.004", 100),
        ("0.005", 1),
        ("9.995", 1000),
        ("1e1", 1000),
    ] {
        assert_eq!(numeric::parse_128(text, 10, 2).unwrap(), value, "{text}");
    }
    assert_eq!(numeric::parse_128("0.001", 10, 2).unwrap(), 0);
    assert_eq!(numeric::parse_128("123.4", 3, 2).unwrap_err().sqlstate, "22003");
    assert_eq!(numeric::parse_128("9.995", 3, 2).unwrap_err().sqlstate, "22003");
    assert_eq!(scale_of("12.340"), Some((38, 3)));
}

#[test]
fn sizes_made_up_by_the_client_cost_nothing() {
    let pg_type = PgType::from_name("int4[]").unwrap();
    let huge = b"\0\0\0\x02\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01\x7f\xff\xff\xff\0\0\0\x01";
    let mut builder = Builder::new(&pg_type, &pg_type.arrow_type(), &Zone::Utc).unwrap();
    assert_eq!(builder.append_binary(&Bytes::from_static(huge)).unwrap_err().sqlstate, "22P03");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        for name in ["int4", "numeric", "float8", "bool", "date", "time", "timestamp", "timestamptz", "interval",
                     "uuid", "bytea", "json", "text[]", "int4[]", "numeric[]", "int2vector"] {
            let pg_type = PgType::from_name(name).unwrap();
            let mut builder = Builder::new(&pg_type, &pg_type.arrow_type(), &Zone::Utc).unwrap();
            let _ = builder.append_text(&text);
        }
    }

    #[test]
    fn no_date_like_text_panics(text in "[-0-9:.+TZ /PYMDHSadgo]{0,30}") {
        for name in ["date", "time", "timestamp", "timestamptz", "interval", "numeric", "float8"] {
            let pg_type = PgType::from_name(name).unwrap();
            let mut builder = Builder::new(&pg_type, &pg_type.arrow_type(), &Zone::Utc).unwrap();
            let _ = builder.append_text(&text);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let bytes = Bytes::from(bytes);
        for name in ["int4", "numeric", "date", "interval", "uuid", "jsonb", "text[]", "int4[]", "text"] {
            let pg_type = PgType::from_name(name).unwrap();
            let mut builder = Builder::new(&pg_type, &pg_type.arrow_type(), &Zone::Utc).unwrap();
            let _ = builder.append_binary(&bytes);
        }
    }

    #[test]
    fn timestamps_round_trip(micros in -200_000_000_000_000_000_i64..9_000_000_000_000_000_000) {
        let target = DataType::Timestamp(TimeUnit::Microsecond, None);
        let pg_type = PgType::from_name("timestamp").unwrap();
        let array: ArrayRef = Arc::new(arrow::array::TimestampMicrosecondArray::from(vec![micros]));
        let column = crate::pgwire::encode::Column::new(&array, &pg_type).unwrap();
        let mut out = bytes::BytesMut::new();
        let format = crate::pgwire::frontend::Format::Text;
        column.write(0, format, &Zone::Utc, &mut out).unwrap();
        let text = std::str::from_utf8(&out).unwrap();
        let mut builder = Builder::new(&pg_type, &target, &Zone::Utc).unwrap();
        builder.append_text(text).unwrap();
        let again = builder.finish().unwrap();
        prop_assert_eq!(&again, &array, "{}", text);
    }
}

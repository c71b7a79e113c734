//! Lines and pieces of lines, good and bad.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int32Type, Schema};

use super::*;

fn target() -> CopyTarget {
    let fields =
        vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8View, true)];
    CopyTarget { table: "t".to_owned(), schema: Arc::new(Schema::new(fields)) }
}

fn format(kind: CopyKind) -> CopyFormat {
    let (delimiter, null) = match kind {
        CopyKind::Csv => (',', ""),
        _ => ('\t', "\\N"),
    };
    CopyFormat { kind, delimiter, null: null.to_owned(), header: false, quote: '"' }
}

fn decode(
    format: &CopyFormat,
    input: &[u8],
    piece: usize,
) -> Result<Vec<(Option<i32>, Option<String>)>> {
    let mut decoder = Decoder::new(&target(), format, &Zone::Utc)?;
    for bytes in input.chunks(piece) {
        decoder.push(&Bytes::copy_from_slice(bytes))?;
    }
    let mut rows = Vec::new();
    for batch in decoder.finish()? {
        let numbers = batch.column(0).as_primitive::<Int32Type>();
        let texts = batch.column(1).as_string_view();
        rows.extend(numbers.iter().zip(texts.iter()).map(|(a, b)| (a, b.map(str::to_owned))));
    }
    Ok(rows)
}

/// The same in pieces of every size.
fn check(format: &CopyFormat, input: &[u8], expected: &[(Option<i32>, Option<&str>)]) {
    for piece in [1, 2, 3, 7, 1000] {
        let found = decode(format, input, piece).unwrap();
        let found: Vec<_> = found.iter().map(|(a, b)| (*a, b.as_deref())).collect();
        assert_eq!(found, expected, "pieces of {piece}");
    }
}

#[test]
fn text_lines() {
    let input = "1\tplain\r\n\\N\t\\N\n-3\ttab\\there\\\\ \\x41\\101\n4\tback\\\nslash\n5\tümlaut\n\\.\nnot read";
    check(
        &format(CopyKind::Text),
        input.as_bytes(),
        &[
            (Some(1), Some("plain")),
            (None, None),
            (Some(-3), Some("tab\there\\ AA")),
            (Some(4), Some("back\nslash")),
            (Some(5), Some("ümlaut")),
        ],
    );
}

#[test]
fn csv_lines() {
    let input = "a,b\n1,plain\n,\n2,\"\"\n3,\"say \"\"hi\"\", he\nsaid\"\n4,x\"y\"z";
    let with_header = CopyFormat { header: true, ..format(CopyKind::Csv) };
    check(
        &with_header,
        input.as_bytes(),
        &[
            (Some(1), Some("plain")),
            (None, None),
            (Some(2), Some("")),
            (Some(3), Some("say \"hi\", he\nsaid")),
            (Some(4), Some("xyz")),
        ],
    );
}

#[test]
fn binary_rows() {
    let mut input = super::super::out::BINARY_HEADER.to_vec();
    input.extend(b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x02hi");
    input.extend(b"\0\x02\xff\xff\xff\xff\xff\xff\xff\xff");
    input.extend(b"\xff\xff");
    check(&format(CopyKind::Binary), &input, &[(Some(7), Some("hi")), (None, None)]);
    let cut = decode(&format(CopyKind::Binary), &input[..30], 5);
    assert_eq!(cut.unwrap_err().sqlstate, "22P04");
}

#[test]
fn errors_tell_the_place() {
    let text = format(CopyKind::Text);
    let bad = decode(&text, b"1\ta\nx\tb\n", 100).unwrap_err();
    assert_eq!(bad.sqlstate, "22P02");
    assert_eq!(bad.detail.as_deref(), Some("COPY t, line 2, column a: \"x\""));
    let missing = decode(&text, b"1\n", 100).unwrap_err();
    assert_eq!(
        (missing.sqlstate, missing.message.as_str()),
        ("22P04", "missing data for column \"b\"")
    );
    assert_eq!(missing.detail.as_deref(), Some("COPY t, line 1: \"1\""));
    let extra = decode(&text, b"1\t2\t3\n", 100).unwrap_err();
    assert_eq!(extra.message, "extra data after last expected column");
    let open = decode(&format(CopyKind::Csv), b"1,\"abc\n", 100).unwrap_err();
    assert_eq!((open.sqlstate, open.message.as_str()), ("22P04", "unterminated CSV quoted field"));
    assert_eq!(decode(&text, b"1\t\xff\n", 100).unwrap_err().sqlstate, "22021");
}

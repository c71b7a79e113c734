//! What each format prints.

use std::sync::Arc;

use arrow::array::{
    BooleanArray, Float64Array, Int64Array, ListArray, StringViewArray, TimestampMicrosecondArray,
};
use arrow::datatypes::Int64Type;
use expect_test::{Expect, expect};

use super::*;

fn batch() -> RecordBatch {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
    ]);
    let times = TimestampMicrosecondArray::from(vec![Some(0), Some(1_500_000), None]);
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(vec![1, 20, 300])) as _, false),
        (
            "city",
            Arc::new(StringViewArray::from(vec![Some("Oslo"), None, Some("two\nlines, \"q\"")]))
                as _,
            true,
        ),
        ("ok", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])) as _, true),
        ("share", Arc::new(Float64Array::from(vec![1.0, 0.25, 1e20])) as _, false),
        ("at", Arc::new(times) as _, true),
        ("list", Arc::new(list) as _, true),
    ])
    .unwrap()
}

fn check(format: Format, expected: &Expect) {
    let batch = batch();
    let mut out = Vec::new();
    let mut writer = RowWriter::new(format, &batch.schema(), false, &mut out).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    expected.assert_eq(&String::from_utf8(out).unwrap());
}

#[test]
fn table() {
    check(
        Format::Table,
        &expect![[r#"
             id  |    city    | ok | share |          at           |   list   
            -----+------------+----+-------+-----------------------+----------
               1 | Oslo       | t  |     1 | 1970-01-01 00:00:00   | {1,NULL}
              20 |            | f  |  0.25 | 1970-01-01 00:00:01.5 |
             300 | two       +|    | 1e+20 |                       | {}
                 | lines, "q" |    |       |                       |
            (3 rows)

        "#]],
    );
}

#[test]
fn csv() {
    check(
        Format::Csv,
        &expect![[r#"
            id,city,ok,share,at,list
            1,Oslo,t,1,1970-01-01 00:00:00,"{1,NULL}"
            20,,f,0.25,1970-01-01 00:00:01.5,
            300,"two
            lines, ""q""",,1e+20,,{}
        "#]],
    );
}

#[test]
fn json() {
    check(
        Format::Json,
        &expect![[r#"
            {"id":1,"city":"Oslo","ok":true,"share":1.0,"at":"1970-01-01T00:00:00","list":[1,null]}
            {"id":20,"city":null,"ok":false,"share":0.25,"at":"1970-01-01T00:00:01.500","list":null}
            {"id":300,"city":"two\nlines, \"q\"","ok":null,"share":1.0e20,"at":null,"list":[]}
        "#]],
    );
}

#[test]
fn copy_text() {
    let batch = batch();
    let format = CopyFormat {
        kind: CopyKind::Text,
        delimiter: '\t',
        null: "\\N".to_string(),
        header: false,
        quote: '"',
    };
    let mut out = Vec::new();
    let mut writer = RowWriter::copy(&format, &batch.schema(), &mut out).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "20\t\\N\tf\t0.25\t1970-01-01 00:00:01.5\t\\N");
    assert_eq!(lines[2], "300\ttwo\\nlines, \"q\"\t\\N\t1e+20\t\\N\t{}");
}

#[test]
fn a_result_without_rows_has_a_head_and_a_foot() {
    let schema = batch().schema();
    let mut out = Vec::new();
    let writer = RowWriter::new(Format::Table, &schema, false, &mut out).unwrap();
    writer.finish().unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("(0 rows)"));
}

//! Expected values are those of PostgreSQL 15, where the pattern is PostgreSQL's.

use crate::functions::testing::run;

const TIMES: &str = "(VALUES (TIMESTAMP '2024-02-29 00:05:09.123456'), (TIMESTAMP '1999-12-31 23:59:59'), \
                     (TIMESTAMP '2021-01-03 12:00:00.5')) v(ts)";

fn to_char(pattern: &str) -> String {
    run(&format!("SELECT to_char(ts, '{pattern}') FROM {TIMES}"))
}

#[test]
fn postgres_patterns() {
    assert_eq!(
        to_char("YYYY-MM-DD HH24:MI:SS.US"),
        "2024-02-29 00:05:09.123456\n1999-12-31 23:59:59.000000\n2021-01-03 12:00:00.500000"
    );
    assert_eq!(
        to_char("YY MON Mon DD DDD D DY Day|"),
        "24 FEB Feb 29 060 5 THU Thursday |\n99 DEC Dec 31 365 6 FRI Friday   |\n21 JAN Jan 03 003 1 SUN Sunday   |"
    );
    assert_eq!(
        to_char("FMMonth FMDD, YYYY"),
        "February 29, 2024\nDecember 31, 1999\nJanuary 3, 2021"
    );
    assert_eq!(to_char("HH12:MI AM"), "12:05 AM\n11:59 PM\n12:00 PM");
    assert_eq!(
        to_char("IYYY-IW-ID Q CC J WW W"),
        "2024-09-4 1 21 2460370 09 5\n1999-52-5 4 20 2451544 53 5\n2020-53-7 1 21 2459218 01 1"
    );
    assert_eq!(
        to_char("\"Day \"DDth SSSS MS"),
        "Day 29th 309 123\nDay 31st 86399 000\nDay 03rd 43200 500"
    );
}

#[test]
fn strftime_patterns() {
    assert_eq!(
        to_char("%Y-%m-%d %H:%M:%S"),
        "2024-02-29 00:05:09\n1999-12-31 23:59:59\n2021-01-03 12:00:00"
    );
}

#[test]
fn flink_patterns() {
    let date_format =
        |pattern: &str| run(&format!("SELECT date_format(ts, '{pattern}') FROM {TIMES}"));
    assert_eq!(
        date_format("yyyy-MM-dd HH:mm:ss.SSS"),
        "2024-02-29 00:05:09.123\n1999-12-31 23:59:59.000\n2021-01-03 12:00:00.500"
    );
    assert_eq!(date_format("d/M/yy h a"), "29/2/24 12 AM\n31/12/99 11 PM\n3/1/21 12 PM");
    assert!(date_format("yyyy-nn").contains("unknown letter 'n'"));
}

#[test]
fn dates_nulls_and_patterns_in_columns() {
    assert_eq!(run("SELECT to_char(DATE '2024-03-01', 'DD.MM.YYYY')"), "01.03.2024");
    assert_eq!(run("SELECT to_char(NULL::timestamp, 'YYYY')"), "NULL");
    let pairs = "(VALUES (TIMESTAMP '2024-02-29 01:02:03', 'YYYY'), (TIMESTAMP '2024-02-29 01:02:03', 'MI'), \
                 (NULL, 'MI')) v(ts, p)";
    assert_eq!(run(&format!("SELECT to_char(ts, p) FROM {pairs}")), "2024\n02\nNULL");
    assert_eq!(
        run("SELECT to_char(TIMESTAMPTZ '2024-02-29 23:30:00+02', 'DD HH24 TZ')"),
        "29 21 UTC"
    );
}

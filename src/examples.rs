//! The programs of examples/, run as tests: what each prints is checked.

use expect_test::expect;

// Their `main` is for `cargo run --example`.
#[allow(dead_code)]
#[path = "../examples/append_arrow.rs"]
mod append_arrow;
#[allow(dead_code)]
#[path = "../examples/custom_source.rs"]
mod custom_source;
#[allow(dead_code)]
#[path = "../examples/quick_start.rs"]
mod quick_start;
#[allow(dead_code)]
#[path = "../examples/subscribe.rs"]
mod subscribe;

#[tokio::test(flavor = "multi_thread")]
async fn quick_start() {
    expect![[r#"
        +------+--------+--------+
        | city | orders | amount |
        +------+--------+--------+
        | Oslo | 2      | 42     |
        | Rome | 1      | 20     |
        +------+--------+--------+
        +------+--------+--------+
        | city | orders | amount |
        +------+--------+--------+
        | Oslo | 1      | 30     |
        | Rome | 1      | 12     |
        +------+--------+--------+"#]]
    .assert_eq(&quick_start::run().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribe() {
    expect![[r#"
        snapshot +1  auction 1: 12
        snapshot +1  auction 2: 5
        -- INSERT INTO bids VALUES (2, 7), (3, 1)
        change -1  auction 2: 5
        change +1  auction 2: 7
        change +1  auction 3: 1
        -- DELETE FROM bids WHERE price = 12
        change +1  auction 1: 10
        change -1  auction 1: 12
    "#]]
    .assert_eq(&subscribe::run().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn append_arrow() {
    expect![[r#"
        +--------+-------+----------+---------+
        | sensor | place | readings | celsius |
        +--------+-------+----------+---------+
        | 9      | hall  | 10000    | 9.999   |
        | 8      | hall  | 10000    | 8.998   |
        | 7      | hall  | 10000    | 7.997   |
        +--------+-------+----------+---------+"#]]
    .assert_eq(&append_arrow::run().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_source() {
    // 168 primes are below 1000.
    expect![[r#"
        +-------+--------+
        | digit | primes |
        +-------+--------+
        | 1     | 40     |
        | 2     | 1      |
        | 3     | 42     |
        | 5     | 1      |
        | 7     | 46     |
        | 9     | 38     |
        +-------+--------+"#]]
    .assert_eq(&custom_source::run().await.unwrap());
}

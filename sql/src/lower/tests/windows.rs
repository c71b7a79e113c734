//! Window table functions and EMIT ON WINDOW CLOSE.

use expect_test::expect;

use super::{check, check_on_close};

#[test]
fn tumble() {
    check(
        "SELECT window_start, count(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY window_start",
        expect![[""]],
    );
}

#[test]
fn tumble_all_columns() {
    check(
        "SELECT * FROM TUMBLE(bid, date_time, INTERVAL '10 seconds', INTERVAL '1 second') AS w WHERE w.price > 5",
        expect![[""]],
    );
}

#[test]
fn tumble_of_flink() {
    check(
        "SELECT window_start, window_end, window_time, count(*) AS n FROM TABLE(TUMBLE(bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, window_time",
        expect![[""]],
    );
}

#[test]
fn hop() {
    check(
        "SELECT auction, window_start, window_end, count(*) AS n FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND) AS h GROUP BY auction, window_start, window_end",
        expect![[""]],
    );
}

#[test]
fn cumulate() {
    check(
        "SELECT window_end, sum(price) AS s FROM CUMULATE(bid, date_time, INTERVAL '1 hour', INTERVAL '1 day') GROUP BY window_end",
        expect![[""]],
    );
}

#[test]
fn group_window() {
    check(
        "SELECT TUMBLE_START(date_time, INTERVAL '10' SECOND) AS st, TUMBLE_END(date_time, INTERVAL '10' SECOND) AS en, count(*) AS n FROM bid GROUP BY TUMBLE(date_time, INTERVAL '10' SECOND)",
        expect![[""]],
    );
}

#[test]
fn over_a_subquery() {
    check(
        "SELECT window_end, count(*) AS n FROM TUMBLE((SELECT * FROM bid WHERE price > 3), date_time, INTERVAL '1 minute') GROUP BY window_end",
        expect![[""]],
    );
}

#[test]
fn close_tumble() {
    check_on_close(
        "SELECT window_start, window_end, max(price) AS m FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY window_start, window_end",
        expect![[""]],
    );
}

#[test]
fn close_hop() {
    check_on_close(
        "SELECT auction, count(*) AS n, window_end FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds') WHERE price > 1 GROUP BY auction, window_end HAVING count(*) > 2",
        expect![[""]],
    );
}

#[test]
fn close_two_levels() {
    check_on_close(
        "SELECT window_end, max(n) AS m FROM (SELECT auction, window_end, count(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY auction, window_end) s GROUP BY window_end",
        expect![[""]],
    );
}

#[test]
fn close_top_n() {
    check_on_close(
        "SELECT * FROM (SELECT auction, window_end, n, row_number() OVER (PARTITION BY window_end ORDER BY n DESC) AS r FROM (SELECT auction, window_end, count(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY auction, window_end) s) x WHERE r <= 3",
        expect![[""]],
    );
}

#[test]
fn close_without_window() {
    check_on_close(
        "SELECT auction, count(*) AS n FROM bid GROUP BY auction",
        expect![[""]],
    );
}

#[test]
fn close_by_start_only() {
    check_on_close(
        "SELECT window_start, count(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY window_start",
        expect![[""]],
    );
}

//! Window table functions and EMIT ON WINDOW CLOSE.

use expect_test::expect;

use super::{check, check_on_close};

#[test]
fn tumble() {
    check(
        "SELECT window_start, count(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY window_start",
        expect![[r#"
            Project [window_start, count(Int64(1))@1 AS n] {retract, key: [window_start]}
              Aggregate group: [window_start], calls: [count(Int64(1))] {retract, key: [window_start]}
                Project [tumble_start(date_time@0, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_start] {append}
                  Scan bid [date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn tumble_all_columns() {
    check(
        "SELECT * FROM TUMBLE(bid, date_time, INTERVAL '10 seconds', INTERVAL '1 second') AS w WHERE w.price > 5",
        expect![[r#"
            Filter price@2 > 5 -> Project [auction, bidder, price, channel, url, date_time, extra, tumble_start(date_time@5, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 1000000000 }) AS window_start, tumble_end(date_time@5, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 1000000000 }) AS window_end] {append, watermark: [date_time, window_end]}
              Scan bid [auction, bidder, price, channel, url, date_time, extra] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn tumble_of_flink() {
    check(
        "SELECT window_start, window_end, window_time, count(*) AS n FROM TABLE(TUMBLE(bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, window_time",
        expect![[r#"
            Project [window_start, window_end, window_time, count(Int64(1))@3 AS n] {retract, key: [window_start, window_end, window_time], watermark: [window_end]}
              Aggregate group: [window_start, window_end, window_time], calls: [count(Int64(1))] {retract, key: [window_start, window_end, window_time], watermark: [window_end]}
                Project [tumble_start(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_start, __common_expr_1@0 AS window_end, window_unshift(__common_expr_1@0, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 1000000 }) AS window_time] {append, watermark: [window_end]}
                  Project [tumble_end(date_time@0, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS __common_expr_1, date_time] {append, watermark: [__common_expr_1, date_time]}
                    Scan bid [date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn hop() {
    check(
        "SELECT auction, window_start, window_end, count(*) AS n FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND) AS h GROUP BY auction, window_start, window_end",
        expect![[r#"
            Project [auction, window_start, window_end, count(Int64(1))@3 AS n] {retract, key: [auction, window_start, window_end], watermark: [window_end]}
              Aggregate group: [auction, window_start, window_end], calls: [count(Int64(1))] {retract, key: [auction, window_start, window_end], watermark: [window_end]}
                Project [auction, window_unshift(__unnest_placeholder(hop_ends(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 2000000000 }"),IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }")),depth=1)@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_start, __unnest_placeholder(hop_ends(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 2000000000 }"),IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }")),depth=1)@1 AS window_end] {append, watermark: [window_end]}
                  Unnest [unnest] {append, watermark: [unnest]}
                    Project [auction, hop_ends(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 2000000000 }, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS unnest] {append, watermark: [unnest]}
                      Scan bid [auction, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn cumulate() {
    check(
        "SELECT window_end, sum(price) AS s FROM CUMULATE(bid, date_time, INTERVAL '1 hour', INTERVAL '1 day') GROUP BY window_end",
        expect![[r#"
            Project [window_end, sum(bid.price)@1 AS s] {retract, key: [window_end], watermark: [window_end]}
              Aggregate group: [window_end], calls: [sum(bid.price)] {retract, key: [window_end], watermark: [window_end]}
                Project [price, __unnest_placeholder(cumulate_ends(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 3600000000000 }"),IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 1, nanoseconds: 0 }")),depth=1)@1 AS window_end] {append, watermark: [window_end]}
                  Unnest [unnest] {append, watermark: [unnest]}
                    Project [price, cumulate_ends(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 3600000000000 }, IntervalMonthDayNano { months: 0, days: 1, nanoseconds: 0 }) AS unnest] {append, watermark: [unnest]}
                      Scan bid [price, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn group_window() {
    check(
        "SELECT TUMBLE_START(date_time, INTERVAL '10' SECOND) AS st, TUMBLE_END(date_time, INTERVAL '10' SECOND) AS en, count(*) AS n FROM bid GROUP BY TUMBLE(date_time, INTERVAL '10' SECOND)",
        expect![[r#"
            Project [tumble_start(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }"))@0 AS st, window_shift(tumble_start(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }"))@0, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS en, count(Int64(1))@1 AS n] {retract, key: [st]}
              Aggregate group: [tumble_start(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }"))], calls: [count(Int64(1))] {retract, key: [tumble_start(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }"))]}
                Project [tumble_start(date_time@0, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS tumble_start(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }"))] {append}
                  Scan bid [date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn session() {
    check(
        "SELECT bidder, window_end, max(price) AS m FROM SESSION(bid, partition_by => bidder, date_time, INTERVAL '10 seconds') GROUP BY bidder, window_start, window_end",
        expect![[r#"
            Project [bidder, window_end, max(bid.price)@3 AS m] {retract, watermark: [window_end]}
              Aggregate group: [bidder, window_start, window_end], calls: [max(bid.price)] {retract, key: [bidder, window_start, window_end], watermark: [window_end]}
                SessionWindow [bidder, price] partition: [bidder], time: date_time, gap: 10s {retract, watermark: [window_end]}
                  Filter date_time@2 IS NOT NULL {append, watermark: [date_time]}
                    Scan bid [bidder, price, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn session_all_columns() {
    check(
        "SELECT * FROM SESSION(bid, date_time, INTERVAL '10 seconds') AS w WHERE w.price > 5",
        expect![[r#"
            Filter price@2 > 5 {retract, watermark: [window_end]}
              SessionWindow [auction, bidder, price, channel, url, date_time, extra] partition: [], time: date_time, gap: 10s {retract, watermark: [window_end]}
                Filter date_time@5 IS NOT NULL {append, watermark: [date_time]}
                  Scan bid [auction, bidder, price, channel, url, date_time, extra] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn group_session() {
    check(
        "SELECT bidder, count(*) AS n, SESSION_START(date_time, INTERVAL '10' SECOND) AS st FROM bid WHERE price > 1 GROUP BY bidder, SESSION(date_time, INTERVAL '10' SECOND)",
        expect![[r#"
            Project [bidder, count(Int64(1))@3 AS n, __session_start@1 AS st] {retract}
              Aggregate group: [bidder, __session_start, __session_end], calls: [count(Int64(1))] {retract, key: [bidder, __session_start, __session_end], watermark: [__session_end]}
                Project [bidder, window_start@1 AS __session_start, window_end@2 AS __session_end] {retract, watermark: [__session_end]}
                  SessionWindow [bidder] partition: [bidder], time: date_time, gap: 10s {retract, watermark: [window_end]}
                    Filter price@1 > 1 AND date_time@2 IS NOT NULL -> Project [bidder, date_time] {append, watermark: [date_time]}
                      Scan bid [bidder, price, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn close_session() {
    check_on_close(
        "SELECT bidder, window_end, count(*) AS n FROM SESSION(bid, partition_by => bidder, date_time, INTERVAL '10 seconds') GROUP BY bidder, window_start, window_end",
        expect![[r#"
            Project [bidder, window_end, count(Int64(1))@3 AS n] {append, watermark: [window_end]}
              EmitOnClose window_end {append, key: [bidder, window_start, window_end], watermark: [window_end]}
                Aggregate group: [bidder, window_start, window_end], calls: [count(Int64(1))], until: window_end {retract, key: [bidder, window_start, window_end], watermark: [window_end]}
                  SessionWindow [bidder] partition: [bidder], time: date_time, gap: 10s, on close {retract, watermark: [window_end]}
                    Filter date_time@1 IS NOT NULL {append, watermark: [date_time]}
                      Scan bid [bidder, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn over_a_subquery() {
    check(
        "SELECT window_end, count(*) AS n FROM TUMBLE((SELECT * FROM bid WHERE price > 3), date_time, INTERVAL '1 minute') GROUP BY window_end",
        expect![[r#"
            Project [window_end, count(Int64(1))@1 AS n] {retract, key: [window_end], watermark: [window_end]}
              Aggregate group: [window_end], calls: [count(Int64(1))] {retract, key: [window_end], watermark: [window_end]}
                Filter price@0 > 3 -> Project [tumble_end(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 60000000000 }) AS window_end] {append, watermark: [window_end]}
                  Scan bid [price, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn close_tumble() {
    check_on_close(
        "SELECT window_start, window_end, max(price) AS m FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY window_start, window_end",
        expect![[r#"
            Project [window_start, window_end, max(bid.price)@2 AS m] {append, key: [window_start, window_end], watermark: [window_end]}
              EmitOnClose window_end {append, key: [window_start, window_end], watermark: [window_end]}
                Aggregate group: [window_start, window_end], calls: [max(bid.price)], until: window_end {retract, key: [window_start, window_end], watermark: [window_end]}
                  LateFilter window_end {append, watermark: [window_end]}
                    Project [price, tumble_start(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_start, tumble_end(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_end] {append, watermark: [window_end]}
                      Scan bid [price, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn close_hop() {
    check_on_close(
        "SELECT auction, count(*) AS n, window_end FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds') WHERE price > 1 GROUP BY auction, window_end HAVING count(*) > 2",
        expect![[r#"
            Filter count(Int64(1))@2 > 2 -> Project [auction, count(Int64(1))@2 AS n, window_end] {append, key: [auction, window_end], watermark: [window_end]}
              EmitOnClose window_end {append, key: [auction, window_end], watermark: [window_end]}
                Aggregate group: [auction, window_end], calls: [count(Int64(1))], until: window_end {retract, key: [auction, window_end], watermark: [window_end]}
                  Project [auction, __unnest_placeholder(hop_ends(bid.date_time,IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 2000000000 }"),IntervalMonthDayNano("IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }")),depth=1)@1 AS window_end] {append, watermark: [window_end]}
                    LateFilter unnest {append, watermark: [unnest]}
                      Unnest [unnest] {append, watermark: [unnest]}
                        Filter price@1 > 1 -> Project [auction, hop_ends(date_time@2, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 2000000000 }, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS unnest] {append, watermark: [unnest]}
                          Scan bid [auction, price, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn close_two_levels() {
    check_on_close(
        "SELECT window_end, max(n) AS m FROM (SELECT auction, window_end, count(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY auction, window_end) s GROUP BY window_end",
        expect![[r#"
            Project [window_end, max(s.n)@1 AS m] {append, key: [window_end], watermark: [window_end]}
              EmitOnClose window_end {append, key: [window_end], watermark: [window_end]}
                Aggregate group: [window_end], calls: [max(s.n)], until: window_end {retract, key: [window_end], watermark: [window_end]}
                  Project [window_end, count(Int64(1))@2 AS n] {retract, watermark: [window_end]}
                    Aggregate group: [auction, window_end], calls: [count(Int64(1))], until: window_end {retract, key: [auction, window_end], watermark: [window_end]}
                      LateFilter window_end {append, watermark: [window_end]}
                        Project [auction, tumble_end(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_end] {append, watermark: [window_end]}
                          Scan bid [auction, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn close_top_n() {
    check_on_close(
        "SELECT * FROM (SELECT auction, window_end, n, row_number() OVER (PARTITION BY window_end ORDER BY n DESC) AS r FROM (SELECT auction, window_end, count(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY auction, window_end) s) x WHERE r <= 3",
        expect![[r#"
            Project [auction, window_end, n, row_number() PARTITION BY [s.window_end] ORDER BY [s.n DESC NULLS FIRST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW@3 AS r] {append, key: [auction, window_end], watermark: [window_end]}
              EmitOnClose window_end {append, key: [auction, window_end], watermark: [window_end]}
                TopN partition: [window_end], order: [n desc], limit: 3, offset: 0, RowNumber, until: window_end {retract, key: [auction, window_end], watermark: [window_end]}
                  Project [auction, window_end, count(Int64(1))@2 AS n] {retract, key: [auction, window_end], watermark: [window_end]}
                    Aggregate group: [auction, window_end], calls: [count(Int64(1))], until: window_end {retract, key: [auction, window_end], watermark: [window_end]}
                      LateFilter window_end {append, watermark: [window_end]}
                        Project [auction, tumble_end(date_time@1, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_end] {append, watermark: [window_end]}
                          Scan bid [auction, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn close_first_of_each() {
    check_on_close(
        "SELECT auction, price, window_end FROM (SELECT auction, price, window_end, row_number() OVER (PARTITION BY auction, window_end ORDER BY price DESC) AS r FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')) x WHERE r <= 1",
        expect![[r#"
            EmitOnClose window_end {append, key: [auction, window_end], watermark: [window_end]}
              TopN partition: [auction, window_end], order: [price desc], limit: 1, offset: 0, until: window_end {retract, key: [auction, window_end], watermark: [window_end]}
                LateFilter window_end {append, watermark: [window_end]}
                  Project [auction, price, tumble_end(date_time@2, IntervalMonthDayNano { months: 0, days: 0, nanoseconds: 10000000000 }) AS window_end] {append, watermark: [window_end]}
                    Scan bid [auction, price, date_time] {append, watermark: [date_time]}
        "#]],
    );
}

#[test]
fn close_without_window() {
    check_on_close(
        "SELECT auction, count(*) AS n FROM bid GROUP BY auction",
        expect![[r#"
            0A000 EMIT ON WINDOW CLOSE needs an aggregate or Top-N by window_end
            HINT: Group by window_end of TUMBLE, HOP, CUMULATE or SESSION over a time column with a WATERMARK, with nothing but filters and projections above.
        "#]],
    );
}

#[test]
fn close_by_start_only() {
    check_on_close(
        "SELECT window_start, count(*) AS n FROM TUMBLE(bid, date_time, INTERVAL '10 seconds') GROUP BY window_start",
        expect![[r#"
            0A000 EMIT ON WINDOW CLOSE needs an aggregate or Top-N by window_end
            HINT: Group by window_end of TUMBLE, HOP, CUMULATE or SESSION over a time column with a WATERMARK, with nothing but filters and projections above.
        "#]],
    );
}

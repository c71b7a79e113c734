//! Windows worked out by hand.

use crate::functions::testing::run;

#[test]
fn tumbling() {
    let at = "TIMESTAMP '2024-01-01 00:00:17'";
    assert_eq!(
        run(&format!("SELECT tumble_start({at}, INTERVAL '10 seconds')")),
        "2024-01-01T00:00:10"
    );
    assert_eq!(
        run(&format!("SELECT tumble_end({at}, INTERVAL '10 seconds')")),
        "2024-01-01T00:00:20"
    );
    let offset = "INTERVAL '10 seconds', INTERVAL '8 seconds'";
    assert_eq!(run(&format!("SELECT tumble_start({at}, {offset})")), "2024-01-01T00:00:08");
    // A window contains its start, and times before 1970 go down, not towards zero.
    assert_eq!(
        run("SELECT tumble_start(TIMESTAMP '1969-12-31 23:59:59', INTERVAL '10 seconds'), \
             tumble_start(TIMESTAMP '2024-01-01 00:00:20', INTERVAL '10 seconds')"),
        "1969-12-31T23:59:50|2024-01-01T00:00:20"
    );
}

#[test]
fn months_follow_the_calendar() {
    assert_eq!(
        run("SELECT tumble_start(TIMESTAMP '2024-02-29 12:00:00', INTERVAL '1 month'), \
             tumble_end(TIMESTAMP '2024-02-29 12:00:00', INTERVAL '1 month'), \
             tumble_start(TIMESTAMP '1969-11-05 00:00:00', INTERVAL '3 months')"),
        "2024-02-01T00:00:00|2024-03-01T00:00:00|1969-10-01T00:00:00"
    );
}

#[test]
fn hopping() {
    let hop = |at: &str, slide: &str, size: &str| {
        run(&format!(
            "SELECT unnest(hop_ends(TIMESTAMP '{at}', INTERVAL '{slide}', INTERVAL '{size}'))"
        ))
    };
    assert_eq!(
        hop("2024-01-01 00:00:07", "2 seconds", "6 seconds"),
        "2024-01-01T00:00:08\n2024-01-01T00:00:10\n2024-01-01T00:00:12"
    );
    // The size is no multiple of the slide.
    assert_eq!(
        hop("2024-01-01 00:00:06", "2 seconds", "5 seconds"),
        "2024-01-01T00:00:07\n2024-01-01T00:00:09\n2024-01-01T00:00:11"
    );
    // Windows apart: some moments are in none.
    assert_eq!(hop("2024-01-01 00:00:07", "5 seconds", "2 seconds"), "");
    assert_eq!(hop("2024-01-01 00:00:06", "5 seconds", "2 seconds"), "2024-01-01T00:00:07");
}

#[test]
fn cumulating() {
    assert_eq!(
        run("SELECT unnest(cumulate_ends(TIMESTAMP '2024-01-01 03:00:00', INTERVAL '2 hours', \
             INTERVAL '7 hours'))"),
        // Windows of 7 hours since 1970: this one is from 2 to 9.
        "2024-01-01T04:00:00\n2024-01-01T06:00:00\n2024-01-01T08:00:00\n2024-01-01T09:00:00"
    );
}

#[test]
fn sessions() {
    let borders = |order: &str| {
        run(&format!(
            "SELECT s, session_start(s, INTERVAL '10 seconds') OVER ({order}), \
             session_end(s, INTERVAL '10 seconds') OVER ({order}) \
             FROM (VALUES (TIMESTAMP '2024-01-01 00:00:09'), (NULL), (TIMESTAMP '2024-01-01 00:00:00'), \
             (TIMESTAMP '2024-01-01 00:00:19')) AS t (s) ORDER BY s"
        ))
    };
    // 9 seconds apart, then exactly 10.
    let expected = "2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T00:00:19\n\
                    2024-01-01T00:00:09|2024-01-01T00:00:00|2024-01-01T00:00:19\n\
                    2024-01-01T00:00:19|2024-01-01T00:00:19|2024-01-01T00:00:29\nNULL|NULL|NULL";
    assert_eq!(borders("ORDER BY s"), expected);
    assert_eq!(borders("ORDER BY s DESC"), expected);
    assert_eq!(borders(""), expected);
}

#[test]
fn wrong_sizes_are_refused() {
    let run_size =
        |size: &str| run(&format!("SELECT tumble_start(TIMESTAMP '2024-01-01', {size})"));
    assert!(run_size("INTERVAL '0 seconds'").contains("must be positive"));
    assert!(run_size("INTERVAL '1 month 1 day'").contains("cannot mix months"));
}

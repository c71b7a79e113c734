//! The Nexmark queries that the benchmark runs.

use std::fmt::Write;
use std::path::Path;

use expect_test::expect_file;

use super::{LowerOptions, plan_text, run_once};

#[test]
fn plans() {
    let queries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benchmarks/queries/nexmark");
    let mut text = String::new();
    for number in 0..=22 {
        let file = queries.join(format!("q{number}.sql"));
        let Ok(sql) = std::fs::read_to_string(file) else {
            continue;
        };
        assert_eq!(run_once(&sql), Ok(0), "q{number}");
        let plan = plan_text(&sql, LowerOptions::default());
        assert!(!plan.starts_with("XX") && !plan.starts_with("0A"), "q{number}: {plan}");
        writeln!(text, "-- q{number}\n{plan}").unwrap();
    }
    expect_file!["nexmark_plans.txt"].assert_eq(&text);
}

//! The programs of `examples/` run, and print what their texts promise.

use crate::database::run_for;

#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/append_arrow.rs"]
mod append_arrow;
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/custom_source.rs"]
mod custom_source;
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/quick_start.rs"]
mod quick_start;
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/subscribe.rs"]
mod subscribe;

fn run(example: impl Future<Output = millstream::Result<String>>) -> String {
    let printed = run_for(30, "an example", example).unwrap();
    assert!(!printed.trim().is_empty(), "it prints nothing");
    printed
}

#[test]
fn quick_start() {
    let expected = "\
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
+------+--------+--------+";
    assert_eq!(run(quick_start::run()), expected);
}

#[test]
fn subscribe() {
    run(subscribe::run());
}

#[test]
fn append_arrow() {
    run(append_arrow::run());
}

#[test]
fn custom_source() {
    run(custom_source::run());
}

/// An example that no test runs would rot.
#[test]
fn all_examples_are_run() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["append_arrow.rs", "custom_source.rs", "quick_start.rs", "subscribe.rs"]);
}

//! The house rules of STYLE.md that a machine can see: layers, sizes, module texts, words, files that no one reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Lines of a source file, tests aside.
const FILE_LINES_MAX: usize = 800;
const FILE_LINES_WANTED: usize = 600;
/// rustfmt keeps code at 100 columns; texts and macros, which it leaves alone, may be somewhat longer.
const COLUMNS_MAX: usize = 130;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder whose names end so, in order.
fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

const SOURCES: [&str; 8] = [
    "engine/src",
    "connectors/src",
    "sql/src",
    "server/src",
    "src",
    "benchmarks/src",
    "tests/it",
    "examples",
];

fn sources() -> Vec<(PathBuf, String)> {
    let paths = SOURCES.iter().flat_map(|folder| files(folder, ".rs"));
    paths.map(|path| (path.clone(), std::fs::read_to_string(&path).unwrap())).collect()
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// Architecture invariant: dependencies go one way.
#[test]
fn layers() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Which crates of ours each may use, and which of others it must not.
    let rules: BTreeMap<&str, (&[&str], &[&str])> = BTreeMap::from([
        (
            "millstream-engine",
            (
                &[][..],
                &[
                    "datafusion",
                    "sqlparser",
                    "pgwire",
                    "tokio-postgres",
                    "axum",
                    "rdkafka",
                    "datafusion-sql",
                ][..],
            ),
        ),
        (
            "millstream-connectors",
            (&["millstream-engine"], &["datafusion", "sqlparser", "pgwire", "rocksdb"]),
        ),
        (
            "millstream-sql",
            (&["millstream-engine"], &["pgwire", "axum", "tokio-postgres", "rocksdb"]),
        ),
        (
            "millstream-server",
            (&["millstream-engine", "millstream-sql"], &["datafusion", "rocksdb"]),
        ),
    ]);
    let mut problems = Vec::new();
    let mut seen = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some((ours, not)) = rules.get(name) else { continue };
        seen += 1;
        for dependency in package["dependencies"].as_array().unwrap() {
            // What tests use is not built upon.
            if dependency["kind"] == "dev" {
                continue;
            }
            let used = dependency["name"].as_str().unwrap();
            let own = used.starts_with("millstream");
            if (own && !ours.contains(&used)) || not.contains(&used) {
                problems.push(format!("{name} uses {used}"));
            }
        }
    }
    assert_eq!(seen, rules.len(), "a crate is missing");
    none(&problems);
}

#[test]
fn files_are_short() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            problems.push(format!("{}: {lines} lines", shown(&path)));
        } else if lines > FILE_LINES_WANTED {
            eprintln!("warning: {}: {lines} lines", shown(&path));
        }
    }
    none(&problems);
}

#[test]
fn lines_are_short() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let mut in_string = false;
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            let quotes = line.replace("\\\"", "").replace("'\"'", "").matches('"').count();
            let was_in_string = in_string;
            in_string ^= quotes % 2 == 1;
            // Comments have their own width, and strings cannot be broken.
            let exempt = code.starts_with("//") || quotes > 0 || was_in_string;
            if !exempt && !code.contains("http") && line.chars().count() > COLUMNS_MAX {
                problems.push(format!(
                    "{}:{}: over {COLUMNS_MAX} columns",
                    shown(&path),
                    number + 1
                ));
            }
        }
    }
    none(&problems);
}

#[test]
fn modules_say_what_they_are() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        if !text.starts_with("//! ") {
            problems.push(format!("{} does not begin with //!", shown(&path)));
        }
        if path.ends_with("mod.rs") {
            problems.push(format!("{}: name it after its folder", shown(&path)));
        }
    }
    none(&problems);
}

#[test]
fn nothing_is_left_undone() {
    // Put together here, so that this file does not find itself.
    let macros = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let notes = ["TO", "FIX", "XX"].iter().zip(["DO", "ME", "X"]).map(|(a, b)| format!("{a}{b}"));
    let words: Vec<String> = macros.into_iter().chain(notes).collect();
    let mut problems = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let has_word = |word: &&String| {
                line.match_indices(word.as_str()).any(|(at, _)| {
                    let around =
                        |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
                    let after = line[at + word.len()..].chars().next();
                    !around(line[..at].chars().next_back())
                        && (word.ends_with('(') || !around(after))
                })
            };
            if let Some(word) = words.iter().find(has_word) {
                problems.push(format!("{}:{}: {word}", shown(&path), number + 1));
            }
        }
    }
    none(&problems);
}

/// Words of other engines for which the glossary has one of its own.
const OTHER_WORDS: [&str; 12] = [
    "shuffle",
    "punctuation",
    "vnode",
    "actor",
    "subtask",
    "executor",
    "shard",
    "dispatch",
    "pact",
    "bootstrap",
    "stage",
    "lowmark",
];

#[test]
fn the_engine_keeps_to_the_glossary() {
    let mut problems = Vec::new();
    for path in files("engine/src", ".rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            for word in identifiers(line).iter().flat_map(|identifier| words(identifier)) {
                if OTHER_WORDS.contains(&word.as_str()) {
                    problems.push(format!("{}:{}: {word}", shown(&path), number + 1));
                }
            }
        }
    }
    none(&problems);
}

/// Identifiers of a line of code, strings and comments aside.
fn identifiers(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default();
    let outside: Vec<&str> = code.split('"').step_by(2).collect();
    let outside = outside.join(" ");
    let parts = outside.split(|c: char| !c.is_alphanumeric() && c != '_');
    parts.filter(|part| !part.is_empty()).map(str::to_string).collect()
}

/// `BarrierKind`, `barrier_kind` and `BARRIER_KIND` are `barrier`, `kind`.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut last_lower = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && last_lower) {
            words.push(String::new());
        }
        last_lower = c.is_lowercase();
        if c != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    words
}

/// Each module file is named by its parent, each `.sql` of the plans has its `.plan`, and nothing else lies about.
#[test]
fn no_file_is_unreferenced() {
    let mut problems = Vec::new();
    for (path, _) in sources() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let folder = path.parent().unwrap();
        let is_root = ["lib", "main"].contains(&name.as_str())
            && folder.join("..").join("Cargo.toml").exists();
        if is_root || folder.ends_with("examples") || path.ends_with("tests/it/main.rs") {
            continue;
        }
        if !named_by_parent(folder, &name) {
            problems.push(format!("{}: no `mod {name};`", shown(&path)));
        }
    }
    for path in files("tests", "") {
        let end =
            path.extension().map(|end| end.to_string_lossy().into_owned()).unwrap_or_default();
        let place = shown(&path);
        let known = match end.as_str() {
            "rs" => place.starts_with("tests/it/"),
            "slt" => place.starts_with("tests/slt/"),
            "plan" => path.with_extension("sql").exists(),
            "sql" => place == "tests/plans/schema.sql" || path.with_extension("plan").exists(),
            _ => false,
        };
        if !known {
            problems.push(format!("{place}: no suite reads it"));
        }
    }
    none(&problems);
}

fn named_by_parent(folder: &Path, name: &str) -> bool {
    let parents = [folder.with_extension("rs"), folder.join("lib.rs"), folder.join("main.rs")];
    parents.iter().filter_map(|parent| std::fs::read_to_string(parent).ok()).any(|text| {
        text.lines().any(|line| {
            let line = line.trim();
            let line =
                line.strip_prefix("pub ").or(line.strip_prefix("pub(crate) ")).unwrap_or(line);
            let line = line.strip_prefix("pub(super) ").unwrap_or(line);
            line.strip_prefix("mod ").is_some_and(|rest| rest.trim_end_matches(';').trim() == name)
        })
    })
}

/// The project is of no place in particular.
#[test]
fn nothing_names_where_it_was_made() {
    let places = [["/wo", "rk/"].concat(), ["/ro", "ot/"].concat(), ["/tmp/bri", "ef"].concat()];
    let mut problems = Vec::new();
    let folders = [&SOURCES[..], &["docs", "scripts", "tests", "benchmarks/queries"]].concat();
    let top = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "STYLE.md",
        "Makefile",
        "Cargo.toml",
        ".ci/run",
    ];
    let mut paths: Vec<PathBuf> = top.iter().map(|name| root().join(name)).collect();
    paths.extend(folders.iter().flat_map(|folder| files(folder, "")));
    for path in paths {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for place in places.iter().filter(|place| text.contains(place.as_str())) {
            problems.push(format!("{}: {place}", shown(&path)));
        }
    }
    none(&problems);
}

//! psql as people use it: \d, queries, an error with its caret, SUBSCRIBE by COPY. Skipped where psql is not installed.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Server;

fn is_there() -> bool {
    let there = Command::new("psql").arg("--version").output().is_ok();
    if !there {
        eprintln!("psql is not installed: skipped");
    }
    there
}

fn psql(server: &Server) -> Command {
    let mut command = Command::new("psql");
    // No more than this is needed; the environment is not ours.
    command.args(["-X", "-h", "127.0.0.1", "-p", &server.port.to_string()]);
    for name in ["PGUSER", "PGDATABASE", "PGPASSWORD", "PGOPTIONS", "PGSERVICE"] {
        command.env_remove(name);
    }
    command
}

/// What it prints for a script; errors too.
fn run(server: &Server, options: &[&str], script: &str) -> String {
    let mut process = psql(server)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

const SCHEMA: &str = "
    CREATE TABLE sale (id INT PRIMARY KEY, city TEXT NOT NULL, amount DOUBLE PRECISION);
    CREATE MATERIALIZED VIEW by_city AS SELECT city, sum(amount) AS total FROM sale GROUP BY city;
    INSERT INTO sale VALUES (1, 'Oslo', 10.5), (2, 'Rome', 20), (3, 'Oslo', NULL);
";

#[test]
fn shows_rows() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let output = run(&server, &["-q"], &format!("{SCHEMA} SELECT * FROM by_city ORDER BY city;"));
    let expected =
        [" city | total ", "------+-------", " Oslo |  10.5", " Rome |    20", "(2 rows)", "", ""];
    assert_eq!(output, expected.join("\n"));
    let output = run(
        &server,
        &[],
        "UPDATE sale SET amount = 1 WHERE id = 3; DELETE FROM sale WHERE id = 2;",
    );
    assert_eq!(output, "UPDATE 1\nDELETE 1\n");
    assert_eq!(run(&server, &["-At"], "SELECT * FROM by_city"), "Oslo|11.5\n");
}

#[test]
fn describes_relations() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    run(&server, &["-q"], SCHEMA);
    for (command, words) in [
        ("\\d", &["sale", "by_city", "table", "materialized view"][..]),
        ("\\dt", &["sale", "table"]),
        ("\\dm", &["by_city"]),
        ("\\d sale", &["id", "integer", "city", "text", "not null", "double precision"]),
        ("\\d by_city", &["city", "total"]),
        ("\\dn", &["public"]),
        ("\\l", &["millstream"]),
        ("\\df", &[]),
        ("\\du", &[]),
        ("\\conninfo", &["connected"]),
    ] {
        let output = run(&server, &[], &format!("{command}\n"));
        assert!(!output.contains("ERROR"), "{command}: {output}");
        for word in words {
            assert!(output.contains(word), "{command} does not show {word}:\n{output}");
        }
    }
}

#[test]
fn points_at_errors() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let output = run(
        &server,
        &["-v", "VERBOSITY=verbose"],
        &format!("{SCHEMA} SELECT id, nope FROM sale;\n"),
    );
    assert!(output.contains("ERROR:  42703: column \"nope\" does not exist"), "{output}");
    assert!(output.contains("SELECT id, nope FROM sale;\n") && output.contains("^\n"), "{output}");
    let lines: Vec<&str> = output.lines().collect();
    let caret = lines.iter().position(|line| line.trim() == "^").unwrap();
    assert_eq!(lines[caret].find('^'), lines[caret - 1].find("nope"), "{output}");
}

#[test]
fn follows_by_copy() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    run(&server, &["-q"], SCHEMA);
    let follower = psql(&server)
        .args(["-c", "COPY (SUBSCRIBE by_city) TO STDOUT"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    run(&server, &["-q"], "INSERT INTO sale VALUES (4, 'Bern', 7);");
    std::thread::sleep(Duration::from_millis(1000));
    // Control-C, as a person would.
    Command::new("kill").args(["-INT", &follower.id().to_string()]).status().unwrap();
    let output = follower.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<Vec<&str>> =
        text.lines().map(|line| line.split('\t').skip(1).collect()).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows[..2].contains(&vec!["1", "Oslo", "10.5"]), "{text}");
    assert!(rows[..2].contains(&vec!["1", "Rome", "20"]), "{text}");
    assert_eq!(rows[2], ["1", "Bern", "7"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("canceling statement due to user request"), "{error}");
}

#[test]
fn copies_from_the_client() {
    if !is_there() {
        return;
    }
    let server = Server::start();
    let script = "CREATE TABLE t (a INT, b TEXT);\nCOPY t FROM STDIN;\n1\tone\n2\t\\N\n\\.\nSELECT * FROM t ORDER BY a;\n";
    assert_eq!(run(&server, &["-q", "-At"], script), "1|one\n2|\n");
}

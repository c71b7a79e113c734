//! psycopg 3, from the environment that scripts/setup.sh makes. Skipped where it is not installed.

use std::process::Command;

use super::Server;

const PROGRAM: &str = r#"
import sys, datetime, decimal, psycopg

settings = f"host=127.0.0.1 port={sys.argv[1]} user=tester"
with psycopg.connect(settings) as db:
    db.execute("CREATE TABLE sale (id INT PRIMARY KEY, city TEXT, amount NUMERIC(10, 2), seen TIMESTAMP)")
    db.execute("CREATE MATERIALIZED VIEW by_city AS SELECT city, count(*) AS n, sum(amount) AS total FROM sale GROUP BY city")
    db.commit()
    with db.cursor() as cursor:
        at = datetime.datetime(2020, 2, 29, 12, 30)
        rows = [(1, "Oslo", decimal.Decimal("1.25"), at), (2, "Oslo", decimal.Decimal("2.50"), None), (3, None, None, at)]
        cursor.executemany("INSERT INTO sale VALUES (%s, %s, %s, %s)", rows)
    db.commit()
    assert db.execute("SELECT n, total FROM by_city WHERE city = %s", ["Oslo"]).fetchone() == (2, decimal.Decimal("3.75"))
    assert db.execute("SELECT seen FROM sale WHERE id = 1").fetchone() == (at,)
    # Parameters and results in binary.
    with db.cursor(binary=True) as cursor:
        cursor.execute("SELECT id, seen, amount FROM sale WHERE id = %b", [1])
        assert cursor.fetchone() == (1, at, decimal.Decimal("1.25"))
    db.rollback()
    try:
        with db.transaction():
            db.execute("DELETE FROM sale")
            db.execute("SELECT * FROM missing")
        raise AssertionError("no error")
    except psycopg.errors.UndefinedTable as error:
        assert error.diag.statement_position == "15", error.diag.statement_position
    assert db.execute("SELECT count(*) FROM sale").fetchone() == (3,)
    db.commit()
    with db.cursor() as cursor, cursor.copy("COPY sale (id, city) FROM STDIN") as copy:
        copy.write_row((4, "Rome"))
        copy.write_row((5, None))
    db.commit()
    assert db.execute("SELECT count(*) FROM sale").fetchone() == (5,)
    db.commit()

# Follow a view row by row, and stop in the middle.
with psycopg.connect(settings, autocommit=True) as reader, psycopg.connect(settings, autocommit=True) as writer:
    stream = reader.cursor().stream("SUBSCRIBE by_city")
    first = {next(stream)[1:] for _ in range(3)}
    assert (1, "Oslo", 2, decimal.Decimal("3.75")) in first, first
    writer.execute("DELETE FROM sale WHERE city = 'Rome'")
    assert next(stream)[1:] == (-1, "Rome", 1, None)
    reader.cancel()
    try:
        next(stream)
        raise AssertionError("no error")
    except psycopg.errors.QueryCanceled:
        pass
print("done")
"#;

#[test]
fn a_program() {
    let home = std::env::var("HOME").unwrap_or_default();
    let python = format!("{home}/.cache/millstream/venv/bin/python");
    let found = Command::new(&python).args(["-c", "import psycopg"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("psycopg is not installed (scripts/setup.sh): skipped");
        return;
    }
    let server = Server::start();
    let output =
        Command::new(&python).args(["-c", PROGRAM, &server.port.to_string()]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{error}");
}

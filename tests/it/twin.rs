//! The batch twin (contract C1): what a view holds is what its query gives when it is run once.

use crate::database::{Client, Setup};
use crate::text::{Rows, line};

/// A materialized view and its defining query.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Its name.
    pub name: String,
    /// What follows AS.
    pub query: String,
}

/// The materialized views of a database, as its statements have made them.
#[derive(Clone, Debug, Default)]
pub struct Views {
    /// Those that are compared.
    pub views: Vec<View>,
    /// Names of views that are not.
    pub without_twin: Vec<String>,
}

impl Views {
    /// Takes note of a statement that went well.
    pub fn note(&mut self, sql: &str) {
        if let Some(view) = created(sql)
            && !self.without_twin.contains(&view.name)
            && !self.views.contains(&view)
        {
            // An ALTER gives a view another query.
            self.views.retain(|known| known.name != view.name);
            self.views.push(view);
        }
    }

    /// Compares each view with its twin; forgets those that are gone.
    pub async fn check(&mut self, client: &mut Client) -> Result<(), String> {
        if client.in_transaction() || self.views.is_empty() {
            return Ok(());
        }
        client.try_execute("FLUSH").await.map_err(|error| format!("FLUSH: {error}"))?;
        let mut gone = Vec::new();
        for view in &self.views {
            let held = match client.try_query(&format!("SELECT * FROM {}", view.name)).await {
                Ok(held) => held,
                Err(error) if error.sqlstate == "42P01" => {
                    gone.push(view.clone());
                    continue;
                }
                Err(error) => return Err(format!("reading {}: {error}", view.name)),
            };
            let batch = client.try_query(&view.query).await;
            let batch = batch.map_err(|error| format!("twin of {}: {error}", view.name))?;
            same(&held, &batch).map_err(|difference| {
                format!(
                    "view {} is not its query's answer\n{difference}\n{}",
                    view.name, view.query
                )
            })?;
        }
        self.views.retain(|view| !gone.contains(view));
        Ok(())
    }
}

/// The view that a CREATE or ALTER MATERIALIZED VIEW makes, unless it holds back rows, which no batch run does.
pub fn created(sql: &str) -> Option<View> {
    let sql = without_comments(sql);
    let rest = after_words(sql.trim(), &["create", "materialized", "view"])
        .or_else(|| after_words(sql.trim(), &["alter", "materialized", "view"]))?;
    let rest = after_words(rest, &["if", "not", "exists"]).unwrap_or(rest);
    let end = rest.find(|c: char| c.is_whitespace() || c == '(')?;
    let (name, rest) = rest.split_at(end);
    let mut rest = rest.trim_start();
    if rest.starts_with('(') {
        rest = rest.split_once(')')?.1.trim_start();
    }
    let query = after_words(rest, &["as"])?.trim().trim_end_matches(';').trim();
    let upper = query.to_ascii_uppercase();
    if upper.contains("EMIT ON WINDOW CLOSE") {
        return None;
    }
    let query = upper.find("EMIT ON UPDATE").map_or(query, |at| &query[..at]);
    Some(View { name: name.to_string(), query: query.to_string() })
}

fn without_comments(sql: &str) -> String {
    let lines = sql.lines().map(|line| line.split_once("--").map_or(line, |(code, _)| code));
    lines.collect::<Vec<_>>().join("\n")
}

fn after_words<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    let mut rest = text;
    for word in words {
        rest = rest.trim_start();
        let head = rest.get(..word.len())?;
        if !head.eq_ignore_ascii_case(word) || !rest[word.len()..].starts_with(char::is_whitespace)
        {
            return None;
        }
        rest = &rest[word.len()..];
    }
    Some(rest.trim_start())
}

/// Whether two results are the same bag of rows; floats may differ in their last digits.
pub fn same(left: &Rows, right: &Rows) -> Result<(), String> {
    let floats: Vec<bool> = (0..left.columns.len().max(right.columns.len()))
        .map(|column| {
            let has = |rows: &Rows| rows.floats.get(column).copied().unwrap_or(false);
            has(left) || has(right)
        })
        .collect();
    let (sorted_left, sorted_right) = (sorted(left, &floats), sorted(right, &floats));
    let equal = |(left, right): (&Row, &Row)| {
        left.len() == right.len()
            && (0..left.len())
                .all(|column| same_value(&left[column], &right[column], floats[column]))
    };
    let same_length = sorted_left.len() == sorted_right.len();
    if same_length && sorted_left.iter().zip(&sorted_right).all(equal) {
        return Ok(());
    }
    Err(difference(&sorted_left, &sorted_right))
}

type Row = Vec<Option<String>>;

/// By exact columns first, so that floats that differ a little meet their like.
fn sorted(rows: &Rows, floats: &[bool]) -> Vec<Row> {
    let mut rows = rows.rows.clone();
    let number =
        |value: &Option<String>| value.as_deref().and_then(|text| text.parse::<f64>().ok());
    rows.sort_by(|left, right| {
        let exact = |row: &Row| -> Row {
            row.iter().zip(floats).filter(|(_, float)| !**float).map(|(v, _)| v.clone()).collect()
        };
        let inexact = |row: &Row| -> Vec<Option<f64>> {
            let row = row.iter().zip(floats).filter(|(_, float)| **float);
            row.map(|(value, _)| number(value)).collect()
        };
        exact(left).cmp(&exact(right)).then_with(|| {
            let pairs = inexact(left).into_iter().zip(inexact(right));
            let order = |(l, r): (Option<f64>, Option<f64>)| match (l, r) {
                (Some(l), Some(r)) => l.total_cmp(&r),
                (l, r) => l.is_some().cmp(&r.is_some()),
            };
            pairs.map(order).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        })
    });
    rows
}

fn same_value(left: &Option<String>, right: &Option<String>, float: bool) -> bool {
    let (Some(l), Some(r)) = (left, right) else {
        return left == right;
    };
    if l == r {
        return true;
    }
    match (float, l.parse::<f64>(), r.parse::<f64>()) {
        // Batch sums of floats are in any order; zero has two signs.
        (true, Ok(l), Ok(r)) => (l - r).abs() <= 1e-9 * l.abs().max(r.abs()).max(1e-6),
        _ => false,
    }
}

fn difference(left: &[Row], right: &[Row]) -> String {
    let without = |rows: &[Row], others: &[Row]| -> Vec<String> {
        let mut others: Vec<&Row> = others.iter().collect();
        let mut left_over = Vec::new();
        for row in rows {
            match others.iter().position(|other| *other == row) {
                Some(at) => drop(others.swap_remove(at)),
                None => left_over.push(line(row)),
            }
        }
        left_over
    };
    let mut text = String::new();
    for (sign, rows) in [("view only", without(left, right)), ("batch only", without(right, left))]
    {
        for row in rows.iter().take(20) {
            text.push_str(&format!("  {sign}: {row}\n"));
        }
        if rows.len() > 20 {
            text.push_str(&format!("  {sign}: ... {} rows in all\n", rows.len()));
        }
    }
    text
}

#[test]
fn understands_definitions() {
    let view = created("CREATE MATERIALIZED VIEW IF NOT EXISTS v (a, b) AS SELECT 1, 2;").unwrap();
    assert_eq!((view.name.as_str(), view.query.as_str()), ("v", "SELECT 1, 2"));
    assert_eq!(created("create materialized view w as\nselect a as b from t").unwrap().name, "w");
    assert_eq!(created("CREATE MATERIALIZED VIEW v AS SELECT 1 EMIT ON WINDOW CLOSE"), None);
    assert_eq!(created("CREATE VIEW v AS SELECT 1"), None);
    let altered = created("ALTER MATERIALIZED VIEW v (a) AS SELECT 2").unwrap();
    assert_eq!((altered.name.as_str(), altered.query.as_str()), ("v", "SELECT 2"));
    assert_eq!(created("ALTER MATERIALIZED VIEW v RESUME"), None);
}

/// The check itself must see a difference.
#[test]
fn sees_differences() {
    run(async {
        let database = Setup::parallel(1).open();
        let mut client = Client::new(&database);
        client
            .execute("CREATE TABLE t (a INT); CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
            .await;
        client.execute("INSERT INTO t VALUES (1), (2), (2)").await;
        let mut views = Views::default();
        views.note("CREATE MATERIALIZED VIEW v AS SELECT a FROM t");
        assert_eq!(views.check(&mut client).await, Ok(()));
        views.views[0].query = "SELECT DISTINCT a FROM t".to_string();
        let error = views.check(&mut client).await.unwrap_err();
        assert!(error.contains("view only: 2"), "{error}");
    });
}

#[cfg(test)]
fn run(future: impl Future<Output = ()>) {
    crate::database::run_for(20, "the test", future);
}

//! Random tables with few different values, so that rows meet, and random changes of them.

use rand::Rng;
use rand::rngs::StdRng;

use super::Step;
use super::query::{Column, Kind, Relation};

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    name: String,
    columns: Vec<Column>,
    /// The first column is the primary key.
    keyed: bool,
}

impl Table {
    pub(super) fn random(rng: &mut StdRng, number: usize) -> Self {
        let keyed = rng.random_bool(0.5);
        let mut kinds = vec![Kind::Int];
        for _ in 0..rng.random_range(1..=4) {
            let all = [Kind::Int, Kind::Int, Kind::Text, Kind::Float, Kind::Time];
            kinds.push(all[rng.random_range(0..all.len())]);
        }
        let columns = kinds.into_iter().enumerate().map(|(at, kind)| {
            let name = match at {
                0 if keyed => "id".to_string(),
                _ => format!("{}{at}", kind.letter()),
            };
            Column { name, kind }
        });
        Self { name: format!("t{number}"), columns: columns.collect(), keyed }
    }

    pub(super) fn definition(&self) -> String {
        let columns = self.columns.iter().enumerate().map(|(at, column)| {
            let key = if at == 0 && self.keyed { " PRIMARY KEY" } else { "" };
            format!("{} {}{key}", column.name, column.kind.sql_type())
        });
        format!("CREATE TABLE {} ({})", self.name, columns.collect::<Vec<_>>().join(", "))
    }

    pub(super) fn relation(&self) -> Relation {
        Relation { name: self.name.clone(), columns: self.columns.clone(), base: true }
    }

    fn row(&self, rng: &mut StdRng) -> String {
        let values = self.columns.iter().enumerate().map(|(at, column)| match at {
            0 if self.keyed => rng.random_range(0..40).to_string(),
            _ => value(rng, column.kind),
        });
        format!("({})", values.collect::<Vec<_>>().join(", "))
    }

    fn insert(&self, rng: &mut StdRng) -> Step {
        let most = if rng.random_bool(0.2) { 30 } else { 6 };
        let rows = (0..rng.random_range(1..=most)).map(|_| self.row(rng)).collect::<Vec<_>>();
        // Keys twice in one statement would refuse it all.
        let mut kept: Vec<String> = Vec::new();
        for row in rows {
            let key = |row: &str| row.split(',').next().map(str::to_string);
            if !self.keyed || !kept.iter().any(|other| key(other) == key(&row)) {
                kept.push(row);
            }
        }
        Step::Insert { table: self.name.clone(), rows: kept }
    }

    fn condition(&self, rng: &mut StdRng) -> String {
        let column = &self.columns[rng.random_range(0..self.columns.len())];
        let operator = ["=", "<>", "<", ">=", "IS NULL"][rng.random_range(0..5)];
        match operator {
            "IS NULL" => format!("{} IS NULL", column.name),
            _ => format!("{} {operator} {}", column.name, known_value(rng, column.kind)),
        }
    }

    fn statement(&self, rng: &mut StdRng) -> Step {
        let name = &self.name;
        match rng.random_range(0..10) {
            0..5 => self.insert(rng),
            5..8 => {
                let first = usize::from(self.keyed && rng.random_bool(0.8));
                let at = rng.random_range(first..self.columns.len());
                let column = &self.columns[at];
                let set = match (at, column.kind) {
                    (0, Kind::Int) if self.keyed => format!("{} + 1", column.name),
                    (_, Kind::Int) if rng.random_bool(0.5) => format!("{} + 1", column.name),
                    (_, kind) => value(rng, kind),
                };
                let condition = self.condition(rng);
                Step::Change(format!("UPDATE {name} SET {} = {set} WHERE {condition}", column.name))
            }
            _ if rng.random_bool(0.1) => Step::Change(format!("DELETE FROM {name}")),
            _ => Step::Change(format!("DELETE FROM {name} WHERE {}", self.condition(rng))),
        }
    }
}

/// A value for a column of this kind.
fn value(rng: &mut StdRng, kind: Kind) -> String {
    if rng.random_bool(0.15) { "NULL".to_string() } else { known_value(rng, kind) }
}

/// Never NULL. Floats are sums of few powers of two: their totals are exact in any order.
pub(super) fn known_value(rng: &mut StdRng, kind: Kind) -> String {
    match kind {
        Kind::Int | Kind::Big => rng.random_range(-1..5).to_string(),
        Kind::Text => ["'a'", "'b'", "'c'", "''", "'ä'"][rng.random_range(0..5)].to_string(),
        Kind::Float | Kind::Approximate => {
            // What a bare 1.5 means beside a float is for tests/slt/select/float_literals.slt.
            let text = if rng.random_bool(0.04) {
                ["'NaN'", "'Infinity'", "-0.0"][rng.random_range(0..3)]
            } else {
                ["0", "1.5", "2.25", "-1", "100"][rng.random_range(0..5)]
            };
            format!("({text})::double precision")
        }
        Kind::Time => format!("'2020-01-01 00:00:{:02}'", rng.random_range(0..10) * 3),
        Kind::Bool => ["true", "false"][rng.random_range(0..2)].to_string(),
    }
}

/// Adds one change, or a transaction of several.
pub(super) fn change(rng: &mut StdRng, tables: &[Table], steps: &mut Vec<Step>) {
    let one = |rng: &mut StdRng| tables[rng.random_range(0..tables.len())].statement(rng);
    if rng.random_bool(0.8) {
        steps.push(one(rng));
        return;
    }
    steps.push(Step::Change("BEGIN".to_string()));
    for _ in 0..rng.random_range(2..=4) {
        steps.push(one(rng));
    }
    let end = if rng.random_bool(0.8) { "COMMIT" } else { "ROLLBACK" };
    steps.push(Step::Change(end.to_string()));
}

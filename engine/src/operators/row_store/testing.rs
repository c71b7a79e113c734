//! What the tests of stateful operators share: rows as numbers, bags of rows, and an operator
//! driven by hand.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::change_batch::ChangeBatch;
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Context, Emitted, Operator, Output};
use crate::time::{Epoch, Watermark};

/// A row of a test: NULL or a number for each column, whatever its type.
pub(crate) type TestRow = Vec<Option<i64>>;

/// Rows and how many times each is there.
pub(crate) type Bag<R> = BTreeMap<R, i64>;

/// A cell in the ASCII form; texts are short and long by turns.
pub(crate) fn cell(type_name: &str, value: Option<i64>) -> String {
    match (type_name, value) {
        (_, None) => "NULL".to_string(),
        ("text", Some(value)) if value % 2 == 0 => format!("t{value}"),
        ("text", Some(value)) => format!("t{value}-and-so-long-that-it-is-not-inlined"),
        ("f64", Some(value)) => format!("{value}.0"),
        (_, Some(value)) => value.to_string(),
    }
}

/// A row in the ASCII form, without its weight.
pub(crate) fn line(types: &[&str], row: &[Option<i64>]) -> String {
    let cells = types.iter().zip(row).map(|(type_name, value)| cell(type_name, *value));
    cells.collect::<Vec<_>>().join(" | ")
}

/// A batch of such rows.
pub(crate) fn batch(types: &[&str], rows: &[(TestRow, i64)]) -> ChangeBatch {
    let names = types.iter().enumerate().map(|(place, name)| format!("c{place}: {name}"));
    let mut text = format!("| {}", names.collect::<Vec<_>>().join(" | "));
    for (row, weight) in rows {
        write!(text, "\n{weight:+} | {}", line(types, row)).unwrap();
    }
    ChangeBatch::from_pretty(&text).unwrap()
}

/// The schema of such batches.
pub(crate) fn schema(types: &[&str]) -> SchemaRef {
    batch(types, &[]).schema()
}

/// An operator, and the sum of what it has emitted.
pub(crate) struct Driven {
    pub(crate) operator: Box<dyn Operator>,
    pub(crate) ctx: Context,
    out: Output,
    epoch: u64,
    /// Whether the sum may be negative inside an epoch.
    pub(crate) dips: bool,
    /// Lines of rows.
    pub(crate) sum: Bag<String>,
    /// The watermark of the last call.
    pub(crate) watermark: Option<Watermark>,
    /// Batches of the last call.
    pub(crate) last: Vec<ChangeBatch>,
}

impl Driven {
    pub(crate) fn new(operator: Box<dyn Operator>) -> Self {
        let (ctx, out) = (Context::for_test(), Output::default());
        let (sum, watermark, last) = (Bag::new(), None, Vec::new());
        Self { operator, ctx, out, epoch: 0, dips: false, sum, watermark, last }
    }

    /// Hands over a batch.
    pub(crate) fn feed(&mut self, input: usize, batch: ChangeBatch) {
        self.operator.on_batch(input, batch, &self.ctx, &mut self.out).unwrap();
        self.collect();
    }

    /// Advances the frontier.
    pub(crate) fn advance(&mut self, frontier: Watermark) {
        self.operator.on_watermark(frontier, &self.ctx, &mut self.out).unwrap();
        self.collect();
    }

    /// What has been loaded is due, at this time.
    pub(crate) fn due_at(&mut self, time_ms: u64) {
        let barrier = Barrier::new(Epoch(self.epoch), BarrierKind::Plain);
        let barrier = Barrier { time_ms, ..barrier };
        self.operator.on_due(&barrier, &self.ctx, &mut self.out).unwrap();
        self.collect();
    }

    /// Ends the epoch.
    pub(crate) fn barrier(&mut self) {
        self.barrier_at(0);
    }

    /// Ends the epoch at this time.
    pub(crate) fn barrier_at(&mut self, time_ms: u64) {
        self.epoch += 1;
        let barrier = Barrier::new(Epoch(self.epoch), BarrierKind::Plain);
        let barrier = Barrier { time_ms, ..barrier };
        self.operator.on_barrier(&barrier, &self.ctx, &mut self.out).unwrap();
        self.collect();
    }

    /// What the operator holds.
    pub(crate) fn state_rows(&self) -> usize {
        self.operator.state_size().rows
    }

    pub(crate) fn state_bytes(&self) -> usize {
        self.operator.state_size().bytes
    }

    fn collect(&mut self) {
        self.last.clear();
        self.watermark = None;
        for emitted in self.out.drain() {
            let batch = match emitted {
                Emitted::Batch(batch) => batch,
                Emitted::Watermark(watermark) => {
                    self.watermark = Some(watermark);
                    continue;
                }
            };
            assert_eq!(self.watermark, None, "rows after their watermark");
            for line in batch.pretty().lines() {
                let (weight, row) = line.split_once(" | ").unwrap_or((line, ""));
                let count = self.sum.entry(row.to_string()).or_default();
                *count += weight.parse::<i64>().unwrap();
                assert!(self.dips || *count >= 0, "the running sum of {row} is negative");
                if *count == 0 {
                    self.sum.remove(row);
                }
            }
            self.last.push(batch);
        }
    }
}

/// Adds to a bag, without zeros.
pub(crate) fn add<R: Ord>(bag: &mut Bag<R>, row: R, weight: i64) {
    if weight != 0 {
        match bag.entry(row) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(weight);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                *entry.get_mut() += weight;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
    }
}

/// A change for a bag, such that no count becomes negative: the weight, lowered to what is there if
/// it is a delete.
pub(crate) fn admissible(bag: &Bag<TestRow>, row: &TestRow, weight: i64) -> i64 {
    weight.max(-bag.get(row).copied().unwrap_or(0))
}

/// A field list's schema with one more field.
pub(crate) fn with_field(schema: &SchemaRef, field: arrow::datatypes::Field) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone());
    Arc::new(arrow::datatypes::Schema::new(fields.chain([field]).collect::<Vec<_>>()))
}

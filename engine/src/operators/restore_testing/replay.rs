//! Output given again out of state (`Operator::replay`): it is the sum of what was given before.

use std::sync::Arc;

use arrow::array::new_null_array;
use arrow::datatypes::{DataType, Field, Schema};

use super::{Bag, Saved, Task, Tasks, add, placed};
use crate::change_batch::ChangeBatch;
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Context, Replay};
use crate::state::{Placement, StateTable};
use crate::time::Epoch;

impl Tasks<'_> {
    /// As `restart`, the way of a changed query that keeps the operator. Gives what the tasks gave again; `None` when the
    /// operator cannot.
    pub(super) fn replay(&mut self, saved: &Saved, count: usize) -> Option<Bag<String>> {
        if let Replay::Never(_) = self.tasks[0].operator.replay() {
            return None;
        }
        let count = self.tasks_for(count);
        let (mut tasks, mut given) = (Vec::new(), Bag::new());
        for number in 0..count {
            let mut task = Task::new(self.subject, true, saved.watermark);
            let tables = task.tables.clone();
            let mut rows: Vec<ChangeBatch> = Vec::new();
            for (at, table) in tables.iter().enumerate() {
                let contents = saved.contents.iter().enumerate();
                let parts = contents.map(|(from, contents)| {
                    let parts = placed(self.subject, table, from, &contents[at], count);
                    parts.into_iter().nth(number).unwrap()
                });
                let part = ChangeBatch::concat(&table.schema, &parts.collect::<Vec<_>>()).unwrap();
                task.contents[at].add(table, &part);
                rows.push(part);
            }
            let quiet = Context { durable: false, ..task.ctx.clone() };
            let again = match task.operator.replay() {
                Replay::State => {
                    for (at, rows) in rows.into_iter().enumerate().filter(|(_, r)| !r.is_empty()) {
                        task.operator.restore(at, rows).unwrap();
                    }
                    task.operator.restored(saved.frontier).unwrap();
                    task.run(|operator, _, out| {
                        let mut from = 0;
                        while let Some(next) = operator.emit_state(from, out).unwrap() {
                            from = next;
                        }
                    })
                }
                _ => task.run(|operator, _, out| {
                    for (table, rows) in tables.iter().zip(&rows).rev() {
                        if !rows.is_empty() {
                            let (input, rows) = as_input(table, rows);
                            operator.on_batch(input, rows, &quiet, out).unwrap();
                        }
                    }
                    let barrier = Barrier::new(Epoch(0), BarrierKind::Plain);
                    operator.on_barrier(&barrier, &quiet, out).unwrap();
                }),
            };
            again.into_iter().for_each(|(row, weight)| add(&mut given, row, weight));
            tasks.push(task);
        }
        (self.tasks, self.frontier) = (tasks, saved.frontier);
        Some(given)
    }
}

/// Rows of a table as rows of the input that they came from; a column that the table does not have is of no use there.
fn as_input(table: &StateTable, rows: &ChangeBatch) -> (usize, ChangeBatch) {
    let Placement::Input { input, columns } = &table.placement else {
        panic!("table {} does not hold rows of an input", table.name);
    };
    let width = columns.iter().flatten().max().map_or(0, |last| last + 1);
    let column = |number: usize| match columns.iter().position(|held| *held == Some(number)) {
        Some(place) => Arc::clone(rows.column(place)),
        None => new_null_array(&DataType::Null, rows.num_rows()),
    };
    let columns: Vec<_> = (0..width).map(column).collect();
    let field = |column: &arrow::array::ArrayRef| Field::new("c", column.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let rows = rows.with_columns(Arc::new(schema), columns).unwrap();
    (*input, rows.unroll().unwrap())
}

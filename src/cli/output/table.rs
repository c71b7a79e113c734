//! Aligned columns, as `psql` prints them.
//!
//! Widths are those of the first rows; a wider value later pushes its line out and widens the column from there on.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use unicode_width::UnicodeWidthStr;

use super::cell::Cells;

/// Rows that are looked at before the first is printed.
const LOOK_AHEAD_ROWS: usize = 1000;

type Row = Vec<Option<String>>;

/// Prints a result as a table.
pub(in crate::cli) struct TableWriter<W: Write> {
    names: Vec<String>,
    right: Vec<bool>,
    widths: Vec<usize>,
    held: Vec<Row>,
    begun: bool,
    live: bool,
    rows: u64,
    out: W,
}

impl<W: Write> TableWriter<W> {
    pub(super) fn new(schema: &SchemaRef, live: bool, out: W) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let right = schema.fields().iter().map(|field| is_number(field.data_type())).collect();
        let widths = names.iter().map(|name| name.width()).collect();
        Self { names, right, widths, held: Vec::new(), begun: false, live, rows: 0, out }
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            self.held.push(cells.row(row));
            self.rows += 1;
            if self.held.len() >= LOOK_AHEAD_ROWS {
                self.print_held()?;
            }
        }
        if self.live {
            self.print_held()?;
            self.out.flush()?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), ArrowError> {
        self.print_held()?;
        let plural = if self.rows == 1 { "" } else { "s" };
        writeln!(self.out, "({} row{plural})\n", self.rows)?;
        Ok(self.out.flush()?)
    }

    fn print_held(&mut self) -> Result<(), ArrowError> {
        let held = std::mem::take(&mut self.held);
        for row in &held {
            for (width, value) in self.widths.iter_mut().zip(row) {
                let lines = value.iter().flat_map(|value| value.lines());
                *width = lines.map(|line| line.width()).fold(*width, usize::max);
            }
        }
        if !self.begun {
            self.begun = true;
            self.print_head()?;
        }
        for row in &held {
            self.print_row(row)?;
        }
        Ok(())
    }

    fn print_head(&mut self) -> Result<(), ArrowError> {
        let names = self.names.iter().zip(&self.widths).map(|(name, width)| {
            let space = width - name.width();
            format!(" {}{name}{} ", " ".repeat(space / 2), " ".repeat(space - space / 2))
        });
        let names = names.collect::<Vec<_>>().join("|");
        let rules = self.widths.iter().map(|width| "-".repeat(width + 2));
        let rules = rules.collect::<Vec<_>>().join("+");
        Ok(writeln!(self.out, "{names}\n{rules}")?)
    }

    /// A value with several lines makes the row as high; a `+` says that it goes on.
    fn print_row(&mut self, row: &Row) -> Result<(), ArrowError> {
        let parts: Vec<Vec<&str>> = row
            .iter()
            .map(|value| value.as_deref().unwrap_or_default().split('\n').collect())
            .collect();
        let height = parts.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            let mut line = String::new();
            for (column, part) in parts.iter().enumerate() {
                if column > 0 {
                    line.push('|');
                }
                let text = part.get(at).copied().unwrap_or_default();
                let space = " ".repeat(self.widths[column].saturating_sub(text.width()));
                line.push(' ');
                match self.right[column] {
                    true => line.extend([space.as_str(), text]),
                    false => line.extend([text, space.as_str()]),
                }
                line.push(if at + 1 < part.len() { '+' } else { ' ' });
            }
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || matches!(data_type, DataType::Null)
}

//! The ASCII form of change batches, both ways: input and expectation of operator tests.
//!
//! ```text
//!      | id: i64 | name: text
//!   +1 | 7       | a
//!   -1 | 8       | NULL
//! ```
//!
//! Types: `bool i32 i64 f64 text ts date dec` (`ts`: timestamp in microseconds as a number; `dec`: Decimal128(38,0)).

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringViewArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::ChangeBatch;
use crate::error::{EngineError, Result};

impl ChangeBatch {
    /// Reads the ASCII form.
    ///
    /// # Errors
    /// When the text is not of that form.
    pub fn from_pretty(text: &str) -> Result<Self> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let bad = |what: &str| EngineError::internal(format!("from_pretty: {what}"));
        let head = lines.next().ok_or_else(|| bad("no header"))?;
        let head = head.trim_start_matches('|').split('|').map(str::trim);
        let columns: Vec<(&str, &str)> = head
            .map(|cell| cell.split_once(':').map(|(n, t)| (n.trim(), t.trim())))
            .collect::<Option<_>>()
            .ok_or_else(|| bad("a header cell is `name: type`"))?;
        let mut weights: Vec<i64> = Vec::new();
        let mut cells: Vec<Vec<Option<&str>>> = vec![Vec::new(); columns.len()];
        for line in lines {
            let mut parts = line.split('|').map(str::trim);
            let weight = parts.next().and_then(|text| text.parse().ok());
            weights.push(weight.ok_or_else(|| bad(line))?);
            for column in &mut cells {
                let cell = parts.next().ok_or_else(|| bad(line))?;
                column.push((cell != "NULL").then_some(cell));
            }
        }
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for ((name, type_name), column) in columns.iter().zip(cells) {
            let array = parse_column(type_name, &column).ok_or_else(|| bad(name))?;
            fields.push(Field::new(*name, array.data_type().clone(), true));
            arrays.push(array);
        }
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
        let appends = weights.iter().all(|&weight| weight == 1);
        Ok(Self::new(rows, (!appends).then(|| weights.into())))
    }

    /// Writes the rows in the ASCII form, without the header.
    pub fn pretty(&self) -> String {
        self.pretty_lines().join("\n")
    }

    /// As [`ChangeBatch::pretty`], sorted: for results whose order does not matter.
    pub fn pretty_sorted(&self) -> String {
        let mut lines = self.pretty_lines();
        lines.sort();
        lines.join("\n")
    }

    /// One row in readable form, for error rows.
    pub fn pretty_row(&self, row: usize) -> String {
        let one = Self::insert(self.rows.slice(row, 1));
        one.pretty_lines().pop().map_or(String::new(), |line| line[5..].to_string())
    }

    fn pretty_lines(&self) -> Vec<String> {
        let options = FormatOptions::default().with_null("NULL");
        let columns = self.rows.columns().iter();
        let formatters: Vec<_> =
            columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options)).collect();
        let line = |row: usize| {
            let cells = formatters.iter().map(|formatter| match formatter {
                Ok(formatter) => formatter.value(row).to_string(),
                Err(error) => error.to_string(),
            });
            format!("{:+} | {}", self.weight(row), cells.collect::<Vec<_>>().join(" | "))
        };
        (0..self.num_rows()).map(line).collect()
    }
}

fn parse_column(type_name: &str, cells: &[Option<&str>]) -> Option<ArrayRef> {
    fn each<T>(cells: &[Option<&str>], f: impl Fn(&str) -> Option<T>) -> Option<Vec<Option<T>>> {
        cells.iter().map(|cell| cell.map_or(Some(None), |text| f(text).map(Some))).collect()
    }
    Some(match type_name {
        "bool" => Arc::new(BooleanArray::from(each(cells, |t| t.parse().ok())?)),
        "i32" => Arc::new(Int32Array::from(each(cells, |t| t.parse().ok())?)),
        "i64" => Arc::new(Int64Array::from(each(cells, |t| t.parse().ok())?)),
        "f64" => Arc::new(Float64Array::from(each(cells, |t| t.parse().ok())?)),
        "date" => Arc::new(Date32Array::from(each(cells, |t| t.parse().ok())?)),
        "text" => Arc::new(StringViewArray::from(cells.to_vec())),
        "ts" => Arc::new(TimestampMicrosecondArray::from(each(cells, |t| t.parse().ok())?)),
        "dec" => {
            let values = Decimal128Array::from(each(cells, |t| t.parse().ok())?);
            Arc::new(values.with_precision_and_scale(38, 0).ok()?)
        }
        _ => return None,
    })
}

//! The short way of an INSERT: rows of literals and parameters straight to arrays.
//!
//! It gives `None` for anything that it does not know for certain; planning then decides.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    RecordBatch, StringArray, StringViewArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr, Insert, SetExpr, UnaryOperator, Value};

use super::super::assign;
use crate::catalog::{Relation, TableDetail};
use crate::error::{Result, SqlError};
use crate::parser::fold_name;
use crate::session::Run;

/// One written value.
#[derive(Clone, Debug)]
enum Cell<'a> {
    Null,
    Text(&'a str),
    Number(Cow<'a, str>),
    Bool(bool),
    Parameter(&'a ScalarValue),
}

/// The rows of an INSERT ... VALUES, if they are all literals and parameters.
pub(super) fn rows(
    insert: &Insert,
    relation: &Relation,
    table: &TableDetail,
    run: &Run<'_>,
) -> Result<Option<RecordBatch>> {
    let Some(source) = &insert.source else { return Ok(None) };
    let bare = source.with.is_none()
        && source.order_by.is_none()
        && source.limit_clause.is_none()
        && source.fetch.is_none();
    let SetExpr::Values(values) = source.body.as_ref() else { return Ok(None) };
    if !bare || table.generated.iter().any(Option::is_some) {
        return Ok(None);
    }
    let Some(places) = places(insert, relation, table)? else { return Ok(None) };
    let width = relation.schema.fields().len();
    let mut columns: Vec<Vec<Cell<'_>>> = vec![Vec::with_capacity(values.rows.len()); width];
    for row in &values.rows {
        if row.content.len() != places.len() {
            return Ok(None);
        }
        for (expr, place) in row.content.iter().zip(&places) {
            let Some(cell) = cell(expr, run.parameters)? else { return Ok(None) };
            columns[*place].push(cell);
        }
    }
    let mut arrays = Vec::with_capacity(width);
    for (cells, field) in columns.into_iter().zip(relation.schema.fields()) {
        let array = match cells.is_empty() {
            true => Some(new_null_array(field.data_type(), values.rows.len())),
            false => column(&cells, field)?,
        };
        let Some(array) = array else { return Ok(None) };
        arrays.push(array);
    }
    let nullable =
        relation.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
    Ok(Some(RecordBatch::try_new(schema, arrays)?))
}

/// Where each written value goes; `None` when a column that is left out has a default.
fn places(insert: &Insert, relation: &Relation, table: &TableDetail) -> Result<Option<Vec<usize>>> {
    if insert.columns.is_empty() {
        return Ok(Some((0..relation.schema.fields().len()).collect()));
    }
    let mut places = Vec::with_capacity(insert.columns.len());
    for name in &insert.columns {
        let Some(name) = fold_name(name).pop() else { return Ok(None) };
        let Ok(place) = relation.schema.index_of(&name) else { return Ok(None) };
        if places.contains(&place) {
            return Err(SqlError::new(
                "42701",
                format!("column \"{name}\" specified more than once"),
            ));
        }
        places.push(place);
    }
    let defaulted = table.defaults.iter().enumerate();
    let missing =
        defaulted.filter(|(at, _)| !places.contains(at)).any(|(_, default)| default.is_some());
    Ok((!missing).then_some(places))
}

fn cell<'a>(expr: &'a Expr, parameters: &'a [ScalarValue]) -> Result<Option<Cell<'a>>> {
    let value = match expr {
        Expr::Value(value) => &value.value,
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            return Ok(match expr.as_ref() {
                Expr::Value(value) => match &value.value {
                    Value::Number(digits, _) => {
                        Some(Cell::Number(Cow::Owned(format!("-{digits}"))))
                    }
                    _ => None,
                },
                _ => None,
            });
        }
        _ => return Ok(None),
    };
    Ok(Some(match value {
        Value::Null => Cell::Null,
        Value::Number(digits, _) => Cell::Number(Cow::Borrowed(digits)),
        Value::SingleQuotedString(text) => Cell::Text(text),
        Value::Boolean(value) => Cell::Bool(*value),
        Value::Placeholder(name) => {
            let number: usize = name.trim_start_matches('$').parse().unwrap_or_default();
            let place = number.checked_sub(1);
            match place.and_then(|place| parameters.get(place)) {
                Some(value) if value.is_null() => Cell::Null,
                Some(value) => Cell::Parameter(value),
                None => {
                    return Err(SqlError::new("42P02", format!("there is no parameter {name}")));
                }
            }
        }
        _ => return Ok(None),
    }))
}

/// Cells as an array of the field's type; `None` when planning must decide.
fn column(cells: &[Cell<'_>], field: &Field) -> Result<Option<ArrayRef>> {
    if cells.iter().any(|cell| matches!(cell, Cell::Parameter(_))) {
        return parameters(cells, field);
    }
    let texts = cells.iter().all(|cell| matches!(cell, Cell::Text(_) | Cell::Null));
    match field.data_type() {
        DataType::Utf8View if texts => {
            let array: StringViewArray = cells.iter().map(text).collect();
            Ok(Some(Arc::new(array)))
        }
        DataType::Int16 => {
            numbers(cells, |n| n.parse().ok(), |v: Vec<Option<i16>>| Arc::new(Int16Array::from(v)))
        }
        DataType::Int32 => {
            numbers(cells, |n| n.parse().ok(), |v: Vec<Option<i32>>| Arc::new(Int32Array::from(v)))
        }
        DataType::Int64 => {
            numbers(cells, |n| n.parse().ok(), |v: Vec<Option<i64>>| Arc::new(Int64Array::from(v)))
        }
        DataType::Float32 => {
            numbers(cells, finite32, |v: Vec<Option<f32>>| Arc::new(Float32Array::from(v)))
        }
        DataType::Float64 => {
            numbers(cells, finite64, |v: Vec<Option<f64>>| Arc::new(Float64Array::from(v)))
        }
        DataType::Boolean => Ok(booleans(cells)),
        DataType::Decimal128(_, scale) if fit_scale(cells, *scale) => {
            cast_texts(cells, field).map(Some)
        }
        DataType::Timestamp(..) | DataType::Date32 if texts && are_iso(cells) => {
            cast_texts(cells, field).map(Some)
        }
        _ if cells.iter().all(|cell| matches!(cell, Cell::Null)) => {
            Ok(Some(new_null_array(field.data_type(), cells.len())))
        }
        _ => Ok(None),
    }
}

fn booleans(cells: &[Cell<'_>]) -> Option<ArrayRef> {
    let mut values = Vec::with_capacity(cells.len());
    for cell in cells {
        match cell {
            Cell::Null => values.push(None),
            Cell::Bool(value) => values.push(Some(*value)),
            _ => return None,
        }
    }
    Some(Arc::new(BooleanArray::from(values)))
}

/// Plain numbers without more digits than the scale has: others are rounded the planner's way.
fn fit_scale(cells: &[Cell<'_>], scale: i8) -> bool {
    let scale = usize::try_from(scale).unwrap_or_default();
    cells.iter().all(|cell| match cell {
        Cell::Number(digits) => {
            let fraction = digits.split_once('.').map_or("", |(_, fraction)| fraction);
            fraction.len() <= scale && !digits.contains(['e', 'E'])
        }
        cell => matches!(cell, Cell::Null),
    })
}

/// Dates in plain ISO form: others (infinity, now, 1 Jan) go to the planner.
fn are_iso(cells: &[Cell<'_>]) -> bool {
    cells.iter().all(|cell| match cell {
        Cell::Text(text) => {
            let bytes = text.as_bytes();
            bytes.len() >= 10 && bytes[4] == b'-' && bytes[7] == b'-' && bytes[0].is_ascii_digit()
        }
        _ => true,
    })
}

fn text<'a>(cell: &Cell<'a>) -> Option<&'a str> {
    match cell {
        Cell::Text(text) => Some(text),
        _ => None,
    }
}

fn finite32(digits: &str) -> Option<f32> {
    digits.parse().ok().filter(|value: &f32| value.is_finite())
}

fn finite64(digits: &str) -> Option<f64> {
    digits.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Numbers that parse as they are; quoted numbers too.
fn numbers<T>(
    cells: &[Cell<'_>],
    parse: impl Fn(&str) -> Option<T>,
    build: impl Fn(Vec<Option<T>>) -> ArrayRef,
) -> Result<Option<ArrayRef>> {
    let mut values = Vec::with_capacity(cells.len());
    for cell in cells {
        let value = match cell {
            Cell::Null => None,
            Cell::Number(digits) => Some(parse(digits)),
            Cell::Text(digits) => Some(parse(digits.trim())),
            _ => return Ok(None),
        };
        match value {
            None => values.push(None),
            Some(Some(value)) => values.push(Some(value)),
            Some(None) => return Ok(None),
        }
    }
    Ok(Some(build(values)))
}

fn cast_texts(cells: &[Cell<'_>], field: &Field) -> Result<ArrayRef> {
    let texts: StringArray = cells
        .iter()
        .map(|cell| match cell {
            Cell::Text(text) => Some(Cow::Borrowed(*text)),
            Cell::Number(digits) => Some(digits.clone()),
            _ => None,
        })
        .collect();
    let array: ArrayRef = Arc::new(texts);
    assign::convert(&array, field)
}

/// A column with parameters among its cells.
fn parameters(cells: &[Cell<'_>], field: &Field) -> Result<Option<ArrayRef>> {
    let mut values = Vec::with_capacity(cells.len());
    for cell in cells {
        let value = match cell {
            Cell::Null => ScalarValue::try_from(field.data_type())?,
            Cell::Parameter(value) if value.data_type() == *field.data_type() => (*value).clone(),
            Cell::Parameter(value) => {
                let text = matches!(
                    value.data_type(),
                    DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
                );
                assign::check(&value.data_type(), field, text, "expression")?;
                let array = value.to_array()?;
                ScalarValue::try_from_array(&assign::convert(&array, field)?, 0)?
            }
            other => {
                let Some(array) = column(std::slice::from_ref(other), field)? else {
                    return Ok(None);
                };
                ScalarValue::try_from_array(&array, 0)?
            }
        };
        values.push(value);
    }
    Ok(Some(ScalarValue::iter_to_array(values)?))
}

//! Assignment: which types fit into which columns, and rows brought into a table's exact shape.
//!
//! A value that a user wrote as a quoted literal has no type yet and is read as the column's; a value of another type
//! is converted where Postgres has an assignment cast, and refused (42804) where it has not.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value};

use crate::error::{Result, SqlError};
use crate::functions::text_forms::{self, has_text_form, is_text};
use crate::types::{length_max, pg_type_name, type_name};

/// Whether an expression is a literal without a type: a quoted text, NULL or a parameter.
pub(crate) fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(
            value.value,
            Value::SingleQuotedString(_)
                | Value::EscapedStringLiteral(_)
                | Value::DollarQuotedString(_)
                | Value::Null
                | Value::Placeholder(_)
        ),
        Expr::Nested(inner) => is_literal(inner),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => is_literal(expr),
        _ => false,
    }
}

/// Refuses what Postgres does not assign.
///
/// # Errors
/// 42804.
pub(crate) fn check(from: &DataType, to: &Field, literal: bool, what: &str) -> Result<()> {
    if literal || assignable(from, to.data_type()) {
        return Ok(());
    }
    let text = format!(
        "column \"{}\" is of type {} but {what} is of type {}",
        to.name(),
        pg_type_name(to),
        type_name(from)
    );
    Err(SqlError::new("42804", text).with_hint("You will need to rewrite or cast the expression."))
}

fn assignable(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    let text = |t: &DataType| matches!(t, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    let bytes = |t: &DataType| {
        matches!(t, T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_))
    };
    let time = |t: &DataType| matches!(t, T::Timestamp(..) | T::Date32 | T::Date64);
    let list = |t: &DataType| match t {
        T::List(field) | T::LargeList(field) | T::FixedSizeList(field, _) => {
            Some(Arc::clone(field))
        }
        _ => None,
    };
    if from == to || from.is_null() || text(to) {
        return true;
    }
    if from.is_numeric() && to.is_numeric() || time(from) && time(to) || bytes(from) && bytes(to) {
        return true;
    }
    if let (Some(from), Some(to)) = (list(from), list(to)) {
        return assignable(from.data_type(), to.data_type());
    }
    match (from, to) {
        (T::Timestamp(..), T::Time32(_) | T::Time64(_)) => true,
        (T::Time32(_) | T::Time64(_), T::Time32(_) | T::Time64(_)) => true,
        (T::Interval(_) | T::Duration(_), T::Interval(_)) => true,
        (T::Struct(_), T::Struct(_)) => true,
        (T::Dictionary(_, value), to) => assignable(value, to),
        _ => false,
    }
}

/// A batch in the table's schema: converted, within lengths, without NULLs where there may be none.
///
/// # Errors
/// 22P02, 22003 (does not convert), 22001 (too long), 23502 (NULL).
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef, table: &str) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        columns.push(convert(column, field)?);
    }
    for (at, field) in schema.fields().iter().enumerate() {
        if !field.is_nullable() && columns[at].null_count() > 0 {
            return Err(null_violation(&columns, schema, at, table));
        }
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// One column in a field's type.
///
/// # Errors
/// 22P02, 22003, 22001.
pub(crate) fn convert(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let column = if column.data_type() == field.data_type() {
        Arc::clone(column)
    } else if is_text(column.data_type()) && has_text_form(field.data_type()) {
        text_forms::read(column, field.data_type())?
    } else if has_text_form(column.data_type()) && is_text(field.data_type()) {
        text_forms::write(column)?
    } else {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        cast_with_options(column, field.data_type(), &options)?
    };
    if let Some(most) = length_max(field) {
        check_lengths(&column, field, most)?;
    }
    Ok(column)
}

fn check_lengths(column: &ArrayRef, field: &Field, most: usize) -> Result<()> {
    let Some(texts) = column.as_string_view_opt() else { return Ok(()) };
    let too_long = |text: &str| {
        // Bytes are never fewer than characters; spaces beyond the limit are cut in Postgres.
        text.len() > most && text.trim_end_matches(' ').chars().count() > most
    };
    if texts.iter().flatten().any(too_long) {
        let text = format!("value too long for type {}", pg_type_name(field));
        return Err(SqlError::new("22001", text));
    }
    Ok(())
}

fn null_violation(columns: &[ArrayRef], schema: &Schema, at: usize, table: &str) -> SqlError {
    let row = (0..columns[at].len()).find(|row| columns[at].is_null(*row)).unwrap_or_default();
    let text = format!(
        "null value in column \"{}\" of relation \"{table}\" violates not-null constraint",
        schema.field(at).name()
    );
    let values: Vec<String> = columns.iter().map(|column| cell(column, row)).collect();
    SqlError::new("23502", text)
        .with_detail(format!("Failing row contains ({}).", values.join(", ")))
}

/// One value as text, for messages.
pub(crate) fn cell(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "null".to_string();
    }
    let options = FormatOptions::default();
    match ArrayFormatter::try_new(column, &options) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(_) => "?".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignment_casts_are_postgres_s() {
        use DataType as T;
        assert!(assignable(&T::Int64, &T::Int32));
        assert!(assignable(&T::Int64, &T::Utf8View));
        assert!(!assignable(&T::Utf8View, &T::Int32));
        assert!(!assignable(&T::Boolean, &T::Int32));
        let error = check(&T::Utf8View, &Field::new("v", T::Int32, true), false, "expression");
        assert_eq!(
            error.unwrap_err().message,
            "column \"v\" is of type integer but expression is of type text"
        );
    }

    #[test]
    fn too_long_texts_and_nulls_are_refused() {
        let text: ArrayRef = Arc::new(arrow::array::StringViewArray::from(vec!["abcd"]));
        let field = crate::types::with_pg_type(
            Field::new("v", DataType::Utf8View, true),
            Some("varchar(3)".into()),
        );
        assert_eq!(convert(&text, &field).unwrap_err().sqlstate, "22001");
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, false)]));
        let nulls: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![None]));
        let batch = RecordBatch::try_from_iter_with_nullable([("a", nulls, true)]).unwrap();
        let error = conform(&batch, &schema, "t").unwrap_err();
        assert_eq!(error.sqlstate, "23502");
        assert_eq!(error.detail.as_deref(), Some("Failing row contains (null)."));
    }
}

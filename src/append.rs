//! Appending Arrow rows to a table: the rows take the way of a COPY, without text in between.

use arrow::array::RecordBatch;
use arrow::compute::{CastOptions, cast_with_options};
use millstream_sql::{Outcome, Session, SqlError};

use crate::error::{Error, Result};

/// Writes the rows; see [`Database::append`](crate::Database::append).
pub(crate) async fn append(session: &mut Session, table: &str, rows: RecordBatch) -> Result<u64> {
    let schema = rows.schema();
    let names = schema.fields().iter().map(|field| quoted(field.name()));
    let names = names.collect::<Vec<_>>().join(", ");
    let statements = session.parse(&format!("COPY {table} ({names}) FROM STDIN"))?;
    let [statement] = statements.as_slice() else {
        return Err(Error::usage(format!("not the name of a table: {table}")));
    };
    let Outcome::CopyIn { target, .. } = session.execute(statement, &[]).await? else {
        return Err(Error::usage(format!("not the name of a table: {table}")));
    };
    // Values that the table's type cannot hold are errors, not NULLs.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let mut columns = Vec::with_capacity(rows.num_columns());
    for (column, field) in rows.columns().iter().zip(target.schema.fields()) {
        let cast = cast_with_options(column, field.data_type(), &options).map_err(|error| {
            let text = format!("column \"{}\" of \"{table}\": {error}", field.name());
            SqlError::new("42804", text)
        })?;
        columns.push(cast);
    }
    // NOT NULL is the table's own matter: it names the column and the relation.
    let fields = target.schema.fields().iter();
    let nullable = fields.map(|field| field.as_ref().clone().with_nullable(true));
    let schema = arrow::datatypes::Schema::new(nullable.collect::<Vec<_>>());
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let rows = RecordBatch::try_new_with_options(schema.into(), columns, &options)
        .map_err(millstream_engine::EngineError::from)?;
    Ok(session.copy_in(&target, vec![rows]).await?)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

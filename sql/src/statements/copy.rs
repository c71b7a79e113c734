//! COPY table FROM STDIN; COPY table, query or SUBSCRIBE TO STDOUT.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, Ident, ObjectName,
};

use super::insert::{self, Conflict, complete_generated, with_lenient_schema};
use super::{assign, select, subscribe};
use crate::catalog::Relation;
use crate::error::{Result, SqlError};
use crate::outcome::{CopyFormat, CopyKind, CopyTarget, Outcome};
use crate::parser::{Copy, CopySource, StreamQuery, fold};
use crate::session::{Run, Session};

pub(super) async fn run(session: &mut Session, copy: &Copy, run: &Run<'_>) -> Result<Outcome> {
    let format = format(copy)?;
    if !copy.to {
        return from_stdin(session, copy, format, run);
    }
    let outcome = match &copy.source {
        CopySource::Subscribe(target) => subscribe::run(session, target, run).await?,
        CopySource::Query(query) => select::run(session, query, run).await?,
        CopySource::Table(name, columns) => {
            let query = table_query(name, columns)?;
            select::run(session, &query, run).await?
        }
    };
    match outcome {
        Outcome::Rows { schema, rows, .. } => Ok(Outcome::CopyOut { schema, rows, format }),
        _ => Err(SqlError::internal("a query gave no rows")),
    }
}

fn table_query(name: &ObjectName, columns: &[Ident]) -> Result<StreamQuery> {
    use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr};
    let mut query = super::create_sink::select_all(name)?;
    if !columns.is_empty()
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        let item = |column: &Ident| SelectItem::UnnamedExpr(Expr::Identifier(column.clone()));
        select.projection = columns.iter().map(item).collect();
    }
    Ok(StreamQuery::new(query, None))
}

fn from_stdin(
    session: &mut Session,
    copy: &Copy,
    format: CopyFormat,
    run: &Run<'_>,
) -> Result<Outcome> {
    session.check_writable("COPY FROM")?;
    let CopySource::Table(name, columns) = &copy.source else {
        return Err(SqlError::new("42601", "COPY FROM needs a table"));
    };
    let relation = session.resolve(&session.db.catalog(), name, run.text)?;
    let table = relation.table()?;
    let places = match columns.as_slice() {
        [] => (0..relation.schema.fields().len())
            .filter(|at| table.generated[*at].is_none())
            .collect(),
        listed => listed
            .iter()
            .map(|column| place(&relation, &fold(column)))
            .collect::<Result<Vec<_>>>()?,
    };
    let schema: SchemaRef = Arc::new(relation.schema.project(&places)?);
    let target = CopyTarget { table: name.to_string(), schema };
    Ok(Outcome::CopyIn { target, format })
}

fn place(relation: &Relation, name: &str) -> Result<usize> {
    relation.schema.index_of(name).map_err(|_| {
        let text = format!("column \"{name}\" of relation \"{}\" does not exist", relation.name);
        SqlError::new("42703", text)
    })
}

/// Writes decoded rows: columns that were not sent get their defaults.
pub(super) async fn copy_in(
    session: &mut Session,
    target: &CopyTarget,
    rows: Vec<RecordBatch>,
) -> Result<u64> {
    session.begin_write("COPY FROM").await?;
    let parts = table_parts(&target.table)?;
    let catalog = session.db.catalog();
    let relation = Arc::clone(catalog.resolve(&parts, &session.settings.search_path())?);
    let mut complete = Vec::with_capacity(rows.len());
    for batch in &rows {
        complete.push(with_defaults(session, &relation, &target.schema, batch)?);
    }
    let planner = session.planner();
    let complete = complete_generated(&planner, &relation, complete)?;
    if complete.is_empty() {
        return Ok(0);
    }
    Ok(insert::write_rows(session, &relation, complete, Conflict::of(relation.table()?))?.count)
}

fn table_parts(name: &str) -> Result<Vec<String>> {
    let sql: Arc<str> = format!("DESCRIBE {name}").into();
    match crate::parser::parse(&sql)?.pop().map(|statement| statement.command) {
        Some(crate::parser::Command::Describe(name)) => Ok(crate::parser::fold_name(&name)),
        _ => Err(SqlError::internal("the name of a table did not parse")),
    }
}

fn with_defaults(
    session: &Session,
    relation: &Relation,
    sent: &Schema,
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    let table = relation.table()?;
    let planner = session.planner();
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(relation.schema.fields().len());
    for (at, field) in relation.schema.fields().iter().enumerate() {
        let column = match (sent.index_of(field.name()), &table.defaults[at]) {
            (Ok(place), _) => assign::convert(batch.column(place), field)?,
            (Err(_), None) => new_null_array(field.data_type(), batch.num_rows()),
            (Err(_), Some(default)) => {
                let empty = DFSchema::empty();
                let planned = planner.plan_expr(default, &empty, "")?;
                let physical = planner.state.create_physical_expr(planned, &empty)?;
                let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
                let one = RecordBatch::try_new_with_options(
                    Arc::new(Schema::empty()),
                    Vec::new(),
                    &options,
                )?;
                let value = physical.evaluate(&one)?.into_array(1)?;
                let value = assign::convert(&value, field)?;
                let value = datafusion::common::ScalarValue::try_from_array(&value, 0)?;
                value.to_array_of_size(batch.num_rows())?
            }
        };
        columns.push(column);
    }
    with_lenient_schema(columns, &relation.schema)
}

fn format(copy: &Copy) -> Result<CopyFormat> {
    let mut kind = CopyKind::Text;
    let mut found = (None, None, false, '"');
    for option in &copy.options {
        match option {
            CopyOption::Format(name) => {
                kind = match fold(name).as_str() {
                    "text" => CopyKind::Text,
                    "csv" => CopyKind::Csv,
                    "binary" => CopyKind::Binary,
                    other => {
                        let text = format!("COPY format \"{other}\" not recognized");
                        return Err(SqlError::new("22023", text));
                    }
                }
            }
            CopyOption::Delimiter(delimiter) => found.0 = Some(*delimiter),
            CopyOption::Null(null) => found.1 = Some(null.clone()),
            CopyOption::Header(header) => found.2 = *header,
            CopyOption::Quote(quote) => found.3 = *quote,
            CopyOption::Freeze(_) | CopyOption::Encoding(_) => {}
            CopyOption::Escape(escape) if *escape == found.3 => {}
            other => return Err(SqlError::unsupported(format!("COPY option {other}"))),
        }
    }
    for option in &copy.legacy_options {
        match option {
            CopyLegacyOption::Binary => kind = CopyKind::Binary,
            CopyLegacyOption::Delimiter(delimiter) => found.0 = Some(*delimiter),
            CopyLegacyOption::Null(null) => found.1 = Some(null.clone()),
            CopyLegacyOption::Csv(options) => {
                kind = CopyKind::Csv;
                for option in options {
                    match option {
                        CopyLegacyCsvOption::Header => found.2 = true,
                        CopyLegacyCsvOption::Quote(quote) => found.3 = *quote,
                        other => {
                            return Err(SqlError::unsupported(format!("COPY option {other}")));
                        }
                    }
                }
            }
            other => return Err(SqlError::unsupported(format!("COPY option {other}"))),
        }
    }
    let (delimiter, null, header, quote) = found;
    let plain = if kind == CopyKind::Csv { (',', "") } else { ('\t', "\\N") };
    Ok(CopyFormat {
        kind,
        delimiter: delimiter.unwrap_or(plain.0),
        null: null.unwrap_or_else(|| plain.1.to_string()),
        header,
        quote,
    })
}

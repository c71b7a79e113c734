//! CREATE TABLE, CREATE SOURCE and CREATE TABLE AS.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::sqlparser::ast::{Expr, Ident};
use millstream_engine::plan;
use millstream_engine::{OnConflict, TableSpec};

use super::create_source::source;
use super::{Target, command, insert};
use crate::catalog::{Catalog, Detail, Relation, RelationName, TableDetail};
use crate::error::{Result, SqlError, TextMap};
use crate::outcome::{Notice, Outcome};
use crate::parser::{
    ColumnSpec, CreateKind, CreateRelation, TableConflict, TableOptions, fold, fold_name,
    name_location,
};
use crate::query::Planner;
use crate::query::stream_plan::output_schema;
use crate::session::{Definition, DefinitionGuard, Run, Session, Spec};
use crate::types::{arrow_type, with_pg_type};

pub(super) async fn run(
    session: &mut Session,
    create: &CreateRelation,
    run: &Run<'_>,
) -> Result<Outcome> {
    let what = match create.kind {
        CreateKind::Table => "CREATE TABLE",
        CreateKind::Source => "CREATE SOURCE",
    };
    session.check_outside_changes(what)?;
    if create.temporary {
        return Err(SqlError::unsupported("CREATE TEMPORARY TABLE"));
    }
    if create.or_replace {
        return Err(SqlError::unsupported(format!("{what} with OR REPLACE")));
    }
    let db = Arc::clone(&session.db);
    let guard = db.define().await;
    let catalog = db.catalog();
    let Some(name) = new_name(session, &catalog, &create.name, create.if_not_exists, run)? else {
        return Ok(command(what));
    };
    if create.query.is_some() {
        return create_table_as(session, create, name, run, guard).await;
    }
    let target = Target { id: db.new_id(), name, columns: None };
    let id = target.id;
    let definition = plan(session, create, target, run).await?;
    db.add(&guard, definition, &session.settings).await?;
    drop(guard);
    if create.kind == CreateKind::Table {
        // It can be read, too.
        db.engine().wait_ready(id).await?;
    }
    Ok(command(what))
}

/// Plans a table or source.
pub(super) async fn plan(
    session: &Session,
    create: &CreateRelation,
    target: Target,
    run: &Run<'_>,
) -> Result<Definition> {
    let planner = session.planner();
    match (create.kind, target.columns.clone()) {
        // Its query has been run, when it was made.
        (CreateKind::Table, Some(columns)) if create.query.is_some() => {
            Ok(table_of_query(create, target, columns, run))
        }
        (CreateKind::Table, _) => table(&planner, create, target, run),
        (CreateKind::Source, _) => source(session, &planner, create, target, run).await,
    }
}

/// The full name to make; `None` when it exists and that is fine.
///
/// # Errors
/// 42P07 when it exists; see [`Catalog::new_name`].
pub(super) fn new_name(
    session: &mut Session,
    catalog: &Catalog,
    name: &datafusion::sql::sqlparser::ast::ObjectName,
    if_not_exists: bool,
    run: &Run<'_>,
) -> Result<Option<RelationName>> {
    let parts = fold_name(name);
    let place = name_location(name);
    let position = place.and_then(|(line, column)| TextMap::new(run.text).position(line, column));
    let full = catalog.new_name(&parts, &session.settings.search_path());
    let full = full.map_err(|error| SqlError { position, ..error })?;
    if catalog.existing(&full).is_none() {
        return Ok(Some(full));
    }
    let text = format!("relation \"{}\" already exists", full.name);
    if !if_not_exists {
        return Err(SqlError::new("42P07", text));
    }
    session.notice(Notice {
        severity: "NOTICE",
        sqlstate: "42P07",
        message: format!("{text}, skipping"),
        hint: None,
    });
    Ok(None)
}

/// Columns, with the places of generated ones left to [`generated_types`].
pub(super) fn fields_of(
    planner: &Planner,
    create: &CreateRelation,
    text: &str,
) -> Result<SchemaRef> {
    let mut fields: Vec<Field> = Vec::with_capacity(create.columns.len());
    for column in &create.columns {
        let name = fold(&column.name);
        if fields.iter().any(|field| *field.name() == name) {
            let error =
                SqlError::new("42701", format!("column \"{name}\" specified more than once"));
            return Err(SqlError { position: position(&column.name, text), ..error });
        }
        let (data_type, pg_type) = match (&column.data_type, &column.generated) {
            (Some(data_type), _) => arrow_type(data_type)
                .map_err(|error| SqlError { position: position(&column.name, text), ..error })?,
            (None, Some(expr)) => (generated_type(planner, create, expr, text)?, None),
            (None, None) => {
                let text = format!("column \"{name}\" has no type");
                return Err(SqlError::new("42601", text));
            }
        };
        let field = Field::new(name, data_type, !column.not_null);
        fields.push(with_pg_type(field, pg_type));
    }
    Ok(Arc::new(Schema::new(fields)))
}

fn position(ident: &Ident, text: &str) -> Option<usize> {
    TextMap::new(text).position(ident.span.start.line, ident.span.start.column)
}

/// The type of a generating expression over the columns that have one written.
fn generated_type(
    planner: &Planner,
    create: &CreateRelation,
    expr: &Expr,
    text: &str,
) -> Result<DataType> {
    let mut fields = Vec::new();
    for column in &create.columns {
        if let Some(data_type) = &column.data_type {
            fields.push(Field::new(fold(&column.name), arrow_type(data_type)?.0, true));
        }
    }
    let schema = DFSchema::try_from(Schema::new(fields))?;
    let planned = planner.plan_expr(expr, &schema, text)?;
    Ok(planned.get_type(&schema)?)
}

fn table(
    planner: &Planner,
    create: &CreateRelation,
    target: Target,
    run: &Run<'_>,
) -> Result<Definition> {
    check_table_options(&create.options)?;
    if create.columns.is_empty() {
        return Err(SqlError::unsupported("a table without columns"));
    }
    let schema = fields_of(planner, create, run.text)?;
    let primary_key = key_columns(create, &schema, run.text)?;
    let schema = with_not_null(&schema, &primary_key);
    for (column, field) in create.columns.iter().zip(schema.fields()) {
        check_default(planner, column, field, run.text)?;
    }
    let watermark = watermark(planner, create, &schema, run.text)?;
    let detail = TableDetail {
        primary_key: primary_key.clone(),
        defaults: create.columns.iter().map(|column| column.default.clone()).collect(),
        generated: create.columns.iter().map(|column| column.generated.clone()).collect(),
        append_only: create.options.append_only,
        on_conflict: match create.options.on_conflict {
            None => OnConflict::Fail,
            Some(TableConflict::Overwrite) => OnConflict::Overwrite,
            Some(TableConflict::Ignore) => OnConflict::DoNothing,
        },
    };
    check_generated(planner, create, &schema, run.text)?;
    Ok(new_table(target, schema, detail, watermark, run.own_text))
}

fn new_table(
    target: Target,
    schema: SchemaRef,
    detail: TableDetail,
    watermark: Option<(usize, plan::Expr)>,
    definition: &str,
) -> Definition {
    let Target { id, name, .. } = target;
    let spec = TableSpec {
        id,
        name: name.to_string(),
        schema: Arc::clone(&schema),
        primary_key: detail.primary_key.clone(),
        append_only: detail.append_only,
        watermark,
    };
    let definition = definition.to_string();
    let detail = Detail::Table(detail);
    let relation = Relation { id, name, schema, definition, depends_on: Vec::new(), detail };
    Definition { relation, spec: Spec::Table(spec) }
}

/// Options that a table of our own knows.
fn check_table_options(options: &TableOptions) -> Result<()> {
    if options.with.contains_key("connector") {
        return Err(SqlError::unsupported("CREATE TABLE with a connector")
            .with_hint("Use CREATE SOURCE, and a materialized view over it to store its rows."));
    }
    match options.with.keys().next() {
        Some(name) => Err(SqlError::unsupported(format!("table option \"{name}\""))),
        None => Ok(()),
    }
}

fn key_columns(create: &CreateRelation, schema: &Schema, text: &str) -> Result<Vec<usize>> {
    let mut key = Vec::new();
    for ident in create.primary_key.iter().flatten() {
        let at = column_place(schema, ident, text)?;
        if key.contains(&at) {
            let text =
                format!("column \"{}\" appears twice in primary key constraint", fold(ident));
            return Err(SqlError::new("42701", text));
        }
        key.push(at);
    }
    Ok(key)
}

fn column_place(schema: &Schema, ident: &Ident, text: &str) -> Result<usize> {
    let name = fold(ident);
    schema.index_of(&name).map_err(|_| {
        let error = SqlError::new("42703", format!("column \"{name}\" does not exist"));
        SqlError { position: position(ident, text), ..error }
    })
}

fn with_not_null(schema: &SchemaRef, columns: &[usize]) -> SchemaRef {
    let fields = schema.fields().iter().enumerate().map(|(at, field)| {
        let nullable = field.is_nullable() && !columns.contains(&at);
        field.as_ref().clone().with_nullable(nullable)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A default must be an expression without columns that fits its own.
fn check_default(planner: &Planner, column: &ColumnSpec, field: &Field, text: &str) -> Result<()> {
    let Some(default) = &column.default else { return Ok(()) };
    if column.generated.is_some() {
        let text = format!(
            "both default and generation expression specified for column \"{}\"",
            field.name()
        );
        return Err(SqlError::new("42601", text));
    }
    let empty = DFSchema::empty();
    let planned = planner.plan_expr(default, &empty, text)?;
    let from = planned.get_type(&empty)?;
    super::assign::check(&from, field, super::assign::is_literal(default), "default expression")
}

pub(super) fn check_generated(
    planner: &Planner,
    create: &CreateRelation,
    schema: &Schema,
    text: &str,
) -> Result<()> {
    let known = DFSchema::try_from(schema.clone())?;
    for column in &create.columns {
        let Some(expr) = &column.generated else { continue };
        planner.plan_expr(expr, &known, text)?;
        let mut other = None;
        let _ = datafusion::sql::sqlparser::ast::visit_expressions(expr, |part: &Expr| {
            if let Expr::Identifier(ident) = part
                && create
                    .columns
                    .iter()
                    .any(|known| known.generated.is_some() && fold(&known.name) == fold(ident))
            {
                other = Some(fold(ident));
            }
            std::ops::ControlFlow::<()>::Continue(())
        });
        if let Some(other) = other {
            let text =
                format!("cannot use generated column \"{other}\" in column generation expression");
            return Err(SqlError::new("42P17", text));
        }
    }
    Ok(())
}

/// The event-time column and its watermark expression.
pub(super) fn watermark(
    planner: &Planner,
    create: &CreateRelation,
    schema: &SchemaRef,
    text: &str,
) -> Result<Option<(usize, plan::Expr)>> {
    let Some((column, expr)) = &create.watermark else { return Ok(None) };
    let place = column_place(schema, column, text)?;
    if !matches!(schema.field(place).data_type(), DataType::Timestamp(..)) {
        let error = SqlError::new(
            "42804",
            format!("watermark column \"{}\" must be a timestamp", fold(column)),
        );
        return Err(SqlError { position: position(column, text), ..error });
    }
    let known = DFSchema::try_from(Arc::clone(schema))?;
    let planned = planner.plan_expr(expr, &known, text)?;
    if !matches!(planned.get_type(&known)?, DataType::Timestamp(..)) {
        return Err(SqlError::new("42804", "a watermark expression must give a timestamp"));
    }
    let physical = planner.state.create_physical_expr(planned, &known)?;
    Ok(Some((place, physical)))
}

/// CREATE TABLE name AS query: a table with the query's columns and its rows now.
async fn create_table_as(
    session: &mut Session,
    create: &CreateRelation,
    name: RelationName,
    run: &Run<'_>,
    guard: DefinitionGuard,
) -> Result<Outcome> {
    let Some(query) = &create.query else {
        return Err(SqlError::internal("CREATE TABLE AS without a query"));
    };
    check_table_options(&create.options)?;
    let names: Vec<String> = create.columns.iter().map(|column| fold(&column.name)).collect();
    let mut planner = session.planner();
    let plan = super::select::plan(&mut planner, query, run).await?;
    let schema = output_schema(&planner, &plan, &names)?;
    let nullable = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema: SchemaRef = Arc::new(Schema::new(nullable.map(storable).collect::<Vec<_>>()));
    session.ready_to_read(&planner).await?;
    let rows = crate::query::run::collect(&planner, &plan, run.cancel.clone()).await?;
    let db = Arc::clone(&session.db);
    let target = Target { id: db.new_id(), name, columns: None };
    let id = target.id;
    let definition = table_of_query(create, target, schema, run);
    // Without its rows the table must not stay.
    let unfinished = db.unfinished(id);
    db.add(&guard, definition, &session.settings).await?;
    drop(guard);
    db.engine().wait_ready(id).await?;
    let catalog = db.catalog();
    let relation = catalog.by_id(id).ok_or_else(|| SqlError::internal("the new table is gone"))?;
    let conflict = insert::Conflict::of(relation.table()?);
    let written = insert::write_rows(session, relation, rows, conflict)?;
    unfinished.done();
    Ok(command(format!("SELECT {}", written.count)))
}

/// The table of a CREATE TABLE AS, without its rows.
fn table_of_query(
    create: &CreateRelation,
    target: Target,
    schema: SchemaRef,
    run: &Run<'_>,
) -> Definition {
    let width = schema.fields().len();
    let detail = TableDetail {
        defaults: vec![None; width],
        generated: vec![None; width],
        append_only: create.options.append_only,
        ..TableDetail::default()
    };
    new_table(target, schema, detail, None, run.own_text)
}

/// A type that tables hold: unsigned numbers of the planner become signed ones.
fn storable(field: Field) -> Field {
    let data_type = match field.data_type() {
        DataType::UInt64 | DataType::UInt32 => DataType::Int64,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt8 | DataType::Int8 => DataType::Int16,
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        other => other.clone(),
    };
    field.with_data_type(data_type)
}

//! INSERT.
//!
//! Rows of literals and parameters take a short way to Arrow arrays, without a plan; everything else is planned.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    self, ConflictTarget, Insert, OnConflictAction, OnInsert, SetExpr, TableObject,
};
use millstream_engine::{ChangeBatch, OnConflict};

use super::{assign, command, returning};
use crate::catalog::{Relation, TableDetail};
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::fold;
use crate::query::names::name_columns;
use crate::query::tables::RelationTable;
use crate::query::{Planner, run as query_run};
use crate::session::{Run, Session, parameter_fields};

mod conflict;
mod literal;

pub(crate) use conflict::{check_unique, with_lenient_schema};

/// What to do with rows whose key is there already.
pub(crate) enum Conflict<'a> {
    Fail,
    DoNothing,
    Overwrite,
    /// DO UPDATE with expressions: evaluated here.
    Update {
        action: &'a ast::DoUpdate,
        alias: String,
        text: &'a str,
    },
}

impl Conflict<'_> {
    /// What the table itself says.
    pub(super) fn of(table: &TableDetail) -> Self {
        match table.on_conflict {
            OnConflict::Fail => Self::Fail,
            OnConflict::DoNothing => Self::DoNothing,
            OnConflict::Overwrite => Self::Overwrite,
        }
    }
}

/// What was written.
pub(crate) struct Written {
    pub(crate) count: u64,
    /// The rows, for RETURNING.
    pub(crate) rows: Vec<RecordBatch>,
}

pub(super) async fn run(session: &mut Session, insert: &Insert, run: &Run<'_>) -> Result<Outcome> {
    session.begin_write("INSERT").await?;
    check_form(insert)?;
    let TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::unsupported("INSERT INTO a function"));
    };
    let catalog = session.db.catalog();
    let relation = session.resolve(&catalog, name, run.text)?;
    let table = relation.table()?;
    let shortened = with_listed_columns(insert, &relation);
    let insert = shortened.as_ref().unwrap_or(insert);
    let conflict = conflict_of(insert, &relation, table, run.text)?;
    let rows = match literal::rows(insert, &relation, table, run)? {
        Some(batch) => vec![batch],
        None => planned_rows(session, insert, &relation, run).await?,
    };
    let written = write_rows(session, &relation, rows, conflict)?;
    match &insert.returning {
        None => Ok(command(format!("INSERT 0 {}", written.count))),
        Some(items) => {
            let alias = insert.table_alias.as_ref().map(|alias| &alias.alias);
            returning::run(session, &relation, alias, items, written.rows, "INSERT 0", run).await
        }
    }
}

/// VALUES with fewer values than the table has columns: those are the first ones.
pub(super) fn with_listed_columns(insert: &Insert, relation: &Relation) -> Option<Insert> {
    let SetExpr::Values(values) = insert.source.as_ref()?.body.as_ref() else { return None };
    let width = values.rows.first()?.content.len();
    if !insert.columns.is_empty() || width >= relation.schema.fields().len() {
        return None;
    }
    let named = relation.schema.fields().iter().take(width);
    let named = named.map(|field| {
        ast::ObjectName::from(vec![ast::Ident::with_quote('"', field.name().clone())])
    });
    Some(Insert { columns: named.collect(), ..insert.clone() })
}

fn check_form(insert: &Insert) -> Result<()> {
    let refused = [
        (insert.overwrite, "INSERT OVERWRITE"),
        (insert.or.is_some() || insert.replace_into, "INSERT OR REPLACE"),
        (insert.ignore, "INSERT IGNORE"),
        (insert.partitioned.is_some(), "INSERT ... PARTITION"),
    ];
    match refused.into_iter().find(|(given, _)| *given) {
        Some((_, what)) => Err(SqlError::unsupported(what)),
        None => Ok(()),
    }
}

fn conflict_of<'a>(
    insert: &'a Insert,
    relation: &Relation,
    table: &TableDetail,
    text: &'a str,
) -> Result<Conflict<'a>> {
    let on = match &insert.on {
        None => {
            return Ok(Conflict::of(table));
        }
        Some(OnInsert::OnConflict(on)) => on,
        Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE")),
    };
    check_conflict_target(on.conflict_target.as_ref(), relation, table, &on.action)?;
    let action = match &on.action {
        OnConflictAction::DoNothing if table.primary_key.is_empty() => return Ok(Conflict::Fail),
        OnConflictAction::DoNothing => return Ok(Conflict::DoNothing),
        OnConflictAction::DoUpdate(action) => action,
    };
    if conflict::overwrites_all(action, relation, table) {
        return Ok(Conflict::Overwrite);
    }
    let alias = match &insert.table_alias {
        Some(alias) => fold(&alias.alias),
        None => relation.name.name.clone(),
    };
    Ok(Conflict::Update { action, alias, text })
}

fn check_conflict_target(
    target: Option<&ConflictTarget>,
    relation: &Relation,
    table: &TableDetail,
    action: &OnConflictAction,
) -> Result<()> {
    let no_match = || {
        let text =
            "there is no unique or exclusion constraint matching the ON CONFLICT specification";
        SqlError::new("42P10", text)
    };
    match target {
        None if matches!(action, OnConflictAction::DoNothing) => Ok(()),
        None => Err(SqlError::new(
            "42601",
            "ON CONFLICT DO UPDATE requires inference specification or constraint name",
        )),
        Some(ConflictTarget::Columns(columns)) => {
            let mut places = Vec::new();
            for column in columns {
                let name = fold(column);
                places.push(relation.schema.index_of(&name).map_err(|_| {
                    SqlError::new("42703", format!("column \"{name}\" does not exist"))
                })?);
            }
            places.sort_unstable();
            let mut key = table.primary_key.clone();
            key.sort_unstable();
            if key.is_empty() || places != key { Err(no_match()) } else { Ok(()) }
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let wanted = crate::parser::fold_name(name).pop().unwrap_or_default();
            let known = format!("{}_pkey", relation.name.name);
            if wanted == known && !table.primary_key.is_empty() {
                return Ok(());
            }
            let text = format!(
                "constraint \"{wanted}\" for table \"{}\" does not exist",
                relation.name.name
            );
            Err(SqlError::new("42704", text))
        }
    }
}

/// Plans the rows, in the table's schema.
async fn planned_rows(
    session: &mut Session,
    insert: &Insert,
    relation: &Arc<Relation>,
    run: &Run<'_>,
) -> Result<Vec<RecordBatch>> {
    let mut planner = session.planner();
    let plan =
        plan(&mut planner, insert, relation, run.text, &parameter_fields(run.parameters)).await?;
    let plan = Session::bind(plan, run.parameters)?;
    session.ready_to_read(&planner).await?;
    let rows = query_run::collect(&planner, &plan, run.cancel.clone()).await?;
    complete_generated(&planner, relation, rows)
}

/// The plan of an INSERT's rows: one column for each of the table's.
///
/// # Errors
/// Those of planning; 42804 when a query's column does not fit.
pub(super) async fn plan(
    planner: &mut Planner,
    insert: &Insert,
    relation: &Arc<Relation>,
    text: &str,
    parameters: &[Option<arrow::datatypes::FieldRef>],
) -> Result<LogicalPlan> {
    let mut insert = insert.clone();
    let defaults = planned_defaults(planner, relation, text)?;
    let target = RelationTable::new(relation, &planner.reads).nullable().with_defaults(defaults);
    // The target is found by a name that no relation has, so that the source may read the table as it is.
    let own = "\u{1}target";
    planner.add(own, Arc::new(target));
    insert.table =
        TableObject::TableName(ast::ObjectName::from(vec![ast::Ident::with_quote('"', own)]));
    (insert.returning, insert.on, insert.table_alias) = (None, None, None);
    let Some(source) = insert.source.as_mut() else {
        return default_row(planner, relation);
    };
    planner.add_files(source, text).await?;
    let columns = |table: &ast::TableFactor, withs: &[ast::With]| planner.columns_of(table, withs);
    crate::rewrite::rewrite_query(source, &columns)?;
    name_columns(source);
    replace_default_words(source, relation, &insert.columns)?;
    check_width(&insert, relation)?;
    let is_values = matches!(
        insert.source.as_ref().map(|source| source.body.as_ref()),
        Some(SetExpr::Values(_))
    );
    if !is_values && let Some(source) = insert.source.as_mut() {
        plan_apart(planner, source, parameters, text)?;
    }
    let columns = insert.columns.clone();
    let statement = ast::Statement::Insert(insert);
    let plan = planner.plan_statement(statement, parameters, text)?;
    let LogicalPlan::Dml(DmlStatement { input, .. }) = plan else {
        return Err(SqlError::internal("an INSERT was not planned as one"));
    };
    if !is_values && let LogicalPlan::Projection(projection) = input.as_ref() {
        let from = projection.input.schema();
        for (at, field) in from.fields().iter().enumerate() {
            let to = match columns.get(at) {
                Some(name) => crate::parser::fold_name(name).pop().unwrap_or_default(),
                None => relation.schema.field(at).name().clone(),
            };
            let to = relation.schema.field_with_name(&to)?;
            assign::check(field.data_type(), to, false, "expression")?;
        }
    }
    Ok(Arc::unwrap_or_clone(input))
}

/// Within an INSERT every VALUES would get the columns of the table: a query that has some is planned by itself.
fn plan_apart(
    planner: &mut Planner,
    source: &mut Box<ast::Query>,
    parameters: &[Option<arrow::datatypes::FieldRef>],
    text: &str,
) -> Result<()> {
    let mut finder = ValuesFinder(false);
    let _ = ast::Visit::visit(source.as_ref(), &mut finder);
    if !finder.0 {
        return Ok(());
    }
    let (plan, _) = planner.plan_query(source, parameters, text)?;
    let own = "\u{1}source";
    planner.add(own, Arc::new(datafusion::datasource::ViewTable::new(plan, None)));
    let name = ast::ObjectName::from(vec![ast::Ident::with_quote('"', own)]);
    *source = super::create_sink::select_all(&name)?;
    Ok(())
}

/// Whether a query has VALUES anywhere.
struct ValuesFinder(bool);

impl ast::Visitor for ValuesFinder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> std::ops::ControlFlow<()> {
        self.0 |= has_values(&query.body);
        std::ops::ControlFlow::Continue(())
    }
}

fn has_values(body: &SetExpr) -> bool {
    match body {
        SetExpr::Values(_) => true,
        SetExpr::SetOperation { left, right, .. } => has_values(left) || has_values(right),
        _ => false,
    }
}

/// Refuses too many or too few expressions, as Postgres words it.
fn check_width(insert: &Insert, relation: &Relation) -> Result<()> {
    let Some(source) = &insert.source else { return Ok(()) };
    let SetExpr::Values(values) = source.body.as_ref() else { return Ok(()) };
    let wanted = match insert.columns.len() {
        0 => relation.schema.fields().len(),
        listed => listed,
    };
    for row in &values.rows {
        let given = row.content.len();
        if given > wanted {
            return Err(SqlError::new("42601", "INSERT has more expressions than target columns"));
        }
        if given < wanted && !insert.columns.is_empty() {
            return Err(SqlError::new("42601", "INSERT has more target columns than expressions"));
        }
    }
    Ok(())
}

/// The defaults of a table's columns as planned expressions.
fn planned_defaults(
    planner: &Planner,
    relation: &Relation,
    text: &str,
) -> Result<HashMap<String, Expr>> {
    let table = relation.table()?;
    let mut planned = HashMap::new();
    for (field, default) in relation.schema.fields().iter().zip(&table.defaults) {
        if let Some(default) = default {
            let expr = planner.plan_expr(default, &DFSchema::empty(), text)?;
            planned.insert(field.name().clone(), expr);
        }
    }
    Ok(planned)
}

/// INSERT ... DEFAULT VALUES.
fn default_row(planner: &Planner, relation: &Arc<Relation>) -> Result<LogicalPlan> {
    use datafusion::logical_expr::LogicalPlanBuilder;
    let mut defaults = planned_defaults(planner, relation, "")?;
    let mut exprs = Vec::new();
    for field in relation.schema.fields() {
        let null = Expr::Literal(datafusion::common::ScalarValue::Null, None);
        let expr = defaults.remove(field.name()).unwrap_or(null);
        let expr = datafusion::logical_expr::cast(expr, field.data_type().clone());
        exprs.push(expr.alias(field.name()));
    }
    Ok(LogicalPlanBuilder::empty(true).project(exprs)?.build()?)
}

/// DEFAULT inside VALUES becomes the default itself.
fn replace_default_words(
    source: &mut ast::Query,
    relation: &Relation,
    columns: &[ast::ObjectName],
) -> Result<()> {
    let SetExpr::Values(values) = source.body.as_mut() else { return Ok(()) };
    let table = relation.table()?;
    for row in &mut values.rows {
        // Fewer values than columns: the others get their defaults.
        for (at, expr) in row.content.iter_mut().enumerate() {
            if !is_default_word(expr) {
                continue;
            }
            let place = match columns.get(at) {
                Some(name) => {
                    let name = crate::parser::fold_name(name).pop().unwrap_or_default();
                    relation.schema.index_of(&name).ok()
                }
                None => Some(at),
            };
            let default = place.and_then(|place| table.defaults.get(place).cloned().flatten());
            *expr = default.unwrap_or_else(|| ast::Expr::value(ast::Value::Null));
        }
    }
    Ok(())
}

/// Whether an expression is the word DEFAULT.
pub(super) fn is_default_word(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Identifier(ident)
        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// Computes generated columns of rows that have all others.
///
/// # Errors
/// When an expression fails.
pub(super) fn complete_generated(
    planner: &Planner,
    relation: &Relation,
    rows: Vec<RecordBatch>,
) -> Result<Vec<RecordBatch>> {
    let table = relation.table()?;
    if table.generated.iter().all(Option::is_none) {
        return Ok(rows);
    }
    let schema = DFSchema::try_from(Arc::clone(&relation.schema))?;
    let mut exprs = Vec::new();
    for (at, generated) in table.generated.iter().enumerate() {
        if let Some(expr) = generated {
            let planned = planner.plan_expr(expr, &schema, "")?;
            exprs.push((at, planner.state.create_physical_expr(planned, &schema)?));
        }
    }
    let mut complete = Vec::with_capacity(rows.len());
    for batch in rows {
        let mut columns = batch.columns().to_vec();
        // Expressions see the columns in the table's types.
        for (column, field) in columns.iter_mut().zip(relation.schema.fields()) {
            *column = assign::convert(column, field)?;
        }
        let nullable =
            relation.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let lenient = Arc::new(arrow::datatypes::Schema::new(nullable.collect::<Vec<_>>()));
        let base = RecordBatch::try_new(Arc::clone(&lenient), columns.clone())?;
        for (at, expr) in &exprs {
            let value = expr.evaluate(&base)?.into_array(base.num_rows())?;
            columns[*at] = assign::convert(&value, relation.schema.field(*at))?;
        }
        complete.push(RecordBatch::try_new(lenient, columns)?);
    }
    Ok(complete)
}

/// Writes rows that have all of the table's columns.
///
/// # Errors
/// 22xxx, 23502, 23505, 40001.
pub(crate) fn write_rows(
    session: &mut Session,
    relation: &Arc<Relation>,
    rows: Vec<RecordBatch>,
    conflict: Conflict<'_>,
) -> Result<Written> {
    let name = relation.name.name.as_str();
    let mut conformed = Vec::with_capacity(rows.len());
    for batch in &rows {
        conformed.push(assign::conform(batch, &relation.schema, name)?);
    }
    let batch = match conformed.len() {
        1 => conformed.remove(0),
        _ => arrow::compute::concat_batches(&relation.schema, &conformed)?,
    };
    let plain = match conflict {
        Conflict::Update { .. } => None,
        _ if session.transaction.is_open() && !relation.table()?.primary_key.is_empty() => None,
        Conflict::Fail => Some(OnConflict::Fail),
        Conflict::DoNothing => Some(OnConflict::DoNothing),
        Conflict::Overwrite => Some(OnConflict::Overwrite),
    };
    let Some(on_conflict) = plain else {
        return conflict::write(session, relation, batch, &conflict);
    };
    let given = batch.num_rows();
    let (_, inserted) = session.write(relation, ChangeBatch::insert(batch.clone()), on_conflict)?;
    let count = match on_conflict {
        // Postgres counts updated rows too.
        OnConflict::Overwrite => u64::try_from(given).unwrap_or(u64::MAX),
        OnConflict::Fail | OnConflict::DoNothing => inserted,
    };
    Ok(Written { count, rows: vec![batch] })
}

//! UPDATE, and what it shares with DELETE: finding the rows, and trying again when others changed them meanwhile.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, Expr, Ident, ObjectName, Query, SelectItem, SetExpr, TableFactor,
    TableWithJoins, Update, UpdateTableFromKind, Value, With,
};
use millstream_engine::{ChangeBatch, OnConflict};

use super::insert::{check_unique, complete_generated, is_default_word, with_lenient_schema};
use super::{assign, command, returning};
use crate::catalog::Relation;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::fold_name;
use crate::query::tables::RowsTable;
use crate::query::{Contents, run as query_run};
use crate::session::{Run, Session, apply_changes, parameter_fields};

/// Tries before a statement that others keep disturbing gives up.
const TRIES_MAX: usize = 100;
/// The column that numbers the rows of the target, where a join may meet one twice.
const ROW: &str = "\u{1}row";

pub(super) async fn run(session: &mut Session, update: &Update, run: &Run<'_>) -> Result<Outcome> {
    session.begin_write("UPDATE").await?;
    if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() {
        return Err(SqlError::unsupported("UPDATE with ORDER BY, LIMIT or OR"));
    }
    let target = Target::of(session, &update.table, run)?;
    let table = target.relation.table()?;
    if table.append_only {
        return Err(append_only(&target.relation));
    }
    let from = match &update.from {
        None => Vec::new(),
        Some(UpdateTableFromKind::AfterSet(from) | UpdateTableFromKind::BeforeSet(from)) => {
            from.clone()
        }
    };
    let set = assignments(update, &target.relation)?;
    check_texts(&set, &target.relation)?;
    for attempt in 0.. {
        let values = set.iter().map(|(_, expr)| expr.clone()).collect();
        let found = target.find(session, values, &from, update.selection.clone(), run).await?;
        let width = target.relation.schema.fields().len();
        let mut changes = Vec::new();
        let mut new_rows = Vec::new();
        for batch in found {
            let new = new_rows_of(session, &target.relation, &batch, &set, width)?;
            let old = batch.project(&(0..width).collect::<Vec<_>>())?;
            let old = assign::conform(&old, &target.relation.schema, &target.relation.name.name)?;
            changes.push(ChangeBatch::delete(old));
            new_rows.push(new);
        }
        changes.extend(new_rows.iter().cloned().map(ChangeBatch::insert));
        let keyed = set.iter().any(|(at, _)| table.primary_key.contains(at));
        if keyed && session.transaction.is_open() {
            session.transaction.forget_keys(target.relation.id);
            let rows = session.current_rows(target.relation.id)?;
            check_unique(&target.relation, &apply_changes(rows, &changes)?)?;
        }
        let count: usize = new_rows.iter().map(RecordBatch::num_rows).sum();
        match write(session, &target.relation, &changes) {
            Err(error) if may_retry(session, &error, attempt) => continue,
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        return match &update.returning {
            None => Ok(command(format!("UPDATE {count}"))),
            Some(items) => {
                let alias = target.alias.as_ref();
                returning::run(session, &target.relation, alias, items, new_rows, "UPDATE", run)
                    .await
            }
        };
    }
    Err(SqlError::internal("an endless loop ended"))
}

pub(super) fn append_only(relation: &Relation) -> SqlError {
    let text = format!("table \"{}\" is append only", relation.name);
    SqlError::new("55000", text).with_detail("Its rows can be neither changed nor deleted.")
}

/// Whether a failed write of one statement is worth another try.
pub(super) fn may_retry(session: &Session, error: &SqlError, attempt: usize) -> bool {
    error.sqlstate == "40001" && !session.transaction.is_open() && attempt < TRIES_MAX
}

/// Writes the changes of one statement together.
pub(super) fn write(
    session: &mut Session,
    relation: &Relation,
    changes: &[ChangeBatch],
) -> Result<()> {
    if changes.iter().all(ChangeBatch::is_empty) {
        return Ok(());
    }
    let all = ChangeBatch::concat(&relation.schema, changes)?;
    session.write(relation, all, OnConflict::Fail)?;
    Ok(())
}

/// Quoted literals must fit even when no row is changed.
fn check_texts(set: &[(usize, Expr)], relation: &Relation) -> Result<()> {
    for (place, expr) in set {
        if let Expr::Value(value) = expr
            && let Value::SingleQuotedString(text) = &value.value
        {
            let text: ArrayRef = Arc::new(arrow::array::StringViewArray::from(vec![text.as_str()]));
            assign::convert(&text, relation.schema.field(*place))?;
        }
    }
    Ok(())
}

/// Which columns get which expressions.
fn assignments(update: &Update, relation: &Relation) -> Result<Vec<(usize, Expr)>> {
    let table = relation.table()?;
    let mut set: Vec<(usize, Expr)> = Vec::new();
    let mut add = |name: &ObjectName, value: &Expr| -> Result<()> {
        let name = fold_name(name).pop().unwrap_or_default();
        let place = relation.schema.index_of(&name).map_err(|_| {
            let text =
                format!("column \"{name}\" of relation \"{}\" does not exist", relation.name);
            SqlError::new("42703", text)
        })?;
        if set.iter().any(|(at, _)| *at == place) {
            let text = format!("multiple assignments to same column \"{name}\"");
            return Err(SqlError::new("42601", text));
        }
        if table.generated[place].is_some() && !is_default_word(value) {
            let text = format!("column \"{name}\" can only be updated to DEFAULT");
            return Err(SqlError::new("428C9", text)
                .with_detail(format!("Column \"{name}\" is a generated column.")));
        }
        let value = match is_default_word(value) {
            false => value.clone(),
            true => table.defaults[place].clone().unwrap_or_else(|| Expr::value(Value::Null)),
        };
        set.push((place, value));
        Ok(())
    };
    for assignment in &update.assignments {
        match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(name), value) => add(name, value)?,
            (AssignmentTarget::Tuple(names), Expr::Tuple(values))
                if names.len() == values.len() =>
            {
                for (name, value) in names.iter().zip(values) {
                    add(name, value)?;
                }
            }
            (AssignmentTarget::Tuple(_), _) => {
                return Err(SqlError::unsupported("a row of columns set to a sub-query"));
            }
        }
    }
    Ok(set)
}

/// The new rows of found ones: old columns, with the assigned ones (behind them) in their places.
fn new_rows_of(
    session: &Session,
    relation: &Relation,
    found: &RecordBatch,
    set: &[(usize, Expr)],
    width: usize,
) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = found.columns()[..width].to_vec();
    for (value, (place, expr)) in found.columns()[width..].iter().zip(set) {
        let field = relation.schema.field(*place);
        assign::check(value.data_type(), field, assign::is_literal(expr), "expression")?;
        columns[*place] = assign::convert(value, field)?;
    }
    let rows = with_lenient_schema(columns, &relation.schema)?;
    let mut rows = vec![rows];
    if relation.table()?.generated.iter().any(Option::is_some) {
        rows = complete_generated(&session.planner(), relation, rows)?;
    }
    let rows = arrow::compute::concat_batches(&rows[0].schema(), &rows)?;
    assign::conform(&rows, &relation.schema, &relation.name.name)
}

/// The table of an UPDATE or DELETE, as the statement names it.
pub(super) struct Target {
    pub(super) relation: Arc<Relation>,
    pub(super) alias: Option<Ident>,
    factor: TableWithJoins,
}

impl Target {
    /// # Errors
    /// 42P01, 42809 (not a table).
    pub(super) fn of(session: &Session, table: &TableWithJoins, run: &Run<'_>) -> Result<Self> {
        let TableFactor::Table { name, alias, .. } = &table.relation else {
            return Err(SqlError::new("42601", "a table is expected"));
        };
        if !table.joins.is_empty() {
            return Err(SqlError::new("42601", "a join cannot be changed"));
        }
        let relation = session.resolve(&session.db.catalog(), name, run.text)?;
        relation.table()?;
        let alias = alias.as_ref().map(|alias| alias.name.clone());
        Ok(Self { relation, alias, factor: table.clone() })
    }

    /// The rows of the target that meet the condition, with these expressions behind their columns. Each row once.
    pub(super) async fn find(
        &self,
        session: &Session,
        values: Vec<Expr>,
        others: &[TableWithJoins],
        selection: Option<Expr>,
        run: &Run<'_>,
    ) -> Result<Vec<RecordBatch>> {
        let mut planner = session.planner();
        let relation = &self.relation;
        let rows = session.current_rows(relation.id)?;
        // Sub-queries see the table as it was before the statement too.
        planner.reads.put(relation.id, Contents::Rows(Arc::new(rows.clone())));
        let numbered = !others.is_empty();
        let factor = match numbered {
            false => self.factor.clone(),
            true => {
                let (schema, rows) = number_rows(&relation.schema, rows)?;
                planner.add("\u{1}target", Arc::new(RowsTable::new(schema, rows)));
                self.numbered_factor()
            }
        };
        let query = self.query(factor, values, others, selection, numbered)?;
        planner.add_files(&query, run.text).await?;
        let mut query = query;
        let columns = |table: &TableFactor, withs: &[With]| planner.columns_of(table, withs);
        crate::rewrite::rewrite_query(&mut query, &columns)?;
        let statement = datafusion::sql::sqlparser::ast::Statement::Query(Box::new(query));
        let plan =
            planner.plan_statement(statement, &parameter_fields(run.parameters), run.text)?;
        let plan = Session::bind(plan, run.parameters)?;
        session.ready_to_read(&planner).await?;
        let found = query_run::collect(&planner, &plan, run.cancel.clone()).await?;
        if numbered { each_once(found) } else { Ok(found) }
    }

    /// The target under its name or alias, over the numbered rows.
    fn numbered_factor(&self) -> TableWithJoins {
        let mut factor = self.factor.clone();
        if let TableFactor::Table { name, alias, .. } = &mut factor.relation {
            let shown = name.0.last().and_then(|part| part.as_ident()).cloned();
            *name = ObjectName::from(vec![Ident::with_quote('"', "\u{1}target")]);
            if alias.is_none()
                && let Some(shown) = shown
            {
                *alias = Some(datafusion::sql::sqlparser::ast::TableAlias {
                    explicit: true,
                    name: shown,
                    columns: Vec::new(),
                    at: None,
                });
            }
        }
        factor
    }

    fn query(
        &self,
        factor: TableWithJoins,
        values: Vec<Expr>,
        others: &[TableWithJoins],
        selection: Option<Expr>,
        numbered: bool,
    ) -> Result<Query> {
        let shown = match (&self.alias, &self.factor.relation) {
            (Some(alias), _) => vec![alias.clone()],
            (None, TableFactor::Table { name, .. }) => {
                let mut parts = name.0.iter().filter_map(|part| part.as_ident().cloned());
                let last = parts.next_back();
                last.into_iter().collect()
            }
            (None, _) => Vec::new(),
        };
        let mut query = *super::create_sink::select_all(&ObjectName::from(vec![Ident::new("x")]))?;
        let SetExpr::Select(select) = query.body.as_mut() else {
            return Err(SqlError::internal("a SELECT did not parse as one"));
        };
        select.projection.clear();
        for field in self.relation.schema.fields() {
            let mut parts = shown.clone();
            parts.push(Ident::with_quote('"', field.name().clone()));
            select.projection.push(SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)));
        }
        for (at, value) in values.into_iter().enumerate() {
            let alias = Ident::with_quote('"', format!("\u{1}new{at}"));
            select.projection.push(SelectItem::ExprWithAlias { expr: value, alias });
        }
        if numbered {
            let row = Ident::with_quote('"', ROW);
            let row = Expr::CompoundIdentifier(shown.into_iter().chain([row]).collect());
            select.projection.push(SelectItem::UnnamedExpr(row));
        }
        select.from = std::iter::once(factor).chain(others.iter().cloned()).collect();
        select.selection = selection;
        Ok(query)
    }
}

/// Rows with their numbers behind them.
fn number_rows(
    schema: &SchemaRef,
    rows: Vec<RecordBatch>,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let mut fields: Vec<Field> =
        schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    fields.push(Field::new(ROW, DataType::UInt64, false));
    let schema = Arc::new(Schema::new(fields));
    let mut next = 0u64;
    let mut numbered = Vec::with_capacity(rows.len());
    for batch in rows {
        let end = next + u64::try_from(batch.num_rows()).map_err(SqlError::internal)?;
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(next..end));
        next = end;
        let columns = batch.columns().iter().cloned().chain([numbers]).collect();
        numbered.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
    }
    Ok((schema, numbered))
}

/// The first of the rows with one number (the last column, which goes).
fn each_once(found: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    use arrow::array::AsArray;
    let mut seen = std::collections::HashSet::new();
    let mut kept = Vec::with_capacity(found.len());
    for batch in found {
        let last = batch.num_columns() - 1;
        let numbers = batch.column(last).as_primitive_opt::<arrow::datatypes::UInt64Type>();
        let Some(numbers) = numbers else {
            return Err(SqlError::internal("row numbers are of another type"));
        };
        let mask: arrow::array::BooleanArray =
            numbers.values().iter().map(|number| Some(seen.insert(*number))).collect();
        let batch = arrow::compute::filter_record_batch(&batch, &mask)?;
        kept.push(batch.project(&(0..last).collect::<Vec<_>>())?);
    }
    Ok(kept)
}

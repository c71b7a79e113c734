//! Rows whose key is there already: ON CONFLICT that the engine cannot do by itself, and unique checks inside a
//! transaction, where rows wait for COMMIT.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, interleave_record_batch, take_record_batch};
use arrow::datatypes::Schema;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::DFSchema;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, DoUpdate, Expr, Ident, visit_expressions_mut,
};
use millstream_engine::{ChangeBatch, OnConflict};

use super::super::assign;
use super::{Conflict, Written, is_default_word};
use crate::catalog::{Relation, TableDetail};
use crate::error::{Result, SqlError};
use crate::parser::{fold, fold_name};
use crate::session::{KeySet, Session, key_columns};

/// Tries before a statement that others keep disturbing gives up.
const TRIES_MAX: usize = 100;
/// Whether DO UPDATE only sets every column but the key to EXCLUDED's: then the new row replaces the old one.
pub(super) fn overwrites_all(action: &DoUpdate, relation: &Relation, table: &TableDetail) -> bool {
    if action.selection.is_some() || table.generated.iter().any(Option::is_some) {
        return false;
    }
    let mut set: HashSet<String> = HashSet::new();
    for assignment in &action.assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { return false };
        let Some(name) = fold_name(name).pop() else { return false };
        let same = matches!(&assignment.value, Expr::CompoundIdentifier(parts)
            if matches!(parts.as_slice(), [table, column]
                if fold(table) == "excluded" && fold(column) == name));
        if !same {
            return false;
        }
        set.insert(name);
    }
    let fields = relation.schema.fields().iter().enumerate();
    fields
        .filter(|(at, _)| !table.primary_key.contains(at))
        .all(|(_, field)| set.contains(field.name()))
}

/// Writes rows with the conflict dealt with here; tries again when others came between.
pub(super) fn write(
    session: &mut Session,
    relation: &Arc<Relation>,
    rows: RecordBatch,
    conflict: &Conflict<'_>,
) -> Result<Written> {
    let table = relation.table()?;
    if matches!(conflict, Conflict::Fail) && all_new(session, relation, table, &rows)? {
        let changes = ChangeBatch::insert(rows.clone());
        let (_, count) = session.write(relation, changes, OnConflict::Fail)?;
        return Ok(Written { count, rows: vec![rows] });
    }
    for _ in 0..TRIES_MAX {
        let existing = session.current_rows(relation.id)?;
        let resolved = resolve(session, relation, table, &existing, &rows, conflict)?;
        let changes = resolved.changes(&relation.schema)?;
        match session.write(relation, changes, OnConflict::Fail) {
            Err(error)
                if matches!(error.sqlstate, "40001" | "23505")
                    && !session.transaction.is_open()
                    && !matches!(conflict, Conflict::Fail) => {}
            Err(error) => return Err(error),
            Ok(_) => {
                for batch in &resolved.written {
                    if let Some(keys) = session.transaction.keys(relation.id) {
                        keys.add(batch)?;
                    }
                }
                let count = resolved.count();
                return Ok(Written { count, rows: resolved.written });
            }
        }
    }
    Err(SqlError::new("40001", "could not serialize access due to concurrent update"))
}

/// Whether no key of these rows can be there, as far as the transaction's set of keys tells.
fn all_new(
    session: &mut Session,
    relation: &Relation,
    table: &TableDetail,
    rows: &RecordBatch,
) -> Result<bool> {
    if !session.transaction.is_open() {
        return Ok(false);
    }
    if session.transaction.keys(relation.id).is_none() {
        let current = session.current_rows(relation.id)?;
        let keys = KeySet::new(&relation.schema, &table.primary_key, &current)?;
        session.transaction.keep_keys(relation.id, keys);
    }
    match session.transaction.keys(relation.id) {
        Some(keys) => keys.add_new(rows),
        None => Ok(false),
    }
}

/// What rows come to.
struct Resolved {
    deletes: Vec<RecordBatch>,
    /// Inserts, and the new rows of updates.
    written: Vec<RecordBatch>,
}

impl Resolved {
    fn changes(&self, schema: &arrow::datatypes::SchemaRef) -> Result<ChangeBatch> {
        let mut parts: Vec<ChangeBatch> =
            self.deletes.iter().cloned().map(ChangeBatch::delete).collect();
        parts.extend(self.written.iter().cloned().map(ChangeBatch::insert));
        if parts.is_empty() {
            return Ok(ChangeBatch::empty(Arc::clone(schema)));
        }
        Ok(ChangeBatch::concat(schema, &parts)?)
    }

    fn count(&self) -> u64 {
        let rows: usize = self.written.iter().map(RecordBatch::num_rows).sum();
        u64::try_from(rows).unwrap_or(u64::MAX)
    }
}

fn key_rows(
    converter: &RowConverter,
    rows: &RecordBatch,
    key: &[usize],
) -> Result<arrow::row::Rows> {
    Ok(converter.convert_columns(&key_columns(rows, key))?)
}

fn resolve(
    session: &Session,
    relation: &Relation,
    table: &TableDetail,
    existing: &[RecordBatch],
    rows: &RecordBatch,
    conflict: &Conflict<'_>,
) -> Result<Resolved> {
    let key = &table.primary_key;
    let fields =
        key.iter().map(|at| SortField::new(rows.column(*at).data_type().clone())).collect();
    let converter = RowConverter::new(fields)?;
    let new_keys = key_rows(&converter, rows, key)?;
    let mut wanted: HashMap<OwnedRow, Option<(usize, usize)>> = HashMap::new();
    let mut repeated: Vec<usize> = Vec::new();
    for row in 0..rows.num_rows() {
        if wanted.insert(new_keys.row(row).owned(), None).is_some() {
            repeated.push(row);
        }
    }
    for (at, batch) in existing.iter().enumerate() {
        let keys = key_rows(&converter, batch, key)?;
        for row in 0..batch.num_rows() {
            if let Some(found) = wanted.get_mut(&keys.row(row).owned()) {
                *found = Some((at, row));
            }
        }
    }
    let found = |row: usize| wanted.get(&new_keys.row(row).owned()).copied().flatten();
    match conflict {
        Conflict::Fail => {
            let bad = (0..rows.num_rows()).find(|row| found(*row).is_some());
            if let Some(row) = bad.or(repeated.first().copied()) {
                return Err(duplicate(relation, rows, key, row));
            }
            Ok(Resolved { deletes: Vec::new(), written: vec![rows.clone()] })
        }
        Conflict::DoNothing => {
            let mut seen = HashSet::new();
            let kept = (0..rows.num_rows())
                .filter(|row| found(*row).is_none() && seen.insert(new_keys.row(*row).owned()));
            Ok(Resolved { deletes: Vec::new(), written: vec![take(rows, kept)?] })
        }
        Conflict::Overwrite | Conflict::Update { .. } if !repeated.is_empty() => {
            let text = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            Err(SqlError::new("21000", text).with_hint(
                "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
            ))
        }
        Conflict::Overwrite => {
            let places: Vec<(usize, usize)> = (0..rows.num_rows()).filter_map(found).collect();
            let deletes = interleave(existing, &places, &relation.schema)?;
            Ok(Resolved { deletes: vec![deletes], written: vec![rows.clone()] })
        }
        Conflict::Update { action, alias, text } => {
            let fresh = take(rows, (0..rows.num_rows()).filter(|row| found(*row).is_none()))?;
            let met: Vec<usize> =
                (0..rows.num_rows()).filter(|row| found(*row).is_some()).collect();
            let places: Vec<(usize, usize)> = met.iter().filter_map(|row| found(*row)).collect();
            let old = interleave(existing, &places, &relation.schema)?;
            let excluded = take(rows, met.into_iter())?;
            let update = Update { session, relation, table, action, alias, text };
            let (old, new) = update.run(&old, &excluded)?;
            Ok(Resolved { deletes: vec![old], written: vec![fresh, new] })
        }
    }
}

/// Fails when an update inside a transaction gives two rows one key. `rows`: the table's rows after it.
///
/// # Errors
/// 23505.
pub(crate) fn check_unique(relation: &Relation, rows: &[RecordBatch]) -> Result<()> {
    let key = &relation.table()?.primary_key;
    if key.is_empty() {
        return Ok(());
    }
    let field = |at: &usize| SortField::new(relation.schema.field(*at).data_type().clone());
    let converter = RowConverter::new(key.iter().map(field).collect())?;
    let mut seen = HashSet::new();
    for batch in rows {
        let keys = key_rows(&converter, batch, key)?;
        for row in 0..batch.num_rows() {
            if !seen.insert(keys.row(row).owned()) {
                return Err(duplicate(relation, batch, key, row));
            }
        }
    }
    Ok(())
}

fn duplicate(relation: &Relation, rows: &RecordBatch, key: &[usize], row: usize) -> SqlError {
    let names: Vec<&str> =
        key.iter().map(|at| relation.schema.field(*at).name().as_str()).collect();
    let values: Vec<String> = key.iter().map(|at| assign::cell(rows.column(*at), row)).collect();
    let text =
        format!("duplicate key value violates unique constraint \"{}_pkey\"", relation.name.name);
    SqlError::new("23505", text).with_detail(format!(
        "Key ({})=({}) already exists.",
        names.join(", "),
        values.join(", ")
    ))
}

fn take(rows: &RecordBatch, places: impl Iterator<Item = usize>) -> Result<RecordBatch> {
    let places = places.map(u32::try_from).collect::<Result<Vec<u32>, _>>();
    let places = UInt32Array::from(places.map_err(SqlError::internal)?);
    Ok(take_record_batch(rows, &places)?)
}

fn interleave(
    batches: &[RecordBatch],
    places: &[(usize, usize)],
    schema: &arrow::datatypes::SchemaRef,
) -> Result<RecordBatch> {
    if places.is_empty() {
        return Ok(RecordBatch::new_empty(Arc::clone(schema)));
    }
    let batches: Vec<&RecordBatch> = batches.iter().collect();
    Ok(interleave_record_batch(&batches, places)?)
}

/// DO UPDATE SET with expressions over the row that is there and `excluded`.
struct Update<'a> {
    session: &'a Session,
    relation: &'a Relation,
    table: &'a TableDetail,
    action: &'a DoUpdate,
    alias: &'a str,
    text: &'a str,
}

impl Update<'_> {
    /// The old rows that are replaced, and the new ones.
    fn run(&self, old: &RecordBatch, excluded: &RecordBatch) -> Result<(RecordBatch, RecordBatch)> {
        let planner = self.session.planner();
        let schema = self.relation.schema.as_ref();
        let left = DFSchema::try_from_qualified_schema(self.alias, schema)?;
        let right = DFSchema::try_from_qualified_schema("excluded", schema)?;
        let both = left.join(&right)?;
        let columns: Vec<ArrayRef> =
            old.columns().iter().chain(excluded.columns()).cloned().collect();
        let pairs =
            RecordBatch::try_new(Arc::new(Schema::new(both.as_arrow().fields().clone())), columns)?;
        let evaluate = |expr: &Expr| -> Result<ArrayRef> {
            let planned = planner.plan_expr(&self.qualify(expr), &both, self.text)?;
            let physical = planner.state.create_physical_expr(planned, &both)?;
            Ok(physical.evaluate(&pairs)?.into_array(pairs.num_rows())?)
        };
        let mut new: Vec<ArrayRef> = old.columns().to_vec();
        for assignment in &self.action.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err(SqlError::unsupported("a row on the left of SET"));
            };
            let name = fold_name(name).pop().unwrap_or_default();
            let place = self.relation.schema.index_of(&name).map_err(|_| {
                let text = format!(
                    "column \"{name}\" of relation \"{}\" does not exist",
                    self.relation.name
                );
                SqlError::new("42703", text)
            })?;
            let value = match is_default_word(&assignment.value) {
                false => assignment.value.clone(),
                true => self.table.defaults[place]
                    .clone()
                    .unwrap_or_else(|| Expr::value(datafusion::sql::sqlparser::ast::Value::Null)),
            };
            let array = evaluate(&value)?;
            let field = self.relation.schema.field(place);
            assign::check(array.data_type(), field, assign::is_literal(&value), "expression")?;
            new[place] = assign::convert(&array, field)?;
        }
        let new = with_lenient_schema(new, &self.relation.schema)?;
        let new = super::complete_generated(&planner, self.relation, vec![new])?;
        let new = concat_batches(&new[0].schema(), &new)?;
        let new = assign::conform(&new, &self.relation.schema, &self.relation.name.name)?;
        let Some(selection) = &self.action.selection else {
            return Ok((old.clone(), new));
        };
        let mask = evaluate(selection)?;
        let Some(mask) = mask.as_boolean_opt() else {
            return Err(SqlError::new("42804", "argument of WHERE must be type boolean"));
        };
        let kept = (0..mask.len()).filter(|row| mask.is_valid(*row) && mask.value(*row));
        let kept: Vec<usize> = kept.collect();
        Ok((take(old, kept.iter().copied())?, take(&new, kept.into_iter())?))
    }

    /// Columns without a table are those of the row that is there.
    fn qualify(&self, expr: &Expr) -> Expr {
        let mut expr = expr.clone();
        let _ = visit_expressions_mut(&mut expr, |part: &mut Expr| {
            if let Expr::Identifier(ident) = part
                && self.relation.schema.index_of(&fold(ident)).is_ok()
            {
                let table = Ident::with_quote('"', self.alias);
                *part = Expr::CompoundIdentifier(vec![table, ident.clone()]);
            }
            std::ops::ControlFlow::<()>::Continue(())
        });
        expr
    }
}

/// Columns under the table's schema without its NOT NULLs, which are checked later.
pub(crate) fn with_lenient_schema(columns: Vec<ArrayRef>, schema: &Schema) -> Result<RecordBatch> {
    let nullable = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(schema, columns)?)
}

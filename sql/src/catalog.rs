//! What exists: schemas and relations, their definitions and who depends on whom.
//!
//! A `Catalog` is immutable: a statement works on one from beginning to end, and a definition makes the next one. It
//! holds no data and does not know the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{Expr, Query};
use millstream_engine::OnConflict;
use millstream_engine::plan::RelationId;

use crate::error::{Result, SqlError, nearest};
use crate::parser::RelationKind;

pub(crate) mod saved;
pub(crate) mod system;

/// The name of the only database.
pub(crate) const DATABASE: &str = "millstream";
/// Where names without a schema are made.
pub(crate) const PUBLIC: &str = "public";

/// A relation's full name, folded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RelationName {
    pub(crate) schema: String,
    pub(crate) name: String,
}

impl fmt::Display for RelationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.schema == PUBLIC {
            f.write_str(&self.name)
        } else {
            write!(f, "{}.{}", self.schema, self.name)
        }
    }
}

/// A table, source, view, materialized view or sink.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) id: RelationId,
    pub(crate) name: RelationName,
    pub(crate) schema: SchemaRef,
    /// The statement that made it.
    pub(crate) definition: String,
    /// What it reads directly.
    pub(crate) depends_on: Vec<RelationId>,
    pub(crate) detail: Detail,
}

/// What only one kind of relation has.
#[derive(Debug)]
pub(crate) enum Detail {
    Table(TableDetail),
    Source,
    /// Inlined wherever it is named.
    View(Box<Query>),
    MaterializedView,
    Sink,
    /// It was there, but could not be made again.
    Failed(Failed),
}

/// A relation that cannot be read any more; it can be dropped.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) kind: RelationKind,
    pub(crate) reason: String,
}

/// What only a table has.
#[derive(Debug, Default)]
pub(crate) struct TableDetail {
    pub(crate) primary_key: Vec<usize>,
    /// One for each column.
    pub(crate) defaults: Vec<Option<Expr>>,
    /// One for each column.
    pub(crate) generated: Vec<Option<Expr>>,
    pub(crate) append_only: bool,
    /// For inserts that say nothing else.
    pub(crate) on_conflict: OnConflict,
}

impl Relation {
    pub(crate) fn kind(&self) -> RelationKind {
        match &self.detail {
            Detail::Table(_) => RelationKind::Table,
            Detail::Source => RelationKind::Source,
            Detail::View(_) => RelationKind::View,
            Detail::MaterializedView => RelationKind::MaterializedView,
            Detail::Sink => RelationKind::Sink,
            Detail::Failed(failed) => failed.kind,
        }
    }

    /// Whether the engine knows it: a view is only text.
    pub(crate) fn is_in_engine(&self) -> bool {
        !matches!(self.detail, Detail::View(_))
    }

    /// As in `materialized view v`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.kind().noun(), self.name)
    }

    /// The table's part.
    ///
    /// # Errors
    /// 42809 for anything else.
    pub(crate) fn table(&self) -> Result<&TableDetail> {
        match &self.detail {
            Detail::Table(table) => Ok(table),
            Detail::View(_) | Detail::MaterializedView => {
                let text = format!("cannot change {} \"{}\"", self.kind().noun(), self.name);
                Err(SqlError::new("42809", text))
            }
            Detail::Source | Detail::Sink => {
                Err(SqlError::new("42809", format!("\"{}\" is not a table", self.name)))
            }
            Detail::Failed(failed) => Err(self.failure(failed)),
        }
    }

    /// 55000: why it cannot be read.
    pub(crate) fn failure(&self, failed: &Failed) -> SqlError {
        let text =
            format!("{} \"{}\" has failed: {}", failed.kind.noun(), self.name, failed.reason);
        SqlError::new("55000", text)
    }

    /// What stays of it when it cannot be made again.
    pub(crate) fn failed(&self, reason: &str) -> Self {
        Self {
            id: self.id,
            name: self.name.clone(),
            schema: Arc::clone(&self.schema),
            definition: self.definition.clone(),
            depends_on: self.depends_on.clone(),
            detail: Detail::Failed(Failed { kind: self.kind(), reason: reason.to_string() }),
        }
    }
}

/// All that exists at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Catalog {
    schemas: BTreeSet<String>,
    by_name: BTreeMap<RelationName, Arc<Relation>>,
    by_id: BTreeMap<RelationId, Arc<Relation>>,
}

impl Default for Catalog {
    fn default() -> Self {
        let schemas = BTreeSet::from([PUBLIC.to_string()]);
        Self { schemas, by_name: BTreeMap::new(), by_id: BTreeMap::new() }
    }
}

impl Catalog {
    /// All relations, by name.
    pub(crate) fn relations(&self) -> impl Iterator<Item = &Arc<Relation>> {
        self.by_name.values()
    }

    /// The user's schemas.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = &str> {
        self.schemas.iter().map(String::as_str)
    }

    pub(crate) fn by_id(&self, id: RelationId) -> Option<&Arc<Relation>> {
        self.by_id.get(&id)
    }

    /// Looks a name of one to three parts up.
    pub(crate) fn find(&self, parts: &[String], search_path: &[String]) -> Option<&Arc<Relation>> {
        match parts {
            [name] => search_path.iter().find_map(|schema| self.get(schema, name)),
            [schema, name] => self.get(schema, name),
            [database, schema, name] if database == DATABASE => self.get(schema, name),
            _ => None,
        }
    }

    fn get(&self, schema: &str, name: &str) -> Option<&Arc<Relation>> {
        self.by_name.get(&RelationName { schema: schema.to_string(), name: name.to_string() })
    }

    /// As [`Catalog::find`].
    ///
    /// # Errors
    /// 42P01 with the nearest name as hint; 3F000 when the schema does not exist.
    pub(crate) fn resolve(
        &self,
        parts: &[String],
        search_path: &[String],
    ) -> Result<&Arc<Relation>> {
        self.find(parts, search_path).ok_or_else(|| self.missing(parts))
    }

    /// Why a name is not there.
    pub(crate) fn missing(&self, parts: &[String]) -> SqlError {
        let name = parts.last().map_or("", String::as_str);
        let error =
            SqlError::new("42P01", format!("relation \"{}\" does not exist", parts.join(".")));
        let known = self.by_name.keys().map(|known| known.name.as_str());
        match nearest(name, known) {
            Some(near) => error.with_hint(format!("Perhaps you meant \"{near}\".")),
            None => error,
        }
    }

    /// The full name that a CREATE makes.
    ///
    /// # Errors
    /// 3F000, 0A000 (another database), 42501 (a schema of the system).
    pub(crate) fn new_name(
        &self,
        parts: &[String],
        search_path: &[String],
    ) -> Result<RelationName> {
        let (schema, name) = match parts {
            [name] => (search_path.first().map_or(PUBLIC, String::as_str), name),
            [schema, name] => (schema.as_str(), name),
            [database, schema, name] if database == DATABASE => (schema.as_str(), name),
            _ => {
                let text = "cross-database references are not implemented";
                return Err(SqlError::new("0A000", format!("{text}: \"{}\"", parts.join("."))));
            }
        };
        if system::is_system_schema(schema) {
            let text = format!("permission denied to create \"{schema}.{name}\"");
            return Err(SqlError::new("42501", text)
                .with_detail("System catalog modifications are currently disallowed."));
        }
        if !self.schemas.contains(schema) {
            return Err(SqlError::new("3F000", format!("schema \"{schema}\" does not exist")));
        }
        Ok(RelationName { schema: schema.to_string(), name: name.clone() })
    }

    /// Whether a name is taken.
    pub(crate) fn existing(&self, name: &RelationName) -> Option<&Arc<Relation>> {
        self.by_name.get(name)
    }

    /// The catalog with one more relation.
    #[must_use]
    pub(crate) fn with(&self, relation: Relation) -> Self {
        self.with_shared(Arc::new(relation))
    }

    /// The same with one that others have too.
    #[must_use]
    pub(crate) fn with_shared(&self, relation: Arc<Relation>) -> Self {
        let mut next = self.clone();
        next.by_id.insert(relation.id, Arc::clone(&relation));
        if let Some(replaced) = next.by_name.insert(relation.name.clone(), relation) {
            next.by_id.remove(&replaced.id);
        }
        next
    }

    /// The catalog without a relation.
    #[must_use]
    pub(crate) fn without(&self, id: RelationId) -> Self {
        let mut next = self.clone();
        if let Some(relation) = next.by_id.remove(&id) {
            next.by_name.remove(&relation.name);
        }
        next
    }

    /// Adds a schema.
    ///
    /// # Errors
    /// 42P06 when it exists.
    pub(crate) fn with_schema(&self, name: &str) -> Result<Self> {
        let mut next = self.clone();
        if system::is_system_schema(name) || !next.schemas.insert(name.to_string()) {
            return Err(SqlError::new("42P06", format!("schema \"{name}\" already exists")));
        }
        Ok(next)
    }

    /// The catalog with these schemas beside the one that is always there.
    #[must_use]
    pub(crate) fn with_schemas(&self, names: impl IntoIterator<Item = String>) -> Self {
        let mut next = self.clone();
        next.schemas.extend(names);
        next
    }

    /// Removes an empty schema.
    ///
    /// # Errors
    /// 3F000 when it does not exist.
    pub(crate) fn without_schema(&self, name: &str) -> Result<Self> {
        let mut next = self.clone();
        if !next.schemas.remove(name) {
            return Err(SqlError::new("3F000", format!("schema \"{name}\" does not exist")));
        }
        Ok(next)
    }

    /// The relations of a schema.
    pub(crate) fn in_schema(&self, schema: &str) -> Vec<Arc<Relation>> {
        let all = self.by_name.values().filter(|relation| relation.name.schema == schema);
        all.cloned().collect()
    }

    /// Who reads these relations, directly or not: each after what it reads.
    pub(crate) fn dependents(&self, of: &[RelationId]) -> Vec<Arc<Relation>> {
        let mut seen: BTreeSet<RelationId> = of.iter().copied().collect();
        let mut found = Vec::new();
        loop {
            let next = self.by_id.values().filter(|relation| !seen.contains(&relation.id));
            let next: Vec<_> = next
                .filter(|relation| relation.depends_on.iter().any(|id| seen.contains(id)))
                .cloned()
                .collect();
            if next.is_empty() {
                return found;
            }
            seen.extend(next.iter().map(|relation| relation.id));
            found.extend(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relation(id: u64, name: &str, depends_on: &[u64], detail: Detail) -> Relation {
        Relation {
            id: RelationId(id),
            name: RelationName { schema: PUBLIC.into(), name: name.into() },
            schema: millstream_engine::plan::empty_schema(),
            definition: String::new(),
            depends_on: depends_on.iter().map(|id| RelationId(*id)).collect(),
            detail,
        }
    }

    fn path() -> Vec<String> {
        vec![PUBLIC.to_string()]
    }

    #[test]
    fn names_are_found_with_and_without_schema() {
        let catalog = Catalog::default().with(relation(1, "orders", &[], Detail::Source));
        for parts in [&["orders"][..], &["public", "orders"], &["millstream", "public", "orders"]] {
            let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
            assert!(catalog.resolve(&parts, &path()).is_ok(), "{parts:?}");
        }
        let error = catalog.resolve(&["ordrs".to_string()], &path()).unwrap_err();
        assert_eq!(error.sqlstate, "42P01");
        assert_eq!(error.hint.as_deref(), Some("Perhaps you meant \"orders\"."));
    }

    #[test]
    fn dependents_come_after_what_they_read() {
        let catalog = Catalog::default()
            .with(relation(3, "b", &[2], Detail::MaterializedView))
            .with(relation(1, "t", &[], Detail::Source))
            .with(relation(2, "a", &[1], Detail::MaterializedView))
            .with(relation(4, "other", &[], Detail::Source));
        let names: Vec<String> = catalog
            .dependents(&[RelationId(1)])
            .iter()
            .map(|relation| relation.name.to_string())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn an_older_catalog_does_not_change() {
        let old = Catalog::default();
        let new = old.with(relation(1, "t", &[], Detail::Source));
        assert_eq!(old.relations().count(), 0);
        assert_eq!(new.without(RelationId(1)).relations().count(), 0);
        assert_eq!(new.relations().count(), 1);
    }

    #[test]
    fn system_schemas_take_no_relations() {
        let error = Catalog::default()
            .new_name(&["pg_catalog".to_string(), "x".to_string()], &path())
            .unwrap_err();
        assert_eq!(error.sqlstate, "42501");
        let error = Catalog::default()
            .new_name(&["nope".to_string(), "x".to_string()], &path())
            .unwrap_err();
        assert_eq!(error.sqlstate, "3F000");
    }
}

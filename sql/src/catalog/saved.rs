//! The catalog's durable form: one record for each relation under its number, one for the database itself.
//!
//! A record is JSON with a format version. It holds the statement and the settings that change its meaning, from which the
//! same planning code makes the relation again, and the columns that came of it, so that a definition that has come to
//! mean something else is noticed. What it is not: the engine's state, which only has the same number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use millstream_engine::plan::RelationId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Catalog, Relation, RelationName};
use crate::error::{Result, SqlError};
use crate::parser::RelationKind;
use crate::settings::Settings;

/// Version of the records that this program writes, and the newest that it reads.
const FORMAT: u32 = 1;

/// The key of the database's own record; relations count from 1.
pub(crate) const DATABASE_KEY: u64 = 0;

/// What is not part of any relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedDatabase {
    format: u32,
    /// No relation that was ever saved and dropped has this number or a higher one.
    pub(crate) next_id: u64,
    pub(crate) schemas: BTreeSet<String>,
}

impl SavedDatabase {
    pub(crate) fn of(catalog: &Catalog, next_id: u64) -> Self {
        let schemas = catalog.schemas().map(str::to_string).collect();
        Self { format: FORMAT, next_id, schemas }
    }
}

/// One relation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedRelation {
    format: u32,
    pub(crate) kind: RelationKind,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// The statement that made it.
    pub(crate) statement: String,
    /// Settings under which it was planned, where they were not the defaults.
    pub(crate) settings: BTreeMap<String, String>,
    /// What it reads directly, in the order in which it names them.
    pub(crate) depends_on: Vec<u64>,
    /// Names and types, as an Arrow IPC stream without batches, in hexadecimal.
    columns: String,
}

impl SavedRelation {
    /// # Errors
    /// When the columns cannot be written down: a bug.
    pub(crate) fn of(relation: &Relation, settings: &Settings) -> Result<Self> {
        Ok(Self {
            format: FORMAT,
            kind: relation.kind(),
            schema: relation.name.schema.clone(),
            name: relation.name.name.clone(),
            statement: relation.definition.clone(),
            settings: settings.of_definition(),
            depends_on: relation.depends_on.iter().map(|id| id.0).collect(),
            columns: write_columns(&relation.schema)?,
        })
    }

    pub(crate) fn name(&self) -> RelationName {
        RelationName { schema: self.schema.clone(), name: self.name.clone() }
    }

    pub(crate) fn depends_on(&self) -> Vec<RelationId> {
        self.depends_on.iter().map(|id| RelationId(*id)).collect()
    }

    /// # Errors
    /// When the record is damaged.
    pub(crate) fn columns(&self) -> Result<SchemaRef> {
        let damaged =
            || SqlError::new("XX001", format!("the columns of {} are damaged", self.name()));
        let digits = self.columns.as_bytes().chunks(2);
        let byte = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        };
        let bytes: Vec<u8> = digits.map(byte).collect::<Option<_>>().ok_or_else(damaged)?;
        let reader = StreamReader::try_new(bytes.as_slice(), None).map_err(|_| damaged())?;
        Ok(reader.schema())
    }
}

fn write_columns(schema: &Schema) -> Result<String> {
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, schema)?.finish()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Everything that was saved.
#[derive(Debug, Default)]
pub(crate) struct SavedCatalog {
    /// `None`: a new database.
    pub(crate) database: Option<SavedDatabase>,
    pub(crate) relations: BTreeMap<RelationId, Arc<SavedRelation>>,
}

impl SavedCatalog {
    /// # Errors
    /// When a record is damaged, or of a newer version.
    pub(crate) fn read(records: Vec<(u64, Vec<u8>)>) -> Result<Self> {
        let mut catalog = Self::default();
        for (key, bytes) in records {
            match key {
                DATABASE_KEY => catalog.database = Some(decode("the database", &bytes)?),
                id => {
                    let saved = decode(&format!("relation {id}"), &bytes)?;
                    catalog.relations.insert(RelationId(id), Arc::new(saved));
                }
            }
        }
        Ok(catalog)
    }

    /// The numbers of all relations, each after those that it reads. What is part of a circle, which no statement makes,
    /// comes last.
    pub(crate) fn in_order(&self) -> Vec<RelationId> {
        let mut left: Vec<RelationId> = self.relations.keys().copied().collect();
        let mut order: Vec<RelationId> = Vec::with_capacity(left.len());
        let mut done = BTreeSet::new();
        while !left.is_empty() {
            let ready = |id: &RelationId| {
                let reads = self.relations[id].depends_on();
                reads.iter().all(|read| done.contains(read) || !self.relations.contains_key(read))
            };
            let (now, later): (Vec<_>, Vec<_>) = left.iter().copied().partition(ready);
            if now.is_empty() {
                order.extend(later);
                break;
            }
            done.extend(now.iter().copied());
            order.extend(now);
            left = later;
        }
        order
    }
}

/// # Errors
/// When it cannot be written as JSON: a bug.
pub(crate) fn encode(record: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(SqlError::internal)
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    let damaged = |error: serde_json::Error| {
        SqlError::new("XX001", format!("the definition of {what} is damaged: {error}"))
    };
    // First of all, since a newer version may have changed the rest.
    let Format { format } = serde_json::from_slice(bytes).map_err(damaged)?;
    if format > FORMAT {
        let text =
            format!("the definition of {what} was written by a newer version (format {format})");
        return Err(SqlError::new("XX001", text)
            .with_hint("Open this database with the version that wrote it, or a later one."));
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, TimeUnit};

    use super::*;
    use crate::catalog::{Detail, PUBLIC};

    fn saved(depends_on: &[u64]) -> SavedRelation {
        let zone = Some("+00:00".into());
        let fields = vec![
            Field::new("a", DataType::Utf8View, false),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, zone), true)
                .with_metadata([("key".to_string(), "value".to_string())].into()),
        ];
        let relation = Relation {
            id: RelationId(7),
            name: RelationName { schema: PUBLIC.into(), name: "v".into() },
            schema: Arc::new(Schema::new(fields)),
            definition: "CREATE MATERIALIZED VIEW v AS SELECT 1".into(),
            depends_on: depends_on.iter().map(|id| RelationId(*id)).collect(),
            detail: Detail::MaterializedView,
        };
        let mut settings = Settings::for_user("ann");
        settings.set("TimeZone", Some("+02")).unwrap();
        settings.set("application_name", Some("psql")).unwrap();
        SavedRelation::of(&relation, &settings).unwrap()
    }

    #[test]
    fn a_relation_comes_back_as_it_was() {
        let before = saved(&[3, 1]);
        let catalog = SavedCatalog::read(vec![(7, encode(&before).unwrap())]).unwrap();
        let after = &catalog.relations[&RelationId(7)];
        assert_eq!(**after, before);
        assert_eq!(after.depends_on(), [RelationId(3), RelationId(1)]);
        let columns = after.columns().unwrap();
        assert_eq!(columns.field(0), &Field::new("a", DataType::Utf8View, false));
        assert_eq!(columns.field(1).metadata()["key"], "value");
        // What changes the meaning of a statement, and nothing else.
        let settings: Vec<_> =
            after.settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(settings, [("session_authorization", "ann"), ("timezone", "+02:00")]);
    }

    #[test]
    fn newer_and_damaged_records_are_told_apart() {
        let newer = br#"{"format": 99, "what": "ever"}"#.to_vec();
        let error = SavedCatalog::read(vec![(7, newer)]).unwrap_err();
        assert!(error.message.contains("relation 7 was written by a newer version"), "{error}");
        let mut half = encode(&saved(&[])).unwrap();
        half.truncate(half.len() / 2);
        let error = SavedCatalog::read(vec![(7, half)]).unwrap_err();
        assert!(error.message.contains("relation 7 is damaged"), "{error}");
        let mut wrong = saved(&[]);
        wrong.columns.truncate(9);
        assert!(wrong.columns().unwrap_err().message.contains("columns of v are damaged"));
    }

    #[test]
    fn what_is_read_comes_first() {
        let mut catalog = SavedCatalog::default();
        // 1 was replaced and now reads 5; 9 reads what is not there; 6 and 7 read each other.
        for (id, reads) in [(1, &[5][..]), (2, &[1]), (5, &[]), (9, &[8]), (6, &[7]), (7, &[6])] {
            catalog.relations.insert(RelationId(id), Arc::new(saved(reads)));
        }
        let order: Vec<u64> = catalog.in_order().iter().map(|id| id.0).collect();
        assert_eq!(order, [5, 9, 1, 2, 6, 7]);
    }
}

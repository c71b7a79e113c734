//! SHOW and DESCRIBE.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::ObjectName;

use super::{rows, select};
use crate::catalog::DATABASE;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::parser::{Command, RelationKind, Show, parse};
use crate::session::{Run, Session};
use crate::settings::system;
use crate::types::pg_type_name;

pub(super) async fn run(session: &mut Session, show: &Show, run: &Run<'_>) -> Result<Outcome> {
    match show {
        Show::Relations(kind) => Ok(relations(session, *kind)),
        Show::Schemas => {
            let catalog = session.db.catalog();
            let mut names: Vec<String> = catalog.schemas().map(str::to_string).collect();
            names.extend(crate::catalog::system::SYSTEM_SCHEMAS.map(str::to_string));
            names.sort();
            Ok(texts(&["name"], names.into_iter().map(|name| vec![name]).collect()))
        }
        Show::Databases => Ok(texts(&["name"], vec![vec![DATABASE.to_string()]])),
        Show::Jobs => system(session, "SELECT * FROM millstream.jobs ORDER BY id", run).await,
        Show::Connectors => {
            system(session, "SELECT * FROM millstream.connectors ORDER BY name", run).await
        }
        Show::Checkpoints => {
            system(session, "SELECT * FROM millstream.checkpoints ORDER BY id", run).await
        }
        Show::Savepoints => super::savepoint::show(session).await,
        Show::Columns(name) => describe(session, name, run),
        Show::Create(kind, name) => create(session, *kind, name, run),
        Show::All => {
            let system = system::all(&session.db.engine().config());
            let all = session.settings.all().into_iter().chain(system);
            let all = all.map(|(name, value, text)| vec![name, value, text.to_string()]);
            Ok(texts(&["name", "setting", "description"], all.collect()))
        }
        Show::Setting(name) => {
            let system = || system::get(&session.db.engine().config(), name);
            let value = session.settings.get(name).or_else(system).ok_or_else(|| {
                let text = format!("unrecognized configuration parameter \"{name}\"");
                SqlError::new("42704", text)
            })?;
            Ok(texts(&[setting_label(name)], vec![vec![value]]))
        }
    }
}

/// The columns that a SHOW gives.
pub(super) fn schema(show: &Show, session: &Session) -> SchemaRef {
    let labels: Vec<&str> = match show {
        Show::Relations(_) => vec!["schema", "name"],
        Show::Schemas | Show::Databases => vec!["name"],
        Show::Jobs => return system_schema(session, "jobs"),
        Show::Connectors => return system_schema(session, "connectors"),
        Show::Checkpoints => return system_schema(session, "checkpoints"),
        Show::Savepoints => return super::savepoint::schema(),
        Show::Columns(_) => DESCRIBE_COLUMNS.to_vec(),
        Show::Create(..) => vec!["name", "create_sql"],
        Show::All => vec!["name", "setting", "description"],
        Show::Setting(name) => vec![setting_label(name)],
    };
    text_schema(&labels)
}

fn system_schema(_session: &Session, name: &str) -> SchemaRef {
    let parts = ["millstream".to_string(), name.to_string()];
    match crate::catalog::system::find(&parts) {
        Some(table) => table.arrow_schema(),
        None => text_schema(&[]),
    }
}

/// Settings show under the name that Postgres spells.
fn setting_label(name: &str) -> &str {
    match name {
        "timezone" => "TimeZone",
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        other => other,
    }
}

async fn system(session: &mut Session, sql: &str, run: &Run<'_>) -> Result<Outcome> {
    let text: Arc<str> = sql.into();
    let Some(Command::Query(query)) = parse(&text)?.pop().map(|statement| statement.command) else {
        return Err(SqlError::internal("a SELECT did not parse as one"));
    };
    let inner = Run { text: &text, own_text: &text, parameters: &[], cancel: run.cancel.clone() };
    match select::run(session, &query, &inner).await? {
        Outcome::Rows { schema, rows, .. } => Ok(Outcome::Rows { schema, rows, tag: "SHOW" }),
        other => Ok(other),
    }
}

fn relations(session: &Session, kind: RelationKind) -> Outcome {
    let catalog = session.db.catalog();
    let found = catalog.relations().filter(|relation| relation.kind() == kind);
    let names =
        found.map(|relation| vec![relation.name.schema.clone(), relation.name.name.clone()]);
    texts(&["schema", "name"], names.collect())
}

fn create(
    session: &Session,
    kind: Option<RelationKind>,
    name: &ObjectName,
    run: &Run<'_>,
) -> Result<Outcome> {
    let relation = session.resolve(&session.db.catalog(), name, run.text)?;
    if let Some(kind) = kind
        && relation.kind() != kind
        && !(kind == RelationKind::View && relation.kind() == RelationKind::MaterializedView)
    {
        let text = format!("\"{}\" is not a {}", relation.name, kind.noun());
        return Err(SqlError::new("42809", text));
    }
    let row = vec![relation.name.to_string(), relation.definition.clone()];
    Ok(texts(&["name", "create_sql"], vec![row]))
}

const DESCRIBE_COLUMNS: [&str; 4] = ["column", "type", "nullable", "detail"];

/// The schema of DESCRIBE.
pub(super) fn describe_schema() -> SchemaRef {
    text_schema(&DESCRIBE_COLUMNS)
}

/// DESCRIBE name and SHOW COLUMNS FROM name.
pub(super) fn describe(session: &Session, name: &ObjectName, run: &Run<'_>) -> Result<Outcome> {
    let parts = crate::parser::fold_name(name);
    let catalog = session.db.catalog();
    let described = match crate::catalog::system::find(&parts) {
        Some(table) if catalog.find(&parts, &session.settings.search_path()).is_none() => {
            let schema = table.arrow_schema();
            schema.fields().iter().map(|field| line(field, String::new())).collect()
        }
        _ => {
            let relation = session.resolve(&catalog, name, run.text)?;
            let table = relation.table().ok();
            let fields = relation.schema.fields().iter().enumerate();
            let detail = |at: usize| {
                let Some(table) = table else { return String::new() };
                let mut parts = Vec::new();
                if table.primary_key.contains(&at) {
                    parts.push("primary key".to_string());
                }
                if let Some(Some(default)) = table.defaults.get(at) {
                    parts.push(format!("default {default}"));
                }
                if let Some(Some(generated)) = table.generated.get(at) {
                    parts.push(format!("generated as {generated}"));
                }
                parts.join(", ")
            };
            fields.map(|(at, field)| line(field, detail(at))).collect()
        }
    };
    Ok(texts(&DESCRIBE_COLUMNS, described))
}

fn line(field: &Field, detail: String) -> Vec<String> {
    let nullable = if field.is_nullable() { "yes" } else { "no" };
    vec![field.name().clone(), pg_type_name(field), nullable.to_string(), detail]
}

fn text_schema(labels: &[&str]) -> SchemaRef {
    let field = |label: &&str| Field::new(*label, DataType::Utf8View, true);
    Arc::new(Schema::new(labels.iter().map(field).collect::<Vec<_>>()))
}

/// Rows of text.
pub(super) fn texts(labels: &[&str], lines: Vec<Vec<String>>) -> Outcome {
    texts_tagged(labels, lines, "SHOW")
}

/// Rows of text under a tag of their own.
pub(super) fn texts_tagged(labels: &[&str], lines: Vec<Vec<String>>, tag: &'static str) -> Outcome {
    let schema = text_schema(labels);
    let column = |at: usize| -> ArrayRef {
        let cells = lines.iter().map(|line| line.get(at).map(String::as_str));
        Arc::new(cells.collect::<StringViewArray>())
    };
    let columns: Vec<ArrayRef> = (0..labels.len()).map(column).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns);
    match batch {
        Ok(batch) => rows(schema, vec![batch], tag),
        Err(_) => rows(schema, Vec::new(), tag),
    }
}

//! CREATE SOURCE.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::DFSchema;
use millstream_engine::SourceDefinition;
use millstream_engine::source::Source;

use super::Target;
use super::create_relation::{check_generated, fields_of, watermark};
use crate::catalog::{Detail, Relation};
use crate::computed_source::{ColumnSource, ComputedSource, read_schema};
use crate::error::{Result, SqlError};
use crate::parser::CreateRelation;
use crate::query::Planner;
use crate::session::{Definition, Run, Session, Spec};

/// Plans a source. Made again, it has the columns that it had: what a connector infers may have changed.
pub(super) async fn source(
    session: &Session,
    planner: &Planner,
    create: &CreateRelation,
    target: Target,
    run: &Run<'_>,
) -> Result<Definition> {
    let Target { id, name, columns: before } = target;
    let options: BTreeMap<String, String> = create.options.with.clone();
    if !options.contains_key("connector") {
        return Err(SqlError::new("22023", "a source needs a connector")
            .with_hint("WITH (connector = 'nexmark' | 'datagen' | 'file' | ...)"));
    }
    check_form(create)?;
    let listed = fields_of(planner, create, run.text)?;
    check_generated(planner, create, &listed, run.text)?;
    let generated: Vec<bool> =
        create.columns.iter().map(|column| column.generated.is_some()).collect();
    let connectors = Arc::clone(session.db.connectors());
    let read = read_schema(&listed, &generated);
    // Opening files and asking systems blocks.
    let made = tokio::task::spawn_blocking(move || {
        let read = match read.fields().is_empty() {
            true => match before {
                Some(before) => before,
                None => connectors.infer_schema(&options)?,
            },
            false => read,
        };
        let source = connectors.source(&read, &options)?;
        Ok::<_, SqlError>((read, source))
    });
    let (read, source) = made.await.map_err(SqlError::internal)??;
    let (schema, source) = match generated.iter().any(|generated| *generated) {
        false => (read, source),
        true => {
            let name = name.to_string();
            let source = computed(planner, create, name, source, read, &listed, run)?;
            (listed, source)
        }
    };
    let watermark = watermark(planner, create, &schema, run.text)?;
    let spec = SourceDefinition {
        id,
        name: name.to_string(),
        schema: Arc::clone(&schema),
        source,
        watermark,
    };
    let definition = run.own_text.to_string();
    let detail = Detail::Source;
    let relation = Relation { id, name, schema, definition, depends_on: Vec::new(), detail };
    Ok(Definition { relation, spec: Spec::Source(spec) })
}

fn check_form(create: &CreateRelation) -> Result<()> {
    let all_generated = !create.columns.is_empty()
        && create.columns.iter().all(|column| column.generated.is_some());
    let refused = [
        (create.primary_key.is_some(), "PRIMARY KEY of a source"),
        (create.options.append_only, "APPEND ONLY of a source"),
        (create.options.on_conflict.is_some(), "ON CONFLICT of a source"),
        (create.query.is_some(), "CREATE SOURCE ... AS"),
        (all_generated, "a source of generated columns only"),
        (create.columns.iter().any(|column| column.default.is_some()), "DEFAULT of a source"),
    ];
    match refused.into_iter().find(|(given, _)| *given) {
        Some((_, what)) => Err(SqlError::unsupported(what)),
        None => Ok(()),
    }
}

/// The source with its generated columns.
fn computed(
    planner: &Planner,
    create: &CreateRelation,
    name: String,
    inner: Arc<dyn Source>,
    read: SchemaRef,
    schema: &SchemaRef,
    run: &Run<'_>,
) -> Result<Arc<dyn Source>> {
    let known = DFSchema::try_from(Arc::clone(&read))?;
    let mut columns = Vec::with_capacity(create.columns.len());
    let mut next = 0;
    for column in &create.columns {
        columns.push(match &column.generated {
            None => {
                next += 1;
                ColumnSource::Read(next - 1)
            }
            Some(expr) => {
                let planned = planner.plan_expr(expr, &known, run.text)?;
                ColumnSource::Computed(planner.state.create_physical_expr(planned, &known)?)
            }
        });
    }
    let schema = Arc::clone(schema);
    Ok(Arc::new(ComputedSource { name, inner, read, schema, columns }))
}

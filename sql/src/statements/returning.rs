//! RETURNING: a SELECT over the rows that a statement wrote.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, SelectItem, SetExpr, TableAlias, TableFactor,
};

use super::create_sink::select_all;
use crate::catalog::Relation;
use crate::error::{Result, SqlError};
use crate::outcome::Outcome;
use crate::query::{Contents, Planner};
use crate::session::{Run, Session, parameter_fields};

pub(super) async fn run(
    session: &Session,
    relation: &Arc<Relation>,
    alias: Option<&Ident>,
    items: &[SelectItem],
    rows: Vec<RecordBatch>,
    tag: &'static str,
    run: &Run<'_>,
) -> Result<Outcome> {
    let planner = session.planner();
    let plan = plan(&planner, relation, alias, items, run.text, &parameter_fields(run.parameters))?;
    planner.reads.put(relation.id, Contents::Rows(Arc::new(rows)));
    session.start_query(&planner, plan, run, tag).await
}

/// The plan of a RETURNING list.
///
/// # Errors
/// Those of planning.
pub(super) fn plan(
    planner: &Planner,
    relation: &Relation,
    alias: Option<&Ident>,
    items: &[SelectItem],
    text: &str,
    parameters: &[Option<arrow::datatypes::FieldRef>],
) -> Result<datafusion::logical_expr::LogicalPlan> {
    let query = query(relation, alias, items)?;
    Ok(planner.plan_query(&query, parameters, text)?.0)
}

fn query(relation: &Relation, alias: Option<&Ident>, items: &[SelectItem]) -> Result<Query> {
    let quoted = |name: &str| Ident::with_quote('"', name);
    let name = ObjectName::from(vec![quoted(&relation.name.schema), quoted(&relation.name.name)]);
    let mut query = *select_all(&name)?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(SqlError::internal("a SELECT did not parse as one"));
    };
    select.projection = items.to_vec();
    let shown = alias.cloned().unwrap_or_else(|| quoted(&relation.name.name));
    if let Some(TableFactor::Table { alias, .. }) =
        select.from.first_mut().map(|table| &mut table.relation)
    {
        *alias = Some(TableAlias { explicit: true, name: shown, columns: Vec::new(), at: None });
    }
    Ok(query)
}

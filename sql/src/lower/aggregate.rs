//! GROUP BY, DISTINCT, and grouping sets as a union of plain aggregates.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::physical_expr::aggregate::LoweredAggregateBuilder;
use datafusion::physical_expr::expressions::{Literal, cast};
use datafusion_common::{DFSchema, DFSchemaRef, ScalarValue};
use datafusion_expr::expr::GroupingSet;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::utils::{enumerate_grouping_sets, grouping_set_to_exprlist};
use datafusion_expr::{Aggregate, Expr, LogicalPlan};
use millstream_engine::plan::{self, AggregateCall, StreamPlan};

use super::{Lowering, build};
use crate::error::{Result, SqlError};
use crate::expr::{column, column_of, execution_props, physical};

impl Lowering<'_> {
    pub(super) fn aggregate(&self, node: &Aggregate) -> Result<StreamPlan> {
        let input = self.node(&node.input, None)?;
        let sets = grouping_sets(&node.group_expr)?;
        let keys = match &sets {
            None => node.group_expr.clone(),
            Some(_) => grouping_set_to_exprlist(&node.group_expr)?.into_iter().cloned().collect(),
        };
        let (input, columns, schema) = with_keys(input, &keys, node)?;
        let calls = node.aggr_expr.iter().map(|expr| call(expr, &schema, &input));
        let calls = calls.collect::<Result<Vec<_>>>()?;
        let plan = match sets {
            None => input.aggregate(columns, calls),
            Some(sets) => {
                let id_type = node.schema.field(keys.len()).data_type();
                grouped_by_sets(&input, &keys, &columns, &sets, &calls, id_type)?
            }
        };
        // Field names are the logical plan's: parents find columns by place, people by name.
        build::named(plan, node.schema.as_arrow())
    }

    pub(super) fn distinct(&self, input: &LogicalPlan) -> Result<StreamPlan> {
        let input = self.node(input, None)?;
        let all = (0..input.schema.fields().len()).collect();
        Ok(input.aggregate(all, vec![]))
    }
}

fn call(expr: &Expr, schema: &DFSchema, input: &StreamPlan) -> Result<AggregateCall> {
    // Arguments are checked as any expression is.
    physical_arguments(expr, schema)?;
    let logical: &Schema = schema.as_arrow();
    debug_assert_eq!(
        logical.fields().len(),
        input.schema.fields().len(),
        "columns keep their places"
    );
    let props = execution_props();
    let context = PhysicalPlanningContext::default();
    let lowered = LoweredAggregateBuilder::new(expr, schema, logical, &props, &context).build()?;
    Ok(AggregateCall { function: lowered.aggregate, filter: lowered.filter })
}

fn physical_arguments(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match expr {
        Expr::Alias(alias) => physical_arguments(&alias.expr, schema),
        Expr::AggregateFunction(function) => {
            let filter = function.params.filter.iter().map(AsRef::as_ref);
            let order = function.params.order_by.iter().map(|sort| &sort.expr);
            let all = function.params.args.iter().chain(filter).chain(order);
            all.into_iter().try_for_each(|expr| physical(expr, schema).map(|_| ()))
        }
        other => Err(SqlError::internal(format!("{other} is no aggregate"))),
    }
}

/// The plan with a column for each key, which these are, and its logical schema. Where keys are computed, only what the
/// keys and calls need goes on: all of it may have to travel to other tasks.
fn with_keys(
    input: StreamPlan,
    keys: &[Expr],
    node: &Aggregate,
) -> Result<(StreamPlan, Vec<usize>, DFSchemaRef)> {
    let schema = node.input.schema();
    let exprs = keys.iter().map(|key| physical(key, schema)).collect::<Result<Vec<_>>>()?;
    if let Some(columns) = exprs.iter().map(column_of).collect::<Option<Vec<_>>>() {
        return Ok((input, columns, Arc::clone(schema)));
    }
    let mut places: Vec<usize> = Vec::new();
    let mut fields = Vec::new();
    let mut projected: Vec<(plan::Expr, String)> = Vec::new();
    let mut read = node.aggr_expr.iter().flat_map(Expr::column_refs).collect::<Vec<_>>();
    read.extend(keys.iter().filter_map(|key| key.try_as_col()));
    for reference in read {
        let index = schema.index_of_column(reference)?;
        if !places.contains(&index) {
            places.push(index);
            let (qualifier, field) = schema.qualified_field(index);
            fields.push((qualifier.cloned(), Arc::clone(field)));
            projected.push((column(&input.schema, index), field.name().clone()));
        }
    }
    let mut columns = Vec::new();
    for (number, (key, expr)) in keys.iter().zip(exprs).enumerate() {
        let known = column_of(&expr).and_then(|index| places.iter().position(|&p| p == index));
        columns.push(known.unwrap_or(fields.len()));
        if known.is_none() {
            // A name that no query has; people see the key's own.
            let field = expr.return_field(&input.schema)?;
            let field = field.as_ref().clone().with_name(format!("__key_{number}"));
            fields.push((None, Arc::new(field)));
            projected.push((expr, key.schema_name().to_string()));
        }
    }
    let schema = Arc::new(DFSchema::new_with_metadata(fields, HashMap::new())?);
    Ok((build::project(input, projected)?, columns, schema))
}

/// The sets of GROUPING SETS, ROLLUP and CUBE; `None` for a plain GROUP BY.
fn grouping_sets(group: &[Expr]) -> Result<Option<Vec<Vec<Expr>>>> {
    if !group.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
        return Ok(None);
    }
    // Several of them, or one beside plain keys, multiply out to one.
    let group = enumerate_grouping_sets(group.to_vec())?;
    let sets = match group.as_slice() {
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.clone(),
        [Expr::GroupingSet(GroupingSet::Rollup(keys))] => {
            (0..=keys.len()).rev().map(|length| keys[..length].to_vec()).collect()
        }
        [Expr::GroupingSet(GroupingSet::Cube(keys))] if keys.len() < 16 => {
            let subset = |mask: usize| {
                let kept = keys.iter().enumerate().filter(|(i, _)| mask & (1 << i) == 0);
                kept.map(|(_, key)| key.clone()).collect()
            };
            (0..1 << keys.len()).map(subset).collect()
        }
        _ => return Err(SqlError::unsupported("this combination of grouping sets")),
    };
    Ok(Some(sets))
}

/// An aggregate for each set, with NULL for the other keys, and a number that says which set it was.
fn grouped_by_sets(
    input: &StreamPlan,
    keys: &[Expr],
    columns: &[usize],
    sets: &[Vec<Expr>],
    calls: &[AggregateCall],
    id_type: &DataType,
) -> Result<StreamPlan> {
    let mut branches: Vec<StreamPlan> = Vec::with_capacity(sets.len());
    let mut earlier: Vec<u64> = Vec::new();
    for set in sets {
        let member = keys.iter().map(|key| set.contains(key)).collect::<Vec<_>>();
        let mask = member.iter().fold(0u64, |mask, &kept| mask << 1 | u64::from(!kept));
        // A set that is there several times is told apart by the bits above.
        let times =
            u64::try_from(earlier.iter().filter(|&&other| other == mask).count()).unwrap_or(0);
        earlier.push(mask);
        let id = mask | times << keys.len();
        let places = (0..keys.len()).filter(|&key| member[key]).collect::<Vec<_>>();
        let group = places.iter().map(|&key| columns[key]).collect();
        let branch = input.clone().aggregate(group, calls.to_vec());
        branches.push(padded(branch, input, &places, columns, id, id_type)?);
    }
    let first = Arc::clone(&branches[0].schema);
    let nullable = first.fields().iter().enumerate().map(|(index, field)| {
        let nullable = branches.iter().any(|branch| branch.schema.field(index).is_nullable());
        Arc::new(field.as_ref().clone().with_nullable(nullable))
    });
    let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
    Ok(StreamPlan::union(branches, schema)?)
}

fn padded(
    branch: StreamPlan,
    input: &StreamPlan,
    places: &[usize],
    columns: &[usize],
    id: u64,
    id_type: &DataType,
) -> Result<StreamPlan> {
    let mut exprs: Vec<(plan::Expr, String)> = Vec::new();
    for (key, &source) in columns.iter().enumerate() {
        let field = input.schema.field(source);
        let expr = match places.iter().position(|&place| place == key) {
            Some(position) => column(&branch.schema, position),
            None => Arc::new(Literal::new(ScalarValue::try_from(field.data_type())?)),
        };
        exprs.push((expr, field.name().clone()));
    }
    let id: plan::Expr = Arc::new(Literal::new(ScalarValue::UInt64(Some(id))));
    let id = cast(id, &branch.schema, id_type.clone())?;
    exprs.push((id, Aggregate::INTERNAL_GROUPING_ID.to_string()));
    for call in places.len()..branch.schema.fields().len() {
        exprs.push((column(&branch.schema, call), branch.schema.field(call).name().clone()));
    }
    build::project(branch, exprs)
}

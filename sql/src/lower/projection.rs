//! Projection, filter, union.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_expr::expressions::cast;
use datafusion::sql::utils::UNNEST_PLACEHOLDER;
use datafusion_common::ScalarValue;
use datafusion_expr::expr::BinaryExpr;
use datafusion_expr::utils::{conjunction, split_conjunction_owned};
use datafusion_expr::{Expr, Filter, LogicalPlan, Operator, Projection, Union};
use millstream_engine::plan::StreamPlan;

use super::{Bound, Hint, Lowering, build};
use crate::error::Result;
use crate::expr::{all_columns, column, physical};

impl Lowering<'_> {
    pub(super) fn projection(&self, node: &Projection, hint: Option<&Hint>) -> Result<StreamPlan> {
        let below = hint.and_then(|hint| through_projection(hint.bound, node)).map(Hint::new);
        let input = self.node(&node.input, below.as_ref())?;
        if let (Some(hint), Some(below)) = (hint, &below) {
            hint.used.set(below.used.get());
        }
        let schema = node.input.schema();
        let named = |(expr, field): (&Expr, &Arc<Field>)| {
            Ok((physical(expr, schema)?, shown_name(field.name())))
        };
        let exprs = node.expr.iter().zip(node.schema.fields()).map(named);
        build::project(input, exprs.collect::<Result<_>>()?)
    }

    pub(super) fn filter(&self, node: &Filter, hint: Option<&Hint>) -> Result<StreamPlan> {
        let mut conjuncts = split_conjunction_owned(node.predicate.clone());
        let rank = rank_bound(&conjuncts, &node.input);
        let own = rank.as_ref().map(|(_, bound)| Hint::new(*bound));
        // A limit does not pass a filter; a bound on a rank does.
        let passed = hint.filter(|hint| matches!(hint.bound, Bound::Rank { .. }));
        let input = self.node(&node.input, own.as_ref().or(passed))?;
        if let (Some(own), Some((places, _))) = (&own, rank)
            && own.used.get()
        {
            let mut place = 0..;
            conjuncts.retain(|_| !place.next().is_some_and(|place: usize| places.contains(&place)));
        }
        match conjunction(conjuncts) {
            Some(predicate) => build::filter(input, physical(&predicate, node.input.schema())?),
            None => Ok(input),
        }
    }

    pub(super) fn union(&self, node: &Union) -> Result<StreamPlan> {
        let schema = node.schema.as_arrow();
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            let input = self.node(input, None)?;
            inputs.push(aligned(input, schema)?);
        }
        let nullable =
            |index: usize| inputs.iter().any(|input| input.schema.field(index).is_nullable());
        let field = |(index, field): (usize, &Arc<Field>)| {
            let nullable = nullable(index);
            Arc::new(field.as_ref().clone().with_nullable(nullable))
        };
        let fields = schema.fields().iter().enumerate().map(field).collect::<Vec<_>>();
        Ok(StreamPlan::union(inputs, Arc::new(Schema::new(fields)))?)
    }
}

/// The planner's names for lists to be expanded are whole expressions.
pub(super) fn shown_name(name: &str) -> String {
    if name.starts_with(UNNEST_PLACEHOLDER) { "unnest".to_string() } else { name.to_string() }
}

/// The plan with the names and types of a schema.
pub(super) fn aligned(input: StreamPlan, schema: &Schema) -> Result<StreamPlan> {
    let mut exprs = Vec::with_capacity(schema.fields().len());
    for (index, field) in schema.fields().iter().enumerate() {
        let mut expr = column(&input.schema, index);
        if input.schema.field(index).data_type() != field.data_type() {
            expr = cast(expr, &input.schema, field.data_type().clone())?;
        }
        exprs.push((expr, field.name().clone()));
    }
    build::project(input, exprs)
}

/// The bound over the columns below the projection, if it can pass.
fn through_projection(bound: Bound, node: &Projection) -> Option<Bound> {
    match bound {
        Bound::Limit { .. } => Some(bound),
        Bound::Rank { column, first, last } => {
            let below = plain_column(node.expr.get(column)?)?;
            let column = node.input.schema().maybe_index_of_column(below)?;
            Some(Bound::Rank { column, first, last })
        }
    }
}

fn plain_column(expr: &Expr) -> Option<&datafusion_common::Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}

/// The rows of a column of integers that comparisons keep, with the places of these among the conjuncts. Which column
/// is a rank only the window node knows; any other leaves the hint unused.
fn rank_bound(conjuncts: &[Expr], input: &LogicalPlan) -> Option<(Vec<usize>, Bound)> {
    let is_integer = |column: usize| input.schema().field(column).data_type().is_integer();
    let found = conjuncts.iter().enumerate().filter_map(|(place, conjunct)| {
        let (column, first, last) = comparison(conjunct, input)?;
        is_integer(column).then_some((place, column, first, last))
    });
    let found = found.collect::<Vec<_>>();
    // The first column that has an upper bound.
    let (_, column, ..) = *found.iter().find(|(.., last)| last.is_some())?;
    let of_column = found.iter().filter(|(_, other, ..)| *other == column);
    let first = of_column.clone().filter_map(|(_, _, first, _)| *first).max().unwrap_or(1);
    let last = of_column.clone().filter_map(|(.., last)| *last).min()?;
    let places = of_column.map(|(place, ..)| *place).collect();
    Some((places, Bound::Rank { column, first: first.max(1), last }))
}

/// `column <op> literal` as a column and the range of values from 1 that it keeps.
fn comparison(expr: &Expr, input: &LogicalPlan) -> Option<(usize, Option<u64>, Option<u64>)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return None;
    };
    let (side, op, value) = match (literal(left), literal(right)) {
        (None, Some(value)) => (left, *op, value),
        (Some(value), None) => (right, op.swap()?, value),
        _ => return None,
    };
    let column = plain_column(without_cast(side))?;
    let column = input.schema().maybe_index_of_column(column)?;
    // Below 1 there is no rank: `last` 0 keeps nothing.
    let at_least = |value: i128| u64::try_from(value.max(0)).unwrap_or(u64::MAX);
    Some(match op {
        Operator::Eq => (column, Some(at_least(value)), Some(at_least(value))),
        Operator::LtEq => (column, None, Some(at_least(value))),
        Operator::Lt => (column, None, Some(at_least(value - 1))),
        Operator::GtEq => (column, Some(at_least(value)), None),
        Operator::Gt => (column, Some(at_least(value + 1)), None),
        _ => return None,
    })
}

fn without_cast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) if cast.field.data_type().is_integer() => &cast.expr,
        other => other,
    }
}

pub(super) fn literal(expr: &Expr) -> Option<i128> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    match value.cast_to(&DataType::Decimal128(38, 0)).ok()? {
        ScalarValue::Decimal128(Some(number), ..) if value.data_type().is_integer() => Some(number),
        _ => None,
    }
}

/// Appends expressions to all columns of a plan.
pub(super) fn append(
    input: StreamPlan,
    exprs: Vec<(millstream_engine::plan::Expr, String)>,
) -> Result<StreamPlan> {
    let mut all = all_columns(&input.schema);
    all.extend(exprs);
    build::project(input, all)
}

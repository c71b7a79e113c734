//! EXCEPT and INTERSECT, whose plan of semi and anti joins loses the counts of the ALL forms.
//!
//! For continuous queries they become a node of our own, which lowers to the engine's. For one-shot queries the ALL forms
//! number equal rows on both sides and then compare with the number: n rows on the left and m on the right leave those
//! with the numbers m + 1 to n (EXCEPT), or 1 to min(n, m) (INTERSECT).

use std::fmt;
use std::sync::Arc;

use datafusion::functions_window::row_number::row_number_udwf;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{
    Column, DFSchemaRef, DataFusionError, JoinType, NullEquality, Result as DataFusionResult,
};
use datafusion_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion_expr::type_coercion::binary::type_union_coercion;
use datafusion_expr::{
    Distinct, Expr, Extension, Join, LogicalPlan, LogicalPlanBuilder, UserDefinedLogicalNodeCore,
    WindowFrame, WindowFunctionDefinition, cast,
};
use millstream_engine::plan::{SetKind, SetOperation, StreamPlan};

use super::Lowering;
use super::projection::aligned;
use crate::error::{Result, SqlError};
use crate::functions::semantics::common_float;

/// EXCEPT or INTERSECT of two plans with the same types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SetOperationNode {
    left: LogicalPlan,
    right: LogicalPlan,
    except: bool,
    all: bool,
}

impl PartialOrd for SetOperationNode {
    fn partial_cmp(&self, _other: &Self) -> Option<std::cmp::Ordering> {
        None
    }
}

impl UserDefinedLogicalNodeCore for SetOperationNode {
    fn name(&self) -> &str {
        if self.except { "Except" } else { "Intersect" }
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.left.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{}{}",
            UserDefinedLogicalNodeCore::name(self),
            if self.all { " All" } else { "" }
        )
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> DataFusionResult<Self> {
        let [left, right] = <[LogicalPlan; 2]>::try_from(inputs)
            .map_err(|_| DataFusionError::Internal("a set operation has two inputs".to_string()))?;
        Ok(Self { left, right, ..self.clone() })
    }
}

impl Lowering<'_> {
    pub(super) fn extension(&self, node: &Extension) -> Result<StreamPlan> {
        let Some(operation) = node.node.as_any().downcast_ref::<SetOperationNode>() else {
            let what = format!("{} in a continuous query", node.node.name());
            return Err(SqlError::unsupported(what));
        };
        let left = self.node(&operation.left, None)?;
        let right = self.node(&operation.right, None)?;
        let right = aligned(right, &left.schema)?;
        let kind = if operation.except { SetKind::Except } else { SetKind::Intersect };
        Ok(left.set_operation(right, SetOperation { kind, all: operation.all }))
    }
}

/// What the SQL planner made of a set operation: no one else asks for joins in which NULLs are equal, this early.
fn recognize(plan: &LogicalPlan) -> Option<(&Join, bool)> {
    let LogicalPlan::Join(join) = plan else {
        return None;
    };
    let set_like = join.null_equality == NullEquality::NullEqualsNull
        && matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len();
    let all = !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)));
    set_like.then_some((join, all))
}

/// Both sides with the types that they have in common.
fn sides(
    left: &Arc<LogicalPlan>,
    right: &Arc<LogicalPlan>,
) -> DataFusionResult<(LogicalPlan, LogicalPlan)> {
    let types = left.schema().fields().iter().zip(right.schema().fields());
    let types = types.map(|(left, right)| {
        let (left_type, right_type) = (left.data_type(), right.data_type());
        let common = common_float(left_type, right_type);
        common.or_else(|| type_union_coercion(left_type, right_type)).ok_or_else(|| {
            let (left, right) = (left.data_type(), right.data_type());
            DataFusionError::Plan(format!(
                "EXCEPT or INTERSECT types {left} and {right} cannot be matched"
            ))
        })
    });
    let types = types.collect::<DataFusionResult<Vec<_>>>()?;
    let with_types = |plan: &Arc<LogicalPlan>| {
        let schema = plan.schema();
        if schema.fields().iter().zip(&types).all(|(field, wanted)| field.data_type() == wanted) {
            return Ok(plan.as_ref().clone());
        }
        let exprs = schema.iter().zip(&types).map(|((qualifier, field), wanted)| {
            let column = Expr::Column(Column::from((qualifier, field)));
            if field.data_type() == wanted {
                return column;
            }
            cast(column, wanted.clone()).alias_qualified(qualifier.cloned(), field.name())
        });
        LogicalPlanBuilder::from(plan.as_ref().clone()).project(exprs.collect::<Vec<_>>())?.build()
    };
    Ok((with_types(left)?, with_types(right)?))
}

/// For continuous queries: every set operation as a node of its own.
pub(super) fn to_nodes(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let convert = |plan: LogicalPlan| {
        let Some((join, all)) = recognize(&plan) else {
            return Ok(Transformed::no(plan));
        };
        let except = join.join_type == JoinType::LeftAnti;
        let left = match join.left.as_ref() {
            LogicalPlan::Distinct(Distinct::All(input)) if !all => input,
            _ => &join.left,
        };
        let (left, right) = sides(left, &join.right)?;
        let node = Arc::new(SetOperationNode { left, right, except, all });
        Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
    };
    Ok(plan.transform_up_with_subqueries(convert)?.data)
}

/// For one-shot queries: the ALL forms by numbers of equal rows.
pub(super) fn to_numbered(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let convert = |plan: LogicalPlan| {
        let Some((join, true)) = recognize(&plan) else {
            return Ok(Transformed::no(plan));
        };
        let (left, right) = sides(&join.left, &join.right)?;
        let columns = columns_of(&left);
        let (left, left_number) = numbered(left)?;
        let (right, right_number) = numbered(right)?;
        let keys = |plan: &LogicalPlan, number: Column, width: usize| {
            let columns = plan.schema().columns().into_iter().take(width);
            columns.chain([number]).collect::<Vec<_>>()
        };
        let left_keys = keys(&left, left_number, columns.len());
        let right_keys = keys(&right, right_number, columns.len());
        let joined = LogicalPlanBuilder::from(left).join_detailed(
            right,
            join.join_type,
            (left_keys, right_keys),
            None,
            NullEquality::NullEqualsNull,
        )?;
        Ok(Transformed::yes(joined.project(columns)?.build()?))
    };
    Ok(plan.transform_up_with_subqueries(convert)?.data)
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    plan.schema().columns().into_iter().map(Expr::Column).collect()
}

/// The plan with a number for each of several equal rows as its last column.
fn numbered(plan: LogicalPlan) -> DataFusionResult<(LogicalPlan, Column)> {
    let params = WindowFunctionParams {
        args: vec![],
        partition_by: columns_of(&plan),
        order_by: vec![],
        window_frame: WindowFrame::new(None),
        filter: None,
        null_treatment: None,
        distinct: false,
    };
    let fun = WindowFunctionDefinition::WindowUDF(row_number_udwf());
    let number = Expr::WindowFunction(Box::new(WindowFunction { fun, params }));
    let plan = LogicalPlanBuilder::from(plan).window([number])?.build()?;
    let number = plan.schema().columns().into_iter().next_back();
    let number = number.ok_or_else(|| DataFusionError::Internal("no number column".to_string()))?;
    Ok((plan, number))
}

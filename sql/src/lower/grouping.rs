//! Keys of GROUPING SETS, ROLLUP and CUBE that are expressions, as columns computed before.
//!
//! The analyzer's rules rename what they rewrite, which loses the names of expressions inside of a grouping set.

use std::sync::Arc;

use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, Result as DataFusionResult};
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder};

/// Computes the keys of grouping sets below the aggregate.
pub(super) fn compute_keys(node: Aggregate) -> DataFusionResult<Transformed<LogicalPlan>> {
    let is_set = node.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
    let keys: Vec<Expr> = match is_set && node.group_expr.len() == 1 {
        true => grouping_set_to_exprlist(&node.group_expr)?.into_iter().cloned().collect(),
        false => vec![],
    };
    let computed = keys.into_iter().filter(|key| !matches!(key, Expr::Column(_)));
    let computed = computed.collect::<Vec<_>>();
    if computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(node)));
    }
    let named = |key: &Expr| key.clone().alias(key.schema_name().to_string());
    let columns = node.input.schema().columns().into_iter().map(Expr::Column);
    let exprs = columns.chain(computed.iter().map(named)).collect::<Vec<_>>();
    let input = LogicalPlanBuilder::from(node.input.as_ref().clone()).project(exprs)?.build()?;
    let by_column = |exprs: Vec<Expr>| {
        let replaced = exprs.into_iter().map(|expr| {
            let replaced = expr.transform_down(|part| {
                if !computed.contains(&part) {
                    return Ok(Transformed::no(part));
                }
                let name = part.schema_name().to_string();
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
            });
            replaced.map(|replaced| replaced.data)
        });
        replaced.collect::<DataFusionResult<Vec<_>>>()
    };
    let group = by_column(node.group_expr.clone())?;
    let calls = by_column(node.aggr_expr.clone())?;
    let aggregate = Aggregate::try_new(Arc::new(input), group, calls)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

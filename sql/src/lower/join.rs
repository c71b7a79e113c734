//! Joins of every kind. Keys that are expressions become columns first and go again afterwards.

use std::sync::Arc;

use datafusion::physical_expr::expressions::{binary, is_null};
use datafusion_common::{JoinType, NullEquality};
use datafusion_expr::{Expr, Operator};
use millstream_engine::plan::{self, Join, JoinKind, StreamPlan};

use super::projection::append;
use super::{Lowering, build, interval};
use crate::error::{Result, SqlError};
use crate::expr::{column, column_of, physical, replace_columns};

/// One side: its plan with key columns appended, and how many columns it had before.
struct Side {
    plan: StreamPlan,
    keys: Vec<usize>,
    width: usize,
}

impl Lowering<'_> {
    pub(super) fn join(&self, node: &datafusion_expr::Join) -> Result<StreamPlan> {
        let (kind, swap) = match node.join_type {
            JoinType::Inner => (JoinKind::Inner, false),
            JoinType::Left => (JoinKind::Left, false),
            JoinType::Right => (JoinKind::Right, false),
            JoinType::Full => (JoinKind::Full, false),
            JoinType::LeftSemi => (JoinKind::LeftSemi, false),
            JoinType::LeftAnti => (JoinKind::LeftAnti, false),
            JoinType::LeftMark => (JoinKind::LeftMark, false),
            JoinType::RightSemi => (JoinKind::LeftSemi, true),
            JoinType::RightAnti => (JoinKind::LeftAnti, true),
            JoinType::RightMark => (JoinKind::LeftMark, true),
        };
        if node.null_aware {
            return self.null_aware_anti_join(node, kind);
        }
        let left = self.side(&node.left, node.on.iter().map(|(left, _)| left))?;
        let right = self.side(&node.right, node.on.iter().map(|(_, right)| right))?;
        let filter = self.residual(node)?;
        let null_equals_null = node.null_equality == NullEquality::NullEqualsNull;
        joined(kind, left, right, filter, null_equals_null, swap, self.options.keeps_late)
    }

    fn side<'e>(
        &self,
        plan: &datafusion_expr::LogicalPlan,
        keys: impl Iterator<Item = &'e Expr>,
    ) -> Result<Side> {
        let plan_below = self.node(plan, None)?;
        let width = plan_below.schema.fields().len();
        let (mut columns, mut computed) = (Vec::new(), Vec::new());
        for key in keys {
            let expr = physical(key, plan.schema())?;
            columns.push(column_of(&expr).unwrap_or_else(|| {
                computed.push((expr, key.schema_name().to_string()));
                width + computed.len() - 1
            }));
        }
        let plan = if computed.is_empty() { plan_below } else { append(plan_below, computed)? };
        Ok(Side { plan, keys: columns, width })
    }

    /// The condition beside the keys, over left ++ right.
    fn residual(&self, node: &datafusion_expr::Join) -> Result<Option<plan::Expr>> {
        let Some(filter) = &node.filter else {
            return Ok(None);
        };
        let both = node.left.schema().join(node.right.schema())?;
        physical(filter, &both).map(Some)
    }

    /// NOT IN: a row goes through when its value surely differs from all. So it does not where one of them is NULL, or
    /// where it is NULL itself and there is any.
    fn null_aware_anti_join(
        &self,
        node: &datafusion_expr::Join,
        kind: JoinKind,
    ) -> Result<StreamPlan> {
        let refused = || SqlError::unsupported("NOT IN of this form in a continuous query");
        if kind != JoinKind::LeftAnti {
            return Err(refused());
        }
        let left = self.side(&node.left, node.on.iter().map(|(left, _)| left))?;
        let right = self.side(&node.right, node.on.iter().map(|(_, right)| right))?;
        // With further conditions the rows to be compared depend on the left row.
        let ([key], [right_key], None) = (&left.keys[..], &right.keys[..], &node.filter) else {
            return Err(refused());
        };
        let (key, right_key, width) = (*key, *right_key, left.width);
        // Which kinds of value there are, NULL or not: at most two rows, sent to all tasks.
        let is_null_right = is_null(column(&right.plan.schema, right_key))?;
        let kinds =
            build::project(right.plan.clone(), vec![(is_null_right, "is_null".to_string())])?;
        let kinds = kinds.aggregate(vec![0], vec![]);
        let all_left = left.plan.schema.fields().len();
        let no_match = left.plan.join(
            right.plan,
            Join {
                kind,
                left_keys: vec![key],
                right_keys: vec![right_key],
                filter: None,
                null_equals_null: false,
                interval: None,
            },
        );
        let both = [no_match.schema.fields().as_ref(), kinds.schema.fields().as_ref()].concat();
        let both = arrow::datatypes::Schema::new(both);
        let unknown =
            binary(is_null(column(&both, key))?, Operator::Or, column(&both, all_left), &both)?;
        let filter = Some(unknown);
        let (left_keys, right_keys, interval) = (vec![], vec![], None);
        let join = Join { kind, left_keys, right_keys, filter, null_equals_null: false, interval };
        build::select(no_match.join(kinds, join), &(0..width).collect::<Vec<_>>())
    }
}

fn joined(
    kind: JoinKind,
    left: Side,
    right: Side,
    filter: Option<plan::Expr>,
    null_equals_null: bool,
    swap: bool,
    keeps_late: bool,
) -> Result<StreamPlan> {
    // The filter was made for left ++ right without key columns.
    let (left_width, left_all) = (left.width, left.plan.schema.fields().len());
    let right_all = right.plan.schema.fields().len();
    let place = move |column: usize| match (column < left_width, swap) {
        (true, false) => column,
        (true, true) => right_all + column,
        (false, false) => left_all + column - left_width,
        (false, true) => column - left_width,
    };
    let moved = |column: usize| -> Option<plan::Expr> {
        let name = match column < left_width {
            true => left.plan.schema.field(column).name(),
            false => right.plan.schema.field(column - left_width).name(),
        };
        Some(Arc::new(datafusion::physical_expr::expressions::Column::new(name, place(column))))
    };
    let filter = filter.map(|filter| replace_columns(filter, &moved)).transpose()?;
    let (first, second) = if swap { (right, left) } else { (left, right) };
    let (width, second_width) = (first.width, second.width);
    let all = first.plan.schema.fields().len();
    let (left_keys, right_keys) = (first.keys, second.keys);
    let join = Join { kind, left_keys, right_keys, filter, null_equals_null, interval: None };
    let plan = if keeps_late {
        first.plan.join(second.plan, join)
    } else {
        interval::join(first.plan, second.plan, join)
    };
    let mut columns = (0..width).collect::<Vec<_>>();
    match kind {
        JoinKind::LeftSemi | JoinKind::LeftAnti => {}
        JoinKind::LeftMark => columns.push(all),
        _ => columns.extend(all..all + second_width),
    }
    if columns.len() == plan.schema.fields().len() {
        return Ok(plan);
    }
    build::select(plan, &columns)
}

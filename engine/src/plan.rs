//! The stream plan: an immutable tree that `sql` builds and `build.rs` turns into operators.
//!
//! Each node knows its output schema and its properties (append-only, unique key, watermark columns), derived by the
//! constructors here, so that the planner cannot state them wrongly. Plans hold expressions, never SQL text.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;
use serde::{Deserialize, Serialize};

use crate::change_batch::project_schema;
use crate::error::Result;

mod construct;
mod display;
pub(crate) mod fragment;
pub(crate) mod kept;
mod signature;
mod state_ttl;

pub use fragment::{Distribution, Fragment, FragmentId, FragmentInput, FragmentPlan};
pub use kept::{Fate, OperatorFate};

/// An expression over the columns of one batch.
pub type Expr = Arc<dyn PhysicalExpr>;

/// Identifies a table, source, view or sink of one database, for ever.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RelationId(pub u64);

impl fmt::Display for RelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// A node with its inputs.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// What it does.
    pub node: PlanNode,
    /// Zero, one or two inputs (union: any number).
    pub inputs: Vec<StreamPlan>,
    /// Output columns.
    pub schema: SchemaRef,
    /// What is known of the output.
    pub properties: Properties,
    /// State that nothing has touched for so long, in milliseconds, is dropped with what follows from it.
    pub state_ttl_ms: Option<u64>,
}

/// What is known of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties {
    /// Only `+1` weights.
    pub append_only: bool,
    /// Columns that identify a row at any moment, if known. Empty: there is at most one row.
    pub unique_key: Option<Vec<usize>>,
    /// Columns whose values are bounded from below by the stream's watermark, up to late rows.
    pub watermark_columns: Vec<usize>,
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum PlanNode {
    /// The contents of a relation (table, view or source) now, then its changes.
    Scan(Scan),
    /// Constant rows, once.
    Values(RecordBatch),
    /// Keeps the rows that satisfy the predicate, then computes the expressions.
    FilterProject(FilterProject),
    /// Repeats each row for each element of list columns.
    Unnest(Unnest),
    /// Groups and aggregates. Without calls it is DISTINCT.
    Aggregate(Aggregate),
    /// Joins two inputs.
    Join(Join),
    /// All rows of all inputs (UNION ALL).
    Union,
    /// EXCEPT and INTERSECT, by whole rows.
    SetOperation(SetOperation),
    /// The first rows by an order, in all or in each partition.
    TopN(TopN),
    /// Gives each row the session that it is in.
    SessionWindow(SessionWindow),
    /// Derives watermarks from a column.
    Watermark(WatermarkNode),
    /// Drops (and counts) rows whose window has closed already, or whose time the watermark has passed.
    LateFilter(CloseColumn),
    /// Holds rows back until the watermark has passed their window's end.
    EmitOnClose(CloseColumn),
}

/// See [`PlanNode::Scan`].
#[derive(Clone, Debug)]
pub struct Scan {
    /// The relation.
    pub relation: RelationId,
    /// Its name, for people.
    pub name: String,
    /// Which of its columns, in output order.
    pub projection: Vec<usize>,
}

/// See [`PlanNode::FilterProject`].
#[derive(Clone, Debug)]
pub struct FilterProject {
    /// Evaluated over the input's columns.
    pub predicate: Option<Expr>,
    /// Output columns and their names; `None` keeps the input's.
    pub exprs: Option<Vec<(Expr, String)>>,
}

/// See [`PlanNode::Unnest`]: as in a FROM clause, several list columns run in parallel, shorter ones padded with NULL.
#[derive(Clone, Debug)]
pub struct Unnest {
    /// List columns to expand, each replaced by its element column.
    pub columns: Vec<usize>,
    /// Whether a row whose lists are all empty or NULL stays, with NULL elements.
    pub preserve_nulls: bool,
}

/// See [`PlanNode::Aggregate`]. Output: the group columns, then one column for each call.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Input columns to group by. Empty: one group that is always there, even over no rows.
    pub group: Vec<usize>,
    /// The aggregate functions.
    pub calls: Vec<AggregateCall>,
    /// The place among `group` of a column of window ends, if rows of windows that the watermark has passed do not come:
    /// their groups are forgotten.
    pub closes: Option<usize>,
}

/// One aggregate function with its arguments (expressions over the input's columns), DISTINCT and ORDER BY.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// Function, arguments, DISTINCT, ORDER BY and output field, in DataFusion's form.
    pub function: Arc<AggregateFunctionExpr>,
    /// FILTER (WHERE ...), a boolean expression over the input's columns.
    pub filter: Option<Expr>,
}

/// Kinds of join. Semi and anti joins give columns of the left side only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Matching pairs.
    Inner,
    /// And left rows without partner.
    Left,
    /// And right rows without partner.
    Right,
    /// And both.
    Full,
    /// Left rows with a partner, each once.
    LeftSemi,
    /// Left rows without a partner.
    LeftAnti,
    /// Left rows, with a last boolean column: has it a partner (for IN and EXISTS outside of WHERE).
    LeftMark,
}

/// See [`PlanNode::Join`]. Output: left columns, then right columns.
#[derive(Clone, Debug)]
pub struct Join {
    /// Which rows are given.
    pub kind: JoinKind,
    /// Columns of the left input to be equal pairwise with `right_keys`. Empty: every pair is a candidate.
    pub left_keys: Vec<usize>,
    /// Columns of the right input; same types as `left_keys`.
    pub right_keys: Vec<usize>,
    /// Residual condition over the columns left ++ right; a pair matches only where it is true.
    pub filter: Option<Expr>,
    /// Whether NULL keys match one another (IS NOT DISTINCT FROM); usual SQL: false.
    pub null_equals_null: bool,
    /// What the condition says about event time.
    pub interval: Option<Interval>,
}

/// That of two rows that match, one is not much later than the other by event time: so rows need not be held for ever. Both
/// inputs only append, and rows behind the watermark do not come: they are dropped below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Interval {
    /// Of each side, from when on a row matches none that is still to come. A row without that time matches nothing.
    pub forgets: [Option<CloseColumn>; 2],
    /// Of each side, by how many microseconds at most its event time lies behind the watermark of the inputs in what the join
    /// gives, where that is known.
    pub behind_us: [Option<i64>; 2],
}

impl Interval {
    /// By so many microseconds the watermark of what the join gives lies behind that of its inputs.
    pub fn delay_us(&self) -> i64 {
        self.behind_us.into_iter().flatten().max().unwrap_or(0).max(0)
    }
}

/// See [`PlanNode::SetOperation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetOperation {
    /// EXCEPT or INTERSECT.
    pub kind: SetKind,
    /// ALL keeps counts: l - r, or min(l, r). Else each row at most once.
    pub all: bool,
}

/// Which set operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// Rows of the left that are not in the right.
    Except,
    /// Rows in both.
    Intersect,
}

/// One sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SortKey {
    /// Column of the input.
    pub column: usize,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST.
    pub nulls_first: bool,
}

/// See [`PlanNode::TopN`].
#[derive(Clone, Debug)]
pub struct TopN {
    /// Rank within each combination of these columns; empty: over all rows.
    pub partition: Vec<usize>,
    /// The order. Ties are broken by all columns, so that the result is a function of the rows.
    pub order: Vec<SortKey>,
    /// Rows passed over.
    pub offset: u64,
    /// Rows given; `None`: all after the offset.
    pub limit: Option<u64>,
    /// Also all rows that tie with the last one.
    pub with_ties: bool,
    /// Append the rank as a last column (BIGINT, or the UInt64 of the planner) under this field.
    pub rank: Option<(RankFunction, arrow::datatypes::FieldRef)>,
    /// The place among `partition` of a column of window ends, if rows of windows that the watermark has passed do not
    /// come: their partitions are forgotten.
    pub closes: Option<usize>,
}

/// How ranks are counted, for the limit and for the rank column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RankFunction {
    /// 1, 2, 3, 4
    #[default]
    RowNumber,
    /// 1, 2, 2, 4
    Rank,
    /// 1, 2, 2, 3
    DenseRank,
}

/// See [`PlanNode::SessionWindow`]. A session is a maximal run of rows of one partition, in order of time, each less than
/// the gap after the one before. Output: some of the input's columns, then the session's start (its first row's time) and
/// end (its last row's time and the gap). Rows without a time are in no session and are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionWindow {
    /// Sessions within each combination of these columns; empty: over all rows.
    pub partition: Vec<usize>,
    /// The time of a row: a timestamp in microseconds.
    pub time: usize,
    /// Rows this far apart or farther are in different sessions. Above 0.
    pub gap_us: i64,
    /// Columns of the input that are given.
    pub columns: Vec<usize>,
    /// Only rows of sessions that the watermark has passed are given, once and for ever; rows that would change such a
    /// session are dropped and counted as late.
    pub on_close: bool,
}

/// See [`PlanNode::Watermark`]: watermark = the largest value of the expression so far.
#[derive(Clone, Debug)]
pub struct WatermarkNode {
    /// The event-time column.
    pub column: usize,
    /// Gives a timestamp for each row, e.g. `ts - INTERVAL '5 seconds'`.
    pub expr: Expr,
}

/// When a row's time is over: a timestamp in microseconds, and so long after it. Then a watermark that is there closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseColumn {
    /// Column of the input.
    pub column: usize,
    /// In microseconds.
    pub after_us: i64,
}

impl CloseColumn {
    /// The exclusive end of a row's window: no row of it is behind a watermark that is there.
    pub fn window_end(column: usize) -> Self {
        Self { column, after_us: 0 }
    }

    /// The event time of a row: one that equals the watermark may still come.
    pub fn event_time(column: usize) -> Self {
        Self { column, after_us: 1 }
    }
}

impl StreamPlan {
    /// All relations that the plan reads.
    pub fn relations(&self) -> Vec<RelationId> {
        let mut found = Vec::new();
        self.visit(&mut |plan| {
            if let PlanNode::Scan(scan) = &plan.node
                && !found.contains(&scan.relation)
            {
                found.push(scan.relation);
            }
        });
        found
    }

    /// Calls `f` for this node and all below, parents first.
    pub fn visit(&self, f: &mut dyn FnMut(&StreamPlan)) {
        f(self);
        for input in &self.inputs {
            input.visit(f);
        }
    }

    /// Only these columns of the plan's output.
    pub fn select(self, columns: &[usize]) -> Result<Self> {
        let schema = project_schema(&self.schema, columns);
        let exprs = columns.iter().zip(schema.fields()).map(|(&column, field)| {
            let expr: Expr =
                Arc::new(datafusion_physical_expr::expressions::Column::new(field.name(), column));
            (expr, field.name().clone())
        });
        let exprs = exprs.collect();
        self.filter_project(None, Some(exprs))
    }
}

/// An empty schema, for scans of no columns.
pub fn empty_schema() -> SchemaRef {
    Arc::new(Schema::empty())
}

//! Constructors of plan nodes: each derives its output schema and properties.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion_physical_expr::expressions::Column;

use super::{
    Aggregate, AggregateCall, CloseColumn, Expr, FilterProject, Join, JoinKind, PlanNode,
    Properties, RelationId, Scan, SessionWindow, SetKind, SetOperation, StreamPlan, TopN, Unnest,
    WatermarkNode,
};
use crate::change_batch::project_schema;
use crate::error::{EngineError, Result};

impl StreamPlan {
    /// Reads some columns of a relation whose whole schema and properties are given.
    pub fn scan(
        relation: RelationId,
        name: impl Into<String>,
        schema: &SchemaRef,
        properties: &Properties,
        projection: Vec<usize>,
    ) -> Self {
        let properties = properties.project(|column| projection.iter().position(|&p| p == column));
        let schema = project_schema(schema, &projection);
        let node = PlanNode::Scan(Scan { relation, name: name.into(), projection });
        Self { node, inputs: vec![], schema, properties, state_ttl_ms: None }
    }

    /// Constant rows.
    pub fn values(rows: RecordBatch) -> Self {
        let properties = Properties { append_only: true, ..Properties::default() };
        Self {
            schema: rows.schema(),
            node: PlanNode::Values(rows),
            inputs: vec![],
            properties,
            state_ttl_ms: None,
        }
    }

    /// Filters by the predicate, then projects.
    pub fn filter_project(
        self,
        predicate: Option<Expr>,
        exprs: Option<Vec<(Expr, String)>>,
    ) -> Result<Self> {
        let (schema, properties) = match &exprs {
            None => (Arc::clone(&self.schema), self.properties.clone()),
            Some(exprs) => {
                let field = |(expr, name): &(Expr, String)| -> Result<FieldRef> {
                    let field = expr.return_field(&self.schema)?;
                    Ok(Arc::new(field.as_ref().clone().with_name(name)))
                };
                let fields = exprs.iter().map(field).collect::<Result<Vec<_>>>()?;
                let position =
                    |column| exprs.iter().position(|(expr, _)| column_of(expr) == Some(column));
                (Arc::new(Schema::new(fields)) as SchemaRef, self.properties.project(position))
            }
        };
        let node = PlanNode::FilterProject(FilterProject { predicate, exprs });
        Ok(Self { node, inputs: vec![self], schema, properties, state_ttl_ms: None })
    }

    /// Expands list columns.
    pub fn unnest(self, unnest: Unnest, schema: SchemaRef) -> Self {
        let kept = |column: usize| (!unnest.columns.contains(&column)).then_some(column);
        let mut properties = self.properties.project(kept);
        properties.unique_key = None;
        Self {
            node: PlanNode::Unnest(unnest),
            inputs: vec![self],
            schema,
            properties,
            state_ttl_ms: None,
        }
    }

    /// Groups and aggregates.
    pub fn aggregate(self, group: Vec<usize>, calls: Vec<AggregateCall>) -> Self {
        let mut fields: Vec<FieldRef> =
            group.iter().map(|&column| Arc::clone(&self.schema.fields()[column])).collect();
        fields.extend(calls.iter().map(|call| call.function.field()));
        let properties = Properties {
            // DISTINCT over rows that only come never takes a row back.
            append_only: self.properties.append_only && calls.is_empty() && !group.is_empty(),
            unique_key: Some((0..group.len()).collect()),
            watermark_columns: positions(&group, &self.properties.watermark_columns),
        };
        let schema = Arc::new(Schema::new(fields));
        let node = PlanNode::Aggregate(Aggregate { group, calls, closes: None });
        Self { node, inputs: vec![self], schema, properties, state_ttl_ms: None }
    }

    /// Lets an aggregate forget groups whose window has closed: its output column `column`, a group column, is the
    /// window's end, and late rows are dropped below. The same for partitions of Top-N. Any other node stays as it is.
    #[must_use]
    pub fn forgetting_closed(mut self, column: usize) -> Self {
        match &mut self.node {
            PlanNode::Aggregate(aggregate) => {
                aggregate.closes = (column < aggregate.group.len()).then_some(column);
            }
            PlanNode::TopN(top_n) => {
                top_n.closes = top_n.partition.iter().position(|&key| key == column);
            }
            _ => {}
        }
        self
    }

    /// Joins with another plan.
    pub fn join(self, right: Self, join: Join) -> Self {
        let (left, kind) = (self, join.kind);
        let width = left.schema.fields().len();
        let null_left = matches!(kind, JoinKind::Right | JoinKind::Full);
        let null_right = matches!(kind, JoinKind::Left | JoinKind::Full);
        let mut fields = nullable_fields(&left.schema, null_left);
        let left_only =
            matches!(kind, JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark);
        if kind == JoinKind::LeftMark {
            fields.push(Arc::new(Field::new("mark", DataType::Boolean, false)));
        } else if !left_only {
            fields.extend(nullable_fields(&right.schema, null_right));
        }
        let both_append = left.properties.append_only && right.properties.append_only;
        let append_only = both_append && matches!(kind, JoinKind::Inner | JoinKind::LeftSemi);
        let unique_key = join_key(&left.properties, &right.properties, &join, width);
        // Of a pair one row may have come long ago, if nothing is known of that.
        let behind = join.interval.map(|interval| interval.behind_us).unwrap_or_default();
        let is_bound = |side: usize| behind == [None; 2] || behind[side].is_some();
        let mut watermark_columns = Vec::new();
        if is_bound(0) {
            watermark_columns.extend(&left.properties.watermark_columns);
        }
        if is_bound(1) && !left_only {
            watermark_columns.extend(right.properties.watermark_columns.iter().map(|c| c + width));
        }
        let properties = Properties { append_only, unique_key, watermark_columns };
        let schema = Arc::new(Schema::new(fields));
        Self {
            node: PlanNode::Join(join),
            inputs: vec![left, right],
            schema,
            properties,
            state_ttl_ms: None,
        }
    }

    /// UNION ALL of plans whose schemas agree in types.
    pub fn union(inputs: Vec<Self>, schema: SchemaRef) -> Result<Self> {
        let first = inputs.first().ok_or_else(|| EngineError::internal("union of nothing"))?;
        let everywhere = |column: &usize| {
            inputs.iter().all(|input| input.properties.watermark_columns.contains(column))
        };
        let watermarks = first.properties.watermark_columns.iter().copied();
        let properties = Properties {
            append_only: inputs.iter().all(|input| input.properties.append_only),
            unique_key: None,
            watermark_columns: watermarks.filter(everywhere).collect(),
        };
        Ok(Self { node: PlanNode::Union, inputs, schema, properties, state_ttl_ms: None })
    }

    /// EXCEPT or INTERSECT with another plan.
    pub fn set_operation(self, right: Self, operation: SetOperation) -> Self {
        let appends = self.properties.append_only && right.properties.append_only;
        let all_columns = (0..self.schema.fields().len()).collect();
        let properties = Properties {
            append_only: appends && operation.kind == SetKind::Intersect,
            unique_key: (!operation.all).then_some(all_columns),
            watermark_columns: self.properties.watermark_columns.clone(),
        };
        let schema = Arc::clone(&self.schema);
        let node = PlanNode::SetOperation(operation);
        Self { node, inputs: vec![self, right], schema, properties, state_ttl_ms: None }
    }

    /// The first rows by an order.
    pub fn top_n(self, top_n: TopN) -> Self {
        let mut fields = self.schema.fields().iter().cloned().collect::<Vec<_>>();
        if let Some((_, field)) = &top_n.rank {
            fields.push(Arc::clone(field));
        }
        let one_each = top_n.limit == Some(1) && !top_n.with_ties;
        let by_partition = one_each.then(|| top_n.partition.clone());
        let properties = Properties {
            append_only: false,
            unique_key: by_partition.or_else(|| self.properties.unique_key.clone()),
            watermark_columns: self.properties.watermark_columns.clone(),
        };
        let schema = Arc::new(Schema::new(fields));
        Self {
            node: PlanNode::TopN(top_n),
            inputs: vec![self],
            schema,
            properties,
            state_ttl_ms: None,
        }
    }

    /// Gives each row its session; `start` and `end` are the names of the session's columns.
    pub fn session_window(self, session: SessionWindow, start: &str, end: &str) -> Self {
        let fields = self.schema.fields();
        let window = |name: &str| -> FieldRef {
            let field = fields[session.time].as_ref().clone();
            Arc::new(field.with_name(name).with_nullable(false))
        };
        let mut kept: Vec<FieldRef> =
            session.columns.iter().map(|&column| Arc::clone(&fields[column])).collect();
        let width = kept.len();
        kept.extend([window(start), window(end)]);
        let input = &self.properties;
        let given = |column: usize| session.columns.iter().position(|&kept| kept == column);
        let properties = Properties {
            // Rows that differ in no column that is given come as one row that counts them.
            append_only: session.on_close
                && input.append_only
                && !session.counts_rows(&self.schema),
            unique_key: input.project(given).unique_key,
            // A row may come again with another session long after its own time; that session's end is then later
            // than what changed it.
            watermark_columns: match input.watermark_columns.contains(&session.time) {
                true => vec![width + 1],
                false => vec![],
            },
        };
        let schema = Arc::new(Schema::new(kept));
        let node = PlanNode::SessionWindow(session);
        Self { node, inputs: vec![self], schema, properties, state_ttl_ms: None }
    }

    /// Derives watermarks for a column.
    pub fn watermark(self, column: usize, expr: Expr) -> Self {
        let mut properties = self.properties.clone();
        properties.watermark_columns = vec![column];
        let schema = Arc::clone(&self.schema);
        let node = PlanNode::Watermark(WatermarkNode { column, expr });
        Self { node, inputs: vec![self], schema, properties, state_ttl_ms: None }
    }

    /// Drops rows whose time is over.
    pub fn late_filter(self, closes: CloseColumn) -> Self {
        let (schema, properties) = (Arc::clone(&self.schema), self.properties.clone());
        let node = PlanNode::LateFilter(closes);
        Self { node, inputs: vec![self], schema, properties, state_ttl_ms: None }
    }

    /// Holds rows back until their window end (that column) has been passed; the output is append-only.
    pub fn emit_on_close(self, column: usize) -> Self {
        let mut properties = self.properties.clone();
        properties.append_only = true;
        let schema = Arc::clone(&self.schema);
        let node = PlanNode::EmitOnClose(CloseColumn::window_end(column));
        Self { node, inputs: vec![self], schema, properties, state_ttl_ms: None }
    }
}

impl SessionWindow {
    /// Whether the columns given say nothing of a row but its partition. (Equal floats may differ: 0.0 and -0.0.)
    pub(crate) fn counts_rows(&self, input: &Schema) -> bool {
        self.columns.iter().all(|column| {
            self.partition.contains(column) && !input.field(*column).data_type().is_floating()
        })
    }
}

impl Properties {
    /// The properties after columns moved: `position` gives a column's new place, if it is still there.
    pub fn project(&self, position: impl Fn(usize) -> Option<usize>) -> Self {
        let unique_key = self.unique_key.as_ref();
        Self {
            append_only: self.append_only,
            unique_key: unique_key.and_then(|key| key.iter().map(|&c| position(c)).collect()),
            watermark_columns: self.watermark_columns.iter().filter_map(|&c| position(c)).collect(),
        }
    }
}

/// The column that an expression is, if it is nothing but that.
pub(crate) fn column_of(expr: &Expr) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

fn nullable_fields(schema: &SchemaRef, nullable: bool) -> Vec<FieldRef> {
    let widen = |field: &FieldRef| -> FieldRef {
        if nullable && !field.is_nullable() {
            Arc::new(field.as_ref().clone().with_nullable(true))
        } else {
            Arc::clone(field)
        }
    };
    schema.fields().iter().map(widen).collect()
}

fn positions(columns: &[usize], wanted: &[usize]) -> Vec<usize> {
    (0..columns.len()).filter(|&place| wanted.contains(&columns[place])).collect()
}

/// The key of a join's output: both sides' keys together; the left key alone where each left row meets at most one
/// right row.
fn join_key(
    left: &Properties,
    right: &Properties,
    join: &Join,
    width: usize,
) -> Option<Vec<usize>> {
    let left_key = left.unique_key.clone();
    match join.kind {
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => return left_key,
        // A row padded with NULLs could look like a key of NULLs.
        JoinKind::Right | JoinKind::Full => return None,
        JoinKind::Inner | JoinKind::Left => {}
    }
    let right_key = right.unique_key.as_ref()?;
    let mut key = left_key?;
    if !right_key.iter().all(|column| join.right_keys.contains(column)) {
        key.extend(right_key.iter().map(|column| column + width));
    }
    Some(key)
}

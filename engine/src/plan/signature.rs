//! By what parts of two plans are known to be the same: a number for each operator with everything below it.
//!
//! Equal numbers mean: the same work on the same inputs, spread over tasks in the same way. Names of columns do not count,
//! types and places do. It holds inside of one process only, and is never stored.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_physical_expr::ScalarFunctionExpr;
use datafusion_physical_expr::expressions::Column;
use xxhash_rust::xxh3::Xxh3;

use super::fragment::{Child, FragmentNode};
use super::{AggregateCall, Expr, Fragment, FragmentInput, FragmentPlan, PlanNode, StreamPlan};
use crate::build::build_operator;
use crate::error::Result;

/// Of all operators of a plan, by fragment and node.
#[derive(Debug)]
pub(crate) struct Signatures {
    /// Of an operator with everything below it.
    pub(crate) trees: Vec<Vec<u64>>,
    /// Of an operator alone.
    pub(crate) alone: Vec<Vec<u64>>,
}

impl Signatures {
    pub(crate) fn new(plan: &FragmentPlan) -> Result<Self> {
        let mut all = Self { trees: Vec::new(), alone: Vec::new() };
        // Of what each fragment gives.
        let mut roots: Vec<u64> = Vec::new();
        for fragment in &plan.fragments {
            let inputs: Vec<u64> =
                fragment.inputs.iter().map(|input| of_input(fragment, input, &roots)).collect();
            let (mut trees, mut alone): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            for node in &fragment.nodes {
                alone.push(of_node(node)?);
                let mut hash = Hash::new(&format!("{:?}", fragment.parallelism));
                hash.number(alone[alone.len() - 1]);
                for child in &node.children {
                    hash.number(match *child {
                        Child::Node(below) => trees[below],
                        Child::Input(input) => inputs[input],
                    });
                }
                trees.push(hash.end());
            }
            roots.push(match fragment.root {
                Child::Node(node) => trees[node],
                Child::Input(input) => inputs[input],
            });
            all.trees.push(trees);
            all.alone.push(alone);
        }
        Ok(all)
    }
}

fn of_input(fragment: &Fragment, input: &FragmentInput, roots: &[u64]) -> u64 {
    let mut hash = Hash::new(&format!("{:?}", fragment.parallelism));
    match input {
        FragmentInput::Scan(scan, schema) => {
            hash.text(&format!("scan {:?} {:?}", scan.relation, scan.projection));
            hash.schema(schema);
        }
        FragmentInput::Values(rows) => hash.text(&format!("values {rows:?}")),
        FragmentInput::Exchange { from, distribution, schema } => {
            hash.text(&format!("exchange {distribution:?}"));
            hash.schema(schema);
            from.iter().for_each(|&sender| hash.number(roots[sender]));
        }
    }
    hash.end()
}

/// Of an operator alone: what it does, what it keeps, what it gets and gives.
fn of_node(node: &FragmentNode) -> Result<u64> {
    let plan = &node.plan;
    let mut hash = Hash::new(&format!("{:?} {:?}", node.distributions, plan.state_ttl_ms));
    hash.schema(&plan.schema);
    for input in &plan.inputs {
        hash.schema(&input.schema);
        hash.text(&format!("{}", input.properties.append_only));
    }
    work(&mut hash, plan)?;
    for table in build_operator(plan)?.state_tables() {
        hash.text(&format!("{} {:?} {:?}", table.name, table.kind, table.placement));
        hash.schema(&table.schema);
    }
    Ok(hash.end())
}

fn work(hash: &mut Hash, plan: &StreamPlan) -> Result<()> {
    let input = |number: usize| plan.inputs.get(number).map(|input| &*input.schema);
    let empty = Schema::empty();
    let of = input(0).unwrap_or(&empty);
    match &plan.node {
        PlanNode::Scan(_) | PlanNode::Values(_) | PlanNode::Union => hash.text("leaf"),
        PlanNode::FilterProject(node) => {
            hash.text("filter");
            node.predicate.iter().try_for_each(|expr| hash.expr(expr, of))?;
            hash.text("project");
            let exprs = node.exprs.iter().flatten();
            exprs.map(|(expr, _)| expr).try_for_each(|expr| hash.expr(expr, of))?;
        }
        PlanNode::Unnest(node) => hash.text(&format!("{node:?}")),
        PlanNode::Aggregate(node) => {
            hash.text(&format!("aggregate {:?} {:?}", node.group, node.closes));
            node.calls.iter().try_for_each(|call| hash.call(call, of))?;
        }
        PlanNode::Join(node) => {
            hash.text(&format!("{:?} {:?} {:?}", node.kind, node.left_keys, node.right_keys));
            hash.text(&format!("{} {:?}", node.null_equals_null, node.interval));
            let fields = plan.inputs.iter().flat_map(|input| input.schema.fields().iter().cloned());
            let both = Schema::new(fields.collect::<Vec<_>>());
            node.filter.iter().try_for_each(|expr| hash.expr(expr, &both))?;
        }
        PlanNode::SetOperation(node) => hash.text(&format!("{node:?}")),
        PlanNode::TopN(node) => {
            let rank = node.rank.as_ref().map(|(rank, field)| (rank, field.data_type()));
            hash.text(&format!("top {:?} {:?} {rank:?}", node.partition, node.order));
            hash.text(&format!("{} {:?} {}", node.offset, node.limit, node.with_ties));
            hash.text(&format!("{:?}", node.closes));
        }
        PlanNode::SessionWindow(node) => hash.text(&format!("{node:?}")),
        PlanNode::Watermark(node) => {
            hash.text(&format!("watermark {}", node.column));
            hash.expr(&node.expr, of)?;
        }
        PlanNode::LateFilter(node) => hash.text(&format!("late {node:?}")),
        PlanNode::EmitOnClose(node) => hash.text(&format!("close {node:?}")),
    }
    Ok(())
}

struct Hash(Xxh3);

impl Hash {
    fn new(text: &str) -> Self {
        let mut hash = Self(Xxh3::new());
        hash.text(text);
        hash
    }

    fn end(&self) -> u64 {
        self.0.digest()
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn schema(&mut self, schema: &Schema) {
        for field in schema.fields() {
            self.text(&format!("{:?} {}", field.data_type(), field.is_nullable()));
        }
        self.number(schema.fields().len() as u64);
    }

    fn call(&mut self, call: &AggregateCall, input: &Schema) -> Result<()> {
        let function = &call.function;
        let (distinct, nulls) = (function.is_distinct(), function.ignore_nulls());
        self.text(&format!(
            "{} {distinct} {nulls} {}",
            function.fun().name(),
            function.is_reversed()
        ));
        function.expressions().iter().try_for_each(|expr| self.expr(expr, input))?;
        self.text("order");
        for order in function.order_bys() {
            self.text(&format!("{:?}", order.options));
            self.expr(&order.expr, input)?;
        }
        self.text("filter");
        call.filter.iter().try_for_each(|expr| self.expr(expr, input))
    }

    /// An expression: its text without the names of columns, and the type of each part.
    fn expr(&mut self, expr: &Expr, input: &Schema) -> Result<()> {
        let nameless = Arc::clone(expr).transform_up(|part| {
            Ok(match part.downcast_ref::<Column>() {
                Some(column) => Transformed::yes(Arc::new(Column::new("", column.index())) as Expr),
                None => Transformed::no(part),
            })
        })?;
        self.text(&nameless.data.to_string());
        self.types(expr, input)
    }

    fn types(&mut self, expr: &Expr, input: &Schema) -> Result<()> {
        self.text(&format!("{:?}", expr.data_type(input)?));
        if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            let options = &function.config_options().execution;
            self.text(&format!("{} {:?}", function.name(), options.time_zone));
        }
        expr.children().into_iter().try_for_each(|part| self.types(part, input))
    }
}

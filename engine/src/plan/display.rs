//! The text form of plans, as EXPLAIN shows it.

use std::fmt;
use std::time::Duration;

use super::{Interval, PlanNode, StreamPlan};

impl fmt::Display for StreamPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_indented(f, 0)
    }
}

impl StreamPlan {
    fn write_indented(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        if depth > 0 {
            writeln!(f)?;
        }
        write!(f, "{:indent$}{}", "", self.describe(), indent = depth * 2)?;
        for input in &self.inputs {
            input.write_indented(f, depth + 1)?;
        }
        Ok(())
    }

    /// One line: the node and what is known of its output.
    pub fn describe(&self) -> String {
        let mode = if self.properties.append_only { "append" } else { "retract" };
        let key = match &self.properties.unique_key {
            Some(key) => format!(", key: [{}]", self.names(key)),
            None => String::new(),
        };
        let watermark = match self.properties.watermark_columns.as_slice() {
            [] => String::new(),
            columns => format!(", watermark: [{}]", self.names(columns)),
        };
        format!("{} {{{mode}{key}{watermark}}}", self.describe_node())
    }

    fn names(&self, columns: &[usize]) -> String {
        names(&self.schema, columns)
    }

    /// The window's end, if it closes: a column of the output.
    fn closes(&self, column: Option<usize>) -> String {
        let column = column.map(|column| self.names(&[column]));
        column.map_or(String::new(), |column| format!(", until: {column}"))
    }

    /// The node alone, without properties.
    pub fn describe_node(&self) -> String {
        let ttl = self.state_ttl_ms.map(Duration::from_millis);
        let ttl = ttl.map_or(String::new(), |ttl| format!(", ttl: {ttl:?}"));
        self.describe_kind() + &ttl
    }

    fn describe_kind(&self) -> String {
        let input = self.inputs.first();
        let of_input =
            |columns: &[usize]| input.map_or(String::new(), |i| names(&i.schema, columns));
        match &self.node {
            PlanNode::Scan(scan) => {
                let all = (0..self.schema.fields().len()).collect::<Vec<_>>();
                format!("Scan {} [{}]", scan.name, self.names(&all))
            }
            PlanNode::Values(rows) => format!("Values ({} rows)", rows.num_rows()),
            PlanNode::FilterProject(node) => {
                let filter = node.predicate.as_ref().map(|p| format!("Filter {p}"));
                let project = node.exprs.as_ref().map(|exprs| {
                    let show = |(expr, name): &(super::Expr, String)| match expr.to_string() {
                        text if text
                            == format!("{name}@{}", text.rsplit('@').next().unwrap_or("")) =>
                        {
                            name.clone()
                        }
                        text => format!("{text} AS {name}"),
                    };
                    format!("Project [{}]", exprs.iter().map(show).collect::<Vec<_>>().join(", "))
                });
                filter.into_iter().chain(project).collect::<Vec<_>>().join(" -> ")
            }
            PlanNode::Unnest(node) => format!("Unnest [{}]", of_input(&node.columns)),
            PlanNode::Aggregate(node) if node.calls.is_empty() => {
                format!("Distinct [{}]{}", of_input(&node.group), self.closes(node.closes))
            }
            PlanNode::Aggregate(node) => {
                let calls = node.calls.iter().map(|call| match &call.filter {
                    None => call.function.name().to_string(),
                    Some(_) => call.function.name().to_string(),
                });
                let calls = calls.collect::<Vec<_>>().join(", ");
                let group = of_input(&node.group);
                format!("Aggregate group: [{group}], calls: [{calls}]{}", self.closes(node.closes))
            }
            PlanNode::Join(join) => {
                let pairs = join.left_keys.iter().zip(&join.right_keys).map(|(&l, &r)| {
                    let left = self.inputs[0].schema.field(l).name();
                    format!("{left} = {}", self.inputs[1].schema.field(r).name())
                });
                let on = pairs.collect::<Vec<_>>().join(", ");
                let filter =
                    join.filter.as_ref().map_or(String::new(), |e| format!(", filter: {e}"));
                let schemas = [&*self.inputs[0].schema, &*self.inputs[1].schema];
                let interval = join.interval.as_ref();
                let interval = interval.map_or(String::new(), |i| forgets(schemas, i));
                format!("Join {:?} on: [{on}]{filter}{interval}", join.kind)
            }
            PlanNode::Union => "Union".to_string(),
            PlanNode::SetOperation(op) => {
                format!("{:?}{}", op.kind, if op.all { " all" } else { "" })
            }
            PlanNode::TopN(node) => {
                let order = node.order.iter().map(|key| {
                    let name = of_input(&[key.column]);
                    let direction = if key.descending { " desc" } else { "" };
                    let nulls = match (key.descending, key.nulls_first) {
                        (false, true) => " nulls first",
                        (true, false) => " nulls last",
                        _ => "",
                    };
                    format!("{name}{direction}{nulls}")
                });
                let order = order.collect::<Vec<_>>().join(", ");
                let limit = node.limit.map_or("all".to_string(), |limit| limit.to_string());
                let ties = if node.with_ties { " with ties" } else { "" };
                let rank = node.rank.as_ref().map_or(String::new(), |(f, _)| format!(", {f:?}"));
                let partition = of_input(&node.partition);
                format!(
                    "TopN partition: [{partition}], order: [{order}], limit: {limit}{ties}, offset: {}{rank}{}",
                    node.offset,
                    self.closes(node.closes.map(|place| node.partition[place])),
                )
            }
            PlanNode::SessionWindow(node) => {
                let partition = of_input(&node.partition);
                let gap = Duration::from_micros(node.gap_us.unsigned_abs());
                let on_close = if node.on_close { ", on close" } else { "" };
                let (given, time) = (of_input(&node.columns), of_input(&[node.time]));
                format!(
                    "SessionWindow [{given}] partition: [{partition}], time: {time}, gap: {gap:?}{on_close}"
                )
            }
            PlanNode::Watermark(node) => {
                format!("Watermark {} AS {}", of_input(&[node.column]), node.expr)
            }
            PlanNode::LateFilter(node) => format!("LateFilter {}", of_input(&[node.column])),
            PlanNode::EmitOnClose(node) => format!("EmitOnClose {}", of_input(&[node.column])),
        }
    }
}

/// As `forgets: [left after ts + 10s]`: when the rows of a side are forgotten.
fn forgets(schemas: [&arrow::datatypes::Schema; 2], interval: &Interval) -> String {
    let sides = (0..2).filter_map(|side| {
        let closes = interval.forgets[side]?;
        let name = schemas[side].field(closes.column).name();
        // The last time at which it matches.
        let until = closes.after_us - 1;
        let sign = if until < 0 { '-' } else { '+' };
        let distance = Duration::from_micros(until.unsigned_abs());
        let distance = if until == 0 { String::new() } else { format!(" {sign} {distance:?}") };
        Some(format!("{} after {name}{distance}", ["left", "right"][side]))
    });
    format!(", forgets: [{}]", sides.collect::<Vec<_>>().join(", "))
}

fn names(schema: &arrow::datatypes::Schema, columns: &[usize]) -> String {
    let names = columns.iter().map(|&column| schema.field(column).name().as_str());
    names.collect::<Vec<_>>().join(", ")
}

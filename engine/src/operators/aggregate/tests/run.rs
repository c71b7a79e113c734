//! Builds calls and runs an aggregate over change batches, beside a twin that is restarted (see `twin.rs`).

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::Result as DfResult;
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion_functions_aggregate::all_default_aggregate_functions;
use datafusion_physical_expr::PhysicalSortExpr;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{col, lit};

use super::super::build;
use super::twin::{End, Twin};
use crate::change_batch::ChangeBatch;
use crate::message::{Barrier, BarrierKind};
use crate::operator::{Context, Emitted, Operator, Output};
use crate::plan::{Aggregate, AggregateCall, Expr, StreamPlan};
use crate::time::Epoch;

/// `sum` and `avg` with the result types of PostgreSQL, as `sql` defines them; never asked to compute here.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Postgres {
    name: &'static str,
    signature: Signature,
}

impl AggregateUDFImpl for Postgres {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        let is_sum = self.name == "sum";
        Ok(match &types[0] {
            DataType::Int16 | DataType::Int32 if is_sum => DataType::Int64,
            DataType::Int64 if is_sum => DataType::Decimal128(38, 0),
            DataType::Decimal128(_, scale) if is_sum => DataType::Decimal128(38, *scale),
            DataType::Decimal128(_, scale) => DataType::Decimal128(38, (*scale).max(16)),
            DataType::Float32 if is_sum => DataType::Float32,
            DataType::Float32 | DataType::Float64 => DataType::Float64,
            _ => DataType::Decimal128(38, 16),
        })
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> DfResult<Box<dyn Accumulator>> {
        datafusion_common::not_impl_err!("computed by the engine")
    }
}

pub(super) fn udaf(name: &'static str) -> Arc<AggregateUDF> {
    if let Some(name) = name.strip_prefix("pg_") {
        let signature = Signature::any(1, Volatility::Immutable);
        return Arc::new(AggregateUDF::new_from_impl(Postgres { name, signature }));
    }
    let all = all_default_aggregate_functions();
    all.into_iter().find(|udaf| udaf.name() == name).unwrap_or_else(|| panic!("no {name}"))
}

/// A call under construction.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) arguments: Vec<Expr>,
    pub(super) filter: Option<Expr>,
    pub(super) orders: Vec<(Expr, SortOptions)>,
    pub(super) is_distinct: bool,
    pub(super) ignores_nulls: bool,
}

impl Call {
    pub(super) fn new(name: &'static str, arguments: &[Expr]) -> Self {
        Self {
            name,
            arguments: arguments.to_vec(),
            filter: None,
            orders: vec![],
            is_distinct: false,
            ignores_nulls: false,
        }
    }

    pub(super) fn filter(mut self, filter: Expr) -> Self {
        self.filter = Some(filter);
        self
    }

    pub(super) fn distinct(mut self) -> Self {
        self.is_distinct = true;
        self
    }

    pub(super) fn ignore_nulls(mut self) -> Self {
        self.ignores_nulls = true;
        self
    }

    pub(super) fn order(mut self, expr: Expr, descending: bool) -> Self {
        self.orders.push((expr, SortOptions { descending, nulls_first: descending }));
        self
    }

    pub(super) fn build(&self, schema: &SchemaRef) -> AggregateCall {
        let order = |(expr, options): &(Expr, SortOptions)| PhysicalSortExpr {
            expr: Arc::clone(expr),
            options: *options,
        };
        let function = AggregateExprBuilder::new(udaf(self.name), self.arguments.clone())
            .schema(Arc::clone(schema))
            .alias(format!("{}({})", self.name, self.arguments[0]))
            .order_by(self.orders.iter().map(order).collect())
            .with_distinct(self.is_distinct)
            .with_ignore_nulls(self.ignores_nulls)
            .build()
            .unwrap();
        AggregateCall { function: Arc::new(function), filter: self.filter.clone() }
    }
}

/// An aggregate being run.
pub(super) struct Run {
    pub(super) operator: Box<dyn Operator>,
    pub(super) context: Context,
    pub(super) out: Output,
    header: &'static str,
    epoch: u64,
    pub(super) twin: Option<Twin>,
    /// What happens to the twin behind each barrier, over and over.
    pub(super) ends: Vec<End>,
    /// Lines emitted in this epoch.
    lines: Vec<String>,
}

pub(super) const CHANGES: bool = false;
pub(super) const APPENDS: bool = true;

pub(super) fn schema_of(header: &str) -> SchemaRef {
    ChangeBatch::from_pretty(header).unwrap().schema()
}

pub(super) fn column(schema: &SchemaRef, name: &str) -> Expr {
    col(name, schema).unwrap()
}

impl Run {
    pub(super) fn new(
        header: &'static str,
        group: &[usize],
        calls: &[Call],
        appends: bool,
    ) -> Self {
        let schema = schema_of(header);
        let calls = calls.iter().map(|call| call.build(&schema)).collect();
        Self::planned(header, group, calls, appends)
    }

    pub(super) fn planned(
        header: &'static str,
        group: &[usize],
        calls: Vec<AggregateCall>,
        appends: bool,
    ) -> Self {
        let schema = schema_of(header);
        let plan = Aggregate { group: group.to_vec(), calls, closes: None };
        let mut run = Self::alone(header, &schema, &plan, appends);
        let is_only = group.is_empty();
        let remade = move |first: bool| {
            let output = output_of(&plan, &schema);
            build(&plan, &schema, &output, appends, first && is_only, None).unwrap()
        };
        run.twin = Some(Twin::new(Box::new(remade), group));
        run
    }

    /// Without a twin.
    pub(super) fn with_schema(
        header: &'static str,
        schema: &SchemaRef,
        group: &[usize],
        calls: &[Call],
        appends: bool,
    ) -> Self {
        let calls = calls.iter().map(|call| call.build(schema)).collect();
        Self::alone(
            header,
            schema,
            &Aggregate { group: group.to_vec(), calls, closes: None },
            appends,
        )
    }

    fn alone(header: &'static str, schema: &SchemaRef, plan: &Aggregate, appends: bool) -> Self {
        let output = output_of(plan, schema);
        let operator = build(plan, schema, &output, appends, plan.group.is_empty(), None).unwrap();
        let ends = [End::Restart(2), End::Restart(1), End::Plain, End::Crash(3), End::Checkpoint];
        Self {
            operator,
            context: Context::for_test(),
            out: Output::default(),
            header,
            epoch: 0,
            twin: None,
            ends: ends.to_vec(),
            lines: Vec::new(),
        }
    }

    pub(super) fn batch(&mut self, batch: ChangeBatch) {
        if let Some(twin) = &mut self.twin {
            twin.batch(&batch);
        }
        self.operator.on_batch(0, batch, &self.context, &mut self.out).unwrap();
    }

    pub(super) fn rows(&mut self, rows: &str) {
        self.batch(ChangeBatch::from_pretty(&format!("{}\n{rows}", self.header)).unwrap());
    }

    /// What has been emitted.
    pub(super) fn emitted(&mut self) -> Vec<ChangeBatch> {
        let batches = self.out.drain().map(|emitted| match emitted {
            Emitted::Batch(batch) => batch,
            Emitted::Watermark(_) => panic!("no watermark"),
        });
        let batches: Vec<ChangeBatch> = batches.collect();
        if self.twin.is_some() {
            self.lines.extend(batches.iter().flat_map(|batch| lines(&batch.pretty())));
        }
        batches
    }

    pub(super) fn barrier(&mut self) -> Vec<ChangeBatch> {
        self.epoch += 1;
        let barrier = Barrier::new(Epoch(self.epoch), BarrierKind::Plain);
        self.operator.on_barrier(&barrier, &self.context, &mut self.out).unwrap();
        let batches = self.emitted();
        if let Some(twin) = &mut self.twin {
            let end = self.ends[(self.epoch - 1) as usize % self.ends.len()];
            twin.barrier(std::mem::take(&mut self.lines), &self.context.errors, end);
        }
        batches
    }

    /// Ends the epoch and compares what was emitted, in any order.
    #[track_caller]
    pub(super) fn gives(&mut self, expected: &str) {
        let mut lines: Vec<String> =
            self.barrier().iter().flat_map(|batch| lines(&batch.pretty())).collect();
        let mut expected = self::lines(expected);
        lines.sort();
        expected.sort();
        assert_eq!(lines, expected);
    }

    #[track_caller]
    pub(super) fn errors(&self, expected: &[&str]) {
        let errors = self.context.errors.rows();
        let text = |e: &crate::errors::RowError| {
            format!("{:+} {} [{}] {}", e.weight, e.position, e.row, e.message)
        };
        assert_eq!(errors.iter().map(text).collect::<Vec<_>>(), expected);
    }
}

fn output_of(plan: &Aggregate, schema: &SchemaRef) -> SchemaRef {
    let input = StreamPlan::values(arrow::array::RecordBatch::new_empty(Arc::clone(schema)));
    input.aggregate(plan.group.clone(), plan.calls.clone()).schema
}

/// Floats that were summed in another order may differ in their last digits.
pub(super) fn alike(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9),
        _ => false,
    }
}

pub(super) fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

pub(super) fn count_star() -> Call {
    Call::new("count", &[lit(1_i64)])
}

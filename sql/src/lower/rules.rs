//! The analyzer and optimizer rules of one-shot and of continuous queries.
//!
//! Both take DataFusion's and begin with ours, so that they agree on what a query means:
//! - DISTINCT ON is the first row of each group by `row_number`
//! - UNNEST of NULL gives no row
//! - ties in `row_number` and in ORDER BY ... LIMIT are broken by all columns: the engine does so by itself, one-shot
//!   plans get them as further sort keys. So a view and a one-shot query choose the same rows.
//! - -0.0 sorts as 0.0 does

use std::cell::Cell;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::execution::session_state::SessionState;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::optimizer::analyzer::function_rewrite::ApplyFunctionRewrites;
use datafusion::optimizer::analyzer::resolve_grouping_function::ResolveGroupingFunction;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::optimizer::{
    Analyzer, AnalyzerRule, ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule,
};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, DFSchema, Result as DataFusionResult};
use datafusion_expr::expr::{Sort as SortExpr, WindowFunction, WindowFunctionParams};
use datafusion_expr::expr_rewriter::FunctionRewrite;
use datafusion_expr::{
    Distinct, DistinctOn, Expr, LogicalPlan, LogicalPlanBuilder, Union, Window, WindowFrame,
    WindowFunctionDefinition, cast, lit,
};

use super::{check, grouping, lateral, scalar_subquery, set_operation, ties};
use crate::error::Result;
use crate::functions::semantics::{PostgresSemantics, make_canonical};

/// Checks, analyzes and optimizes a query that is to be continuous. Takes the plan as the SQL planner gave it: the
/// optimizer replaces `now()` by a constant.
pub(crate) fn optimize_streaming(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    check::refuse_changing_functions(&plan)?;
    let analyzer = Analyzer::with_rules(rules(true));
    let plan = analyzer.execute_and_check(plan, state.config_options(), |_, _| {})?;
    let kept =
        |rule: &&Arc<dyn OptimizerRule + Send + Sync>| !NOT_FOR_STREAMS.contains(&rule.name());
    let optimizer =
        Optimizer::with_rules(state.optimizers().iter().filter(kept).cloned().collect());
    Ok(optimizer.optimize(plan, state, |_, _| {})?)
}

/// Rules that make continuous plans slower or their answers arbitrary.
const NOT_FOR_STREAMS: [&str; 4] = [
    // Two aggregates instead of one; the engine counts distinct values itself.
    "single_distinct_aggregation_to_group_by",
    // Copies of a LIMIT below joins and unions would each keep state and choose rows on their own.
    "push_down_limit",
    // The engine's own order has all columns.
    TOTAL_ORDER,
    // Would turn a UNION of one table's filters into one scan with OR, which changes the counts of UNION ALL.
    "unions_to_filter",
];

const TOTAL_ORDER: &str = "total_order";

/// The analyzer rules of one-shot queries.
pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    rules(false)
}

/// The optimizer rules of one-shot queries: DataFusion's and ours.
pub(crate) fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    // Sums partial sums, whose type is another than that of what was to be summed.
    rules.retain(|rule| rule.name() != "single_distinct_aggregation_to_group_by");
    rules.push(Arc::new(TotalOrder));
    rules
}

fn rules(streaming: bool) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let semantics =
        vec![Arc::new(PostgresSemantics::new(streaming)) as Arc<dyn FunctionRewrite + Send + Sync>];
    vec![
        Arc::new(Meaning { streaming }),
        Arc::new(ApplyFunctionRewrites::new(semantics)),
        Arc::new(ResolveGroupingFunction::new()),
        Arc::new(TypeCoercion::new()),
    ]
}

/// Gives constructs PostgreSQL's meaning where DataFusion's plan has another.
#[derive(Debug)]
struct Meaning {
    streaming: bool,
}

impl AnalyzerRule for Meaning {
    fn name(&self) -> &str {
        "postgres_meaning"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        check::refuse_partial_not_in(&plan)?;
        let numbers = Cell::new(0);
        let plan = plan.transform_up_with_subqueries(|plan| {
            scalar_subquery::rewrite(plan, &numbers)?.transform_data(meant)
        })?;
        if self.streaming {
            set_operation::to_nodes(plan.data)
        } else {
            set_operation::to_numbered(plan.data)
        }
    }
}

/// One node with PostgreSQL's meaning.
fn meant(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Distinct(Distinct::On(distinct)) => {
            first_of_group(distinct).map(Transformed::yes)
        }
        LogicalPlan::Unnest(mut unnest) => {
            unnest.options = unnest.options.with_preserve_nulls(false);
            Ok(Transformed::yes(LogicalPlan::Unnest(unnest)))
        }
        LogicalPlan::Limit(limit) => ties::expand(limit),
        LogicalPlan::Union(union) => float_columns(union),
        LogicalPlan::Aggregate(aggregate) => grouping::compute_keys(aggregate),
        LogicalPlan::Join(join) => Ok(match lateral::flatten(&join)? {
            Some(flat) => Transformed::yes(flat),
            None => Transformed::no(LogicalPlan::Join(join)),
        }),
        other => Ok(Transformed::no(other)),
    }
}

/// Columns that are floats in one input and numerics in another are floats in all.
fn float_columns(union: Union) -> DataFusionResult<Transformed<LogicalPlan>> {
    let types = |column: usize| {
        union.inputs.iter().map(move |input| input.schema().field(column).data_type())
    };
    let width = union.inputs.first().map_or(0, |input| input.schema().fields().len());
    let is_regular = union.inputs.iter().all(|input| input.schema().fields().len() == width);
    // Integers, too: a union of them and floats has the type of its first input until types are coerced, and a
    // numeric beside it would win.
    let is_other = |data_type: &DataType| data_type.is_numeric() && !data_type.is_floating();
    let is_mixed =
        |column: &usize| types(*column).any(DataType::is_floating) && types(*column).any(is_other);
    let mixed = (0..width).filter(|column| is_regular && is_mixed(column)).collect::<Vec<_>>();
    if mixed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let widened = |input: &Arc<LogicalPlan>| {
        let exprs = input.schema().iter().enumerate().map(|(place, (qualifier, field))| {
            let column = Expr::Column(Column::from((qualifier, field)));
            if mixed.contains(&place) && is_other(field.data_type()) {
                cast(column, DataType::Float64).alias_qualified(qualifier.cloned(), field.name())
            } else {
                column
            }
        });
        let exprs = exprs.collect::<Vec<_>>();
        LogicalPlanBuilder::from(input.as_ref().clone()).project(exprs)?.build().map(Arc::new)
    };
    let inputs = union.inputs.iter().map(widened).collect::<DataFusionResult<Vec<_>>>()?;
    let union = Union::try_new_with_loose_types(inputs)?;
    Ok(Transformed::yes(LogicalPlan::Union(union)))
}

/// `row_number() OVER (PARTITION BY ... ORDER BY ...)`.
pub(super) fn row_number(partition_by: Vec<Expr>, order_by: Vec<SortExpr>) -> Expr {
    let params = WindowFunctionParams {
        args: vec![],
        partition_by,
        order_by,
        window_frame: WindowFrame::new(Some(true)),
        filter: None,
        null_treatment: None,
        distinct: false,
    };
    let fun = WindowFunctionDefinition::WindowUDF(row_number_udwf());
    Expr::WindowFunction(Box::new(WindowFunction { fun, params }))
}

/// DISTINCT ON as a filter on `row_number`.
fn first_of_group(distinct: DistinctOn) -> DataFusionResult<LogicalPlan> {
    let DistinctOn { on_expr, select_expr, sort_expr, input, schema } = distinct;
    let number = row_number(on_expr, sort_expr.unwrap_or_default());
    let numbered =
        LogicalPlanBuilder::from(Arc::unwrap_or_clone(input)).window([number])?.build()?;
    let rank = numbered.schema().columns().into_iter().next_back().map(Expr::Column);
    let first = rank.map_or_else(|| lit(true), |rank| rank.eq(lit(1u64)));
    let named = select_expr.into_iter().zip(schema.iter()).map(|(expr, (qualifier, field))| {
        expr.unalias().alias_qualified(qualifier.cloned(), field.name())
    });
    LogicalPlanBuilder::from(numbered).filter(first)?.project(named.collect::<Vec<_>>())?.build()
}

/// A limit that no result reaches.
const ALL_ROWS: i64 = 1 << 48;

/// Breaks ties by all columns, ascending, NULLs first, as the engine does.
#[derive(Debug)]
struct TotalOrder;

impl OptimizerRule for TotalOrder {
    fn name(&self) -> &str {
        TOTAL_ORDER
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> DataFusionResult<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Sort(mut sort) => {
                let keys = sort.expr.iter_mut().map(|key| &mut key.expr);
                let mut added = make_canonical(keys, sort.input.schema());
                if sort.fetch.is_some() {
                    added |= break_ties(&mut sort.expr, &[], sort.input.schema());
                }
                Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), added))
            }
            // The physical optimizer moves another order wanted above through an OFFSET without LIMIT.
            LogicalPlan::Limit(mut limit) if limit.fetch.is_none() && limit.skip.is_some() => {
                let LogicalPlan::Sort(sort) = limit.input.as_ref() else {
                    return Ok(Transformed::no(LogicalPlan::Limit(limit)));
                };
                let mut sort = sort.clone();
                sort.fetch = usize::try_from(ALL_ROWS).ok();
                break_ties(&mut sort.expr, &[], sort.input.schema());
                limit.input = Arc::new(LogicalPlan::Sort(sort));
                limit.fetch = Some(Box::new(lit(ALL_ROWS)));
                Ok(Transformed::yes(LogicalPlan::Limit(limit)))
            }
            LogicalPlan::Window(window) => {
                let Window { input, mut window_expr, schema } = window;
                let mut added = false;
                for expr in &mut window_expr {
                    let name = expr.schema_name().to_string();
                    if total_row_number(expr, input.schema()) {
                        // Nodes above know the column by the name that it had.
                        if !matches!(expr, Expr::Alias(_)) {
                            *expr = expr.clone().alias(name);
                        }
                        added = true;
                    }
                }
                let window = Window { input, window_expr, schema };
                Ok(Transformed::new_transformed(LogicalPlan::Window(window), added))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

fn total_row_number(expr: &mut Expr, input: &DFSchema) -> bool {
    match expr {
        Expr::Alias(alias) => total_row_number(&mut alias.expr, input),
        Expr::WindowFunction(over) if over.fun.name() == "row_number" => {
            let partition = over.params.partition_by.clone();
            break_ties(&mut over.params.order_by, &partition, input)
        }
        _ => false,
    }
}

/// Adds the columns by which rows are not yet ordered; whether there were any.
fn break_ties(order: &mut Vec<SortExpr>, partition: &[Expr], input: &DFSchema) -> bool {
    let before = order.len();
    for column in input.columns() {
        let mut column = Expr::Column(column);
        make_canonical(std::iter::once(&mut column), input);
        if !partition.contains(&column) && !order.iter().any(|sort| sort.expr == column) {
            order.push(SortExpr::new(column, true, true));
        }
    }
    order.len() > before
}

//! Chooses a fold for each call, and lets calls share: expressions, filters, and folds over the same of both.

use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_physical_expr::expressions::Literal;

use super::arguments::Argument;
use super::count::{BoolCounts, Count};
use super::distinct::Distinct;
use super::exact_sum::ExactSum;
use super::expressions::Expressions;
use super::extremum::{Extremum, Multiset};
use super::float_sum::FloatSum;
use super::fold::{Fold, Reading, What};
use super::generic::{Ordering, Recompute};
use super::moments::{Moment, Moments};
use super::running::Running;
use super::scalars::{Ordered, Scalar, scalar_of};
use super::sum::Sum;
use crate::error::{EngineError, Result};
use crate::plan::{AggregateCall, Expr};

/// The folds of an aggregate, and for each call the fold it reads.
pub(super) struct Calls {
    pub(super) expressions: Expressions,
    pub(super) folds: Vec<Box<dyn Fold>>,
    pub(super) outputs: Vec<CallOutput>,
}

/// One output column.
pub(super) struct CallOutput {
    /// The call, for error rows.
    pub(super) name: String,
    pub(super) fold: usize,
    pub(super) reading: Reading,
}

/// What a fold is of: equal ones are shared.
#[derive(PartialEq)]
struct FoldKey {
    kind: Kind,
    filter: Option<usize>,
    columns: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Count,
    Sum,
    FloatSum,
    Bool,
    Least,
    Greatest,
    Multiset,
    Moments,
    Distinct,
    Alone,
}

enum Planned {
    Fold(Box<dyn Fold>),
    /// Still open for more calls.
    Distinct(Box<Distinct>),
}

/// Turns calls into folds.
struct Planner<'a> {
    schema: &'a SchemaRef,
    append_only: bool,
    /// Distinct counts share no table.
    apart: bool,
    expressions: Expressions,
    folds: Vec<(FoldKey, Planned)>,
}

/// Folds for these calls over input of this schema.
///
/// # Errors
/// When a function cannot be maintained.
pub(super) fn plan_calls(
    calls: &[AggregateCall],
    schema: &SchemaRef,
    append_only: bool,
    apart: bool,
) -> Result<Calls> {
    let expressions = Expressions::default();
    let mut planner = Planner { schema, append_only, apart, expressions, folds: Vec::new() };
    let outputs = calls.iter().map(|call| {
        let filter = call.filter.as_ref().map(|filter| planner.expressions.filter(filter));
        let (fold, what) = match planner.columnar(call, filter)? {
            Some(found) => found,
            None => (planner.by_accumulator(call, filter)?, What::Value),
        };
        let data_type = call.function.field().data_type().clone();
        let reading = Reading { what, data_type };
        Ok(CallOutput { name: call.function.name().to_owned(), fold, reading })
    });
    let outputs = outputs.collect::<Result<_>>()?;
    let folds = planner.folds.into_iter().map(|(_, planned)| -> Box<dyn Fold> {
        match planned {
            Planned::Fold(fold) => fold,
            Planned::Distinct(counts) => counts,
        }
    });
    Ok(Calls { expressions: planner.expressions, folds: folds.collect(), outputs })
}

impl Planner<'_> {
    /// A fold of our own for the call, if there is one for its function and types.
    fn columnar(
        &mut self,
        call: &AggregateCall,
        filter: Option<usize>,
    ) -> Result<Option<(usize, What)>> {
        let arguments = call.function.expressions();
        let name = call.function.fun().name();
        let is_distinct = call.function.is_distinct();
        if name == "count" && !is_distinct {
            return Ok(Some((self.count(&arguments, filter), What::Value)));
        }
        if name == "count" {
            return self.count_distinct(&arguments, filter);
        }
        if let Some((moment, width)) = Moment::named(name)
            && !is_distinct
        {
            return self.moments(&arguments, filter, moment, width);
        }
        let [argument] = arguments.as_slice() else {
            return Ok(None);
        };
        let data_type = argument.data_type(self.schema)?;
        let result = call.function.field();
        Ok(match name {
            "sum" if !is_distinct => {
                self.sum(argument, &data_type, filter, What::Value, result.data_type())
            }
            "avg" if !is_distinct => {
                self.sum(argument, &data_type, filter, What::Mean, result.data_type())
            }
            "sum" | "avg" => {
                self.sum_distinct(argument, &data_type, filter, name, result.data_type())?
            }
            "min" if data_type == *result.data_type() => {
                self.extremum(argument, &data_type, filter, What::Least)
            }
            "max" if data_type == *result.data_type() => {
                self.extremum(argument, &data_type, filter, What::Greatest)
            }
            "bool_and" | "bool_or" if data_type == DataType::Boolean => {
                let column = self.expressions.argument(argument, filter);
                let what = if name == "bool_and" { What::All } else { What::Any };
                let make = || Box::new(BoolCounts::new(filter, column));
                Some((self.share(Kind::Bool, filter, vec![column], make), what))
            }
            _ => None,
        })
    }

    /// The fold of this kind over these columns, made if it is not there.
    fn share<F: Fold + 'static>(
        &mut self,
        kind: Kind,
        filter: Option<usize>,
        columns: Vec<usize>,
        make: impl FnOnce() -> Box<F>,
    ) -> usize {
        let key = FoldKey { kind, filter, columns };
        if let Some(found) = self.folds.iter().position(|(other, _)| *other == key) {
            return found;
        }
        self.folds.push((key, Planned::Fold(make())));
        self.folds.len() - 1
    }

    fn count(&mut self, arguments: &[Expr], filter: Option<usize>) -> usize {
        let mut columns = Vec::new();
        for argument in arguments {
            let is_null_possible = argument.nullable(self.schema).unwrap_or(true);
            // Without NULLs it counts rows, as count(*) does. It must still be computable in each row.
            if is_null_possible || literal(argument).is_none() && !is_column(argument) {
                columns.push(self.expressions.argument(argument, filter));
            }
        }
        let make_columns = columns.clone();
        self.share(Kind::Count, filter, columns, || Box::new(Count::new(filter, make_columns)))
    }

    fn count_distinct(
        &mut self,
        arguments: &[Expr],
        filter: Option<usize>,
    ) -> Result<Option<(usize, What)>> {
        let types = arguments.iter().map(|argument| argument.data_type(self.schema));
        let types = types.collect::<datafusion_common::Result<Vec<_>>>()?;
        let columns: Vec<usize> =
            arguments.iter().map(|argument| self.expressions.argument(argument, filter)).collect();
        let key = FoldKey { kind: Kind::Distinct, filter: None, columns: columns.clone() };
        for (place, (other, planned)) in self.folds.iter_mut().enumerate() {
            if let Planned::Distinct(counts) = planned
                && *other == key
                && let Some(call) = counts.add_call(filter)
            {
                return Ok(Some((place, What::Call(call))));
            }
        }
        let Ok(mut counts) = Distinct::new(columns, &types, self.append_only) else {
            return Ok(None);
        };
        if self.apart {
            counts = counts.alone();
        }
        let call = counts.add_call(filter);
        let call = call.ok_or_else(|| EngineError::internal("no room for a distinct count"))?;
        self.folds.push((key, Planned::Distinct(Box::new(counts))));
        Ok(Some((self.folds.len() - 1, What::Call(call))))
    }

    fn sum_distinct(
        &mut self,
        argument: &Expr,
        data_type: &DataType,
        filter: Option<usize>,
        name: &str,
        result: &DataType,
    ) -> Result<Option<(usize, What)>> {
        let is_float = matches!(data_type, DataType::Float32 | DataType::Float64);
        let what = if name == "sum" { What::Value } else { What::Mean };
        if !is_float && (Sum::new(None, 0, data_type).is_none() || !Sum::gives(what, result)) {
            return Ok(None);
        }
        let found = self.count_distinct(std::slice::from_ref(argument), filter)?;
        let Some((fold, What::Call(call))) = found else {
            return Ok(None);
        };
        if let Planned::Distinct(counts) = &mut self.folds[fold].1 {
            counts.keep_sums(data_type);
        }
        let what = if name == "sum" { What::SumOfCall(call) } else { What::MeanOfCall(call) };
        Ok(Some((fold, what)))
    }

    fn sum(
        &mut self,
        argument: &Expr,
        data_type: &DataType,
        filter: Option<usize>,
        what: What,
        result: &DataType,
    ) -> Option<(usize, What)> {
        if matches!(data_type, DataType::Float32 | DataType::Float64) {
            let column = self.expressions.argument(argument, filter);
            let columns = vec![column];
            let fold = if self.append_only {
                let make = || Box::new(FloatSum::<f64>::new(filter, column));
                self.share(Kind::FloatSum, filter, columns, make)
            } else {
                let make = || Box::new(FloatSum::<ExactSum>::new(filter, column));
                self.share(Kind::FloatSum, filter, columns, make)
            };
            return Some((fold, what));
        }
        Sum::new(filter, 0, data_type).filter(|_| Sum::gives(what, result))?;
        let column = self.expressions.argument(argument, filter);
        let sum = Sum::new(filter, column, data_type)?;
        Some((self.share(Kind::Sum, filter, vec![column], || Box::new(sum)), what))
    }

    fn moments(
        &mut self,
        arguments: &[Expr],
        filter: Option<usize>,
        moment: Moment,
        width: usize,
    ) -> Result<Option<(usize, What)>> {
        for argument in arguments {
            if argument.data_type(self.schema)? != DataType::Float64 {
                return Ok(None);
            }
        }
        if arguments.len() != width {
            return Ok(None);
        }
        let columns: Vec<usize> =
            arguments.iter().map(|argument| self.expressions.argument(argument, filter)).collect();
        let make = columns.clone();
        let fold =
            self.share(Kind::Moments, filter, columns, || Box::new(Moments::new(filter, make)));
        Ok(Some((fold, What::Moment(moment))))
    }

    fn extremum(
        &mut self,
        argument: &Expr,
        data_type: &DataType,
        filter: Option<usize>,
        what: What,
    ) -> Option<(usize, What)> {
        let scalar = scalar_of(data_type)?;
        let column = self.expressions.argument(argument, filter);
        Some(match scalar {
            Scalar::Narrow => self.extremum_of::<i64>(column, data_type, filter, what),
            Scalar::Wide => self.extremum_of::<i128>(column, data_type, filter, what),
            Scalar::Bytes => self.extremum_of::<Box<[u8]>>(column, data_type, filter, what),
        })
    }

    fn extremum_of<K: Ordered>(
        &mut self,
        column: usize,
        data_type: &DataType,
        filter: Option<usize>,
        what: What,
    ) -> (usize, What) {
        let greatest = what == What::Greatest;
        let fold = if self.append_only {
            let kind = if greatest { Kind::Greatest } else { Kind::Least };
            let make = || Box::new(Extremum::<K>::new(filter, column, data_type, greatest));
            self.share(kind, filter, vec![column], make)
        } else {
            let make = || Box::new(Multiset::<K>::new(filter, column, data_type));
            self.share(Kind::Multiset, filter, vec![column], make)
        };
        (fold, what)
    }

    /// A fold with DataFusion's accumulator.
    fn by_accumulator(&mut self, call: &AggregateCall, filter: Option<usize>) -> Result<usize> {
        let function = &call.function;
        let mut arguments = Vec::new();
        for expr in function.expressions() {
            let data_type = expr.data_type(self.schema)?;
            let argument = match literal(&expr) {
                Some(literal) => Argument::Literal(literal.value().clone()),
                None => Argument::Column(self.expressions.argument(&expr, filter)),
            };
            arguments.push((argument, data_type));
        }
        let fold: Box<dyn Fold> = if self.append_only && Running::suits(function) {
            Box::new(Running::new(function, filter, arguments)?)
        } else {
            let mut orders = Vec::new();
            for order in function.order_bys() {
                let SortOptions { descending, nulls_first } = order.options;
                orders.push(Ordering {
                    column: self.expressions.argument(&order.expr, filter),
                    data_type: order.expr.data_type(self.schema)?,
                    options: SortOptions { descending, nulls_first },
                });
            }
            let made = Recompute::new(function, self.schema, filter, arguments, orders);
            let refused = |error| EngineError::Unsupported(format!("{}: {error}", function.name()));
            Box::new(made.map_err(refused)?)
        };
        let key = FoldKey { kind: Kind::Alone, filter, columns: vec![self.folds.len()] };
        self.folds.push((key, Planned::Fold(fold)));
        Ok(self.folds.len() - 1)
    }
}

fn literal(expr: &Expr) -> Option<&Literal> {
    expr.downcast_ref::<Literal>()
}

fn is_column(expr: &Expr) -> bool {
    Arc::as_ref(expr).downcast_ref::<datafusion_physical_expr::expressions::Column>().is_some()
}

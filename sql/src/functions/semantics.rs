//! Where PostgreSQL's operators and casts differ from DataFusion's, puts our functions in their place.
//!
//! - integers: `+`, `-`, `*` fail on overflow instead of wrapping
//! - floats: division by zero fails; `round` and casts to integers round half to even; whatever gives a NaN gives the same one
//! - numerics: division keeps at least 16 digits after the point; casts to integers round half away from zero
//! - text and `bytea` or arrays: casts read and write PostgreSQL's text forms
//! - DISTINCT and ORDER BY in an aggregate, PARTITION BY and ORDER BY of a window take -0.0 for 0.0
//! - a numeric beside a float is taken as a float (DataFusion would compare both as decimals, which cannot hold all floats)
//!
//! It is an analyzer rule before type coercion, over the types that the user's operands have.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::expr::{
    AggregateFunction, Between, BinaryExpr, Cast, ScalarFunction, WindowFunction,
};
use datafusion_expr::expr_rewriter::FunctionRewrite;
use datafusion_expr::{Expr, ExprSchemable, Operator, ScalarUDF};

use super::arithmetic::Arithmetic;
use super::text_forms::{self, has_text_form, is_text};

/// The rewrite; see the module's text.
#[derive(Debug)]
pub(crate) struct PostgresSemantics {
    round: Arc<ScalarUDF>,
    streaming: bool,
}

impl PostgresSemantics {
    /// `streaming`: for a continuous query.
    pub(crate) fn new(streaming: bool) -> Self {
        Self { round: datafusion::functions::math::round(), streaming }
    }

    fn cast(&self, cast: &Cast, schema: &DFSchema) -> Option<Expr> {
        let to = cast.field.data_type();
        let argument = cast.expr.as_ref().clone();
        if let Ok(from) = argument.get_type(schema) {
            if is_text(&from) && has_text_form(to) {
                return Some(from_text(argument, to));
            }
            if is_text(to) && has_text_form(&from) {
                let text = call_udf(text_forms::writer(), vec![argument]);
                return Some(Expr::Cast(Cast::new_from_field(
                    Box::new(text),
                    Arc::clone(&cast.field),
                )));
            }
        }
        if to.is_floating() && argument.get_type(schema).is_ok_and(|from| is_text(&from)) {
            return Some(call(Arithmetic::OneNan, vec![Expr::Cast(cast.clone())]));
        }
        if !to.is_integer() {
            return None;
        }
        let rounded = match argument.get_type(schema).ok()? {
            from if from.is_floating() => call(Arithmetic::RoundEven, vec![argument]),
            from if from.is_decimal() => Expr::ScalarFunction(ScalarFunction::new_udf(
                Arc::clone(&self.round),
                vec![argument],
            )),
            _ => return None,
        };
        Some(Expr::Cast(Cast::new_from_field(Box::new(rounded), Arc::clone(&cast.field))))
    }
}

impl FunctionRewrite for PostgresSemantics {
    fn name(&self) -> &str {
        "postgres_semantics"
    }

    fn rewrite(
        &self,
        expr: Expr,
        schema: &DFSchema,
        _config: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Transformed { data: expr, transformed: widened, .. } = widen_numerics(expr, schema)?;
        let replacement = match &expr {
            Expr::BinaryExpr(binary) => operator(binary, schema),
            Expr::Cast(cast) => self.cast(cast, schema),
            Expr::ScalarFunction(function) if gives_nan(function.func.name()) => {
                only_nan(&expr, schema)
            }
            Expr::ScalarFunction(function) if function.args.len() == 2 => places(function),
            Expr::Negative(of) if !matches!(**of, Expr::Literal(..)) => only_nan(&expr, schema),
            Expr::AggregateFunction(function) if !self.streaming => distinct(function, schema),
            Expr::WindowFunction(over) if !self.streaming => over_floats(over, schema),
            Expr::ScalarFunction(function) if function.args.len() == 1 => {
                let is_round = function.func.name() == "round";
                let argument = &function.args[0];
                let float = || argument.get_type(schema).is_ok_and(|t| t.is_floating());
                (is_round && float()).then(|| call(Arithmetic::RoundEven, function.args.clone()))
            }
            _ => None,
        };
        Ok(match replacement {
            Some(replacement) => Transformed::yes(replacement),
            None if widened => Transformed::yes(expr),
            None => Transformed::no(expr),
        })
    }
}

/// DataFusion's DISTINCT aggregates tell floats apart by their bits; the engine's own do not.
fn distinct(function: &AggregateFunction, schema: &DFSchema) -> Option<Expr> {
    let mut function = function.clone();
    let params = &mut function.params;
    let args = params.args.iter_mut().filter(|_| params.distinct);
    let sorts = params.order_by.iter_mut().map(|sort| &mut sort.expr);
    let changed = make_canonical(args.chain(sorts), schema);
    changed.then_some(Expr::AggregateFunction(function))
}

/// DataFusion sorts -0.0 before 0.0.
fn over_floats(over: &WindowFunction, schema: &DFSchema) -> Option<Expr> {
    let mut over = over.clone();
    let sorts = over.params.order_by.iter_mut().map(|sort| &mut sort.expr);
    let changed = make_canonical(over.params.partition_by.iter_mut().chain(sorts), schema);
    changed.then(|| Expr::from(over))
}

/// Lets floats that are equal have the same bits; whether there are any that did not.
pub(crate) fn make_canonical<'a>(
    exprs: impl Iterator<Item = &'a mut Expr>,
    schema: &DFSchema,
) -> bool {
    let is_canonical = |expr: &Expr| match expr {
        Expr::ScalarFunction(function) => function.func == Arithmetic::Canonical.udf().into(),
        _ => false,
    };
    let mut changed = false;
    for expr in exprs {
        let is_float = expr.get_type(schema).is_ok_and(|of| of.is_floating());
        if is_float && !is_canonical(expr) {
            *expr = call(Arithmetic::Canonical, vec![expr.clone()]);
            changed = true;
        }
    }
    changed
}

/// Functions whose result may be a NaN when no argument is one: of which sign is up to the machine.
fn gives_nan(function: &str) -> bool {
    matches!(
        function,
        "sqrt"
            | "ln"
            | "log"
            | "log2"
            | "log10"
            | "power"
            | "sin"
            | "cos"
            | "tan"
            | "cot"
            | "asin"
            | "acos"
            | "atanh"
            | "acosh"
    )
}

/// A float with one NaN for all.
fn only_nan(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let is_float = expr.get_type(schema).is_ok_and(|of| of.is_floating());
    is_float.then(|| call(Arithmetic::OneNan, vec![expr.clone()]))
}

/// `round(n, 2)`: its scale follows from the number, as long as that is a literal. Under a cast, which type coercion would put
/// over it, it is none, and what was compared with it meanwhile would be of another scale.
fn places(function: &ScalarFunction) -> Option<Expr> {
    if !matches!(function.func.name(), "round" | "trunc") {
        return None;
    }
    let literal = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int64(Some(places)), _) => Some(*places),
        _ => None,
    };
    let places = match &function.args[1] {
        Expr::Negative(places) => literal(places)?.checked_neg()?,
        places => literal(places)?,
    };
    let places = ScalarValue::Int32(Some(i32::try_from(places).ok()?));
    let args = vec![function.args[0].clone(), Expr::Literal(places, None)];
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function.func), args)))
}

/// Functions whose arguments get one common type.
const COMMON_TYPE: [&str; 7] =
    ["coalesce", "nvl", "ifnull", "nullif", "greatest", "least", "make_array"];

/// Casts numerics to double precision where they stand beside floats.
fn widen_numerics(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let changed = match &mut expr {
        Expr::BinaryExpr(binary) => {
            let number = binary.op.is_numerical_operators() || binary.op.supports_propagation();
            let compares =
                matches!(binary.op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom);
            (number || compares) && unify(vec![&mut binary.left, &mut binary.right], schema)
        }
        Expr::Between(between) => {
            let Between { expr, low, high, .. } = between;
            unify(vec![expr, low, high], schema)
        }
        Expr::InList(list) => {
            let values = list.list.iter_mut();
            unify(std::iter::once(list.expr.as_mut()).chain(values).collect(), schema)
        }
        Expr::Case(case) => {
            let (whens, thens): (Vec<_>, Vec<_>) = case
                .when_then_expr
                .iter_mut()
                .map(|(when, then)| (&mut **when, &mut **then))
                .unzip();
            let otherwise = case.else_expr.as_deref_mut();
            let mut changed = unify(thens.into_iter().chain(otherwise).collect(), schema);
            if let Some(operand) = case.expr.as_deref_mut() {
                changed |= unify(std::iter::once(operand).chain(whens).collect(), schema);
            }
            changed
        }
        Expr::ScalarFunction(function) if COMMON_TYPE.contains(&function.func.name()) => {
            unify(function.args.iter_mut().collect(), schema)
        }
        _ => false,
    };
    Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) })
}

fn unify(exprs: Vec<&mut Expr>, schema: &DFSchema) -> bool {
    let types = exprs.iter().map(|expr| expr.get_type(schema).unwrap_or(DataType::Null));
    let types = types.collect::<Vec<_>>();
    let mixed = types.iter().any(DataType::is_floating) && types.iter().any(DataType::is_decimal);
    for (expr, data_type) in exprs.into_iter().zip(types) {
        if mixed && data_type.is_decimal() {
            let argument = std::mem::replace(expr, Expr::Literal(ScalarValue::Null, None));
            *expr = datafusion_expr::cast(argument, DataType::Float64);
        }
    }
    mixed
}

/// The common type of two columns in a set operation, where DataFusion's is not PostgreSQL's.
pub(crate) fn common_float(left: &DataType, right: &DataType) -> Option<DataType> {
    let mixed =
        (left.is_floating() && right.is_decimal()) || (left.is_decimal() && right.is_floating());
    mixed.then_some(DataType::Float64)
}

fn operator(binary: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    if !matches!(binary.op, Plus | Minus | Multiply | Divide | Modulo) {
        return None;
    }
    let (left, right) = (binary.left.get_type(schema).ok()?, binary.right.get_type(schema).ok()?);
    let numbers = |t: &DataType| t.is_numeric() || *t == DataType::Null;
    if !numbers(&left) || !numbers(&right) {
        return None;
    }
    let floats = left.is_floating() || right.is_floating();
    let decimals = left.is_decimal() || right.is_decimal();
    let integers = left.is_integer() && right.is_integer();
    let function = match binary.op {
        Plus if integers => Arithmetic::IntAdd,
        Minus if integers => Arithmetic::IntSubtract,
        Multiply if integers => Arithmetic::IntMultiply,
        Plus if floats => Arithmetic::FloatAdd,
        Minus if floats => Arithmetic::FloatSubtract,
        Multiply if floats => Arithmetic::FloatMultiply,
        Divide if floats => Arithmetic::FloatDivide,
        Divide if decimals => Arithmetic::NumericDivide,
        Modulo if floats => Arithmetic::Modulo,
        _ => return None,
    };
    Some(call(function, vec![binary.left.as_ref().clone(), binary.right.as_ref().clone()]))
}

fn from_text(text: Expr, target: &DataType) -> Expr {
    call_udf(text_forms::reader(target), vec![text])
}

fn call_udf(function: ScalarUDF, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), args))
}

fn call(function: Arithmetic, args: Vec<Expr>) -> Expr {
    call_udf(function.udf(), args)
}

//! Where PostgreSQL's operators and casts differ from DataFusion's, puts our functions in their place.
//!
//! - integers: `+`, `-`, `*` fail on overflow instead of wrapping
//! - floats: division by zero fails; `round` and casts to integers round half to even
//! - numerics: division keeps at least 16 digits after the point; casts to integers round half away from zero
//!
//! It runs before type coercion, over the types that the user's operands have.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{DFSchema, Result};
use datafusion_expr::expr::{BinaryExpr, Cast, ScalarFunction};
use datafusion_expr::expr_rewriter::FunctionRewrite;
use datafusion_expr::{Expr, ExprSchemable, Operator, ScalarUDF};

use super::arithmetic::Arithmetic;

/// The rewrite; see the module's text.
#[derive(Debug)]
pub(super) struct PostgresSemantics {
    round: Arc<ScalarUDF>,
}

impl PostgresSemantics {
    pub(super) fn new() -> Self {
        Self { round: datafusion::functions::math::round() }
    }

    fn cast(&self, cast: &Cast, schema: &DFSchema) -> Option<Expr> {
        let to = cast.field.data_type();
        if !to.is_integer() {
            return None;
        }
        let argument = cast.expr.as_ref().clone();
        let rounded = match argument.get_type(schema).ok()? {
            from if from.is_floating() => call(Arithmetic::RoundEven, vec![argument]),
            from if from.is_decimal() => {
                Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&self.round), vec![argument]))
            }
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
        let replacement = match &expr {
            Expr::BinaryExpr(binary) => operator(binary, schema),
            Expr::Cast(cast) => self.cast(cast, schema),
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
            None => Transformed::no(expr),
        })
    }
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
        Divide if floats => Arithmetic::FloatDivide,
        Divide if decimals => Arithmetic::NumericDivide,
        Modulo if floats => Arithmetic::Modulo,
        _ => return None,
    };
    Some(call(function, vec![binary.left.as_ref().clone(), binary.right.as_ref().clone()]))
}

fn call(function: Arithmetic, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function.udf()), args))
}

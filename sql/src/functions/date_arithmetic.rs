//! `date + interval` is a timestamp, `date + integer` a date, `date - date` a number of days: as in PostgreSQL, and not
//! a date, an error and a duration.
//!
//! It is done while SQL is planned, since the types of what stands around depend on it.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use datafusion_common::{DFSchema, Result};
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion_expr::{Expr, ExprSchemable, cast};

/// The planner of these operators.
#[derive(Debug)]
pub(crate) struct DateArithmetic;

impl ExprPlanner for DateArithmetic {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_plus = match expr.op {
            BinaryOperator::Plus => true,
            BinaryOperator::Minus => false,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let is_interval = |t: &DataType| matches!(t, DataType::Interval(_));
        let RawBinaryExpr { op, left: one, right: other } = expr;
        let planned = match (left, right) {
            (DataType::Date32, ref span) if is_interval(span) => {
                combine(is_plus, timestamp(one), other)
            }
            (ref span, DataType::Date32) if is_plus && is_interval(span) => timestamp(other) + one,
            (DataType::Date32, ref days) if days.is_integer() => {
                date(combine(is_plus, number(one), number(other)))
            }
            (ref days, DataType::Date32) if is_plus && days.is_integer() => {
                date(number(one) + number(other))
            }
            (DataType::Date32, DataType::Date32) if !is_plus => number(one) - number(other),
            _ => {
                let expr = RawBinaryExpr { op, left: one, right: other };
                return Ok(PlannerResult::Original(expr));
            }
        };
        Ok(PlannerResult::Planned(planned))
    }
}

fn combine(is_plus: bool, left: Expr, right: Expr) -> Expr {
    if is_plus { left + right } else { left - right }
}

fn timestamp(date: Expr) -> Expr {
    cast(date, DataType::Timestamp(TimeUnit::Microsecond, None))
}

/// Days since 1970.
fn number(days: Expr) -> Expr {
    cast(days, DataType::Int32)
}

fn date(days: Expr) -> Expr {
    cast(days, DataType::Date32)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{run, types};

    #[test]
    fn dates_and_spans() {
        assert_eq!(
            run(
                "SELECT date '2020-01-31' + interval '1 month', interval '1 hour' + date '2020-01-31'"
            ),
            "2020-02-29T00:00:00|2020-01-31T01:00:00"
        );
        assert_eq!(run("SELECT date '2020-03-01' - interval '1 day'"), "2020-02-29T00:00:00");
        let types = types("SELECT date '2020-01-31' - interval '1 month', date '2020-01-01' + 1");
        assert!(types.starts_with("Timestamp"), "{types}");
        assert!(types.ends_with("Date32"), "{types}");
    }

    #[test]
    fn dates_and_days() {
        assert_eq!(
            run("SELECT date '2020-02-28' + 2, 1 + date '2020-02-28', date '2020-03-01' - 1"),
            "2020-03-01|2020-02-29|2020-02-29"
        );
        assert_eq!(run("SELECT date '2020-03-01' - date '2020-02-01'"), "29");
    }
}

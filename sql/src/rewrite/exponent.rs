//! Numbers with an exponent, `1e300`: the planner would make numerics of a scale that does not exist.
//!
//! Those that 38 digits hold become numerics, others (which PostgreSQL would hold as numerics, too) floats.

use datafusion::sql::sqlparser::ast::{Expr, Value};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{Result, SqlError};

const DIGITS_MAX: usize = 38;

/// Rewrites a number in place.
pub(super) fn rewrite(expr: &mut Expr) -> Result<()> {
    let Expr::Value(value) = &*expr else { return Ok(()) };
    let Value::Number(text, _) = &value.value else { return Ok(()) };
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else { return Ok(()) };
    let sql = match plain(mantissa, exponent) {
        Some((digits, precision, scale)) => {
            format!("CAST('{digits}' AS NUMERIC({precision}, {scale}))")
        }
        None => format!("CAST('{text}' AS DOUBLE PRECISION)"),
    };
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&sql);
    *expr = parsed.and_then(|mut parser| parser.parse_expr()).map_err(SqlError::internal)?;
    Ok(())
}

/// The number without exponent, its digits and those behind the point; `None` when they are too many.
fn plain(mantissa: &str, exponent: &str) -> Option<(String, usize, usize)> {
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let most = i64::try_from(DIGITS_MAX).ok()?;
    if !(-most..=most).contains(&point) || digits.len() > DIGITS_MAX {
        return None;
    }
    let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
    let before = zeros(-point);
    let after = zeros(point - i64::try_from(digits.len()).ok()?);
    let all = format!("{before}{digits}{after}");
    let (whole, fraction) = all.split_at(usize::try_from(point).unwrap_or(0));
    let precision = all.len().max(1);
    if precision > DIGITS_MAX {
        return None;
    }
    let number =
        if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") };
    Some((number, precision, fraction.len()))
}

#[cfg(test)]
mod tests {
    use super::plain;

    fn text(mantissa: &str, exponent: &str) -> Option<String> {
        plain(mantissa, exponent)
            .map(|(number, precision, scale)| format!("{number} ({precision}, {scale})"))
    }

    #[test]
    fn exponents_move_the_point() {
        assert_eq!(text("1", "3").as_deref(), Some("1000 (4, 0)"));
        assert_eq!(text("1.5", "3").as_deref(), Some("1500 (4, 0)"));
        assert_eq!(text("1.25", "1").as_deref(), Some("12.5 (3, 1)"));
        assert_eq!(text("1.5", "-3").as_deref(), Some(".0015 (4, 4)"));
        assert_eq!(text("12", "-2").as_deref(), Some(".12 (2, 2)"));
        assert_eq!(text("1", "37").map(|text| text.len()), Some(38 + " (38, 0)".len()));
        assert_eq!(text("1", "38"), None);
        assert_eq!(text("1", "300"), None);
        assert_eq!(text("1", "-300"), None);
    }
}

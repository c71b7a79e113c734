//! The text forms of `bytea` and arrays: casts that DataFusion does byte by byte or not at all.
//!
//! - text to `bytea`: `\xdead`, or the escape form in which `\\` is a backslash and `\001` a byte
//! - text to an array: `{1,NULL,"a b"}`, each element read as its type
//! - both to text again
//!
//! `read` and `write` work on arrays; the two functions around them stand in plans, put there by `semantics`. Nobody
//! calls them by name.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, GenericListArray, ListArray, StringViewArray,
    StringViewBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::BinaryOperator;
use datafusion_common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::array_literal;
use crate::error::SqlError;

/// Whether casts between text and this type are done here.
pub(crate) fn has_text_form(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::List(_))
}

pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The function that reads texts as this type.
pub(crate) fn reader(target: &DataType) -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::from(TextForm { name: "from_text", target: target.clone(), signature })
}

/// The function that writes values as text.
pub(crate) fn writer() -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::from(TextForm { name: "to_text", target: DataType::Utf8View, signature })
}

/// Reads a literal without type beside a value that has a text form as one of these: `arr = '{1,2}'`. It is done while SQL
/// is planned, which knows no such comparison.
#[derive(Debug)]
pub(super) struct LiteralOperands;

impl ExprPlanner for LiteralOperands {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        if matches!(expr.op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
            expr.left = read_literal(expr.left, &expr.right, schema);
            expr.right = read_literal(expr.right, &expr.left, schema);
        }
        Ok(PlannerResult::Original(expr))
    }
}

fn read_literal(literal: Expr, other: &Expr, schema: &DFSchema) -> Expr {
    let is_literal = matches!(&literal, Expr::Literal(value, _) if is_text(&value.data_type()));
    match other.get_type(schema) {
        Ok(target) if is_literal && has_text_form(&target) => {
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(reader(&target)), vec![literal]))
        }
        _ => literal,
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextForm {
    name: &'static str,
    target: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for TextForm {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.target.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_scalars = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let values = args.args[0].to_array(if all_scalars { 1 } else { args.number_rows })?;
        let result = match is_text(&self.target) {
            true => write(&values)?,
            false => read(&values, &self.target)?,
        };
        if all_scalars {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

/// Texts as values of a type.
///
/// # Errors
/// 22P02 and 22023, as in PostgreSQL.
pub(crate) fn read(texts: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    match target {
        DataType::Binary => {
            let mut builder = BinaryBuilder::new();
            for text in texts {
                builder.append_option(text.map(bytes).transpose()?);
            }
            Ok(Arc::new(builder.finish()))
        }
        DataType::List(field) => {
            let (mut elements, mut lengths) = (Vec::new(), Vec::with_capacity(texts.len()));
            for text in texts {
                let Some(text) = text else {
                    lengths.push(0);
                    continue;
                };
                let parsed = array_literal::parse(text).ok_or_else(|| {
                    SqlError::new("22P02", format!("malformed array literal: \"{text}\""))
                })?;
                lengths.push(parsed.len());
                elements.extend(parsed);
            }
            let elements: ArrayRef = Arc::new(elements.into_iter().collect::<StringViewArray>());
            let elements = read(&elements, field.data_type())?;
            let valid = NullBuffer::from_iter(texts.iter().map(|text| text.is_some()));
            let offsets = OffsetBuffer::from_lengths(lengths);
            Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, elements, Some(valid))?))
        }
        other => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let texts: ArrayRef = Arc::new(texts.clone());
            Ok(cast_with_options(&texts, other, &options)?)
        }
    }
}

/// Values as text.
///
/// # Errors
/// When a value has no text.
pub(crate) fn write(values: &ArrayRef) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Binary => {
            let mut builder = StringViewBuilder::new();
            for value in values.as_binary::<i32>() {
                builder.append_option(value.map(hex));
            }
            Ok(Arc::new(builder.finish()))
        }
        DataType::List(_) => list_texts(values.as_list::<i32>()),
        DataType::Boolean => {
            let texts = values.as_boolean().iter();
            let texts = texts.map(|value| value.map(|value| if value { "t" } else { "f" }));
            Ok(Arc::new(texts.collect::<StringViewArray>()))
        }
        DataType::Timestamp(..) => {
            let texts = cast(values, &DataType::Utf8View)?;
            let spaced = texts.as_string_view().iter();
            let spaced = spaced.map(|text| text.map(|text| text.replacen('T', " ", 1)));
            Ok(Arc::new(spaced.collect::<StringViewArray>()))
        }
        _ => Ok(cast(values, &DataType::Utf8View)?),
    }
}

fn list_texts(lists: &GenericListArray<i32>) -> Result<ArrayRef> {
    let is_array = matches!(lists.value_type(), DataType::List(_));
    let elements = write(lists.values())?;
    let elements = elements.as_string_view();
    let mut builder = StringViewBuilder::with_capacity(lists.len());
    for (row, bounds) in lists.offsets().windows(2).enumerate() {
        if lists.is_null(row) {
            builder.append_null();
            continue;
        }
        let place = |bound: i32| usize::try_from(bound).unwrap_or_default();
        let mut text = String::from("{");
        for at in place(bounds[0])..place(bounds[1]) {
            if text.len() > 1 {
                text.push(',');
            }
            let element = elements.is_valid(at).then(|| elements.value(at));
            array_literal::write(element, is_array, &mut text);
        }
        text.push('}');
        builder.append_value(text);
    }
    Ok(Arc::new(builder.finish()))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + bytes.len() * 2);
    text.push_str("\\x");
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text
}

/// The bytes of a `bytea` literal.
fn bytes(text: &str) -> Result<Vec<u8>, DataFusionError> {
    match text.strip_prefix("\\x") {
        Some(digits) => hex_bytes(digits),
        None => escaped_bytes(text.as_bytes()),
    }
}

fn hex_bytes(text: &str) -> Result<Vec<u8>, DataFusionError> {
    let mut digits = Vec::with_capacity(text.len());
    for c in text.chars().filter(|c| !c.is_ascii_whitespace()) {
        let digit = c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let bad = || SqlError::new("22023", format!("invalid hexadecimal digit: \"{c}\""));
        digits.push(digit.ok_or_else(bad)?);
    }
    if digits.len() % 2 == 1 {
        return Err(SqlError::new("22023", "invalid hexadecimal data: odd number of digits").into());
    }
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn escaped_bytes(text: &[u8]) -> Result<Vec<u8>, DataFusionError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match rest {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => return Err(SqlError::new("22P02", "invalid input syntax for type bytea").into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;

    #[test]
    fn bytes_and_text() {
        assert_eq!(run(r"SELECT '\xDE ad'::bytea, 'a\\\001'::bytea"), "dead|615c01");
        assert_eq!(run(r"SELECT '\xdead'::bytea::text"), r"\xdead");
        for (wrong, message) in [
            (r"\xd", "odd number of digits"),
            (r"\xzz", "invalid hexadecimal digit"),
            (r"a\9", "invalid input syntax for type bytea"),
        ] {
            let found = run(&format!("SELECT '{wrong}'::bytea"));
            assert!(found.contains(message), "{wrong}: {found}");
        }
    }

    #[test]
    fn arrays_and_text() {
        assert_eq!(run("SELECT '{1,NULL,3}'::int[], '{}'::int[]"), "[1, NULL, 3]|[]");
        assert_eq!(run("SELECT '{1,NULL,3}'::int[]::text"), "{1,NULL,3}");
        assert_eq!(
            run(r#"SELECT ARRAY['a b', '', 'c', 'NULL', NULL, 'q"']::text"#),
            r#"{"a b","",c,"NULL",NULL,"q\""}"#
        );
        assert_eq!(run("SELECT ARRAY[true, false]::text"), "{t,f}");
        assert_eq!(run("SELECT ARRAY[ARRAY[1, 2], ARRAY[3, 4]]::text"), "{{1,2},{3,4}}");
        assert!(run("SELECT '1,2'::int[]").contains("malformed array literal: \"1,2\""));
        assert_eq!(run("SELECT ARRAY[1, 2] = '{1,2}'"), "true");
    }
}

//! Arithmetic with PostgreSQL's results: exact or an error, never a wrapped, truncated or infinite number.
//!
//! `semantics` puts these in the place of the operators whose results differ in DataFusion. Their names are shown by
//! EXPLAIN only; `mod` is also called by users.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, PrimitiveArray};
use arrow::compute::kernels::numeric::{add, mul, rem, sub};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Float32Type, Float64Type, i256,
};
use arrow::error::ArrowError;
use datafusion_common::{DataFusionError, Result, ScalarValue, internal_err, plan_err};
use datafusion_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion_expr::{
    ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use millstream_engine::key::one_nan;

use super::aggregate::{AVG_SCALE, NUMERIC_PRECISION};

/// What one of these functions computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    /// `a + b` over integers.
    IntAdd,
    /// `a - b` over integers.
    IntSubtract,
    /// `a * b` over integers.
    IntMultiply,
    /// `a + b` over floats.
    FloatAdd,
    /// `a - b` over floats.
    FloatSubtract,
    /// `a * b` over floats.
    FloatMultiply,
    /// `a / b` over floats.
    FloatDivide,
    /// `a / b` over numerics.
    NumericDivide,
    /// `mod(a, b)` and `a % b` over floats.
    Modulo,
    /// A float rounded half to even, as casts to integers and `round` do.
    RoundEven,
    /// A float as all that equal it: 0 for -0, one NaN for all.
    Canonical,
    /// A float, with one NaN for all.
    OneNan,
}

/// All of them.
pub(super) const ALL: [Arithmetic; 12] = [
    Arithmetic::IntAdd,
    Arithmetic::IntSubtract,
    Arithmetic::IntMultiply,
    Arithmetic::FloatAdd,
    Arithmetic::FloatSubtract,
    Arithmetic::FloatMultiply,
    Arithmetic::FloatDivide,
    Arithmetic::NumericDivide,
    Arithmetic::Modulo,
    Arithmetic::RoundEven,
    Arithmetic::Canonical,
    Arithmetic::OneNan,
];

impl Arithmetic {
    /// The function.
    pub(super) fn udf(self) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(ArithmeticFunction { function: self, signature })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArithmeticFunction {
    function: Arithmetic,
    signature: Signature,
}

impl ScalarUDFImpl for ArithmeticFunction {
    fn name(&self) -> &str {
        match self.function {
            Arithmetic::IntAdd => "int_add",
            Arithmetic::IntSubtract => "int_subtract",
            Arithmetic::IntMultiply => "int_multiply",
            Arithmetic::FloatAdd => "float_add",
            Arithmetic::FloatSubtract => "float_subtract",
            Arithmetic::FloatMultiply => "float_multiply",
            Arithmetic::FloatDivide => "float_divide",
            Arithmetic::NumericDivide => "numeric_divide",
            Arithmetic::Modulo => "mod",
            Arithmetic::RoundEven => "round_even",
            Arithmetic::Canonical => "canonical_float",
            Arithmetic::OneNan => "one_nan",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match (self.function, arg_types) {
            (Arithmetic::RoundEven | Arithmetic::Canonical | Arithmetic::OneNan, [argument]) => {
                match argument {
                    DataType::Float32 => Ok(vec![DataType::Float32]),
                    _ => Ok(vec![DataType::Float64]),
                }
            }
            (Arithmetic::FloatDivide, [DataType::Float32, DataType::Float32]) => {
                Ok(vec![DataType::Float32; 2])
            }
            (Arithmetic::FloatDivide, [_, _]) => Ok(vec![DataType::Float64; 2]),
            (Arithmetic::NumericDivide, [left, right]) => Ok(vec![numeric(left), numeric(right)]),
            (function, [left, right]) => {
                let operator = match function {
                    Arithmetic::IntSubtract | Arithmetic::FloatSubtract => Operator::Minus,
                    Arithmetic::IntMultiply | Arithmetic::FloatMultiply => Operator::Multiply,
                    Arithmetic::Modulo => Operator::Modulo,
                    _ => Operator::Plus,
                };
                let types = BinaryTypeCoercer::new(left, &operator, right).get_input_types()?;
                if !types.0.is_numeric() || !types.1.is_numeric() {
                    return plan_err!("function {}({left}, {right}) does not exist", self.name());
                }
                Ok(vec![types.0, types.1])
            }
            _ => plan_err!("function {} does not take {} arguments", self.name(), arg_types.len()),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match (self.function, arg_types) {
            (Arithmetic::NumericDivide, [left, right]) => {
                let scale = AVG_SCALE.max(scale_of(left)).max(scale_of(right));
                Ok(DataType::Decimal128(NUMERIC_PRECISION, scale))
            }
            (Arithmetic::Modulo, [left, right]) => {
                BinaryTypeCoercer::new(left, &Operator::Modulo, right).get_result_type()
            }
            _ => Ok(arg_types[0].clone()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalars = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let output = args.return_field.data_type();
        let rows = if scalars { 1 } else { args.number_rows };
        let result = match self.function {
            Arithmetic::RoundEven => {
                unary(&args.args[0].to_array(rows)?, f32::round_ties_even, f64::round_ties_even)?
            }
            Arithmetic::Canonical => unary(
                &args.args[0].to_array(rows)?,
                |value| if value.is_nan() { f32::NAN } else { value + 0.0 },
                |value| if value.is_nan() { f64::NAN } else { value + 0.0 },
            )?,
            Arithmetic::OneNan => one_nan(&args.args[0].to_array(rows)?),
            _ => one_nan(&self.binary(&args.args[0], &args.args[1], output)?),
        };
        if scalars {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

impl ArithmeticFunction {
    fn binary(
        &self,
        left: &ColumnarValue,
        right: &ColumnarValue,
        output: &DataType,
    ) -> Result<ArrayRef> {
        let kernel = match self.function {
            Arithmetic::IntAdd | Arithmetic::FloatAdd => add,
            Arithmetic::IntSubtract | Arithmetic::FloatSubtract => sub,
            Arithmetic::IntMultiply | Arithmetic::FloatMultiply => mul,
            Arithmetic::Modulo => checked_rem,
            Arithmetic::FloatDivide | Arithmetic::NumericDivide => {
                let arrays = ColumnarValue::values_to_arrays(&[left.clone(), right.clone()])?;
                return match output {
                    DataType::Float32 => float_divide::<Float32Type>(&arrays[0], &arrays[1]),
                    DataType::Float64 => float_divide::<Float64Type>(&arrays[0], &arrays[1]),
                    _ => numeric_divide(&arrays[0], &arrays[1], output),
                };
            }
            Arithmetic::RoundEven | Arithmetic::Canonical | Arithmetic::OneNan => {
                return internal_err!("{} takes one argument", self.name());
            }
        };
        // The kernels take scalars as such, without making arrays of them.
        let result = match (left, right) {
            (ColumnarValue::Array(l), ColumnarValue::Array(r)) => kernel(l, r)?,
            (ColumnarValue::Array(l), ColumnarValue::Scalar(r)) => kernel(l, &r.to_scalar()?)?,
            (ColumnarValue::Scalar(l), ColumnarValue::Array(r)) => kernel(&l.to_scalar()?, r)?,
            (ColumnarValue::Scalar(l), ColumnarValue::Scalar(r)) => {
                kernel(&l.to_array()?, &r.to_array()?)?
            }
        };
        Ok(result)
    }
}

fn checked_rem(
    left: &dyn arrow::array::Datum,
    right: &dyn arrow::array::Datum,
) -> Result<ArrayRef, ArrowError> {
    let divisors = right.get().0;
    let zero = match divisors.data_type() {
        DataType::Float32 => has_zero::<Float32Type>(divisors),
        DataType::Float64 => has_zero::<Float64Type>(divisors),
        _ => false,
    };
    if zero { Err(ArrowError::DivideByZero) } else { rem(left, right) }
}

fn has_zero<T: ArrowPrimitiveType>(array: &dyn Array) -> bool {
    array.as_primitive::<T>().iter().flatten().any(|value| value == T::default_value())
}

fn float_divide<T: ArrowPrimitiveType>(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef>
where
    T::Native: std::ops::Div<Output = T::Native>,
{
    let zero = T::default_value();
    let (left, right) = (left.as_primitive::<T>(), right.as_primitive::<T>());
    // As in PostgreSQL, only NaN can be divided by zero.
    #[expect(clippy::eq_op, reason = "NaN differs from itself")]
    let divide = |a: T::Native, b: T::Native| {
        if b == zero && a == a { Err(ArrowError::DivideByZero) } else { Ok(a / b) }
    };
    let result: PrimitiveArray<T> = arrow::compute::try_binary(left, right, divide)?;
    Ok(Arc::new(result))
}

/// The decimal type that an operand of a numeric division is taken as.
fn numeric(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::UInt8 => DataType::Decimal128(3, 0),
        DataType::Int16 | DataType::UInt16 => DataType::Decimal128(5, 0),
        DataType::Int32 | DataType::UInt32 => DataType::Decimal128(10, 0),
        DataType::Int64 | DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
            DataType::Decimal128(*p, *s)
        }
        DataType::Decimal256(_, s) => DataType::Decimal128(NUMERIC_PRECISION, *s),
        _ => DataType::Decimal128(NUMERIC_PRECISION, AVG_SCALE),
    }
}

fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// The quotient at the output's scale, rounded half away from zero.
fn numeric_divide(left: &ArrayRef, right: &ArrayRef, output: &DataType) -> Result<ArrayRef> {
    let shift = scale_of(output) + scale_of(right.data_type()) - scale_of(left.data_type());
    let shift = u32::try_from(shift).unwrap_or(0);
    let narrow = 10i128.checked_pow(shift);
    let (left, right) =
        (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
    let result: Decimal128Array = arrow::compute::try_binary(left, right, |a: i128, b: i128| {
        if b == 0 {
            return Err(ArrowError::DivideByZero);
        }
        if let Some(product) = narrow.and_then(|factor| a.checked_mul(factor)) {
            let (quotient, rest) = (product / b, product % b);
            let away = rest.unsigned_abs() >= b.unsigned_abs() - rest.unsigned_abs();
            let sign = if (product < 0) == (b < 0) { 1 } else { -1 };
            return in_range(quotient.checked_add(if away { sign } else { 0 }));
        }
        in_range(divide_wide(a, b, shift))
    })?;
    Ok(Arc::new(result.with_data_type(output.clone())))
}

fn divide_wide(a: i128, b: i128, shift: u32) -> Option<i128> {
    let (a, b) = (i256::from_i128(a), i256::from_i128(b));
    let product = a.checked_mul(i256::from_i128(10).checked_pow(shift)?)?;
    let (quotient, rest) = (product.checked_div(b)?, product.checked_rem(b)?);
    let away = rest.wrapping_abs() >= b.wrapping_abs().checked_sub(rest.wrapping_abs())?;
    let sign = if product.is_negative() == b.is_negative() { 1 } else { -1 };
    quotient.checked_add(i256::from_i128(if away { sign } else { 0 }))?.to_i128()
}

fn in_range(value: Option<i128>) -> Result<i128, ArrowError> {
    let limit = 10u128.pow(u32::from(NUMERIC_PRECISION));
    match value {
        Some(value) if value.unsigned_abs() < limit => Ok(value),
        _ => Err(ArrowError::ArithmeticOverflow("numeric out of range".to_string())),
    }
}

fn unary(values: &ArrayRef, single: fn(f32) -> f32, double: fn(f64) -> f64) -> Result<ArrayRef> {
    match values.data_type() {
        DataType::Float32 => {
            let values = values.as_primitive::<Float32Type>();
            Ok(Arc::new(values.unary::<_, Float32Type>(single)))
        }
        DataType::Float64 => {
            let values = values.as_primitive::<Float64Type>();
            Ok(Arc::new(values.unary::<_, Float64Type>(double)))
        }
        other => Err(DataFusionError::Internal(format!("a function of floats over {other}"))),
    }
}

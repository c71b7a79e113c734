//! The check of scalar sub-queries: `only_value(row_and_count(count, value))` is the value, or an error when the count
//! is above one.
//!
//! Two functions, because they stand in two places: the sub-query gives the pair, and the expression that the sub-query
//! is part of takes it apart. So the error comes where the value is needed, and a view keeps that row out, not the
//! sub-query's. Nobody calls them by name.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use datafusion_common::{DataFusionError, Result, ScalarValue, internal_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::SqlError;

/// A pair of a count and a value; NULL when the count is zero.
pub(crate) fn row_and_count() -> ScalarUDF {
    function(Part::Pack)
}

/// The value of such a pair, NULL for NULL; fails with 21000 when the count is above one.
pub(crate) fn only_value() -> ScalarUDF {
    function(Part::Take)
}

fn function(part: Part) -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    ScalarUDF::from(OnlyRow { part, signature })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Pack,
    Take,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyRow {
    part: Part,
    signature: Signature,
}

fn fields(value: &DataType) -> Fields {
    Fields::from(vec![
        Field::new("count", DataType::Int64, true),
        Field::new("value", value.clone(), true),
    ])
}

impl ScalarUDFImpl for OnlyRow {
    fn name(&self) -> &str {
        match self.part {
            Part::Pack => "row_and_count",
            Part::Take => "only_value",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match (self.part, arg_types) {
            (Part::Pack, [DataType::Int64, value]) => Ok(DataType::Struct(fields(value))),
            (Part::Take, [DataType::Struct(pair)]) if pair.len() == 2 => {
                Ok(pair[1].data_type().clone())
            }
            _ => internal_err!("{} is for scalar sub-queries", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_scalars = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if all_scalars { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let result = match (self.part, arrays.as_slice()) {
            (Part::Pack, [count, value]) => pack(count, value)?,
            (Part::Take, [pair]) => take(pair.as_struct())?,
            _ => return internal_err!("{} is for scalar sub-queries", self.name()),
        };
        if all_scalars {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

fn pack(count: &ArrayRef, value: &ArrayRef) -> Result<ArrayRef> {
    let counts = count.as_primitive::<Int64Type>();
    let valid = counts.iter().map(|count| count.is_some_and(|count| count > 0));
    let valid = NullBuffer::from_iter(valid);
    let columns = vec![Arc::clone(count), Arc::clone(value)];
    Ok(Arc::new(StructArray::try_new(fields(value.data_type()), columns, Some(valid))?))
}

fn take(pairs: &StructArray) -> Result<ArrayRef> {
    let counts = pairs.column(0).as_primitive::<Int64Type>();
    let is_many = |row| pairs.is_valid(row) && counts.is_valid(row) && counts.value(row) > 1;
    if (0..pairs.len()).any(is_many) {
        let text = "more than one row returned by a subquery used as an expression";
        return Err(DataFusionError::from(SqlError::new("21000", text)));
    }
    // A NULL pair has a NULL inside, too, but not all kernels see to it.
    let value = pairs.column(1);
    let missing = arrow::compute::is_null(pairs)?;
    Ok(arrow::compute::nullif(value, &missing)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    fn values(counts: Vec<i64>, values: Vec<Option<i64>>) -> Result<Vec<Option<i64>>> {
        let counts: ArrayRef = Arc::new(Int64Array::from(counts));
        let values: ArrayRef = Arc::new(Int64Array::from(values));
        let taken = take(pack(&counts, &values)?.as_struct())?;
        Ok(taken.as_primitive::<Int64Type>().iter().collect())
    }

    #[test]
    fn one_row_gives_its_value_and_no_row_null() {
        let found = values(vec![1, 0, 1], vec![Some(7), Some(8), None]).unwrap();
        assert_eq!(found, [Some(7), None, None]);
    }

    #[test]
    fn several_rows_are_an_error() {
        let error = SqlError::from(values(vec![1, 2], vec![Some(7), None]).unwrap_err());
        assert_eq!(error.sqlstate, "21000");
    }
}

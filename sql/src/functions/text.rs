//! Text functions that DataFusion lacks.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringViewBuilder};
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::{Result, ScalarValue, plan_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Flink's `split_index(text, delimiter, index)`: the part at an index from 0, NULL when there is none.
pub(super) fn split_index() -> ScalarUDF {
    ScalarUDF::from(SplitIndex { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SplitIndex {
    signature: Signature,
}

impl ScalarUDFImpl for SplitIndex {
    fn name(&self) -> &str {
        "split_index"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        if arg_types.len() != 3 {
            return plan_err!("split_index takes a text, a delimiter and an index");
        }
        Ok(vec![DataType::Utf8View, DataType::Utf8View, DataType::Int64])
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let all_scalars = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if all_scalars { 1 } else { args.number_rows };
        let texts = args.args[0].to_array(rows)?;
        let texts = texts.as_string_view();
        let mut builder = StringViewBuilder::with_capacity(rows);
        if let (
            ColumnarValue::Scalar(ScalarValue::Utf8View(Some(delimiter))),
            ColumnarValue::Scalar(ScalarValue::Int64(Some(index))),
        ) = (&args.args[1], &args.args[2])
        {
            for text in texts {
                builder.append_option(text.and_then(|text| part(text, delimiter, *index)));
            }
        } else {
            let (delimiters, indices) =
                (args.args[1].to_array(rows)?, args.args[2].to_array(rows)?);
            let (delimiters, indices) =
                (delimiters.as_string_view(), indices.as_primitive::<Int64Type>());
            for row in 0..rows {
                let valid =
                    texts.is_valid(row) && delimiters.is_valid(row) && indices.is_valid(row);
                let found = valid
                    .then(|| part(texts.value(row), delimiters.value(row), indices.value(row)));
                builder.append_option(found.flatten());
            }
        }
        let result = builder.finish();
        if all_scalars {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
        }
        Ok(ColumnarValue::Array(Arc::new(result)))
    }
}

fn part<'a>(text: &'a str, delimiter: &str, index: i64) -> Option<&'a str> {
    let index = usize::try_from(index).ok()?;
    match delimiter.as_bytes() {
        [] => (index == 0).then_some(text),
        [byte] if byte.is_ascii() => text.split(char::from(*byte)).nth(index),
        _ => text.split(delimiter).nth(index),
    }
}

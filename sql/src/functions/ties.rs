//! `LIMIT with_ties(n)`: how `FETCH FIRST n ROWS WITH TIES` travels through the SQL planner, which has no such limit.
//!
//! `lower::ties` takes it out of every plan; nobody calls it by name.

use arrow::datatypes::DataType;
use datafusion_common::{Result, internal_err};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The name, which no user is likely to write.
pub(crate) const WITH_TIES: &str = "__with_ties";

pub(super) fn with_ties() -> ScalarUDF {
    // Not immutable, or it would be called while planning.
    ScalarUDF::from(WithTies { signature: Signature::any(1, Volatility::Stable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WithTies {
    signature: Signature,
}

impl ScalarUDFImpl for WithTies {
    fn name(&self) -> &str {
        WITH_TIES
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{WITH_TIES} is no function of rows")
    }
}

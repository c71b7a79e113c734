//! Functions whose answer depends on the session: the user, the database, the version.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::catalog::{DATABASE, PUBLIC};
use crate::settings::SERVER_VERSION;

/// What `version()` says: clients look for the word PostgreSQL and a number.
pub(crate) fn version() -> String {
    format!(
        "PostgreSQL {SERVER_VERSION} (Millstream {}) on {}, compiled by rustc, 64-bit",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
}

/// Adds them to a session's functions.
pub(crate) fn register(state: &mut SessionState, user: &str) {
    let constants: [(&'static str, String); 8] = [
        ("current_user", user.to_string()),
        ("session_user", user.to_string()),
        ("user", user.to_string()),
        ("current_role", user.to_string()),
        ("current_database", DATABASE.to_string()),
        ("current_catalog", DATABASE.to_string()),
        ("current_schema", PUBLIC.to_string()),
        ("version", version()),
    ];
    let constants =
        constants.map(|(name, value)| (name, value, Signature::nullary(Volatility::Stable)));
    // There is one role: whoever asks.
    let owner = ("pg_get_userbyid", user.to_string(), Signature::any(1, Volatility::Stable));
    for (name, value, signature) in constants.into_iter().chain([owner]) {
        let function = Constant { name, value, signature };
        let udf = Arc::new(ScalarUDF::new_from_impl(function));
        if let Err(error) = state.register_udf(udf) {
            tracing::error!(%error, name, "a session function was not registered");
        }
    }
}

/// A text that does not change in a session.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    name: &'static str,
    value: String,
    signature: Signature,
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(self.value.clone()))))
    }
}

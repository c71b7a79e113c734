//! Functions of `pg_catalog` over numbers of things: names, definitions, visibility.
//!
//! They work on the catalog as it is when they are called, one value at a time: catalogs are small.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::catalog::system::{oids, pg_view_query};
use crate::catalog::{Catalog, PUBLIC};
use crate::error::SqlError;
use crate::session::Database;

/// What a function gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gives {
    Text,
    Bool,
    Int,
}

/// One argument list to one value.
type Call = fn(&Catalog, &[ScalarValue]) -> DfResult<ScalarValue>;

/// Registers them for a session of this database.
pub(crate) fn register(state: &mut SessionState, db: &Arc<Database>) {
    for (name, gives, call) in FUNCTIONS {
        let function = CatalogFunction {
            name,
            gives: *gives,
            call: *call,
            db: Arc::clone(db),
            signature: Signature::variadic_any(Volatility::Stable),
        };
        let mut udf = ScalarUDF::new_from_impl(function);
        if *name == "pg_table_is_visible" {
            udf = udf.with_aliases(["pg_relation_is_visible"]);
        }
        if let Err(error) = state.register_udf(Arc::new(udf)) {
            tracing::error!(%error, name, "a catalog function was not registered");
        }
    }
}

static FUNCTIONS: &[(&str, Gives, Call)] = &[
    ("pg_table_is_visible", Gives::Bool, table_is_visible),
    ("pg_type_is_visible", Gives::Bool, always),
    ("pg_function_is_visible", Gives::Bool, always),
    ("pg_opclass_is_visible", Gives::Bool, always),
    ("has_table_privilege", Gives::Bool, always),
    ("has_schema_privilege", Gives::Bool, always),
    ("has_database_privilege", Gives::Bool, always),
    ("has_column_privilege", Gives::Bool, always),
    ("has_any_column_privilege", Gives::Bool, always),
    ("has_function_privilege", Gives::Bool, always),
    ("pg_has_role", Gives::Bool, always),
    ("pg_is_in_recovery", Gives::Bool, never),
    ("pg_is_other_temp_schema", Gives::Bool, never),
    ("pg_relation_is_publishable", Gives::Bool, never),
    ("format_type", Gives::Text, format_type),
    ("pg_get_expr", Gives::Text, first_as_text),
    ("pg_get_indexdef", Gives::Text, index_definition),
    ("pg_get_constraintdef", Gives::Text, constraint_definition),
    ("pg_get_viewdef", Gives::Text, view_definition),
    ("pg_get_partkeydef", Gives::Text, null_text),
    ("pg_get_serial_sequence", Gives::Text, null_text),
    ("pg_get_function_result", Gives::Text, null_text),
    ("pg_get_function_arguments", Gives::Text, null_text),
    ("obj_description", Gives::Text, null_text),
    ("col_description", Gives::Text, null_text),
    ("shobj_description", Gives::Text, null_text),
    ("pg_tablespace_location", Gives::Text, |_, _| Ok(text(""))),
    ("pg_encoding_to_char", Gives::Text, |_, _| Ok(text("UTF8"))),
    ("pg_size_pretty", Gives::Text, size_pretty),
    ("pg_table_size", Gives::Int, zero),
    ("pg_relation_size", Gives::Int, zero),
    ("pg_total_relation_size", Gives::Int, zero),
    ("pg_indexes_size", Gives::Int, zero),
    ("pg_database_size", Gives::Int, zero),
    ("pg_my_temp_schema", Gives::Int, zero),
    ("pg_stat_get_numscans", Gives::Int, zero),
    ("quote_ident", Gives::Text, quote_ident),
    ("to_regclass", Gives::Int, |catalog, values| {
        Ok(ScalarValue::Int64(regclass(catalog, values)))
    }),
    ("regclass_oid", Gives::Int, regclass_oid),
    ("regclass_name", Gives::Text, regclass_name),
    ("pg_advisory_unlock_all", Gives::Text, |_, _| Ok(text(""))),
];

struct CatalogFunction {
    name: &'static str,
    gives: Gives,
    call: Call,
    db: Arc<Database>,
    signature: Signature,
}

impl std::fmt::Debug for CatalogFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DfResult<DataType> {
        Ok(match self.gives {
            Gives::Text => DataType::Utf8View,
            Gives::Bool => DataType::Boolean,
            Gives::Int => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let catalog = self.db.catalog();
        let all_scalar =
            arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { arguments.number_rows };
        let mut results = Vec::with_capacity(rows);
        for row in 0..rows {
            let values = arguments.args.iter().map(|argument| match argument {
                ColumnarValue::Scalar(value) => Ok(value.clone()),
                ColumnarValue::Array(array) => ScalarValue::try_from_array(array, row),
            });
            let values = values.collect::<DfResult<Vec<_>>>()?;
            results.push((self.call)(&catalog, &values)?);
        }
        match (all_scalar, results.first()) {
            (true, Some(value)) => Ok(ColumnarValue::Scalar(value.clone())),
            (_, None) => {
                let empty = arrow::array::new_empty_array(&self.return_type(&[])?);
                Ok(ColumnarValue::Array(empty))
            }
            _ => Ok(ColumnarValue::Array(ScalarValue::iter_to_array(results)?)),
        }
    }
}

fn text(value: &str) -> ScalarValue {
    ScalarValue::Utf8View(Some(value.to_string()))
}

fn maybe_text(value: Option<String>) -> ScalarValue {
    ScalarValue::Utf8View(value)
}

fn always(_: &Catalog, _: &[ScalarValue]) -> DfResult<ScalarValue> {
    Ok(ScalarValue::Boolean(Some(true)))
}

fn never(_: &Catalog, _: &[ScalarValue]) -> DfResult<ScalarValue> {
    Ok(ScalarValue::Boolean(Some(false)))
}

fn zero(_: &Catalog, _: &[ScalarValue]) -> DfResult<ScalarValue> {
    Ok(ScalarValue::Int64(Some(0)))
}

fn null_text(_: &Catalog, _: &[ScalarValue]) -> DfResult<ScalarValue> {
    Ok(ScalarValue::Utf8View(None))
}

fn int(value: Option<&ScalarValue>) -> Option<i64> {
    match value?.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(value) => value,
        _ => None,
    }
}

fn string(value: Option<&ScalarValue>) -> Option<String> {
    match value?.cast_to(&DataType::Utf8).ok()? {
        ScalarValue::Utf8(value) => value,
        _ => None,
    }
}

fn first_as_text(_: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    Ok(maybe_text(string(values.first())))
}

fn table_is_visible(catalog: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    let Some(oid) = int(values.first()) else { return Ok(ScalarValue::Boolean(None)) };
    let found = oids::find(catalog, oid).map(|relation| relation.name.schema == PUBLIC);
    Ok(ScalarValue::Boolean(Some(found.unwrap_or(false))))
}

fn format_type(_: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    let modifier = int(values.get(1)).unwrap_or(-1);
    Ok(maybe_text(int(values.first()).map(|oid| oids::format_type(oid, modifier))))
}

/// `CREATE UNIQUE INDEX ...`, or one column of it.
fn index_definition(catalog: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    let found = int(values.first()).and_then(|oid| oids::find(catalog, oid));
    let Some((relation, table)) = found.and_then(|found| Some((found, found.table().ok()?))) else {
        return Ok(maybe_text(None));
    };
    let names: Vec<&str> =
        table.primary_key.iter().map(|at| relation.schema.field(*at).name().as_str()).collect();
    let column = int(values.get(1)).unwrap_or(0);
    if let Some(at) = usize::try_from(column).ok().and_then(|column| column.checked_sub(1)) {
        return Ok(maybe_text(names.get(at).map(ToString::to_string)));
    }
    let name = &relation.name;
    Ok(text(&format!(
        "CREATE UNIQUE INDEX {0}_pkey ON {1}.{0} USING btree ({2})",
        name.name,
        name.schema,
        names.join(", ")
    )))
}

fn constraint_definition(catalog: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    let found = int(values.first()).and_then(|oid| oids::find(catalog, oid));
    let Some((relation, table)) = found.and_then(|found| Some((found, found.table().ok()?))) else {
        return Ok(maybe_text(None));
    };
    let names: Vec<&str> =
        table.primary_key.iter().map(|at| relation.schema.field(*at).name().as_str()).collect();
    Ok(text(&format!("PRIMARY KEY ({})", names.join(", "))))
}

fn view_definition(catalog: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    let found = int(values.first()).and_then(|oid| oids::find(catalog, oid));
    Ok(maybe_text(found.map(|relation| pg_view_query(&relation.definition))))
}

fn size_pretty(_: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    let Some(bytes) = int(values.first()) else { return Ok(maybe_text(None)) };
    let (mut size, mut unit) = (bytes, "bytes");
    for next in ["kB", "MB", "GB", "TB"] {
        if size.abs() < 10 * 1024 {
            break;
        }
        (size, unit) = ((size + 512) / 1024, next);
    }
    Ok(text(&format!("{size} {unit}")))
}

fn quote_ident(_: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    let quoted = string(values.first()).map(|name| {
        let plain = name
            .chars()
            .enumerate()
            .all(|(at, c)| c == '_' || c.is_ascii_lowercase() || (at > 0 && c.is_ascii_digit()));
        match plain && !name.is_empty() {
            true => name,
            false => format!("\"{}\"", name.replace('"', "\"\"")),
        }
    });
    Ok(maybe_text(quoted))
}

/// The number behind a written name (or number).
fn regclass(catalog: &Catalog, values: &[ScalarValue]) -> Option<i64> {
    let name = string(values.first())?;
    if let Ok(number) = name.parse::<i64>() {
        return Some(number);
    }
    let parts: Vec<String> = name
        .split('.')
        .map(|part| match part.strip_prefix('"').and_then(|p| p.strip_suffix('"')) {
            Some(quoted) => quoted.to_string(),
            None => part.to_lowercase(),
        })
        .collect();
    catalog.find(&parts, &[PUBLIC.to_string()]).map(|relation| oids::relation(relation.id))
}

fn regclass_oid(catalog: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    match (regclass(catalog, values), string(values.first())) {
        (Some(oid), _) => Ok(ScalarValue::Int64(Some(oid))),
        (None, None) => Ok(ScalarValue::Int64(None)),
        (None, Some(name)) => {
            Err(SqlError::new("42P01", format!("relation \"{name}\" does not exist")).into())
        }
    }
}

fn regclass_name(catalog: &Catalog, values: &[ScalarValue]) -> DfResult<ScalarValue> {
    let name = int(values.first()).map(|oid| match oids::find(catalog, oid) {
        Some(relation) if oids::key_index(relation.id) == oid => format!("{}_pkey", relation.name),
        Some(relation) => relation.name.to_string(),
        None => oid.to_string(),
    });
    Ok(maybe_text(name.or_else(|| string(values.first()))))
}

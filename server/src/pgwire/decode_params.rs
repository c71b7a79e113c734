//! Parameters of Bind into values for the planner: declared types are honoured, others are
//! inferred.

use bytes::Bytes;
use datafusion_common::ScalarValue;
use millstream_sql::{Result, SqlError};

use arrow::datatypes::DataType;

use crate::pgwire::encode::Zone;
use crate::pgwire::error::{error, protocol};
use crate::pgwire::frontend::{Bind, Format, utf8};
use crate::pgwire::input::{Builder, numeric_text, scale_of};
use crate::pgwire::portal::{Parameter, Prepared};
use crate::pgwire::types::{Kind, PgType};

/// Reads all parameters of a Bind.
pub(crate) fn decode(prepared: &Prepared, bind: &Bind, zone: &Zone) -> Result<Vec<ScalarValue>> {
    let (given, wanted) = (bind.parameters.len(), prepared.parameters.len());
    let formats = match bind.parameter_formats.as_slice() {
        [] => vec![Format::Text; given],
        [one] => vec![*one; given],
        many if many.len() == given => many.to_vec(),
        many => {
            let count = many.len();
            let text = format!("bind message has {count} parameter formats but {given} parameters");
            return Err(protocol(text));
        }
    };
    if given != wanted {
        let name = &bind.statement;
        return Err(protocol(format!(
            "bind message supplies {given} parameters, but prepared statement \"{name}\" requires {wanted}"
        )));
    }
    let values = bind.parameters.iter().zip(&prepared.parameters).zip(formats).enumerate();
    values
        .map(|(index, ((value, parameter), format))| match value {
            None => ScalarValue::try_from(&parameter.data_type).map_err(SqlError::internal),
            Some(bytes) => one(parameter, bytes, format, zone).map_err(|bad| named(bad, index + 1)),
        })
        .collect()
}

/// Postgres names the parameter where the value has no text that could be shown.
fn named(bad: SqlError, number: usize) -> SqlError {
    match bad.sqlstate {
        "22P03" => error("22P03", format!("{} in bind parameter {number}", bad.message)),
        _ => bad,
    }
}

fn one(parameter: &Parameter, bytes: &Bytes, format: Format, zone: &Zone) -> Result<ScalarValue> {
    let Parameter { pg_type, data_type } = parameter;
    let read_as = target(pg_type, data_type, bytes, format)?;
    let mut builder = Builder::new(pg_type, &read_as, zone)?;
    match format {
        Format::Text => builder.append_text(utf8(bytes)?)?,
        Format::Binary => builder.append_binary(bytes)?,
    }
    let array = builder.finish()?;
    let value = ScalarValue::try_from_array(&array, 0).map_err(SqlError::internal)?;
    if &value.data_type() == data_type {
        return Ok(value);
    }
    value.cast_to(data_type).map_err(|bad| error("22P02", bad.strip_backtrace()))
}

/// The Arrow type to read a value as, before it is cast to what the planner wants.
fn target(pg_type: &PgType, wanted: &DataType, bytes: &Bytes, format: Format) -> Result<DataType> {
    if pg_type.kind == Kind::Numeric {
        if matches!(wanted, DataType::Decimal128(..) | DataType::Decimal256(..)) {
            return Ok(wanted.clone());
        }
        // Nothing wants a certain scale: keep all digits that were sent.
        let found = match format {
            Format::Text => scale_of(utf8(bytes)?),
            Format::Binary => scale_of(&numeric_text(bytes)?),
        };
        let (precision, scale) = found.unwrap_or((38, 10));
        return Ok(match precision {
            0..=38 => DataType::Decimal128(precision, scale),
            _ => DataType::Decimal256(precision, scale),
        });
    }
    let natural = PgType::from_arrow(wanted);
    // Lists and records bring their element types along.
    Ok(if natural.kind == pg_type.kind { wanted.clone() } else { pg_type.arrow_type() })
}

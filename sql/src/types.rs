//! SQL types and Arrow types: the one place where they meet.
//!
//! Where Arrow's type is not enough to name the Postgres type (`varchar(10)`, `jsonb`, `uuid`), the field's metadata
//! says it under [`PG_TYPE`].

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use datafusion::common::DataFusionError;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType as SqlType, ExactNumberInfo, TimezoneInfo,
};

use crate::error::{Result, SqlError};

/// Key of the field metadata that names the Postgres type.
pub const PG_TYPE: &str = "pg.type";

/// NUMERIC without precision: as wide as 128 bits go.
const NUMERIC_PRECISION: u8 = 38;
const NUMERIC_SCALE: i8 = 10;

/// The Arrow type of a SQL type, and the Postgres name where the Arrow type does not tell it.
pub(crate) fn arrow_type(sql: &SqlType) -> Result<(DataType, Option<String>)> {
    let plain = |data_type| Ok((data_type, None));
    match sql {
        SqlType::Bool | SqlType::Boolean => plain(DataType::Boolean),
        SqlType::SmallInt(_) | SqlType::Int2(_) | SqlType::TinyInt(_) => plain(DataType::Int16),
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) | SqlType::Int32 => {
            plain(DataType::Int32)
        }
        SqlType::BigInt(_) | SqlType::Int8(_) | SqlType::Int64 => plain(DataType::Int64),
        SqlType::Real | SqlType::Float4 | SqlType::Float32 => plain(DataType::Float32),
        SqlType::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => plain(DataType::Float32),
        SqlType::DoublePrecision
        | SqlType::Float8
        | SqlType::Float64
        | SqlType::Float(_)
        | SqlType::Double(_) => plain(DataType::Float64),
        SqlType::Numeric(info) | SqlType::Decimal(info) | SqlType::Dec(info) => {
            plain(numeric_type(info)?)
        }
        SqlType::Text | SqlType::String(_) => plain(DataType::Utf8View),
        SqlType::Varchar(length)
        | SqlType::CharacterVarying(length)
        | SqlType::CharVarying(length)
        | SqlType::Nvarchar(length) => Ok((DataType::Utf8View, Some(sized("varchar", *length)))),
        SqlType::Char(length) | SqlType::Character(length) => {
            let length = length.unwrap_or(CharacterLength::IntegerLength { length: 1, unit: None });
            Ok((DataType::Utf8View, Some(sized("character", Some(length)))))
        }
        SqlType::Uuid => Ok((DataType::Utf8View, Some("uuid".into()))),
        SqlType::JSON => Ok((DataType::Utf8View, Some("json".into()))),
        SqlType::JSONB => Ok((DataType::Utf8View, Some("jsonb".into()))),
        SqlType::Regclass => Ok((DataType::Utf8View, Some("regclass".into()))),
        SqlType::Bytea | SqlType::Bytes(_) => plain(DataType::Binary),
        SqlType::Date | SqlType::Date32 => plain(DataType::Date32),
        SqlType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            plain(DataType::Time64(TimeUnit::Microsecond))
        }
        SqlType::Timestamp(_, zone) => plain(timestamp_type(*zone)),
        SqlType::TimestampNtz(_) | SqlType::Datetime(_) => {
            plain(timestamp_type(TimezoneInfo::None))
        }
        SqlType::Interval { .. } => plain(DataType::Interval(IntervalUnit::MonthDayNano)),
        SqlType::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => {
            let (element, name) = arrow_type(element)?;
            let field = with_pg_type(Field::new_list_field(element, true), name);
            plain(DataType::List(Arc::new(field)))
        }
        SqlType::Struct(fields, _) => {
            let field = |(place, field): (usize, &_)| struct_field(place, field);
            let fields = fields.iter().enumerate().map(field).collect::<Result<Vec<_>>>()?;
            plain(DataType::Struct(Fields::from(fields)))
        }
        SqlType::Custom(name, arguments) => custom_type(&name.to_string(), arguments),
        other => Err(SqlError::unsupported(format!("type {}", other.to_string().to_lowercase()))),
    }
}

fn struct_field(
    place: usize,
    field: &datafusion::sql::sqlparser::ast::StructField,
) -> Result<Field> {
    let (data_type, name) = arrow_type(&field.field_type)?;
    let label = match &field.field_name {
        Some(ident) => crate::parser::fold(ident),
        None => format!("f{}", place + 1),
    };
    Ok(with_pg_type(Field::new(label, data_type, true), name))
}

/// Types that the parser does not know by keyword.
fn custom_type(name: &str, arguments: &[String]) -> Result<(DataType, Option<String>)> {
    let lower = name.to_lowercase();
    let plain = lower.strip_prefix("pg_catalog.").unwrap_or(&lower).trim_matches('"');
    let text = |name: &str| Ok((DataType::Utf8View, Some(name.to_string())));
    match plain {
        "timestamptz" => Ok((timestamp_type(TimezoneInfo::Tz), None)),
        "timestamp_ltz" => Ok((timestamp_type(TimezoneInfo::Tz), None)),
        "float8" => Ok((DataType::Float64, None)),
        "float4" => Ok((DataType::Float32, None)),
        "int8" => Ok((DataType::Int64, None)),
        "int4" => Ok((DataType::Int32, None)),
        "int2" => Ok((DataType::Int16, None)),
        "bool" => Ok((DataType::Boolean, None)),
        "text" => Ok((DataType::Utf8View, None)),
        "oid" => Ok((DataType::Int64, Some("oid".into()))),
        "name" | "regclass" | "regtype" | "regproc" | "regnamespace" | "json" | "jsonb"
        | "uuid" => text(plain),
        "char" => text("char"),
        "varchar" => text("varchar"),
        "bpchar" if arguments.is_empty() => text("bpchar"),
        _ => Err(SqlError::new("42704", format!("type \"{plain}\" does not exist"))),
    }
}

fn timestamp_type(zone: TimezoneInfo) -> DataType {
    match zone {
        TimezoneInfo::Tz | TimezoneInfo::WithTimeZone => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        }
        TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
    }
}

fn numeric_type(info: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => {
            return Ok(DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE));
        }
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let (Ok(digits), Ok(scale)) = (u8::try_from(precision), i8::try_from(scale)) else {
        return Err(SqlError::new(
            "22023",
            format!("NUMERIC precision {precision} is out of range"),
        ));
    };
    match digits {
        1..=38 => Ok(DataType::Decimal128(digits, scale)),
        39..=76 => Ok(DataType::Decimal256(digits, scale)),
        _ => Err(SqlError::new(
            "22023",
            format!("NUMERIC precision {digits} must be between 1 and 76"),
        )),
    }
}

fn sized(name: &str, length: Option<CharacterLength>) -> String {
    match length {
        Some(CharacterLength::IntegerLength { length, .. }) => format!("{name}({length})"),
        _ => name.to_string(),
    }
}

/// A field that also names its Postgres type.
pub(crate) fn with_pg_type(field: Field, name: Option<String>) -> Field {
    match name {
        // The usual name of text needs no saying.
        None => field,
        Some(name) => {
            let metadata = HashMap::from([(PG_TYPE.to_string(), name)]);
            field.with_metadata(metadata)
        }
    }
}

/// The most characters that a `varchar(n)` or `char(n)` column takes.
pub(crate) fn length_max(field: &Field) -> Option<usize> {
    let name = field.metadata().get(PG_TYPE)?;
    let (kind, rest) = name.split_once('(')?;
    matches!(kind, "varchar" | "character").then(|| rest.trim_end_matches(')').parse().ok())?
}

/// The type's name as Postgres prints it (`format_type`).
pub fn pg_type_name(field: &Field) -> String {
    if let Some(name) = field.metadata().get(PG_TYPE) {
        if let Some(length) = name.strip_prefix("varchar") {
            return format!("character varying{length}");
        }
        return name.clone();
    }
    type_name(field.data_type())
}

/// The Postgres name of an Arrow type.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "boolean".into(),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint".into(),
        DataType::Int32 | DataType::UInt16 => "integer".into(),
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => "bigint".into(),
        DataType::Float16 | DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::Decimal128(NUMERIC_PRECISION, NUMERIC_SCALE) => "numeric".into(),
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => format!("numeric({p},{s})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => "text".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytea".into(),
        DataType::FixedSizeBinary(_) => "bytea".into(),
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone".into(),
        DataType::Timestamp(_, None) => "timestamp without time zone".into(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        DataType::Interval(_) | DataType::Duration(_) => "interval".into(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("{}[]", pg_type_name(item))
        }
        DataType::Struct(fields) => {
            let one = |field: &FieldRef| format!("{} {}", field.name(), pg_type_name(field));
            format!("struct<{}>", fields.iter().map(one).collect::<Vec<_>>().join(", "))
        }
        DataType::Dictionary(_, value) => type_name(value),
        other => other.to_string().to_lowercase(),
    }
}

/// Makes the planner use these types for casts.
#[derive(Debug, Default)]
pub(crate) struct Types;

impl TypePlanner for Types {
    fn plan_type_field(
        &self,
        sql: &SqlType,
    ) -> datafusion::common::Result<Option<FieldRef>, DataFusionError> {
        let (data_type, name) = arrow_type(sql).map_err(DataFusionError::from)?;
        // A cast to text of a certain length would need to cut: the planner knows only the plain type. Metadata would
        // make it treat the target as an extension type, so it stays off.
        let _ = name;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Field {
        let mut parser = crate::parser::test_parser(text);
        let sql = crate::parser::parse_type(&mut parser).unwrap();
        let (data_type, name) = arrow_type(&sql).unwrap();
        with_pg_type(Field::new("c", data_type, true), name)
    }

    #[test]
    fn names_come_back_as_postgres_prints_them() {
        for (written, printed) in [
            ("int", "integer"),
            ("BIGINT", "bigint"),
            ("numeric(10,2)", "numeric(10,2)"),
            ("numeric", "numeric"),
            ("varchar(10)", "character varying(10)"),
            ("varchar", "character varying"),
            ("char(3)", "character(3)"),
            ("text", "text"),
            ("timestamptz", "timestamp with time zone"),
            ("timestamp(3)", "timestamp without time zone"),
            ("double precision", "double precision"),
            ("bytea", "bytea"),
            ("jsonb", "jsonb"),
            ("uuid", "uuid"),
            ("text[]", "text[]"),
            (
                "struct<a int, b struct<c varchar>>",
                "struct<a integer, b struct<c character varying>>",
            ),
            ("interval", "interval"),
            ("time", "time without time zone"),
        ] {
            assert_eq!(pg_type_name(&parse(written)), printed, "{written}");
        }
    }

    #[test]
    fn lengths_are_kept() {
        assert_eq!(length_max(&parse("varchar(10)")), Some(10));
        assert_eq!(length_max(&parse("text")), None);
    }
}

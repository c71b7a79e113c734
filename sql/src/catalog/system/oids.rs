//! Numbers by which `pg_catalog` refers to things. Those of Postgres's own types are Postgres's; ours follow from a
//! relation's number, which never changes.

use arrow::datatypes::{DataType, Field};
use millstream_engine::plan::RelationId;

use crate::catalog::{Catalog, Relation};
use crate::types::PG_TYPE;

/// The schema `pg_catalog`.
pub(crate) const PG_CATALOG: i64 = 11;
/// The schema `public`.
pub(crate) const PUBLIC: i64 = 2200;
/// The schema `information_schema`.
pub(crate) const INFORMATION_SCHEMA: i64 = 13_000;
/// The schema `millstream`.
pub(crate) const MILLSTREAM: i64 = 13_001;
/// The user.
pub(crate) const ROLE: i64 = 10;
/// The database.
pub(crate) const DATABASE: i64 = 16_384;
/// The access method of tables.
pub(crate) const HEAP: i64 = 2;
/// The access method of keys.
pub(crate) const BTREE: i64 = 403;
/// The table space.
pub(crate) const TABLESPACE: i64 = 1663;
/// The collation of text.
pub(crate) const DEFAULT_COLLATION: i64 = 100;

/// Ours begin here.
const FIRST: i64 = 16_400;
/// Numbers kept for each relation.
const STRIDE: i64 = 8;

pub(crate) fn relation(id: RelationId) -> i64 {
    FIRST + i64::try_from(id.0).unwrap_or(i64::MAX / 16) * STRIDE
}

/// The index of a primary key.
pub(crate) fn key_index(id: RelationId) -> i64 {
    relation(id) + 1
}

/// The constraint of a primary key.
pub(crate) fn key_constraint(id: RelationId) -> i64 {
    relation(id) + 2
}

/// The relation that a number belongs to (itself, its index or its constraint).
pub(crate) fn find(catalog: &Catalog, oid: i64) -> Option<&Relation> {
    let number = (oid - FIRST).checked_div(STRIDE)?;
    let id = u64::try_from(number).ok()?;
    catalog.by_id(RelationId(id)).map(AsRef::as_ref)
}

pub(crate) fn schema(name: &str) -> i64 {
    match name {
        "pg_catalog" => PG_CATALOG,
        "public" => PUBLIC,
        "information_schema" => INFORMATION_SCHEMA,
        "millstream" => MILLSTREAM,
        // A hash (FNV-1a) that stays the same as long as the name does.
        other => {
            let hash = other.bytes().fold(2_166_136_261u32, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
            });
            1_000_000_000 + i64::from(hash % 1_000_000_000)
        }
    }
}

/// One type: number, name, number of its array type, length, category, by value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PgType {
    pub(crate) oid: i64,
    pub(crate) name: &'static str,
    pub(crate) array: i64,
    pub(crate) length: i64,
    pub(crate) category: &'static str,
    /// As `format_type` prints it.
    pub(crate) printed: &'static str,
}

const fn of(
    oid: i64,
    name: &'static str,
    array: i64,
    length: i64,
    category: &'static str,
    printed: &'static str,
) -> PgType {
    PgType { oid, name, array, length, category, printed }
}

/// Types that columns have.
pub(crate) static TYPES: &[PgType] = &[
    of(16, "bool", 1000, 1, "B", "boolean"),
    of(17, "bytea", 1001, -1, "U", "bytea"),
    of(18, "char", 1002, 1, "Z", "\"char\""),
    of(19, "name", 1003, 64, "S", "name"),
    of(20, "int8", 1016, 8, "N", "bigint"),
    of(21, "int2", 1005, 2, "N", "smallint"),
    of(23, "int4", 1007, 4, "N", "integer"),
    of(24, "regproc", 1008, 4, "N", "regproc"),
    of(25, "text", 1009, -1, "S", "text"),
    of(26, "oid", 1028, 4, "N", "oid"),
    of(114, "json", 199, -1, "U", "json"),
    of(700, "float4", 1021, 4, "N", "real"),
    of(701, "float8", 1022, 8, "N", "double precision"),
    of(705, "unknown", 0, -2, "X", "unknown"),
    of(1042, "bpchar", 1014, -1, "S", "character"),
    of(1043, "varchar", 1015, -1, "S", "character varying"),
    of(1082, "date", 1182, 4, "D", "date"),
    of(1083, "time", 1183, 8, "D", "time without time zone"),
    of(1114, "timestamp", 1115, 8, "D", "timestamp without time zone"),
    of(1184, "timestamptz", 1185, 8, "D", "timestamp with time zone"),
    of(1186, "interval", 1187, 16, "T", "interval"),
    of(1700, "numeric", 1231, -1, "N", "numeric"),
    of(2205, "regclass", 2210, 4, "N", "regclass"),
    of(2206, "regtype", 2211, 4, "N", "regtype"),
    of(2249, "record", 2287, -1, "P", "record"),
    of(2950, "uuid", 2951, 16, "U", "uuid"),
    of(3802, "jsonb", 3807, -1, "U", "jsonb"),
];

/// A column's type and modifier, as Postgres codes them.
pub(crate) fn of_field(field: &Field) -> (i64, i64) {
    if let Some(name) = field.metadata().get(PG_TYPE) {
        let (plain, length) = match name.split_once('(') {
            Some((plain, rest)) => (plain, rest.trim_end_matches(')').parse::<i64>().ok()),
            None => (name.as_str(), None),
        };
        let plain = if plain == "character" { "bpchar" } else { plain };
        if let Some(known) = TYPES.iter().find(|known| known.name == plain) {
            return (known.oid, length.map_or(-1, |length| length + 4));
        }
    }
    of_type(field.data_type())
}

fn of_type(data_type: &DataType) -> (i64, i64) {
    use DataType as T;
    match data_type {
        T::Boolean => (16, -1),
        T::Int8 | T::Int16 | T::UInt8 => (21, -1),
        T::Int32 | T::UInt16 => (23, -1),
        T::Int64 | T::UInt32 | T::UInt64 => (20, -1),
        T::Float16 | T::Float32 => (700, -1),
        T::Float64 => (701, -1),
        T::Decimal128(38, 10) => (1700, -1),
        T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s) | T::Decimal256(p, s) => {
            (1700, (i64::from(*p) << 16 | i64::from(*s)) + 4)
        }
        T::Date32 | T::Date64 => (1082, -1),
        T::Time32(_) | T::Time64(_) => (1083, -1),
        T::Timestamp(_, None) => (1114, -1),
        T::Timestamp(_, Some(_)) => (1184, -1),
        T::Interval(_) | T::Duration(_) => (1186, -1),
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => (17, -1),
        T::Struct(_) => (2249, -1),
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) => {
            let element = of_field(item).0;
            let array = TYPES.iter().find(|known| known.oid == element);
            (array.map_or(1009, |known| known.array), -1)
        }
        _ => (25, -1),
    }
}

/// `format_type`.
pub(crate) fn format_type(oid: i64, modifier: i64) -> String {
    if let Some(element) = TYPES.iter().find(|known| known.array == oid && oid != 0) {
        return format!("{}[]", element.printed);
    }
    let Some(known) = TYPES.iter().find(|known| known.oid == oid) else {
        return "???".to_string();
    };
    if modifier < 4 {
        return known.printed.to_string();
    }
    match known.name {
        "varchar" | "bpchar" => format!("{}({})", known.printed, modifier - 4),
        "numeric" => {
            let packed = modifier - 4;
            format!("numeric({},{})", packed >> 16, packed & 0xffff)
        }
        _ => known.printed.to_string(),
    }
}

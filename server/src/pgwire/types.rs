//! Postgres types as the wire names them, and which one an Arrow field is.
//!
//! A field's metadata `pg.type` (a type name such as `jsonb`, `varchar(10)` or `uuid[]`) wins over
//! its Arrow type. Types that Postgres has and we only print (`name`, `regclass`, `aclitem`...) are
//! there so that catalogs can name them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

/// Metadata key that names the Postgres type of a field.
pub(crate) const TYPE_KEY: &str = "pg.type";

/// How a value is written and read; several type names can share one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    /// Four bytes, unsigned: `oid`, `xid`, and the `reg*` family when given as numbers.
    Oid,
    Float4,
    Float8,
    Numeric,
    /// Also `name`, `varchar`, `"char"` and all that we only print.
    Text,
    Bytea,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    Uuid,
    Json,
    Jsonb,
    Array(Box<PgType>),
    /// `int2vector`, `oidvector`: an array that prints with spaces and counts from 0.
    Vector(Box<PgType>),
    Record(Arc<[PgType]>),
    /// Key and value; Postgres has no such type, so it travels as text.
    Map(Box<(PgType, PgType)>),
}

/// A type with what RowDescription tells of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PgType {
    pub(crate) oid: u32,
    pub(crate) size: i16,
    pub(crate) typmod: i32,
    pub(crate) kind: Kind,
}

/// Name, OID, OID of its array, size, kind.
type Entry = (&'static str, u32, u32, i16, Kind);

const TYPES: &[Entry] = &[
    ("bool", 16, 1000, 1, Kind::Bool),
    ("bytea", 17, 1001, -1, Kind::Bytea),
    ("char", 18, 1002, 1, Kind::Text),
    ("name", 19, 1003, 64, Kind::Text),
    ("int8", 20, 1016, 8, Kind::Int8),
    ("int2", 21, 1005, 2, Kind::Int2),
    ("int4", 23, 1007, 4, Kind::Int4),
    ("regproc", 24, 1008, 4, Kind::Oid),
    ("text", 25, 1009, -1, Kind::Text),
    ("oid", 26, 1028, 4, Kind::Oid),
    ("xid", 28, 1011, 4, Kind::Oid),
    ("cid", 29, 1012, 4, Kind::Oid),
    ("json", 114, 199, -1, Kind::Json),
    ("xml", 142, 143, -1, Kind::Text),
    ("pg_node_tree", 194, 0, -1, Kind::Text),
    ("float4", 700, 1021, 4, Kind::Float4),
    ("float8", 701, 1022, 8, Kind::Float8),
    ("unknown", 705, 0, -2, Kind::Text),
    ("inet", 869, 1041, -1, Kind::Text),
    ("aclitem", 1033, 1034, 12, Kind::Text),
    ("bpchar", 1042, 1014, -1, Kind::Text),
    ("varchar", 1043, 1015, -1, Kind::Text),
    ("date", 1082, 1182, 4, Kind::Date),
    ("time", 1083, 1183, 8, Kind::Time),
    ("timestamp", 1114, 1115, 8, Kind::Timestamp),
    ("timestamptz", 1184, 1185, 8, Kind::Timestamptz),
    ("interval", 1186, 1187, 16, Kind::Interval),
    ("timetz", 1266, 1270, 12, Kind::Text),
    ("numeric", 1700, 1231, -1, Kind::Numeric),
    ("refcursor", 1790, 2201, -1, Kind::Text),
    ("regprocedure", 2202, 2207, 4, Kind::Oid),
    ("regclass", 2205, 2210, 4, Kind::Oid),
    ("regtype", 2206, 2211, 4, Kind::Oid),
    ("cstring", 2275, 1263, -2, Kind::Text),
    ("void", 2278, 0, 4, Kind::Text),
    ("uuid", 2950, 2951, 16, Kind::Uuid),
    ("jsonb", 3802, 3807, -1, Kind::Jsonb),
    ("regnamespace", 4089, 4090, 4, Kind::Oid),
    ("regrole", 4096, 4097, 4, Kind::Oid),
];

const INT2VECTOR: u32 = 22;
const OIDVECTOR: u32 = 30;
const RECORD: u32 = 2249;
const RECORD_ARRAY: u32 = 2287;

/// Spellings of SQL that are not the catalog's name of the type.
const ALIASES: &[(&str, &str)] = &[
    ("boolean", "bool"),
    ("smallint", "int2"),
    ("int", "int4"),
    ("integer", "int4"),
    ("bigint", "int8"),
    ("real", "float4"),
    ("double precision", "float8"),
    ("decimal", "numeric"),
    ("character varying", "varchar"),
    ("character", "bpchar"),
    ("string", "text"),
    ("\"char\"", "char"),
    ("timestamp without time zone", "timestamp"),
    ("timestamp with time zone", "timestamptz"),
    ("time without time zone", "time"),
];

impl PgType {
    fn entry(entry: &Entry) -> Self {
        Self { oid: entry.1, size: entry.3, typmod: -1, kind: entry.4.clone() }
    }

    fn named(name: &str) -> Option<Self> {
        TYPES.iter().find(|entry| entry.0 == name).map(Self::entry)
    }

    /// `text`: what everything can be sent as.
    pub(crate) fn text() -> Self {
        Self { oid: 25, size: -1, typmod: -1, kind: Kind::Text }
    }

    fn simple(name: &str) -> Self {
        Self::named(name).unwrap_or_else(Self::text)
    }

    fn array_of(element: Self) -> Self {
        // An array of arrays is the same type in Postgres: dimensions belong to the value.
        if let Kind::Array(_) = element.kind {
            return Self {
                oid: element.oid,
                size: -1,
                typmod: -1,
                kind: Kind::Array(Box::new(element)),
            };
        }
        let oid = TYPES
            .iter()
            .find(|entry| entry.1 == element.oid)
            .map_or(RECORD_ARRAY, |entry| if entry.2 == 0 { 1009 } else { entry.2 });
        Self { oid, size: -1, typmod: -1, kind: Kind::Array(Box::new(element)) }
    }

    fn vector(oid: u32, element: &str) -> Self {
        let kind = Kind::Vector(Box::new(Self::simple(element)));
        Self { oid, size: -1, typmod: -1, kind }
    }

    /// The type of an OID that a client declared; `None` for those that we do not know.
    pub(crate) fn from_oid(oid: u32) -> Option<Self> {
        match oid {
            0 | 705 => return None,
            INT2VECTOR => return Some(Self::vector(INT2VECTOR, "int2")),
            OIDVECTOR => return Some(Self::vector(OIDVECTOR, "oid")),
            _ => {}
        }
        if let Some(entry) = TYPES.iter().find(|entry| entry.1 == oid) {
            return Some(Self::entry(entry));
        }
        let element = TYPES.iter().find(|entry| entry.2 == oid)?;
        Some(Self::array_of(Self::entry(element)))
    }

    /// Parses a type name as SQL writes it: `numeric(10,2)`, `varchar(10)`, `uuid[]`, `_text`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        if let Some(element) = name.strip_suffix("[]") {
            return Self::from_name(element).map(Self::array_of);
        }
        if let Some(element) = name.strip_prefix('_') {
            return Self::from_name(element).map(Self::array_of);
        }
        match name.as_str() {
            "int2vector" => return Some(Self::vector(INT2VECTOR, "int2")),
            "oidvector" => return Some(Self::vector(OIDVECTOR, "oid")),
            _ => {}
        }
        let (base, arguments) = split_arguments(&name);
        let base =
            ALIASES.iter().find(|(alias, _)| *alias == base).map_or(base.as_str(), |(_, to)| to);
        let mut found = Self::named(base)?;
        found.typmod = match (base, arguments.as_slice()) {
            ("varchar" | "bpchar", [length]) => length + 4,
            ("numeric", [precision]) => (precision << 16) + 4,
            ("numeric", [precision, scale]) => ((precision << 16) | (scale & 0x7ff)) + 4,
            ("timestamp" | "timestamptz" | "time" | "timetz", [digits]) => *digits,
            _ => -1,
        };
        Some(found)
    }

    /// The type of a column.
    pub(crate) fn from_field(field: &Field) -> Self {
        let named = field.metadata().get(TYPE_KEY).and_then(|name| Self::from_name(name));
        named.unwrap_or_else(|| Self::from_arrow(field.data_type()))
    }

    /// The type that stands for an Arrow type.
    pub(crate) fn from_arrow(data_type: &DataType) -> Self {
        let name = match data_type {
            DataType::Boolean => "bool",
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => "int2",
            DataType::Int32 | DataType::UInt16 => "int4",
            DataType::Int64 | DataType::UInt32 | DataType::UInt64 => "int8",
            DataType::Float16 | DataType::Float32 => "float4",
            DataType::Float64 => "float8",
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => "numeric",
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => "bytea",
            DataType::Date32 | DataType::Date64 => "date",
            DataType::Time32(_) | DataType::Time64(_) => "time",
            DataType::Timestamp(_, None) => "timestamp",
            DataType::Timestamp(_, Some(_)) => "timestamptz",
            DataType::Interval(_) | DataType::Duration(_) => "interval",
            DataType::Dictionary(_, values) => return Self::from_arrow(values),
            DataType::RunEndEncoded(_, values) => return Self::from_field(values),
            DataType::List(element)
            | DataType::LargeList(element)
            | DataType::ListView(element)
            | DataType::LargeListView(element)
            | DataType::FixedSizeList(element, _) => {
                return Self::array_of(Self::from_field(element));
            }
            DataType::Struct(fields) => {
                let kind = Kind::Record(fields.iter().map(|f| Self::from_field(f)).collect());
                return Self { oid: RECORD, size: -1, typmod: -1, kind };
            }
            DataType::Map(entries, _) => return Self::map(entries),
            _ => "text",
        };
        Self::simple(name)
    }

    fn map(entries: &Field) -> Self {
        let DataType::Struct(fields) = entries.data_type() else { return Self::text() };
        let [key, value] = &fields[..] else { return Self::text() };
        let kind = Kind::Map(Box::new((Self::from_field(key), Self::from_field(value))));
        Self { kind, ..Self::text() }
    }

    /// The Arrow type in which a parameter of this type is handed to the planner.
    pub(crate) fn arrow_type(&self) -> DataType {
        match &self.kind {
            Kind::Bool => DataType::Boolean,
            Kind::Int2 => DataType::Int16,
            Kind::Int4 => DataType::Int32,
            Kind::Int8 | Kind::Oid => DataType::Int64,
            Kind::Float4 => DataType::Float32,
            Kind::Float8 => DataType::Float64,
            Kind::Numeric => DataType::Decimal128(38, 10),
            Kind::Bytea => DataType::Binary,
            Kind::Date => DataType::Date32,
            Kind::Time => DataType::Time64(TimeUnit::Microsecond),
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Kind::Array(element) | Kind::Vector(element) => {
                DataType::List(Arc::new(Field::new_list_field(element.arrow_type(), true)))
            }
            Kind::Text | Kind::Uuid | Kind::Json | Kind::Jsonb | Kind::Record(_) | Kind::Map(_) => {
                DataType::Utf8View
            }
        }
    }
}

/// `numeric(10, 2)` gives `numeric` and `[10, 2]`; what follows the parenthesis stays part of the
/// name.
fn split_arguments(name: &str) -> (String, Vec<i32>) {
    let Some((base, rest)) = name.split_once('(') else { return (name.to_owned(), Vec::new()) };
    let Some((inside, after)) = rest.split_once(')') else { return (name.to_owned(), Vec::new()) };
    let arguments = inside.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    (format!("{}{after}", base.trim_end()), arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_modifiers() {
        let of = |name: &str| {
            let found = PgType::from_name(name).unwrap();
            (found.oid, found.typmod)
        };
        assert_eq!(of("varchar(10)"), (1043, 14));
        assert_eq!(of("numeric(10,2)"), (1700, 655_366));
        assert_eq!(of("timestamp(3) with time zone"), (1184, 3));
        assert_eq!(of("uuid[]"), (2951, -1));
        assert_eq!(of("_text"), (1009, -1));
        assert_eq!(of("int2vector"), (22, -1));
        assert!(PgType::from_name("no_such").is_none());
    }

    #[test]
    fn arrays_of_arrays_are_one_type() {
        let inner = Field::new_list_field(DataType::Int32, true);
        let list = DataType::List(Arc::new(inner));
        let nested = DataType::List(Arc::new(Field::new_list_field(list, true)));
        assert_eq!(PgType::from_arrow(&nested).oid, 1007);
    }
}

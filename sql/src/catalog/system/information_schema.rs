//! `information_schema`: schemata, tables, columns, views, keys.

use super::build::cells;
use super::oids;
use super::pg_relations::view_query;
use super::{Column as C, Kind as K, Rows, SYSTEM_SCHEMAS, SystemContext, SystemTable};
use crate::catalog::{DATABASE, Relation};
use crate::error::Result;
use crate::parser::RelationKind;
use crate::types::pg_type_name;

const SCHEMA: &str = "information_schema";

macro_rules! table {
    ($name:literal, $rows:expr, [$($column:literal $kind:ident),* $(,)?]) => {
        SystemTable {
            schema: SCHEMA,
            name: $name,
            columns: &[$(C($column, K::$kind)),*],
            rows: $rows,
        }
    };
}

pub(super) static TABLES: &[SystemTable] = &[
    table!("schemata", schemata, [
        "catalog_name" Name, "schema_name" Name, "schema_owner" Name,
        "default_character_set_catalog" Name, "default_character_set_schema" Name,
        "default_character_set_name" Name, "sql_path" Text,
    ]),
    table!("tables", tables, [
        "table_catalog" Name, "table_schema" Name, "table_name" Name, "table_type" Text,
        "self_referencing_column_name" Name, "reference_generation" Text,
        "user_defined_type_catalog" Name, "user_defined_type_schema" Name,
        "user_defined_type_name" Name, "is_insertable_into" Text, "is_typed" Text,
        "commit_action" Text,
    ]),
    table!("columns", columns, [
        "table_catalog" Name, "table_schema" Name, "table_name" Name, "column_name" Name,
        "ordinal_position" Int4, "column_default" Text, "is_nullable" Text, "data_type" Text,
        "character_maximum_length" Int4, "character_octet_length" Int4, "numeric_precision" Int4,
        "numeric_precision_radix" Int4, "numeric_scale" Int4, "datetime_precision" Int4,
        "interval_type" Text, "interval_precision" Int4, "udt_catalog" Name, "udt_schema" Name,
        "udt_name" Name, "is_identity" Text, "is_generated" Text, "generation_expression" Text,
        "is_updatable" Text,
    ]),
    table!("views", views, [
        "table_catalog" Name, "table_schema" Name, "table_name" Name, "view_definition" Text,
        "check_option" Text, "is_updatable" Text, "is_insertable_into" Text,
    ]),
    table!("table_constraints", constraints, [
        "constraint_catalog" Name, "constraint_schema" Name, "constraint_name" Name,
        "table_catalog" Name, "table_schema" Name, "table_name" Name, "constraint_type" Text,
        "is_deferrable" Text, "initially_deferred" Text, "enforced" Text,
    ]),
    table!("key_column_usage", key_columns, [
        "constraint_catalog" Name, "constraint_schema" Name, "constraint_name" Name,
        "table_catalog" Name, "table_schema" Name, "table_name" Name, "column_name" Name,
        "ordinal_position" Int4, "position_in_unique_constraint" Int4,
    ]),
];

fn schemata(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let own = SYSTEM_SCHEMAS.iter().copied();
    let owner = context.settings.get("session_authorization").unwrap_or_default();
    for name in own.chain(context.catalog.schemas()) {
        rows.push(cells![DATABASE, name, owner.as_str()]);
    }
    Ok(())
}

fn tables(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let none: Option<&str> = None;
    for relation in context.catalog.relations() {
        let (kind, insertable) = match relation.kind() {
            RelationKind::Table => ("BASE TABLE", "YES"),
            RelationKind::Source => ("FOREIGN", "NO"),
            RelationKind::View => ("VIEW", "NO"),
            // Postgres leaves materialized views out; tools then never find them.
            RelationKind::MaterializedView => ("MATERIALIZED VIEW", "NO"),
            RelationKind::Sink => continue,
        };
        let name = &relation.name;
        rows.push(cells![
            DATABASE,
            name.schema.as_str(),
            name.name.as_str(),
            kind,
            none,
            none,
            none,
            none,
            none,
            insertable,
            "NO",
            none,
        ]);
    }
    Ok(())
}

fn columns(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        if relation.kind() != RelationKind::Sink {
            for at in 0..relation.schema.fields().len() {
                column(relation, at, rows);
            }
        }
    }
    Ok(())
}

fn column(relation: &Relation, at: usize, rows: &mut Rows) {
    let none: Option<&str> = None;
    let field = relation.schema.field(at);
    let (oid, modifier) = oids::of_field(field);
    let table = relation.table().ok();
    let default = table.and_then(|table| table.defaults.get(at)?.as_ref().map(ToString::to_string));
    let generated =
        table.and_then(|table| table.generated.get(at)?.as_ref().map(ToString::to_string));
    let known = oids::TYPES.iter().find(|known| known.oid == oid);
    let element = oids::TYPES.iter().find(|known| known.array == oid);
    let udt = match (known, element) {
        (Some(known), _) => known.name.to_string(),
        (None, Some(element)) => format!("_{}", element.name),
        (None, None) => "text".to_string(),
    };
    let printed = match element {
        Some(_) => "ARRAY".to_string(),
        None => known.map_or_else(|| pg_type_name(field), |known| known.printed.to_string()),
    };
    let length =
        (matches!(udt.as_str(), "varchar" | "bpchar") && modifier > 4).then(|| modifier - 4);
    let digits = match udt.as_str() {
        "int2" => Some((16i64, 2i64, 0i64)),
        "int4" => Some((32, 2, 0)),
        "int8" => Some((64, 2, 0)),
        "float4" => Some((24, 2, 0)),
        "float8" => Some((53, 2, 0)),
        "numeric" if modifier >= 4 => Some(((modifier - 4) >> 16, 10, (modifier - 4) & 0xffff)),
        _ => None,
    };
    let exact = !matches!(udt.as_str(), "float4" | "float8");
    let instant = matches!(udt.as_str(), "timestamp" | "timestamptz" | "time" | "interval");
    let yes = |yes: bool| if yes { "YES" } else { "NO" };
    rows.push(cells![
        DATABASE,
        relation.name.schema.as_str(),
        relation.name.name.as_str(),
        field.name().as_str(),
        u64::try_from(at + 1).unwrap_or(u64::MAX),
        default,
        yes(field.is_nullable()),
        printed,
        length,
        length.map(|length| length * 4),
        digits.map(|digits| digits.0),
        digits.map(|digits| digits.1),
        digits.filter(|_| exact).map(|digits| digits.2),
        instant.then_some(6i64),
        none,
        none,
        DATABASE,
        "pg_catalog",
        udt,
        "NO",
        if generated.is_some() { "ALWAYS" } else { "NEVER" },
        generated,
        yes(table.is_some()),
    ]);
}

fn views(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        if relation.kind() == RelationKind::View {
            let name = &relation.name;
            let text = view_query(&relation.definition);
            rows.push(cells![
                DATABASE,
                name.schema.as_str(),
                name.name.as_str(),
                text,
                "NONE",
                "NO",
                "NO",
            ]);
        }
    }
    Ok(())
}

fn constraints(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        if relation.table().is_ok_and(|table| !table.primary_key.is_empty()) {
            let (schema, name) = (relation.name.schema.as_str(), relation.name.name.as_str());
            rows.push(cells![
                DATABASE,
                schema,
                format!("{name}_pkey"),
                DATABASE,
                schema,
                name,
                "PRIMARY KEY",
                "NO",
                "NO",
                "YES",
            ]);
        }
    }
    Ok(())
}

fn key_columns(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        let Ok(table) = relation.table() else { continue };
        let (schema, name) = (relation.name.schema.as_str(), relation.name.name.as_str());
        for (place, at) in table.primary_key.iter().enumerate() {
            rows.push(cells![
                DATABASE,
                schema,
                format!("{name}_pkey"),
                DATABASE,
                schema,
                name,
                relation.schema.field(*at).name().as_str(),
                u64::try_from(place + 1).unwrap_or(u64::MAX),
            ]);
        }
    }
    Ok(())
}

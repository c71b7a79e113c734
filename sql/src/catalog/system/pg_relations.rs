//! `pg_catalog`'s view of our relations: classes, columns, keys, defaults.

use super::build::cells;
use super::oids;
use super::{Column as C, Kind as K, Rows, SystemContext, SystemTable};
use crate::catalog::Relation;
use crate::error::Result;
use crate::parser::RelationKind;

const SCHEMA: &str = "pg_catalog";

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
    table!("pg_class", classes, [
        "oid" Oid, "relname" Name, "relnamespace" Oid, "reltype" Oid, "reloftype" Oid,
        "relowner" Oid, "relam" Oid, "relfilenode" Oid, "reltablespace" Oid, "relpages" Int4,
        "reltuples" Float8, "relallvisible" Int4, "reltoastrelid" Oid, "relhasindex" Bool,
        "relisshared" Bool, "relpersistence" Char, "relkind" Char, "relnatts" Int2,
        "relchecks" Int2, "relhasrules" Bool, "relhastriggers" Bool, "relhassubclass" Bool,
        "relrowsecurity" Bool, "relforcerowsecurity" Bool, "relispopulated" Bool,
        "relreplident" Char, "relispartition" Bool, "relrewrite" Oid, "relfrozenxid" Int8,
        "relminmxid" Int8, "relacl" Texts, "reloptions" Texts, "relpartbound" Text,
    ]),
    table!("pg_attribute", attributes, [
        "attrelid" Oid, "attname" Name, "atttypid" Oid, "attstattarget" Int4, "attlen" Int2,
        "attnum" Int2, "attndims" Int4, "attcacheoff" Int4, "atttypmod" Int4, "attbyval" Bool,
        "attalign" Char, "attstorage" Char, "attcompression" Char, "attnotnull" Bool,
        "atthasdef" Bool, "atthasmissing" Bool, "attidentity" Char, "attgenerated" Char,
        "attisdropped" Bool, "attislocal" Bool, "attinhcount" Int4, "attcollation" Oid,
        "attacl" Texts, "attoptions" Texts, "attfdwoptions" Texts, "attmissingval" Text,
    ]),
    table!("pg_attrdef", defaults, ["oid" Oid, "adrelid" Oid, "adnum" Int2, "adbin" Text]),
    table!("pg_index", indexes, [
        "indexrelid" Oid, "indrelid" Oid, "indnatts" Int2, "indnkeyatts" Int2, "indisunique" Bool,
        "indnullsnotdistinct" Bool, "indisprimary" Bool, "indisexclusion" Bool,
        "indimmediate" Bool, "indisclustered" Bool, "indisvalid" Bool, "indcheckxmin" Bool,
        "indisready" Bool, "indislive" Bool, "indisreplident" Bool, "indkey" Text,
        "indcollation" Text, "indclass" Text, "indoption" Text, "indexprs" Text, "indpred" Text,
    ]),
    table!("pg_constraint", constraints, [
        "oid" Oid, "conname" Name, "connamespace" Oid, "contype" Char, "condeferrable" Bool,
        "condeferred" Bool, "convalidated" Bool, "conrelid" Oid, "contypid" Oid, "conindid" Oid,
        "conparentid" Oid, "confrelid" Oid, "confupdtype" Char, "confdeltype" Char,
        "confmatchtype" Char, "conislocal" Bool, "coninhcount" Int4, "connoinherit" Bool,
        "conkey" Texts, "confkey" Texts, "conbin" Text,
    ]),
    table!("pg_tables", tables, [
        "schemaname" Name, "tablename" Name, "tableowner" Name, "tablespace" Name,
        "hasindexes" Bool, "hasrules" Bool, "hastriggers" Bool, "rowsecurity" Bool,
    ]),
    table!("pg_views", views, [
        "schemaname" Name, "viewname" Name, "viewowner" Name, "definition" Text,
    ]),
    table!("pg_matviews", matviews, [
        "schemaname" Name, "matviewname" Name, "matviewowner" Name, "tablespace" Name,
        "hasindexes" Bool, "ispopulated" Bool, "definition" Text,
    ]),
];

/// The letter of a relation's kind; sinks are not relations to read.
fn relkind(relation: &Relation) -> Option<&'static str> {
    match relation.kind() {
        RelationKind::Table => Some("r"),
        RelationKind::Source => Some("f"),
        RelationKind::View => Some("v"),
        RelationKind::MaterializedView => Some("m"),
        RelationKind::Sink => None,
    }
}

fn key(relation: &Relation) -> &[usize] {
    relation.table().map(|table| table.primary_key.as_slice()).unwrap_or_default()
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn classes(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        let Some(kind) = relkind(relation) else { continue };
        let has_key = !key(relation).is_empty();
        let stored = matches!(kind, "r" | "m");
        let access = if stored { oids::HEAP } else { 0 };
        let oid = oids::relation(relation.id);
        let width = count(relation.schema.fields().len());
        rows.push(class(
            oid,
            &relation.name.name,
            &relation.name.schema,
            access,
            has_key,
            kind,
            width,
        ));
        if has_key {
            let name = format!("{}_pkey", relation.name.name);
            let (oid, width) = (oids::key_index(relation.id), count(key(relation).len()));
            rows.push(class(oid, &name, &relation.name.schema, oids::BTREE, false, "i", width));
        }
    }
    Ok(())
}

fn class(
    oid: i64,
    name: &str,
    schema: &str,
    access: i64,
    has_index: bool,
    kind: &str,
    width: u64,
) -> [super::build::Cell; 30] {
    let rules = kind == "v" || kind == "m";
    let replica = if kind == "i" { "n" } else { "d" };
    cells![
        oid,
        name,
        oids::schema(schema),
        0i64,
        0i64,
        oids::ROLE,
        access,
        oid,
        0i64,
        0i64,
        -1.0f64,
        0i64,
        0i64,
        has_index,
        false,
        "p",
        kind,
        width,
        0i64,
        rules,
        false,
        false,
        false,
        false,
        true,
        replica,
        false,
        0i64,
        0i64,
        0i64,
    ]
}

fn attributes(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        if relkind(relation).is_none() {
            continue;
        }
        let oid = oids::relation(relation.id);
        for at in 0..relation.schema.fields().len() {
            attribute(relation, oid, at, at + 1, rows);
        }
        for (place, at) in key(relation).iter().enumerate() {
            attribute(relation, oids::key_index(relation.id), *at, place + 1, rows);
        }
    }
    Ok(())
}

fn attribute(relation: &Relation, oid: i64, at: usize, number: usize, rows: &mut Rows) {
    let field = relation.schema.field(at);
    let (type_oid, modifier) = oids::of_field(field);
    let known = oids::TYPES.iter().find(|known| known.oid == type_oid);
    let length = known.map_or(-1, |known| known.length);
    let table = relation.table().ok();
    let generated = table.is_some_and(|table| table.generated.get(at).is_some_and(Option::is_some));
    let has_default =
        generated || table.is_some_and(|table| table.defaults.get(at).is_some_and(Option::is_some));
    let is_text = matches!(type_oid, 19 | 25 | 1042 | 1043);
    let collation = if is_text { oids::DEFAULT_COLLATION } else { 0 };
    let storage = if length < 0 { "x" } else { "p" };
    rows.push(cells![
        oid,
        field.name().as_str(),
        type_oid,
        -1i64,
        length,
        count(number),
        0i64,
        -1i64,
        modifier,
        (1..=8).contains(&length),
        "i",
        storage,
        "",
        !field.is_nullable(),
        has_default,
        false,
        "",
        if generated { "s" } else { "" },
        false,
        true,
        0i64,
        collation,
    ]);
}

fn defaults(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        let Ok(table) = relation.table() else { continue };
        let oid = oids::relation(relation.id);
        let exprs = table.defaults.iter().zip(&table.generated).enumerate();
        for (at, (default, generated)) in exprs {
            if let Some(expr) = default.as_ref().or(generated.as_ref()) {
                rows.push(cells![
                    oid * 1000 + 1 + i64::try_from(at).unwrap_or(0),
                    oid,
                    count(at + 1),
                    expr.to_string()
                ]);
            }
        }
    }
    Ok(())
}

/// Column numbers with blanks between, as int2vector prints.
fn key_numbers(relation: &Relation, separator: &str) -> String {
    let numbers: Vec<String> = key(relation).iter().map(|at| (at + 1).to_string()).collect();
    numbers.join(separator)
}

fn indexes(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let none: Option<&str> = None;
    for relation in context.catalog.relations() {
        if key(relation).is_empty() {
            continue;
        }
        let width = count(key(relation).len());
        rows.push(cells![
            oids::key_index(relation.id),
            oids::relation(relation.id),
            width,
            width,
            true,
            false,
            true,
            false,
            true,
            false,
            true,
            false,
            true,
            true,
            false,
            key_numbers(relation, " "),
            "0",
            "0",
            "0",
            none,
            none,
        ]);
    }
    Ok(())
}

fn constraints(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        if key(relation).is_empty() {
            continue;
        }
        rows.push(cells![
            oids::key_constraint(relation.id),
            format!("{}_pkey", relation.name.name),
            oids::schema(&relation.name.schema),
            "p",
            false,
            false,
            true,
            oids::relation(relation.id),
            0i64,
            oids::key_index(relation.id),
            0i64,
            0i64,
            " ",
            " ",
            " ",
            true,
            0i64,
            true,
            key_numbers(relation, ","),
        ]);
    }
    Ok(())
}

fn owner(context: &SystemContext) -> String {
    context.settings.get("session_authorization").unwrap_or_default()
}

fn tables(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let none: Option<&str> = None;
    for relation in context.catalog.relations() {
        if relation.kind() == RelationKind::Table {
            let name = &relation.name;
            rows.push(cells![
                name.schema.as_str(),
                name.name.as_str(),
                owner(context),
                none,
                !key(relation).is_empty(),
                false,
                false,
                false,
            ]);
        }
    }
    Ok(())
}

/// The query behind a view: what follows AS.
pub(crate) fn view_query(definition: &str) -> String {
    let lower = definition.to_lowercase();
    let found = lower.match_indices("as").find(|(at, _)| {
        let word_before = lower[..*at].ends_with(|c: char| c.is_whitespace() || c == ')');
        let word_after = lower[at + 2..].starts_with(|c: char| c.is_whitespace() || c == '(');
        word_before && word_after
    });
    match found {
        Some((at, _)) => format!(" {};", definition[at + 2..].trim()),
        None => definition.to_string(),
    }
}

fn views(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for relation in context.catalog.relations() {
        if relation.kind() == RelationKind::View {
            let name = &relation.name;
            let text = view_query(&relation.definition);
            rows.push(cells![name.schema.as_str(), name.name.as_str(), owner(context), text]);
        }
    }
    Ok(())
}

fn matviews(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let none: Option<&str> = None;
    for relation in context.catalog.relations() {
        if relation.kind() == RelationKind::MaterializedView {
            let name = &relation.name;
            let text = view_query(&relation.definition);
            rows.push(cells![
                name.schema.as_str(),
                name.name.as_str(),
                owner(context),
                none,
                false,
                true,
                text,
            ]);
        }
    }
    Ok(())
}

//! `pg_catalog` beside relations: schemas, types, roles, databases, settings.

use super::build::cells;
use super::oids::{self, PgType, TYPES};
use super::{Column as C, Kind as K, Rows, SYSTEM_SCHEMAS, SystemContext, SystemTable};
use crate::catalog::DATABASE;
use crate::error::Result;

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
    table!("pg_namespace", namespaces, ["oid" Oid, "nspname" Name, "nspowner" Oid, "nspacl" Texts]),
    table!("pg_database", databases, [
        "oid" Oid, "datname" Name, "datdba" Oid, "encoding" Int4, "datlocprovider" Char,
        "datistemplate" Bool, "datallowconn" Bool, "datconnlimit" Int4, "datfrozenxid" Int8,
        "datminmxid" Int8, "dattablespace" Oid, "datcollate" Text, "datctype" Text,
        "daticulocale" Text, "datcollversion" Text, "datacl" Texts,
    ]),
    table!("pg_tablespace", tablespaces, [
        "oid" Oid, "spcname" Name, "spcowner" Oid, "spcacl" Texts, "spcoptions" Texts,
    ]),
    table!("pg_roles", roles, [
        "rolname" Name, "rolsuper" Bool, "rolinherit" Bool, "rolcreaterole" Bool,
        "rolcreatedb" Bool, "rolcanlogin" Bool, "rolreplication" Bool, "rolconnlimit" Int4,
        "rolpassword" Text, "rolvaliduntil" Instant, "rolbypassrls" Bool, "rolconfig" Texts,
        "oid" Oid,
    ]),
    table!("pg_authid", roles, [
        "rolname" Name, "rolsuper" Bool, "rolinherit" Bool, "rolcreaterole" Bool,
        "rolcreatedb" Bool, "rolcanlogin" Bool, "rolreplication" Bool, "rolconnlimit" Int4,
        "rolpassword" Text, "rolvaliduntil" Instant, "rolbypassrls" Bool, "rolconfig" Texts,
        "oid" Oid,
    ]),
    table!("pg_user", users, [
        "usename" Name, "usesysid" Oid, "usecreatedb" Bool, "usesuper" Bool, "userepl" Bool,
        "usebypassrls" Bool, "passwd" Text, "valuntil" Instant, "useconfig" Texts,
    ]),
    table!("pg_am", access_methods, ["oid" Oid, "amname" Name, "amhandler" Text, "amtype" Char]),
    table!("pg_collation", collations, [
        "oid" Oid, "collname" Name, "collnamespace" Oid, "collowner" Oid, "collprovider" Char,
        "collisdeterministic" Bool, "collencoding" Int4, "collcollate" Text, "collctype" Text,
        "colliculocale" Text, "collversion" Text,
    ]),
    table!("pg_language", languages, [
        "oid" Oid, "lanname" Name, "lanowner" Oid, "lanispl" Bool, "lanpltrusted" Bool,
        "lanplcallfoid" Oid, "laninline" Oid, "lanvalidator" Oid, "lanacl" Texts,
    ]),
    table!("pg_type", types, [
        "oid" Oid, "typname" Name, "typnamespace" Oid, "typowner" Oid, "typlen" Int2,
        "typbyval" Bool, "typtype" Char, "typcategory" Char, "typispreferred" Bool,
        "typisdefined" Bool, "typdelim" Char, "typrelid" Oid, "typsubscript" Text, "typelem" Oid,
        "typarray" Oid, "typinput" Text, "typoutput" Text, "typreceive" Text, "typsend" Text,
        "typmodin" Text, "typmodout" Text, "typanalyze" Text, "typalign" Char, "typstorage" Char,
        "typnotnull" Bool, "typbasetype" Oid, "typtypmod" Int4, "typndims" Int4,
        "typcollation" Oid, "typdefaultbin" Text, "typdefault" Text, "typacl" Texts,
    ]),
    table!("pg_settings", settings, [
        "name" Text, "setting" Text, "unit" Text, "category" Text, "short_desc" Text,
        "extra_desc" Text, "context" Text, "vartype" Text, "source" Text, "min_val" Text,
        "max_val" Text, "enumvals" Texts, "boot_val" Text, "reset_val" Text, "sourcefile" Text,
        "sourceline" Int4, "pending_restart" Bool,
    ]),
];

fn namespaces(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let own = SYSTEM_SCHEMAS.iter().copied();
    for name in own.chain(context.catalog.schemas()) {
        rows.push(cells![oids::schema(name), name, oids::ROLE]);
    }
    Ok(())
}

fn databases(_context: &SystemContext, rows: &mut Rows) -> Result<()> {
    rows.push(cells![
        oids::DATABASE,
        DATABASE,
        oids::ROLE,
        6i64,
        "c",
        false,
        true,
        -1i64,
        0i64,
        1i64,
        oids::TABLESPACE,
        "C",
        "C",
    ]);
    Ok(())
}

fn tablespaces(_context: &SystemContext, rows: &mut Rows) -> Result<()> {
    rows.push(cells![oids::TABLESPACE, "pg_default", oids::ROLE]);
    Ok(())
}

fn user(context: &SystemContext) -> String {
    context.settings.get("session_authorization").unwrap_or_default()
}

fn roles(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let none: Option<&str> = None;
    rows.push(cells![
        user(context),
        true,
        true,
        true,
        true,
        true,
        true,
        -1i64,
        none,
        none,
        true,
        none,
        oids::ROLE,
    ]);
    Ok(())
}

fn users(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    rows.push(cells![user(context), oids::ROLE, true, true, true, true]);
    Ok(())
}

fn access_methods(_context: &SystemContext, rows: &mut Rows) -> Result<()> {
    rows.push(cells![oids::HEAP, "heap", "heap_tableam_handler", "t"]);
    rows.push(cells![oids::BTREE, "btree", "bthandler", "i"]);
    Ok(())
}

fn collations(_context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for (oid, name, provider) in [(100i64, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")] {
        rows.push(cells![
            oid,
            name,
            oids::PG_CATALOG,
            oids::ROLE,
            provider,
            true,
            -1i64,
            name,
            name
        ]);
    }
    Ok(())
}

fn languages(_context: &SystemContext, rows: &mut Rows) -> Result<()> {
    rows.push(cells![12i64, "internal", oids::ROLE, false, false, 0i64, 0i64, 0i64]);
    rows.push(cells![14i64, "sql", oids::ROLE, false, true, 0i64, 0i64, 0i64]);
    Ok(())
}

fn types(_context: &SystemContext, rows: &mut Rows) -> Result<()> {
    for known in TYPES {
        let is_text = matches!(known.name, "text" | "varchar" | "bpchar" | "name");
        let collation = if is_text { oids::DEFAULT_COLLATION } else { 0 };
        let kind = if known.category == "P" { "p" } else { "b" };
        let function = |end: &str| format!("{}{end}", known.name);
        rows.push(cells![
            known.oid,
            known.name,
            oids::PG_CATALOG,
            oids::ROLE,
            known.length,
            (1..=8).contains(&known.length),
            kind,
            known.category,
            false,
            true,
            ",",
            0i64,
            "-",
            0i64,
            known.array,
            function("in"),
            function("out"),
            function("recv"),
            function("send"),
            "-",
            "-",
            "-",
            "i",
            "p",
            false,
            0i64,
            -1i64,
            0i64,
            collation,
        ]);
        if known.array != 0 {
            array_type(known, collation, rows);
        }
    }
    Ok(())
}

fn array_type(known: &PgType, collation: i64, rows: &mut Rows) {
    rows.push(cells![
        known.array,
        format!("_{}", known.name),
        oids::PG_CATALOG,
        oids::ROLE,
        -1i64,
        false,
        "b",
        "A",
        false,
        true,
        ",",
        0i64,
        "array_subscript_handler",
        known.oid,
        0i64,
        "array_in",
        "array_out",
        "array_recv",
        "array_send",
        "-",
        "-",
        "array_typanalyze",
        "i",
        "x",
        false,
        0i64,
        -1i64,
        0i64,
        collation,
    ]);
}

fn settings(context: &SystemContext, rows: &mut Rows) -> Result<()> {
    let none: Option<&str> = None;
    for (name, value, description) in context.all_settings() {
        rows.push(cells![
            name,
            value.as_str(),
            none,
            "Client Connection Defaults",
            description,
            none,
            "user",
            "string",
            "session",
            none,
            none,
            none,
            value.as_str(),
            value.as_str(),
            none,
            none,
            false,
        ]);
    }
    Ok(())
}

//! Relations of `pg_catalog` that are always empty here: they describe what we do not have. They have PostgreSQL's columns.
//!
//! A query that joins one has no rows, whatever else it says; see `query::pg_surface`.

use super::{Column as C, Kind as K, Rows, SystemContext, SystemTable};
use crate::error::Result;

fn none(_context: &SystemContext, _rows: &mut Rows) -> Result<()> {
    Ok(())
}

macro_rules! empty {
    ($name:literal, [$($column:literal $kind:ident),* $(,)?]) => {
        SystemTable {
            schema: "pg_catalog",
            name: $name,
            columns: &[$(C($column, K::$kind)),*],
            rows: none,
        }
    };
}

#[rustfmt::skip] // a table of tables
pub(super) static TABLES: &[SystemTable] = &[
    empty!("pg_aggregate", [
        "aggfnoid" Oid, "aggkind" Char, "aggnumdirectargs" Int2, "aggtransfn" Oid, "aggfinalfn" Oid,
        "aggcombinefn" Oid, "aggserialfn" Oid, "aggdeserialfn" Oid, "aggmtransfn" Oid,
        "aggminvtransfn" Oid, "aggmfinalfn" Oid, "aggfinalextra" Bool, "aggmfinalextra" Bool,
        "aggfinalmodify" Char, "aggmfinalmodify" Char, "aggsortop" Oid, "aggtranstype" Oid,
        "aggtransspace" Int4, "aggmtranstype" Oid, "aggmtransspace" Int4, "agginitval" Text,
        "aggminitval" Text,
    ]),
    empty!("pg_amop", [
        "oid" Oid, "amopfamily" Oid, "amoplefttype" Oid, "amoprighttype" Oid, "amopstrategy" Int2,
        "amoppurpose" Char, "amopopr" Oid, "amopmethod" Oid, "amopsortfamily" Oid,
    ]),
    empty!("pg_amproc", [
        "oid" Oid, "amprocfamily" Oid, "amproclefttype" Oid, "amprocrighttype" Oid,
        "amprocnum" Int2, "amproc" Oid,
    ]),
    empty!("pg_auth_members", ["roleid" Oid, "member" Oid, "grantor" Oid, "admin_option" Bool]),
    empty!("pg_cast", [
        "oid" Oid, "castsource" Oid, "casttarget" Oid, "castfunc" Oid, "castcontext" Char,
        "castmethod" Char,
    ]),
    empty!("pg_conversion", [
        "oid" Oid, "conname" Name, "connamespace" Oid, "conowner" Oid, "conforencoding" Int4,
        "contoencoding" Int4, "conproc" Oid, "condefault" Bool,
    ]),
    empty!("pg_cursors", [
        "name" Text, "statement" Text, "is_holdable" Bool, "is_binary" Bool, "is_scrollable" Bool,
        "creation_time" Instant,
    ]),
    empty!("pg_db_role_setting", ["setdatabase" Oid, "setrole" Oid, "setconfig" Texts]),
    empty!("pg_default_acl", [
        "oid" Oid, "defaclrole" Oid, "defaclnamespace" Oid, "defaclobjtype" Char, "defaclacl" Texts,
    ]),
    empty!("pg_depend", [
        "classid" Oid, "objid" Oid, "objsubid" Int4, "refclassid" Oid, "refobjid" Oid,
        "refobjsubid" Int4, "deptype" Char,
    ]),
    empty!("pg_description", ["objoid" Oid, "classoid" Oid, "objsubid" Int4, "description" Text]),
    empty!("pg_enum", ["oid" Oid, "enumtypid" Oid, "enumsortorder" Float8, "enumlabel" Name]),
    empty!("pg_event_trigger", [
        "oid" Oid, "evtname" Name, "evtevent" Name, "evtowner" Oid, "evtfoid" Oid,
        "evtenabled" Char, "evttags" Texts,
    ]),
    empty!("pg_extension", [
        "oid" Oid, "extname" Name, "extowner" Oid, "extnamespace" Oid, "extrelocatable" Bool,
        "extversion" Text, "extconfig" Texts, "extcondition" Texts,
    ]),
    empty!("pg_foreign_data_wrapper", [
        "oid" Oid, "fdwname" Name, "fdwowner" Oid, "fdwhandler" Oid, "fdwvalidator" Oid,
        "fdwacl" Texts, "fdwoptions" Texts,
    ]),
    empty!("pg_foreign_server", [
        "oid" Oid, "srvname" Name, "srvowner" Oid, "srvfdw" Oid, "srvtype" Text, "srvversion" Text,
        "srvacl" Texts, "srvoptions" Texts,
    ]),
    empty!("pg_foreign_table", ["ftrelid" Oid, "ftserver" Oid, "ftoptions" Texts]),
    empty!("pg_inherits", [
        "inhrelid" Oid, "inhparent" Oid, "inhseqno" Int4, "inhdetachpending" Bool,
    ]),
    empty!("pg_largeobject", ["loid" Oid, "pageno" Int4, "data" Text]),
    empty!("pg_largeobject_metadata", ["oid" Oid, "lomowner" Oid, "lomacl" Texts]),
    empty!("pg_locks", [
        "locktype" Text, "database" Oid, "relation" Oid, "page" Int4, "tuple" Int2,
        "virtualxid" Text, "transactionid" Int8, "classid" Oid, "objid" Oid, "objsubid" Int2,
        "virtualtransaction" Text, "pid" Int4, "mode" Text, "granted" Bool, "fastpath" Bool,
        "waitstart" Instant,
    ]),
    empty!("pg_opclass", [
        "oid" Oid, "opcmethod" Oid, "opcname" Name, "opcnamespace" Oid, "opcowner" Oid,
        "opcfamily" Oid, "opcintype" Oid, "opcdefault" Bool, "opckeytype" Oid,
    ]),
    empty!("pg_operator", [
        "oid" Oid, "oprname" Name, "oprnamespace" Oid, "oprowner" Oid, "oprkind" Char,
        "oprcanmerge" Bool, "oprcanhash" Bool, "oprleft" Oid, "oprright" Oid, "oprresult" Oid,
        "oprcom" Oid, "oprnegate" Oid, "oprcode" Oid, "oprrest" Oid, "oprjoin" Oid,
    ]),
    empty!("pg_opfamily", [
        "oid" Oid, "opfmethod" Oid, "opfname" Name, "opfnamespace" Oid, "opfowner" Oid,
    ]),
    empty!("pg_parameter_acl", ["oid" Oid, "parname" Text, "paracl" Texts]),
    empty!("pg_partitioned_table", [
        "partrelid" Oid, "partstrat" Char, "partnatts" Int2, "partdefid" Oid, "partattrs" Text,
        "partclass" Text, "partcollation" Text, "partexprs" Text,
    ]),
    empty!("pg_policy", [
        "oid" Oid, "polname" Name, "polrelid" Oid, "polcmd" Char, "polpermissive" Bool,
        "polroles" Texts, "polqual" Text, "polwithcheck" Text,
    ]),
    empty!("pg_prepared_statements", [
        "name" Text, "statement" Text, "prepare_time" Instant, "parameter_types" Texts,
        "from_sql" Bool, "generic_plans" Int8, "custom_plans" Int8,
    ]),
    empty!("pg_prepared_xacts", [
        "transaction" Int8, "gid" Text, "prepared" Instant, "owner" Name, "database" Name,
    ]),
    empty!("pg_proc", [
        "oid" Oid, "proname" Name, "pronamespace" Oid, "proowner" Oid, "prolang" Oid,
        "procost" Float8, "prorows" Float8, "provariadic" Oid, "prosupport" Oid, "prokind" Char,
        "prosecdef" Bool, "proleakproof" Bool, "proisstrict" Bool, "proretset" Bool,
        "provolatile" Char, "proparallel" Char, "pronargs" Int2, "pronargdefaults" Int2,
        "prorettype" Oid, "proargtypes" Text, "proallargtypes" Texts, "proargmodes" Texts,
        "proargnames" Texts, "proargdefaults" Text, "protrftypes" Texts, "prosrc" Text,
        "probin" Text, "prosqlbody" Text, "proconfig" Texts, "proacl" Texts,
    ]),
    empty!("pg_publication", [
        "oid" Oid, "pubname" Name, "pubowner" Oid, "puballtables" Bool, "pubinsert" Bool,
        "pubupdate" Bool, "pubdelete" Bool, "pubtruncate" Bool, "pubviaroot" Bool,
    ]),
    empty!("pg_publication_namespace", ["oid" Oid, "pnpubid" Oid, "pnnspid" Oid]),
    empty!("pg_publication_rel", [
        "oid" Oid, "prpubid" Oid, "prrelid" Oid, "prqual" Text, "prattrs" Text,
    ]),
    empty!("pg_range", [
        "rngtypid" Oid, "rngsubtype" Oid, "rngmultitypid" Oid, "rngcollation" Oid, "rngsubopc" Oid,
        "rngcanonical" Oid, "rngsubdiff" Oid,
    ]),
    empty!("pg_replication_slots", [
        "slot_name" Name, "plugin" Name, "slot_type" Text, "datoid" Oid, "database" Name,
        "temporary" Bool, "active" Bool, "active_pid" Int4, "xmin" Int8, "catalog_xmin" Int8,
        "restart_lsn" Text, "confirmed_flush_lsn" Text, "wal_status" Text, "safe_wal_size" Int8,
        "two_phase" Bool,
    ]),
    empty!("pg_rewrite", [
        "oid" Oid, "rulename" Name, "ev_class" Oid, "ev_type" Char, "ev_enabled" Char,
        "is_instead" Bool, "ev_qual" Text, "ev_action" Text,
    ]),
    empty!("pg_seclabel", [
        "objoid" Oid, "classoid" Oid, "objsubid" Int4, "provider" Text, "label" Text,
    ]),
    empty!("pg_sequence", [
        "seqrelid" Oid, "seqtypid" Oid, "seqstart" Int8, "seqincrement" Int8, "seqmax" Int8,
        "seqmin" Int8, "seqcache" Int8, "seqcycle" Bool,
    ]),
    empty!("pg_sequences", [
        "schemaname" Name, "sequencename" Name, "sequenceowner" Name, "data_type" Text,
        "start_value" Int8, "min_value" Int8, "max_value" Int8, "increment_by" Int8, "cycle" Bool,
        "cache_size" Int8, "last_value" Int8,
    ]),
    empty!("pg_shdepend", [
        "dbid" Oid, "classid" Oid, "objid" Oid, "objsubid" Int4, "refclassid" Oid, "refobjid" Oid,
        "deptype" Char,
    ]),
    empty!("pg_shdescription", ["objoid" Oid, "classoid" Oid, "description" Text]),
    empty!("pg_shseclabel", ["objoid" Oid, "classoid" Oid, "provider" Text, "label" Text]),
    empty!("pg_statistic", [
        "starelid" Oid, "staattnum" Int2, "stainherit" Bool, "stanullfrac" Float8, "stawidth" Int4,
        "stadistinct" Float8,
    ]),
    empty!("pg_statistic_ext", [
        "oid" Oid, "stxrelid" Oid, "stxname" Name, "stxnamespace" Oid, "stxowner" Oid,
        "stxstattarget" Int4, "stxkeys" Text, "stxkind" Texts, "stxexprs" Text,
    ]),
    empty!("pg_stats", [
        "schemaname" Name, "tablename" Name, "attname" Name, "inherited" Bool, "null_frac" Float8,
        "avg_width" Int4, "n_distinct" Float8, "most_common_vals" Texts, "most_common_freqs" Texts,
        "histogram_bounds" Texts, "correlation" Float8, "most_common_elems" Texts,
        "most_common_elem_freqs" Texts, "elem_count_histogram" Texts,
    ]),
    empty!("pg_subscription", [
        "oid" Oid, "subdbid" Oid, "subskiplsn" Text, "subname" Name, "subowner" Oid,
        "subenabled" Bool, "subbinary" Bool, "substream" Bool, "subtwophasestate" Char,
        "subdisableonerr" Bool, "subconninfo" Text, "subslotname" Name, "subsynccommit" Text,
        "subpublications" Texts,
    ]),
    empty!("pg_subscription_rel", [
        "srsubid" Oid, "srrelid" Oid, "srsubstate" Char, "srsublsn" Text,
    ]),
    empty!("pg_transform", [
        "oid" Oid, "trftype" Oid, "trflang" Oid, "trffromsql" Oid, "trftosql" Oid,
    ]),
    empty!("pg_trigger", [
        "oid" Oid, "tgrelid" Oid, "tgparentid" Oid, "tgname" Name, "tgfoid" Oid, "tgtype" Int2,
        "tgenabled" Char, "tgisinternal" Bool, "tgconstrrelid" Oid, "tgconstrindid" Oid,
        "tgconstraint" Oid, "tgdeferrable" Bool, "tginitdeferred" Bool, "tgnargs" Int2,
        "tgattr" Text, "tgargs" Text, "tgqual" Text, "tgoldtable" Name, "tgnewtable" Name,
    ]),
    empty!("pg_ts_config", [
        "oid" Oid, "cfgname" Name, "cfgnamespace" Oid, "cfgowner" Oid, "cfgparser" Oid,
    ]),
    empty!("pg_ts_dict", [
        "oid" Oid, "dictname" Name, "dictnamespace" Oid, "dictowner" Oid, "dicttemplate" Oid,
        "dictinitoption" Text,
    ]),
    empty!("pg_ts_parser", [
        "oid" Oid, "prsname" Name, "prsnamespace" Oid, "prsstart" Oid, "prstoken" Oid, "prsend" Oid,
        "prsheadline" Oid, "prslextype" Oid,
    ]),
    empty!("pg_ts_template", [
        "oid" Oid, "tmplname" Name, "tmplnamespace" Oid, "tmplinit" Oid, "tmpllexize" Oid,
    ]),
    empty!("pg_user_mapping", ["oid" Oid, "umuser" Oid, "umserver" Oid, "umoptions" Texts]),
    empty!("pg_user_mappings", [
        "umid" Oid, "srvid" Oid, "srvname" Name, "umuser" Oid, "usename" Name, "umoptions" Texts,
    ]),
];

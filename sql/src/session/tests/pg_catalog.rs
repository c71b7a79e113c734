//! What psql 15 sends for `\d` and its kin.

use super::*;

async fn fixture() -> (Fixture, Session) {
    let fixture = Fixture::new();
    let mut s = fixture.session();
    run(&mut s, "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(5) DEFAULT 'x', v NUMERIC(10,2)); \
        CREATE VIEW w AS SELECT id FROM t; CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t").await;
    (fixture, s)
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_relations() {
    let (_fixture, mut s) = fixture().await;
    let list = "SELECT n.nspname as \"Schema\", c.relname as \"Name\", \
        CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' END as \"Type\", \
        pg_catalog.pg_get_userbyid(c.relowner) as \"Owner\" \
        FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam \
        WHERE c.relkind IN ('r','p','v','m','S','f','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast' \
        AND n.nspname <> 'information_schema' AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1,2;";
    assert_eq!(
        run(&mut s, list).await,
        "public|m|materialized view|ann\npublic|t|table|ann\npublic|w|view|ann"
    );
    assert_eq!(run(&mut s, "SELECT n.nspname AS \"Name\", pg_catalog.pg_get_userbyid(n.nspowner) AS \"Owner\" \
        FROM pg_catalog.pg_namespace n WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1;").await,
        "millstream|ann\npublic|ann");
    assert_eq!(run(&mut s, "SELECT d.datname as \"Name\", pg_catalog.pg_get_userbyid(d.datdba) as \"Owner\", \
        pg_catalog.pg_encoding_to_char(d.encoding) as \"Encoding\", d.datcollate as \"Collate\", d.datctype as \"Ctype\", \
        d.daticulocale as \"ICU Locale\", CASE d.datlocprovider WHEN 'c' THEN 'libc' WHEN 'i' THEN 'icu' END AS \"Locale Provider\", \
        pg_catalog.array_to_string(d.datacl, E'\\n') AS \"Access privileges\" FROM pg_catalog.pg_database d ORDER BY 1;").await,
        "millstream|ann|UTF8|C|C|null|libc|null");
    assert_eq!(run(&mut s, "SELECT r.rolname, r.rolsuper, ARRAY(SELECT b.rolname FROM pg_catalog.pg_auth_members m \
        JOIN pg_catalog.pg_roles b ON (m.roleid = b.oid) WHERE m.member = r.oid) as memberof \
        FROM pg_catalog.pg_roles r WHERE r.rolname !~ '^pg_' ORDER BY 1;").await, "ann|true|[]");
    assert_eq!(
        run(&mut s, "SELECT table_name, table_type FROM information_schema.tables ORDER BY 1")
            .await,
        "m|MATERIALIZED VIEW\nt|BASE TABLE\nw|VIEW"
    );
    assert_eq!(
        run(
            &mut s,
            "SELECT column_name, data_type, character_maximum_length, numeric_scale, is_nullable \
        FROM information_schema.columns WHERE table_name = 't' ORDER BY ordinal_position"
        )
        .await,
        "id|integer|null|0|NO\nname|character varying|5|null|YES\nv|numeric|null|2|YES"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_table() {
    let (_fixture, mut s) = fixture().await;
    let oid = run(
        &mut s,
        "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c \
        LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
        WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default \
        AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 2, 3;",
    )
    .await;
    let oid = oid.strip_suffix("|public|t").unwrap_or_else(|| panic!("{oid}")).to_string();
    let flags = format!(
        "SELECT c.relchecks, c.relkind, c.relhasindex, c.relhasrules, c.relhastriggers, c.relrowsecurity, \
        c.relforcerowsecurity, false AS relhasoids, c.relispartition, '', c.reltablespace, \
        CASE WHEN c.reloftype = 0 THEN '' ELSE c.reloftype::pg_catalog.regtype::pg_catalog.text END, c.relpersistence, \
        c.relreplident, am.amname FROM pg_catalog.pg_class c \
        LEFT JOIN pg_catalog.pg_class tc ON (c.reltoastrelid = tc.oid) \
        LEFT JOIN pg_catalog.pg_am am ON (c.relam = am.oid) WHERE c.oid = '{oid}';"
    );
    assert_eq!(
        run(&mut s, &flags).await,
        "0|r|true|false|false|false|false|false|false||0||p|d|heap"
    );
    let columns = format!(
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), \
        (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d \
        WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull, \
        (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t \
        WHERE c.oid = a.attcollation AND t.oid = a.atttypid AND a.attcollation <> t.typcollation) AS attcollation, \
        a.attidentity, a.attgenerated FROM pg_catalog.pg_attribute a \
        WHERE a.attrelid = '{oid}' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;"
    );
    assert_eq!(
        run(&mut s, &columns).await,
        "id|integer|null|true|null||\nname|character varying(5)|'x'|false|null||\nv|numeric(10,2)|null|false|null||"
    );
    let keys = format!(
        "SELECT c2.relname, i.indisprimary, i.indisunique, i.indisclustered, i.indisvalid, \
        pg_catalog.pg_get_indexdef(i.indexrelid, 0, true), pg_catalog.pg_get_constraintdef(con.oid, true), contype, \
        condeferrable, condeferred, i.indisreplident, c2.reltablespace \
        FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i \
        LEFT JOIN pg_catalog.pg_constraint con ON (conrelid = i.indrelid AND conindid = i.indexrelid AND contype IN ('p','u','x')) \
        WHERE c.oid = '{oid}' AND c.oid = i.indrelid AND i.indexrelid = c2.oid ORDER BY i.indisprimary DESC, c2.relname;"
    );
    assert_eq!(
        run(&mut s, &keys).await,
        "t_pkey|true|true|false|true|CREATE UNIQUE INDEX t_pkey ON public.t USING btree (id)|PRIMARY KEY (id)|p|false|false|false|0"
    );
    for empty in [
        "SELECT pol.polname, pol.polpermissive, CASE WHEN pol.polroles = '{0}' THEN NULL ELSE pg_catalog.array_to_string(array(select rolname from pg_catalog.pg_roles where oid = any (pol.polroles) order by 1),',') END, pg_catalog.pg_get_expr(pol.polqual, pol.polrelid) FROM pg_catalog.pg_policy pol WHERE pol.polrelid = 'OID' ORDER BY 1;",
        "SELECT oid, stxrelid::pg_catalog.regclass, stxnamespace::pg_catalog.regnamespace::pg_catalog.text AS nsp, stxname, 'd' = any(stxkind) AS ndist_enabled FROM pg_catalog.pg_statistic_ext WHERE stxrelid = 'OID' ORDER BY nsp, stxname;",
        "SELECT pubname , NULL FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_namespace pn ON p.oid = pn.pnpubid JOIN pg_catalog.pg_class pc ON pc.relnamespace = pn.pnnspid WHERE pc.oid ='OID' UNION SELECT pubname , (SELECT string_agg(attname, ', ') FROM pg_catalog.generate_series(0, pg_catalog.array_upper(pr.prattrs::pg_catalog.int2[], 1)) s, pg_catalog.pg_attribute WHERE attrelid = pr.prrelid AND attnum = prattrs[s]) FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel pr ON p.oid = pr.prpubid ORDER BY 1;",
        "SELECT c.oid::pg_catalog.regclass FROM pg_catalog.pg_class c, pg_catalog.pg_inherits i WHERE c.oid = i.inhparent AND i.inhrelid = 'OID' AND c.relkind != 'p' ORDER BY inhseqno;",
        "SELECT c.oid::pg_catalog.regclass, c.relkind, inhdetachpending, pg_catalog.pg_get_expr(c.relpartbound, c.oid) FROM pg_catalog.pg_class c, pg_catalog.pg_inherits i WHERE c.oid = i.inhrelid AND i.inhparent = 'OID' ORDER BY pg_catalog.pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT', c.oid::pg_catalog.regclass::pg_catalog.text;",
    ] {
        assert_eq!(run(&mut s, &empty.replace("OID", &oid)).await, "", "{empty}");
    }
    assert_eq!(
        run(
            &mut s,
            "SELECT 't'::regclass::oid = c.oid, c.oid::regclass FROM pg_class c WHERE relname = 't'"
        )
        .await,
        "true|t"
    );
    assert_eq!(
        run(&mut s, "SELECT pg_get_viewdef('w'::regclass, true)").await,
        " SELECT id FROM t;"
    );
    assert_eq!(
        run(
            &mut s,
            "SELECT current_setting('server_version_num')::int / 10000, current_schemas(false)"
        )
        .await,
        "15|[public]"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn relations_that_are_always_empty() {
    let (_fixture, mut s) = fixture().await;
    let statement = s.parse("SELECT * FROM pg_enum").unwrap().remove(0);
    let described = s.describe(&statement, &[]).await.unwrap().columns.unwrap();
    let names = described.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["oid", "enumtypid", "enumsortorder", "enumlabel"]);
    assert_eq!(run(&mut s, "SELECT * FROM pg_catalog.pg_proc").await, "");
    assert_eq!(run(&mut s, "SELECT count(*) FROM pg_catalog.pg_extension").await, "0");
}

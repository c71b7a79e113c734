//! A database opened again over the state that another engine left, as after a crash.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::Int64Array;
use arrow::datatypes::{Field, Schema};
use millstream_engine::sink::{Committable, Guarantee, SinkWriter};
use millstream_engine::source::{Offset, Polled, Split, SplitReader};
use millstream_engine::state::{Lifetime, MemoryBackend, Next, Space, StateBackend, Visit, Write};
use millstream_engine::{ChangeBatch, plan::RelationId};

use super::*;
use crate::catalog::saved::SavedCatalog;

mod memory;

/// One source of the numbers 1 to 3 and one sink of nothing, which may be out of reach.
#[derive(Debug, Default)]
struct Outside {
    gone: AtomicBool,
    /// One more column has come.
    grown: AtomicBool,
}

impl Outside {
    fn reach(&self) -> millstream_engine::Result<()> {
        match self.gone.load(Ordering::Relaxed) {
            true => Err(EngineError::external("asking the outside", "it is gone")),
            false => Ok(()),
        }
    }
}

impl ConnectorCatalog for Outside {
    fn connectors(&self) -> Vec<ConnectorInfo> {
        Vec::new()
    }

    fn infer_schema(&self, _: &Options) -> millstream_engine::Result<SchemaRef> {
        self.reach()?;
        let names = if self.grown.load(Ordering::Relaxed) { &["n", "more"][..] } else { &["n"] };
        let fields = names.iter().map(|name| Field::new(*name, DataType::Int64, true));
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    fn source(
        &self,
        schema: &SchemaRef,
        _: &Options,
    ) -> millstream_engine::Result<Arc<dyn Source>> {
        self.reach()?;
        Ok(Arc::new(Numbers(Arc::clone(schema))))
    }

    fn sink(&self, _: &SchemaRef, _: &Options) -> millstream_engine::Result<Arc<dyn Sink>> {
        self.reach()?;
        Ok(Arc::new(Nowhere))
    }
}

#[derive(Debug)]
struct Numbers(SchemaRef);

impl Source for Numbers {
    fn list_splits(&self) -> millstream_engine::Result<Vec<Split>> {
        Ok(vec![Split("all".into())])
    }

    fn open(
        &self,
        _: &Split,
        from: Offset,
        projection: &[usize],
    ) -> millstream_engine::Result<Box<dyn SplitReader>> {
        Ok(Box::new(NumbersReader(Arc::new(self.0.project(projection)?), from.0)))
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

struct NumbersReader(SchemaRef, u64);

impl SplitReader for NumbersReader {
    fn poll(&mut self, _: usize, until: Option<Offset>) -> millstream_engine::Result<Polled> {
        if self.1 >= until.map_or(3, |until| until.0.min(3)) {
            return Ok(Polled::Finished);
        }
        self.1 += 1;
        let number = Int64Array::from(vec![i64::try_from(self.1).unwrap()]);
        let columns = self.0.fields().iter().map(|_| Arc::new(number.clone()) as _).collect();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.0), columns, &options)?;
        Ok(Polled::Rows { rows, next: Offset(self.1), bad: Vec::new() })
    }
}

#[derive(Debug)]
struct Nowhere;

impl Sink for Nowhere {
    fn guarantee(&self) -> Guarantee {
        Guarantee::ExactlyOnce
    }

    fn accepts_retractions(&self) -> bool {
        true
    }

    fn writer(&self, _: usize, _: usize) -> millstream_engine::Result<Box<dyn SinkWriter>> {
        Ok(Box::new(NowhereWriter))
    }

    fn commit(&self, _: &[Committable]) -> millstream_engine::Result<()> {
        Ok(())
    }
}

struct NowhereWriter;

impl SinkWriter for NowhereWriter {
    fn write(&mut self, _: &ChangeBatch) -> millstream_engine::Result<()> {
        Ok(())
    }

    fn prepare(
        &mut self,
        _: millstream_engine::Epoch,
    ) -> millstream_engine::Result<Vec<Committable>> {
        Ok(Vec::new())
    }
}

/// A disk that may take no definitions.
#[derive(Debug, Default)]
struct Disk {
    keys: MemoryBackend,
    full: AtomicBool,
}

fn is_definition(write: &Write) -> bool {
    matches!(write, Write::Put(_, _, value) if value.starts_with(b"{\"format\""))
}

impl StateBackend for Disk {
    fn commit(&self, writes: &[Write]) -> millstream_engine::Result<()> {
        if self.full.load(Ordering::Relaxed) && writes.iter().any(is_definition) {
            return Err(EngineError::external("writing the state", "no space left on device"));
        }
        self.keys.commit(writes)
    }

    fn write_file(
        &self,
        lifetime: Lifetime,
        next: &mut Next<'_>,
    ) -> millstream_engine::Result<u64> {
        self.keys.write_file(lifetime, next)
    }

    fn drop_files(&self, prefix: &[u8]) -> millstream_engine::Result<()> {
        self.keys.drop_files(prefix)
    }

    fn files(&self) -> millstream_engine::Result<Vec<Vec<u8>>> {
        self.keys.files()
    }

    fn get(&self, space: Space, key: &[u8]) -> millstream_engine::Result<Option<Vec<u8>>> {
        self.keys.get(space, key)
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        visit: &mut Visit<'_>,
    ) -> millstream_engine::Result<()> {
        self.keys.scan(space, prefix, visit)
    }

    fn copy_to(&self, directory: &std::path::Path) -> millstream_engine::Result<()> {
        self.keys.copy_to(directory)
    }

    fn size(&self) -> u64 {
        self.keys.size()
    }
}

/// What outlives an engine.
#[derive(Default)]
struct World {
    disk: Arc<Disk>,
    outside: Arc<Outside>,
    /// Memory is always short, and nothing is read before it is needed.
    is_tight: bool,
}

impl World {
    async fn try_open(&self) -> Result<Arc<Database>> {
        let mut config = EngineConfig { parallelism: 2, ..EngineConfig::default() };
        if self.is_tight {
            (config.state_memory, config.load_rows_max) = (1, 0);
        }
        let disk: Arc<dyn StateBackend> = Arc::clone(&self.disk) as _;
        let engine = tokio::task::spawn_blocking(move || Engine::open(config, disk));
        let engine = engine.await.unwrap().unwrap();
        let opened = Database::open(engine, Arc::clone(&self.outside) as _, None);
        tokio::time::timeout(Duration::from_secs(20), opened).await.expect("in time")
    }

    async fn open(&self) -> Session {
        self.try_open().await.unwrap().session("ann")
    }
}

/// The engine stops where it stands.
async fn stop(session: Session) {
    let engine = Arc::clone(session.db.engine());
    drop(session);
    tokio::task::spawn_blocking(move || engine.close()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_again() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE SCHEMA shop; SET search_path = shop, public").await;
    run(&mut s, "CREATE TABLE t (k INT PRIMARY KEY, v INT DEFAULT 7, w INT GENERATED ALWAYS AS (v + 1) STORED)")
        .await;
    run(&mut s, "CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS total, count(*) AS n FROM t").await;
    run(&mut s, "CREATE VIEW plain (double) AS SELECT total * 2 FROM m").await;
    run(&mut s, "CREATE MATERIALIZED VIEW above AS SELECT double + 1 AS more FROM plain").await;
    run(&mut s, "CREATE SOURCE numbers WITH (connector = 'outside')").await;
    run(&mut s, "CREATE MATERIALIZED VIEW sums AS SELECT sum(n)::BIGINT AS n FROM numbers").await;
    run(&mut s, "CREATE SINK nowhere FROM m WITH (connector = 'outside')").await;
    run(&mut s, "CREATE TABLE copied AS SELECT k + 1 AS k FROM t").await;
    run(&mut s, "INSERT INTO t (k, v) VALUES (1, 10), (2, 20); INSERT INTO t (k) VALUES (3)").await;
    assert_eq!(run(&mut s, "DELETE FROM t WHERE k = 1").await, "DELETE 1");
    let listed = "SELECT id, schema, name, kind, definition FROM millstream.relations ORDER BY id";
    let columns = "SELECT relation_id, name, type, nullable, in_primary_key FROM millstream.columns \
                   ORDER BY relation_id, position";
    let dependencies =
        "SELECT relation_id, depends_on_id FROM millstream.dependencies ORDER BY 1, 2";
    let mut before = Vec::new();
    for sql in [listed, columns, dependencies] {
        before.push(run(&mut s, sql).await);
    }
    stop(s).await;

    let mut s = world.open().await;
    for (sql, before) in [listed, columns, dependencies].into_iter().zip(before) {
        assert_eq!(run(&mut s, sql).await, before);
    }
    // The path is the session's own, not part of the database.
    assert!(run(&mut s, "SELECT * FROM t").await.starts_with("42P01"));
    run(&mut s, "SET search_path = shop, public").await;
    assert_eq!(run(&mut s, "SELECT * FROM t ORDER BY k").await, "2|20|21\n3|7|8");
    assert_eq!(run(&mut s, "SELECT * FROM m").await, "27|2");
    assert_eq!(run(&mut s, "SELECT * FROM above").await, "55");
    assert_eq!(run(&mut s, "SELECT count(*) FROM copied").await, "0");
    // All of it still works.
    run(&mut s, "INSERT INTO t (k) VALUES (4)").await;
    assert_eq!(run(&mut s, "SELECT total, more FROM m, above").await, "34|69");
    assert!(run(&mut s, "INSERT INTO t (k) VALUES (4)").await.starts_with("23505"));
    s.db.engine().wait_bounded(None).await.unwrap();
    assert_eq!(run(&mut s, "SELECT n FROM sums").await, "6");
    assert!(run(&mut s, "DROP SCHEMA shop").await.starts_with("2BP01"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_dropped_stays_dropped_and_numbers_are_not_given_again() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE TABLE a (x INT); CREATE TABLE b (x INT); INSERT INTO b VALUES (1)").await;
    run(&mut s, "CREATE SCHEMA gone; DROP SCHEMA gone").await;
    let id = "SELECT max(id) FROM millstream.relations";
    let newest: u64 = run(&mut s, id).await.parse().unwrap();
    assert_eq!(run(&mut s, "DROP TABLE b").await, "DROP TABLE");
    stop(s).await;

    let mut s = world.open().await;
    assert_eq!(run(&mut s, "SELECT name FROM millstream.relations").await, "a");
    assert!(run(&mut s, "DROP SCHEMA gone").await.starts_with("3F000"));
    run(&mut s, "CREATE TABLE b (x INT, y INT)").await;
    assert!(run(&mut s, id).await.parse::<u64>().unwrap() > newest);
    assert_eq!(run(&mut s, "SELECT count(*) FROM b").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_means_what_it_meant() {
    let world = World::default();
    let mut s = world.open().await;
    run(
        &mut s,
        "CREATE SCHEMA x; CREATE TABLE t (at TIMESTAMPTZ); CREATE TABLE x.t (at TIMESTAMPTZ)",
    )
    .await;
    run(&mut s, "SET TimeZone = '+05:00'; SET search_path = x").await;
    run(&mut s, "CREATE MATERIALIZED VIEW hours AS SELECT date_part('hour', at)::INT AS h FROM t")
        .await;
    run(&mut s, "INSERT INTO x.t VALUES ('2024-01-01 00:00:00+00')").await;
    let before = run(&mut s, "SELECT h FROM x.hours").await;
    run(&mut s, "CREATE VIEW x.v AS SELECT 1 AS a; CREATE VIEW x.w AS SELECT * FROM x.v").await;
    run(&mut s, "CREATE OR REPLACE VIEW x.v AS SELECT 1 AS a, h FROM x.hours").await;
    stop(s).await;

    let mut s = world.open().await;
    run(&mut s, "INSERT INTO x.t VALUES ('2024-01-01 00:00:00+00')").await;
    let after = run(&mut s, "SELECT h FROM x.hours").await;
    assert_eq!(after, format!("{before}\n{before}"));
    assert_eq!(run(&mut s, "SELECT * FROM x.w LIMIT 1").await, "1");
    assert_eq!(run(&mut s, "SELECT * FROM x.v LIMIT 1").await, format!("1|{before}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_again_fails_alone() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE SOURCE numbers WITH (connector = 'outside')").await;
    run(&mut s, "CREATE MATERIALIZED VIEW sums AS SELECT sum(n)::BIGINT AS n FROM numbers").await;
    run(&mut s, "CREATE VIEW over_sums AS SELECT n + 1 AS n FROM sums").await;
    run(&mut s, "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)").await;
    run(&mut s, "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t").await;
    stop(s).await;

    world.outside.gone.store(true, Ordering::Relaxed);
    let mut s = world.open().await;
    assert_eq!(run(&mut s, "INSERT INTO t VALUES (2); SELECT n FROM m").await, "2");
    let reason = "asking the outside: it is gone";
    assert_eq!(
        run(&mut s, "SELECT * FROM numbers").await,
        format!("55000 source \"numbers\" has failed: {reason}\nposition: 15")
    );
    let reason = format!("it reads source numbers: {reason}");
    assert_eq!(
        run(&mut s, "SELECT n FROM sums").await,
        format!("55000 materialized view \"sums\" has failed: {reason}\nposition: 15")
    );
    assert!(run(&mut s, "SELECT * FROM over_sums").await.contains(&reason));
    assert!(
        run(&mut s, "CREATE MATERIALIZED VIEW x AS SELECT * FROM sums").await.starts_with("55000")
    );
    assert!(run(&mut s, "DROP SOURCE numbers").await.starts_with("2BP01"));
    assert_eq!(run(&mut s, "DROP VIEW over_sums").await, "DROP VIEW");
    stop(s).await;

    // The definitions are still there: when the cause is gone, so is the failure.
    world.outside.gone.store(false, Ordering::Relaxed);
    let mut s = world.open().await;
    s.db.engine().wait_bounded(None).await.unwrap();
    assert_eq!(run(&mut s, "SELECT n FROM sums").await, "6");
    stop(s).await;

    world.outside.gone.store(true, Ordering::Relaxed);
    let mut s = world.open().await;
    assert_eq!(run(&mut s, "DROP SOURCE numbers CASCADE").await, "DROP SOURCE");
    stop(s).await;
    let mut s = world.open().await;
    assert_eq!(run(&mut s, "SELECT name FROM millstream.relations ORDER BY 1").await, "m\nt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_keeps_the_columns_that_it_had() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE SOURCE numbers WITH (connector = 'outside')").await;
    stop(s).await;
    world.outside.grown.store(true, Ordering::Relaxed);
    let mut s = world.open().await;
    assert_eq!(run(&mut s, "SHOW COLUMNS FROM numbers").await, "n|bigint|yes|");
    run(&mut s, "CREATE SOURCE newer WITH (connector = 'outside')").await;
    assert_eq!(run(&mut s, "SHOW COLUMNS FROM newer").await, "n|bigint|yes|\nmore|bigint|yes|");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_cannot_be_saved_is_not_made() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE TABLE t (a INT)").await;
    world.disk.full.store(true, Ordering::Relaxed);
    for sql in [
        "CREATE TABLE u (a INT)",
        "CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t",
        "CREATE VIEW v AS SELECT 1 AS a",
        "CREATE SCHEMA x",
    ] {
        let text = run(&mut s, sql).await;
        assert!(text.starts_with("58030") && text.contains("no space left"), "{sql}: {text}");
    }
    world.disk.full.store(false, Ordering::Relaxed);
    assert_eq!(
        run(&mut s, "CREATE TABLE u (a INT); SELECT name FROM millstream.relations ORDER BY 1")
            .await,
        "t\nu"
    );
    stop(s).await;
    let mut s = world.open().await;
    assert_eq!(run(&mut s, "SELECT name FROM millstream.relations ORDER BY 1").await, "t\nu");
    assert!(run(&mut s, "CREATE TABLE x.t (a INT)").await.starts_with("3F000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_are_durable() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE TABLE t (a INT PRIMARY KEY)").await;
    assert_eq!(run(&mut s, "INSERT INTO t VALUES (1)").await, "INSERT 0 1");
    assert_eq!(
        run(&mut s, "BEGIN; INSERT INTO t VALUES (2); DELETE FROM t WHERE a = 1; COMMIT").await,
        "COMMIT"
    );
    assert_eq!(run(&mut s, "INSERT INTO t VALUES (3) RETURNING a").await, "3");
    // A write that is only put off is made durable by the wait.
    s.defer_durability(true);
    assert_eq!(run(&mut s, "INSERT INTO t VALUES (4)").await, "INSERT 0 1");
    s.wait_durable().await.unwrap();
    assert_eq!(run(&mut s, "BEGIN; INSERT INTO t VALUES (9)").await, "INSERT 0 1");
    // No tidy end: the state is read while the first engine still runs.
    let copy = World::default();
    let mut writes = Vec::new();
    for space in Space::ALL {
        let visit = &mut |key: &[u8], value: &[u8]| {
            writes.push(Write::Put(space, key.to_vec(), value.to_vec()));
            Ok(true)
        };
        world.disk.scan(space, b"", visit).unwrap();
    }
    copy.disk.commit(&writes).unwrap();
    let mut after = copy.open().await;
    assert_eq!(run(&mut after, "SELECT a FROM t ORDER BY a").await, "2\n3\n4");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_listed() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await;
    assert_eq!(run(&mut s, "CHECKPOINT").await, "CHECKPOINT");
    let listed = run(&mut s, "SHOW CHECKPOINTS").await;
    assert_eq!(listed.lines().last().unwrap().split('|').count(), 14, "{listed}");
    let sane = "SELECT bool_and(barrier_ms >= 0 AND write_ms >= 0 AND bytes_full > 0), \
                max(started) > '2024-01-01', max(id) >= 1, bool_and(align_ms >= 0 AND align_ms <= barrier_ms), \
                bool_and(reason IS NULL) FROM millstream.checkpoints WHERE status = 'completed'";
    assert_eq!(run(&mut s, sane).await, "true|true|true|true|true");
    // The table is part of the checkpoint with both of its rows.
    let kept = "SELECT job, operator, state_rows, state_bytes > 0 \
                FROM millstream.checkpoint_operators JOIN millstream.checkpoints ON id = checkpoint_id \
                ORDER BY id DESC LIMIT 1";
    assert_eq!(run(&mut s, kept).await, "t|Materialize|2|true");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_engine_are_shown_and_altered() {
    let world = World::default();
    let mut s = world.open().await;
    assert_eq!(run(&mut s, "SHOW checkpoint_timeout").await, "10min");
    for (set, show, value) in [
        ("checkpoint_interval = '250ms'", "checkpoint_interval", "250ms"),
        ("checkpoint_min_pause TO 2000", "checkpoint_min_pause", "2s"),
        ("checkpoint_timeout = '1h'", "checkpoint_timeout", "1h"),
        ("checkpoint_mode = at_least_once", "CHECKPOINT_MODE", "at_least_once"),
        ("checkpoint_mode = DEFAULT", "checkpoint_mode", "exactly_once"),
        ("state_memory = '64MB'", "state_memory", "64MB"),
    ] {
        assert_eq!(run(&mut s, &format!("ALTER SYSTEM SET {set}")).await, "ALTER SYSTEM");
        assert_eq!(run(&mut s, &format!("SHOW {show}")).await, value);
    }
    let listed = "SELECT setting FROM millstream.settings WHERE name = 'checkpoint_interval'";
    assert_eq!(run(&mut s, listed).await, "250ms");
    for (wrong, sqlstate) in [
        ("SET checkpoint_interval = 3", "55P02"),
        ("ALTER SYSTEM SET checkpoint_interval = 0", "22023"),
        ("ALTER SYSTEM SET checkpoint_mode = thrice", "22023"),
        ("ALTER SYSTEM SET state_memory = 0", "22023"),
    ] {
        let answer = run(&mut s, wrong).await;
        assert!(answer.starts_with(sqlstate), "{wrong}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_of_a_newer_version_is_left_alone() {
    let world = World::default();
    let s = world.open().await;
    let newer = br#"{"format": 1000}"#.to_vec();
    let engine = Arc::clone(s.db.engine());
    tokio::task::spawn_blocking(move || engine.save_definition(5, newer)).await.unwrap().unwrap();
    stop(s).await;
    let error = world.try_open().await.unwrap_err();
    assert!(error.message.contains("newer version"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_create_leaves_no_definition() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE TABLE t (a INT)").await;
    let error = run(&mut s, "CREATE TABLE c AS SELECT a / 0 AS b FROM (VALUES (1)) AS v (a)").await;
    assert!(error.starts_with("22012"), "{error}");
    let saved = SavedCatalog::read(s.db.engine().definitions().unwrap()).unwrap();
    let ids: Vec<RelationId> = saved.relations.keys().copied().collect();
    assert_eq!(ids, [RelationId(1)]);
}

/// Runs a query until it gives this.
async fn becomes(s: &mut Session, sql: &str, wanted: &str) {
    let mut seen = String::new();
    for _ in 0..400 {
        seen = run(s, sql).await;
        if seen == wanted {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("{sql}: {seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_nothing_touches_is_dropped() {
    let world = World { is_tight: true, ..World::default() };
    let mut s = world.open().await;
    let setup = "CREATE TABLE t (k INT, v INT); CREATE TABLE u (k INT, w INT);
         CREATE MATERIALIZED VIEW sums WITH (state_ttl = '800ms') AS
             SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k;
         CREATE MATERIALIZED VIEW pairs WITH (state_ttl = '800ms') AS
             SELECT t.k, v, w FROM t JOIN u ON t.k = u.k;
         CREATE MATERIALIZED VIEW forever AS SELECT k, count(*) AS n FROM t GROUP BY k";
    run(&mut s, setup).await;
    run(&mut s, "INSERT INTO t VALUES (1, 10), (1, 20), (2, 5); INSERT INTO u VALUES (1, 7)").await;
    assert_eq!(run(&mut s, "SELECT * FROM sums ORDER BY k").await, "1|2|30\n2|1|5");
    assert_eq!(run(&mut s, "SELECT * FROM pairs ORDER BY v").await, "1|10|7\n1|20|7");
    // Time passes without any data.
    becomes(&mut s, "SELECT count(*) FROM sums", "0").await;
    becomes(&mut s, "SELECT count(*) FROM pairs", "0").await;
    assert_eq!(run(&mut s, "SELECT * FROM forever ORDER BY k").await, "1|2\n2|1");
    run(&mut s, "INSERT INTO t VALUES (1, 1)").await;
    assert_eq!(run(&mut s, "SELECT * FROM sums").await, "1|1|1");
    // A key that is touched again and again keeps all it has; the other goes.
    run(&mut s, "INSERT INTO t VALUES (3, 1)").await;
    for _ in 0..20 {
        run(&mut s, "INSERT INTO t VALUES (1, 1)").await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(run(&mut s, "SELECT k, n FROM sums").await, "1|21");
    run(&mut s, "CHECKPOINT").await;
    stop(s).await;
    let mut s = world.open().await;
    assert_eq!(run(&mut s, "SELECT k, n FROM sums").await, "1|21");
    becomes(&mut s, "SELECT count(*) FROM sums", "0").await;
    run(&mut s, "CHECKPOINT").await;
    stop(s).await;
    // What was dropped does not come back: the new group is the only one.
    let mut s = world.open().await;
    run(&mut s, "INSERT INTO t VALUES (9, 9)").await;
    assert_eq!(run(&mut s, "SELECT * FROM sums").await, "9|1|9");
    let held = "SELECT sum(state_rows)::INT FROM millstream.operators
        WHERE job = 'sums' AND operator LIKE 'Aggregate%'";
    assert_eq!(run(&mut s, held).await, "1");
    // A changed view has the time to live that its new text says, and keeps its state if that is the same.
    let alter = |ttl: &str| {
        format!(
            "ALTER MATERIALIZED VIEW sums WITH (state_ttl = '{ttl}') AS
             SELECT k, count(*) AS n, sum(v) * 2 AS total FROM t GROUP BY k"
        )
    };
    let same = run(&mut s, &format!("EXPLAIN {}", alter("800ms"))).await;
    assert!(same.contains("state kept"), "{same}");
    let other = run(&mut s, &format!("EXPLAIN {}", alter("1 hour"))).await;
    assert!(!other.contains("state kept"), "{other}");
    assert_eq!(run(&mut s, &alter("800ms")).await, "ALTER MATERIALIZED VIEW");
    becomes(&mut s, "SELECT count(*) FROM sums", "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_drop_state_is_refused() {
    let world = World::default();
    let mut s = world.open().await;
    run(&mut s, "CREATE TABLE t (k INT, v INT)").await;
    for (option, query, sqlstate) in [
        ("state_ttl = 'soon'", "SELECT k FROM t", "22023"),
        ("state_ttl = 0", "SELECT k FROM t", "22023"),
        ("state_time = '1h'", "SELECT k FROM t", "0A000"),
        ("state_ttl = '1h'", "SELECT k, min(v) FROM t GROUP BY k", "0A000"),
        ("state_ttl = '1h'", "SELECT k FROM t EXCEPT SELECT v FROM t", "0A000"),
    ] {
        let sql = format!("CREATE MATERIALIZED VIEW m WITH ({option}) AS {query}");
        let answer = run(&mut s, &sql).await;
        assert!(answer.starts_with(sqlstate), "{sql}: {answer}");
    }
    let plain = "CREATE VIEW m WITH (state_ttl = '1h') AS SELECT k FROM t";
    assert!(run(&mut s, plain).await.starts_with("0A000"));
    let good = "CREATE MATERIALIZED VIEW m WITH (state_ttl = '1 hour') AS SELECT DISTINCT k FROM t";
    assert_eq!(run(&mut s, good).await, "CREATE MATERIALIZED VIEW");
}

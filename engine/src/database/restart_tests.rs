//! Failures inside a durable database: the dataflow goes back to its checkpoint by itself, and nobody can tell afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::tests::{batch, count_by_v, schema, table};
use crate::change_batch::ChangeBatch;
use crate::engine::*;
use crate::error::{EngineError, Result};
use crate::plan::{RelationId, StreamPlan};
use crate::source::{Offset, Polled, Source, Split, SplitReader};
use crate::state::MemoryBackend;
use crate::supervisor::RestartStrategy;

const TABLE: RelationId = RelationId(1);
const SOURCE: RelationId = RelationId(2);
const VIEW: RelationId = RelationId(3);
const ABOVE: RelationId = RelationId(4);
const ROWS: u64 = 3000;

/// Gives numbers, and panics so many times when it comes to a certain one.
#[derive(Debug)]
struct Fragile {
    at: u64,
    times: Arc<AtomicU32>,
}

struct Reader {
    next: u64,
    at: u64,
    times: Arc<AtomicU32>,
}

impl Source for Fragile {
    fn list_splits(&self) -> Result<Vec<Split>> {
        Ok(vec![Split("only".into())])
    }

    fn open(&self, _: &Split, from: Offset, _: &[usize]) -> Result<Box<dyn SplitReader>> {
        Ok(Box::new(Reader { next: from.0, at: self.at, times: Arc::clone(&self.times) }))
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

impl SplitReader for Reader {
    fn poll(&mut self, rows_max: usize, until: Option<Offset>) -> Result<Polled> {
        let end = until.map_or(ROWS, |until| until.0.min(ROWS));
        if self.next >= end {
            return Ok(Polled::Finished);
        }
        let to = (self.next + rows_max as u64).min(end);
        let left = |times: u32| times.checked_sub(1);
        if (self.next..to).contains(&self.at)
            && self.times.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).is_ok()
        {
            panic!("the reader breaks at {}", self.at);
        }
        let lines: String = (self.next..to).map(|k| format!("+1 | {k} | {}\n", k % 10)).collect();
        self.next = to;
        let rows = batch(&format!("| k: i64 | v: i64\n{lines}")).into_parts().0;
        Ok(Polled::Rows { rows, next: Offset(to), bad: vec![] })
    }
}

fn open(restart: RestartStrategy, failures: u32) -> (Arc<Engine>, Arc<AtomicU32>) {
    let config = EngineConfig {
        parallelism: 2,
        batch_rows: 7,
        checkpoint_interval_ms: 5,
        restart,
        ..EngineConfig::default()
    };
    let engine = Engine::open(config, Arc::new(MemoryBackend::default())).unwrap();
    engine.finish_recovery().unwrap();
    engine.create_table(table(TABLE.0, vec![])).unwrap();
    let times = Arc::new(AtomicU32::new(failures));
    let source = Arc::new(Fragile { at: ROWS / 2, times: Arc::clone(&times) });
    let (name, schema) = ("fragile".to_string(), schema(&["k", "v"]));
    let definition = SourceDefinition { id: SOURCE, name, schema, source, watermark: None };
    engine.create_source(definition).unwrap();
    (engine, times)
}

fn view(engine: &Engine, id: RelationId, input: RelationId) {
    let properties = engine.properties(input).unwrap();
    let names = schema(&["k", "v"]);
    let scan = StreamPlan::scan(input, input.to_string(), &names, &properties, vec![0, 1]);
    let plan = count_by_v(scan);
    engine.create_view(ViewSpec::new(id, id.to_string(), plan)).unwrap();
}

fn write(engine: &Engine, row: u64) -> Option<Committed> {
    let changes = batch(&format!("| k: i64 | v: i64\n+1 | {row} | {}\n", row % 3));
    let change = TableChange { table: TABLE, changes, on_conflict: OnConflict::Fail };
    engine.commit(vec![change]).ok()
}

fn rows(engine: &Engine, id: RelationId) -> String {
    let read = engine.read(&[id]).unwrap();
    let batches = read.relations[&id].collect().unwrap();
    let texts: Vec<String> =
        batches.into_iter().map(|rows| ChangeBatch::insert(rows).pretty()).collect();
    let mut lines: Vec<&str> = texts.iter().flat_map(|text| text.lines()).collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_undone_and_everything_is_there_once() {
    let strategy = RestartStrategy::FixedDelay { attempts: 10, delay_ms: 1 };
    let (engine, left) = open(strategy, 3);
    view(&engine, ABOVE, TABLE);
    engine.wait_ready(ABOVE).await.unwrap();
    view(&engine, VIEW, SOURCE);
    let mut written = 0;
    let mut last =
        Committed { epoch: crate::time::Epoch(0), deleted: 0, inserted: 0, log_position: 0 };
    for row in 0..600 {
        // A commit that meets the restart may be refused, and is not there then.
        if let Some(committed) = write(&engine, row * 3) {
            written += 1;
            last = committed;
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    engine.wait_ready(VIEW).await.unwrap();
    engine.wait_bounded(None).await.unwrap();
    engine.wait_epoch(last.epoch).await.unwrap();
    let each = ROWS / 10;
    let expected: Vec<String> = (0..10).map(|v| format!("+1 | {v} | {each}")).collect();
    assert_eq!(rows(&engine, VIEW), expected.join("\n"));
    assert_eq!(rows(&engine, ABOVE), format!("+1 | 0 | {written}"));
    assert!(written > 500, "{written}");
    assert_eq!(left.load(Ordering::Acquire), 0, "it broke three times");
    engine.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parallelism_changes_while_rows_come() {
    let (engine, _) = open(RestartStrategy::None, 0);
    view(&engine, ABOVE, TABLE);
    view(&engine, VIEW, SOURCE);
    engine.wait_ready(ABOVE).await.unwrap();
    let mut written = 0;
    for (round, tasks) in [4, 1, 3, 2].into_iter().enumerate() {
        for row in 0..50 {
            assert!(write(&engine, (round as u64 * 50 + row) * 3).is_some());
            written += 1;
        }
        let before = write(&engine, 0).unwrap();
        written += 1;
        engine.rescale(tasks).await.unwrap();
        assert_eq!(engine.config().parallelism, tasks);
        // The log has been emptied by a checkpoint meanwhile; a place in it is still one that has been passed.
        let durable = engine.wait_durable(before.log_position);
        tokio::time::timeout(Duration::from_secs(5), durable).await.unwrap().unwrap();
        let jobs = engine.jobs();
        let counted = |id: RelationId| {
            let job = jobs.iter().find(|job| job.id == id).unwrap();
            job.operators.iter().filter(|o| o.name.starts_with("Aggregate")).count()
        };
        assert_eq!(counted(ABOVE), tasks, "{jobs:?}");
        engine.flush().await.unwrap();
        assert_eq!(rows(&engine, ABOVE), format!("+1 | 0 | {written}"));
    }
    engine.wait_bounded(None).await.unwrap();
    let each = ROWS / 10;
    let expected: Vec<String> = (0..10).map(|v| format!("+1 | {v} | {each}")).collect();
    assert_eq!(rows(&engine, VIEW), expected.join("\n"));
    assert!(engine.rescale(0).await.is_err());
    engine.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_strategy_gives_up_only_what_failed_is_lost() {
    let strategy = RestartStrategy::FailureRate { failures: 2, interval_ms: 60_000, delay_ms: 1 };
    let (engine, left) = open(strategy, 100);
    view(&engine, ABOVE, TABLE);
    engine.wait_ready(ABOVE).await.unwrap();
    view(&engine, VIEW, SOURCE);
    let failed = async {
        loop {
            if let Err(error @ EngineError::JobFailed { .. }) = engine.read(&[VIEW]) {
                return error.to_string();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(20), failed).await.unwrap();
    assert!(error.contains("the reader breaks at 1500"), "{error}");
    assert_eq!(left.load(Ordering::Acquire), 97, "two restarts, then no more");
    assert!(engine.resume(ABOVE).unwrap_err().to_string().contains("has not failed"));
    let has_failed = |id| {
        let jobs = engine.jobs();
        jobs.iter().any(|job| job.id == id && matches!(job.status, JobStatus::Failed(_)))
    };
    if error.contains("its input") {
        assert!(engine.resume(VIEW).unwrap_err().to_string().contains("resume that first"));
    }
    // The cause is gone: what failed begins again, and with the source the view. That may have failed by itself, while it was
    // still reading what the source had given before.
    left.store(0, Ordering::Release);
    for failed in [SOURCE, VIEW] {
        if has_failed(failed) {
            engine.resume(failed).unwrap();
        }
    }
    engine.wait_ready(VIEW).await.unwrap();
    engine.wait_bounded(None).await.unwrap();
    let each = ROWS / 10;
    let expected: Vec<String> = (0..10).map(|v| format!("+1 | {v} | {each}")).collect();
    assert_eq!(rows(&engine, VIEW), expected.join("\n"));
    let committed = write(&engine, 3).unwrap();
    engine.wait_epoch(committed.epoch).await.unwrap();
    assert_eq!(rows(&engine, ABOVE), "+1 | 0 | 1");
    engine.close();
}

/// A table that cannot be made again at a start: what the log holds of it is there when it can be.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_table_that_is_not_made_again_is_kept() {
    let backend = Arc::new(MemoryBackend::default());
    let open = || {
        let config = EngineConfig { checkpoint_interval_ms: 3_600_000, ..EngineConfig::default() };
        Engine::open(config, Arc::<MemoryBackend>::clone(&backend)).unwrap()
    };
    let engine = open();
    for (id, row) in [(TABLE, 1), (ABOVE, 2)] {
        engine.save_definition(id.0, b"a table".to_vec()).unwrap();
        engine.create_table(table(id.0, vec![])).unwrap();
        let changes = batch(&format!("| k: i64 | v: i64\n+1 | {row} | 7\n"));
        let change = TableChange { table: id, changes, on_conflict: OnConflict::Fail };
        if id == TABLE {
            engine.finish_recovery().unwrap();
        }
        let done = engine.commit(vec![change]).unwrap();
        engine.wait_durable(done.log_position).await.unwrap();
    }
    // No checkpoint: it ends as in a crash.
    std::mem::forget(engine);
    let engine = open();
    let schema = schema(&["k", "v"]);
    engine.mark_failed(TABLE, "t1".to_string(), schema, "no plan".to_string());
    engine.create_table(table(ABOVE.0, vec![])).unwrap();
    engine.finish_recovery().unwrap();
    assert_eq!(rows(&engine, ABOVE), "+1 | 2 | 7");
    engine.checkpoint().await.unwrap();
    engine.close();
    let engine = open();
    engine.create_table(table(TABLE.0, vec![])).unwrap();
    engine.create_table(table(ABOVE.0, vec![])).unwrap();
    engine.finish_recovery().unwrap();
    assert_eq!(rows(&engine, TABLE), "+1 | 1 | 7");
    assert_eq!(rows(&engine, ABOVE), "+1 | 2 | 7");
    // One that was dropped does not come back.
    engine.delete_definition(TABLE.0).unwrap();
    engine.close();
}

/// Contents that are on disk alone stay readable for who has begun to read them, whatever becomes of the relation meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_begun_to_read_reads_on_after_a_restart_and_a_drop() {
    let config = EngineConfig {
        parallelism: 2,
        checkpoint_interval_ms: 3_600_000,
        state_memory: 1,
        load_rows_max: 0,
        ..EngineConfig::default()
    };
    let engine = Engine::open(config, Arc::new(MemoryBackend::default())).unwrap();
    engine.finish_recovery().unwrap();
    engine.create_table(table(TABLE.0, vec![])).unwrap();
    let properties = engine.properties(TABLE).unwrap();
    let scan = StreamPlan::scan(TABLE, "t", &schema(&["k", "v"]), &properties, vec![0, 1]);
    let plan = count_by_v(scan);
    engine.create_view(ViewSpec::new(VIEW, "v", plan)).unwrap();
    engine.wait_ready(VIEW).await.unwrap();
    let put = async |rows: std::ops::Range<u64>| {
        let lines: String = rows.map(|k| format!("+1 | {k} | {k}\n")).collect();
        let changes = batch(&format!("| k: i64 | v: i64\n{lines}"));
        let change = TableChange { table: TABLE, changes, on_conflict: OnConflict::Fail };
        let epoch = engine.commit(vec![change]).unwrap().epoch;
        engine.wait_epoch(epoch).await.unwrap();
        engine.checkpoint().await.unwrap();
    };
    // The first checkpoint makes the rows durable; at a later one they are let go of.
    for round in 0..4 {
        put(round * 40..(round + 1) * 40).await;
    }
    let all = |read: &ConsistentRead, id: RelationId| -> usize {
        let batches = read.relations[&id].collect();
        batches.map_or_else(|error| panic!("{error}"), |all| all.iter().map(|b| b.num_rows()).sum())
    };
    let before = engine.read(&[TABLE, VIEW]).unwrap();
    assert!(!before.relations[&TABLE].is_in_memory() && !before.relations[&VIEW].is_in_memory());
    assert_eq!((all(&before, TABLE), all(&before, VIEW)), (160, 160));
    engine.rescale(3).await.unwrap();
    // So many small blocks are merged: the old ones are on no list any more.
    for round in 4..40 {
        put(round * 40..(round + 1) * 40).await;
    }
    let between = engine.read(&[TABLE, VIEW]).unwrap();
    assert_eq!((all(&before, TABLE), all(&before, VIEW)), (160, 160));
    engine.rescale(1).await.unwrap();
    engine.drop_relation(VIEW).unwrap();
    engine.delete_definition(VIEW.0).unwrap();
    assert_eq!((all(&between, TABLE), all(&between, VIEW)), (1600, 1600));
    assert_eq!((all(&before, TABLE), all(&before, VIEW)), (160, 160));
    engine.close();
}

/// A checkpoint that a restart comes between, and other calls that meet one, end well and do not wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_meet_a_restart_are_made_again() {
    let config = EngineConfig { checkpoint_interval_ms: 5, ..EngineConfig::default() };
    let engine = Arc::new(Engine::open(config, Arc::new(MemoryBackend::default())).unwrap());
    engine.finish_recovery().unwrap();
    engine.create_table(table(TABLE.0, vec![])).unwrap();
    view(&engine, ABOVE, TABLE);
    engine.wait_ready(ABOVE).await.unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let calls = (0..8).map(|call| {
        let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut written = 0;
            while !stop.load(Ordering::Acquire) {
                match call % 4 {
                    0 => drop(engine.checkpoint().await.unwrap()),
                    1 => drop(engine.read(&[TABLE, ABOVE]).unwrap()),
                    2 => engine.wait_ready(ABOVE).await.unwrap(),
                    _ => {
                        write(&engine, 0).expect("written");
                        written += 1;
                    }
                }
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
            written
        })
    });
    let calls: Vec<_> = calls.collect();
    for round in 0..20 {
        let rescaled = engine.rescale(1 + round % 3);
        tokio::time::timeout(Duration::from_secs(20), rescaled).await.expect("in time").unwrap();
    }
    stop.store(true, Ordering::Release);
    let mut written = 0;
    for call in calls {
        let ended = tokio::time::timeout(Duration::from_secs(20), call).await;
        written += ended.expect("it does not wait for ever").unwrap();
    }
    engine.flush().await.unwrap();
    assert_eq!(rows(&engine, ABOVE), format!("+1 | 0 | {written}"));
    engine.close();
}

/// A feed goes on: summed up it gives the contents, before and after.
#[tokio::test(flavor = "multi_thread")]
async fn who_follows_changes_follows_them_through_a_restart() {
    let (engine, _) = open(RestartStrategy::None, 0);
    view(&engine, ABOVE, TABLE);
    view(&engine, VIEW, SOURCE);
    engine.wait_ready(ABOVE).await.unwrap();
    engine.wait_ready(VIEW).await.unwrap();
    let mut feeds = Vec::new();
    for id in [ABOVE, VIEW] {
        let Subscription { snapshot, epoch, changes } = engine.subscribe(id).unwrap();
        let known: Vec<_> =
            snapshot.collect().unwrap().into_iter().map(ChangeBatch::insert).collect();
        feeds.push((id, known, epoch, changes));
    }
    for (round, tasks) in [3, 1, 2].into_iter().enumerate() {
        write(&engine, round as u64).unwrap();
        engine.rescale(tasks).await.unwrap();
        write(&engine, 3).unwrap();
    }
    engine.wait_bounded(None).await.unwrap();
    engine.flush().await.unwrap();
    for (id, mut known, mut epoch, mut changes) in feeds {
        let wanted = rows(&engine, id);
        let sum = |known: &[ChangeBatch]| {
            let all = ChangeBatch::concat(&known[0].schema(), known).unwrap().consolidate();
            let text = all.unwrap().pretty();
            let mut lines: Vec<_> = text.lines().map(str::to_string).collect();
            lines.sort_unstable();
            lines.join("\n")
        };
        while known.is_empty() || sum(&known) != wanted {
            let next = tokio::time::timeout(Duration::from_secs(20), changes.recv()).await;
            let next = next.expect("what is missing comes").expect("the feed goes on").unwrap();
            assert!(next.epoch > epoch, "epochs go upwards");
            epoch = next.epoch;
            known.push(next.changes);
        }
    }
    engine.close();
}

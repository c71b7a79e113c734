//! Checkpoints that cannot be written, take too long, or change their options while data flow.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::tests::{batch, count_by_v, schema, table};
use crate::change_batch::ChangeBatch;
use crate::engine::*;
use crate::error::{EngineError, Result};
use crate::plan::{RelationId, StreamPlan};
use crate::state::{Lifetime, MemoryBackend, Next, Space, StateBackend, Visit, Write};

const TABLE: RelationId = RelationId(1);
const VIEW: RelationId = RelationId(2);

/// A backend on a disk that may be full.
#[derive(Debug, Default)]
struct Disk {
    backend: MemoryBackend,
    /// Commits that write into this space fail.
    full: Mutex<Option<Space>>,
}

impl StateBackend for Disk {
    fn commit(&self, writes: &[Write]) -> Result<()> {
        let full = *self.full.lock();
        let into = |write: &Write| match write {
            Write::Put(space, ..) => Some(*space) == full,
            _ => false,
        };
        if writes.iter().any(into) {
            let said = "IO error: No space left on device: While appending to file";
            return Err(EngineError::external("writing to /data/state", said));
        }
        self.backend.commit(writes)
    }

    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.backend.get(space, key)
    }

    fn scan(&self, space: Space, prefix: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        self.backend.scan(space, prefix, visit)
    }

    fn write_file(&self, lifetime: Lifetime, next: &mut Next<'_>) -> Result<u64> {
        self.backend.write_file(lifetime, next)
    }

    fn drop_files(&self, prefix: &[u8]) -> Result<()> {
        self.backend.drop_files(prefix)
    }

    fn files(&self) -> Result<Vec<Vec<u8>>> {
        self.backend.files()
    }

    fn copy_to(&self, directory: &Path) -> Result<()> {
        self.backend.copy_to(directory)
    }

    fn size(&self) -> u64 {
        self.backend.size()
    }
}

impl Disk {
    fn fill(&self, space: Option<Space>) {
        *self.full.lock() = space;
    }
}

fn config() -> EngineConfig {
    EngineConfig { parallelism: 2, checkpoint_interval_ms: 20, ..EngineConfig::default() }
}

fn counts(engine: &Engine, id: RelationId) -> ViewSpec {
    let properties = engine.properties(TABLE).unwrap();
    let scan = StreamPlan::scan(TABLE, "t", &schema(&["k", "v"]), &properties, vec![0, 1]);
    ViewSpec::new(id, "counts", count_by_v(scan))
}

async fn open(disk: &Arc<Disk>, config: EngineConfig) -> Arc<Engine> {
    let engine = Engine::open(config, Arc::clone(disk) as _).unwrap();
    engine.create_table(table(TABLE.0, vec![])).unwrap();
    engine.create_view(counts(&engine, VIEW)).unwrap();
    engine.finish_recovery().unwrap();
    engine.wait_ready(VIEW).await.unwrap();
    engine
}

fn write(engine: &Engine, row: u64) -> Result<Committed> {
    let changes = batch(&format!("| k: i64 | v: i64\n+1 | {row} | 0\n"));
    engine.commit(vec![TableChange { table: TABLE, changes, on_conflict: OnConflict::Fail }])
}

fn contents(engine: &Engine) -> String {
    let read = engine.read(&[VIEW]).unwrap();
    let batches = read.relations[&VIEW].collect().unwrap().into_iter();
    batches.map(|rows| ChangeBatch::insert(rows).pretty()).collect()
}

async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_checkpoint_was_to_hold_is_in_the_next_one() {
    let disk = Arc::<Disk>::default();
    let config = EngineConfig { checkpoint_timeout_ms: 100, ..config() };
    let engine = open(&disk, config.clone()).await;
    write(&engine, 1).unwrap();
    engine.checkpoint().await.unwrap();
    disk.fill(Some(Space::State));
    for row in 2..6 {
        write(&engine, row).unwrap();
        engine.flush().await.unwrap();
    }
    until("two failures", || engine.checkpoint_counts().1 >= 2).await;
    let failed = |info: &&CheckpointInfo| matches!(info.status, CheckpointStatus::Failed(_));
    let told = engine.checkpoints().iter().find(failed).cloned().unwrap();
    let CheckpointStatus::Failed(reason) = told.status else { panic!("{told:?}") };
    assert!(reason.contains("No space left"), "{reason}");
    assert_eq!(contents(&engine), "+1 | 0 | 5", "reads go on");
    disk.fill(None);
    engine.checkpoint().await.unwrap();
    // Behind it there may be one by the interval, on its way.
    let has_ended = |info: &CheckpointInfo| info.status != CheckpointStatus::InProgress;
    let last = engine.checkpoints().into_iter().rfind(has_ended).unwrap();
    assert_eq!(last.status, CheckpointStatus::Completed);
    // Nothing but the checkpoint can be the source of it: the log has been emptied by it.
    let mut records = 0;
    let count = &mut |_: &[u8], _: &[u8]| {
        records += 1;
        Ok(true)
    };
    disk.scan(Space::Log, b"", count).unwrap();
    assert_eq!(records, 0);
    engine.close();
    drop(engine);
    let engine = open(&disk, config).await;
    assert_eq!(contents(&engine), "+1 | 0 | 5");
    engine.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_takes_state_over_needs_a_checkpoint_that_was_written() {
    let disk = Arc::<Disk>::default();
    let engine = open(&disk, EngineConfig { checkpoint_timeout_ms: 100, ..config() }).await;
    write(&engine, 1).unwrap();
    engine.checkpoint().await.unwrap();
    disk.fill(Some(Space::State));
    write(&engine, 2).unwrap();
    let spec = counts(&engine, RelationId(3));
    let refused = engine.create_view_from(spec.clone(), VIEW).unwrap_err();
    assert!(refused.to_string().contains("was not written"), "{refused}");
    disk.fill(None);
    engine.create_view_from(spec, VIEW).unwrap();
    engine.wait_ready(RelationId(3)).await.unwrap();
    let epoch = write(&engine, 3).unwrap().epoch;
    engine.wait_epoch(epoch).await.unwrap();
    assert_eq!(contents(&engine), "+1 | 0 | 3");
    let read = engine.read(&[RelationId(3)]).unwrap();
    let batches = read.relations[&RelationId(3)].collect().unwrap().into_iter();
    let new: String = batches.map(|rows| ChangeBatch::insert(rows).pretty()).collect();
    assert_eq!(new, "+1 | 0 | 3");
    engine.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn options_and_history_outlive_a_restart_of_the_dataflow() {
    let disk = Arc::<Disk>::default();
    let engine = open(&disk, EngineConfig { checkpoint_interval_ms: 3_600_000, ..config() }).await;
    write(&engine, 1).unwrap();
    engine.checkpoint().await.unwrap();
    let before = engine.checkpoints();
    let operators = engine.checkpoint_operators();
    let named = operators.iter().find(|state| {
        state.relation == VIEW && state.operator.as_deref().unwrap().starts_with("Aggregate")
    });
    let named = named.unwrap();
    assert_eq!((named.name.as_deref(), named.state_rows), (Some("counts"), 1));
    assert!(named.state_bytes > 0 && named.bytes_written == named.state_bytes);
    let mut options = engine.config().checkpoint();
    assert_eq!(options.interval_ms, 3_600_000);
    options.interval_ms = 10;
    options.mode = CheckpointMode::AtLeastOnce;
    engine.set_checkpoint_options(options).unwrap();
    write(&engine, 2).unwrap();
    let more = before.len();
    until("a checkpoint by the new interval", || engine.checkpoints().len() > more).await;
    engine.rescale(1).await.unwrap();
    assert_eq!(engine.config().checkpoint(), options);
    let after = engine.checkpoints();
    assert_eq!(after[..more], before);
    assert!(after.windows(2).all(|pair| pair[0].id < pair[1].id), "{after:?}");
    let more = after.len();
    write(&engine, 3).unwrap();
    until("the same interval after a restart", || engine.checkpoints().len() > more).await;
    options.timeout_ms = 0;
    assert!(engine.set_checkpoint_options(options).is_err());
    engine.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_log_cannot_be_written_commits_are_refused_and_never_appear() {
    let disk = Arc::<Disk>::default();
    let engine = open(&disk, config()).await;
    let first = write(&engine, 1).unwrap();
    engine.wait_durable(first.log_position).await.unwrap();
    engine.flush().await.unwrap();
    disk.fill(Some(Space::Log));
    // Taken before it was known: it waits.
    let taken = write(&engine, 2).unwrap();
    until("the failure is known", || engine.write_failure().is_some()).await;
    let brief = Duration::from_millis(300);
    let durable = engine.wait_durable(taken.log_position);
    assert!(tokio::time::timeout(brief, durable).await.is_err(), "it is not durable");
    for row in 3..6 {
        assert!(write(&engine, row).unwrap_err().is_disk_full());
    }
    let refused = engine.create_table(table(9, vec![])).unwrap_err();
    assert!(refused.is_disk_full() && engine.write_failure().unwrap().is_disk_full());
    assert_eq!(contents(&engine), "+1 | 0 | 1", "nobody sees what is not durable");
    disk.fill(None);
    engine.wait_durable(taken.log_position).await.unwrap();
    assert!(engine.write_failure().is_none());
    let last = write(&engine, 7).unwrap();
    engine.wait_epoch(last.epoch).await.unwrap();
    assert_eq!(contents(&engine), "+1 | 0 | 3");
    engine.close();
    drop(engine);
    let engine = open(&disk, config()).await;
    assert_eq!(contents(&engine), "+1 | 0 | 3");
    engine.close();
}

//! Who writes faster than the dataflow can take it is slowed, and goes on when there is room again (C5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::tests::{batch, schema, table};
use crate::change_batch::ChangeBatch;
use crate::engine::*;
use crate::error::Result;
use crate::plan::*;
use crate::sink::{Committable, Guarantee, Sink, SinkWriter};
use crate::time::Epoch;

/// Takes nothing until it is opened.
#[derive(Clone, Debug, Default)]
struct Gate {
    open: Arc<AtomicBool>,
    rows: Arc<AtomicUsize>,
}

impl Sink for Gate {
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn accepts_retractions(&self) -> bool {
        true
    }

    fn writer(&self, _: usize, _: usize) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(self.clone()))
    }

    fn commit(&self, _: &[Committable]) -> Result<()> {
        Ok(())
    }
}

impl SinkWriter for Gate {
    fn write(&mut self, batch: &ChangeBatch) -> Result<()> {
        while !self.open.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.rows.fetch_add(batch.num_rows(), Ordering::AcqRel);
        Ok(())
    }

    fn prepare(&mut self, _: Epoch) -> Result<Vec<Committable>> {
        Ok(Vec::new())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_slows_who_writes() {
    let config = EngineConfig { parallelism: 2, channel_rows_max: 16, ..EngineConfig::default() };
    let engine = Engine::start(config);
    engine.create_table(table(1, vec![])).unwrap();
    let properties = engine.properties(RelationId(1)).unwrap();
    let columns = schema(&["k", "v"]);
    let plan = StreamPlan::scan(RelationId(1), "t", &columns, &properties, vec![0, 1]);
    let gate = Gate::default();
    let sink = Arc::new(gate.clone());
    engine.create_sink(SinkSpec { id: RelationId(2), name: "s".into(), plan, sink }).unwrap();
    let rows: String = (0..1000).map(|row| format!("+1 | {row} | 1\n")).collect();
    let rows = batch(&format!("| k: i64 | v: i64\n{rows}"));
    let mut written = 0;
    // 16 kB may wait, and each commit has as much; some is on its way.
    while timeout(Duration::from_millis(300), engine.wait_for_room()).await.is_ok() {
        let changes = rows.clone();
        let change = TableChange { table: RelationId(1), changes, on_conflict: OnConflict::Fail };
        engine.commit(vec![change]).unwrap();
        written += 1;
        assert!(written < 20, "nobody is slowed");
    }
    gate.open.store(true, Ordering::Release);
    timeout(Duration::from_secs(20), engine.wait_for_room()).await.expect("room again");
    engine.flush().await.unwrap();
    assert_eq!(gate.rows.load(Ordering::Acquire), written * 1000);
    engine.close();
}

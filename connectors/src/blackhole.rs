//! `blackhole`: counts changes and forgets them. For benchmarks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use millstream_engine::sink::{Committable, Guarantee, Sink, SinkWriter};
use millstream_engine::{ChangeBatch, Epoch, Options, Result};
use serde::Deserialize;

use crate::Connector;
use crate::options::parse_options;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct BlackholeConnector;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlackholeOptions {}

impl Connector for BlackholeConnector {
    fn name(&self) -> &'static str {
        "blackhole"
    }

    fn description(&self) -> &'static str {
        "counts changes and forgets them"
    }

    fn is_source(&self) -> bool {
        false
    }

    fn is_sink(&self) -> bool {
        true
    }

    fn sink(&self, _schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Sink>> {
        let mut options = options.clone();
        // How rows would be encoded says nothing here.
        options.retain(|name, _| {
            !["format", "encode", "type", "force_append_only"].contains(&name.as_str())
        });
        let BlackholeOptions {} = parse_options("blackhole sink", &options)?;
        Ok(Arc::new(Blackhole::default()))
    }
}

/// The sink and its count of changes.
#[derive(Debug, Default)]
pub(crate) struct Blackhole {
    rows: Arc<AtomicU64>,
}

impl Sink for Blackhole {
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn accepts_retractions(&self) -> bool {
        true
    }

    fn writer(&self, task: usize, _tasks: usize) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(BlackholeWriter { task, rows: Arc::clone(&self.rows) }))
    }

    fn commit(&self, _committables: &[Committable]) -> Result<()> {
        Ok(())
    }
}

struct BlackholeWriter {
    task: usize,
    rows: Arc<AtomicU64>,
}

impl SinkWriter for BlackholeWriter {
    fn write(&mut self, batch: &ChangeBatch) -> Result<()> {
        self.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) -> Result<Vec<Committable>> {
        let rows = self.rows.load(Ordering::Relaxed);
        tracing::trace!(task = self.task, %epoch, rows, "blackhole");
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;

    #[test]
    fn counts_all_changes() {
        let sink = Blackhole::default();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let rows = RecordBatch::try_from_iter([("a", column)]).unwrap();
        for task in 0..2 {
            let mut writer = sink.writer(task, 2).unwrap();
            writer.write(&ChangeBatch::delete(rows.clone())).unwrap();
            assert!(writer.prepare(Epoch(1)).unwrap().is_empty());
        }
        assert_eq!(sink.rows.load(Ordering::Relaxed), 6);
    }
}

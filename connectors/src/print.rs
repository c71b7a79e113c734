//! `print`: writes each change as one line to standard output: weight, then the columns.
//!
//! ```text
//! +1 | 7 | apple | NULL
//! ```

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use millstream_engine::sink::{Committable, Guarantee, Sink, SinkWriter};
use millstream_engine::{ChangeBatch, EngineError, Epoch, Options, Result};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::Connector;
use crate::options::parse_options;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct PrintConnector;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrintOptions {
    /// Put before each line.
    #[serde(default, alias = "print-identifier")]
    prefix: String,
}

impl Connector for PrintConnector {
    fn name(&self) -> &'static str {
        "print"
    }

    fn description(&self) -> &'static str {
        "writes each change as a line to standard output"
    }

    fn is_source(&self) -> bool {
        false
    }

    fn is_sink(&self) -> bool {
        true
    }

    fn sink(&self, _schema: &SchemaRef, options: &Options) -> Result<Arc<dyn Sink>> {
        let mut options = options.clone();
        options.retain(|name, _| {
            !["format", "encode", "type", "force_append_only"].contains(&name.as_str())
        });
        let options: PrintOptions = parse_options("print sink", &options)?;
        let out: Out = Arc::new(Mutex::new(Box::new(std::io::stdout())));
        Ok(Arc::new(Print { prefix: options.prefix.into(), out }))
    }
}

type Out = Arc<Mutex<Box<dyn Write + Send>>>;

struct Print {
    prefix: Arc<str>,
    out: Out,
}

impl std::fmt::Debug for Print {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Print").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Sink for Print {
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn accepts_retractions(&self) -> bool {
        true
    }

    fn writer(&self, _task: usize, _tasks: usize) -> Result<Box<dyn SinkWriter>> {
        Ok(Box::new(PrintWriter { prefix: Arc::clone(&self.prefix), out: Arc::clone(&self.out) }))
    }

    fn commit(&self, _committables: &[Committable]) -> Result<()> {
        Ok(())
    }
}

struct PrintWriter {
    prefix: Arc<str>,
    out: Out,
}

impl SinkWriter for PrintWriter {
    fn write(&mut self, batch: &ChangeBatch) -> Result<()> {
        let options = FormatOptions::new().with_null("NULL");
        let formatters = batch.rows().columns().iter();
        let formatters = formatters
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            // Writing to a string cannot fail; a value that cannot be shown is shown as its error.
            let _ = write!(text, "{}{:+}", self.prefix, batch.weight(row));
            for formatter in &formatters {
                let _ = write!(text, " | {}", formatter.value(row));
            }
            text.push('\n');
        }
        let mut out = self.out.lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| EngineError::external("writing to standard output", error))
    }

    fn prepare(&mut self, _epoch: Epoch) -> Result<Vec<Committable>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_line_for_each_row() {
        let shared = Shared::default();
        let out: Out = Arc::new(Mutex::new(Box::new(shared.clone())));
        let sink = Print { prefix: "k: ".into(), out };
        let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let b: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
        let rows = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
        let mut writer = sink.writer(0, 1).unwrap();
        writer.write(&ChangeBatch::new(rows, Some(vec![1, -2].into()))).unwrap();
        let text = String::from_utf8(shared.0.lock().clone()).unwrap();
        assert_eq!(text, "k: +1 | 1 | x\nk: -2 | NULL | y\n");
    }
}

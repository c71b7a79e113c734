//! The input: Nexmark events as Parquet files, made once by the `nexmark` connector and kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use millstream_engine::source::{Offset, Polled};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

/// The tables.
pub(crate) const TABLES: [&str; 3] = ["person", "auction", "bid"];
/// Rows of a row group: the unit that a reader takes.
const ROW_GROUP_ROWS: usize = 256 * 1024;

/// Rows of each table.
pub(crate) type Rows = BTreeMap<String, u64>;

/// Makes the files of so many events in a folder, unless they are there.
pub(crate) fn generate(folder: &Path, events: u64) -> Result<Rows> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let mut rows = Rows::new();
    for table in TABLES {
        let path = folder.join(format!("{table}.parquet"));
        let counted = folder.join(format!("{table}.rows"));
        let known = std::fs::read_to_string(&counted).ok().and_then(|text| text.parse().ok());
        let count = match known {
            Some(count) if path.exists() => count,
            _ => {
                eprintln!("making {}", path.display());
                let count = write_table(&path, table, events)?;
                std::fs::write(&counted, count.to_string())?;
                count
            }
        };
        rows.insert(table.to_string(), count);
    }
    Ok(rows)
}

fn write_table(path: &Path, table: &str, events: u64) -> Result<u64> {
    let option = |name: &str, value: &str| (name.to_string(), value.to_string());
    let options = BTreeMap::from([
        option("connector", "nexmark"),
        option("nexmark.table.type", table),
        option("nexmark.event.num", &events.to_string()),
        option("nexmark.split.num", "1"),
    ]);
    let catalog = millstream_connectors::catalog();
    let schema = catalog.infer_schema(&options)?;
    let source = catalog.source(&schema, &options)?;
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .build();
    let mut writer =
        ArrowWriter::try_new(File::create(path)?, Arc::clone(&schema), Some(properties))?;
    let mut count = 0;
    for split in source.list_splits()? {
        let mut reader = source.open(&split, Offset(0), &all)?;
        loop {
            match reader.poll(65_536, None)? {
                Polled::Rows { rows, .. } => {
                    count += rows.num_rows() as u64;
                    writer.write(&rows)?;
                }
                Polled::Pending(time) => std::thread::sleep(time),
                Polled::Finished => break,
            }
        }
    }
    writer.close()?;
    Ok(count)
}

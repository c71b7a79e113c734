//! The contract suite: what any [`Source`] must hold, checked by reading it in many ways.
//!
//! Reading `[0, o)` and then `[o, end)` gives the rows of `[0, end)` in the same order; projections
//! agree with the whole row, the empty projection in its row count; bad rows are the same ones
//! every time. For bounded sources (an endless one is read for a while).

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use millstream_engine::change_batch::project_schema;
use millstream_engine::source::{Offset, Polled, Source, Split};
use millstream_engine::{Result, RowError};

/// What reading a stretch of a split gave.
#[derive(Debug)]
pub struct Stretch {
    /// All rows.
    pub rows: RecordBatch,
    /// Bad rows.
    pub bad: Vec<RowError>,
    /// The offset behind each poll that gave rows.
    pub offsets: Vec<Offset>,
}

/// Reads a stretch of one split, `rows_max` rows in a poll, at most `polls` polls that give rows.
///
/// # Errors
/// Those of the source.
pub fn read_split(
    source: &dyn Source,
    schema: &SchemaRef,
    split: &Split,
    (from, until): (Offset, Option<Offset>),
    projection: &[usize],
    (rows_max, polls): (usize, usize),
) -> Result<Stretch> {
    let mut reader = source.open(split, from, projection)?;
    let schema = project_schema(schema, projection);
    let (mut batches, mut bad_rows, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
    while offsets.len() < polls {
        match reader.poll(rows_max, until)? {
            Polled::Rows { rows, next, bad } => {
                batches.push(rows);
                bad_rows.extend(bad);
                offsets.push(next);
            }
            Polled::Pending(wait) => std::thread::sleep(wait),
            Polled::Finished => break,
        }
    }
    let rows = if schema.fields().is_empty() {
        let count = batches.iter().map(RecordBatch::num_rows).sum();
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(schema, Vec::new(), &options)?
    } else {
        concat_batches(&schema, &batches)?
    };
    Ok(Stretch { rows, bad: bad_rows, offsets })
}

/// All rows of all splits, split by split.
///
/// # Errors
/// Those of the source.
pub fn read_all(source: &dyn Source, schema: &SchemaRef) -> Result<(RecordBatch, Vec<RowError>)> {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let (mut batches, mut bad) = (Vec::new(), Vec::new());
    for split in source.list_splits()? {
        let whole = (Offset(0), None);
        let stretch = read_split(source, schema, &split, whole, &all, (8192, usize::MAX))?;
        batches.push(stretch.rows);
        bad.extend(stretch.bad);
    }
    Ok((concat_batches(schema, &batches)?, bad))
}

/// Checks the contract for every split of a source.
///
/// # Panics
/// When it does not hold.
#[allow(clippy::missing_panics_doc, clippy::unwrap_used)]
pub fn check_source(source: &dyn Source, schema: &SchemaRef) {
    let splits = source.list_splits().unwrap();
    assert!(!splits.is_empty(), "a source has splits");
    assert_eq!(splits, source.list_splits().unwrap(), "splits are stable");
    for split in &splits {
        check_split(source, schema, split);
    }
    if let Some(hint) = source.rows_hint() {
        let (rows, bad) = read_all(source, schema).unwrap();
        assert_eq!(hint, (rows.num_rows() + bad.len()) as u64, "rows_hint");
    }
}

#[allow(clippy::unwrap_used)]
fn check_split(source: &dyn Source, schema: &SchemaRef, split: &Split) {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let read = |from, until: Option<Offset>, projection: &[usize], rows_max| {
        let ends = source.is_bounded() || until.is_some();
        let polls = if ends { usize::MAX } else { 20 };
        read_split(source, schema, split, (from, until), projection, (rows_max, polls)).unwrap()
    };
    let whole = read(Offset(0), None, &all, 7);
    let end = whole.offsets.last().copied().unwrap_or_default();
    assert!(whole.offsets.is_sorted(), "offsets go forward");
    for rows_max in [1, 64, 8192] {
        let again = read(Offset(0), Some(end), &all, rows_max);
        assert_eq!(again.rows, whole.rows, "{split} in polls of {rows_max}");
        assert_eq!(again.bad, whole.bad, "{split} in polls of {rows_max}");
    }
    let step = (whole.offsets.len() / 5).max(1);
    for &cut in whole.offsets.iter().step_by(step).chain(whole.offsets.last()) {
        let before = read(Offset(0), Some(cut), &all, 5);
        let after = read(cut, Some(end), &all, 9);
        let both = concat_batches(schema, [&before.rows, &after.rows]).unwrap();
        assert_eq!(both, whole.rows, "{split} cut at {cut}");
        let bad: Vec<RowError> = before.bad.into_iter().chain(after.bad).collect();
        assert_eq!(bad, whole.bad, "{split} cut at {cut}");
    }
    let mut projections: Vec<Vec<usize>> = all.iter().map(|&column| vec![column]).collect();
    projections.push(all.iter().rev().copied().collect());
    projections.push(Vec::new());
    for projection in projections {
        let some = read(Offset(0), Some(end), &projection, 8);
        assert_eq!(some.bad, whole.bad, "{split} projected to {projection:?}");
        assert_eq!(some.rows.num_rows(), whole.rows.num_rows(), "{split} rows of {projection:?}");
        let expected = whole.rows.project(&projection).unwrap();
        assert_eq!(some.rows.columns(), expected.columns(), "{split} projected to {projection:?}");
        let schema = project_schema(schema, &projection);
        assert_eq!(some.rows.schema(), schema, "{split} schema of {projection:?}");
    }
}

//! Rows in the order of their places (see `paged.rs`), without moving them: what is wanted of them is copied when it is wanted.
//!
//! So the order of a large change takes 8 bytes for each row beside it, and not a second copy of it.

use arrow::array::UInt32Array;

use super::StateKind;
use super::block;
use super::paged::{Places, covered, number_of};
use crate::change_batch::ChangeBatch;
use crate::error::{EngineError, Result};
use crate::operators::row_store::unpin;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Sorted {
    /// In order.
    places: Vec<u32>,
    /// The row of each of these places, counted through all parts; absent where that is their own order.
    order: Option<Vec<u32>>,
    parts: Vec<ChangeBatch>,
    /// The number of the first row of each part.
    starts: Vec<u32>,
}

impl Sorted {
    /// Rows of equal places stay in their order.
    ///
    /// # Errors
    /// When the key columns are not of the types of the places, or there are more than 2^32 rows.
    pub(crate) fn new(places: &Places, parts: Vec<ChangeBatch>) -> Result<Self> {
        let mut all = Vec::with_capacity(parts.iter().map(ChangeBatch::num_rows).sum());
        for part in &parts {
            all.extend(places.of(part.rows())?);
        }
        Self::at(all, parts)
    }

    /// With all rows at one place.
    pub(crate) fn at_one_place(rows: ChangeBatch) -> Result<Self> {
        Self::at(vec![0; rows.num_rows()], vec![rows])
    }

    /// The same, given the place of each row.
    pub(crate) fn at(places: Vec<u32>, parts: Vec<ChangeBatch>) -> Result<Self> {
        let parts = parts.iter().map(unpinned).collect::<Result<Vec<_>>>()?;
        let (mut starts, mut rows) = (Vec::with_capacity(parts.len()), 0_u32);
        for part in &parts {
            starts.push(rows);
            let count = u32::try_from(part.num_rows()).map_err(EngineError::internal)?;
            rows = rows.checked_add(count).ok_or_else(|| EngineError::internal("too many rows"))?;
        }
        if places.is_sorted() {
            return Ok(Self { places, order: None, parts, starts });
        }
        let mut order: Vec<u64> =
            places.iter().zip(0_u64..).map(|(&place, row)| u64::from(place) << 32 | row).collect();
        drop(places);
        order.sort_unstable();
        let places = order.iter().map(|&at| (at >> 32) as u32).collect();
        let order = order.iter().map(|&at| at as u32).collect();
        Ok(Self { places, order: Some(order), parts, starts })
    }

    /// Of all rows, in ascending order.
    pub(crate) fn places(&self) -> &[u32] {
        &self.places
    }

    /// Whether any row takes away from others: see [`block::takes_away`].
    pub(crate) fn takes_away(&self, kind: &StateKind, whole: bool) -> bool {
        self.parts.iter().any(|part| block::takes_away(kind, part, whole))
    }

    /// Rows whose places are from here up to there (inclusive).
    pub(crate) fn range(&self, (from, to): (u32, u32)) -> std::ops::Range<usize> {
        let start = self.places.partition_point(|&place| place < from);
        let length = self.places[start..].partition_point(|&place| place <= to);
        start..start + length
    }

    /// These of the sorted rows.
    pub(crate) fn rows(&self, range: std::ops::Range<usize>) -> Result<ChangeBatch> {
        match (&self.order, &self.parts[..]) {
            (None, [only]) => Ok(only.slice(range.start, range.len())),
            (Some(order), _) => self.pick(&order[range]),
            (None, _) => self.pick(&(range.start as u32..range.end as u32).collect::<Vec<_>>()),
        }
    }

    /// The rows of these buckets, given in ascending order.
    pub(crate) fn select(&self, buckets: &[u32], bits: u8) -> Result<ChangeBatch> {
        let mut found = Vec::new();
        let (mut start, mut at) = (0, 0);
        while let Some(&bucket) = buckets.get(at) {
            let (from, to) = covered(bucket, bits);
            start += self.places[start..].partition_point(|&place| place < from);
            let Some(&place) = self.places.get(start) else { break };
            // Most buckets have no rows, and there may be far more of them.
            let next = number_of(place, bits);
            if next != bucket {
                at += buckets[at..].partition_point(|&bucket| bucket < next);
                continue;
            }
            let end = start + self.places[start..].partition_point(|&place| place <= to);
            found.extend(start as u32..end as u32);
            (start, at) = (end, at + 1);
        }
        match (found.first(), found.last()) {
            (Some(&first), Some(&last)) if (last - first) as usize + 1 == found.len() => {
                self.rows(first as usize..last as usize + 1)
            }
            _ => match &self.order {
                None => self.pick(&found),
                Some(order) => {
                    self.pick(&found.iter().map(|&at| order[at as usize]).collect::<Vec<_>>())
                }
            },
        }
    }

    /// Rows by their number.
    fn pick(&self, rows: &[u32]) -> Result<ChangeBatch> {
        if let [only] = &self.parts[..] {
            return only.take(&UInt32Array::from(rows.to_vec()));
        }
        let place = |&row: &u32| {
            let part = self.starts.partition_point(|&start| start <= row) - 1;
            (part, (row - self.starts[part]) as usize)
        };
        ChangeBatch::interleave(&self.parts, &rows.iter().map(place).collect::<Vec<_>>())
    }
}

/// Without the buffers of rows that it does not have: each page would take all of them along that a text was gathered from.
fn unpinned(part: &ChangeBatch) -> Result<ChangeBatch> {
    let columns = part.rows().columns().iter().map(unpin).collect::<Result<Vec<_>>>()?;
    part.with_columns(part.schema(), columns)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    fn batch(text: &str) -> ChangeBatch {
        ChangeBatch::from_pretty(&format!("| k: i64 | v: text\n{text}")).expect("rows")
    }

    /// Rows come by place, those of one key in their order, wherever they lie.
    #[test]
    fn many_parts_read_as_one() {
        let parts = vec![
            batch("+1 | 1 | a\n+1 | 2 | b\n"),
            batch(""),
            batch("-1 | 1 | a\n+1 | 3 | c\n"),
            batch("+2 | 1 | d\n"),
        ];
        let places = Places::new(&[0], &[DataType::Int64]).expect("places");
        let of = |key: i64| places.of(batch(&format!("+1 | {key} | x\n")).rows()).expect("it")[0];
        let sorted = Sorted::new(&places, parts.clone()).expect("sorted");
        assert!(sorted.places().is_sorted());
        for (key, wanted) in [
            (1, "+1 | 1 | a\n-1 | 1 | a\n+2 | 1 | d\n"),
            (2, "+1 | 2 | b\n"),
            (3, "+1 | 3 | c\n"),
            (4, ""),
        ] {
            let rows = sorted.rows(sorted.range((of(key), of(key)))).expect("rows");
            assert!(rows.rows() == batch(wanted).rows(), "key {key}");
            let weights = |batch: &ChangeBatch| -> Vec<i64> {
                (0..batch.num_rows()).map(|row| batch.weight(row)).collect()
            };
            assert_eq!(weights(&rows), weights(&batch(wanted)));
            let bucket = of(key) >> 4;
            assert_eq!(sorted.select(&[bucket], 28).expect("rows").pretty(), rows.pretty());
        }
        assert!(sorted.takes_away(&StateKind::Bag, false));
        let mut both = [of(1) >> 4, of(3) >> 4];
        both.sort_unstable();
        assert_eq!(sorted.select(&both, 28).expect("rows").num_rows(), 4);
        let all = sorted.rows(0..5).expect("rows");
        let by_key = ChangeBatch::concat(&all.schema(), std::slice::from_ref(&all)).expect("all");
        let one = Sorted::new(&places, vec![by_key]).expect("sorted");
        assert_eq!(one.rows(0..5).expect("rows").pretty(), all.pretty());
    }
}

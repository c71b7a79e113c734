//! The order of rows in a Top-N: the plan's sort keys, then all columns, so that no two different
//! rows tie.
//!
//! Each row carries a prefix: 64 bits that sort as its first sort key does, as far as they reach.
//! Nearly every comparison ends there; only equal prefixes look at the columns themselves.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, downcast_integer, downcast_temporal};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, i256,
};

use crate::key::canonical_f64;
use crate::operators::row_store::RowStore;
use crate::plan::SortKey;

/// A row in an ordered state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) prefix: u64,
    /// Its id in the row store.
    pub(super) id: u32,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct RowOrder {
    keys: Vec<SortKey>,
    width: usize,
}

impl RowOrder {
    /// By these keys, then all of so many columns.
    pub(super) fn new(keys: &[SortKey], width: usize) -> Self {
        Self { keys: keys.to_vec(), width }
    }

    /// The prefix of each row of a batch, into `out`.
    pub(super) fn prefixes(&self, columns: &[ArrayRef], rows: usize, out: &mut Vec<u64>) {
        out.clear();
        let Some(key) = self.keys.first() else {
            out.resize(rows, 0);
            return;
        };
        let column = &columns[key.column];
        raw_prefixes(column.as_ref(), out);
        for prefix in out.iter_mut() {
            let directed = if key.descending { !*prefix } else { *prefix };
            // The ends are for NULLs.
            *prefix = directed.clamp(1, u64::MAX - 1);
        }
        if let Some(nulls) = column.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
            let null = if key.nulls_first { 0 } else { u64::MAX };
            for (prefix, is_valid) in out.iter_mut().zip(&nulls) {
                *prefix = if is_valid { *prefix } else { null };
            }
        }
    }

    /// The total order.
    #[inline]
    pub(super) fn compare(&self, store: &RowStore, a: Entry, b: Entry) -> Ordering {
        a.prefix.cmp(&b.prefix).then_with(|| self.compare_rows(store, a.id, b.id))
    }

    /// Whether two rows are equal by the sort keys.
    pub(super) fn ties(&self, store: &RowStore, a: Entry, b: Entry) -> bool {
        a.prefix == b.prefix && self.compare_keys(store, a.id, b.id).is_eq()
    }

    #[inline(never)]
    fn compare_rows(&self, store: &RowStore, a: u32, b: u32) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        let by_columns = || {
            let columns = (0..self.width).map(|column| store.compare(column, a, b));
            columns.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        self.compare_keys(store, a, b).then_with(by_columns)
    }

    fn compare_keys(&self, store: &RowStore, a: u32, b: u32) -> Ordering {
        for key in &self.keys {
            let nulls = (store.is_null(key.column, a), store.is_null(key.column, b));
            let order = match nulls {
                (true, true) => Ordering::Equal,
                (true, false) if key.nulls_first => Ordering::Less,
                (true, false) => Ordering::Greater,
                (false, true) if key.nulls_first => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) if key.descending => store.compare(key.column, b, a),
                (false, false) => store.compare(key.column, a, b),
            };
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }
}

/// Ascending, whatever for NULLs; 0 for all rows where a type has no cheap prefix.
fn raw_prefixes(column: &dyn Array, out: &mut Vec<u64>) {
    macro_rules! of_primitive {
        ($type:ty) => {
            primitive_prefixes::<$type>(column, out)
        };
    }
    let data_type = column.data_type();
    match data_type {
        DataType::Utf8View => {
            let values = column.as_string_view();
            out.extend(values.bytes_iter().map(bytes_prefix));
        }
        DataType::BinaryView => {
            let values = column.as_binary_view();
            out.extend(values.bytes_iter().map(bytes_prefix));
        }
        DataType::Boolean => {
            out.extend(column.as_boolean().values().iter().map(u64::from));
        }
        DataType::Float64 => primitive_prefixes::<Float64Type>(column, out),
        DataType::Float32 => primitive_prefixes::<Float32Type>(column, out),
        DataType::Decimal128(_, _) => primitive_prefixes::<Decimal128Type>(column, out),
        DataType::Decimal256(_, _) => primitive_prefixes::<Decimal256Type>(column, out),
        data_type => downcast_integer! {
            data_type => (of_primitive),
            _ => downcast_temporal! {
                data_type => (of_primitive),
                _ => out.resize(column.len(), 0),
            },
        },
    }
}

fn primitive_prefixes<T: ArrowPrimitiveType>(column: &dyn Array, out: &mut Vec<u64>)
where
    T::Native: Prefix,
{
    out.extend(column.as_primitive::<T>().values().iter().map(|value| value.prefix()));
}

fn bytes_prefix(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = bytes.len().min(8);
    first[..length].copy_from_slice(&bytes[..length]);
    u64::from_be_bytes(first)
}

/// 64 bits, unsigned, that order as the values do or are equal.
trait Prefix: Copy {
    fn prefix(self) -> u64;
}

macro_rules! impl_prefix {
    ($($native:ty: |$value:ident| $prefix:expr),* $(,)?) => {$(
        impl Prefix for $native {
            #[inline]
            fn prefix(self) -> u64 {
                let $value = self;
                $prefix
            }
        }
    )*};
}

impl_prefix! {
    i8: |v| i64::from(v).prefix(),
    i16: |v| i64::from(v).prefix(),
    i32: |v| i64::from(v).prefix(),
    i64: |v| v as u64 ^ (1 << 63),
    u8: |v| u64::from(v),
    u16: |v| u64::from(v),
    u32: |v| u64::from(v),
    u64: |v| v,
    i128: |v| (v.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64).prefix(),
    i256: |v| v.to_i128().unwrap_or(if v < i256::ZERO { i128::MIN } else { i128::MAX }).prefix(),
    f32: |v| f64::from(v).prefix(),
    f64: |v| {
        let bits = canonical_f64(v).to_bits() as i64;
        (bits ^ (((bits >> 63) as u64) >> 1) as i64).prefix()
    },
}

#[cfg(test)]
mod tests;

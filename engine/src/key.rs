//! Keys: columns of a batch as compact, hashable values, and the map from key to dense id on which all keyed
//! operators rest.
//!
//! Equality is that of GROUP BY: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0. A join that wants SQL's equality
//! leaves out rows with [`Keys::any_null`]. Hashes are the same on every machine and in every run: key groups, and so
//! the placement of state, depend on them.
//!
//! ```text
//!   key columns of at most 16 bytes in all  -> u128 (rows with a NULL: as below, in a second table)
//!   any other                               -> arrow-row bytes in an arena
//! ```

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::{EngineError, Result};

mod map;

pub use map::KeyMap;

/// Buckets that keys are hashed into: the unit of exchange and rescale.
pub const KEY_GROUPS: u32 = 256;

/// The key group of a hash.
pub fn key_group(hash: u64) -> u32 {
    // The low bits choose the slot in a hash table and the top bits its tag: take others.
    ((hash >> 32) as u32) & (KEY_GROUPS - 1)
}

/// Which of `tasks` tasks owns a key group.
pub fn owner(group: u32, tasks: usize) -> usize {
    group as usize * tasks / KEY_GROUPS as usize
}

/// Hash of bytes, the same everywhere.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Hash of a fixed-width key, the same everywhere: a folded multiplication, then one round of mixing.
#[inline]
pub(crate) fn hash_fixed(key: u128) -> u64 {
    let (low, high) = (key as u64, (key >> 64) as u64);
    let product =
        u128::from(low ^ 0x9e37_79b9_7f4a_7c15) * u128::from(high ^ 0xbf58_476d_1ce4_e5b9);
    let folded = (product as u64) ^ ((product >> 64) as u64);
    let product = u128::from(folded ^ low) * 0x94d0_49bb_1331_11eb_u128;
    (product as u64) ^ ((product >> 64) as u64)
}

/// Turns key columns of given types into [`Keys`].
#[derive(Debug)]
pub struct KeyEncoder {
    types: Vec<DataType>,
    /// Bytes of each column when all fit into 16.
    widths: Option<Vec<u32>>,
    converter: RowConverter,
}

impl KeyEncoder {
    /// An encoder for columns of these types.
    ///
    /// # Errors
    /// When a type cannot be compared (a map).
    pub fn new(types: &[DataType]) -> Result<Self> {
        let widths: Option<Vec<u32>> = types.iter().map(fixed_width).collect();
        let widths = widths.filter(|widths| widths.iter().sum::<u32>() <= 16);
        let fields = types.iter().map(|data_type| SortField::new(data_type.clone())).collect();
        Ok(Self { types: types.to_vec(), widths, converter: RowConverter::new(fields)? })
    }

    /// Types of the key columns.
    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// Encodes the key of each row.
    ///
    /// # Errors
    /// When the columns are not of the encoder's types.
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<Keys> {
        let length = columns.first().map_or(0, |column| column.len());
        let columns = canonical_columns(columns);
        let mut nulls: Option<NullBuffer> = None;
        for column in &columns {
            nulls = NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref());
        }
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
        let Some(widths) = &self.widths else {
            let rows = self.converter.convert_columns(&columns)?;
            let hashes = (0..length).map(|row| hash_bytes(rows.row(row).as_ref())).collect();
            return Ok(Keys { hashes, nulls, values: KeyValues::Rows(rows) });
        };
        let mut fixed = vec![0_u128; length];
        let mut shift = 0;
        for (column, width) in columns.iter().zip(widths) {
            pack(column, shift, &mut fixed)?;
            shift += width * 8;
        }
        let mut hashes: Vec<u64> = fixed.iter().map(|&key| hash_fixed(key)).collect();
        let mut null_rows = None;
        if let Some(nulls) = &nulls {
            let rows = self.converter.convert_columns(&columns)?;
            for row in (0..length).filter(|&row| nulls.is_null(row)) {
                hashes[row] = hash_bytes(rows.row(row).as_ref());
            }
            null_rows = Some(rows);
        }
        Ok(Keys { hashes, nulls, values: KeyValues::Fixed { fixed, null_rows } })
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.widths.is_some()
    }

    pub(crate) fn decode_fixed(&self, keys: &[u128]) -> Result<Vec<ArrayRef>> {
        let widths = self.widths.as_ref().ok_or_else(|| EngineError::internal("keys not fixed"))?;
        let mut shift = 0;
        let mut columns = Vec::with_capacity(self.types.len());
        for (data_type, width) in self.types.iter().zip(widths) {
            columns.push(unpack(data_type, shift, keys)?);
            shift += width * 8;
        }
        Ok(columns)
    }

    pub(crate) fn decode_rows<'a>(
        &self,
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        Ok(self.converter.convert_rows(rows.map(|row| parser.parse(row)))?)
    }
}

/// The keys of one batch's rows.
#[derive(Debug)]
pub struct Keys {
    hashes: Vec<u64>,
    nulls: Option<NullBuffer>,
    values: KeyValues,
}

#[derive(Debug)]
enum KeyValues {
    /// `null_rows` holds all rows; only those with a NULL are looked at.
    Fixed {
        fixed: Vec<u128>,
        null_rows: Option<Rows>,
    },
    Rows(Rows),
}

/// One key, borrowed from its batch.
pub(crate) enum KeyRef<'a> {
    Fixed(u128),
    Bytes(&'a [u8]),
}

impl Keys {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The keys of no columns: all rows are alike.
    ///
    /// # Errors
    /// Never; the signature is that of [`KeyEncoder::encode`].
    pub fn constant(length: usize) -> Result<Self> {
        let values = KeyValues::Fixed { fixed: vec![0; length], null_rows: None };
        Ok(Self { hashes: vec![hash_fixed(0); length], nulls: None, values })
    }

    /// The hash of a row's key.
    pub fn hash(&self, row: usize) -> u64 {
        self.hashes[row]
    }

    /// All hashes.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Whether any key column of this row is NULL.
    pub fn any_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Whether any row has a NULL in its key.
    pub fn has_nulls(&self) -> bool {
        self.nulls.is_some()
    }

    pub(crate) fn get(&self, row: usize) -> KeyRef<'_> {
        match &self.values {
            KeyValues::Rows(rows) => KeyRef::Bytes(rows.row(row).data()),
            KeyValues::Fixed { fixed, null_rows: Some(rows) } => {
                if self.any_null(row) {
                    KeyRef::Bytes(rows.row(row).data())
                } else {
                    KeyRef::Fixed(fixed[row])
                }
            }
            KeyValues::Fixed { fixed, null_rows: None } => KeyRef::Fixed(fixed[row]),
        }
    }

    /// The fixed keys, when no row needs bytes: the fast path.
    pub(crate) fn all_fixed(&self) -> Option<&[u128]> {
        match &self.values {
            KeyValues::Fixed { fixed, null_rows: None } => Some(fixed),
            _ => None,
        }
    }
}

/// Float columns with one NaN and one zero; other columns as they are.
pub fn canonical_columns(columns: &[ArrayRef]) -> Vec<ArrayRef> {
    let canonical = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>();
                std::sync::Arc::new(values.unary::<_, Float64Type>(canonical_f64))
            }
            DataType::Float32 => {
                let values = column.as_primitive::<Float32Type>();
                let one = |v: f32| if v.is_nan() { f32::NAN } else { v + 0.0 };
                std::sync::Arc::new(values.unary::<_, Float32Type>(one))
            }
            _ => std::sync::Arc::clone(column),
        }
    };
    columns.iter().map(canonical).collect()
}

/// A float column in which every NaN has the same bits; other columns as they are. Arithmetic gives NaNs with a sign (infinity minus
/// infinity on x86), and Arrow's order puts these below all numbers: so they are made one where values come in or are computed.
pub fn one_nan(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            let odd = |v: &f64| v.is_nan() && v.to_bits() != f64::NAN.to_bits();
            if values.values().iter().any(odd) {
                let one = |v: f64| if v.is_nan() { f64::NAN } else { v };
                return std::sync::Arc::new(values.unary::<_, Float64Type>(one));
            }
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            let odd = |v: &f32| v.is_nan() && v.to_bits() != f32::NAN.to_bits();
            if values.values().iter().any(odd) {
                let one = |v: f32| if v.is_nan() { f32::NAN } else { v };
                return std::sync::Arc::new(values.unary::<_, Float32Type>(one));
            }
        }
        _ => {}
    }
    std::sync::Arc::clone(column)
}

/// See [`one_nan`].
///
/// # Errors
/// Never: the columns are of the types they were of.
pub(crate) fn rows_with_one_nan(rows: RecordBatch) -> Result<RecordBatch> {
    if !rows.columns().iter().any(|column| column.data_type().is_floating()) {
        return Ok(rows);
    }
    let columns = rows.columns().iter().map(one_nan).collect();
    Ok(RecordBatch::try_new(rows.schema(), columns)?)
}

/// One NaN, one zero.
pub(crate) fn canonical_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

fn fixed_width(data_type: &DataType) -> Option<u32> {
    match data_type {
        DataType::Boolean | DataType::Int8 | DataType::UInt8 => Some(1),
        DataType::Int16 | DataType::UInt16 => Some(2),
        DataType::Int32 | DataType::UInt32 | DataType::Date32 | DataType::Float32 => Some(4),
        DataType::Int64 | DataType::UInt64 | DataType::Date64 | DataType::Float64 => Some(8),
        DataType::Timestamp(_, _) | DataType::Time64(_) | DataType::Duration(_) => Some(8),
        DataType::Time32(_) => Some(4),
        DataType::Decimal128(_, _) => Some(16),
        _ => None,
    }
}

/// Calls a macro body with the primitive type of an 8-byte-or-less column.
macro_rules! with_primitive {
    ($data_type:expr, $t:ident => $body:expr, $other:expr) => {
        match $data_type {
            DataType::Int8 => {
                type $t = Int8Type;
                $body
            }
            DataType::Int16 => {
                type $t = Int16Type;
                $body
            }
            DataType::Int32 => {
                type $t = Int32Type;
                $body
            }
            DataType::Int64 => {
                type $t = Int64Type;
                $body
            }
            DataType::UInt8 => {
                type $t = UInt8Type;
                $body
            }
            DataType::UInt16 => {
                type $t = UInt16Type;
                $body
            }
            DataType::UInt32 => {
                type $t = UInt32Type;
                $body
            }
            DataType::UInt64 => {
                type $t = UInt64Type;
                $body
            }
            DataType::Date32 => {
                type $t = Date32Type;
                $body
            }
            DataType::Date64 => {
                type $t = Date64Type;
                $body
            }
            DataType::Time32(TimeUnit::Second) => {
                type $t = arrow::datatypes::Time32SecondType;
                $body
            }
            DataType::Time32(_) => {
                type $t = arrow::datatypes::Time32MillisecondType;
                $body
            }
            DataType::Time64(TimeUnit::Nanosecond) => {
                type $t = arrow::datatypes::Time64NanosecondType;
                $body
            }
            DataType::Time64(_) => {
                type $t = arrow::datatypes::Time64MicrosecondType;
                $body
            }
            DataType::Timestamp(TimeUnit::Second, _) => {
                type $t = arrow::datatypes::TimestampSecondType;
                $body
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                type $t = arrow::datatypes::TimestampMillisecondType;
                $body
            }
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                type $t = arrow::datatypes::TimestampMicrosecondType;
                $body
            }
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                type $t = arrow::datatypes::TimestampNanosecondType;
                $body
            }
            DataType::Duration(TimeUnit::Second) => {
                type $t = arrow::datatypes::DurationSecondType;
                $body
            }
            DataType::Duration(TimeUnit::Millisecond) => {
                type $t = arrow::datatypes::DurationMillisecondType;
                $body
            }
            DataType::Duration(TimeUnit::Microsecond) => {
                type $t = arrow::datatypes::DurationMicrosecondType;
                $body
            }
            DataType::Duration(TimeUnit::Nanosecond) => {
                type $t = arrow::datatypes::DurationNanosecondType;
                $body
            }
            DataType::Decimal128(_, _) => {
                type $t = Decimal128Type;
                $body
            }
            _ => $other,
        }
    };
}

/// A native value as the low bits of a u128, and back.
trait Bits: Copy {
    fn to_bits(self) -> u128;
    fn from_bits(bits: u128) -> Self;
}

macro_rules! impl_bits {
    ($($native:ty as $unsigned:ty),*) => {$(
        impl Bits for $native {
            #[inline]
            fn to_bits(self) -> u128 {
                self as $unsigned as u128
            }
            #[inline]
            fn from_bits(bits: u128) -> Self {
                bits as $unsigned as $native
            }
        }
    )*};
}

impl_bits!(
    i8 as u8,
    i16 as u16,
    i32 as u32,
    i64 as u64,
    u8 as u8,
    u16 as u16,
    u32 as u32,
    u64 as u64,
    i128 as u128
);

fn pack(column: &ArrayRef, shift: u32, out: &mut [u128]) -> Result<()> {
    match column.data_type() {
        DataType::Boolean => {
            let values: &BooleanArray = column.as_boolean();
            for (slot, value) in out.iter_mut().zip(values.values().iter()) {
                *slot |= u128::from(value) << shift;
            }
        }
        DataType::Float64 => {
            for (slot, value) in out.iter_mut().zip(column.as_primitive::<Float64Type>().values()) {
                *slot |= u128::from(value.to_bits()) << shift;
            }
        }
        DataType::Float32 => {
            for (slot, value) in out.iter_mut().zip(column.as_primitive::<Float32Type>().values()) {
                *slot |= u128::from(value.to_bits()) << shift;
            }
        }
        data_type => with_primitive!(data_type, T => {
            let values = column.as_primitive_opt::<T>();
            let values = values.ok_or_else(|| EngineError::internal("key column type"))?;
            for (slot, value) in out.iter_mut().zip(values.values()) {
                *slot |= Bits::to_bits(*value) << shift;
            }
        }, return Err(EngineError::internal(format!("key of type {data_type}")))),
    }
    Ok(())
}

fn unpack(data_type: &DataType, shift: u32, keys: &[u128]) -> Result<ArrayRef> {
    use arrow::array::PrimitiveArray;
    Ok(match data_type {
        DataType::Boolean => {
            let values = keys.iter().map(|key| (key >> shift) & 1 == 1).collect::<Vec<_>>();
            std::sync::Arc::new(BooleanArray::from(values))
        }
        DataType::Float64 => {
            let values = keys.iter().map(|key| f64::from_bits((key >> shift) as u64));
            std::sync::Arc::new(PrimitiveArray::<Float64Type>::from_iter_values(values))
        }
        DataType::Float32 => {
            let values = keys.iter().map(|key| f32::from_bits((key >> shift) as u32));
            std::sync::Arc::new(PrimitiveArray::<Float32Type>::from_iter_values(values))
        }
        data_type => with_primitive!(data_type, T => {
            let values = keys.iter().map(|key| Bits::from_bits(key >> shift));
            let array = PrimitiveArray::<T>::from_iter_values(values);
            std::sync::Arc::new(array.with_data_type(data_type.clone()))
        }, return Err(EngineError::internal(format!("key of type {data_type}")))),
    })
}

#[cfg(test)]
mod tests;

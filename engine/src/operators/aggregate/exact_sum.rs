//! An exact sum of doubles under insert and delete: a super-accumulator, after Radford M. Neal, "Fast exact summation
//! using small and large superaccumulators" (2015), held sparsely.
//!
//! A double is an integer of 53 bits times a power of two. The powers are cut into chunks of 32 bits; each chunk sums its
//! integers in 128 bits. Sums of integers have no order and no rounding: a delete is exactly the inverse of its insert.
//! NaN and the infinities are counted apart, so that they too can leave.
//!
//! ```text
//!   value = unit * sum over chunks c of  total[c] * 2^(32 c)      (one or two chunks for numbers of like size)
//!   unit  = 2^-1074 for sums, 2^-2148 for sums of products: their least bits
//! ```

use smallvec::SmallVec;

/// Bits of a chunk.
const CHUNK_BITS: u32 = 32;
/// The least bit of a double is 2^-this.
const LEAST_BIT: usize = 1074;
/// Chunks that the 128 bits of a chunk's total reach beyond it.
const REACH: usize = 5;

/// A sum of doubles, or of products of two doubles each, but not of both. See the module's text.
#[derive(Clone, Default)]
pub(super) struct ExactSum {
    /// Chunks with a total, not ordered; totals are never 0.
    chunks: SmallVec<[Chunk; 1]>,
    /// How many NaN, +inf and -inf are there: almost always none.
    specials: Option<Box<[i64; 3]>>,
}

#[derive(Clone)]
struct Chunk {
    total: i128,
    index: u8,
}

/// A finite double as an integer times 2^(shift - 1074).
fn parts(value: f64) -> (i64, u32) {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as u32;
    let fraction = (bits & ((1 << 52) - 1)) as i64;
    let (mantissa, shift) =
        if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
    (if value.is_sign_negative() { -mantissa } else { mantissa }, shift)
}

impl ExactSum {
    /// Adds a value as often as the weight says.
    pub(super) fn add(&mut self, value: f64, weight: i64) {
        if value.is_finite() {
            let (integer, shift) = parts(value);
            self.add_integer(i128::from(integer), shift, weight);
        } else {
            self.add_special(value, weight);
        }
    }

    /// Adds the product of two values, exactly.
    pub(super) fn add_product(&mut self, a: f64, b: f64, weight: i64) {
        if !(a.is_finite() && b.is_finite()) {
            self.add_special(a * b, weight);
            return;
        }
        let ((a, shift_a), (b, shift_b)) = (parts(a), parts(b));
        // 106 bits, in two halves that leave room for the shift inside a chunk.
        let product = i128::from(a) * i128::from(b);
        let shift = shift_a + shift_b;
        self.add_integer(product & ((1 << 53) - 1), shift, weight);
        self.add_integer(product >> 53, shift + 53, weight);
    }

    /// Adds another sum as often as the weight says.
    pub(super) fn add_all(&mut self, other: &Self, weight: i64) {
        for chunk in &other.chunks {
            match chunk.total.checked_mul(i128::from(weight)) {
                Some(product) => self.add_to_chunk(chunk.index, product),
                None => {
                    let (low, high) = (chunk.total & 0xffff_ffff_ffff_ffff, chunk.total >> 64);
                    self.add_to_chunk(chunk.index, low * i128::from(weight));
                    self.add_to_chunk(chunk.index + 2, high * i128::from(weight));
                }
            }
        }
        if let Some(specials) = &other.specials {
            for (value, count) in
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].iter().zip(**specials)
            {
                self.add_special(*value, count * weight);
            }
        }
    }

    /// Whether NaN or an infinity is among the values.
    pub(super) fn has_specials(&self) -> bool {
        self.specials.as_ref().is_some_and(|counts| counts.iter().any(|&count| count > 0))
    }

    /// The double nearest to the sum, ties to even.
    pub(super) fn sum(&self) -> f64 {
        if let Some(specials) = &self.specials {
            let [nan, positive, negative] = specials.map(|count| count > 0);
            match (nan || (positive && negative), positive, negative) {
                (true, _, _) => return f64::NAN,
                (_, true, _) => return f64::INFINITY,
                (_, _, true) => return f64::NEG_INFINITY,
                _ => {}
            }
        }
        if let [chunk] = self.chunks.as_slice() {
            let exponent = i64::from(chunk.index) * i64::from(CHUNK_BITS) - LEAST_BIT as i64;
            if (-900..900).contains(&exponent) {
                // One rounding by the conversion; the power of two is exact here.
                return chunk.total as f64 * f64::from_bits(((exponent + 1023) as u64) << 52);
            }
        }
        self.round(0)
    }

    /// The double nearest to the sum of products.
    pub(super) fn sum_of_products(&self) -> f64 {
        self.round(LEAST_BIT)
    }

    /// Doubles that add up to the sum exactly, the largest first; `None` where one would be infinite.
    pub(super) fn pieces(&self) -> Option<SmallVec<[f64; 4]>> {
        let mut rest = self.clone();
        let mut pieces = SmallVec::new();
        loop {
            let piece = rest.sum();
            if piece == 0.0 {
                return Some(pieces);
            }
            if !piece.is_finite() {
                return None;
            }
            pieces.push(piece);
            rest.add(piece, -1);
        }
    }

    /// Appends the sum as bytes: for each special value its count if there is any, then the chunks.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.specials.is_some()));
        for count in self.specials.iter().flat_map(|specials| specials.iter()) {
            bytes.extend(count.to_le_bytes());
        }
        for chunk in &self.chunks {
            bytes.push(chunk.index);
            bytes.extend(chunk.total.to_le_bytes());
        }
    }

    /// The inverse of [`Self::encode`]; `None` for other bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&has_specials, mut bytes) = bytes.split_first()?;
        let mut sum = Self::default();
        if has_specials == 1 {
            let mut specials = [0; 3];
            for count in &mut specials {
                let (first, rest) = bytes.split_first_chunk()?;
                (*count, bytes) = (i64::from_le_bytes(*first), rest);
            }
            sum.specials = Some(Box::new(specials));
        }
        while let Some((&index, rest)) = bytes.split_first() {
            let (total, rest) = rest.split_first_chunk()?;
            sum.chunks.push(Chunk { total: i128::from_le_bytes(*total), index });
            bytes = rest;
        }
        Some(sum)
    }

    #[cold]
    fn add_special(&mut self, value: f64, weight: i64) {
        let which = if value.is_nan() { 0 } else { 1 + usize::from(value < 0.0) };
        let specials = self.specials.get_or_insert_default();
        specials[which] += weight;
        if **specials == [0; 3] {
            self.specials = None;
        }
    }

    /// Adds an integer of at most 54 bits times 2^shift units.
    #[inline]
    fn add_integer(&mut self, integer: i128, shift: u32, weight: i64) {
        let integer = integer << (shift % CHUNK_BITS);
        let index = (shift / CHUNK_BITS) as u8;
        match integer.checked_mul(i128::from(weight)) {
            Some(product) => self.add_to_chunk(index, product),
            None => {
                // A weight beyond 2^42: in two parts, each of which fits.
                let (high, low) = (weight >> CHUNK_BITS, weight & 0xffff_ffff);
                self.add_to_chunk(index, integer * i128::from(low));
                self.add_to_chunk(index + 1, integer * i128::from(high));
            }
        }
    }

    fn add_to_chunk(&mut self, index: u8, value: i128) {
        let Some(position) = self.chunks.iter().position(|chunk| chunk.index == index) else {
            if value != 0 {
                self.chunks.push(Chunk { total: value, index });
            }
            return;
        };
        match self.chunks[position].total.checked_add(value) {
            Some(0) => {
                self.chunks.swap_remove(position);
            }
            Some(total) => self.chunks[position].total = total,
            None => {
                // Some 2^42 values of the largest kind: move the upper part up.
                let total = self.chunks[position].total;
                self.chunks[position].total = (total & 0xffff_ffff) + value;
                self.add_to_chunk(index + 1, total >> CHUNK_BITS);
            }
        }
    }

    /// Rounds the sum, whose unit is 2^-(1074 + `extra`), to a double.
    fn round(&self, extra: usize) -> f64 {
        let (digits, first_bit, negative) = self.digits();
        let Some(top) = digits.iter().rposition(|&digit| digit != 0) else {
            return 0.0;
        };
        // Places of bits count from 2^-1074, so that those below 0 cannot be kept.
        let origin = first_bit as i64 - extra as i64;
        let top_place = origin + (top * 32 + 31) as i64 - i64::from(digits[top].leading_zeros());
        let low_place = (top_place - 52).max(0);
        let bit = |place: i64| {
            let bit = usize::try_from(place - origin).unwrap_or(usize::MAX);
            digits.get(bit / 32).map_or(0, |digit| u64::from(digit >> (bit % 32) & 1))
        };
        let places = (low_place..=top_place).rev();
        let mut mantissa = places.fold(0, |bits, place| bits << 1 | bit(place));
        let half = bit(low_place - 1) == 1;
        let below = (origin..low_place - 1).any(|place| bit(place) == 1);
        mantissa += u64::from(half && (below || mantissa & 1 == 1));
        // Adding the mantissa with its leading bit lets a carry move into the exponent. Below 2^52 it is subnormal.
        let bits = (u64::try_from(low_place).unwrap_or(0) << 52).saturating_add(mantissa);
        let magnitude = if bits >= 0x7ff << 52 { f64::INFINITY } else { f64::from_bits(bits) };
        if negative { -magnitude } else { magnitude }
    }

    /// The sum's magnitude in digits of 32 bits, lowest first, the place of the first bit, and whether it is negative.
    fn digits(&self) -> (SmallVec<[u32; 16]>, usize, bool) {
        let indices = || self.chunks.iter().map(|chunk| usize::from(chunk.index));
        let (first, last) = (indices().min().unwrap_or(0), indices().max().unwrap_or(0));
        let mut totals: SmallVec<[i128; 16]> = SmallVec::from_elem(0, last - first + 1 + REACH);
        for chunk in &self.chunks {
            totals[usize::from(chunk.index) - first] = chunk.total;
        }
        let mut digits: SmallVec<[u32; 16]> = SmallVec::with_capacity(totals.len());
        let mut carry = 0_i128;
        for total in totals {
            // Halves apart: the sum of both could leave 128 bits.
            let low = (carry & 0xffff_ffff) + (total & 0xffff_ffff);
            digits.push((low & 0xffff_ffff) as u32);
            carry = (carry >> CHUNK_BITS) + (total >> CHUNK_BITS) + (low >> CHUNK_BITS);
        }
        if carry < 0 {
            let mut borrow = true;
            for digit in &mut digits {
                let (negated, overflow) = (!*digit).overflowing_add(u32::from(borrow));
                *digit = negated;
                borrow = overflow;
            }
        }
        (digits, first * CHUNK_BITS as usize, carry < 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum_of(values: &[(f64, i64)]) -> f64 {
        let mut sum = ExactSum::default();
        for &(value, weight) in values {
            sum.add(value, weight);
        }
        sum.sum()
    }

    #[test]
    fn knows_what_plain_addition_loses() {
        assert_eq!(sum_of(&[(1e100, 1), (1.0, 1), (-1e100, 1)]), 1.0);
        assert_eq!(sum_of(&[(1e308, 1), (1e308, 1), (1e308, -1)]), 1e308);
        assert_eq!(sum_of(&[(1e308, 2)]), f64::INFINITY);
        assert_eq!(sum_of(&[(-1e308, 2)]), f64::NEG_INFINITY);
        assert_eq!(sum_of(&[(0.1, 10)]), 1.0);
        assert_eq!(sum_of(&[(5e-324, 3), (5e-324, -1)]), 1e-323);
        assert_eq!(sum_of(&[(f64::MIN_POSITIVE, 1), (5e-324, -1)]), 2.225_073_858_507_201e-308);
        assert_eq!(sum_of(&[(f64::MAX, 1), (f64::MAX, -1)]), 0.0);
        assert_eq!(sum_of(&[(-3.5, i64::MAX), (-3.5, -i64::MAX), (2.0, 1)]), 2.0);
        assert_eq!(sum_of(&[(1.0, i64::MAX)]), i64::MAX as f64);
        assert_eq!(sum_of(&[(1.0, 1), (2_f64.powi(-53), 1)]), 1.0);
        assert_eq!(sum_of(&[(1.0, 1), (2_f64.powi(-53), 1), (5e-324, 1)]), 1.0 + f64::EPSILON);
    }

    #[test]
    fn special_values_leave_no_trace() {
        let gone = [(f64::NAN, 1), (f64::INFINITY, 2), (1.0, 1), (f64::NAN, -1)];
        assert_eq!(sum_of(&gone), f64::INFINITY);
        let mut sum = ExactSum::default();
        for (value, weight) in gone {
            sum.add(value, weight);
        }
        sum.add(f64::NEG_INFINITY, 1);
        assert!(sum.sum().is_nan());
        sum.add(f64::INFINITY, -2);
        assert_eq!(sum.sum(), f64::NEG_INFINITY);
        sum.add(f64::NEG_INFINITY, -1);
        assert_eq!(sum.sum(), 1.0);
        sum.add(1.0, -1);
        assert!(sum.chunks.is_empty() && sum.specials.is_none());
    }

    impl ExactSum {
        fn product_for_test(&self) -> f64 {
            if self.has_specials() { self.sum() } else { self.sum_of_products() }
        }
    }

    fn canonical(value: f64) -> u64 {
        crate::key::canonical_f64(value).to_bits()
    }

    #[test]
    fn a_sum_may_be_scaled() {
        let mut small = ExactSum::default();
        small.add(3.5, i64::MAX);
        let mut large = ExactSum::default();
        large.add_all(&small, i64::MAX);
        large.add_all(&small, 1);
        large.add_all(&small, -i64::MAX);
        assert_eq!(large.sum(), small.sum());
    }

    proptest! {
        #[test]
        fn delete_is_the_inverse_of_insert(
            kept in prop::collection::vec(any::<f64>(), 0..8),
            gone in prop::collection::vec((any::<f64>(), 1_i64..5), 0..8),
        ) {
            let mut sum = ExactSum::default();
            kept.iter().for_each(|&value| sum.add(value, 1));
            let expected = sum.sum();
            gone.iter().for_each(|&(value, weight)| sum.add(value, weight));
            gone.iter().rev().for_each(|&(value, weight)| sum.add(value, -weight));
            prop_assert_eq!(sum.sum().to_bits(), expected.to_bits());
        }

        #[test]
        fn products_round_as_the_hardware_does(a in any::<f64>(), b in any::<f64>(), c in any::<f64>()) {
            let mut sum = ExactSum::default();
            sum.add_product(a, b, 1);
            prop_assert_eq!(canonical(sum.product_for_test()), canonical(a * b));
            sum.add_product(c, 1.0, 1);
            prop_assert_eq!(canonical(sum.product_for_test()), canonical(a.mul_add(b, c)));
            sum.add_product(b, a, -1);
            prop_assert_eq!(canonical(sum.product_for_test()), canonical(c));
        }

        #[test]
        fn bytes_come_back(
            values in prop::collection::vec((any::<f64>(), -3_i64..4), 0..8),
            more in any::<f64>(),
        ) {
            let mut sum = ExactSum::default();
            values.iter().for_each(|&(value, weight)| sum.add(value, weight));
            let mut bytes = Vec::new();
            sum.encode(&mut bytes);
            let mut back = ExactSum::decode(&bytes).unwrap();
            prop_assert_eq!(canonical(back.sum()), canonical(sum.sum()));
            values.iter().for_each(|&(value, weight)| back.add(value, -weight));
            prop_assert!(back.chunks.is_empty() && back.specials.is_none());
            back.add(more, 1);
            prop_assert_eq!(canonical(back.sum()), canonical(more));
            prop_assert!(ExactSum::decode(&bytes[..bytes.len() - 1]).is_none() || bytes.len() == 18);
        }

        #[test]
        fn pieces_add_up(values in prop::collection::vec(-1e300..1e300_f64, 0..6)) {
            let mut sum = ExactSum::default();
            values.iter().for_each(|&value| sum.add(value, 1));
            let pieces = sum.pieces().unwrap();
            pieces.iter().for_each(|&piece| sum.add(piece, -1));
            prop_assert!(sum.digits().0.iter().all(|&digit| digit == 0));
        }

        #[test]
        fn two_values_round_as_the_hardware_does(a in any::<f64>(), b in any::<f64>()) {
            let (exact, plain) = (sum_of(&[(a, 1), (b, 1)]), a + b);
            prop_assert!(exact == plain || (exact.is_nan() && plain.is_nan()));
        }
    }
}

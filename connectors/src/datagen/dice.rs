//! Random numbers that are a function of a seed and a row: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

/// A short sequence of numbers for one value.
#[derive(Debug)]
pub(crate) struct Dice(u64);

/// Two numbers as one seed.
pub(crate) fn mix(seed: u64, other: u64) -> u64 {
    let mut dice = Dice(seed ^ other.wrapping_mul(0xD134_2543_DE82_EF95));
    dice.next()
}

impl Dice {
    /// The dice of one row.
    pub(crate) fn new(seed: u64, row: u64) -> Self {
        Self(mix(seed, row))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, not including, `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From `min` to `max`, both included.
    pub(crate) fn between(&mut self, min: i128, max: i128) -> i128 {
        let width = max.saturating_sub(min) as u128;
        if width < u128::from(u64::MAX) {
            return min + i128::from(self.below(width as u64 + 1));
        }
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        match width.checked_add(1) {
            Some(values) => min.wrapping_add((wide % values) as i128),
            None => wide as i128,
        }
    }

    /// From 0 up to, not including, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

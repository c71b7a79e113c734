//! Variance, covariance, correlation and linear regression: functions of the sums of values, squares and products.
//!
//! ```text
//!   group -> count, and exactly: sum x, sum x^2   (of pairs also: sum y, sum y^2, sum x y)
//! ```
//!
//! The sums are exact, and so is `n sum x^2 - (sum x)^2`: nothing is lost where the textbook formula loses everything,
//! and rows may leave in any order. Only the last steps round. An infinity or NaN among the values makes all of these NaN,
//! as in PostgreSQL. The squares of means below 1e-160 may underflow.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, UInt64Array};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Field};

use super::count::add_counts;
use super::exact_sum::ExactSum;
use super::float_sum::{DoubleSum, load_sums};
use super::fold::{
    Failures, Fold, FoldBatch, Reading, State, ValueState, What, field, gather, scatter,
};
use super::scalars::doubles;
use crate::error::{EngineError, Result};

/// What is read of a [`Moments`]: SQL's functions, by their names in DataFusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    VarSample,
    VarPopulation,
    StddevSample,
    StddevPopulation,
    CovarSample,
    CovarPopulation,
    Correlation,
    Slope,
    Intercept,
    Count,
    R2,
    MeanX,
    MeanY,
    SumXx,
    SumYy,
    SumXy,
}

impl Moment {
    /// The function of this name, and how many arguments it has.
    pub(super) fn named(name: &str) -> Option<(Self, usize)> {
        Some(match name {
            "var" => (Self::VarSample, 1),
            "var_pop" => (Self::VarPopulation, 1),
            "stddev" => (Self::StddevSample, 1),
            "stddev_pop" => (Self::StddevPopulation, 1),
            "covar_samp" => (Self::CovarSample, 2),
            "covar_pop" => (Self::CovarPopulation, 2),
            "corr" => (Self::Correlation, 2),
            "regr_slope" => (Self::Slope, 2),
            "regr_intercept" => (Self::Intercept, 2),
            "regr_count" => (Self::Count, 2),
            "regr_r2" => (Self::R2, 2),
            "regr_avgx" => (Self::MeanX, 2),
            "regr_avgy" => (Self::MeanY, 2),
            "regr_sxx" => (Self::SumXx, 2),
            "regr_syy" => (Self::SumYy, 2),
            "regr_sxy" => (Self::SumXy, 2),
            _ => return None,
        })
    }
}

/// Sums of one column: of values and of squares.
const SINGLE: usize = 2;
/// Sums of two columns: x, x^2, y, y^2, x y.
const PAIR: usize = 5;

/// See the module's text. The columns of a pair are y, x, in the order of `regr_slope(y, x)`.
pub(super) struct Moments {
    filter: Option<usize>,
    columns: Vec<usize>,
    counts: Vec<i64>,
    /// Those of group `g` begin at `g * width`.
    sums: Vec<ExactSum>,
    width: usize,
}

impl Moments {
    pub(super) fn new(filter: Option<usize>, columns: Vec<usize>) -> Self {
        let width = if columns.len() == 1 { SINGLE } else { PAIR };
        Self { filter, columns, counts: Vec::new(), sums: Vec::new(), width }
    }

    fn moment(&self, id: u32, moment: Moment) -> Option<f64> {
        let count = self.counts[id as usize];
        let sums = &self.sums[id as usize * self.width..][..self.width];
        if count <= 0 {
            return None;
        }
        let n = count as f64;
        let special = sums.iter().any(ExactSum::has_specials);
        let spread = |one: usize, other: usize, product: usize| {
            if special { f64::NAN } else { spread(&sums[one], &sums[other], &sums[product], count) }
        };
        let xx = || spread(0, 0, 1);
        let yy = || spread(2, 2, 3);
        let xy = || spread(0, 2, 4);
        let sample = count > 1;
        let line = || Some(xx()).filter(|xx| sample && *xx != 0.0);
        match moment {
            Moment::VarSample => sample.then(|| xx() / (n - 1.0)),
            Moment::VarPopulation => Some(xx() / n),
            Moment::StddevSample => sample.then(|| (xx() / (n - 1.0)).sqrt()),
            Moment::StddevPopulation => Some((xx() / n).sqrt()),
            Moment::CovarSample => sample.then(|| xy() / (n - 1.0)),
            Moment::CovarPopulation => Some(xy() / n),
            Moment::Correlation => {
                let (xx, yy) = (line()?, yy());
                let both = xx * yy;
                let root = if both.is_normal() { both.sqrt() } else { xx.sqrt() * yy.sqrt() };
                (yy != 0.0).then(|| (xy() / root).clamp(-1.0, 1.0))
            }
            Moment::Slope => line().map(|xx| xy() / xx),
            Moment::Intercept => line().map(|xx| (sums[2].sum() - sums[0].sum() * (xy() / xx)) / n),
            Moment::Count => Some(n),
            Moment::R2 => {
                let (xx, yy) = (line()?, yy());
                (yy != 0.0).then(|| (xy() / xx) * (xy() / yy))
            }
            Moment::MeanX => Some(sums[0].sum() / n),
            Moment::MeanY => Some(sums[2].sum() / n),
            Moment::SumXx => Some(xx()),
            Moment::SumYy => Some(yy()),
            Moment::SumXy => Some(xy()),
        }
    }
}

/// The sum of products of deviations from the means: `(n sum x y - sum x sum y) / n`, rounded at the end.
fn spread(x: &ExactSum, y: &ExactSum, product: &ExactSum, count: i64) -> f64 {
    let (Some(x), Some(y)) = (x.pieces(), y.pieces()) else {
        return f64::INFINITY;
    };
    let mut exact = ExactSum::default();
    exact.add_all(product, count);
    for &a in &x {
        y.iter().for_each(|&b| exact.add_product(a, b, -1));
    }
    exact.sum_of_products() / count as f64
}

impl Fold for Moments {
    fn grow(&mut self, bound: usize) {
        self.counts.resize(bound.max(self.counts.len()), 0);
        self.sums.resize(self.counts.len() * self.width, ExactSum::default());
    }

    fn update(&mut self, batch: &FoldBatch<'_>) -> Result<()> {
        let mask = batch.mask(self.filter, &self.columns);
        let mask = mask.as_ref();
        add_counts(&mut self.counts, batch, mask);
        let values: Vec<ScalarBuffer<f64>> = self
            .columns
            .iter()
            .map(|&column| doubles(&batch.columns[column]))
            .collect::<Result<_>>()?;
        let sums = &mut self.sums;
        match values.as_slice() {
            [x] => batch.each(mask, |row, id, weight| {
                let sums = &mut sums[id * SINGLE..][..SINGLE];
                sums[0].add(x[row], weight);
                sums[1].add_product(x[row], x[row], weight);
            }),
            [y, x] => batch.each(mask, |row, id, weight| {
                let (x, y) = (x[row], y[row]);
                let sums = &mut sums[id * PAIR..][..PAIR];
                sums[0].add(x, weight);
                sums[1].add_product(x, x, weight);
                sums[2].add(y, weight);
                sums[3].add_product(y, y, weight);
                sums[4].add_product(x, y, weight);
            }),
            _ => return Err(EngineError::internal("moments of one column or two")),
        }
        Ok(())
    }

    fn read(&mut self, reading: &Reading, ids: &[u32], _: &mut Failures) -> Result<ArrayRef> {
        let What::Moment(moment) = reading.what else {
            return Err(EngineError::internal("which moment?"));
        };
        if moment == Moment::Count {
            return Ok(match reading.data_type {
                DataType::UInt64 => {
                    let counts = ids.iter().map(|&id| self.counts[id as usize]);
                    let counts = counts.map(|count| u64::try_from(count).unwrap_or(0));
                    Arc::new(UInt64Array::from_iter_values(counts))
                }
                _ => gather(&self.counts, ids),
            });
        }
        let values = ids.iter().map(|&id| self.moment(id, moment));
        Ok(Arc::new(values.collect::<Float64Array>()))
    }

    fn clear(&mut self, id: u32) {
        self.counts[id as usize] = 0;
        self.sums[id as usize * self.width..][..self.width].fill(ExactSum::default());
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * 8 + self.sums.capacity() * size_of::<ExactSum>()
    }

    fn state(&mut self) -> State<'_> {
        State::Values(self)
    }
}

impl ValueState for Moments {
    fn fields(&self) -> Vec<Field> {
        let names = ["sum_x", "sum_xx", "sum_y", "sum_yy", "sum_xy"];
        let sums = names[..self.width].iter().map(|name| field(name, ExactSum::STORED));
        std::iter::once(field("count", DataType::Int64)).chain(sums).collect()
    }

    fn save(&mut self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let (sums, width) = (&self.sums, self.width);
        let column = |which: usize| {
            let of_group = |&id: &u32| &sums[id as usize * width + which];
            <ExactSum as DoubleSum>::store(ids.iter().map(of_group))
        };
        let columns = (0..width).map(column);
        Ok(std::iter::once(gather(&self.counts, ids)).chain(columns).collect())
    }

    fn load(&mut self, ids: &[u32], columns: &[ArrayRef]) -> Result<()> {
        scatter(&mut self.counts, ids, &columns[0]);
        for (which, column) in columns[1..].iter().enumerate() {
            let place = |row: usize| ids[row] as usize * self.width + which;
            load_sums(column, |row, sum| self.sums[place(row)] = sum)?;
        }
        Ok(())
    }
}

//! `min` and `max` over floats as PostgreSQL has them: NaN is the greatest of all, infinities are values.
//!
//! DataFusion's accumulator over groups begins with the largest and the least finite number, and compares NaN by chance; its
//! accumulator of one group does neither, and is used for each group here. Statistics of files, which leave NaN out, are not
//! used for floats. All other types go to DataFusion as they are.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::utils::AggregateOrderSensitivity;
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};

/// See the module's text.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extremum {
    inner: Arc<AggregateUDF>,
}

pub(super) fn min() -> AggregateUDF {
    AggregateUDF::from(Extremum { inner: min_udaf() })
}

pub(super) fn max() -> AggregateUDF {
    AggregateUDF::from(Extremum { inner: max_udaf() })
}

impl AggregateUDFImpl for Extremum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.return_field.data_type().is_floating()
            && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn value_from_stats(&self, statistics: &StatisticsArgs) -> Option<ScalarValue> {
        if statistics.return_type.is_floating() {
            return None;
        }
        self.inner.value_from_stats(statistics)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(data_type)
    }
}

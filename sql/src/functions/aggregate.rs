//! `sum` and `avg` with PostgreSQL's types: exact over integers and numerics, an error instead of a wrapped result.
//!
//! | argument | sum | avg |
//! |---|---|---|
//! | smallint, int | bigint | numeric(38, 16) |
//! | bigint | numeric(38, 0) | numeric(38, 16) |
//! | numeric(p, s) | numeric(38, s) | numeric(38, max(s, 16)), rounded half away from zero |
//! | real, double precision | the same | double precision |
//!
//! Intervals and durations go to DataFusion's own functions. Totals of integers and numerics are kept in 128 bits.

use std::sync::Arc;

use arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int32Type, Int64Type,
};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion_common::{DataFusionError, Result, plan_err};
use datafusion_expr::expr::AggregateFunctionParams;
use datafusion_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

mod accumulator;
mod finish;
mod groups;
mod total;

#[cfg(test)]
mod tests;

use accumulator::TotalAccumulator;
use finish::Finish;
use groups::TotalGroups;

/// Scale of the average of integers.
pub(crate) const AVG_SCALE: i8 = 16;
/// Digits of a numeric without declared precision.
pub(crate) const NUMERIC_PRECISION: u8 = 38;

/// PostgreSQL's `sum`.
pub(super) fn sum() -> AggregateUDF {
    AggregateUDF::from(NumericAggregate::new(Kind::Sum))
}

/// PostgreSQL's `avg`.
pub(super) fn avg() -> AggregateUDF {
    AggregateUDF::from(NumericAggregate::new(Kind::Avg))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Sum,
    Avg,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericAggregate {
    kind: Kind,
    signature: Signature,
    aliases: Vec<String>,
}

impl NumericAggregate {
    fn new(kind: Kind) -> Self {
        let aliases = match kind {
            Kind::Sum => vec![],
            Kind::Avg => vec!["mean".to_string()],
        };
        Self { kind, signature: Signature::user_defined(Volatility::Immutable), aliases }
    }

    /// DataFusion's function, for types that are no numbers.
    fn other_types(&self) -> Arc<AggregateUDF> {
        match self.kind {
            Kind::Sum => sum_udaf(),
            Kind::Avg => avg_udaf(),
        }
    }

    fn finish(&self, argument: &DataType) -> Result<Finish> {
        Ok(Finish::new(self.kind, argument, self.return_type(std::slice::from_ref(argument))?))
    }
}

/// The type of totals of an argument of this type, or `None` for types that are not ours.
fn total_type(argument: &DataType) -> Option<DataType> {
    match argument {
        DataType::Int32 | DataType::Int64 => Some(DataType::Decimal128(NUMERIC_PRECISION, 0)),
        DataType::Decimal128(_, scale) => Some(DataType::Decimal128(NUMERIC_PRECISION, *scale)),
        DataType::Float32 | DataType::Float64 => Some(DataType::Float64),
        _ => None,
    }
}

macro_rules! for_argument {
    ($argument:expr, $accumulator:ident, $($rest:expr),*) => {
        match $argument {
            DataType::Int32 => Ok(Box::new($accumulator::<Int32Type>::new($($rest),*))),
            DataType::Int64 => Ok(Box::new($accumulator::<Int64Type>::new($($rest),*))),
            DataType::Decimal128(..) => Ok(Box::new($accumulator::<Decimal128Type>::new($($rest),*))),
            DataType::Float32 => Ok(Box::new($accumulator::<Float32Type>::new($($rest),*))),
            DataType::Float64 => Ok(Box::new($accumulator::<Float64Type>::new($($rest),*))),
            other => Err(DataFusionError::Internal(format!("no totals of {other}"))),
        }
    };
}

impl AggregateUDFImpl for NumericAggregate {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Sum => "sum",
            Kind::Avg => "avg",
        }
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let [argument] = arg_types else {
            return plan_err!("function {}() takes one argument", self.name());
        };
        let coerced = match argument {
            DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int32,
            DataType::UInt8 | DataType::UInt16 => DataType::Int32,
            DataType::Int64 | DataType::UInt32 => DataType::Int64,
            DataType::UInt64 => DataType::Decimal128(20, 0),
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
            DataType::Decimal128(..) => argument.clone(),
            DataType::Decimal256(_, s) => DataType::Decimal128(NUMERIC_PRECISION, *s),
            DataType::Float16 | DataType::Float32 => DataType::Float32,
            DataType::Float64 | DataType::Null => DataType::Float64,
            other => {
                let field: FieldRef = Arc::new(Field::new("argument", other.clone(), true));
                let fields = fields_with_udf(&[field], self.other_types().as_ref());
                let Ok([field]) = fields.as_deref() else {
                    return plan_err!("function {}({other}) does not exist", self.name());
                };
                field.data_type().clone()
            }
        };
        Ok(vec![coerced])
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(match (self.kind, &arg_types[0]) {
            (Kind::Sum, DataType::Int32) => DataType::Int64,
            (Kind::Sum, DataType::Int64) => DataType::Decimal128(NUMERIC_PRECISION, 0),
            (Kind::Sum, DataType::Decimal128(_, scale)) => {
                DataType::Decimal128(NUMERIC_PRECISION, *scale)
            }
            (Kind::Sum, float @ (DataType::Float32 | DataType::Float64)) => float.clone(),
            (Kind::Avg, DataType::Int32 | DataType::Int64) => {
                DataType::Decimal128(NUMERIC_PRECISION, AVG_SCALE)
            }
            (Kind::Avg, DataType::Decimal128(_, scale)) => {
                DataType::Decimal128(NUMERIC_PRECISION, AVG_SCALE.max(*scale))
            }
            (Kind::Avg, DataType::Float32 | DataType::Float64) => DataType::Float64,
            _ => return self.other_types().return_type(arg_types),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let argument = args.input_fields[0].data_type();
        let Some(total) = total_type(argument) else {
            return self.other_types().state_fields(args);
        };
        if args.is_distinct {
            let item = Field::new_list_field(argument.clone(), true);
            let name = format_state_name(args.name, "distinct");
            return Ok(vec![Arc::new(Field::new_list(name, item, false))]);
        }
        let mut fields = vec![Field::new(format_state_name(args.name, "sum"), total, true)];
        if self.kind == Kind::Avg {
            fields.push(Field::new(format_state_name(args.name, "count"), DataType::Int64, false));
        }
        Ok(fields.into_iter().map(Arc::new).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let argument = args.expr_fields[0].data_type().clone();
        if total_type(&argument).is_none() {
            return self.other_types().accumulator(args);
        }
        let finish = self.finish(&argument)?;
        for_argument!(argument, TotalAccumulator, finish, args.is_distinct, false)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let argument = args.expr_fields[0].data_type().clone();
        if total_type(&argument).is_none() {
            return self.other_types().create_sliding_accumulator(args);
        }
        let finish = self.finish(&argument)?;
        for_argument!(argument, TotalAccumulator, finish, args.is_distinct, true)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        if total_type(args.expr_fields[0].data_type()).is_none() {
            return self.other_types().groups_accumulator_supported(args);
        }
        !args.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let argument = args.expr_fields[0].data_type().clone();
        if total_type(&argument).is_none() {
            return self.other_types().create_groups_accumulator(args);
        }
        let finish = self.finish(&argument)?;
        for_argument!(argument, TotalGroups, finish)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.schema_name(params)
    }
}

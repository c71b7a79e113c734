//! What folds that use DataFusion's accumulators have in common: arguments, and the results last computed.

use arrow::array::{ArrayRef, new_empty_array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;

use super::fold::Failures;
use crate::error::Result;

/// An argument of a call.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    /// An evaluated expression, by number.
    Column(usize),
    /// A constant: not kept with each row.
    Literal(ScalarValue),
}

/// The results of groups that have not changed since they were computed.
#[derive(Default)]
pub(super) struct Results {
    groups: Vec<Option<std::result::Result<ScalarValue, String>>>,
}

impl Results {
    pub(super) fn grow(&mut self, bound: usize) {
        self.groups.resize(bound.max(self.groups.len()), None);
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.groups[id as usize].is_some()
    }

    pub(super) fn forget(&mut self, id: u32) {
        self.groups[id as usize] = None;
    }

    /// The result of a group, if it is known and did not fail.
    pub(super) fn get(&self, id: u32) -> Option<&ScalarValue> {
        self.groups[id as usize].as_ref()?.as_ref().ok()
    }

    pub(super) fn set(&mut self, id: u32, result: datafusion_common::Result<ScalarValue>) {
        self.groups[id as usize] = Some(result.map_err(|error| error.strip_backtrace()));
    }

    pub(super) fn fail(&mut self, id: u32, message: String) {
        self.groups[id as usize] = Some(Err(message));
    }

    /// The results of these groups, all computed, as a column.
    pub(super) fn column(
        &self,
        ids: &[u32],
        data_type: &DataType,
        failures: &mut Failures,
    ) -> Result<ArrayRef> {
        if ids.is_empty() {
            return Ok(new_empty_array(data_type));
        }
        let null = ScalarValue::try_from(data_type)?;
        let mut values = Vec::with_capacity(ids.len());
        for (position, &id) in ids.iter().enumerate() {
            values.push(match &self.groups[id as usize] {
                Some(Ok(value)) => value.clone(),
                Some(Err(message)) => {
                    failures.push((position, message.clone()));
                    null.clone()
                }
                None => null.clone(),
            });
        }
        let column = ScalarValue::iter_to_array(values)?;
        let same = column.data_type() == data_type;
        Ok(if same { column } else { cast(&column, data_type)? })
    }
}

//! Queries: planning over the catalog, and one-shot runs over consistent snapshots.
//!
//! A [`Planner`] lives for one statement. Planning notes which relations are needed; [`Reads::fill`] then reads all of
//! them at one epoch (contract C2), and only then is the physical plan made. Rows stream: nothing here collects a
//! whole result.

pub(crate) mod names;
pub(crate) mod pg_functions;
mod pg_surface;
pub(crate) mod planner;
mod precedence;
pub(crate) mod reads;
pub(crate) mod run;
mod scan;
pub(crate) mod session_functions;
pub(crate) mod stream_plan;
pub(crate) mod tables;

pub(crate) use planner::{Planner, PlannerInput};
pub(crate) use reads::Contents;

//! The operators: one file each, mirroring the nodes of `plan.rs`.

pub(crate) mod aggregate;
pub(crate) mod closing;
pub(crate) mod emit_on_close;
pub(crate) mod eval;
pub(crate) mod expiry;
#[cfg(test)]
pub(crate) mod expiry_testing;
pub(crate) mod filter_project;
pub(crate) mod join;
pub(crate) mod late_filter;
#[cfg(test)]
pub(crate) mod restore_testing;
pub(crate) mod row_store;
pub(crate) mod session_window;
pub(crate) mod set_operation;
pub(crate) mod top_n;
pub(crate) mod unnest;
pub(crate) mod watermark;

//! Fail points: places where a test lets the program die, named in the environment variable FAILPOINTS.
//!
//! `FAILPOINTS="checkpoint::before_commit=3*off->panic"` ends the process at the fourth visit, at once and without any
//! tidying up, as `kill -9` does. A program that was not built for tests has no such places and does not look.

use fail::FailScenario;

/// Reads the variable. The points are in force while the result lives.
pub(super) fn set_up() -> Option<FailScenario<'static>> {
    if !fail::has_failpoints() || std::env::var_os("FAILPOINTS").is_none() {
        return None;
    }
    // A panic would be caught, and its task's end told: what is wanted is death.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    Some(FailScenario::setup())
}

//! Fail points: places where a test lets the program die, named in the environment variable FAILPOINTS.
//!
//! `FAILPOINTS="checkpoint::before_commit=3*off->panic"` ends the process at the fourth visit, at once and without any
//! tidying up, as `kill -9` does. A program that was not built for tests has no such places and does not look.

use fail::FailScenario;

/// How the panic of a fail point begins; other panics take their usual way.
const MESSAGE: &str = "failpoint ";

/// Reads the variable. The points are in force while the result lives.
pub(super) fn set_up() -> Option<FailScenario<'static>> {
    if !fail::has_failpoints() || std::env::var_os("FAILPOINTS").is_none() {
        return None;
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match panic.payload_as_str().filter(|message| message.starts_with(MESSAGE)) {
            // It would be caught, and its task's end told: what is wanted is death.
            Some(message) => {
                eprintln!("died at {message}");
                std::process::abort();
            }
            None => usual(panic),
        }
    }));
    Some(FailScenario::setup())
}

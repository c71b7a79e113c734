//! Running one statement: its watch, its time limit, and the zone in which its instants are
//! printed.

use std::time::Duration;

use datafusion_common::ScalarValue;
use millstream_sql::session::Statement;
use millstream_sql::{Outcome, SqlError, TransactionStatus};
use tokio::time::Instant;

use crate::pgwire::connection::Connection;
use crate::pgwire::encode::{Styles, Zone};
use crate::pgwire::error::{Failure, error};
use crate::pgwire::watch::Watch;

impl Connection {
    /// From now on a CancelRequest reaches what runs, and the time limit counts.
    pub(crate) fn begin(&self) -> Watch {
        let limit = self.session.setting("statement_timeout");
        let limit = limit.as_deref().and_then(parse_duration).filter(|limit| !limit.is_zero());
        Watch {
            cancel: self.registration.control.begin(),
            gone: self.inbox.gone.clone(),
            shutdown: self.shutdown.clone(),
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
        }
    }

    /// Runs a statement of the session.
    pub(crate) async fn execute(
        &mut self,
        statement: &Statement,
        parameters: &[ScalarValue],
        watch: &Watch,
    ) -> Result<Outcome, Failure> {
        self.shared.counters.statement_began();
        if self.forget_prepared(statement) {
            return Ok(Outcome::Command { tag: "DEALLOCATE".to_owned() });
        }
        let handle = self.session.cancel_handle();
        // On the heap: planning's futures are large, and this one is moved about.
        let running = Box::pin(self.session.execute(statement, parameters));
        let outcome = watch.run(&handle, running).await?;
        self.put_notices();
        Ok(outcome)
    }

    /// DEALLOCATE and DISCARD ALL reach the statements of the protocol, too: they share their names
    /// with PREPARE's. `true`: that was all there was to do.
    fn forget_prepared(&mut self, statement: &Statement) -> bool {
        let name = match statement.kind() {
            "DEALLOCATE" => deallocated(statement.text()),
            "DISCARD ALL" => None,
            _ => return false,
        };
        match name {
            Some(name) => self.prepared.remove(&name).is_some(),
            None => {
                self.prepared.clear();
                false
            }
        }
    }

    /// How the session wants its values printed.
    pub(crate) fn styles(&self) -> Styles {
        let setting = |name| self.session.setting(name);
        let zone = setting("TimeZone").and_then(|name| Zone::parse(&name)).unwrap_or(Zone::Utc);
        Styles {
            zone,
            date: setting("DateStyle").filter(|style| !style.starts_with("ISO")),
            interval: setting("IntervalStyle").filter(|style| style != "postgres"),
            bytea: setting("bytea_output").filter(|style| style != "hex"),
        }
    }

    /// Fails the open transaction for an error that the session did not see: a syntax error, a
    /// value that could not be written, a cancelled wait. Any statement that fails does that.
    pub(crate) async fn fail_transaction(&mut self) {
        if self.session.transaction_status() != TransactionStatus::Active {
            return;
        }
        let Ok(statements) = self.session.parse(CLOSE_NOTHING) else { return };
        for statement in &statements {
            if self.session.execute(statement, &[]).await.is_ok() {
                tracing::error!("the transaction of a failed statement could not be failed");
            }
        }
    }

    /// In a failed transaction nothing is taken but its end.
    pub(crate) fn check_transaction(&self, statement: &Statement) -> Result<(), SqlError> {
        let failed = self.session.transaction_status() == TransactionStatus::Failed;
        if failed && !ends_transaction(statement.kind()) {
            let text =
                "current transaction is aborted, commands ignored until end of transaction block";
            return Err(error("25P02", text));
        }
        Ok(())
    }
}

/// No cursor is called so.
const CLOSE_NOTHING: &str = "CLOSE \"no cursor has this name\"";

fn ends_transaction(kind: &str) -> bool {
    let first = kind.split_whitespace().next().unwrap_or_default();
    ["COMMIT", "ROLLBACK", "END", "ABORT"].iter().any(|word| first.eq_ignore_ascii_case(word))
}

/// The name in `DEALLOCATE [PREPARE] name`; `None` for ALL.
fn deallocated(text: &str) -> Option<String> {
    let name = text.split_whitespace().last().unwrap_or_default().trim_end_matches(';');
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => Some(quoted.replace("\"\"", "\"")),
        None if name.eq_ignore_ascii_case("all") => None,
        None => Some(name.to_lowercase()),
    }
}

/// A setting of time: a number of milliseconds, or a number with a unit as Postgres prints it
/// (`5s`, `1min`).
fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let millis = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "us" => return Some(Duration::from_micros(number)),
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(millis)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_to_deallocate() {
        assert_eq!(deallocated("DEALLOCATE PREPARE Abc"), Some("abc".to_owned()));
        assert_eq!(deallocated("deallocate \"A\"\"b\""), Some("A\"b".to_owned()));
        assert_eq!(deallocated("DEALLOCATE ALL"), None);
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("250"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("5s"), Some(Duration::from_secs(5)));
        assert_eq!(parse_duration("1min"), Some(Duration::from_secs(60)));
        assert_eq!(parse_duration("soon"), None);
    }
}

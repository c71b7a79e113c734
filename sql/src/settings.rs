//! Settings of a session: what clients SET and SHOW, with Postgres's names and values.
//!
//! Settings of other engines are taken without effect, so that scripts go on; names with a dot are the user's own.

use std::collections::BTreeMap;

use crate::error::{Result, SqlError, nearest};

pub(crate) mod system;

/// Version that clients see first; they choose their catalog queries by it.
pub const SERVER_VERSION: &str = "15.10";

/// How a value is checked.
#[derive(Clone, Copy, Debug)]
enum Check {
    Any,
    Bool,
    Integer,
    TimeZone,
    DateStyle,
    Encoding,
    Isolation,
    /// Cannot be set.
    ReadOnly,
    /// Of the whole database, from its configuration; cannot be set here.
    Configured,
    OneOf(&'static [&'static str]),
    /// A Boolean, or how far a write has to get.
    SynchronousCommit,
    /// The default, and values that PostgreSQL has beside it.
    Only(&'static [&'static str]),
}

/// A known setting.
#[derive(Debug)]
struct Known {
    name: &'static str,
    default: &'static str,
    check: Check,
    /// Clients are told of changes (ParameterStatus).
    reported: bool,
    description: &'static str,
}

const fn known(
    name: &'static str,
    default: &'static str,
    check: Check,
    description: &'static str,
) -> Known {
    Known { name, default, check, reported: false, description }
}

const fn reported(
    name: &'static str,
    default: &'static str,
    check: Check,
    description: &'static str,
) -> Known {
    Known { name, default, check, reported: true, description }
}

static KNOWN: &[Known] = &[
    reported("application_name", "", Check::Any, "Name of the application in statistics."),
    known(
        "background_ddl",
        "off",
        Check::Bool,
        "CREATE MATERIALIZED VIEW returns before its backfill ends.",
    ),
    known("bytea_output", "hex", Check::Only(&["hex", "escape"]), "Output format of bytea."),
    reported("client_encoding", "UTF8", Check::Encoding, "Character set of the client."),
    known(
        "checkpoint_retained",
        "",
        Check::Configured,
        "Checkpoints that are kept in the checkpoint store.",
    ),
    known(
        "checkpoint_store",
        "",
        Check::Configured,
        "Object store that checkpoints are uploaded to; empty: none.",
    ),
    known("client_min_messages", "notice", Check::Any, "Least severe message that is sent."),
    reported("DateStyle", "ISO, MDY", Check::DateStyle, "Format of dates and times."),
    known("default_transaction_deferrable", "off", Check::Bool, "Without effect."),
    known(
        "default_transaction_isolation",
        "read committed",
        Check::Isolation,
        "Isolation of new transactions.",
    ),
    reported(
        "default_transaction_read_only",
        "off",
        Check::Bool,
        "Whether new transactions only read.",
    ),
    known("extra_float_digits", "1", Check::Integer, "Digits of floating-point numbers."),
    reported("in_hot_standby", "off", Check::ReadOnly, "Whether this is a standby server."),
    known(
        "idle_in_transaction_session_timeout",
        "0",
        Check::Any,
        "Longest idle time inside a transaction.",
    ),
    reported("integer_datetimes", "on", Check::ReadOnly, "Datetimes are integers."),
    reported(
        "IntervalStyle",
        "postgres",
        Check::Only(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]),
        "Format of intervals.",
    ),
    reported("is_superuser", "on", Check::ReadOnly, "Whether the user may do everything."),
    known("jit", "off", Check::Bool, "Without effect."),
    known("lc_collate", "C", Check::ReadOnly, "Order of text: by bytes."),
    known("lc_ctype", "C", Check::ReadOnly, "Classes of characters."),
    known("lc_messages", "C", Check::Any, "Language of messages."),
    known("lc_monetary", "C", Check::Any, "Without effect."),
    known("lc_numeric", "C", Check::Any, "Without effect."),
    known("lc_time", "C", Check::Any, "Without effect."),
    known("lock_timeout", "0", Check::Any, "Longest wait for a lock."),
    known("max_identifier_length", "63", Check::ReadOnly, "Longest name."),
    known("max_index_keys", "32", Check::ReadOnly, "Most columns of a key."),
    known("row_security", "on", Check::Bool, "Without effect."),
    known("search_path", "public", Check::Any, "Schemas in which names are looked for."),
    reported("server_encoding", "UTF8", Check::ReadOnly, "Character set of the server."),
    reported(
        "server_version",
        SERVER_VERSION,
        Check::ReadOnly,
        "PostgreSQL version that clients may expect.",
    ),
    known("server_version_num", "150010", Check::ReadOnly, "The same as a number."),
    reported("session_authorization", "millstream", Check::ReadOnly, "The user of the session."),
    reported(
        "standard_conforming_strings",
        "on",
        Check::OneOf(&["on"]),
        "Backslashes in strings are literal.",
    ),
    known("statement_timeout", "0", Check::Any, "Longest run of a statement."),
    known(
        "synchronous_commit",
        "on",
        Check::SynchronousCommit,
        "Whether a write is answered only when it survives a crash.",
    ),
    reported("TimeZone", "UTC", Check::TimeZone, "Zone in which instants are printed."),
    known("transaction_deferrable", "off", Check::Bool, "Without effect."),
    known(
        "transaction_isolation",
        "read committed",
        Check::Isolation,
        "Isolation of this transaction.",
    ),
    known("transaction_read_only", "off", Check::Bool, "Whether this transaction only reads."),
    known(
        "wait_for_bounded_sources",
        "off",
        Check::Bool,
        "SELECT first waits until bounded sources have ended.",
    ),
    known("xmloption", "content", Check::Any, "Without effect."),
];

/// First parts of settings that other engines have: taken without effect.
const FOREIGN_PREFIXES: [&str; 10] = [
    "rw_",
    "streaming_",
    "batch_",
    "query_",
    "create_",
    "enable_",
    "table",
    "pipeline",
    "execution",
    "parallel",
];

/// Settings that change what a definition means, in lower case: they are kept with it.
const OF_DEFINITIONS: [&str; 6] = [
    "bytea_output",
    "datestyle",
    "intervalstyle",
    "search_path",
    "session_authorization",
    "timezone",
];

/// One session's settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    values: BTreeMap<String, String>,
    /// What RESET goes back to, where the start-up packet said otherwise than the default.
    initial: BTreeMap<String, String>,
}

/// What a SET did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetEffect {
    Set,
    /// Taken, but nothing listens to it.
    Ignored,
}

impl Settings {
    pub(crate) fn for_user(user: &str) -> Self {
        let mut settings = Self::default();
        let name = "session_authorization".to_string();
        settings.initial.insert(name.clone(), user.to_string());
        settings.values.insert(name, user.to_string());
        settings
    }

    /// Values of the whole database's configuration.
    pub(crate) fn configure(&mut self, values: impl IntoIterator<Item = (&'static str, String)>) {
        for (name, value) in values {
            self.initial.insert(name.to_string(), value.clone());
            self.values.insert(name.to_string(), value);
        }
    }

    /// The value, as SHOW prints it.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let name = name.to_lowercase();
        if let Some(value) = self.values.get(&name) {
            return Some(value.clone());
        }
        find(&name).map(|known| known.default.to_string())
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.get(name).as_deref() == Some("on")
    }

    /// Sets a value; `None` is the default.
    ///
    /// # Errors
    /// 42704 (unknown), 22023 (bad value), 55P02 (cannot be changed).
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<SetEffect> {
        let lower = name.to_lowercase();
        let Some(known) = find(&lower) else {
            return self.set_unknown(&lower, value);
        };
        let value = match value {
            Some(value) => check(known, value)?,
            None => self.initial.get(&lower).cloned().unwrap_or_else(|| known.default.to_string()),
        };
        self.values.insert(lower, value);
        Ok(SetEffect::Set)
    }

    fn set_unknown(&mut self, name: &str, value: Option<&str>) -> Result<SetEffect> {
        if system::is_known(name) {
            let text = format!("parameter \"{name}\" cannot be changed for a session");
            return Err(SqlError::new("55P02", text)
                .with_hint(format!("It is the whole engine's: ALTER SYSTEM SET {name} = ...")));
        }
        let foreign = FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if !foreign && !name.contains('.') {
            let error =
                SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\""));
            return Err(match nearest(name, KNOWN.iter().map(|known| known.name)) {
                Some(near) => error.with_hint(format!("Perhaps you meant \"{near}\".")),
                None => error,
            });
        }
        match value {
            Some(value) => self.values.insert(name.to_string(), value.to_string()),
            None => self.values.remove(name),
        };
        Ok(if foreign { SetEffect::Ignored } else { SetEffect::Set })
    }

    /// Values that change what a definition means, where they were set.
    pub(crate) fn of_definition(&self) -> BTreeMap<String, String> {
        let set = |name: &&str| Some((name.to_string(), self.values.get(*name)?.clone()));
        OF_DEFINITIONS.iter().filter_map(set).collect()
    }

    /// Settings with the values that were kept with a definition.
    ///
    /// # Errors
    /// When this version does not take one of them.
    pub(crate) fn restore_definition(&mut self, kept: &BTreeMap<String, String>) -> Result<()> {
        for (name, value) in kept.iter().filter(|(name, _)| *name != "session_authorization") {
            self.set(name, Some(value))?;
        }
        Ok(())
    }

    /// A value given when the session begins, which RESET goes back to.
    ///
    /// # Errors
    /// As for [`Settings::set`].
    pub(crate) fn set_initial(&mut self, name: &str, value: &str) -> Result<()> {
        self.set(name, Some(value))?;
        let lower = name.to_lowercase();
        if let Some(value) = self.values.get(&lower) {
            self.initial.insert(lower, value.clone());
        }
        Ok(())
    }

    /// All back to what they were when the session began.
    pub(crate) fn reset_all(&mut self) {
        self.values = self.initial.clone();
    }

    /// Name, value and description of all, by name.
    pub(crate) fn all(&self) -> Vec<(String, String, &'static str)> {
        let known = KNOWN.iter().map(|known| {
            let value = self.get(known.name).unwrap_or_default();
            (known.name.to_string(), value, known.description)
        });
        known.collect()
    }

    /// Values that clients must know.
    pub(crate) fn reported(&self) -> BTreeMap<&'static str, String> {
        let reported = KNOWN.iter().filter(|known| known.reported);
        reported.map(|known| (known.name, self.get(known.name).unwrap_or_default())).collect()
    }

    /// Schemas in which names are looked for.
    pub(crate) fn search_path(&self) -> Vec<String> {
        let path = self.get("search_path").unwrap_or_default();
        let user = self.get("session_authorization").unwrap_or_default();
        let parts = path.split(',').map(|part| part.trim().trim_matches('"'));
        let parts = parts.map(|part| if part == "$user" { user.clone() } else { part.to_string() });
        parts.filter(|part| !part.is_empty()).collect()
    }
}

fn find(lower: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(lower))
}

fn check(known: &Known, value: &str) -> Result<String> {
    let bad = || {
        let text = format!("invalid value for parameter \"{}\": \"{value}\"", known.name);
        SqlError::new("22023", text)
    };
    match known.check {
        Check::Any => Ok(value.to_string()),
        Check::Bool => boolean(value).map(str::to_string).ok_or_else(|| {
            let text = format!("parameter \"{}\" requires a Boolean value", known.name);
            SqlError::new("22023", text)
        }),
        Check::SynchronousCommit => {
            let lower = value.to_lowercase();
            let levels = ["local", "remote_write", "remote_apply"];
            let level = levels.contains(&lower.as_str()).then_some(lower.as_str());
            level.or(boolean(value)).map(str::to_string).ok_or_else(bad)
        }
        Check::Integer => value.trim().parse::<i64>().map(|n| n.to_string()).map_err(|_| bad()),
        Check::TimeZone => time_zone(value).ok_or_else(bad),
        Check::DateStyle => {
            let style = date_style(value).ok_or_else(bad)?;
            if style.starts_with("ISO") { Ok(style) } else { Err(unsupported(known, &style)) }
        }
        Check::Encoding => {
            let plain = value.trim_matches('\'').to_uppercase().replace(['-', '_'], "");
            match plain.as_str() {
                "UTF8" | "UNICODE" => Ok("UTF8".to_string()),
                "SQLASCII" => Ok("SQL_ASCII".to_string()),
                _ => Err(bad()),
            }
        }
        Check::Isolation => {
            let levels = ["read committed", "read uncommitted", "repeatable read", "serializable"];
            let lower = value.to_lowercase();
            levels.contains(&lower.as_str()).then_some(lower).ok_or_else(bad)
        }
        Check::OneOf(values) => {
            let lower = value.to_lowercase();
            values.contains(&lower.as_str()).then_some(lower).ok_or_else(bad)
        }
        Check::Only(values) => {
            let lower = value.to_lowercase();
            match values.iter().find(|value| **value == lower) {
                Some(found) if *found == known.default => Ok(lower),
                Some(found) => Err(unsupported(known, found)),
                None => Err(bad()),
            }
        }
        Check::ReadOnly if value == known.default => Ok(value.to_string()),
        Check::ReadOnly | Check::Configured => {
            Err(SqlError::new("55P02", format!("parameter \"{}\" cannot be changed", known.name)))
        }
    }
}

/// `on` or `off`, however it is written.
fn boolean(value: &str) -> Option<&'static str> {
    match value.to_lowercase().as_str() {
        "on" | "true" | "t" | "yes" | "y" | "1" => Some("on"),
        "off" | "false" | "f" | "no" | "n" | "0" => Some("off"),
        _ => None,
    }
}

/// PostgreSQL would print values in another way from then on.
fn unsupported(known: &Known, value: &str) -> SqlError {
    SqlError::unsupported(format!("{} \"{value}\"", known.name))
        .with_hint(format!("Only {} is written.", known.default))
}

/// A zone's name or offset, as given; `None` when it cannot be one.
fn time_zone(value: &str) -> Option<String> {
    let value = value.trim();
    match value.to_lowercase().as_str() {
        "local" | "default" | "utc" | "gmt" | "z" | "zulu" | "etc/utc" => {
            return Some("UTC".into());
        }
        _ => {}
    }
    let offset =
        value.trim_start_matches('+').parse::<f64>().ok().filter(|hours| hours.abs() <= 15.0);
    if let Some(hours) = offset {
        let minutes = (hours.abs() * 60.0).round();
        let sign = if hours < 0.0 { '-' } else { '+' };
        return Some(format!("{sign}{:02}:{:02}", (minutes / 60.0).floor(), minutes % 60.0));
    }
    // Without a time zone database in the build only offsets are known; a zone's own name is kept for the client.
    let known = value.parse::<arrow::array::timezone::Tz>().is_ok() || value.contains('/');
    known.then(|| value.to_string())
}

fn date_style(value: &str) -> Option<String> {
    let (mut style, mut order) = ("ISO".to_string(), "MDY".to_string());
    for part in value.split(',') {
        match part.trim().to_uppercase().as_str() {
            "ISO" => style = "ISO".into(),
            "SQL" => style = "SQL".into(),
            "POSTGRES" => style = "Postgres".into(),
            "GERMAN" => style = "German".into(),
            "MDY" | "US" | "NONEURO" | "NONEUROPEAN" => order = "MDY".into(),
            "DMY" | "EURO" | "EUROPEAN" => order = "DMY".into(),
            "YMD" => order = "YMD".into(),
            _ => return None,
        }
    }
    Some(format!("{style}, {order}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_normalised() {
        let mut settings = Settings::for_user("ann");
        settings.set("datestyle", Some("iso, dmy")).unwrap();
        assert_eq!(settings.get("DateStyle").unwrap(), "ISO, DMY");
        assert_eq!(settings.set("datestyle", Some("German")).unwrap_err().sqlstate, "0A000");
        assert_eq!(settings.set("datestyle", Some("x")).unwrap_err().sqlstate, "22023");
        assert_eq!(settings.set("intervalstyle", Some("iso_8601")).unwrap_err().sqlstate, "0A000");
        assert_eq!(settings.set("intervalstyle", Some("x")).unwrap_err().sqlstate, "22023");
        assert_eq!(settings.set("intervalstyle", Some("Postgres")), Ok(SetEffect::Set));
        settings.set("background_ddl", Some("TRUE")).unwrap();
        assert!(settings.is_on("background_ddl"));
        assert_eq!(settings.set("background_ddl", Some("x")).unwrap_err().sqlstate, "22023");
        settings.set("synchronous_commit", Some("FALSE")).unwrap();
        assert_eq!(settings.get("synchronous_commit").unwrap(), "off");
        settings.set("synchronous_commit", Some("local")).unwrap();
        assert_eq!(settings.set("synchronous_commit", Some("x")).unwrap_err().sqlstate, "22023");
        assert_eq!(settings.set("nope", Some("x")).unwrap_err().sqlstate, "42704");
        assert_eq!(settings.set("server_version", Some("9")).unwrap_err().sqlstate, "55P02");
        assert_eq!(settings.set("client_encoding", Some("'utf-8'")), Ok(SetEffect::Set));
        assert_eq!(settings.set("rw_implicit_flush", Some("true")), Ok(SetEffect::Ignored));
        assert_eq!(settings.get("session_authorization").unwrap(), "ann");
    }

    #[test]
    fn reset_goes_back_to_what_the_client_began_with() {
        let mut settings = Settings::for_user("ann");
        settings.set_initial("application_name", "psql").unwrap();
        settings.set("application_name", Some("x")).unwrap();
        settings.reset_all();
        assert_eq!(settings.get("application_name").unwrap(), "psql");
    }

    #[test]
    fn time_zones() {
        assert_eq!(time_zone("utc").as_deref(), Some("UTC"));
        assert_eq!(time_zone("-5").as_deref(), Some("-05:00"));
        assert_eq!(time_zone("+02:00").as_deref(), Some("+02:00"));
        assert_eq!(time_zone("not a zone"), None);
    }
}

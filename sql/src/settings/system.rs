//! Settings of the whole engine: what ALTER SYSTEM changes, for all sessions, now and after later starts.
//!
//! SHOW, `millstream.settings` and `pg_settings` show them beside those of the session. They cannot be SET.

use millstream_engine::{CheckpointMode, EngineConfig, SettingChange};

use crate::error::{Result, SqlError};

/// Name and description of all, by name.
const ALL: [(&str, &str); 6] = [
    ("checkpoint_interval", "Time between checkpoints."),
    ("checkpoint_min_pause", "Least time between the end of a checkpoint and the next one."),
    ("checkpoint_mode", "Whether checkpoints wait for all inputs: exactly_once or at_least_once."),
    ("checkpoint_timeout", "A checkpoint that takes longer is given up."),
    ("parallelism", "Tasks per query fragment, and worker threads."),
    ("state_memory", "Memory for state and contents; what is more is on disk alone."),
];

/// Name, value and description of all, by name.
pub(crate) fn all(config: &EngineConfig) -> Vec<(String, String, &'static str)> {
    let value = |name| get(config, name).unwrap_or_default();
    ALL.iter().map(|&(name, text)| (name.to_string(), value(name), text)).collect()
}

/// Whether a name is one of these.
pub(crate) fn is_known(name: &str) -> bool {
    ALL.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// The value, as SHOW prints it.
pub(crate) fn get(config: &EngineConfig, name: &str) -> Option<String> {
    Some(match name.to_lowercase().as_str() {
        "checkpoint_interval" => duration_text(config.checkpoint_interval_ms),
        "checkpoint_min_pause" => duration_text(config.checkpoint_min_pause_ms),
        "checkpoint_timeout" => duration_text(config.checkpoint_timeout_ms),
        "checkpoint_mode" => match config.checkpoint_mode {
            CheckpointMode::ExactlyOnce => "exactly_once".to_string(),
            CheckpointMode::AtLeastOnce => "at_least_once".to_string(),
        },
        "parallelism" => config.parallelism.to_string(),
        "state_memory" => memory_text(config.state_memory),
        _ => return None,
    })
}

/// What a value asks for; `None`: what RESET goes back to.
///
/// # Errors
/// 0A000 (not one of these), 22023 (bad value).
pub(crate) fn change(name: &str, value: Option<&str>) -> Result<SettingChange> {
    let lower = name.to_lowercase();
    let unknown = || {
        let known = ALL.map(|(name, _)| name).join(", ");
        SqlError::unsupported(format!("ALTER SYSTEM SET {name}"))
            .with_hint(format!("What can be set: {known}."))
    };
    let bad = |value: &str| {
        SqlError::new("22023", format!("invalid value for parameter \"{lower}\": \"{value}\""))
    };
    let duration = || {
        let units = "Valid units are \"ms\", \"s\", \"min\", \"h\", and \"d\".";
        let given = |value| duration_ms(value).ok_or_else(|| bad(value).with_hint(units));
        value.map(given).transpose()
    };
    let mode = |value: &str| match value.to_lowercase().as_str() {
        "exactly_once" => Ok(CheckpointMode::ExactlyOnce),
        "at_least_once" => Ok(CheckpointMode::AtLeastOnce),
        _ => Err(bad(value).with_hint("Either exactly_once or at_least_once.")),
    };
    let memory =
        |value: &str| memory_bytes(value).ok_or_else(|| bad(value).with_hint(MEMORY_UNITS));
    let number = |value: &str| value.parse().map_err(|_| bad(value));
    Ok(match lower.as_str() {
        "checkpoint_interval" => SettingChange::CheckpointInterval(duration()?),
        "checkpoint_min_pause" => SettingChange::CheckpointMinPause(duration()?),
        "checkpoint_timeout" => SettingChange::CheckpointTimeout(duration()?),
        "checkpoint_mode" => SettingChange::CheckpointMode(value.map(mode).transpose()?),
        "parallelism" => SettingChange::Parallelism(value.map(number).transpose()?),
        "state_memory" => SettingChange::StateMemory(value.map(memory).transpose()?),
        _ => return Err(unknown()),
    })
}

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Milliseconds of a time in PostgreSQL's form; without a unit it is in milliseconds.
pub fn duration_ms(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" => "ms",
        unit => unit,
    };
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Milliseconds of a time in words, as `1 hour`.
pub(crate) fn duration_of_words_ms(text: &str) -> Option<u64> {
    let lower = text.trim().to_lowercase();
    let (number, unit) = lower.split_once(' ')?;
    let factor = match unit.trim().trim_end_matches('s') {
        "millisecond" => 1,
        "second" | "sec" => 1000,
        "minute" | "min" => 60_000,
        "hour" => 3_600_000,
        "day" => 86_400_000,
        "week" => 604_800_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

const MEMORY: [(&str, usize); 5] =
    [("B", 1), ("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("TB", 1 << 40)];

/// A hint.
pub(crate) const MEMORY_UNITS: &str =
    "Valid units are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\"; without one it is in bytes.";

/// Bytes of a size in PostgreSQL's form; without a unit it is in bytes.
pub(crate) fn memory_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" => "B",
        unit => unit,
    };
    let (_, factor) = MEMORY.iter().find(|(name, _)| *name == unit)?;
    number.parse::<usize>().ok()?.checked_mul(*factor)
}

/// A size in the largest unit that is whole.
pub(crate) fn memory_text(bytes: usize) -> String {
    let fits = |(_, factor): &&(&str, usize)| bytes.is_multiple_of(*factor);
    match MEMORY.iter().rev().find(fits) {
        Some((unit, factor)) if bytes > 0 => format!("{}{unit}", bytes / factor),
        _ => bytes.to_string(),
    }
}

/// A time in the largest unit that is whole.
pub(crate) fn duration_text(ms: u64) -> String {
    let fits = |(_, factor): &&(&str, u64)| ms.is_multiple_of(*factor);
    match UNITS.iter().rev().find(fits) {
        Some((unit, factor)) if ms > 0 => format!("{}{unit}", ms / factor),
        _ => ms.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_postgres_writes_them() {
        for (text, ms, back) in [
            ("200", 200, "200ms"),
            ("1s", 1000, "1s"),
            (" 90 s ", 90_000, "90s"),
            ("10min", 600_000, "10min"),
            ("48h", 172_800_000, "2d"),
            ("0", 0, "0"),
        ] {
            assert_eq!(duration_ms(text), Some(ms), "{text}");
            assert_eq!(duration_text(ms), back);
        }
        for (words, ms) in
            [("1 hour", 3_600_000), ("30 Minutes", 1_800_000), ("2 weeks", 1_209_600_000)]
        {
            assert_eq!(duration_of_words_ms(words), Some(ms), "{words}");
        }
        for wrong in ["hour", "1 month", "-1 hour", "1 hour 5 minutes"] {
            assert_eq!(duration_of_words_ms(wrong), None, "{wrong}");
        }
        for wrong in ["", "s", "1 week", "-5s", "1.5s", "99999999999999999999d"] {
            assert_eq!(duration_ms(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_as_postgres_writes_them() {
        for (text, bytes, back) in [
            ("20000", 20_000, "20000B"),
            ("64MB", 67_108_864, "64MB"),
            (" 1536 kB ", 1_572_864, "1536kB"),
            ("2048MB", 2_147_483_648, "2GB"),
            ("0", 0, "0"),
        ] {
            assert_eq!(memory_bytes(text), Some(bytes), "{text}");
            assert_eq!(memory_text(bytes), back);
        }
        for wrong in ["", "MB", "1 mb", "-1kB", "1.5GB", "99999999999TB"] {
            assert_eq!(memory_bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn changes_are_checked() {
        let timeout = change("Checkpoint_Timeout", Some("2min"));
        assert_eq!(timeout, Ok(SettingChange::CheckpointTimeout(Some(120_000))));
        assert_eq!(change("parallelism", Some("3")), Ok(SettingChange::Parallelism(Some(3))));
        assert_eq!(change("parallelism", None), Ok(SettingChange::Parallelism(None)));
        for (name, value, sqlstate) in [
            ("checkpoint_mode", Some("twice"), "22023"),
            ("checkpoint_interval", Some("soon"), "22023"),
            ("parallelism", Some("-1"), "22023"),
            ("state_memory", Some("much"), "22023"),
            ("work_mem", Some("1"), "0A000"),
            ("work_mem", None, "0A000"),
        ] {
            assert_eq!(change(name, value).unwrap_err().sqlstate, sqlstate, "{name}");
        }
    }
}

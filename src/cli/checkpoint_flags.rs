//! Flags and environment variables of checkpoints. In the file they are keys of `[engine]`, in milliseconds.

use clap::Args;
use millstream::{CheckpointMode, EngineConfig, Setting};

use super::Failure;
use super::config::Environment;

/// How checkpoints are made.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct CheckpointFlags {
    /// Time between checkpoints, such as 500ms or 1s [env: MILLSTREAM_CHECKPOINT_INTERVAL] [default: 1s]
    #[arg(long, value_name = "TIME")]
    checkpoint_interval: Option<String>,
    /// Least time between two checkpoints [env: MILLSTREAM_CHECKPOINT_MIN_PAUSE] [default: 0]
    #[arg(long, value_name = "TIME")]
    checkpoint_min_pause: Option<String>,
    /// A checkpoint that takes longer is given up [env: MILLSTREAM_CHECKPOINT_TIMEOUT] [default: 10min]
    #[arg(long, value_name = "TIME")]
    checkpoint_timeout: Option<String>,
    /// exactly_once or at_least_once [env: MILLSTREAM_CHECKPOINT_MODE] [default: exactly_once]
    #[arg(long, value_name = "MODE")]
    checkpoint_mode: Option<String>,
}

impl CheckpointFlags {
    /// Puts what the flags and the environment say over what the file says.
    ///
    /// # Errors
    /// When a value is not of its kind; the text names the option.
    pub(super) fn apply(
        &self,
        environment: Environment<'_>,
        engine: &mut EngineConfig,
    ) -> Result<(), Failure> {
        let given = |flag: &Option<String>, name: &str, variable: &str| {
            let flag = flag.clone().map(|text| (format!("--{name}"), text));
            flag.or_else(|| environment(variable).map(|text| (variable.to_string(), text)))
        };
        let times = [
            (
                &self.checkpoint_interval,
                "interval",
                Setting::CheckpointInterval,
                &mut engine.checkpoint_interval_ms,
            ),
            (
                &self.checkpoint_min_pause,
                "min-pause",
                Setting::CheckpointMinPause,
                &mut engine.checkpoint_min_pause_ms,
            ),
            (
                &self.checkpoint_timeout,
                "timeout",
                Setting::CheckpointTimeout,
                &mut engine.checkpoint_timeout_ms,
            ),
        ];
        for (flag, name, setting, value) in times {
            let variable = format!("MILLSTREAM_CHECKPOINT_{}", name.replace('-', "_"));
            let variable = variable.to_uppercase();
            let Some((from, text)) = given(flag, &format!("checkpoint-{name}"), &variable) else {
                continue;
            };
            *value = millstream_sql::duration_ms(&text).ok_or_else(|| {
                let text = format!("{from}: \"{text}\" is no time (expected 500ms, 1s, 10min, 2h)");
                Failure::usage(text)
            })?;
            engine.given.insert(setting);
        }
        let variable = "MILLSTREAM_CHECKPOINT_MODE";
        if let Some((from, text)) = given(&self.checkpoint_mode, "checkpoint-mode", variable) {
            engine.checkpoint_mode = match text.as_str() {
                "exactly_once" => CheckpointMode::ExactlyOnce,
                "at_least_once" => CheckpointMode::AtLeastOnce,
                _ => {
                    let text = format!("{from}: \"{text}\" is not exactly_once or at_least_once");
                    return Err(Failure::usage(text));
                }
            };
            engine.given.insert(Setting::CheckpointMode);
        }
        if engine.checkpoint_interval_ms == 0 || engine.checkpoint_timeout_ms == 0 {
            let text = "the interval and the timeout of checkpoints are longer than 0";
            return Err(Failure::usage(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_before_the_environment_before_the_file() {
        let flags = CheckpointFlags {
            checkpoint_interval: Some("2s".to_string()),
            ..CheckpointFlags::default()
        };
        let environment = |name: &str| match name {
            "MILLSTREAM_CHECKPOINT_INTERVAL" => Some("9s".to_string()),
            "MILLSTREAM_CHECKPOINT_MIN_PAUSE" => Some("300ms".to_string()),
            "MILLSTREAM_CHECKPOINT_MODE" => Some("at_least_once".to_string()),
            _ => None,
        };
        let file = EngineConfig { checkpoint_timeout_ms: 77, ..EngineConfig::default() };
        let mut engine = file.clone();
        flags.apply(&environment, &mut engine).unwrap();
        assert_eq!(engine.checkpoint_interval_ms, 2000);
        assert_eq!(engine.checkpoint_min_pause_ms, 300);
        assert_eq!(engine.checkpoint_timeout_ms, 77);
        assert_eq!(engine.checkpoint_mode, CheckpointMode::AtLeastOnce);
        // The file's own are found where it is read.
        let given =
            [Setting::CheckpointInterval, Setting::CheckpointMinPause, Setting::CheckpointMode];
        assert_eq!(engine.given, given.into());
    }

    #[test]
    fn mistakes_name_the_option() {
        let message = |variable: &'static str, value: &'static str| {
            let environment = move |name: &str| (name == variable).then(|| value.to_string());
            let mut engine = EngineConfig::default();
            let failure = CheckpointFlags::default().apply(&environment, &mut engine);
            failure.unwrap_err().message.unwrap()
        };
        let text = message("MILLSTREAM_CHECKPOINT_TIMEOUT", "soon");
        assert!(text.contains("MILLSTREAM_CHECKPOINT_TIMEOUT: \"soon\""), "{text}");
        assert!(message("MILLSTREAM_CHECKPOINT_MODE", "x").contains("at_least_once"));
        assert!(message("MILLSTREAM_CHECKPOINT_INTERVAL", "0").contains("longer than 0"));
    }
}

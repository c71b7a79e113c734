//! Settings that can change while the engine runs, and how a durable database keeps them.
//!
//! A value comes from the first of: what was changed since the start; what was said at the start (a flag, the environment, a
//! file, the program); what the database keeps from an earlier change; the default. So what is said at a start holds for
//! that run, and what was kept holds again afterwards. A change is kept in one atomic commit of the backend, beside the
//! definitions; so it is part of savepoints and of the checkpoint store too.
//!
//! What it is not: the settings of sessions, which the engine does not know.

use serde::{Deserialize, Serialize};

use crate::engine::{CheckpointMode, EngineConfig, TASKS_MAX};
use crate::error::{EngineError, Result};
use crate::state::layout::{self, damaged};
use crate::state::{Space, StateBackend, Write};

/// Version of the record, and the newest that is read.
const FORMAT: u32 = 1;

/// A setting that can change while the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// `checkpoint_interval_ms` of [`EngineConfig`].
    CheckpointInterval,
    /// `checkpoint_min_pause_ms`.
    CheckpointMinPause,
    /// `checkpoint_mode`.
    CheckpointMode,
    /// `checkpoint_timeout_ms`.
    CheckpointTimeout,
    /// `parallelism`.
    Parallelism,
    /// `state_memory`.
    StateMemory,
}

impl Setting {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::CheckpointInterval,
        Self::CheckpointMinPause,
        Self::CheckpointMode,
        Self::CheckpointTimeout,
        Self::Parallelism,
        Self::StateMemory,
    ];

    /// Its field in [`EngineConfig`], and its key in files.
    pub fn key(self) -> &'static str {
        match self {
            Self::CheckpointInterval => "checkpoint_interval_ms",
            Self::CheckpointMinPause => "checkpoint_min_pause_ms",
            Self::CheckpointMode => "checkpoint_mode",
            Self::CheckpointTimeout => "checkpoint_timeout_ms",
            Self::Parallelism => "parallelism",
            Self::StateMemory => "state_memory",
        }
    }
}

/// Another value; `None`: what was said at the start, else the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingChange {
    /// Time between checkpoints, milliseconds.
    CheckpointInterval(Option<u64>),
    /// Time from the end of a checkpoint to the next one, at least, milliseconds.
    CheckpointMinPause(Option<u64>),
    /// What a checkpoint waits for.
    CheckpointMode(Option<CheckpointMode>),
    /// A checkpoint that takes longer is given up, milliseconds.
    CheckpointTimeout(Option<u64>),
    /// Tasks per fragment, and worker threads.
    Parallelism(Option<usize>),
    /// Bytes of memory for state and contents.
    StateMemory(Option<usize>),
    /// `None` for all of them.
    ResetAll,
}

/// Values, where there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Values {
    checkpoint_interval_ms: Option<u64>,
    checkpoint_min_pause_ms: Option<u64>,
    checkpoint_mode: Option<CheckpointMode>,
    checkpoint_timeout_ms: Option<u64>,
    parallelism: Option<usize>,
    state_memory: Option<usize>,
}

impl Values {
    fn change(&mut self, change: SettingChange) {
        match change {
            SettingChange::CheckpointInterval(value) => self.checkpoint_interval_ms = value,
            SettingChange::CheckpointMinPause(value) => self.checkpoint_min_pause_ms = value,
            SettingChange::CheckpointMode(value) => self.checkpoint_mode = value,
            SettingChange::CheckpointTimeout(value) => self.checkpoint_timeout_ms = value,
            SettingChange::Parallelism(value) => self.parallelism = value,
            SettingChange::StateMemory(value) => self.state_memory = value,
            SettingChange::ResetAll => *self = Self::default(),
        }
    }

    fn forget(&mut self, setting: Setting) {
        self.change(match setting {
            Setting::CheckpointInterval => SettingChange::CheckpointInterval(None),
            Setting::CheckpointMinPause => SettingChange::CheckpointMinPause(None),
            Setting::CheckpointMode => SettingChange::CheckpointMode(None),
            Setting::CheckpointTimeout => SettingChange::CheckpointTimeout(None),
            Setting::Parallelism => SettingChange::Parallelism(None),
            Setting::StateMemory => SettingChange::StateMemory(None),
        });
    }

    fn apply(&self, config: &mut EngineConfig) {
        fn put<T: Copy>(field: &mut T, value: Option<T>) {
            *field = value.unwrap_or(*field);
        }
        put(&mut config.checkpoint_interval_ms, self.checkpoint_interval_ms);
        put(&mut config.checkpoint_min_pause_ms, self.checkpoint_min_pause_ms);
        put(&mut config.checkpoint_mode, self.checkpoint_mode);
        put(&mut config.checkpoint_timeout_ms, self.checkpoint_timeout_ms);
        put(&mut config.parallelism, self.parallelism);
        put(&mut config.state_memory, self.state_memory);
    }

    /// # Errors
    /// `InvalidOption` for what cannot work.
    fn check(&self) -> Result<()> {
        let invalid = |text: String| Err(EngineError::InvalidOption(text));
        if self.parallelism.is_some_and(|tasks| tasks == 0 || tasks > TASKS_MAX) {
            return invalid(format!("the parallelism is a number from 1 to {TASKS_MAX}"));
        }
        if self.state_memory == Some(0) {
            return invalid("the memory for state is more than 0".to_string());
        }
        if self.checkpoint_interval_ms == Some(0) || self.checkpoint_timeout_ms == Some(0) {
            let text = "the interval and the timeout of checkpoints are longer than 0";
            return invalid(text.to_string());
        }
        Ok(())
    }
}

/// As it is in the backend.
#[derive(Serialize, Deserialize)]
struct Record {
    format: u32,
    values: Values,
}

/// The settings of a running engine.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// With which it was started.
    base: EngineConfig,
    /// What the next start takes, where nothing is said at it.
    kept: Values,
    /// What goes before `base` now.
    running: Values,
}

impl Settings {
    /// Of a database in memory.
    pub(crate) fn new(base: EngineConfig) -> Self {
        Self { base, kept: Values::default(), running: Values::default() }
    }

    /// With what a database keeps.
    ///
    /// # Errors
    /// When it cannot be read, or a newer version wrote it.
    pub(crate) fn load(base: EngineConfig, backend: &dyn StateBackend) -> Result<Self> {
        let Some(bytes) = backend.get(Space::Meta, layout::SETTINGS)? else {
            return Ok(Self::new(base));
        };
        let Record { format, values: kept } = layout::decode(&bytes, "the record of settings")?;
        if format > FORMAT {
            let text = format!("a newer version wrote its settings (format {format})");
            return Err(EngineError::external("reading the stored state", text));
        }
        kept.check().map_err(|error| damaged(&format!("the record of settings ({error})")))?;
        let mut running = kept;
        for setting in Setting::ALL.into_iter().filter(|setting| base.is_given(*setting)) {
            running.forget(setting);
        }
        Ok(Self { base, kept, running })
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> EngineConfig {
        let mut config = self.base.clone();
        self.running.apply(&mut config);
        config
    }

    /// After some changes.
    ///
    /// # Errors
    /// `InvalidOption` for values that cannot work.
    pub(crate) fn changed(&self, changes: &[SettingChange]) -> Result<Self> {
        let mut changed = self.clone();
        for change in changes {
            changed.kept.change(*change);
            changed.running.change(*change);
        }
        changed.running.check()?;
        Ok(changed)
    }

    /// How the record changes; none if it stays the same.
    pub(crate) fn write_after(&self, before: &Self) -> Result<Option<Write>> {
        if self.kept == before.kept {
            return Ok(None);
        }
        let key = layout::SETTINGS.to_vec();
        if self.kept == Values::default() {
            return Ok(Some(Write::Delete(Space::Meta, key)));
        }
        let record = layout::encode(&Record { format: FORMAT, values: self.kept })?;
        Ok(Some(Write::Put(Space::Meta, key, record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::MemoryBackend;

    /// Changes settings and keeps them.
    fn keep(settings: &mut Settings, backend: &MemoryBackend, changes: &[SettingChange]) {
        let after = settings.changed(changes).unwrap();
        let write = after.write_after(settings).unwrap();
        backend.commit(&Vec::from_iter(write)).unwrap();
        *settings = after;
    }

    fn base(tasks: usize) -> EngineConfig {
        let given = [Setting::Parallelism].into();
        EngineConfig { parallelism: tasks, given, ..EngineConfig::default() }
    }

    #[test]
    fn what_is_said_at_a_start_goes_before_what_is_kept_and_that_before_the_default() {
        use SettingChange::*;
        let backend = MemoryBackend::default();
        let load = |base| Settings::load(base, &backend).unwrap();
        let default = EngineConfig::default();
        let mut settings = load(default.clone());
        assert_eq!(settings.config(), default);
        keep(&mut settings, &backend, &[Parallelism(Some(7)), CheckpointTimeout(Some(1500))]);
        assert_eq!(settings.config().parallelism, 7);
        // A start that says nothing, one that says something, and one after that.
        let config = load(default.clone()).config();
        assert_eq!((config.parallelism, config.checkpoint_timeout_ms), (7, 1500));
        let mut said = load(base(3));
        assert_eq!((said.config().parallelism, said.config().checkpoint_timeout_ms), (3, 1500));
        // Also when it says what is the default.
        assert_eq!(load(base(default.parallelism)).config().parallelism, default.parallelism);
        assert_eq!(load(default.clone()).config().parallelism, 7);
        // A change goes before both at once; RESET goes back to what was said.
        keep(&mut said, &backend, &[Parallelism(Some(5))]);
        assert_eq!(said.config().parallelism, 5);
        assert_eq!(load(default.clone()).config().parallelism, 5);
        keep(&mut said, &backend, &[Parallelism(None)]);
        assert_eq!(said.config().parallelism, 3);
        let config = load(default.clone()).config();
        let kept = (config.parallelism, config.checkpoint_timeout_ms);
        assert_eq!(kept, (default.parallelism, 1500));
        keep(&mut said, &backend, &[ResetAll]);
        assert_eq!(load(default.clone()).config(), default);
        assert_eq!(backend.get(Space::Meta, layout::SETTINGS).unwrap(), None);
    }

    #[test]
    fn a_config_of_a_program_is_said_where_it_differs_from_the_default() {
        let config = EngineConfig { checkpoint_interval_ms: 17, ..EngineConfig::default() };
        assert!(config.is_given(Setting::CheckpointInterval));
        assert!(!config.is_given(Setting::CheckpointTimeout));
        assert!(base(EngineConfig::default().parallelism).is_given(Setting::Parallelism));
    }

    #[test]
    fn damaged_and_newer_records_are_refused() {
        let backend = MemoryBackend::default();
        for (text, reason) in [
            (r#"{"format": 2, "values": {}}"#, "newer version"),
            (r#"{"format": 1, "values": {"parallelism": 0}}"#, "damaged"),
            (r#"{"format": 1, "val"#, "damaged"),
        ] {
            let put = Write::Put(Space::Meta, layout::SETTINGS.to_vec(), text.into());
            backend.commit(&[put]).unwrap();
            let error = Settings::load(EngineConfig::default(), &backend).unwrap_err();
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn keys_are_those_of_the_configuration() {
        let config = serde_json::to_value(EngineConfig::default()).unwrap();
        for setting in Setting::ALL {
            assert!(config.get(setting.key()).is_some(), "{setting:?}");
        }
    }
}

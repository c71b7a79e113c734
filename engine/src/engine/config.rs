//! Limits and intervals of an engine, and their defaults.

use std::collections::BTreeSet;

use crate::settings::Setting;
use crate::supervisor::RestartStrategy;

/// Limits and intervals. Durations in milliseconds, sizes in rows and bytes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Tasks per fragment, and worker threads.
    pub parallelism: usize,
    /// The longest epoch under load.
    pub barrier_interval_ms: u64,
    /// Time between checkpoint barriers.
    pub checkpoint_interval_ms: u64,
    /// Time from the end of a checkpoint to the next one's barrier, at least.
    pub checkpoint_min_pause_ms: u64,
    /// A checkpoint that takes longer is given up.
    pub checkpoint_timeout_ms: u64,
    /// What a checkpoint waits for.
    pub checkpoint_mode: CheckpointMode,
    /// URL of the object store that checkpoints are uploaded to; none: they are in the data directory only.
    pub checkpoint_store: Option<String>,
    /// Checkpoints that are kept in the store, at least 1.
    pub checkpoint_retained: usize,
    /// Time between the beginnings of two uploads, at least.
    pub checkpoint_upload_interval_ms: u64,
    /// Rows in a batch that a source gives.
    pub batch_rows: usize,
    /// Rows that a channel holds before its sender waits.
    pub channel_rows_max: usize,
    /// Bytes that a channel holds before its sender waits.
    pub channel_bytes_max: usize,
    /// Rows that may wait for a subscriber before it is cut off.
    pub subscription_rows_max: usize,
    /// What follows a failure, in durable databases.
    pub restart: RestartStrategy,
    /// Bytes of memory for the state of operators and the contents of views and tables, in durable databases: a quarter of the
    /// machine's by default. What is more is kept on disk alone.
    pub state_memory: usize,
    /// State of more rows than this is not read at a start, but when it is needed.
    pub load_rows_max: u64,
    /// Of the settings that can change while the engine runs: those that were said at this start, and so go before what a
    /// database keeps. Where a value differs from the default, it was said anyway.
    #[serde(skip)]
    pub given: BTreeSet<Setting>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        let checkpoint = CheckpointOptions::default();
        Self {
            parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            barrier_interval_ms: 200,
            checkpoint_interval_ms: checkpoint.interval_ms,
            checkpoint_min_pause_ms: checkpoint.min_pause_ms,
            checkpoint_timeout_ms: checkpoint.timeout_ms,
            checkpoint_mode: checkpoint.mode,
            checkpoint_store: None,
            checkpoint_retained: 3,
            checkpoint_upload_interval_ms: 10_000,
            batch_rows: 8192,
            channel_rows_max: 64 * 1024,
            channel_bytes_max: 32 << 20,
            subscription_rows_max: 4_000_000,
            restart: RestartStrategy::default(),
            state_memory: usize::try_from(physical_memory() / 4).unwrap_or(usize::MAX),
            load_rows_max: 64 * 1024,
            given: BTreeSet::new(),
        }
    }
}

impl EngineConfig {
    /// When checkpoints are made, and how.
    pub fn checkpoint(&self) -> CheckpointOptions {
        CheckpointOptions {
            interval_ms: self.checkpoint_interval_ms,
            min_pause_ms: self.checkpoint_min_pause_ms,
            timeout_ms: self.checkpoint_timeout_ms,
            mode: self.checkpoint_mode,
        }
    }

    /// Whether a value was said at this start.
    pub(crate) fn is_given(&self, setting: Setting) -> bool {
        let default = Self::default();
        let differs = match setting {
            Setting::CheckpointInterval => {
                self.checkpoint_interval_ms != default.checkpoint_interval_ms
            }
            Setting::CheckpointMinPause => {
                self.checkpoint_min_pause_ms != default.checkpoint_min_pause_ms
            }
            Setting::CheckpointMode => self.checkpoint_mode != default.checkpoint_mode,
            Setting::CheckpointTimeout => {
                self.checkpoint_timeout_ms != default.checkpoint_timeout_ms
            }
            Setting::Parallelism => self.parallelism != default.parallelism,
            Setting::StateMemory => self.state_memory != default.state_memory,
        };
        differs || self.given.contains(&setting)
    }

    pub(crate) fn set_checkpoint(&mut self, options: CheckpointOptions) {
        self.checkpoint_interval_ms = options.interval_ms;
        self.checkpoint_min_pause_ms = options.min_pause_ms;
        self.checkpoint_timeout_ms = options.timeout_ms;
        self.checkpoint_mode = options.mode;
    }
}

/// When checkpoints are made, and how; may change while the engine runs. Times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// From one barrier to the next.
    pub interval_ms: u64,
    /// From the end of one to the next one's barrier, at least.
    pub min_pause_ms: u64,
    /// One that takes longer is given up, and the next one tried.
    pub timeout_ms: u64,
    /// What it waits for.
    pub mode: CheckpointMode,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        let mode = CheckpointMode::ExactlyOnce;
        Self { interval_ms: 1000, min_pause_ms: 0, timeout_ms: 600_000, mode }
    }
}

/// What a task does with an input that has given a checkpoint barrier before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointMode {
    /// It does not read it until the others have given it too.
    #[default]
    ExactlyOnce,
    /// It goes on reading it, where all its inputs only add rows and say nothing of unique ones: such rows are in the
    /// checkpoint and, after a failure, come again.
    AtLeastOnce,
}

/// Bytes of memory that the machine has; 4 GiB where that cannot be found out.
fn physical_memory() -> u64 {
    let read = std::fs::read_to_string("/proc/meminfo").ok();
    let total = read.as_deref().and_then(|text| text.lines().next()?.split_whitespace().nth(1));
    let kib = total.and_then(|kib| kib.parse::<u64>().ok());
    kib.map_or(4 << 30, |kib| kib << 10)
}

/// Tasks of a fragment, at most: one for each key group.
pub(crate) const TASKS_MAX: usize = 256;

//! What a process has used, as the operating system counts it.

use std::time::Instant;

/// Clock ticks per second of `/proc/self/stat`: fixed at 100 on Linux.
const TICKS: f64 = 100.0;

/// A running measurement.
pub(crate) struct Measure {
    started: Instant,
    cpu: f64,
}

impl Measure {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), cpu: cpu_seconds() }
    }

    /// Wall and CPU seconds since the start.
    pub(crate) fn stop(&self) -> (f64, f64) {
        (self.started.elapsed().as_secs_f64(), cpu_seconds() - self.cpu)
    }
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the command name, which may hold blanks: fields 14 and 15 of the line are user and system time.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

/// The most memory that this process has had, in MiB.
pub(crate) fn peak_memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

//! The program as a process: started, killed, started again.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

/// Processes so far.
static STARTS: AtomicUsize = AtomicUsize::new(0);

/// How the process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Killed,
    AtFailPoint,
}

/// A running `millstream serve`; it ends with the test.
pub struct Process {
    child: Child,
    port: u16,
    fail_point: Option<String>,
}

const SIGABRT: i32 = 6;

/// To begin with what the checkpoint store holds.
pub const RESTORE: [&str; 3] = ["--parallelism", "2", "--restore-from-store"];
/// What most processes are started with.
pub const TWO_TASKS: [&str; 2] = ["--parallelism", "2"];

impl Process {
    /// `None` when it dies at its fail point before it is ready.
    pub fn start(data: &Path, fail_point: Option<&str>) -> Option<Self> {
        Self::start_with(data, fail_point, &TWO_TASKS)
    }

    /// As [`Process::start`], with these flags.
    pub fn start_with(data: &Path, fail_point: Option<&str>, flags: &[&str]) -> Option<Self> {
        let mut child = spawn(data, fail_point, flags);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = loop {
            let Some(Ok(line)) = lines.next() else { break None };
            if line.contains("SQL:") {
                break line.rsplit(' ').next().and_then(|port| port.parse().ok());
            }
        };
        let Some(port) = port else {
            let status = child.wait().unwrap();
            let log = std::fs::read_to_string(data.with_extension("log")).unwrap_or_default();
            let end = &log[log.len().saturating_sub(4000)..];
            assert!(fail_point.is_some() && status.signal() == Some(SIGABRT), "{status}\n{end}");
            return None;
        };
        // A full pipe must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { child, port, fail_point: fail_point.map(str::to_string) })
    }

    /// Starts it where it must refuse, and gives what it says.
    pub(super) fn refused(data: &Path, flags: &[&str]) -> String {
        let status = spawn(data, None, flags).wait().unwrap();
        assert_eq!(status.code(), Some(3), "{status}");
        std::fs::read_to_string(data.with_extension("log")).unwrap()
    }

    /// Kills it while it starts.
    pub fn start_and_kill(data: &Path, after: Duration, flags: &[&str]) {
        let mut child = spawn(data, None, flags);
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn fail_point(&self) -> Option<&str> {
        self.fail_point.as_deref()
    }

    /// How clients connect.
    pub fn settings(&self) -> String {
        format!("host=127.0.0.1 port={} user=tester", self.port)
    }

    pub async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        connect(&self.settings()).await
    }

    pub fn is_running(&mut self) -> bool {
        // A connection may be seen to break a moment before the process is gone.
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Waits for its own end, then kills it.
    pub async fn die_within(&mut self, wait: Duration) -> Ended {
        let until = Instant::now() + wait;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(self.fail_point.is_some(), "it ended by itself: {status}");
                assert_eq!(status.signal(), Some(SIGABRT), "{status}");
                return Ended::AtFailPoint;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // SIGKILL.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        Ended::Killed
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; whether it ended well by itself.
    pub fn stop(&mut self) -> bool {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub async fn connect(settings: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(settings, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The checkpoint store of all data directories that lie side by side.
pub(super) fn store(data: &Path) -> PathBuf {
    data.with_file_name("store")
}

fn spawn(data: &Path, fail_point: Option<&str>, flags: &[&str]) -> Child {
    let log = OpenOptions::new().create(true).append(true).open(data.with_extension("log"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command
        .args(["serve", "--pg-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(data)
        .args(["--checkpoint-store", &format!("file://{}", store(data).display())])
        .args(flags)
        .stdout(Stdio::piped())
        .stderr(log.unwrap());
    // Checkpoints often, so that there is something to hit.
    let config = data.with_extension("toml");
    // Every other process has hardly any memory for state, and reads it when it is needed.
    let small = STARTS.fetch_add(1, Ordering::Relaxed) % 2 == 1;
    let memory = if small { "state_memory = 20000\nload_rows_max = 0\n" } else { "" };
    let often = "checkpoint_interval_ms = 100\ncheckpoint_upload_interval_ms = 0\n";
    std::fs::write(&config, format!("[engine]\n{often}{memory}")).unwrap();
    command.arg("--config").arg(config);
    if let Some(fail_point) = fail_point {
        command.env("FAILPOINTS", fail_point);
    }
    command.spawn().unwrap()
}

//! Crashes (contract C3): the real program is killed again and again, and nothing is lost and nothing there twice.
//!
//! ```text
//!   start ─► writers, a definer, an administrator, files ─► SIGKILL, or a fail point ─► start, with as many tasks or not ─► compare ─► ...
//! ```
//!
//! Each writer has rows of its own and knows what was acknowledged, and which statement was on its way when the program died:
//! that one may have happened, whole, or not. The number of tasks changes at starts and while it runs. After each start every row is compared with this, and every view with its
//! query at the same moment. At the end the files of the sinks are counted, and everything is restored from the checkpoint store, and from
//! a savepoint.
//!
//! `MILLSTREAM_CRASH_KILLS` (25) kills, in an order that follows from `MILLSTREAM_CRASH_SEED`.

use std::path::PathBuf;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

mod administrator;
pub mod definitions;
mod output;
pub mod process;
mod store;
mod writer;

use administrator::Administrator;
use definitions::{Definer, compare_views};
use output::Files;
use process::{Ended, Process, RESTORE};
use writer::Writer;

const WRITERS: usize = 4;

/// Places at which the program can be made to die.
const FAIL_POINTS: [&str; 19] = [
    "checkpoint::before_commit",
    "checkpoint::after_commit",
    "checkpoint::before_merge",
    "definitions::before_commit",
    "definitions::after_commit",
    "log::before_write",
    "log::after_write",
    "redeal::before_commit",
    "redeal::after_commit",
    "settings::before_commit",
    "settings::after_commit",
    "sink::before_commit",
    "sink::after_commit",
    "take_over::before_copy",
    "take_over::after_copy",
    "upload::before_files",
    "upload::before_manifest",
    "upload::after_manifest",
    "upload::before_removal",
];

/// How long a fail point is waited for before the program is killed all the same.
const FAIL_POINT_WAIT: Duration = Duration::from_secs(4);

#[test]
fn nothing_is_lost_and_nothing_is_there_twice() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("MILLSTREAM_CRASH_KILLS").unwrap_or(25);
    let seed = number("MILLSTREAM_CRASH_SEED").unwrap_or(1);
    eprintln!("MILLSTREAM_CRASH_KILLS={kills} MILLSTREAM_CRASH_SEED={seed}");
    let limit = 120 + kills * 20;
    crate::database::run_for(limit, "the crash test", async {
        let mut harness = Harness::new(seed).await;
        for kill in 0..kills {
            harness.round(kill).await;
        }
        harness.finish().await;
    });
}

struct Harness {
    random: StdRng,
    directory: tempfile::TempDir,
    process: Process,
    writers: Vec<Writer>,
    definer: Definer,
    administrator: Administrator,
    files: Files,
    /// Deaths at fail points.
    aborted: u64,
}

impl Harness {
    async fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(directory.path());
        let process = Process::start(&data(&directory), None).expect("it starts");
        let client = process.connect().await.unwrap();
        for statement in definitions::SETUP.iter().map(|sql| files.fill_in(sql)) {
            client.batch_execute(&statement).await.unwrap();
        }
        let administrator = Administrator::new(seed);
        administrator.set_up(&client).await;
        let writers = (0..WRITERS).map(|number| Writer::new(number, seed)).collect();
        Self {
            random: StdRng::seed_from_u64(seed),
            directory,
            process,
            writers,
            definer: Definer::default(),
            administrator,
            files,
            aborted: 0,
        }
    }

    /// Work, death, start, comparison.
    async fn round(&mut self, number: u64) {
        let point = self.process.fail_point().map(str::to_string);
        let work = self.work();
        let pause = match &point {
            Some(_) => FAIL_POINT_WAIT,
            None => Duration::from_millis(self.random.random_range(20..700)),
        };
        let ended = self.process.die_within(pause).await;
        self.aborted += u64::from(ended == Ended::AtFailPoint);
        work.join(self).await;
        eprintln!("kill {number}: {ended:?} {}", point.unwrap_or_default());
        self.restart(number).await;
        self.compare().await;
    }

    /// Everybody works until the program is gone.
    fn work(&mut self) -> Work {
        self.files.add(&mut self.random);
        let settings = self.process.settings();
        let spawn = |mut writer: Writer| {
            let settings = settings.clone();
            tokio::spawn(async move {
                writer.work(&settings).await;
                writer
            })
        };
        let writers = self.writers.drain(..).map(spawn).collect();
        let mut definer = std::mem::take(&mut self.definer);
        let mut administrator = std::mem::replace(&mut self.administrator, Administrator::new(0));
        let administering = settings.clone();
        let administrator = tokio::spawn(async move {
            administrator.work(&administering).await;
            administrator
        });
        let definer = tokio::spawn(async move {
            definer.work(&settings).await;
            definer
        });
        Work { writers, definer, administrator }
    }

    /// Starts the program again, perhaps more than once: it may die in its recovery, too.
    async fn restart(&mut self, number: u64) {
        if self.random.random_bool(0.2) {
            let early = Duration::from_millis(self.random.random_range(10..400));
            let flags = self.flags();
            Process::start_and_kill(&data(&self.directory), early, &flags);
        }
        let visits = self.random.random_range(0..6);
        let point = usize::try_from(number).unwrap() % (FAIL_POINTS.len() + 2);
        let point = FAIL_POINTS.get(point).map(|name| format!("{name}={visits}*off->panic"));
        let flags = self.flags();
        match Process::start_with(&data(&self.directory), point.as_deref(), &flags) {
            Some(process) => self.process = process,
            None => {
                self.aborted += 1;
                self.start_again();
            }
        }
    }

    fn start_again(&mut self) {
        let flags = self.flags();
        let started = Process::start_with(&data(&self.directory), None, &flags);
        self.process = started.expect("it starts again");
    }

    /// As many tasks as before, or not.
    fn flags(&mut self) -> [&'static str; 2] {
        ["--parallelism", ["1", "2", "3"][self.random.random_range(0..3)]]
    }

    /// Rows with what their writers know, views with their queries. A fail point may end it early: then it is done over.
    async fn compare(&mut self) {
        while let Err(died) = self.try_compare().await {
            assert!(!self.process.is_running(), "{died}");
            self.aborted += 1;
            self.start_again();
        }
    }

    async fn try_compare(&mut self) -> Result<(), tokio_postgres::Error> {
        let client = self.process.connect().await?;
        for writer in &mut self.writers {
            writer.compare(&client).await?;
        }
        self.definer.compare(&client).await?;
        self.administrator.compare(&client).await?;
        compare_views(&client).await
    }

    /// The rest is read to its end, and once more after a tidy stop.
    async fn finish(&mut self) {
        assert!(self.process.stop(), "it ends by itself");
        self.process = Process::start(&data(&self.directory), None).expect("it starts");
        let client = self.process.connect().await.unwrap();
        self.files.wait_for_all(&client).await;
        client.batch_execute("SET wait_for_bounded_sources = on").await.unwrap();
        compare_views(&client).await.unwrap();
        definitions::compare_sources(&client).await;
        client.batch_execute("CHECKPOINT; CHECKPOINT").await.unwrap();
        let rows: Vec<_> = self.writers.iter().flat_map(Writer::rows).collect();
        self.files.compare_sinks(rows).await;
        drop(client);
        assert!(self.process.stop(), "it ends by itself");
        let log = std::fs::read_to_string(data(&self.directory).with_extension("log")).unwrap();
        assert!(!log.contains("panicked at"), "{log}");
        self.begin_with_savepoint().await;
        self.lose_directory().await;
        let [scales, versions, savepoints] = self.administrator.done;
        eprintln!(
            "{} deaths at fail points, {scales} rescales, {versions} versions, {savepoints} savepoints",
            self.aborted
        );
        assert!(self.aborted > 0, "no fail point was reached");
    }
}

impl Harness {
    /// A savepoint holds what was there at one moment.
    async fn begin_with_savepoint(&mut self) {
        let data = data(&self.directory);
        let Some(savepoint) = self.administrator.newest_savepoint(&data) else { return };
        // With a checkpoint store of its own.
        let new = self.directory.path().join("beginning");
        std::fs::create_dir(&new).unwrap();
        let flags = ["--from-savepoint", savepoint.to_str().unwrap(), "--parallelism", "3"];
        self.process = Process::start_with(&new.join("data"), None, &flags).unwrap();
        let client = self.process.connect().await.unwrap();
        compare_views(&client).await.unwrap();
        administrator::compare_changed(&client).await.unwrap();
        assert!(self.process.stop(), "it ends by itself");
    }

    /// The data directory is gone: what was uploaded when the program ended is everything.
    async fn lose_directory(&mut self) {
        std::fs::remove_dir_all(data(&self.directory)).unwrap();
        let restored = self.directory.path().join("restored");
        self.process = Process::start_with(&restored, None, &RESTORE).unwrap();
        let client = self.process.connect().await.unwrap();
        for writer in &mut self.writers {
            writer.compare(&client).await.unwrap();
        }
        self.definer.compare(&client).await.unwrap();
        compare_views(&client).await.unwrap();
        administrator::compare_changed(&client).await.unwrap();
        assert!(self.process.stop(), "it ends by itself");
    }
}

fn data(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("data")
}

/// Who is at work.
struct Work {
    writers: Vec<tokio::task::JoinHandle<Writer>>,
    definer: tokio::task::JoinHandle<Definer>,
    administrator: tokio::task::JoinHandle<Administrator>,
}

impl Work {
    async fn join(self, harness: &mut Harness) {
        for writer in self.writers {
            harness.writers.push(writer.await.unwrap());
        }
        harness.definer = self.definer.await.unwrap();
        harness.administrator = self.administrator.await.unwrap();
    }
}

//! `millstream sql`: statements on an engine in this process.
//!
//! Bounded sources are read to their end before a SELECT that depends on them answers, and before the program ends, so
//! that a script over files gives the final answer and its sinks are complete. A sink over an endless source keeps the
//! program running until Ctrl-C.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgMatches, Args};
use millstream::Database;

use super::output::Format;
use super::{Failure, signals, start_logging};

mod interactive;
mod runner;

use runner::Runner;

/// Flags of `sql`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without -c and -f, statements are read from standard input. The first error ends the run (exit code 1).
A SELECT can read files by name: SELECT count(*) FROM 'bids.parquet'.")]
pub(super) struct SqlArgs {
    /// Statements to run; may be repeated, and mixed with -f in any order
    #[arg(short = 'c', long = "command", value_name = "SQL", action = ArgAction::Append)]
    commands: Vec<String>,
    /// A file of statements to run; - is standard input
    #[arg(short = 'f', long = "file", value_name = "FILE", action = ArgAction::Append)]
    files: Vec<PathBuf>,
    /// How rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Neither command tags nor a progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Tasks per query fragment, and worker threads [default: cores]
    #[arg(long, value_name = "N", env = "MILLSTREAM_PARALLELISM")]
    parallelism: Option<std::num::NonZeroUsize>,
    /// What to log to stderr: error, warn, info, debug, or per module
    #[arg(long, value_name = "FILTER", env = "MILLSTREAM_LOG", default_value = "error")]
    log: String,
}

/// Text of statements and where it came from.
struct Script {
    name: Option<String>,
    text: String,
}

pub(super) async fn run(args: SqlArgs, matches: &ArgMatches) -> Result<(), Failure> {
    start_logging(&args.log)?;
    let scripts = scripts(&args, matches)?;
    let stop = signals::on_first_signal()?;
    let mut builder = Database::builder();
    if let Some(tasks) = args.parallelism {
        builder = builder.parallelism(tasks.get());
    }
    let database = builder.open().await.map_err(Failure::start)?;
    let mut runner = Runner::new(&args, database.clone(), stop)?;
    let ended = match scripts {
        Some(scripts) => runner.run_scripts(&scripts).await,
        None => interactive::run(&mut runner).await,
    };
    let ended = match ended {
        Ok(()) => runner.finish().await,
        Err(failure) => Err(failure),
    };
    drop(runner);
    let closed = database.close().await;
    ended?;
    closed.map_err(|error| Failure::new(Failure::STATEMENT, error))
}

/// What -c and -f ask for, in the order of the command line; `None`: a person types.
fn scripts(args: &SqlArgs, matches: &ArgMatches) -> Result<Option<Vec<Script>>, Failure> {
    let mut scripts: BTreeMap<usize, Script> = BTreeMap::new();
    let indices = |id: &str| matches.indices_of(id).into_iter().flatten().collect::<Vec<_>>();
    for (at, text) in indices("commands").into_iter().zip(&args.commands) {
        scripts.insert(at, Script { name: None, text: text.clone() });
    }
    for (at, path) in indices("files").into_iter().zip(&args.files) {
        scripts.insert(at, read_script(path)?);
    }
    if scripts.is_empty() {
        if std::io::stdin().is_terminal() {
            return Ok(None);
        }
        scripts.insert(0, read_script(Path::new("-"))?);
    }
    Ok(Some(scripts.into_values().collect()))
}

fn read_script(path: &Path) -> Result<Script, Failure> {
    let failed = |error| Failure::usage(format!("{}: {error}", path.display()));
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(Script { name: None, text });
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Ok(Script { name: Some(path.display().to_string()), text })
}

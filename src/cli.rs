//! The command line: `serve`, `sql` and `demo` over the library.
//!
//! Exit codes: 0 all went well (a server that was told to stop, too); 1 a statement or a job failed; 2 the command line or
//! the configuration is wrong; 3 it could not start (an address or the data directory is taken); 130 interrupted.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

mod checkpoint_flags;
mod config;
mod demo;
mod diagnostics;
mod fail_points;
mod output;
mod progress;
mod serve;
mod signals;
mod sql;

const EXIT_CODES: &str = "\
Exit codes:
  0    done; also a server that was told to stop by Ctrl-C or SIGTERM
  1    a statement or a job failed
  2    the command line or the configuration is wrong
  3    it could not start: an address or the data directory is taken
  130  interrupted by Ctrl-C";

/// Of each thread that plans: long chains of operators are trees as deep as they are long. Only what is used is taken.
const STACK_BYTES: usize = 64 << 20;

/// Continuous SQL over streams, with consistent answers at any moment.
#[derive(Debug, Parser)]
#[command(name = "millstream", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve Postgres clients, and health and metrics over HTTP, until told to stop
    Serve(serve::ServeArgs),
    /// Run SQL in this process, without a server: queries over files, or whole streaming jobs
    Sql(sql::SqlArgs),
    /// Serve a live auction site made by a generator, with views to look at
    Demo(demo::DemoArgs),
}

/// Why the program ends early, and its exit code.
#[derive(Debug)]
struct Failure {
    code: u8,
    /// For stderr; `None` when it has been told already.
    message: Option<String>,
}

impl Failure {
    const STATEMENT: u8 = 1;
    const USAGE: u8 = 2;
    const START: u8 = 3;
    const INTERRUPTED: u8 = 130;

    fn new(code: u8, message: impl std::fmt::Display) -> Self {
        Self { code, message: Some(message.to_string()) }
    }

    fn told(code: u8) -> Self {
        Self { code, message: None }
    }

    fn usage(message: impl std::fmt::Display) -> Self {
        Self::new(Self::USAGE, message)
    }

    fn start(message: impl std::fmt::Display) -> Self {
        Self::new(Self::START, message)
    }
}

pub(crate) fn main() -> ExitCode {
    let _fail_points = fail_points::set_up();
    // The order of -c and -f among each other is known to the matches only.
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let run = || async {
        match cli.command {
            Command::Serve(args) => serve::run(args).await,
            Command::Sql(args) => {
                let matches = matches.subcommand_matches("sql");
                sql::run(args, matches.unwrap_or(&matches_of_nothing())).await
            }
            Command::Demo(args) => demo::run(args).await,
        }
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let ended = match runtime.enable_all().thread_stack_size(STACK_BYTES).build() {
        Ok(runtime) => {
            // The main thread's own stack is smaller, and statements run here too.
            let ended = std::thread::scope(|scope| {
                let main = std::thread::Builder::new().stack_size(STACK_BYTES);
                let spawned = main.spawn_scoped(scope, || runtime.block_on(run()));
                let joined = spawned.map(std::thread::ScopedJoinHandle::join);
                match joined {
                    Ok(Ok(ended)) => ended,
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                    Err(error) => Err(Failure::start(error)),
                }
            });
            // A thread that waits for a terminal's next line must not hold the end up.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(Failure::start(error)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message {
                eprintln!("millstream: {message}");
            }
            ExitCode::from(failure.code)
        }
    }
}

fn matches_of_nothing() -> clap::ArgMatches {
    clap::ArgMatches::default()
}

/// Logs go to stderr, as `RUST_LOG`-style filters say.
fn start_logging(filter: &str) -> Result<(), Failure> {
    // Each of its many retries; what comes of them is told by whoever asked.
    let quiet = if filter.contains("object_store") { "" } else { ",object_store=warn" };
    let filter = tracing_subscriber::EnvFilter::try_new(format!("{filter}{quiet}"))
        .map_err(|error| Failure::usage(format!("log filter \"{filter}\": {error}")))?;
    let colours = std::io::stderr().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    // A second start in one process (tests) keeps the first.
    let _ = subscriber.try_init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}

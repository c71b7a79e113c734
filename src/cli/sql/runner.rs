//! Runs statements one by one and prints what they give.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use futures::StreamExt;
use millstream::arrow::array::AsArray;
use millstream::arrow::compute::cast;
use millstream::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use millstream::arrow::error::ArrowError;
use millstream::{Database, Error, JobInfo, JobStatus, Session};
use millstream_sql::{CopyFormat, Outcome, RowStream, SqlError, Statement};
use tokio_util::sync::CancellationToken;

use super::{Script, SqlArgs};
use crate::cli::output::{Format, RowWriter};
use crate::cli::{Failure, diagnostics, progress};

/// A session and how its results are shown.
pub(super) struct Runner {
    database: Database,
    session: Session,
    format: Format,
    quiet: bool,
    progress: bool,
    pub(super) stop: CancellationToken,
}

/// How a statement ended, short of success.
pub(super) enum Ended {
    /// It failed; the text is for stderr.
    Failed(String),
    /// The user stopped it.
    Interrupted,
    /// A live query was stopped, which is how it ends.
    LiveStopped,
    /// Nobody reads our output any more.
    OutputClosed,
}

/// What went wrong: with the statement, or with printing.
enum Trouble {
    Sql(SqlError),
    Output(std::io::Error),
}

impl From<SqlError> for Trouble {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<ArrowError> for Trouble {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => Self::Output(error),
            ArrowError::NotYetImplemented(what) => Self::Sql(SqlError::new("0A000", what)),
            other => Self::Sql(SqlError::internal(other)),
        }
    }
}

impl Runner {
    pub(super) fn new(
        args: &SqlArgs,
        database: Database,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        let mut session = database.session();
        let waits = session.sql().set("wait_for_bounded_sources", "on");
        waits.map_err(Failure::start)?;
        // The first signal cancels what runs, wherever it stands.
        let (cancel, stopped) = (session.sql().cancel_handle(), stop.clone());
        tokio::spawn(async move {
            stopped.cancelled().await;
            cancel.cancel();
        });
        let (format, quiet) = (args.format, args.quiet);
        Ok(Self { database, session, format, quiet, progress: progress::wanted(quiet), stop })
    }

    pub(super) async fn run_scripts(&mut self, scripts: &[Script]) -> Result<(), Failure> {
        for script in scripts {
            match self.run_text(script).await {
                Ok(()) => {}
                Err(Ended::Failed(text)) => {
                    eprintln!("{text}");
                    return Err(Failure::told(Failure::STATEMENT));
                }
                Err(Ended::Interrupted) => return Err(Failure::told(Failure::INTERRUPTED)),
                Err(Ended::LiveStopped | Ended::OutputClosed) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Runs the statements of a text. A syntax error anywhere in it refuses it as a whole.
    pub(super) async fn run_text(&mut self, script: &Script) -> Result<(), Ended> {
        let told = |error: SqlError| {
            let name = script.name.as_deref();
            Ended::Failed(diagnostics::error_text(&Error::from(error), &script.text, name))
        };
        for statement in self.session.sql().parse(&script.text).map_err(told)? {
            if self.stop.is_cancelled() {
                return Err(Ended::Interrupted);
            }
            let run = self.run_statement(&statement).await;
            for notice in self.session.take_notices() {
                eprintln!("{}", diagnostics::notice_text(&notice));
            }
            match run {
                Ok(()) => {}
                Err(Trouble::Sql(error))
                    if self.stop.is_cancelled() && error.sqlstate == "57014" =>
                {
                    let live = is_live(&statement);
                    return Err(if live { Ended::LiveStopped } else { Ended::Interrupted });
                }
                Err(Trouble::Sql(error)) => return Err(told(error)),
                Err(Trouble::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    return Err(Ended::OutputClosed);
                }
                Err(Trouble::Output(error)) => {
                    return Err(Ended::Failed(format!(
                        "ERROR:  the output cannot be written: {error}"
                    )));
                }
            }
        }
        Ok(())
    }

    async fn run_statement(&mut self, statement: &Statement) -> Result<(), Trouble> {
        let execute = self.session.sql().execute(statement, &[]);
        let outcome = progress::shown(self.progress, &self.database, execute).await?;
        match outcome {
            Outcome::Empty => {}
            Outcome::Command { tag } => {
                if !self.quiet && self.format == Format::Table {
                    writeln!(std::io::stdout(), "{tag}")?;
                }
            }
            Outcome::Rows { schema, rows, .. } => {
                self.print_rows(&schema, rows, None, is_live(statement)).await?;
            }
            Outcome::CopyOut { schema, rows, format } => {
                self.print_rows(&schema, rows, Some(&format), is_live(statement)).await?;
            }
            Outcome::CopyIn { .. } => {
                let hint = "Use CREATE SOURCE ... WITH (connector = 'file', ...), or \
                            INSERT INTO ... SELECT * FROM 'file.csv'.";
                let error = SqlError::new("0A000", "COPY FROM STDIN is for Postgres clients");
                return Err(error.with_hint(hint).into());
            }
        }
        Ok(())
    }

    async fn print_rows(
        &self,
        schema: &SchemaRef,
        mut rows: RowStream,
        copy: Option<&CopyFormat>,
        live: bool,
    ) -> Result<(), Trouble> {
        // Standard output shows each line as it is complete; a finite result need not.
        let out: Box<dyn Write> = match live {
            true => Box::new(std::io::stdout()),
            false => Box::new(std::io::BufWriter::new(std::io::stdout())),
        };
        let mut writer = match copy {
            None => RowWriter::new(self.format, schema, live, out)?,
            Some(format) => RowWriter::copy(format, schema, out)?,
        };
        while let Some(batch) =
            progress::shown(self.progress && !live, &self.database, rows.next()).await
        {
            writer.write(&batch?)?;
        }
        Ok(writer.finish()?)
    }

    /// Waits for bounded sources; keeps endless sinks running; tells what failed.
    pub(super) async fn finish(&mut self) -> Result<(), Failure> {
        let stop = self.stop.clone();
        let database = self.database.clone();
        let wait = database.wait_for_bounded_sources();
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            waited = progress::shown(self.progress, &database, wait) => {
                waited.map_err(|error| Failure::new(Failure::STATEMENT, error))?;
            }
        }
        let endless = self.endless_sinks().await;
        let endless = endless.map_err(|error| Failure::new(Failure::STATEMENT, error))?;
        if !endless.is_empty() {
            eprintln!("running until Ctrl-C: {}", endless.join(", "));
            self.until_stopped(&endless).await;
        }
        let jobs = self.database.engine().jobs();
        let failed = jobs.iter().filter_map(|job| match &job.status {
            JobStatus::Failed(reason) => Some((job, reason)),
            _ => None,
        });
        let failed: Vec<_> = failed.collect();
        for (job, reason) in &failed {
            eprintln!("ERROR:  {} \"{}\" has failed: {reason}", job.kind, job.name);
        }
        match self.database.engine().errors().rows().len() {
            0 => {}
            count => eprintln!(
                "WARNING:  {count} row(s) could not be read or computed; see SELECT * FROM millstream.errors"
            ),
        }
        if failed.is_empty() { Ok(()) } else { Err(Failure::told(Failure::STATEMENT)) }
    }

    /// Waits for a signal, or until none of these sinks runs any more.
    async fn until_stopped(&self, sinks: &[String]) {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(500));
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = ticks.tick() => {
                    let jobs = self.database.engine().jobs();
                    let runs = |job: &JobInfo| {
                        job.kind == "sink" && sinks.contains(&job.name) && is_running(job)
                    };
                    if !jobs.iter().any(runs) {
                        return;
                    }
                }
            }
        }
    }

    /// Running sinks that depend on a source which has not ended.
    async fn endless_sinks(&mut self) -> Result<Vec<String>, Error> {
        let jobs = self.database.engine().jobs();
        let sinks: Vec<&JobInfo> =
            jobs.iter().filter(|job| job.kind == "sink" && is_running(job)).collect();
        if sinks.is_empty() {
            return Ok(Vec::new());
        }
        let endless: BTreeSet<u64> = jobs
            .iter()
            .filter(|job| job.kind == "source" && is_running(job) && !job.operators.is_empty())
            .map(|job| job.id.0)
            .collect();
        let inputs = self.dependencies().await?;
        let depends = |sink: u64| {
            let (mut open, mut seen) = (vec![sink], BTreeSet::new());
            while let Some(id) = open.pop() {
                if endless.contains(&id) {
                    return true;
                }
                if seen.insert(id) {
                    open.extend(inputs.get(&id).into_iter().flatten());
                }
            }
            false
        };
        Ok(sinks
            .into_iter()
            .filter(|sink| depends(sink.id.0))
            .map(|sink| sink.name.clone())
            .collect())
    }

    /// What each relation reads.
    async fn dependencies(&mut self) -> Result<BTreeMap<u64, Vec<u64>>, Error> {
        let sql = "SELECT relation_id, depends_on_id FROM millstream.dependencies";
        let mut inputs: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for batch in self.session.query(sql).await? {
            let column = |at: usize| -> Result<Vec<u64>, Error> {
                let numbers =
                    cast(batch.column(at), &DataType::Int64).map_err(SqlError::internal)?;
                let numbers = numbers.as_primitive::<Int64Type>().values();
                Ok(numbers.iter().map(|number| number.unsigned_abs()).collect())
            };
            for (id, input) in column(0)?.into_iter().zip(column(1)?) {
                inputs.entry(id).or_default().push(input);
            }
        }
        Ok(inputs)
    }
}

fn is_running(job: &JobInfo) -> bool {
    matches!(job.status, JobStatus::Running | JobStatus::Backfilling)
}

/// Whether the statement's rows have no end.
fn is_live(statement: &Statement) -> bool {
    match statement.kind() {
        "SUBSCRIBE" => true,
        "COPY" => statement.text().to_ascii_uppercase().contains("SUBSCRIBE"),
        "SELECT" => statement.text().to_ascii_uppercase().contains("EMIT CHANGES"),
        _ => false,
    }
}

//! Statements: one file for each, called from one exhaustive `match`.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::sql::sqlparser::ast;
use millstream_engine::plan::RelationId;

use crate::catalog::RelationName;
use crate::error::{Result, SqlError};
use crate::outcome::{CopyTarget, Description, Outcome, RowStream};
use crate::parser::Command;
use crate::session::{Definition, Run, Session, Statement};

mod alter_system;
mod alter_view;
mod assign;
mod copy;
mod create_relation;
mod create_sink;
mod create_source;
mod create_view;
mod cursor;
mod delete;
mod describe;
mod drop;
mod explain;
mod insert;
mod prepare;
mod resume;
mod returning;
mod savepoint;
mod schema;
mod select;
mod set;
mod show;
mod subscribe;
mod transaction;
mod update;

/// Runs a statement.
pub(crate) async fn run(
    session: &mut Session,
    command: &Command,
    run: &Run<'_>,
) -> Result<Outcome> {
    match command {
        Command::Query(query) => select::run(session, query, run).await,
        Command::CreateRelation(create) => create_relation::run(session, create, run).await,
        Command::CreateView(create) => create_view::run(session, create, run).await,
        Command::CreateSink(create) => create_sink::run(session, create, run).await,
        Command::Drop(drop) => drop::run(session, drop, run).await,
        Command::Show(show) => show::run(session, show, run).await,
        Command::Describe(name) => show::describe(session, name, run),
        Command::Explain(explain) => explain::run(session, explain, run).await,
        Command::Subscribe(target) => subscribe::run(session, target, run).await,
        Command::Copy(copy) => copy::run(session, copy, run).await,
        Command::Flush => transaction::flush(session).await,
        Command::Checkpoint => transaction::checkpoint(session).await,
        Command::Resume { kind, name } => resume::run(session, *kind, name, run).await,
        Command::AlterView(alter) => alter_view::run(session, alter, run).await,
        Command::AlterSystem(set) => alter_system::run(session, set.as_ref()).await,
        Command::Savepoint(command) => savepoint::run(session, command).await,
        Command::Reset(name) => set::reset(session, name.as_deref()),
        Command::Set(set) => set::set(session, set),
        Command::Fetch(fetch) => cursor::fetch(session, fetch).await,
        Command::Sql(statement) => run_sql(session, statement, run).await,
    }
}

async fn run_sql(
    session: &mut Session,
    statement: &ast::Statement,
    run: &Run<'_>,
) -> Result<Outcome> {
    use ast::Statement as S;
    match statement {
        S::Insert(insert) => insert::run(session, insert, run).await,
        S::Update(update) => update::run(session, update, run).await,
        S::Delete(delete) => delete::run(session, delete, run).await,
        S::Truncate(truncate) => delete::truncate(session, truncate, run),
        S::StartTransaction { modes, statements, .. } if statements.is_empty() => {
            transaction::begin(session, modes, statement)
        }
        S::Commit { chain, .. } => transaction::commit(session, *chain).await,
        S::Rollback { chain, savepoint: None } => Ok(transaction::roll_back(session, *chain)),
        S::Rollback { savepoint: Some(name), .. } => transaction::roll_back_to(session, name),
        S::Savepoint { name } => transaction::savepoint(session, name),
        S::ReleaseSavepoint { name } => transaction::release(session, name),
        S::Set(set) => set::set_other(session, set),
        S::Discard { object_type } => set::discard(session, object_type),
        S::Prepare { name, statement, .. } => prepare::prepare(session, name, statement, run),
        S::Execute { .. } => prepare::execute(session, statement, run).await,
        S::Deallocate { name, .. } => prepare::deallocate(session, name),
        S::Declare { stmts } => cursor::declare(session, stmts, run).await,
        S::Close { cursor } => cursor::close(session, cursor),
        S::CreateSchema { schema_name, if_not_exists, .. } => {
            schema::create(session, schema_name, *if_not_exists).await
        }
        S::Drop { object_type: ast::ObjectType::Schema, if_exists, names, cascade, .. } => {
            schema::drop(session, names, *if_exists, *cascade).await
        }
        S::LISTEN { .. } | S::UNLISTEN { .. } | S::NOTIFY { .. } => unlisten(statement),
        other => Err(unsupported(other)),
    }
}

/// What a CREATE is to make.
pub(crate) struct Target {
    pub(crate) id: RelationId,
    pub(crate) name: RelationName,
    /// The columns that it had, when it is made again.
    pub(crate) columns: Option<SchemaRef>,
}

/// Plans what a CREATE makes, whether for the first time or again.
///
/// # Errors
/// Any of planning; XX001 when the statement makes nothing.
pub(crate) async fn plan_definition(
    session: &Session,
    command: &Command,
    target: Target,
    run: &Run<'_>,
) -> Result<Definition> {
    match command {
        Command::CreateRelation(create) => {
            create_relation::plan(session, create, target, run).await
        }
        Command::CreateView(create) => create_view::plan(session, create, target, run),
        Command::CreateSink(create) => create_sink::plan(session, create, target, run).await,
        other => Err(SqlError::new("XX001", format!("{} defines nothing", other.kind()))),
    }
}

/// UNLISTEN undoes nothing, since nothing can be listened to; pools send it.
fn unlisten(statement: &ast::Statement) -> Result<Outcome> {
    match statement {
        ast::Statement::UNLISTEN { .. } => Ok(command("UNLISTEN")),
        other => Err(unsupported(other)),
    }
}

/// 0A000 with the statement's first words.
fn unsupported(statement: &ast::Statement) -> SqlError {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    let first = match words.as_slice() {
        [first @ ("CREATE" | "ALTER" | "DROP" | "SHOW"), second] => format!("{first} {second}"),
        [first, ..] => (*first).to_string(),
        [] => "this statement".to_string(),
    };
    SqlError::unsupported(first)
}

/// Describes a statement without running it.
pub(crate) async fn describe(
    session: &mut Session,
    statement: &Statement,
    parameter_types: &[Option<DataType>],
) -> Result<Description> {
    describe::run(session, statement, parameter_types).await
}

/// Writes the rows of a COPY FROM STDIN.
pub(crate) async fn copy_in(
    session: &mut Session,
    target: &CopyTarget,
    rows: Vec<RecordBatch>,
) -> Result<u64> {
    copy::copy_in(session, target, rows).await
}

/// One value as text, for messages.
pub(crate) use assign::cell as cell_text;

/// An outcome that is only a tag.
fn command(tag: impl Into<String>) -> Outcome {
    Outcome::Command { tag: tag.into() }
}

/// An outcome of rows that are there already.
fn rows(schema: SchemaRef, batches: Vec<RecordBatch>, tag: &'static str) -> Outcome {
    let rows: RowStream = Box::pin(futures::stream::iter(batches.into_iter().map(Ok)));
    Outcome::Rows { schema, rows, tag }
}

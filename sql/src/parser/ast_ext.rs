//! Our statements as data.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::{self, DataType, Expr, Ident, ObjectName, Query};

/// One statement.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// A SELECT, VALUES or TABLE.
    Query(StreamQuery),
    /// CREATE TABLE or SOURCE.
    CreateRelation(Box<CreateRelation>),
    /// CREATE VIEW or MATERIALIZED VIEW.
    CreateView(Box<CreateView>),
    /// CREATE SINK.
    CreateSink(Box<CreateSink>),
    /// DROP of one of our kinds.
    Drop(DropRelation),
    /// SHOW.
    Show(Show),
    /// DESCRIBE name.
    Describe(ObjectName),
    /// EXPLAIN.
    Explain(Box<Explain>),
    /// SUBSCRIBE.
    Subscribe(SubscribeTarget),
    /// COPY.
    Copy(Box<Copy>),
    /// FLUSH.
    Flush,
    /// CHECKPOINT.
    Checkpoint,
    /// CREATE SAVEPOINT and DROP SAVEPOINT: copies of the database. SAVEPOINT is a transaction's.
    Savepoint(SavepointCommand),
    /// ALTER MATERIALIZED VIEW name RESUME, and the like for sources and sinks.
    Resume { kind: RelationKind, name: ObjectName },
    /// ALTER MATERIALIZED VIEW name AS query: the view as it is to be.
    AlterView(Box<CreateView>),
    /// ALTER SYSTEM SET (`None` for DEFAULT) and RESET; RESET ALL without one.
    AlterSystem(Option<SetVariable>),
    /// RESET name or RESET ALL (`None`).
    Reset(Option<String>),
    /// SET name = value; `None` is DEFAULT.
    Set(SetVariable),
    /// FETCH or MOVE.
    Fetch(FetchCursor),
    /// What sqlparser gives, for the rest.
    Sql(Box<ast::Statement>),
}

/// A query and when its results come out.
#[derive(Clone, Debug)]
pub(crate) struct StreamQuery {
    pub(crate) query: Box<Query>,
    pub(crate) emit: Option<Emit>,
    /// Joins hold their rows for ever, and none is late.
    pub(crate) keeps_late: bool,
}

impl StreamQuery {
    /// Of which no more is said.
    pub(crate) fn new(query: Box<Query>, emit: Option<Emit>) -> Self {
        Self { query, emit, keeps_late: false }
    }
}

/// An EMIT clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emit {
    /// EMIT ON WINDOW CLOSE.
    OnWindowClose,
    /// EMIT ON UPDATE: the default.
    OnUpdate,
    /// EMIT CHANGES: follow the query.
    Changes,
}

/// Which kind of relation a CREATE makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreateKind {
    Table,
    Source,
}

/// CREATE TABLE and CREATE SOURCE.
#[derive(Clone, Debug)]
pub(crate) struct CreateRelation {
    pub(crate) kind: CreateKind,
    pub(crate) or_replace: bool,
    pub(crate) temporary: bool,
    pub(crate) if_not_exists: bool,
    pub(crate) name: ObjectName,
    pub(crate) columns: Vec<ColumnSpec>,
    pub(crate) primary_key: Option<Vec<Ident>>,
    pub(crate) watermark: Option<(Ident, Expr)>,
    pub(crate) options: TableOptions,
    pub(crate) query: Option<StreamQuery>,
}

/// What follows the columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableOptions {
    pub(crate) append_only: bool,
    /// ON CONFLICT: what an insert of an existing key does.
    pub(crate) on_conflict: Option<TableConflict>,
    /// WITH options, FORMAT and ENCODE, names in lower case.
    pub(crate) with: BTreeMap<String, String>,
}

/// Conflict rule of a whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableConflict {
    Overwrite,
    Ignore,
}

/// One column of a CREATE TABLE.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSpec {
    pub(crate) name: Ident,
    /// `None`: that of the generating expression.
    pub(crate) data_type: Option<DataType>,
    pub(crate) not_null: bool,
    pub(crate) default: Option<Expr>,
    pub(crate) generated: Option<Expr>,
}

/// CREATE VIEW and CREATE MATERIALIZED VIEW.
#[derive(Clone, Debug)]
pub(crate) struct CreateView {
    pub(crate) materialized: bool,
    pub(crate) or_replace: bool,
    pub(crate) if_not_exists: bool,
    pub(crate) name: ObjectName,
    pub(crate) columns: Vec<Ident>,
    pub(crate) query: StreamQuery,
    pub(crate) with: BTreeMap<String, String>,
}

/// CREATE SINK.
#[derive(Clone, Debug)]
pub(crate) struct CreateSink {
    pub(crate) if_not_exists: bool,
    pub(crate) name: ObjectName,
    pub(crate) input: SinkInput,
    pub(crate) options: TableOptions,
}

/// What a sink gets.
#[derive(Clone, Debug)]
pub(crate) enum SinkInput {
    From(ObjectName),
    Query(StreamQuery),
}

/// Kinds of relation by name.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RelationKind {
    Table,
    Source,
    View,
    MaterializedView,
    Sink,
}

impl RelationKind {
    /// As in `"x" is not a table`.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Source => "source",
            Self::View => "view",
            Self::MaterializedView => "materialized view",
            Self::Sink => "sink",
        }
    }

    /// As in DROP TABLE.
    pub(crate) fn keyword(self) -> &'static str {
        match self {
            Self::Table => "TABLE",
            Self::Source => "SOURCE",
            Self::View => "VIEW",
            Self::MaterializedView => "MATERIALIZED VIEW",
            Self::Sink => "SINK",
        }
    }
}

/// DROP kind names.
#[derive(Clone, Debug)]
pub(crate) struct DropRelation {
    pub(crate) kind: RelationKind,
    pub(crate) if_exists: bool,
    pub(crate) names: Vec<ObjectName>,
    pub(crate) cascade: bool,
}

/// CREATE SAVEPOINT and DROP SAVEPOINT.
#[derive(Clone, Debug)]
pub(crate) enum SavepointCommand {
    Create { name: Ident, if_not_exists: bool },
    Drop { name: Ident, if_exists: bool },
}

/// SHOW.
#[derive(Clone, Debug)]
pub(crate) enum Show {
    Relations(RelationKind),
    Jobs,
    Schemas,
    Databases,
    Connectors,
    Checkpoints,
    Savepoints,
    Columns(ObjectName),
    Create(Option<RelationKind>, ObjectName),
    All,
    Setting(String),
}

/// EXPLAIN.
#[derive(Clone, Debug)]
pub(crate) struct Explain {
    pub(crate) analyze: bool,
    pub(crate) verbose: bool,
    pub(crate) command: Command,
}

/// What a SUBSCRIBE follows.
#[derive(Clone, Debug)]
pub(crate) enum SubscribeTarget {
    Relation(ObjectName),
    Query(StreamQuery),
}

/// COPY.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) source: CopySource,
    pub(crate) to: bool,
    pub(crate) target: ast::CopyTarget,
    pub(crate) options: Vec<ast::CopyOption>,
    pub(crate) legacy_options: Vec<ast::CopyLegacyOption>,
}

/// What a COPY copies.
#[derive(Clone, Debug)]
pub(crate) enum CopySource {
    Table(ObjectName, Vec<Ident>),
    Query(StreamQuery),
    Subscribe(SubscribeTarget),
}

/// SET.
#[derive(Clone, Debug)]
pub(crate) struct SetVariable {
    pub(crate) local: bool,
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

/// FETCH or MOVE count FROM cursor.
#[derive(Clone, Debug)]
pub(crate) struct FetchCursor {
    pub(crate) moves: bool,
    pub(crate) count: Option<u64>,
    pub(crate) cursor: String,
}

impl Command {
    /// The first words of the statement, as command tags have them.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Query(_) => "SELECT",
            Self::CreateRelation(create) => match create.kind {
                CreateKind::Table if create.query.is_some() => "CREATE TABLE AS",
                CreateKind::Table => "CREATE TABLE",
                CreateKind::Source => "CREATE SOURCE",
            },
            Self::CreateView(create) if create.materialized => "CREATE MATERIALIZED VIEW",
            Self::CreateView(_) => "CREATE VIEW",
            Self::CreateSink(_) => "CREATE SINK",
            Self::Drop(drop) => match drop.kind {
                RelationKind::Table => "DROP TABLE",
                RelationKind::Source => "DROP SOURCE",
                RelationKind::View => "DROP VIEW",
                RelationKind::MaterializedView => "DROP MATERIALIZED VIEW",
                RelationKind::Sink => "DROP SINK",
            },
            Self::Show(_) => "SHOW",
            Self::Describe(_) => "DESCRIBE",
            Self::Explain(_) => "EXPLAIN",
            Self::Subscribe(_) => "SUBSCRIBE",
            Self::Copy(_) => "COPY",
            Self::Flush => "FLUSH",
            Self::Checkpoint => "CHECKPOINT",
            Self::Savepoint(SavepointCommand::Create { .. }) => "CREATE SAVEPOINT",
            Self::Savepoint(SavepointCommand::Drop { .. }) => "DROP SAVEPOINT",
            Self::Resume { kind: RelationKind::MaterializedView, .. } | Self::AlterView(_) => {
                "ALTER MATERIALIZED VIEW"
            }
            Self::Resume { kind: RelationKind::Sink, .. } => "ALTER SINK",
            Self::Resume { .. } => "ALTER SOURCE",
            Self::AlterSystem(_) => "ALTER SYSTEM",
            Self::Reset(_) => "RESET",
            Self::Set(_) => "SET",
            Self::Fetch(fetch) if fetch.moves => "MOVE",
            Self::Fetch(_) => "FETCH",
            Self::Sql(statement) => sql_kind(statement),
        }
    }

    /// Whether an EMIT clause may follow.
    pub(crate) fn takes_emit(&self) -> bool {
        match self {
            Self::Query(_)
            | Self::CreateView(_)
            | Self::AlterView(_)
            | Self::Explain(_)
            | Self::Subscribe(_) => true,
            Self::CreateSink(sink) => matches!(sink.input, SinkInput::Query(_)),
            _ => false,
        }
    }
}

fn sql_kind(statement: &ast::Statement) -> &'static str {
    use ast::Statement as S;
    match statement {
        S::Insert(_) => "INSERT",
        S::Update(_) => "UPDATE",
        S::Delete(_) => "DELETE",
        S::Truncate(_) => "TRUNCATE TABLE",
        S::StartTransaction { begin: true, .. } => "BEGIN",
        S::StartTransaction { .. } => "START TRANSACTION",
        S::Commit { .. } => "COMMIT",
        S::Rollback { .. } => "ROLLBACK",
        S::Savepoint { .. } => "SAVEPOINT",
        S::ReleaseSavepoint { .. } => "RELEASE",
        S::CreateSchema { .. } => "CREATE SCHEMA",
        S::Drop { .. } => "DROP",
        S::Set(_) => "SET",
        S::Discard { .. } => "DISCARD ALL",
        S::Deallocate { .. } => "DEALLOCATE",
        S::Prepare { .. } => "PREPARE",
        S::Execute { .. } => "EXECUTE",
        S::Declare { .. } => "DECLARE CURSOR",
        S::Close { .. } => "CLOSE CURSOR",
        S::CreateIndex(_) => "CREATE INDEX",
        S::CreateFunction(_) => "CREATE FUNCTION",
        S::AlterTable(_) => "ALTER TABLE",
        S::Merge(_) => "MERGE",
        S::Grant(_) => "GRANT",
        S::Revoke(_) => "REVOKE",
        S::Comment { .. } => "COMMENT",
        S::UNLISTEN { .. } => "UNLISTEN",
        S::LISTEN { .. } => "LISTEN",
        S::NOTIFY { .. } => "NOTIFY",
        _ => "statement",
    }
}

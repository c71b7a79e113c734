//! What a statement gives: rows, a command tag, or one side of a COPY.

use std::pin::Pin;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, SchemaRef};
use futures::Stream;

use crate::error::Result;

/// Batches of rows, lazily: dropping the stream frees what the query holds.
pub type RowStream = Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>;

/// What executing one statement gave.
pub enum Outcome {
    /// SELECT, SHOW, EXPLAIN, FETCH, RETURNING, SUBSCRIBE (endless: columns `epoch`, `weight`, then the view's).
    Rows {
        /// Names and types. Field metadata `pg.type` names the Postgres type where Arrow's is not enough.
        schema: SchemaRef,
        /// The rows.
        rows: RowStream,
        /// First word of the command tag: `SELECT`, `SHOW`, `EXPLAIN`, `FETCH`, `SUBSCRIBE`, `INSERT 0`...
        tag: &'static str,
    },
    /// Anything without rows; the whole tag: `INSERT 0 3`, `CREATE TABLE`, `BEGIN`.
    Command {
        /// The tag.
        tag: String,
    },
    /// COPY ... TO STDOUT: the server encodes the rows.
    CopyOut {
        /// Names and types.
        schema: SchemaRef,
        /// The rows.
        rows: RowStream,
        /// How to encode them.
        format: CopyFormat,
    },
    /// COPY ... FROM STDIN: the server decodes what the client sends and calls `Session::copy_in`.
    CopyIn {
        /// Handed back to `Session::copy_in`.
        target: CopyTarget,
        /// How the client encodes them.
        format: CopyFormat,
    },
    /// An empty statement.
    Empty,
}

/// The table that a COPY FROM writes to.
#[derive(Clone, Debug)]
pub struct CopyTarget {
    /// Name as the user wrote it.
    pub table: String,
    /// Names and types of the columns sent, in order.
    pub schema: SchemaRef,
}

/// Encoding of a COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// Text, CSV or binary.
    pub kind: CopyKind,
    /// Between columns; tab for text, comma for CSV.
    pub delimiter: char,
    /// What stands for NULL; `\N` for text, empty for CSV.
    pub null: String,
    /// A first line with names.
    pub header: bool,
    /// CSV quote.
    pub quote: char,
}

/// Which encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyKind {
    /// Postgres's text format.
    Text,
    /// CSV.
    Csv,
    /// Postgres's binary format.
    Binary,
}

/// What a prepared statement looks like before it runs.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Types of `$1`, `$2`, ...; metadata `pg.type` as for columns.
    pub parameters: Vec<FieldRef>,
    /// The result's columns; `None` when it gives no rows.
    pub columns: Option<SchemaRef>,
}

/// Where a session stands between statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No transaction.
    Idle,
    /// Inside BEGIN.
    Active,
    /// Inside BEGIN, after an error: only ROLLBACK (or COMMIT, which rolls back) is taken.
    Failed,
}

/// A message beside the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `NOTICE`, `WARNING`, `INFO`.
    pub severity: &'static str,
    /// SQLSTATE, `00000` for none.
    pub sqlstate: &'static str,
    /// Text.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

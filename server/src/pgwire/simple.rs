//! The simple query protocol: a string of statements, run and answered one after the other.
//!
//! Several statements in one string are one transaction, unless they say otherwise themselves: an error skips the rest
//! and undoes what came before. Definitions take effect at once, with what came before them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millstream_sql::Outcome;
use millstream_sql::session::Statement;
use pgwire::messages::response::EmptyQueryResponse;

use crate::pgwire::connection::Connection;
use crate::pgwire::encode::{RowEncoder, row_description};
use crate::pgwire::error::Failure;
use crate::pgwire::rows::Cursor;
use crate::pgwire::watch::settle;

impl Connection {
    pub(crate) async fn simple_query(&mut self, sql: &str) -> Result<(), Failure> {
        self.portals.remove("");
        self.prepared.remove("");
        let parsed = catch_unwind(AssertUnwindSafe(|| self.session.parse(sql)));
        let statements = settle(parsed)?;
        if statements.is_empty() {
            self.output.put(&EmptyQueryResponse::new());
        }
        let together = statements.len() > 1;
        for statement in &statements {
            if together {
                self.session.begin_implicit();
            }
            if let Err(failure) = self.simple_statement(statement).await {
                self.session.abort_implicit();
                return Err(failure);
            }
        }
        self.session.end_implicit()?;
        Ok(())
    }

    async fn simple_statement(&mut self, statement: &Statement) -> Result<(), Failure> {
        self.check_transaction(statement)?;
        let watch = self.begin();
        match self.execute(statement, &[], &watch).await? {
            Outcome::Rows { schema, rows, tag } => {
                let encoder = RowEncoder::new(&schema, &[], self.styles())?;
                row_description(&schema, encoder.formats(), &mut self.output.buffer);
                let mut cursor = Cursor::new(encoder, rows, tag);
                let sent = cursor.send(None, &mut self.output, &watch).await?;
                self.shared.counters.rows_sent(sent.rows);
                self.put_notices();
                self.output.complete(cursor.tag(sent.rows));
            }
            Outcome::Command { tag } => self.output.complete(tag),
            Outcome::CopyOut { schema, rows, format } => {
                self.copy_out(&schema, rows, &format, &watch).await?;
            }
            Outcome::CopyIn { target, format } => self.copy_in(&target, &format, &watch).await?,
            Outcome::Empty => self.output.put(&EmptyQueryResponse::new()),
        }
        self.registration.control.end();
        Ok(())
    }
}

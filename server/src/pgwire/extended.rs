//! The extended protocol: Parse, Bind, Describe, Execute, Close. Errors propagate; the connection
//! then skips to Sync.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use millstream_sql::session::Statement;
use millstream_sql::{Description, Outcome, SqlError, TransactionStatus};
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    BindComplete, CloseComplete, ParseComplete, PortalSuspended,
};
use pgwire::messages::response::EmptyQueryResponse;

use crate::pgwire::connection::Connection;
use crate::pgwire::decode_params;
use crate::pgwire::encode::{RowEncoder, row_description, spread_formats};
use crate::pgwire::error::{Failure, error};
use crate::pgwire::frontend::{Bind, Target};
use crate::pgwire::portal::{Parameter, Portal, PortalState, Prepared};
use crate::pgwire::rows::{Cursor, same_types};
use crate::pgwire::types::PgType;
use crate::pgwire::watch::{Watch, settle};

impl Connection {
    pub(crate) async fn parse(
        &mut self,
        name: String,
        sql: &str,
        types: &[u32],
    ) -> Result<(), Failure> {
        if name.is_empty() {
            self.prepared.remove("");
        } else if self.prepared.contains_key(&name) {
            let text = format!("prepared statement \"{name}\" already exists");
            return Err(error("42P05", text).into());
        }
        let parsed = catch_unwind(AssertUnwindSafe(|| self.session.parse(sql)));
        let mut statements = settle(parsed)?;
        if statements.len() > 1 {
            let text = "cannot insert multiple commands into a prepared statement";
            return Err(error("42601", text).into());
        }
        let statement = statements.pop();
        let declared: Vec<Option<PgType>> =
            types.iter().map(|oid| PgType::from_oid(*oid)).collect();
        let description = match &statement {
            None => Description::default(),
            Some(statement) => {
                self.check_transaction(statement)?;
                self.describe_statement(statement, &declared).await?
            }
        };
        let parameters = parameters(declared, description.parameters);
        let columns = description.columns;
        let prepared = Prepared { name: name.clone(), statement, parameters, columns };
        self.prepared.insert(name, Arc::new(prepared));
        self.output.put(&ParseComplete::new());
        Ok(())
    }

    async fn describe_statement(
        &mut self,
        statement: &Statement,
        declared: &[Option<PgType>],
    ) -> Result<Description, Failure> {
        let types: Vec<Option<DataType>> =
            declared.iter().map(|known| known.as_ref().map(PgType::arrow_type)).collect();
        let watch = self.begin();
        let handle = self.session.cancel_handle();
        let work = Box::pin(self.session.describe(statement, &types));
        watch.run(&handle, work).await
    }

    pub(crate) fn bind(&mut self, bind: Bind) -> Result<(), Failure> {
        let prepared = Arc::clone(self.find_prepared(&bind.statement)?);
        if bind.portal.is_empty() {
            self.portals.remove("");
        } else if self.portals.contains_key(&bind.portal) {
            let text = format!("cursor \"{}\" already exists", bind.portal);
            return Err(error("42P03", text).into());
        }
        if let Some(statement) = &prepared.statement {
            self.check_transaction(statement)?;
        }
        let parameters = decode_params::decode(&prepared, &bind, &self.styles().zone)?;
        let columns = prepared.columns.as_ref().map_or(0, |columns| columns.fields().len());
        let result_formats = match &prepared.columns {
            Some(_) => spread_formats(&bind.result_formats, columns)?,
            None => Vec::new(),
        };
        let state = PortalState::Ready;
        let portal = Portal { prepared, parameters, result_formats, state };
        self.portals.insert(bind.portal, portal);
        self.output.put(&BindComplete::new());
        Ok(())
    }

    fn find_prepared(&self, name: &str) -> Result<&Arc<Prepared>, SqlError> {
        self.prepared.get(name).ok_or_else(|| {
            let text = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            error("26000", text)
        })
    }

    pub(crate) async fn describe(&mut self, target: &Target) -> Result<(), Failure> {
        match target {
            Target::Statement(name) => {
                let prepared = Arc::clone(self.find_prepared(name)?);
                let oids = prepared.parameters.iter().map(|p| p.pg_type.oid).collect();
                self.output.put(&ParameterDescription::new(oids));
                match &prepared.columns {
                    Some(columns) => row_description(columns, &[], &mut self.output.buffer),
                    None => self.output.put(&NoData::new()),
                }
            }
            Target::Portal(name) => {
                let Some(portal) = self.portals.get(name) else {
                    return self.describe_cursor(name).await;
                };
                match &portal.prepared.columns {
                    Some(columns) => {
                        let formats = &portal.result_formats;
                        row_description(columns, formats, &mut self.output.buffer);
                    }
                    None => self.output.put(&NoData::new()),
                }
            }
        }
        Ok(())
    }

    /// Cursors of SQL (DECLARE) share the names of portals: clients describe them like any other.
    async fn describe_cursor(&mut self, name: &str) -> Result<(), Failure> {
        let fetch = format!("FETCH FROM \"{}\"", name.replace('"', "\"\""));
        let statements = self.session.parse(&fetch).unwrap_or_default();
        let [statement] = statements.as_slice() else { return Err(no_portal(name).into()) };
        let described = self.describe_statement(statement, &[]).await?;
        let columns = described.columns.ok_or_else(|| no_portal(name))?;
        row_description(&columns, &[], &mut self.output.buffer);
        Ok(())
    }

    /// Closing what is not there is no error.
    pub(crate) fn close(&mut self, target: &Target) {
        match target {
            Target::Statement(name) => {
                if let Some(closed) = self.prepared.remove(name) {
                    // Portals of a statement go with it.
                    self.portals.retain(|_, portal| !Arc::ptr_eq(&portal.prepared, &closed));
                }
            }
            Target::Portal(name) => drop(self.portals.remove(name)),
        }
        self.output.put(&CloseComplete::new());
    }

    pub(crate) async fn execute_portal(
        &mut self,
        name: &str,
        max_rows: i32,
    ) -> Result<(), Failure> {
        // A portal that fails is gone: it is put back only when it can go on.
        let mut portal = self.portals.remove(name).ok_or_else(|| no_portal(name))?;
        let limit = u64::try_from(max_rows).ok().filter(|limit| *limit > 0);
        let watch = self.begin();
        let state = std::mem::replace(&mut portal.state, PortalState::Finished);
        portal.state = match state {
            PortalState::Ready => self.start_portal(&mut portal, limit, &watch).await?,
            PortalState::Open(cursor) => self.fetch(cursor, limit, &watch).await?,
            PortalState::Exhausted(cursor) => {
                self.output.complete(cursor.tag(0));
                PortalState::Exhausted(cursor)
            }
            PortalState::Finished => {
                return Err(error("55000", format!("portal \"{name}\" cannot be run")).into());
            }
        };
        self.registration.control.end();
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    async fn start_portal(
        &mut self,
        portal: &mut Portal,
        limit: Option<u64>,
        watch: &Watch,
    ) -> Result<PortalState, Failure> {
        let Some(statement) = &portal.prepared.statement else {
            self.output.put(&EmptyQueryResponse::new());
            return Ok(PortalState::Ready);
        };
        self.check_transaction(statement)?;
        let before = self.session.transaction_status();
        let outcome = self.execute(statement, &portal.parameters, watch).await?;
        let ended = before != TransactionStatus::Idle
            && self.session.transaction_status() == TransactionStatus::Idle;
        if ended {
            self.portals.clear();
        }
        match outcome {
            Outcome::Rows { schema, rows, tag } => {
                let described = portal.prepared.columns.as_deref();
                if !described.is_some_and(|described| same_types(described, &schema)) {
                    let text = "cached plan must not change result type";
                    let name = &portal.prepared.name;
                    let detail =
                        format!("Statement \"{name}\" gives other columns than described.");
                    return Err(error("0A000", text).with_detail(detail).into());
                }
                let encoder = RowEncoder::new(&schema, &portal.result_formats, self.styles())?;
                let cursor = Box::new(Cursor::new(encoder, rows, tag));
                return self.fetch(cursor, limit, watch).await;
            }
            Outcome::Command { tag } => self.output.complete(tag),
            Outcome::CopyOut { schema, rows, format } => {
                self.copy_out(&schema, rows, &format, watch).await?;
            }
            Outcome::CopyIn { target, format } => self.copy_in(&target, &format, watch).await?,
            Outcome::Empty => self.output.put(&EmptyQueryResponse::new()),
        }
        Ok(PortalState::Finished)
    }

    async fn fetch(
        &mut self,
        mut cursor: Box<Cursor>,
        limit: Option<u64>,
        watch: &Watch,
    ) -> Result<PortalState, Failure> {
        let sent = cursor.send(limit, &mut self.output, watch).await?;
        self.shared.counters.rows_sent(sent.rows);
        self.put_notices();
        if sent.suspended {
            self.output.put(&PortalSuspended::new());
            return Ok(PortalState::Open(cursor));
        }
        self.output.complete(cursor.tag(sent.rows));
        Ok(PortalState::Exhausted(cursor))
    }
}

fn no_portal(name: &str) -> SqlError {
    error("34000", format!("portal \"{name}\" does not exist"))
}

/// What was declared wins; the rest is as the planner inferred it.
fn parameters(declared: Vec<Option<PgType>>, inferred: Vec<FieldRef>) -> Vec<Parameter> {
    let count = declared.len().max(inferred.len());
    let mut declared = declared.into_iter();
    let mut inferred = inferred.into_iter();
    let next = |_| {
        let (declared, inferred) = (declared.next().flatten(), inferred.next());
        let pg_type = declared
            .or_else(|| inferred.as_ref().map(|field| PgType::from_field(field)))
            .unwrap_or_else(PgType::text);
        let data_type =
            inferred.map_or_else(|| pg_type.arrow_type(), |field| field.data_type().clone());
        Parameter { pg_type, data_type }
    };
    (0..count).map(next).collect()
}

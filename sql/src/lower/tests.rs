//! SQL to stream plan text.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::datasource::empty::EmptyTable;
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Statement, TableFactor, With};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_common::TableReference;
use datafusion_expr::LogicalPlan;
use millstream_engine::plan::{Properties, RelationId, StreamPlan};

use super::{LowerOptions, RelationResolver, ResolvedRelation, lower, optimize_streaming};
use crate::error::SqlError;
use crate::functions::session_context;
use crate::rewrite::rewrite_query;

mod aggregates;
mod intervals;
mod joins;
mod nexmark;
mod refused;
mod relational;
mod top_n;
mod windows;

/// Tables that tests query, with what is known of each.
fn relations() -> Vec<(&'static str, SchemaRef, Properties)> {
    use DataType::{Boolean, Float64, Int32, Int64, Utf8View};
    let time = || DataType::Timestamp(TimeUnit::Microsecond, None);
    let schema = |columns: Vec<(&str, DataType)>| -> SchemaRef {
        let field = |(name, data_type)| Field::new(name, data_type, true);
        Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<_>>()))
    };
    let stream = |time: usize| Properties {
        append_only: true,
        unique_key: None,
        watermark_columns: vec![time],
    };
    let bid = schema(vec![
        ("auction", Int64),
        ("bidder", Int64),
        ("price", Int64),
        ("channel", Utf8View),
        ("url", Utf8View),
        ("date_time", time()),
        ("extra", Utf8View),
    ]);
    let auction = schema(vec![
        ("id", Int64),
        ("item_name", Utf8View),
        ("description", Utf8View),
        ("initial_bid", Int64),
        ("reserve", Int64),
        ("date_time", time()),
        ("expires", time()),
        ("seller", Int64),
        ("category", Int64),
        ("extra", Utf8View),
    ]);
    let person = schema(vec![
        ("id", Int64),
        ("name", Utf8View),
        ("email_address", Utf8View),
        ("credit_card", Utf8View),
        ("city", Utf8View),
        ("state", Utf8View),
        ("date_time", time()),
        ("extra", Utf8View),
    ]);
    let table = schema(vec![("a", Int32), ("b", Int64), ("c", Utf8View)]);
    let list = DataType::List(Arc::new(Field::new_list_field(Int64, true)));
    let lists = schema(vec![("id", Int64), ("items", list), ("flag", Boolean), ("x", Float64)]);
    let keyed = Properties { unique_key: Some(vec![0]), ..Properties::default() };
    vec![
        ("bid", bid, stream(5)),
        ("auction", auction, stream(5)),
        ("person", person, stream(6)),
        ("t", Arc::clone(&table), Properties::default()),
        ("u", table, keyed),
        ("lists", lists, Properties::default()),
    ]
}

struct Tables(Vec<(&'static str, SchemaRef, Properties)>);

impl RelationResolver for Tables {
    fn resolve(&self, table: &TableReference) -> Option<ResolvedRelation> {
        let place = self.0.iter().position(|(name, ..)| *name == table.table())?;
        let (_, schema, properties) = &self.0[place];
        Some(ResolvedRelation {
            id: RelationId(place as u64),
            schema: Arc::clone(schema),
            properties: properties.clone(),
        })
    }
}

fn context() -> SessionContext {
    let context = session_context();
    for (name, schema, _) in relations() {
        context.register_table(name, Arc::new(EmptyTable::new(schema))).unwrap();
    }
    context
}

async fn logical_plan(state: &SessionState, sql: &str) -> Result<LogicalPlan, SqlError> {
    let mut statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
    if let Statement::Query(query) = &mut statement {
        let columns = |table: &TableFactor, _: &[With]| {
            let TableFactor::Table { name, .. } = table else { return None };
            let name = name.to_string();
            let found = relations().into_iter().find(|(known, ..)| *known == name)?;
            Some(found.1.fields().iter().map(|field| field.name().clone()).collect())
        };
        rewrite_query(query, &columns)?;
    }
    let statement = DfStatement::Statement(Box::new(statement));
    Ok(state.statement_to_plan(statement).await?)
}

/// Plans and runs as a one-shot query, over empty tables: how many rows there are.
fn run_once(sql: &str) -> Result<usize, SqlError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let context = context();
        let logical = logical_plan(&context.state(), sql).await?;
        let batches = context.execute_logical_plan(logical).await?.collect().await?;
        Ok(batches.iter().map(RecordBatch::num_rows).sum())
    })
}

async fn stream_plan(sql: &str, options: LowerOptions) -> Result<StreamPlan, SqlError> {
    let state = context().state();
    let logical = logical_plan(&state, sql).await?;
    let optimized = optimize_streaming(&state, logical)?;
    if std::env::var_os("SHOW_LOGICAL").is_some() {
        eprintln!("{}", optimized.display_indent());
    }
    lower(&optimized, &Tables(relations()), options)
}

/// The plan of a query, or why there is none.
fn plan_text(sql: &str, options: LowerOptions) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    match runtime.block_on(stream_plan(sql, options)) {
        Ok(plan) => format!("{plan}\n"),
        Err(error) => {
            let hint = error.hint.map_or(String::new(), |hint| format!("HINT: {hint}\n"));
            format!("{} {}\n{hint}", error.sqlstate, error.message)
        }
    }
}

fn check(sql: &str, expected: expect_test::Expect) {
    expected.assert_eq(&plan_text(sql, LowerOptions::default()));
}

fn check_on_close(sql: &str, expected: expect_test::Expect) {
    expected
        .assert_eq(&plan_text(sql, LowerOptions { emit_on_window_close: true, keeps_late: false }));
}

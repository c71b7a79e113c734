//! What a statement looks like before it runs: parameter types and result columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{self, Expr, Ident, SelectItem, TableObject, Value};

use super::{explain, insert, returning, show, subscribe};
use crate::error::Result;
use crate::outcome::Description;
use crate::parser::{Command, Emit, StreamQuery, SubscribeTarget};
use crate::query::run::{analyzed_schema, display_schema};
use crate::query::stream_plan::plan_stream;
use crate::session::{Session, Statement};
use crate::types::{arrow_type, with_pg_type};

pub(super) async fn run(
    session: &mut Session,
    statement: &Statement,
    given: &[Option<DataType>],
) -> Result<Description> {
    let text: &str = &statement.source;
    let mut fields: Vec<Option<FieldRef>> = given
        .iter()
        .map(|given| {
            let given = given.clone()?;
            Some(Arc::new(Field::new("", given, true)) as FieldRef)
        })
        .collect();
    let mut named = Vec::new();
    match statement.command.as_ref() {
        Command::Query(query) => cast_parameters(&query.query, &mut named),
        Command::Sql(statement) => cast_parameters(statement, &mut named),
        _ => {}
    }
    fields.resize(fields.len().max(named.len()), None);
    for (field, named) in fields.iter_mut().zip(&named) {
        // The planner takes a field with metadata for another type than one without.
        let plain =
            |named: &FieldRef| Arc::new(named.as_ref().clone().with_metadata(HashMap::new()));
        *field = field.take().or_else(|| named.as_ref().map(plain));
    }
    let describer = Describer { session, text, given, fields, named };
    describer.command(&statement.command).await
}

struct Describer<'a> {
    session: &'a mut Session,
    text: &'a str,
    given: &'a [Option<DataType>],
    /// Types of parameters that are cast, with their Postgres names.
    named: Vec<Option<FieldRef>>,
    fields: Vec<Option<FieldRef>>,
}

impl Describer<'_> {
    async fn command(&self, command: &Command) -> Result<Description> {
        match command {
            Command::Query(query) if query.emit == Some(Emit::Changes) => self.live(query),
            Command::Query(query) => self.query(query).await,
            Command::Subscribe(SubscribeTarget::Query(query)) => self.live(query),
            Command::Subscribe(SubscribeTarget::Relation(name)) => {
                let catalog = self.session.db.catalog();
                let relation = self.session.resolve(&catalog, name, self.text)?;
                Ok(columns(subscribe::output_schema(&relation.schema)))
            }
            Command::Show(show) => Ok(columns(show::schema(show, self.session))),
            Command::Describe(_) => Ok(columns(show::describe_schema())),
            Command::Explain(_) => {
                let field = Field::new(explain::LABEL, DataType::Utf8View, true);
                Ok(columns(Arc::new(Schema::new(vec![field]))))
            }
            Command::Fetch(fetch) if !fetch.moves => {
                let cursor = self.session.cursors.get(&fetch.cursor);
                Ok(Description {
                    parameters: Vec::new(),
                    columns: cursor.map(|cursor| Arc::clone(&cursor.schema)),
                })
            }
            Command::Sql(statement) => self.sql(statement).await,
            _ => Ok(Description::default()),
        }
    }

    async fn query(&self, query: &StreamQuery) -> Result<Description> {
        let mut planner = self.session.planner();
        planner.add_files(&query.query, self.text).await?;
        let (plan, _) = planner.plan_query(&query.query, &self.fields, self.text)?;
        let parameters = self.parameters(&plan)?;
        let columns = display_schema(&analyzed_schema(&planner, &plan));
        Ok(Description { parameters, columns: Some(columns) })
    }

    fn live(&self, query: &StreamQuery) -> Result<Description> {
        let planner = self.session.planner();
        let plan = plan_stream(&planner, query, &[], self.text)?.plan;
        Ok(columns(subscribe::output_schema(&plan.schema)))
    }

    async fn sql(&self, statement: &ast::Statement) -> Result<Description> {
        use ast::Statement as S;
        match statement {
            S::Insert(statement) => self.insert(statement).await,
            S::Update(update) => {
                let target = table_name(&update.table);
                self.dml(statement, target, update.returning.as_deref())
            }
            S::Delete(delete) => {
                let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) =
                    &delete.from;
                let target = from.first().and_then(table_name);
                self.dml(statement, target, delete.returning.as_deref())
            }
            S::Execute { name: Some(name), .. } => {
                let name = crate::parser::fold_name(name).pop().unwrap_or_default();
                match self.session.prepared.get(&name) {
                    Some(prepared) => match prepared.command.as_ref() {
                        Command::Query(query) => {
                            let columns = self.query(query).await?.columns;
                            Ok(Description { parameters: Vec::new(), columns })
                        }
                        _ => Ok(Description::default()),
                    },
                    None => Ok(Description::default()),
                }
            }
            S::Declare { stmts } => match stmts.first().and_then(|one| one.for_query.clone()) {
                Some(query) => {
                    let described = self.query(&StreamQuery::new(query, None)).await?;
                    Ok(Description { parameters: described.parameters, columns: None })
                }
                None => Ok(Description::default()),
            },
            _ => Ok(Description::default()),
        }
    }

    async fn insert(&self, statement: &ast::Insert) -> Result<Description> {
        let TableObject::TableName(name) = &statement.table else {
            return Ok(Description::default());
        };
        let relation = self.session.resolve(&self.session.db.catalog(), name, self.text)?;
        relation.table()?;
        let shortened = insert::with_listed_columns(statement, &relation);
        let statement = shortened.as_ref().unwrap_or(statement);
        let mut planner = self.session.planner();
        let plan =
            insert::plan(&mut planner, statement, &relation, self.text, &self.fields).await?;
        let parameters = self.parameters(&plan)?;
        let columns = match &statement.returning {
            None => None,
            Some(items) => {
                let alias = statement.table_alias.as_ref().map(|alias| &alias.alias);
                Some(self.returning(&relation, alias, items)?)
            }
        };
        Ok(Description { parameters, columns })
    }

    fn returning(
        &self,
        relation: &crate::catalog::Relation,
        alias: Option<&Ident>,
        items: &[SelectItem],
    ) -> Result<SchemaRef> {
        let planner = self.session.planner();
        let plan = returning::plan(&planner, relation, alias, items, self.text, &self.fields)?;
        Ok(display_schema(&analyzed_schema(&planner, &plan)))
    }

    /// UPDATE and DELETE: DataFusion plans them too, which tells the parameters' types.
    fn dml(
        &self,
        statement: &ast::Statement,
        target: Option<(&ast::ObjectName, Option<Ident>)>,
        items: Option<&[SelectItem]>,
    ) -> Result<Description> {
        let Some((name, alias)) = target else { return Ok(Description::default()) };
        let relation = self.session.resolve(&self.session.db.catalog(), name, self.text)?;
        relation.table()?;
        let mut plain = statement.clone();
        match &mut plain {
            ast::Statement::Update(update) => update.returning = None,
            ast::Statement::Delete(delete) => delete.returning = None,
            _ => {}
        }
        let has_parameters = mentions_parameters(&plain);
        let parameters = match has_parameters {
            false => Vec::new(),
            true => {
                let planner = self.session.planner();
                let plan = planner.plan_statement(plain, &self.fields, self.text)?;
                self.parameters(&plan)?
            }
        };
        let columns = match items {
            None => None,
            Some(items) => Some(self.returning(&relation, alias.as_ref(), items)?),
        };
        Ok(Description { parameters, columns })
    }

    /// The types of `$1`, `$2`...: as given, else as inferred, else text.
    fn parameters(&self, plan: &LogicalPlan) -> Result<Vec<FieldRef>> {
        let inferred = plan.get_parameter_fields()?;
        let number = |name: &String| name.trim_start_matches('$').parse::<usize>().unwrap_or(0);
        let most = inferred.keys().map(number).max().unwrap_or(0).max(self.given.len());
        let mut types = Vec::with_capacity(most);
        for at in 1..=most {
            let given = self.given.get(at - 1).cloned().flatten();
            let given = given.map(|given| Arc::new(Field::new("", given, true)) as FieldRef);
            let cast = self.named.get(at - 1).cloned().flatten();
            let found = inferred.get(&format!("${at}")).cloned().flatten();
            let known = given.or(cast).or(found).filter(|field| !field.data_type().is_null());
            let text = || Arc::new(Field::new("", DataType::Utf8View, true));
            types.push(known.unwrap_or_else(text));
        }
        Ok(types)
    }
}

fn columns(schema: SchemaRef) -> Description {
    Description { parameters: Vec::new(), columns: Some(schema) }
}

fn table_name(table: &ast::TableWithJoins) -> Option<(&ast::ObjectName, Option<Ident>)> {
    match &table.relation {
        ast::TableFactor::Table { name, alias, .. } => {
            Some((name, alias.as_ref().map(|alias| alias.name.clone())))
        }
        _ => None,
    }
}

/// `$1::int` says what `$1` is, at its first cast.
fn cast_parameters(statement: &impl ast::Visit, types: &mut Vec<Option<FieldRef>>) {
    let _ = ast::visit_expressions(statement, |expr: &Expr| {
        if let Expr::Cast { expr, data_type, array: false, .. } = expr
            && let Expr::Value(value) = expr.as_ref()
            && let Value::Placeholder(name) = &value.value
            && let Some(place) = name.trim_start_matches('$').parse::<usize>().ok()
            && (1..=PARAMETERS_MAX).contains(&place)
            && let Ok((arrow, name)) = arrow_type(data_type)
        {
            types.resize(types.len().max(place), None);
            let field = with_pg_type(Field::new("", arrow, true), name);
            types[place - 1].get_or_insert_with(|| Arc::new(field));
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
}

/// As many as the protocol can count.
const PARAMETERS_MAX: usize = 65_535;

fn mentions_parameters(statement: &ast::Statement) -> bool {
    let found = ast::visit_expressions(statement, |expr: &Expr| match expr {
        Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
            std::ops::ControlFlow::Break(())
        }
        _ => std::ops::ControlFlow::Continue(()),
    });
    found.is_break()
}

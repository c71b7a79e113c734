//! Names to plans: DataFusion's SQL planner over one catalog snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::{TableFunctionArgs, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, DataFusionError, Result as DfResult, TableReference};
use datafusion::datasource::ViewTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::logical_expr::planner::{
    ContextProvider, ExprPlanner, RelationPlanner, TypePlanner,
};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, LogicalPlanBuilder, ScalarUDF, TableSource,
    WindowUDF,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast::{self, Cte, Query, SetExpr, TableFactor, With};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use parking_lot::Mutex;

use super::reads::Reads;
use super::tables::{RelationTable, SystemRelation};
use super::{names, pg_surface, precedence};
use crate::catalog::system::{self, SystemContext};
use crate::catalog::{Detail, Relation};
use crate::error::{Result, SqlError, TextMap};
use crate::parser::{fold_name, name_location};
use crate::rewrite::{self, Markers};
use crate::types::Types;

/// Views in views, at most.
const VIEW_DEPTH_MAX: usize = 32;

/// What a planner needs of its session.
#[derive(Clone, Debug)]
pub(crate) struct PlannerInput {
    pub(crate) state: SessionState,
    pub(crate) system: Arc<SystemContext>,
    pub(crate) search_path: Vec<String>,
}

/// Plans one statement.
pub(crate) struct Planner {
    pub(crate) state: SessionState,
    pub(crate) reads: Arc<Reads>,
    system: Arc<SystemContext>,
    search_path: Vec<String>,
    /// Tables that only this statement knows, by folded name.
    own: HashMap<String, Arc<dyn TableSource>>,
    types: Arc<dyn TypePlanner>,
    depth: Mutex<usize>,
}

impl Planner {
    pub(crate) fn new(input: PlannerInput) -> Self {
        let reads = Reads::new(input.system.engine.clone());
        let mut state = input.state;
        state.mark_start_execution();
        Self {
            state,
            reads,
            system: input.system,
            search_path: input.search_path,
            own: HashMap::new(),
            types: Arc::new(Types),
            depth: Mutex::new(0),
        }
    }

    /// Makes a table known to this statement only; it hides relations of the same name.
    pub(crate) fn add(&mut self, name: &str, table: Arc<dyn TableProvider>) {
        self.own.insert(name.to_string(), provider_as_source(table));
    }

    /// The planner of expressions and queries.
    pub(crate) fn sql(&self) -> SqlToRel<'_, Self> {
        let options = &self.state.config_options().sql_parser;
        let options = ParserOptions::new()
            .with_parse_float_as_decimal(options.parse_float_as_decimal)
            .with_enable_ident_normalization(true)
            .with_collect_spans(true);
        SqlToRel::new_with_options(self, options)
    }

    /// Rewrites streaming syntax and gives columns Postgres's names, then plans.
    ///
    /// # Errors
    /// With positions in `text`.
    pub(crate) fn plan_query(
        &self,
        query: &Query,
        parameters: &[Option<FieldRef>],
        text: &str,
    ) -> Result<(LogicalPlan, Markers)> {
        let mut query = query.clone();
        precedence::restore(&mut query);
        pg_surface::rewrite(&mut query, &self.system.settings)?;
        let columns = |table: &TableFactor, withs: &[With]| self.columns_of(table, withs);
        let markers = rewrite::rewrite_query(&mut query, &columns)?;
        names::name_columns(&mut query);
        let statement = ast::Statement::Query(Box::new(query));
        let plan = self.plan_statement(statement, parameters, text)?;
        Ok((plan, markers))
    }

    /// The columns of a table in FROM, under the WITH clauses around it, as far as it can be planned by itself.
    pub(crate) fn columns_of(&self, table: &TableFactor, withs: &[With]) -> Option<Vec<String>> {
        let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, "SELECT * FROM t").ok()?;
        let Some(ast::Statement::Query(mut query)) = parsed.pop() else { return None };
        let SetExpr::Select(select) = query.body.as_mut() else { return None };
        select.from.first_mut()?.relation = table.clone();
        query.with = withs.iter().cloned().reduce(|mut outer, inner| {
            let hidden = |cte: &Cte| inner.cte_tables.iter().any(|new| new.alias == cte.alias);
            outer.cte_tables.retain(|cte| !hidden(cte));
            outer.recursive |= inner.recursive;
            outer.cte_tables.extend(inner.cte_tables);
            outer
        });
        let (plan, _) = self.plan_query(&query, &[], "").ok()?;
        Some(plan.schema().fields().iter().map(|field| field.name().clone()).collect())
    }

    /// Plans a statement as it is.
    ///
    /// # Errors
    /// With positions in `text`.
    pub(crate) fn plan_statement(
        &self,
        mut statement: ast::Statement,
        parameters: &[Option<FieldRef>],
        text: &str,
    ) -> Result<LogicalPlan> {
        precedence::restore(&mut statement);
        let mut context = PlannerContext::new().with_prepare_param_data_types(parameters.to_vec());
        let planned =
            self.sql().sql_statement_to_plan_with_context(statement.clone(), &mut context);
        planned.map_err(|error| self.locate(&error, &statement, text))
    }

    /// An expression over the columns of a schema.
    ///
    /// # Errors
    /// With positions in `text`.
    pub(crate) fn plan_expr(
        &self,
        expr: &ast::Expr,
        schema: &DFSchema,
        text: &str,
    ) -> Result<Expr> {
        let mut expr = expr.clone();
        precedence::restore(&mut expr);
        let planned = self.sql().sql_to_expr(expr, schema, &mut PlannerContext::new());
        planned.map_err(|error| SqlError::from_planner(&error, &TextMap::new(text)))
    }

    /// A planner's error with a position; relations that do not exist are looked up in the statement.
    fn locate(&self, error: &DataFusionError, statement: &ast::Statement, text: &str) -> SqlError {
        let map = TextMap::new(text);
        let mut error = SqlError::from_planner(error, &map);
        if error.position.is_none() && error.sqlstate == "42P01" {
            let _ = ast::visit_relations(statement, |name| {
                let wanted = format!("relation \"{}\" does not exist", fold_name(name).join("."));
                match name_location(name) {
                    Some((line, column)) if wanted == error.message => {
                        error.position = map.position(line, column);
                        std::ops::ControlFlow::Break(())
                    }
                    _ => std::ops::ControlFlow::Continue(()),
                }
            });
        }
        error
    }

    fn relation_source(&self, relation: &Arc<Relation>) -> DfResult<Arc<dyn TableSource>> {
        if *self.depth.lock() == 0 {
            self.reads.names_directly(relation.id);
        }
        match &relation.detail {
            Detail::Table(_) | Detail::MaterializedView => self.reads.need_stored(relation.id),
            Detail::Source => self.reads.need_source(relation.id),
            Detail::View(query) => return self.view_source(relation, query),
            Detail::Sink => {
                let text = format!("\"{}\" is a sink and cannot be read", relation.name);
                return Err(SqlError::new("42809", text).into());
            }
            Detail::Failed(failed) => return Err(relation.failure(failed).into()),
        }
        Ok(provider_as_source(Arc::new(RelationTable::new(relation, &self.reads))))
    }

    /// A view is planned anew each time it is named.
    fn view_source(&self, relation: &Relation, query: &Query) -> DfResult<Arc<dyn TableSource>> {
        if *self.depth.lock() >= VIEW_DEPTH_MAX {
            return Err(SqlError::new("54001", "views are nested too deeply").into());
        }
        *self.depth.lock() += 1;
        let planned = self.plan_query(query, &[], "");
        *self.depth.lock() -= 1;
        let (plan, _) = planned.map_err(|error| SqlError { position: None, ..error })?;
        let plan = rename(plan, &relation.schema)?;
        let definition = Some(relation.definition.clone());
        Ok(provider_as_source(Arc::new(ViewTable::new(plan, definition))))
    }

    /// Tables over files named in the query: `FROM 'bids.parquet'`.
    ///
    /// # Errors
    /// 58P01 when the file does not exist or its kind is unknown.
    pub(crate) async fn add_files(&mut self, query: &Query, text: &str) -> Result<()> {
        let mut files = Vec::new();
        let _ = ast::visit_relations(query, |name| {
            if let [part] = name.0.as_slice()
                && let Some(ident) = part.as_ident()
                && ident.quote_style == Some('\'')
            {
                files.push((ident.value.clone(), name_location(name)));
            }
            std::ops::ControlFlow::<()>::Continue(())
        });
        for (file, location) in files {
            // The parser gives quoted names no place.
            let written = text.find(&format!("'{file}'"));
            let position = match location {
                Some((line, column)) => TextMap::new(text).position(line, column),
                None => written.map(|at| text[..at].chars().count() + 1),
            };
            let table = super::run::file_table(&self.state, &file).await;
            let table = table.map_err(|error| SqlError { position, ..error })?;
            self.own.insert(file, provider_as_source(table));
        }
        Ok(())
    }
}

/// The plan with the columns' names of a schema.
pub(crate) fn rename(plan: LogicalPlan, schema: &SchemaRef) -> DfResult<LogicalPlan> {
    let same =
        plan.schema().iter().zip(schema.fields()).all(|((qualifier, field), wanted)| {
            qualifier.is_none() && field.name() == wanted.name()
        });
    if same {
        return Ok(plan);
    }
    let exprs: Vec<Expr> = plan
        .schema()
        .iter()
        .zip(schema.fields())
        .map(|((qualifier, field), wanted)| {
            Expr::Column((qualifier, field).into()).alias(wanted.name())
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(exprs)?.build()
}

fn parts_of(name: &TableReference) -> Vec<String> {
    match name {
        TableReference::Bare { table } => vec![table.to_string()],
        TableReference::Partial { schema, table } => vec![schema.to_string(), table.to_string()],
        TableReference::Full { catalog, schema, table } => {
            vec![catalog.to_string(), schema.to_string(), table.to_string()]
        }
    }
}

impl Planner {
    /// The relation that a name means, if it is one of the catalog's.
    pub(crate) fn relation(&self, name: &TableReference) -> Option<&Arc<Relation>> {
        self.system.catalog.find(&parts_of(name), &self.search_path)
    }
}

impl ContextProvider for Planner {
    fn get_table_source(&self, name: TableReference) -> DfResult<Arc<dyn TableSource>> {
        let parts = parts_of(&name);
        if let [only] = parts.as_slice()
            && *self.depth.lock() == 0
            && let Some(own) = self.own.get(only)
        {
            return Ok(Arc::clone(own));
        }
        let user = self.system.catalog.find(&parts, &self.search_path);
        match (system::find(&parts), user) {
            (Some(table), _) => {
                let context = Arc::clone(&self.system);
                Ok(provider_as_source(Arc::new(SystemRelation::new(table, context))))
            }
            (None, Some(relation)) => self.relation_source(relation),
            (None, None) => Err(self.system.catalog.missing(&parts).into()),
        }
    }

    fn get_table_function_source(
        &self,
        name: &str,
        args: Vec<Expr>,
    ) -> DfResult<Arc<dyn TableSource>> {
        let Some(function) = self.state.table_functions().get(name) else {
            let text = format!("function {name} does not exist");
            return Err(SqlError::new("42883", text).into());
        };
        let context = SimplifyContext::builder()
            .with_config_options(Arc::clone(self.state.config_options()))
            .with_query_execution_start_time(
                self.state.execution_props().query_execution_start_time,
            )
            .build();
        let (simplifier, schema) = (ExprSimplifier::new(context), DFSchema::empty());
        let fold = |arg| simplifier.simplify(simplifier.coerce(arg, &schema)?);
        let args = args.into_iter().map(fold).collect::<DfResult<Vec<_>>>()?;
        let arguments = TableFunctionArgs::new(&args, &self.state);
        Ok(provider_as_source(function.create_table_provider_with_args(arguments)?))
    }

    fn create_cte_work_table(
        &self,
        name: &str,
        schema: SchemaRef,
    ) -> DfResult<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        self.state.relation_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::clone(&self.types))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}

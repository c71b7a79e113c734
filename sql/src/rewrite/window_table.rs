//! `TUMBLE(...)`, `HOP(...)`, `CUMULATE(...)` and `SESSION(...)` in FROM, in RisingWave's and in Flink's spelling.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Query, TableAlias,
    TableFactor,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::error::{Result, SqlError};

/// Turns a call of a window table function into a derived table; whether it was one.
pub(super) fn rewrite(factor: &mut TableFactor) -> Result<bool> {
    let Some((kind, args, alias)) = call(factor) else {
        return Ok(false);
    };
    let query = Arguments::new(kind, args)?.query()?;
    let (subquery, alias) = (Box::new(query), alias.cloned());
    *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    Ok(true)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tumble,
    Hop,
    Cumulate,
    Session,
}

impl Kind {
    fn of(name: &ObjectName) -> Option<Self> {
        let [part] = name.0.as_slice() else {
            return None;
        };
        match part.as_ident()?.value.to_ascii_uppercase().as_str() {
            "TUMBLE" => Some(Self::Tumble),
            "HOP" => Some(Self::Hop),
            "CUMULATE" => Some(Self::Cumulate),
            "SESSION" => Some(Self::Session),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tumble => "TUMBLE",
            Self::Hop => "HOP",
            Self::Cumulate => "CUMULATE",
            Self::Session => "SESSION",
        }
    }

    /// Names of the intervals, in order.
    fn intervals(self) -> &'static [&'static str] {
        match self {
            Self::Tumble => &["SIZE"],
            Self::Hop => &["SLIDE", "SIZE"],
            Self::Cumulate => &["STEP", "SIZE"],
            Self::Session => &["GAP"],
        }
    }
}

fn call(factor: &TableFactor) -> Option<(Kind, &[FunctionArg], Option<&TableAlias>)> {
    match factor {
        TableFactor::Table { name, args: Some(args), alias, .. } => {
            Some((Kind::of(name)?, &args.args, alias.as_ref()))
        }
        TableFactor::Function { name, args, alias, .. } => {
            Some((Kind::of(name)?, args, alias.as_ref()))
        }
        TableFactor::TableFunction { expr: Expr::Function(function), alias } => {
            let (name, args) = (&function.name, arguments(function)?);
            Some((Kind::of(name)?, args, alias.as_ref()))
        }
        _ => None,
    }
}

fn arguments(function: &Function) -> Option<&[FunctionArg]> {
    match &function.args {
        FunctionArguments::List(list) => Some(&list.args),
        _ => None,
    }
}

/// The arguments of a call, as SQL text.
struct Arguments {
    kind: Kind,
    /// Table name or sub-query, as it stands in FROM.
    table: String,
    time: String,
    /// Flink's spelling, which has `window_time` too.
    descriptor: bool,
    intervals: Vec<String>,
    offset: Option<String>,
    /// Sessions are those of each combination of these.
    partition: Vec<String>,
}

impl Arguments {
    fn new(kind: Kind, args: &[FunctionArg]) -> Result<Self> {
        let (partition, args) = match kind {
            Kind::Session => take_partition(args)?,
            _ => (vec![], args.iter().collect()),
        };
        let offset: &[&str] = if kind == Kind::Session { &[] } else { &["OFFSET"] };
        let names = ["DATA", "TIMECOL"].iter().chain(kind.intervals()).chain(offset);
        let names = names.copied().collect::<Vec<_>>();
        let mut values: Vec<Option<&Expr>> = vec![None; names.len()];
        for (position, arg) in args.into_iter().enumerate() {
            let (place, value) = match arg {
                FunctionArg::Unnamed(value) => (Some(position), value),
                FunctionArg::Named { name, arg, .. } => {
                    (names.iter().position(|known| name.value.eq_ignore_ascii_case(known)), arg)
                }
                FunctionArg::ExprNamed { name, arg, .. } => {
                    let name = name.to_string();
                    (names.iter().position(|known| name.eq_ignore_ascii_case(known)), arg)
                }
            };
            match (place.and_then(|place| values.get_mut(place)), value) {
                (Some(slot), FunctionArgExpr::Expr(value)) => *slot = Some(value),
                _ => return Err(usage(kind)),
            }
        }
        let required = |place: usize| values[place].ok_or_else(|| usage(kind));
        let (time, descriptor) = time_column(required(1)?).ok_or_else(|| usage(kind))?;
        let intervals =
            (2..2 + kind.intervals().len()).map(|place| Ok(required(place)?.to_string()));
        Ok(Self {
            kind,
            table: table(required(0)?).ok_or_else(|| usage(kind))?,
            time,
            descriptor,
            intervals: intervals.collect::<Result<_>>()?,
            offset: names.iter().zip(&values).find_map(|(name, value)| match *name {
                "OFFSET" => value.map(ToString::to_string),
                _ => None,
            }),
            partition,
        })
    }

    fn query(&self) -> Result<Query> {
        let Self { table, time, .. } = self;
        let offset = self.offset.as_ref().map_or(String::new(), |offset| format!(", {offset}"));
        let window_time = match self.descriptor {
            true => ", window_unshift({end}, INTERVAL '1 millisecond') AS window_time",
            false => "",
        };
        let size = self.intervals.last().map_or("", String::as_str);
        let sql = match self.kind {
            Kind::Tumble => {
                let end = format!("tumble_end({time}, {size}{offset})");
                let window_time = window_time.replace("{end}", &end);
                format!(
                    "SELECT *, tumble_start({time}, {size}{offset}) AS window_start, \
                     {end} AS window_end{window_time} FROM {table}"
                )
            }
            Kind::Hop => {
                let step = &self.intervals[0];
                let window_time = window_time.replace("{end}", LIST_END);
                format!(
                    "SELECT * EXCEPT ({LIST_END}), window_unshift({LIST_END}, {size}) AS window_start, \
                     {LIST_END} AS window_end{window_time} FROM (SELECT *, \
                     unnest(hop_ends({time}, {step}, {size}{offset})) AS {LIST_END} FROM {table})"
                )
            }
            Kind::Session => {
                let (start, end) = session_borders(time, size, &self.partition);
                let window_time = window_time.replace("{end}", &end);
                format!(
                    "SELECT *, {start} AS window_start, {end} AS window_end{window_time} \
                     FROM {table} WHERE {time} IS NOT NULL"
                )
            }
            Kind::Cumulate => {
                let step = &self.intervals[0];
                let window_time = window_time.replace("{end}", LIST_END);
                format!(
                    "SELECT * EXCEPT ({LIST_END}), tumble_start({time}, {size}{offset}) AS window_start, \
                     {LIST_END} AS window_end{window_time} FROM (SELECT *, \
                     unnest(cumulate_ends({time}, {step}, {size}{offset})) AS {LIST_END} FROM {table})"
                )
            }
        };
        parse_query(&sql, self.kind.name())
    }
}

/// Parses a query that was put together from a window's arguments.
pub(super) fn parse_query(sql: &str, window: &str) -> Result<Query> {
    let parsed = Parser::new(&GenericDialect {}).try_with_sql(sql);
    let query = parsed.and_then(|mut parser| parser.parse_query());
    query.map(|query| *query).map_err(|error| {
        SqlError::new("42601", format!("invalid arguments of {window}"))
            .with_detail(error.to_string())
    })
}

/// Start and end of a row's session, as SQL.
pub(super) fn session_borders(time: &str, gap: &str, partition: &[String]) -> (String, String) {
    let by = match partition {
        [] => String::new(),
        keys => format!("PARTITION BY {} ", keys.join(", ")),
    };
    let border = |name: &str| format!("{name}({time}, {gap}) OVER ({by}ORDER BY {time})");
    (border("session_start"), border("session_end"))
}

/// The partition keys of SESSION, and its other arguments. What follows the first key is a key too, as long as two
/// arguments are left for the time column and the gap.
fn take_partition(args: &[FunctionArg]) -> Result<(Vec<String>, Vec<&FunctionArg>)> {
    let key = |arg: &FunctionArg| match arg {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(key), .. }
            if name.value == "partition_by" =>
        {
            Some(key.clone())
        }
        FunctionArg::ExprNamed { name, arg: FunctionArgExpr::Expr(key), .. }
            if name.to_string() == "partition_by" =>
        {
            Some(key.clone())
        }
        _ => None,
    };
    let Some((place, first)) =
        args.iter().enumerate().find_map(|(place, arg)| Some((place, key(arg)?)))
    else {
        return Ok((vec![], args.iter().collect()));
    };
    let mut keys = match first {
        Expr::Tuple(keys) => keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        Expr::Nested(key) => vec![key.to_string()],
        key => vec![key.to_string()],
    };
    let rest = place + 1..args.len().saturating_sub(2).max(place + 1);
    for arg in &args[rest.clone()] {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(key)) = arg else {
            return Err(usage(Kind::Session));
        };
        keys.push(key.to_string());
    }
    Ok((keys, args[..place].iter().chain(&args[rest.end..]).collect()))
}

/// Name of the column of window ends before it gets its own.
const LIST_END: &str = "__window_end";

fn usage(kind: Kind) -> SqlError {
    let intervals = kind.intervals().join(", ").to_lowercase();
    if kind == Kind::Session {
        return SqlError::new("42883", "invalid arguments of the window function SESSION")
            .with_hint("Write SESSION(table [PARTITION BY keys], time column, gap).");
    }
    SqlError::new("42883", format!("invalid arguments of the window function {}", kind.name()))
        .with_hint(format!("Write {}(table, time column, {intervals} [, offset]).", kind.name()))
}

/// A table's name, or a sub-query.
fn table(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_) => {
            Some(expr.to_string())
        }
        Expr::Nested(inner) => table(inner),
        _ => None,
    }
}

/// `ts`, or `DESCRIPTOR(ts)`; and which of them.
fn time_column(expr: &Expr) -> Option<(String, bool)> {
    match expr {
        Expr::Function(function)
            if function.name.to_string().eq_ignore_ascii_case("descriptor") =>
        {
            match arguments(function)? {
                [FunctionArg::Unnamed(FunctionArgExpr::Expr(column))] => {
                    Some((column.to_string(), true))
                }
                _ => None,
            }
        }
        other => Some((other.to_string(), false)),
    }
}

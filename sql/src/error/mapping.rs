//! Errors of the layers below, as Postgres would say them.
//!
//! An error that this crate made and that travelled through DataFusion comes out unchanged. Positions come from the
//! planner's spans where it gives them; see [`SqlError::located`] for the others.

use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Diagnostic, SchemaError};
use datafusion::sql::sqlparser::parser::ParserError;
use millstream_engine::EngineError;

use super::SqlError;
use super::text::{TextMap, nearest};

impl From<EngineError> for SqlError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::Unsupported(_) => Self::new("0A000", message),
            EngineError::InvalidOption(_) => Self::new("22023", message),
            EngineError::UniqueViolation { detail, .. } => {
                Self::new("23505", message).with_detail(detail)
            }
            EngineError::NotNullViolation { .. } => Self::new("23502", message),
            EngineError::SerializationFailure => Self::new("40001", message),
            // By its number, which nobody knows.
            EngineError::UnknownRelation(_) => {
                Self::new("42P01", "a relation of this statement was dropped or replaced meanwhile")
                    .with_hint("Run it again.")
            }
            EngineError::NotReady(_) => Self::new("55006", message),
            EngineError::JobFailed { .. } => Self::new("55000", message),
            EngineError::SubscriberTooSlow(_) => Self::new("53400", message),
            EngineError::ShuttingDown => Self::new("57P01", message),
            EngineError::Cancelled => Self::new("57014", message),
            EngineError::External { .. } if error.is_disk_full() => Self::new("53100", message)
                .with_hint("It goes on by itself when there is room again."),
            EngineError::External { .. } => Self::new("58030", message),
            EngineError::Evaluation(inner) => from_datafusion(&inner, None),
            EngineError::Arrow(inner) => from_arrow(&inner),
            EngineError::Internal(_) => Self::new("XX000", message),
        }
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        from_datafusion(&error, None)
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> Self {
        from_arrow(&error)
    }
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> Self {
        Self::External(Box::new(error))
    }
}

impl SqlError {
    /// A parser's error, with its place taken out of its text.
    pub(crate) fn from_parser(error: &ParserError, text: &TextMap<'_>) -> Self {
        let message = match error {
            ParserError::RecursionLimitExceeded => {
                return Self::new("54001", "statement is nested too deeply");
            }
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        };
        let (message, place) = split_location(message);
        let position = match place {
            Some((line, column)) => text.position(line, column),
            None if message.contains("found: EOF") => Some(text.end()),
            None => None,
        };
        if let Some(what) = message.strip_prefix(crate::parser::UNSUPPORTED) {
            return Self { position, ..Self::unsupported(what) };
        }
        let error = match message.split_once(", found: ") {
            Some((_, found)) if unsupported_word(found).is_some() => {
                Self::unsupported(unsupported_word(found).unwrap_or_default())
            }
            Some((expected, found)) => {
                let near = match found.trim() {
                    "EOF" => "syntax error at end of input".to_string(),
                    found => format!("syntax error at or near \"{found}\""),
                };
                Self::new("42601", near).with_detail(lower_first(expected))
            }
            None => Self::new("42601", lower_first(message)),
        };
        Self { position, ..error }
    }

    /// A planner's error with positions in this text.
    pub(crate) fn from_planner(error: &DataFusionError, text: &TextMap<'_>) -> Self {
        from_datafusion(error, Some(text))
    }
}

/// Words at which the parser stops that begin something which others have and we do not yet.
fn unsupported_word(found: &str) -> Option<&'static str> {
    match found.trim().to_uppercase().as_str() {
        "SYSTEM_TIME" => Some("FOR SYSTEM_TIME AS OF"),
        "MATCH_RECOGNIZE" => Some("MATCH_RECOGNIZE"),
        _ => None,
    }
}

fn from_datafusion(error: &DataFusionError, text: Option<&TextMap<'_>>) -> SqlError {
    match error {
        DataFusionError::Diagnostic(diagnostic, inner) => {
            let mut mapped = from_datafusion(inner, text);
            if mapped.position.is_none() {
                mapped.position = position_of(diagnostic, text);
            }
            mapped
        }
        DataFusionError::Context(_, inner) => from_datafusion(inner, text),
        DataFusionError::Shared(inner) => from_datafusion(inner, text),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => from_datafusion(first, text),
            None => SqlError::internal("an empty list of errors"),
        },
        DataFusionError::External(inner) => from_external(inner.as_ref(), text),
        DataFusionError::ArrowError(inner, _) => from_arrow(inner),
        DataFusionError::SchemaError(inner, _) => from_schema(inner),
        DataFusionError::SQL(inner, _) => {
            let text = inner.to_string();
            SqlError::new("42601", lower_first(split_location(&text).0))
        }
        DataFusionError::NotImplemented(message) if message.contains("operator AsOf") => {
            SqlError::unsupported("ASOF JOIN")
        }
        DataFusionError::NotImplemented(message) => SqlError::new("0A000", tidy(message)),
        DataFusionError::Plan(message) => from_plan(message),
        DataFusionError::Execution(message) => from_execution(message),
        DataFusionError::ResourcesExhausted(message) => SqlError::new("53200", tidy(message)),
        DataFusionError::IoError(inner) => SqlError::new("58030", inner.to_string()),
        DataFusionError::ObjectStore(inner) => match inner.to_string() {
            message if message.contains("not found") => SqlError::new("58P01", message),
            message => SqlError::new("58030", message),
        },
        DataFusionError::Configuration(message) => SqlError::new("22023", tidy(message)),
        other => SqlError::internal(tidy(&other.to_string())),
    }
}

fn from_external(
    error: &(dyn std::error::Error + 'static),
    text: Option<&TextMap<'_>>,
) -> SqlError {
    if let Some(error) = error.downcast_ref::<SqlError>() {
        return error.clone();
    }
    if let Some(error) = error.downcast_ref::<EngineError>() {
        return error.clone().into();
    }
    if let Some(error) = error.downcast_ref::<DataFusionError>() {
        return from_datafusion(error, text);
    }
    if let Some(error) = error.downcast_ref::<ArrowError>() {
        return from_arrow(error);
    }
    SqlError::new("58000", error.to_string())
}

fn position_of(diagnostic: &Diagnostic, text: Option<&TextMap<'_>>) -> Option<usize> {
    let span = diagnostic.span?;
    text?.position(span.start.line, span.start.column)
}

fn from_arrow(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::new("22012", "division by zero"),
        ArrowError::ArithmeticOverflow(message) => out_of_range(message),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => from_cast(message),
        ArrowError::ExternalError(inner) => from_external(inner.as_ref(), None),
        ArrowError::InvalidArgumentError(message) | ArrowError::ComputeError(message) => {
            from_execution(message)
        }
        other => SqlError::internal(other),
    }
}

fn out_of_range(message: &str) -> SqlError {
    let known = [
        ("Int16", "smallint out of range"),
        ("Int32", "integer out of range"),
        ("Int64", "bigint out of range"),
        ("Decimal", "numeric field overflow"),
        ("imestamp", "timestamp out of range"),
    ];
    let found = known.iter().find(|(part, _)| message.contains(part));
    let text = found
        .map_or_else(|| format!("value out of range: {message}"), |(_, text)| text.to_string());
    SqlError::new("22003", text)
}

/// `Cannot cast string 'abc' to value of Int32 type` and its kin.
fn from_cast(message: &str) -> SqlError {
    let value = message.split('\'').nth(1).or_else(|| message.split('"').nth(1));
    let types = [
        ("Int16", "smallint"),
        ("Int32", "integer"),
        ("Int64", "bigint"),
        ("Float32", "real"),
        ("Float64", "double precision"),
        ("Decimal", "numeric"),
        ("Boolean", "boolean"),
        ("Date32", "date"),
        ("imestamp", "timestamp"),
        ("Time64", "time"),
        ("nterval", "interval"),
        ("timestamp", "timestamp"),
        ("date", "date"),
    ];
    let name = types.iter().find(|(part, _)| message.contains(part)).map(|(_, name)| *name);
    if message.contains("Can't cast value")
        || message.contains("not in range")
        || message.contains("too large")
    {
        let name = name.unwrap_or("value");
        return SqlError::new("22003", format!("{name} out of range"));
    }
    match (value, name) {
        (Some(value), Some("date" | "timestamp" | "time")) if has_shape_of_time(value) => {
            SqlError::new("22008", format!("date/time field value out of range: \"{value}\""))
        }
        (Some(value), Some(name @ ("date" | "timestamp" | "time" | "interval"))) => {
            SqlError::new("22007", format!("invalid input syntax for type {name}: \"{value}\""))
        }
        (Some(value), Some(name)) => {
            SqlError::new("22P02", format!("invalid input syntax for type {name}: \"{value}\""))
        }
        _ => SqlError::new("22P02", lower_first(&tidy(message))),
    }
}

/// Whether a text is a date or time but for the size of its numbers: `2021-02-30`, `25:00:00`.
fn has_shape_of_time(text: &str) -> bool {
    let numbers = |text: &str, separator: char, least: usize| {
        let parts = text.split(separator).collect::<Vec<_>>();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        (least..=3).contains(&parts.len()) && parts.iter().all(is_number)
    };
    let is_time = |text: &str| numbers(text.split('.').next().unwrap_or(text), ':', 2);
    let text = text.trim();
    match text.split_once([' ', 'T']) {
        Some((date, time)) => numbers(date, '-', 3) && is_time(time),
        None => numbers(text, '-', 3) || is_time(text),
    }
}

fn from_execution(message: &str) -> SqlError {
    let lower = message.to_lowercase();
    if lower.contains("divide by zero") || lower.contains("division by zero") {
        SqlError::new("22012", "division by zero")
    } else if lower.contains("overflow") || lower.contains("out of range") {
        out_of_range(message)
    } else if lower.contains("cast") || lower.contains("parsing timestamp") {
        from_cast(message)
    } else if lower.contains("more than one row") {
        SqlError::new("21000", "more than one row returned by a subquery used as an expression")
    } else {
        SqlError::new("22000", lower_first(&tidy(message)))
    }
}

fn from_schema(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let name = match &field.relation {
                Some(relation) => format!("{}.{}", relation.table(), field.name),
                None => format!("\"{}\"", field.name),
            };
            let known = valid_fields.iter().map(|field| field.name.as_str());
            if let Some(relation) = &field.relation
                && !valid_fields.iter().any(|known| {
                    known.relation.as_ref().is_some_and(|known| known.table() == relation.table())
                })
            {
                let text = format!("missing FROM-clause entry for table \"{}\"", relation.table());
                return SqlError::new("42P01", text);
            }
            let error = SqlError::new("42703", format!("column {name} does not exist"));
            match nearest(&field.name, known) {
                Some(near) => error.with_hint(format!("Perhaps you meant the column \"{near}\".")),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => {
            SqlError::new("42702", format!("column reference \"{}\" is ambiguous", field.name))
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            SqlError::new("42701", format!("column \"{name}\" specified more than once"))
        }
    }
}

/// The planner's errors in words: told apart by the phrases that it uses.
fn from_plan(message: &str) -> SqlError {
    let message = tidy(message);
    let lower = message.to_lowercase();
    let has = |part: &str| lower.contains(part);
    if has("invalid function") {
        let name = message.split('\'').nth(1).unwrap_or_default();
        return SqlError::new("42883", format!("function {name} does not exist"))
            .with_hint("No function matches the given name and argument types.");
    }
    if has("must be in the group by")
        || has("must appear in the group by")
        || has("not in group by")
    {
        return SqlError::new("42803", lower_first(&message));
    }
    if has("failed to coerce arguments") || has("does not support") && has("function") {
        return SqlError::new("42883", lower_first(&message));
    }
    if has("cannot coerce") || has("cannot infer common") || has("cannot get result type") {
        return SqlError::new("42883", lower_first(&message));
    }
    if has("type_coercion")
        || has("cannot cast")
        || has("cannot be cast")
        || has("unsupported cast")
    {
        return SqlError::new("42846", lower_first(&message));
    }
    if has("projections require unique expression names") || has("schema contains duplicate") {
        return SqlError::new("42701", lower_first(&message));
    }
    if has("table '") && has("not found") {
        let name = message.split('\'').nth(1).unwrap_or_default();
        return SqlError::new("42P01", format!("relation \"{name}\" does not exist"));
    }
    if has("recursive") && has("not") {
        return SqlError::new("0A000", lower_first(&message));
    }
    if has("aggregate") && has("where") {
        return SqlError::new("42803", "aggregate functions are not allowed in WHERE");
    }
    if has("divide by zero") {
        return SqlError::new("22012", "division by zero");
    }
    if has("not supported") || has("unsupported") {
        return SqlError::new("0A000", lower_first(&message));
    }
    SqlError::new("42601", lower_first(&message))
}

/// The first line, without the words that DataFusion puts in front.
fn tidy(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let mut line = line;
    for prefix in [
        "Error during planning: ",
        "This feature is not implemented: ",
        "Execution error: ",
        "Arrow error: ",
        "Internal error: ",
        "External error: ",
    ] {
        line = line.strip_prefix(prefix).unwrap_or(line);
    }
    line.trim_end_matches('.').to_string()
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        // An abbreviation keeps its capitals.
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_string(),
    }
}

/// Takes ` at Line: 1, Column: 8` off the end of a parser's message.
fn split_location(message: &str) -> (&str, Option<(u64, u64)>) {
    let message = message.strip_prefix("sql parser error: ").unwrap_or(message);
    let Some(at) = message.rfind(" at Line: ") else {
        return (message, None);
    };
    let numbers = message[at + " at Line: ".len()..].split_once(", Column: ");
    let place = numbers
        .and_then(|(line, column)| Some((line.trim().parse().ok()?, column.trim().parse().ok()?)));
    (&message[..at], place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parser_errors_get_position_and_token() {
        let text = TextMap::new("SELECT\n  FROM FROM t");
        let error = ParserError::ParserError(
            "Expected: an expression, found: FROM at Line: 2, Column: 8".to_string(),
        );
        let mapped = SqlError::from_parser(&error, &text);
        assert_eq!(mapped.sqlstate, "42601");
        assert_eq!(mapped.message, "syntax error at or near \"FROM\"");
        assert_eq!(mapped.position, Some(15));
    }

    #[test]
    fn our_own_errors_survive_the_way_through_datafusion() {
        let error = SqlError::new("42P01", "relation \"x\" does not exist").with_position(3);
        let wrapped = DataFusionError::from(error.clone()).context("while planning");
        assert_eq!(SqlError::from(wrapped), error);
    }

    #[test]
    fn casts_name_the_type_as_postgres_does() {
        let error = from_cast("Cannot cast string 'abc' to value of Int32 type");
        assert_eq!(error.sqlstate, "22P02");
        assert_eq!(error.message, "invalid input syntax for type integer: \"abc\"");
    }

    #[test]
    fn numbers_of_a_date_can_be_out_of_range() {
        let of = |text: &str| {
            from_cast(&format!("Cannot cast string '{text}' to value of Date32 type")).sqlstate
        };
        for out_of_range in ["2021-02-30", "2021-13-01 10:00", "25:00:00", "2021-01-01T10:99:00.5"]
        {
            assert_eq!(of(out_of_range), "22008", "{out_of_range}");
        }
        for wrong in ["notadate", "2021-02", "2021-02-x", "", "12"] {
            assert_eq!(of(wrong), "22007", "{wrong}");
        }
    }
}

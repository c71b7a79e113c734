//! Text to statements: sqlparser's Postgres dialect, and the statements and clauses that it lacks.
//!
//! A string is cut into tokens once; each statement is parsed from its own tokens. Clauses that may follow any query
//! (`EMIT ON WINDOW CLOSE`) are taken out of the tokens before sqlparser sees them. All positions are those of the
//! whole string.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{self, Ident, ObjectName};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{Result, SqlError, TextMap};

mod ast_ext;
mod chains;
mod columns;
mod create;
mod other;
mod tokens;
mod types;

pub(crate) use ast_ext::{
    ColumnSpec, Command, CopySource, CreateKind, CreateRelation, CreateSink, CreateView,
    DropRelation, Emit, Explain, RelationKind, Show, SinkInput, StreamQuery, SubscribeTarget,
    TableOptions,
};
pub(crate) use ast_ext::{Copy, FetchCursor, SavepointCommand, SetVariable, TableConflict};
pub(crate) use other::UNSUPPORTED;
pub(crate) use types::parse_type;

/// The dialect underneath.
pub(crate) static DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

/// How deep expressions and sub-queries may nest.
const NESTING_MAX: usize = 100;

/// What the parsing functions of this module give.
type Parsed<T> = std::result::Result<T, ParserError>;

/// A statement and the bytes of the string that it took.
#[derive(Debug)]
pub(crate) struct ParsedStatement {
    pub(crate) command: Command,
    pub(crate) range: std::ops::Range<usize>,
}

/// Cuts and parses a string of statements.
///
/// # Errors
/// 42601 with the position of the first token that does not fit.
pub(crate) fn parse(sql: &Arc<str>) -> Result<Vec<ParsedStatement>> {
    let text = TextMap::new(sql);
    let tokens = Tokenizer::new(&DIALECT, sql)
        .tokenize_with_location()
        .map_err(|error| tokenizer_error(&error, &text))?;
    let mut statements = Vec::new();
    for part in tokens::split(tokens) {
        let range = tokens::byte_range(&part, &text);
        let (part, emit) = tokens::preprocess(chains::split_signs(part), &text)?;
        chains::check(&part, &text)?;
        if part.is_empty() {
            continue;
        }
        let reserved = tokens::reserved_table(&part, &text);
        let mut parser = Parser::new(&DIALECT)
            .with_recursion_limit(NESTING_MAX)
            .with_tokens_with_locations(part);
        let end = range.end;
        let located = |error: ParserError| {
            let mut error = SqlError::from_parser(&error, &text);
            if error.message.ends_with("end of input") {
                error.position = Some(sql[..end].chars().count() + 1);
            }
            error
        };
        let command = parse_command(&mut parser, emit).map_err(located);
        let command = match (command, reserved) {
            (Ok(_), Some(reserved)) => return Err(reserved),
            (Err(error), Some(reserved)) if reserved.position < error.position => {
                return Err(reserved);
            }
            (command, _) => command?,
        };
        let rest = parser.peek_token();
        if rest.token != Token::EOF {
            let error = parser.expected::<()>("end of statement", rest);
            return Err(located(error.expect_err("`expected` always fails")));
        }
        let command = other::check(command)?;
        statements.push(ParsedStatement { command, range });
    }
    Ok(statements)
}

fn tokenizer_error(
    error: &datafusion::sql::sqlparser::tokenizer::TokenizerError,
    text: &TextMap<'_>,
) -> SqlError {
    let mut mapped = SqlError::new("42601", error.message.to_lowercase());
    mapped.position = text.position(error.location.line, error.location.column);
    mapped
}

/// Parses one statement from tokens that hold nothing else.
fn parse_command(parser: &mut Parser<'_>, emit: Option<Emit>) -> Parsed<Command> {
    let command = match word_at(parser, 0).as_str() {
        "CREATE" => create::parse_create(parser, emit)?,
        "DROP" => other::parse_drop(parser)?,
        "ALTER" => other::parse_alter(parser, emit)?,
        "SHOW" => other::parse_show(parser)?,
        "DESCRIBE" | "DESC" => other::parse_describe(parser)?,
        "EXPLAIN" => return other::parse_explain(parser, emit),
        "SUBSCRIBE" => return other::parse_subscribe(parser, emit),
        "COPY" => other::parse_copy(parser)?,
        "FLUSH" => single(parser, Command::Flush),
        "CHECKPOINT" => single(parser, Command::Checkpoint),
        "RESET" => other::parse_reset(parser)?,
        "SET" => other::parse_set(parser)?,
        "MOVE" | "FETCH" => other::parse_fetch(parser)?,
        _ => match parser.parse_statement()? {
            ast::Statement::Query(query) => Command::Query(StreamQuery::new(query, emit)),
            statement => Command::Sql(Box::new(statement)),
        },
    };
    if emit.is_some() && !command.takes_emit() {
        return Err(ParserError::ParserError("EMIT belongs to a query".to_string()));
    }
    Ok(command)
}

fn single(parser: &mut Parser<'_>, command: Command) -> Command {
    parser.advance_token();
    command
}

/// The unquoted word `n` tokens ahead, in upper case; empty when it is none.
fn word_at(parser: &Parser<'_>, n: usize) -> String {
    match &parser.peek_nth_token_ref(n).token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_uppercase(),
        _ => String::new(),
    }
}

/// Takes these words if they are next.
fn take(parser: &mut Parser<'_>, words: &[&str]) -> bool {
    let matches = words.iter().enumerate().all(|(n, word)| word_at(parser, n) == *word);
    if matches {
        words.iter().for_each(|_| parser.advance_token());
    }
    matches
}

/// Takes this word or fails.
fn expect(parser: &mut Parser<'_>, word: &str) -> Parsed<()> {
    if take(parser, &[word]) {
        return Ok(());
    }
    let found = parser.peek_token();
    parser.expected(word, found)
}

/// A name as Postgres folds it: lower case unless quoted.
pub(crate) fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        None => ident.value.to_lowercase(),
        Some(_) => ident.value.clone(),
    }
}

/// The folded parts of a name.
pub(crate) fn fold_name(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect()
}

/// Where a name stands in the text.
pub(crate) fn name_location(name: &ObjectName) -> Option<(u64, u64)> {
    let start = name.0.first()?.as_ident()?.span.start;
    (start.line > 0).then_some((start.line, start.column))
}

/// Where a token ends.
fn token_end(token: &TokenWithSpan) -> (u64, u64) {
    (token.span.end.line, token.span.end.column)
}

#[cfg(test)]
pub(crate) fn test_parser(text: &str) -> Parser<'static> {
    let tokens = Tokenizer::new(&DIALECT, text).tokenize_with_location().unwrap();
    Parser::new(&DIALECT).with_tokens_with_locations(tokens)
}

#[cfg(test)]
mod tests;

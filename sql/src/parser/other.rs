//! DROP, SHOW, DESCRIBE, EXPLAIN, SUBSCRIBE, COPY, SET, RESET, FETCH.

use datafusion::sql::sqlparser::ast::{self, CopyTarget, Expr, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::ast_ext::{
    Command, Copy, CopySource, DropRelation, Emit, Explain, FetchCursor, RelationKind,
    SavepointCommand, SetVariable, Show, StreamQuery, SubscribeTarget,
};
use super::{Parsed, expect, fold, take, word_at};
use crate::error::{Result, SqlError};

/// In front of a parser error that means 0A000.
pub(crate) const UNSUPPORTED: &str = "unsupported: ";

pub(super) fn parse_drop(parser: &mut Parser<'_>) -> Parsed<Command> {
    if word_at(parser, 1) == "SAVEPOINT" {
        parser.advance_token();
        parser.advance_token();
        let if_exists = take(parser, &["IF", "EXISTS"]);
        let name = parser.parse_identifier()?;
        return Ok(Command::Savepoint(SavepointCommand::Drop { name, if_exists }));
    }
    let kind = match (word_at(parser, 1).as_str(), word_at(parser, 2).as_str()) {
        ("TABLE", _) => RelationKind::Table,
        ("SOURCE" | "STREAM", _) => RelationKind::Source,
        ("VIEW", _) => RelationKind::View,
        ("MATERIALIZED", "VIEW") => RelationKind::MaterializedView,
        ("SINK", _) => RelationKind::Sink,
        _ => return Ok(Command::Sql(Box::new(parser.parse_statement()?))),
    };
    parser.advance_token();
    parser.advance_token();
    if kind == RelationKind::MaterializedView {
        parser.advance_token();
    }
    let if_exists = take(parser, &["IF", "EXISTS"]);
    let names = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
    let cascade = take(parser, &["CASCADE"]);
    if !cascade {
        take(parser, &["RESTRICT"]);
    }
    Ok(Command::Drop(DropRelation { kind, if_exists, names, cascade }))
}

/// ALTER SYSTEM SET and RESET, ALTER ... RESUME and ALTER MATERIALIZED VIEW ... AS; other forms of ALTER are left to sqlparser.
pub(super) fn parse_alter(parser: &mut Parser<'_>, emit: Option<Emit>) -> Parsed<Command> {
    let kinds: [(&[&str], RelationKind); 3] = [
        (&["ALTER", "MATERIALIZED", "VIEW"], RelationKind::MaterializedView),
        (&["ALTER", "SOURCE"], RelationKind::Source),
        (&["ALTER", "SINK"], RelationKind::Sink),
    ];
    for (words, kind) in kinds {
        if take(parser, words) {
            let name = parser.parse_object_name(false)?;
            if take(parser, &["RESUME"]) {
                return Ok(Command::Resume { kind, name });
            }
            let what = words.join(" ");
            if kind != RelationKind::MaterializedView {
                return Err(super::columns::unsupported(&format!("{what} other than RESUME")));
            }
            let has_columns = parser.peek_token_ref().token == Token::LParen;
            if !has_columns && !["AS", "WITH"].contains(&word_at(parser, 0).as_str()) {
                let what = format!("{what} other than RESUME and AS");
                return Err(super::columns::unsupported(&what));
            }
            let view = super::create::parse_view_of(parser, name, emit)?;
            return Ok(Command::AlterView(Box::new(view)));
        }
    }
    if word_at(parser, 1) != "SYSTEM" {
        return Ok(Command::Sql(Box::new(parser.parse_statement()?)));
    }
    expect(parser, "ALTER")?;
    expect(parser, "SYSTEM")?;
    if take(parser, &["RESET", "ALL"]) {
        return Ok(Command::AlterSystem(None));
    }
    if take(parser, &["RESET"]) {
        let name = parse_setting_name(parser)?;
        return Ok(Command::AlterSystem(Some(SetVariable { local: false, name, value: None })));
    }
    expect(parser, "SET")?;
    let name = parse_setting_name(parser)?;
    if !take(parser, &["TO"]) {
        parser.expect_token(&Token::Eq)?;
    }
    let value = parse_setting_value(parser)?;
    Ok(Command::AlterSystem(Some(SetVariable { local: false, name, value })))
}

pub(super) fn parse_show(parser: &mut Parser<'_>) -> Parsed<Command> {
    expect(parser, "SHOW")?;
    let relations: [(&[&str], RelationKind); 6] = [
        (&["TABLES"], RelationKind::Table),
        (&["SOURCES"], RelationKind::Source),
        (&["STREAMS"], RelationKind::Source),
        (&["VIEWS"], RelationKind::View),
        (&["MATERIALIZED", "VIEWS"], RelationKind::MaterializedView),
        (&["SINKS"], RelationKind::Sink),
    ];
    for (words, kind) in relations {
        if take(parser, words) {
            return Ok(Command::Show(Show::Relations(kind)));
        }
    }
    let show = if take(parser, &["JOBS"]) {
        Show::Jobs
    } else if take(parser, &["SCHEMAS"]) {
        Show::Schemas
    } else if take(parser, &["DATABASES"]) {
        Show::Databases
    } else if take(parser, &["CONNECTORS"]) {
        Show::Connectors
    } else if take(parser, &["CHECKPOINTS"]) {
        Show::Checkpoints
    } else if take(parser, &["SAVEPOINTS"]) {
        Show::Savepoints
    } else if take(parser, &["COLUMNS", "FROM"]) {
        Show::Columns(parser.parse_object_name(false)?)
    } else if take(parser, &["ALL"]) {
        Show::All
    } else if take(parser, &["CREATE"]) {
        let kind = parse_kind(parser);
        Show::Create(kind, parser.parse_object_name(false)?)
    } else {
        Show::Setting(parse_setting_name(parser)?)
    };
    Ok(Command::Show(show))
}

fn parse_kind(parser: &mut Parser<'_>) -> Option<RelationKind> {
    let kinds: [(&[&str], RelationKind); 6] = [
        (&["TABLE"], RelationKind::Table),
        (&["SOURCE"], RelationKind::Source),
        (&["STREAM"], RelationKind::Source),
        (&["VIEW"], RelationKind::View),
        (&["MATERIALIZED", "VIEW"], RelationKind::MaterializedView),
        (&["SINK"], RelationKind::Sink),
    ];
    kinds.into_iter().find(|(words, _)| take(parser, words)).map(|(_, kind)| kind)
}

/// A setting's name: `TIME ZONE`, `TRANSACTION ISOLATION LEVEL`, `a.b`.
fn parse_setting_name(parser: &mut Parser<'_>) -> Parsed<String> {
    if take(parser, &["TIME", "ZONE"]) {
        return Ok("timezone".to_string());
    }
    if take(parser, &["TRANSACTION", "ISOLATION", "LEVEL"]) {
        return Ok("transaction_isolation".to_string());
    }
    if take(parser, &["SESSION", "AUTHORIZATION"]) {
        return Ok("session_authorization".to_string());
    }
    let parts: Vec<String> = {
        let name = parser.parse_object_name(false)?;
        name.0.iter().filter_map(|part| part.as_ident()).map(|part| part.value.clone()).collect()
    };
    Ok(parts.join(".").to_lowercase())
}

pub(super) fn parse_describe(parser: &mut Parser<'_>) -> Parsed<Command> {
    parser.advance_token();
    parse_kind(parser);
    Ok(Command::Describe(parser.parse_object_name(false)?))
}

pub(super) fn parse_explain(parser: &mut Parser<'_>, emit: Option<Emit>) -> Parsed<Command> {
    expect(parser, "EXPLAIN")?;
    let mut explain = (false, false);
    if parser.peek_token_ref().token == Token::LParen && !starts_query(parser, 1) {
        for option in parser.parse_utility_options()? {
            let on = !matches!(&option.arg, Some(arg) if matches!(
                arg.to_string().to_lowercase().as_str(), "false" | "off" | "0"));
            match option.name.value.to_lowercase().as_str() {
                "analyze" => explain.0 = on,
                "verbose" => explain.1 = on,
                "costs" | "timing" | "buffers" | "summary" | "settings" | "wal" => {}
                "format"
                    if option
                        .arg
                        .as_ref()
                        .is_some_and(|arg| arg.to_string().eq_ignore_ascii_case("text")) => {}
                other => {
                    return Err(super::columns::unsupported(&format!("EXPLAIN option {other}")));
                }
            }
        }
    } else {
        explain.0 = take(parser, &["ANALYZE"]);
        explain.1 = take(parser, &["VERBOSE"]);
    }
    let command = super::parse_command(parser, emit)?;
    Ok(Command::Explain(Box::new(Explain { analyze: explain.0, verbose: explain.1, command })))
}

fn starts_query(parser: &Parser<'_>, n: usize) -> bool {
    matches!(word_at(parser, n).as_str(), "SELECT" | "WITH" | "VALUES" | "TABLE")
        || parser.peek_nth_token_ref(n).token == Token::LParen
}

pub(super) fn parse_subscribe(parser: &mut Parser<'_>, emit: Option<Emit>) -> Parsed<Command> {
    Ok(Command::Subscribe(parse_subscribe_target(parser, emit)?))
}

fn parse_subscribe_target(parser: &mut Parser<'_>, emit: Option<Emit>) -> Parsed<SubscribeTarget> {
    expect(parser, "SUBSCRIBE")?;
    take(parser, &["TO"]);
    if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        return Ok(SubscribeTarget::Query(StreamQuery::new(query, emit)));
    }
    Ok(SubscribeTarget::Relation(parser.parse_object_name(false)?))
}

pub(super) fn parse_copy(parser: &mut Parser<'_>) -> Parsed<Command> {
    expect(parser, "COPY")?;
    if parser.peek_token_ref().token == Token::LParen && word_at(parser, 1) == "SUBSCRIBE" {
        parser.advance_token();
        let target = parse_subscribe_target(parser, None)?;
        parser.expect_token(&Token::RParen)?;
        expect(parser, "TO")?;
        expect(parser, "STDOUT")?;
        let options = parse_copy_options(parser)?;
        return Ok(Command::Copy(Box::new(Copy {
            source: CopySource::Subscribe(target),
            to: true,
            target: CopyTarget::Stdout,
            options,
            legacy_options: Vec::new(),
        })));
    }
    let statement = parser.parse_copy()?;
    let ast::Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
        return Err(ParserError::ParserError("COPY expected".to_string()));
    };
    let source = match source {
        ast::CopySource::Query(query) => CopySource::Query(StreamQuery::new(query, None)),
        ast::CopySource::Table { table_name, columns } => CopySource::Table(table_name, columns),
    };
    Ok(Command::Copy(Box::new(Copy { source, to, target, options, legacy_options })))
}

/// `[WITH] (FORMAT csv, HEADER)` behind COPY (SUBSCRIBE ...).
fn parse_copy_options(parser: &mut Parser<'_>) -> Parsed<Vec<ast::CopyOption>> {
    let mut options = Vec::new();
    take(parser, &["WITH"]);
    if !parser.consume_token(&Token::LParen) {
        return Ok(options);
    }
    loop {
        let option = match word_at(parser, 0).as_str() {
            "FORMAT" => {
                parser.advance_token();
                ast::CopyOption::Format(parser.parse_identifier()?)
            }
            "HEADER" => {
                parser.advance_token();
                let off = take(parser, &["FALSE"]) || take(parser, &["OFF"]);
                if !off {
                    let _ = parser.parse_one_of_keywords(&[Keyword::TRUE, Keyword::ON]);
                }
                ast::CopyOption::Header(!off)
            }
            "NULL" => {
                parser.advance_token();
                ast::CopyOption::Null(parser.parse_literal_string()?)
            }
            "DELIMITER" => {
                parser.advance_token();
                let text = parser.parse_literal_string()?;
                ast::CopyOption::Delimiter(text.chars().next().unwrap_or('\t'))
            }
            _ => {
                let token = parser.peek_token();
                return parser.expected("a COPY option", token);
            }
        };
        options.push(option);
        if !parser.consume_token(&Token::Comma) {
            parser.expect_token(&Token::RParen)?;
            return Ok(options);
        }
    }
}

pub(super) fn parse_reset(parser: &mut Parser<'_>) -> Parsed<Command> {
    expect(parser, "RESET")?;
    if take(parser, &["ALL"]) {
        return Ok(Command::Reset(None));
    }
    Ok(Command::Reset(Some(parse_setting_name(parser)?)))
}

/// SET [SESSION | LOCAL] name = value, ...; forms of other shape are sqlparser's.
pub(super) fn parse_set(parser: &mut Parser<'_>) -> Parsed<Command> {
    let ours = |n: usize| {
        !matches!(
            word_at(parser, n).as_str(),
            "TRANSACTION" | "ROLE" | "NAMES" | "CONSTRAINTS" | "AUTHORIZATION" | "CHARACTERISTICS"
        )
    };
    let scope = matches!(word_at(parser, 1).as_str(), "SESSION" | "LOCAL" | "GLOBAL");
    if !ours(1) || (scope && !ours(2)) {
        if take(parser, &["SET", "NAMES"]) {
            let value = parse_setting_value(parser)?;
            let name = "client_encoding".to_string();
            return Ok(Command::Set(SetVariable { local: false, name, value }));
        }
        return Ok(Command::Sql(Box::new(parser.parse_statement()?)));
    }
    expect(parser, "SET")?;
    let local = word_at(parser, 0) == "LOCAL";
    if scope {
        parser.advance_token();
    }
    let name = parse_setting_name(parser)?;
    if !take(parser, &["TO"]) && !parser.consume_token(&Token::Eq) && name != "timezone" {
        let token = parser.peek_token();
        return parser.expected("TO or =", token);
    }
    let value = parse_setting_value(parser)?;
    Ok(Command::Set(SetVariable { local, name, value }))
}

fn parse_setting_value(parser: &mut Parser<'_>) -> Parsed<Option<String>> {
    if take(parser, &["DEFAULT"]) {
        return Ok(None);
    }
    let mut parts = Vec::new();
    loop {
        let expr = parser.parse_expr()?;
        parts.push(setting_text(&expr));
        if !parser.consume_token(&Token::Comma) {
            return Ok(Some(parts.join(", ")));
        }
    }
}

/// A value as text, without its quotes.
fn setting_text(expr: &Expr) -> String {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text.clone(),
            Value::Boolean(true) => "on".to_string(),
            Value::Boolean(false) => "off".to_string(),
            other => other.to_string(),
        },
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::Interval(interval) => setting_text(&interval.value),
        other => other.to_string(),
    }
}

/// FETCH [direction] [count] [FROM | IN] cursor; only forward.
pub(super) fn parse_fetch(parser: &mut Parser<'_>) -> Parsed<Command> {
    let moves = word_at(parser, 0) == "MOVE";
    parser.advance_token();
    let mut count = Some(1);
    if take(parser, &["NEXT"]) {
    } else if take(parser, &["FORWARD"]) {
        count = parse_count(parser)?.unwrap_or(Some(1));
    } else if let Some(given) = parse_count(parser)? {
        count = given;
    } else if matches!(
        word_at(parser, 0).as_str(),
        "PRIOR" | "FIRST" | "LAST" | "ABSOLUTE" | "RELATIVE" | "BACKWARD"
    ) {
        return Err(super::columns::unsupported("a cursor that goes anywhere but forward"));
    }
    let _ = take(parser, &["FROM"]) || take(parser, &["IN"]);
    let cursor = fold(&parser.parse_identifier()?);
    Ok(Command::Fetch(FetchCursor { moves, count, cursor }))
}

fn parse_count(parser: &mut Parser<'_>) -> Parsed<Option<Option<u64>>> {
    if take(parser, &["ALL"]) {
        return Ok(Some(None));
    }
    match parser.peek_token_ref().token {
        Token::Number(..) => Ok(Some(Some(parser.parse_literal_uint()?))),
        _ => Ok(None),
    }
}

/// Refusals that need the whole statement.
pub(super) fn check(command: Command) -> Result<Command> {
    if let Command::Copy(copy) = &command
        && !matches!(copy.target, CopyTarget::Stdin | CopyTarget::Stdout)
    {
        return Err(SqlError::unsupported("COPY from or to a file of the server")
            .with_hint("Use COPY ... FROM STDIN or TO STDOUT, or a file source or sink."));
    }
    Ok(command)
}

//! CREATE TABLE, SOURCE, VIEW, MATERIALIZED VIEW and SINK. Other CREATEs are sqlparser's.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::ast::ObjectName;
use datafusion::sql::sqlparser::parser::{IsOptional, Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::ast_ext::{
    Command, CreateKind, CreateRelation, CreateSink, CreateView, Emit, SavepointCommand, SinkInput,
    StreamQuery, TableConflict, TableOptions,
};
use super::columns::{parse_columns, unsupported};
use super::{Parsed, expect, take, word_at};

pub(super) fn parse_create(parser: &mut Parser<'_>, emit: Option<Emit>) -> Parsed<Command> {
    let start = parser.index();
    expect(parser, "CREATE")?;
    let or_replace = take(parser, &["OR", "REPLACE"]);
    let temporary = take(parser, &["TEMPORARY"]) || take(parser, &["TEMP"]);
    match word_at(parser, 0).as_str() {
        "TABLE" | "SOURCE" | "STREAM" => parse_relation(parser, or_replace, temporary),
        "MATERIALIZED" if word_at(parser, 1) == "VIEW" => parse_view(parser, or_replace, emit),
        "VIEW" if !temporary => parse_view(parser, or_replace, emit),
        "SINK" => parse_sink(parser, emit),
        "SAVEPOINT" if !or_replace && !temporary => parse_savepoint(parser),
        _ => {
            while parser.index() > start {
                parser.prev_token();
            }
            Ok(Command::Sql(Box::new(parser.parse_statement()?)))
        }
    }
}

fn parse_savepoint(parser: &mut Parser<'_>) -> Parsed<Command> {
    parser.advance_token();
    let if_not_exists = take(parser, &["IF", "NOT", "EXISTS"]);
    let name = parser.parse_identifier()?;
    Ok(Command::Savepoint(SavepointCommand::Create { name, if_not_exists }))
}

fn parse_relation(parser: &mut Parser<'_>, or_replace: bool, temporary: bool) -> Parsed<Command> {
    let kind = if take(parser, &["TABLE"]) {
        CreateKind::Table
    } else {
        parser.advance_token();
        CreateKind::Source
    };
    let if_not_exists = take(parser, &["IF", "NOT", "EXISTS"]);
    let name = parser.parse_object_name(false)?;
    let found = parse_columns(parser)?;
    let options = parse_options(parser)?;
    let query = match take(parser, &["AS"]) {
        true => Some(StreamQuery::new(parser.parse_query()?, None)),
        false => None,
    };
    if query.is_some() {
        take(parser, &["WITH", "DATA"]);
        if take(parser, &["WITH", "NO", "DATA"]) {
            return Err(unsupported("WITH NO DATA"));
        }
    }
    Ok(Command::CreateRelation(Box::new(CreateRelation {
        kind,
        or_replace,
        temporary,
        if_not_exists,
        name,
        columns: found.columns,
        primary_key: found.primary_key,
        watermark: found.watermark,
        options,
        query,
    })))
}

fn parse_view(parser: &mut Parser<'_>, or_replace: bool, emit: Option<Emit>) -> Parsed<Command> {
    let materialized = take(parser, &["MATERIALIZED"]);
    expect(parser, "VIEW")?;
    let if_not_exists = take(parser, &["IF", "NOT", "EXISTS"]);
    let name = parser.parse_object_name(false)?;
    let view = parse_view_of(parser, name, emit)?;
    let view = CreateView { materialized, or_replace, if_not_exists, ..view };
    Ok(Command::CreateView(Box::new(view)))
}

/// What follows the name of a view: its columns, options and query.
pub(super) fn parse_view_of(
    parser: &mut Parser<'_>,
    name: ObjectName,
    emit: Option<Emit>,
) -> Parsed<CreateView> {
    let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
    let mut with = match word_at(parser, 0).as_str() {
        "WITH" => parse_with(parser)?,
        _ => BTreeMap::new(),
    };
    expect(parser, "AS")?;
    let query = parser.parse_query()?;
    take(parser, &["WITH", "DATA"]);
    if take(parser, &["WITH", "NO", "DATA"]) {
        return Err(unsupported("WITH NO DATA"));
    }
    let _ = parser.consume_token(&Token::SemiColon);
    if word_at(parser, 0) == "WITH" {
        with.extend(parse_with(parser)?);
    }
    Ok(CreateView {
        materialized: true,
        or_replace: false,
        if_not_exists: false,
        name,
        columns,
        query: StreamQuery::new(query, emit),
        with,
    })
}

fn parse_sink(parser: &mut Parser<'_>, emit: Option<Emit>) -> Parsed<Command> {
    expect(parser, "SINK")?;
    let if_not_exists = take(parser, &["IF", "NOT", "EXISTS"]);
    let name = parser.parse_object_name(false)?;
    if word_at(parser, 0) == "INTO" {
        return Err(unsupported("CREATE SINK ... INTO"));
    }
    let input = if take(parser, &["FROM"]) {
        SinkInput::From(parser.parse_object_name(false)?)
    } else {
        expect(parser, "AS")?;
        SinkInput::Query(StreamQuery::new(parser.parse_query()?, emit))
    };
    let options = parse_options(parser)?;
    Ok(Command::CreateSink(Box::new(CreateSink { if_not_exists, name, input, options })))
}

/// APPEND ONLY, ON CONFLICT, INCLUDE, WITH (...), FORMAT ... ENCODE ..., in any order.
fn parse_options(parser: &mut Parser<'_>) -> Parsed<TableOptions> {
    let mut options = TableOptions::default();
    // Where the options follow a query: see `tokens::end_query_before_options`.
    let _ = parser.consume_token(&Token::SemiColon);
    loop {
        match word_at(parser, 0).as_str() {
            "APPEND" => {
                parser.advance_token();
                expect(parser, "ONLY")?;
                options.append_only = true;
            }
            "ON" if word_at(parser, 1) == "CONFLICT" => {
                take(parser, &["ON", "CONFLICT"]);
                options.on_conflict = Some(parse_conflict(parser)?);
            }
            "INCLUDE" => return Err(unsupported("INCLUDE")),
            "WITH" if parser.peek_nth_token_ref(1).token == Token::LParen => {
                options.with.extend(parse_with(parser)?);
            }
            "WITH" if word_at(parser, 1) == "VERSION" => {
                return Err(unsupported("WITH VERSION COLUMN"));
            }
            "FORMAT" => parse_format(parser, &mut options.with)?,
            "PARTITION" | "PARTITIONED" => return Err(unsupported("PARTITION BY")),
            _ => return Ok(options),
        }
    }
}

fn parse_conflict(parser: &mut Parser<'_>) -> Parsed<TableConflict> {
    if take(parser, &["OVERWRITE"]) {
        Ok(TableConflict::Overwrite)
    } else if take(parser, &["IGNORE"]) || take(parser, &["DO", "NOTHING"]) {
        Ok(TableConflict::Ignore)
    } else {
        Err(unsupported("this ON CONFLICT clause of a table"))
    }
}

/// FORMAT name [ENCODE name [(options)]]: `format` is the encoding, `envelope` what wraps it, as connectors know them.
fn parse_format(parser: &mut Parser<'_>, options: &mut BTreeMap<String, String>) -> Parsed<()> {
    expect(parser, "FORMAT")?;
    let envelope = parser.parse_identifier()?.value.to_lowercase();
    match envelope.as_str() {
        "plain" | "native" => {}
        "upsert" | "debezium" | "maxwell" | "canal" => {
            return Err(unsupported(&format!("FORMAT {}", envelope.to_uppercase())));
        }
        other => {
            let text = format!("unknown FORMAT {other}; PLAIN is known");
            return Err(ParserError::ParserError(text));
        }
    }
    if !take(parser, &["ENCODE"]) {
        return Ok(());
    }
    let format = parser.parse_identifier()?.value.to_lowercase();
    options.insert("format".to_string(), format);
    if parser.peek_token_ref().token == Token::LParen {
        options.extend(parse_option_list(parser)?);
    }
    Ok(())
}

fn parse_with(parser: &mut Parser<'_>) -> Parsed<BTreeMap<String, String>> {
    expect(parser, "WITH")?;
    parse_option_list(parser)
}

/// `(name = value, ...)`. Names: words, words with dots, quoted of either kind. Values: strings, numbers, words.
fn parse_option_list(parser: &mut Parser<'_>) -> Parsed<BTreeMap<String, String>> {
    let mut options = BTreeMap::new();
    parser.expect_token(&Token::LParen)?;
    while !parser.consume_token(&Token::RParen) {
        let name = parse_option_name(parser)?;
        parser.expect_token(&Token::Eq)?;
        let value = parse_option_value(parser)?;
        if options.insert(name.clone(), value).is_some() {
            let text = format!("option \"{name}\" is given more than once");
            return Err(ParserError::ParserError(text));
        }
        if !parser.consume_token(&Token::Comma) {
            parser.expect_token(&Token::RParen)?;
            break;
        }
    }
    Ok(options)
}

fn parse_option_name(parser: &mut Parser<'_>) -> Parsed<String> {
    let mut name = option_word(parser)?;
    while parser.consume_token(&Token::Period) {
        name.push('.');
        name.push_str(&option_word(parser)?);
    }
    Ok(name.to_lowercase())
}

fn option_word(parser: &mut Parser<'_>) -> Parsed<String> {
    let token = parser.next_token();
    match token.token {
        Token::Word(word) => Ok(word.value),
        Token::SingleQuotedString(text) => Ok(text),
        _ => parser.expected("the name of an option", token),
    }
}

fn parse_option_value(parser: &mut Parser<'_>) -> Parsed<String> {
    let negative = parser.consume_token(&Token::Minus);
    let token = parser.next_token();
    let text = match token.token {
        Token::Number(digits, _) => digits,
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) if !negative => text,
        Token::DollarQuotedString(text) if !negative => text.value,
        Token::Word(word) if !negative && word.quote_style.is_none() => word.value.to_lowercase(),
        _ => return parser.expected("the value of an option", token),
    };
    Ok(if negative { format!("-{text}") } else { text })
}

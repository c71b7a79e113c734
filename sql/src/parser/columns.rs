//! The parenthesis of a CREATE TABLE: columns, constraints, WATERMARK FOR.

use datafusion::sql::sqlparser::ast::{ColumnOption, Expr, Ident, TableConstraint};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::ast_ext::ColumnSpec;
use super::{Parsed, expect, parse_type, take, word_at};

/// What the parenthesis holds.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) columns: Vec<ColumnSpec>,
    pub(super) primary_key: Option<Vec<Ident>>,
    pub(super) watermark: Option<(Ident, Expr)>,
}

/// Parses `(...)`; nothing when there is no parenthesis. A trailing comma is taken.
pub(super) fn parse_columns(parser: &mut Parser<'_>) -> Parsed<Columns> {
    let mut found = Columns::default();
    if !parser.consume_token(&Token::LParen) {
        return Ok(found);
    }
    while !parser.consume_token(&Token::RParen) {
        parse_element(parser, &mut found)?;
        if !parser.consume_token(&Token::Comma) {
            parser.expect_token(&Token::RParen)?;
            break;
        }
    }
    Ok(found)
}

fn parse_element(parser: &mut Parser<'_>, found: &mut Columns) -> Parsed<()> {
    if word_at(parser, 0) == "WATERMARK" && word_at(parser, 1) == "FOR" {
        take(parser, &["WATERMARK", "FOR"]);
        let column = parser.parse_identifier()?;
        expect(parser, "AS")?;
        let expr = parser.parse_expr()?;
        if found.watermark.replace((column, expr)).is_some() {
            return Err(ParserError::ParserError("more than one WATERMARK FOR".to_string()));
        }
        return Ok(());
    }
    if let Some(constraint) = parser.parse_optional_table_constraint()? {
        return match constraint {
            TableConstraint::PrimaryKey(key) => {
                let columns = key.columns.iter().map(|column| match &column.column.expr {
                    Expr::Identifier(ident) => Ok(ident.clone()),
                    other => Err(ParserError::ParserError(format!("{other} is not a column"))),
                });
                set_key(found, columns.collect::<Parsed<_>>()?)
            }
            other => Err(unsupported(&constraint_name(&other))),
        };
    }
    let column = parse_column(parser, found)?;
    found.columns.push(column);
    Ok(())
}

fn parse_column(parser: &mut Parser<'_>, found: &mut Columns) -> Parsed<ColumnSpec> {
    let name = parser.parse_identifier()?;
    let data_type = if word_at(parser, 0) == "AS" { None } else { Some(parse_type(parser)?) };
    let mut column =
        ColumnSpec { name, data_type, not_null: false, default: None, generated: None };
    loop {
        if take(parser, &["AS"]) {
            column.generated = Some(parser.parse_expr()?);
            continue;
        }
        if word_at(parser, 0) == "METADATA" {
            return Err(unsupported("METADATA columns"));
        }
        if take(parser, &["CONSTRAINT"]) {
            parser.parse_identifier()?;
        }
        let Some(option) = parser.parse_optional_column_option()? else {
            break;
        };
        match option {
            ColumnOption::Null => column.not_null = false,
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::Default(expr) => column.default = Some(expr),
            ColumnOption::PrimaryKey(_) => {
                column.not_null = true;
                set_key(found, vec![column.name.clone()])?;
            }
            ColumnOption::Generated { generation_expr: Some(expr), .. } => {
                column.generated = Some(expr);
            }
            ColumnOption::Collation(_) | ColumnOption::Comment(_) => {}
            ColumnOption::Unique(_) => return Err(unsupported("UNIQUE")),
            ColumnOption::ForeignKey(_) => return Err(unsupported("REFERENCES")),
            ColumnOption::Check(_) => return Err(unsupported("CHECK")),
            other => return Err(unsupported(&format!("column option {other}"))),
        }
    }
    Ok(column)
}

fn set_key(found: &mut Columns, columns: Vec<Ident>) -> Parsed<()> {
    if found.primary_key.replace(columns).is_some() {
        return Err(ParserError::ParserError("multiple primary keys are not allowed".to_string()));
    }
    Ok(())
}

fn constraint_name(constraint: &TableConstraint) -> String {
    let text = constraint.to_string();
    let text = match text.strip_prefix("CONSTRAINT ") {
        Some(rest) => rest.split_once(' ').map_or(rest, |(_, rest)| rest),
        None => text.as_str(),
    };
    text.split(['(', ' ']).next().unwrap_or_default().to_string()
}

/// A parser error that `other::check` turns into 0A000.
pub(super) fn unsupported(what: &str) -> ParserError {
    ParserError::ParserError(format!("{}{what}", super::other::UNSUPPORTED))
}

//! Data types: sqlparser's, and `STRUCT<name type, ...>`, which its Postgres dialect does not read.

use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, DataType, StructBracketKind, StructField};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::{Parsed, word_at};

/// Parses a data type.
pub(crate) fn parse_type(parser: &mut Parser<'_>) -> Parsed<DataType> {
    let mut closing = 0;
    let found = parse_nested(parser, &mut closing)?;
    if closing > 0 {
        let token = parser.peek_token();
        return parser.expected("matched angle brackets", token);
    }
    Ok(found)
}

/// `closing`: angle brackets closed ahead of time, since `>>` is one token.
fn parse_nested(parser: &mut Parser<'_>, closing: &mut usize) -> Parsed<DataType> {
    let is_struct =
        word_at(parser, 0) == "STRUCT" && parser.peek_nth_token_ref(1).token == Token::Lt;
    if !is_struct {
        return parser.parse_data_type();
    }
    parser.advance_token();
    parser.advance_token();
    let mut fields = Vec::new();
    loop {
        let name = parser.parse_identifier()?;
        let field_type = parse_nested(parser, closing)?;
        fields.push(StructField { field_name: Some(name), field_type, options: None });
        if *closing > 0 {
            *closing -= 1;
            break;
        }
        if parser.consume_token(&Token::Comma) {
            continue;
        }
        if parser.consume_token(&Token::ShiftRight) {
            *closing += 1;
            break;
        }
        parser.expect_token(&Token::Gt)?;
        break;
    }
    let mut found = DataType::Struct(fields, StructBracketKind::AngleBrackets);
    while *closing == 0 && parser.consume_token(&Token::LBracket) {
        parser.expect_token(&Token::RBracket)?;
        found = DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(found), None));
    }
    Ok(found)
}

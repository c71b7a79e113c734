//! Chains of operators: how long they may be, and operators that run into a sign.
//!
//! `a AND b AND c ...` is a tree as deep as it is long, and the planner goes down it by recursion. Where a bound on nesting does
//! not help, these bounds keep a statement of any client from taking the stack of the process, or minutes of planning.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError, TextMap};

/// AND and OR in a row.
const LOGIC_MAX: usize = 4000;
/// Arithmetic, comparisons, concatenations and casts in a row: types are resolved anew at each level.
const OPERATORS_MAX: usize = 400;
/// Set operations in a statement.
const SETS_MAX: usize = 1000;

/// Refuses chains that are too long.
///
/// # Errors
/// 54001.
pub(super) fn check(tokens: &[TokenWithSpan], text: &TextMap<'_>) -> Result<()> {
    let (mut logic, mut operators, mut sets) = (0, 0, 0);
    for token in tokens {
        match &token.token {
            Token::Comma => (logic, operators) = (0, 0),
            Token::Word(word) if word.quote_style.is_none() => {
                match word.value.to_ascii_uppercase().as_str() {
                    "AND" | "OR" => (logic, operators) = (logic + 1, 0),
                    "UNION" | "INTERSECT" | "EXCEPT" => {
                        (logic, operators, sets) = (0, 0, sets + 1);
                    }
                    "WHEN" | "THEN" | "ELSE" => operators = 0,
                    _ => {}
                }
            }
            Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::DoubleColon => operators += 1,
            _ => {}
        }
        if logic > LOGIC_MAX || operators > OPERATORS_MAX || sets > SETS_MAX {
            let error = SqlError::new("54001", "statement has too many operators in a row");
            let position = text.position(token.span.start.line, token.span.start.column);
            let hint = "Use parentheses, IN (...) or VALUES instead of one long chain.";
            return Err(SqlError { position, ..error.with_hint(hint) });
        }
    }
    Ok(())
}

/// `1>-1` is a comparison with a negative number: an operator of several characters ends in a sign only if it also has one
/// of `~ ! @ # % ^ & | ?` and the backquote. sqlparser takes it for one operator.
pub(super) fn split_signs(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut split = Vec::with_capacity(tokens.len());
    for token in tokens {
        match parts(&token.token) {
            Some((operator, sign)) => {
                split.push(TokenWithSpan { token: operator, span: token.span });
                split.push(TokenWithSpan { token: sign, span: token.span });
            }
            None => split.push(token),
        }
    }
    split
}

fn parts(token: &Token) -> Option<(Token, Token)> {
    let Token::CustomBinaryOperator(text) = token else { return None };
    let (operator, sign) = match text.split_at_checked(text.len().saturating_sub(1))? {
        (operator, "-") => (operator, Token::Minus),
        (operator, "+") => (operator, Token::Plus),
        _ => return None,
    };
    let operator = match operator {
        "<" => Token::Lt,
        ">" => Token::Gt,
        "=" => Token::Eq,
        "<=" => Token::LtEq,
        ">=" => Token::GtEq,
        "<>" => Token::Neq,
        "+" => Token::Plus,
        "*" => Token::Mul,
        "/" => Token::Div,
        _ => return None,
    };
    Some((operator, sign))
}

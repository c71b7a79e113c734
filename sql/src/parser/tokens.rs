//! Work on tokens before parsing: cutting at semicolons, taking EMIT clauses out, and spellings that sqlparser's
//! Postgres dialect does not read.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ast_ext::Emit;
use super::token_end;
use crate::error::{Result, SqlError, TextMap};

/// Window table functions, whose first argument may be spelled `TABLE t`.
const WINDOW_FUNCTIONS: [&str; 4] = ["TUMBLE", "HOP", "CUMULATE", "SESSION"];

/// Cuts at semicolons. Parts may be empty.
pub(super) fn split(tokens: Vec<TokenWithSpan>) -> Vec<Vec<TokenWithSpan>> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match (&token.token, parts.last_mut()) {
            (Token::EOF, _) | (_, None) => {}
            (Token::SemiColon, _) => parts.push(Vec::new()),
            (_, Some(last)) => last.push(token),
        }
    }
    parts
}

/// The bytes from the first to the last token that is not white space.
pub(super) fn byte_range(tokens: &[TokenWithSpan], text: &TextMap<'_>) -> std::ops::Range<usize> {
    let mut solid = tokens.iter().filter(|token| !is_space(token));
    let Some(first) = solid.next() else {
        return 0..0;
    };
    let last = solid.next_back().unwrap_or(first);
    let start = text.byte(first.span.start.line, first.span.start.column);
    let (line, column) = token_end(last);
    let end = text.byte(line, column);
    start.unwrap_or_default()..end.unwrap_or_default()
}

/// Drops white space, takes the EMIT clause out, and rewrites spellings.
///
/// # Errors
/// 0A000 for EMIT clauses that we do not have.
pub(super) fn preprocess(
    tokens: Vec<TokenWithSpan>,
    text: &TextMap<'_>,
) -> Result<(Vec<TokenWithSpan>, Option<Emit>)> {
    let tokens: Vec<_> = tokens.into_iter().filter(|token| !is_space(token)).collect();
    let (tokens, emit) = take_emit(tokens, text)?;
    let mut kept: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest = tokens.into_iter().peekable();
    let mut buffer: Vec<TokenWithSpan> = Vec::new();
    while let Some(token) = rest.next() {
        let next_is_word = matches!(rest.peek().map(|next| &next.token), Some(Token::Word(_)));
        if is_word(&token, "TABLE") && next_is_word && after_window_call(&kept) {
            continue;
        }
        if is_word(&token, "PARTITION")
            && let Some(by) = rest.next_if(|next| is_word(next, "BY") && in_session_call(&kept))
        {
            kept.extend(partition_argument(&token, &by));
            continue;
        }
        buffer.push(token);
        kept.append(&mut buffer);
    }
    end_query_before_options(&mut kept);
    Ok((kept, emit))
}

/// Words that no table can have as its name without quotes, and that no expression begins with.
const RESERVED: [&str; 20] = [
    "AND",
    "AS",
    "ELSE",
    "END",
    "EXCEPT",
    "FETCH",
    "FROM",
    "GROUP",
    "HAVING",
    "INTERSECT",
    "LIMIT",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "RETURNING",
    "THEN",
    "UNION",
    "USING",
    "WHERE",
];

/// The error of a reserved word in the place of a table's name: sqlparser takes any word after FROM for one.
pub(super) fn reserved_table(tokens: &[TokenWithSpan], text: &TextMap<'_>) -> Option<SqlError> {
    for pair in tokens.windows(2) {
        let [before, word] = pair else { continue };
        let opens = is_word(before, "FROM") || is_word(before, "JOIN");
        if opens && let Some(found) = RESERVED.iter().find(|reserved| is_word(word, reserved)) {
            let error = SqlError::new("42601", format!("syntax error at or near \"{found}\""));
            let position = text.position(word.span.start.line, word.span.start.column);
            return Some(SqlError { position, ..error });
        }
    }
    None
}

/// Ends the query of a CREATE by a semicolon where its options begin: in `FROM t WITH (...)` sqlparser would take them
/// for the hints of another dialect.
fn end_query_before_options(tokens: &mut Vec<TokenWithSpan>) {
    if !tokens.first().is_some_and(|first| is_word(first, "CREATE")) {
        return;
    }
    let (mut depth, mut in_query, mut options) = (0, false, None);
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth > 0 => {}
            _ if is_word(token, "AS") => in_query = true,
            _ if in_query && is_word(token, "WITH") => {
                let opens = tokens.get(at + 1).is_some_and(|next| next.token == Token::LParen);
                options = options.or(opens.then_some(at));
            }
            _ => {}
        }
    }
    if let Some(at) = options {
        let span = tokens[at].span;
        tokens.insert(at, TokenWithSpan { token: Token::SemiColon, span });
    }
}

/// Whether the next token would be the first argument of a window function.
fn after_window_call(before: &[TokenWithSpan]) -> bool {
    let named_argument = matches!(before.last().map(|token| &token.token), Some(Token::RArrow));
    let [.., function, open] = before else {
        return false;
    };
    let function = WINDOW_FUNCTIONS.iter().any(|name| is_word(function, name));
    named_argument || (open.token == Token::LParen && function)
}

/// Whether the next token would stand in the arguments of SESSION itself.
fn in_session_call(before: &[TokenWithSpan]) -> bool {
    let mut depth = 0;
    for (at, token) in before.iter().enumerate().rev() {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return at > 0 && is_word(&before[at - 1], "SESSION"),
            Token::LParen => depth -= 1,
            _ => {}
        }
    }
    false
}

/// `SESSION(t PARTITION BY k, ...)` as `SESSION(t, partition_by => k, ...)`.
fn partition_argument(partition: &TokenWithSpan, by: &TokenWithSpan) -> [TokenWithSpan; 3] {
    let spanned = |token: Token, of: &TokenWithSpan| TokenWithSpan { token, span: of.span };
    [
        spanned(Token::Comma, partition),
        spanned(Token::make_word("partition_by", None), partition),
        spanned(Token::RArrow, by),
    ]
}

/// Finds `EMIT ...` and cuts it out. A query that names a column `emit` is left alone.
fn take_emit(
    mut tokens: Vec<TokenWithSpan>,
    text: &TextMap<'_>,
) -> Result<(Vec<TokenWithSpan>, Option<Emit>)> {
    let starts = |at: usize, words: &[&str]| {
        words
            .iter()
            .enumerate()
            .all(|(n, word)| tokens.get(at + n).is_some_and(|token| is_word(token, word)))
    };
    let clauses: [(&[&str], Emit); 4] = [
        (&["EMIT", "ON", "WINDOW", "CLOSE"], Emit::OnWindowClose),
        (&["EMIT", "FINAL"], Emit::OnWindowClose),
        (&["EMIT", "ON", "UPDATE"], Emit::OnUpdate),
        (&["EMIT", "CHANGES"], Emit::Changes),
    ];
    let mut depth = 0usize;
    let mut found = None;
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        if !is_word(token, "EMIT") {
            continue;
        }
        let place = token.span.start;
        let place = text.position(place.line, place.column);
        let clause = clauses.iter().find(|(words, _)| starts(at, words));
        let refused = starts(at, &["EMIT", "PERIODIC"])
            || matches!(clause, Some((words, Emit::OnWindowClose)) if ["DELAY", "TIMEOUT", "WITH"]
                .iter()
                .any(|word| *word != "WITH" && starts(at + words.len(), &[word]))
                || starts(at + words.len(), &["WITH", "EARLY"]));
        if refused {
            let error = SqlError::unsupported("this EMIT clause");
            return Err(SqlError { position: place, ..error });
        }
        if let Some((words, emit)) = clause {
            if found.is_some() {
                let error = SqlError::unsupported("more than one EMIT clause");
                return Err(SqlError { position: place, ..error });
            }
            found = Some((at, words.len(), *emit, depth, place));
        }
    }
    let Some((at, length, emit, depth, place)) = found else {
        return Ok((tokens, None));
    };
    // Inside parentheses only as the whole of SUBSCRIBE (...) or COPY (SUBSCRIBE (...)).
    let wraps = ["SUBSCRIBE", "COPY"];
    let outer = tokens.first().is_some_and(|token| wraps.iter().any(|word| is_word(token, word)));
    if depth > 0 && !outer {
        let error = SqlError::unsupported("EMIT in a sub-query");
        return Err(SqlError { position: place, ..error });
    }
    tokens.drain(at..at + length);
    Ok((tokens, Some(emit)))
}

pub(super) fn is_word(token: &TokenWithSpan, wanted: &str) -> bool {
    matches!(&token.token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

//! Text input of arrays `{1,2,NULL}` and records `(1,abc,)`.

use millstream_sql::SqlError;

use super::Builder;
use crate::pgwire::error::error;

/// Appends the elements of an array literal to the child; gives their number.
pub(super) fn append_array(text: &str, vector: bool, child: &mut Builder) -> Result<i32, SqlError> {
    if vector {
        let mut count = 0;
        for element in text.split_ascii_whitespace() {
            child.append_text(element)?;
            count += 1;
        }
        return Ok(count);
    }
    let bad = || error("22P02", format!("malformed array literal: \"{text}\""));
    let mut body = text.trim();
    // An explicit lower bound, `[0:2]={...}`, does not change the elements.
    if body.starts_with('[') {
        body = body.split_once('=').ok_or_else(bad)?.1.trim();
    }
    let inside = body.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(bad)?;
    if inside.trim().is_empty() {
        return Ok(0);
    }
    let mut scanner = Scanner { rest: inside };
    let mut count: i32 = 0;
    loop {
        match scanner.array_element().ok_or_else(bad)? {
            Element::Null => child.append_null(),
            Element::Nested(literal) => child.append_text(literal)?,
            Element::Value(value) => child.append_text(&value)?,
        }
        count = count.saturating_add(1);
        match scanner.next() {
            None => return Ok(count),
            Some(',') => {}
            Some(_) => return Err(bad()),
        }
    }
}

/// Appends the fields of a record literal, one to each child.
pub(super) fn append_record(text: &str, children: &mut [Builder]) -> Result<(), SqlError> {
    let bad = |detail: &str| {
        error("22P02", format!("malformed record literal: \"{text}\"")).with_detail(detail)
    };
    let body = text.trim();
    let inside = body.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inside = inside.ok_or_else(|| bad("Missing parenthesis."))?;
    let mut scanner = Scanner { rest: inside };
    let last = children.len().saturating_sub(1);
    for (index, child) in children.iter_mut().enumerate() {
        match scanner.record_field().ok_or_else(|| bad("Unexpected end of input."))? {
            None => child.append_null(),
            Some(value) => child.append_text(&value)?,
        }
        match scanner.next() {
            Some(',') if index < last => {}
            None if index == last => {}
            None => return Err(bad("Too few columns.")),
            Some(_) => return Err(bad("Too many columns.")),
        }
    }
    Ok(())
}

enum Element<'a> {
    Null,
    Nested(&'a str),
    Value(String),
}

struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn array_element(&mut self) -> Option<Element<'a>> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('{') {
            let length = nested_length(self.rest)?;
            let (literal, rest) = self.rest.split_at(length);
            self.rest = rest.trim_start();
            return Some(Element::Nested(literal));
        }
        if let Some(rest) = self.rest.strip_prefix('"') {
            self.rest = rest;
            let value = self.quoted(false)?;
            self.rest = self.rest.trim_start();
            return Some(Element::Value(value));
        }
        let mut value = String::new();
        // Blanks at the end do not count, unless they are escaped.
        let mut kept = 0;
        while let Some(next) = self.rest.chars().next().filter(|next| *next != ',') {
            self.next();
            match next {
                '{' | '}' | '"' => return None,
                '\\' => {
                    value.push(self.next()?);
                    kept = value.len();
                }
                other => {
                    value.push(other);
                    if !other.is_ascii_whitespace() {
                        kept = value.len();
                    }
                }
            }
        }
        value.truncate(kept);
        if value.is_empty() {
            return None;
        }
        Some(if value.eq_ignore_ascii_case("null") { Element::Null } else { Element::Value(value) })
    }

    /// The rest of a quoted text, whose opening quote is gone.
    fn quoted(&mut self, doubled: bool) -> Option<String> {
        let mut value = String::new();
        loop {
            match self.next()? {
                '"' if doubled && self.rest.starts_with('"') => {
                    self.next();
                    value.push('"');
                }
                '"' => return Some(value),
                '\\' => value.push(self.next()?),
                other => value.push(other),
            }
        }
    }

    /// `Some(None)`: nothing between the commas, which is NULL.
    fn record_field(&mut self) -> Option<Option<String>> {
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Some(None);
        }
        let mut value = String::new();
        while let Some(next) = self.rest.chars().next().filter(|next| *next != ',') {
            self.next();
            match next {
                '"' => value.push_str(&self.quoted(true)?),
                '\\' => value.push(self.next()?),
                other => value.push(other),
            }
        }
        Some(Some(value))
    }
}

/// Bytes of the literal in braces at the start of the text.
fn nested_length(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if escaped {
            escaped = false;
            continue;
        }
        match byte {
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

//! PostgreSQL's text form of arrays: `{1,NULL,"a b"}`.

/// The elements of an array literal, `None` for NULL; the outer `None` when it is none. An element that is an array
/// itself is given as its literal.
pub(super) fn parse(text: &str) -> Option<Vec<Option<String>>> {
    let mut body = text.trim();
    // An explicit lower bound, `[0:2]={...}`, does not change the elements.
    if body.starts_with('[') {
        body = body.split_once('=')?.1.trim();
    }
    let inside = body.strip_prefix('{')?.strip_suffix('}')?;
    let mut elements = Vec::new();
    if inside.trim().is_empty() {
        return Some(elements);
    }
    let mut rest = inside.chars().peekable();
    loop {
        while rest.next_if(|next| next.is_whitespace()).is_some() {}
        let element = match rest.peek()? {
            '"' => Some(quoted(&mut rest)?),
            '{' => Some(nested(&mut rest)?),
            _ => bare(&mut rest)?,
        };
        elements.push(element);
        while rest.next_if(|next| next.is_whitespace()).is_some() {}
        match rest.next() {
            None => return Some(elements),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn quoted(rest: &mut Rest<'_>) -> Option<String> {
    let mut value = String::new();
    rest.next();
    loop {
        match rest.next()? {
            '"' => return Some(value),
            '\\' => value.push(rest.next()?),
            other => value.push(other),
        }
    }
}

fn nested(rest: &mut Rest<'_>) -> Option<String> {
    let (mut value, mut depth, mut in_quotes) = (String::new(), 0_usize, false);
    loop {
        let next = rest.next()?;
        value.push(next);
        match next {
            '\\' => value.push(rest.next()?),
            '"' => in_quotes = !in_quotes,
            '{' if !in_quotes => depth += 1,
            '}' if !in_quotes => {
                depth -= 1;
                if depth == 0 {
                    return Some(value);
                }
            }
            _ => {}
        }
    }
}

#[allow(clippy::option_option)] // no literal, and NULL
fn bare(rest: &mut Rest<'_>) -> Option<Option<String>> {
    let (mut value, mut kept, mut escaped) = (String::new(), 0, false);
    while let Some(next) = rest.next_if(|next| *next != ',') {
        match next {
            '{' | '}' | '"' => return None,
            '\\' => {
                value.push(rest.next()?);
                (kept, escaped) = (value.len(), true);
            }
            other => {
                value.push(other);
                // Blanks at the end do not count.
                if !other.is_whitespace() {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    let is_null = !escaped && value.eq_ignore_ascii_case("null");
    match value.is_empty() {
        true => None,
        false => Some((!is_null).then_some(value)),
    }
}

/// Writes one element as it stands between the braces. `is_array`: it is a literal of its own.
pub(super) fn write(element: Option<&str>, is_array: bool, out: &mut String) {
    let Some(text) = element else {
        out.push_str("NULL");
        return;
    };
    let special = |c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || c.is_whitespace();
    let plain = !text.is_empty() && !text.eq_ignore_ascii_case("null") && !text.contains(special);
    if plain || is_array {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str) -> Option<Vec<Option<String>>> {
        parse(text)
    }

    fn some(values: &[&str]) -> Option<Vec<Option<String>>> {
        Some(values.iter().map(|value| Some((*value).to_string())).collect())
    }

    #[test]
    fn literals() {
        assert_eq!(elements("{}"), some(&[]));
        assert_eq!(elements(" { a , b c } "), some(&["a", "b c"]));
        assert_eq!(elements("{NULL,\"null\"}"), Some(vec![None, Some("null".into())]));
        assert_eq!(elements(r#"{"a \"b\"",\,,"{"}"#), some(&["a \"b\"", ",", "{"]));
        assert_eq!(elements("{{1,2},{3}}"), some(&["{1,2}", "{3}"]));
        assert_eq!(elements("[0:1]={1,2}"), some(&["1", "2"]));
        for wrong in ["", "1,2", "{1", "{1,}", "{,1}", "{1}}", "{\"a}", "{a\"b\"}"] {
            assert_eq!(elements(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn elements_are_quoted_where_they_must_be() {
        let mut text = String::new();
        for element in [Some("a"), None, Some("NULL"), Some("a b"), Some("q\"\\"), Some("")] {
            write(element, false, &mut text);
            text.push(' ');
        }
        assert_eq!(text, r#"a NULL "NULL" "a b" "q\"\\" "" "#);
    }
}

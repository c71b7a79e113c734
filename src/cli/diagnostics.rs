//! Errors and notices as `psql` shows them: message, the line with a caret under the place, detail, hint.

use millstream::{Error, Notice, SqlError};

/// The widest part of a line that is shown around a place.
const EXCERPT_CHARS: usize = 72;

/// An error of a statement in `text`. `name`: the script it came from.
pub(super) fn error_text(error: &Error, text: &str, name: Option<&str>) -> String {
    match error {
        Error::Sql(error) => sql_error_text(error, text, name),
        other => format!("{}ERROR:  {other}", place(name, None)),
    }
}

fn sql_error_text(error: &SqlError, text: &str, name: Option<&str>) -> String {
    let found = error.position.and_then(|position| Line::at(text, position));
    let line = found.as_ref().map(|line| line.number);
    let mut out = format!("{}ERROR:  {}: {}", place(name, line), error.sqlstate, error.message);
    if let Some(line) = found {
        out.push('\n');
        out.push_str(&line.excerpt());
    }
    if let Some(detail) = &error.detail {
        out.push_str(&format!("\nDETAIL:  {detail}"));
    }
    if let Some(hint) = &error.hint {
        out.push_str(&format!("\nHINT:  {hint}"));
    }
    out
}

/// A notice.
pub(super) fn notice_text(notice: &Notice) -> String {
    let hint = notice.hint.as_ref().map(|hint| format!("\nHINT:  {hint}"));
    format!("{}:  {}{}", notice.severity, notice.message, hint.unwrap_or_default())
}

fn place(name: Option<&str>, line: Option<usize>) -> String {
    match (name, line) {
        (Some(name), Some(line)) => format!("{name}:{line}: "),
        (Some(name), None) => format!("{name}: "),
        (None, _) => String::new(),
    }
}

/// The line that a position is in.
struct Line {
    number: usize,
    chars: Vec<char>,
    /// Characters before the place.
    column: usize,
}

impl Line {
    /// `position`: characters from 1; one behind the text is its end.
    fn at(text: &str, position: usize) -> Option<Self> {
        let chars: Vec<char> = text.chars().collect();
        let at = position.checked_sub(1)?;
        if at > chars.len() {
            return None;
        }
        let start = chars[..at].iter().rposition(|c| *c == '\n').map_or(0, |newline| newline + 1);
        let end =
            chars[at..].iter().position(|c| *c == '\n').map_or(chars.len(), |length| at + length);
        let number = chars[..start].iter().filter(|c| **c == '\n').count() + 1;
        Some(Self { number, chars: chars[start..end].to_vec(), column: at - start })
    }

    /// The line, or the part of it around the place, and a caret below.
    fn excerpt(&self) -> String {
        let from = match self.chars.len() {
            length if length <= EXCERPT_CHARS => 0,
            length => self.column.saturating_sub(EXCERPT_CHARS / 2).min(length - EXCERPT_CHARS),
        };
        let to = self.chars.len().min(from + EXCERPT_CHARS);
        // A tab is as wide as a terminal likes: a blank keeps the caret in its place.
        let shown: String =
            self.chars[from..to].iter().map(|c| if *c == '\t' { ' ' } else { *c }).collect();
        let (before, after) =
            (if from > 0 { "..." } else { "" }, if to < self.chars.len() { "..." } else { "" });
        let label = format!("LINE {}: {before}", self.number);
        let under: String = self.chars[from..self.column].iter().collect();
        let indent = label.chars().count() + unicode_width::UnicodeWidthStr::width(under.as_str());
        format!("{label}{shown}{after}\n{}^", " ".repeat(indent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_place() {
        let text = "SELECT 1;\nSELECT é, nope\nFROM t";
        let position = text.chars().position(|c| c == 'n').unwrap() + 1;
        let error = SqlError::new("42703", "column \"nope\" does not exist")
            .with_position(position)
            .with_hint("Look again.");
        let shown = error_text(&error.into(), text, Some("q.sql"));
        let expected = "q.sql:2: ERROR:  42703: column \"nope\" does not exist\n\
                        LINE 2: SELECT é, nope\n\
                        \x20                 ^\n\
                        HINT:  Look again.";
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_end_of_the_text_is_a_place() {
        let error = SqlError::new("42601", "syntax error at end of input").with_position(7);
        let shown = error_text(&error.into(), "SELECT", None);
        assert!(shown.ends_with("LINE 1: SELECT\n              ^"), "{shown}");
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}bad{}", "x".repeat(200), "y".repeat(200));
        let error = SqlError::new("42601", "syntax error").with_position(201);
        let shown = error_text(&error.into(), &text, None);
        let lines: Vec<&str> = shown.lines().collect();
        let caret = lines[2].find('^').unwrap();
        assert_eq!(&lines[1][caret..caret + 3], "bad");
        assert!(lines[1].len() < 100);
    }

    #[test]
    fn a_place_outside_of_the_text_is_left_out() {
        let error = SqlError::new("42601", "syntax error").with_position(99);
        assert_eq!(error_text(&error.into(), "SELECT", None), "ERROR:  42601: syntax error");
    }
}

//! Places in a statement's text, and names that look alike.

/// A statement string with the starts of its lines: turns the tokenizer's line and column into a character offset.
#[derive(Clone, Debug)]
pub(crate) struct TextMap<'a> {
    text: &'a str,
}

impl<'a> TextMap<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text }
    }

    /// The character (from 1) at a line and column (from 1). Line 0 is the tokenizer's "nowhere".
    pub(crate) fn position(&self, line: u64, column: u64) -> Option<usize> {
        let byte = self.byte(line, column)?;
        Some(self.text[..byte].chars().count() + 1)
    }

    /// The byte at a line and column.
    pub(crate) fn byte(&self, line: u64, column: u64) -> Option<usize> {
        let (line, column) = (usize::try_from(line).ok()?, usize::try_from(column).ok()?);
        if line == 0 || column == 0 {
            return None;
        }
        let start = match line {
            1 => 0,
            _ => self.text.match_indices('\n').nth(line - 2)?.0 + 1,
        };
        let rest = &self.text[start..];
        let offset = rest.char_indices().nth(column - 1).map_or(rest.len(), |(at, _)| at);
        Some(start + offset)
    }

    /// The place behind the last character.
    pub(crate) fn end(&self) -> usize {
        self.text.chars().count() + 1
    }
}

/// The known name that is most like the wanted one, if any is like it at all.
pub(crate) fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let near = known.map(|name| (distance(&wanted, &name.to_lowercase()), name));
    let (far, name) = near.min_by_key(|(far, _)| *far)?;
    (far <= (wanted.chars().count() / 3).max(1)).then_some(name)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_over_lines() {
        let text = TextMap::new("é\nab");
        assert_eq!(text.position(1, 1), Some(1));
        assert_eq!(text.position(2, 2), Some(4));
        assert_eq!(text.position(0, 0), None);
        assert_eq!(text.end(), 5);
    }

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("ordrs", ["orders", "bids"].into_iter()), Some("orders"));
        assert_eq!(nearest("x", ["orders"].into_iter()), None);
    }
}

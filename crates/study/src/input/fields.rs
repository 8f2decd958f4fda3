//! Fields of a line, and their delimiter.

/// What separates the fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delimiter {
    Comma,
    Semicolon,
    Tab,
}

impl Delimiter {
    /// The delimiter that splits a line into the most fields; a comma if several do.
    pub(super) fn of_line(text: &str) -> Self {
        let mut most = (Self::Comma, 0);
        for delimiter in [Self::Comma, Self::Semicolon, Self::Tab] {
            let count = delimiter.split(text).count();
            if count > most.1 {
                most = (delimiter, count);
            }
        }
        most.0
    }

    fn character(self) -> char {
        match self {
            Self::Comma => ',',
            Self::Semicolon => ';',
            Self::Tab => '\t',
        }
    }

    /// The line without surrounding space. A tab at an end is kept if tabs separate fields, because
    /// a field may be empty.
    pub(super) fn trim(self, text: &str) -> &str {
        match self {
            Self::Tab => text.trim_matches([' ', '\r', '\n']),
            Self::Comma | Self::Semicolon => text.trim(),
        }
    }

    /// Whether a line has more than one field.
    pub(super) fn is_in(self, text: &str) -> bool {
        text.contains(self.character())
    }

    /// The fields of a line, without surrounding space and quotes. A delimiter inside a field in
    /// quotes belongs to the field.
    pub(super) fn split(self, text: &str) -> impl Iterator<Item = &str> {
        let mut rest = Some(text);
        std::iter::from_fn(move || {
            let text = rest?;
            let end = self.end(text);
            rest = text.get(end + 1..).filter(|_| end < text.len());
            Some(unquoted(&text[..end]))
        })
    }

    /// Where the first field ends.
    fn end(self, text: &str) -> usize {
        let may_be_quoted = text.trim_start_matches(' ').starts_with('"');
        let mut is_quoted = false;
        let is_end = |character: char| {
            is_quoted ^= may_be_quoted && character == '"';
            !is_quoted && character == self.character()
        };
        text.find(is_end).unwrap_or(text.len())
    }
}

/// A field without surrounding space and without the quotes that spreadsheets put around it.
pub(super) fn unquoted(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_split_at_delimiters_outside_quotes() {
        let split = |text: &'static str| Delimiter::of_line(text).split(text).collect::<Vec<_>>();
        assert_eq!(split("a, \"b,c\" ,d"), ["a", "b,c", "d"]);
        assert_eq!(split("\"a, \"\"b\"\"\",1"), ["a, \"\"b\"\"", "1"]);
        assert_eq!(split("a;b, c;d"), ["a", "b, c", "d"]);
        assert_eq!(split("a\t\tb"), ["a", "", "b"]);
        assert_eq!(split("0,\t1.5"), ["0", "1.5"]);
        assert_eq!(split("5\" disk,1,"), ["5\" disk", "1", ""]);
        assert_eq!(split("a,\"b"), ["a", "\"b"]);
        assert_eq!(split(""), [""]);
    }
}

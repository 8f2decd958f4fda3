//! Reads the settings of a TOML file, each with its file and line number.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::ConfigError;
use super::value::Value;

/// A setting with its origin.
pub(super) struct Entry<'a> {
    pub(super) key: String,
    pub(super) value: Value<'a>,
    /// File and line, as `file:line`.
    pub(super) location: String,
}

/// A file's text with its path.
pub(super) struct Text<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl<'a> Text<'a> {
    pub(super) fn parse(&self) -> Result<DeTable<'a>, ConfigError> {
        let parsed = DeTable::parse(self.text).map_err(|error| {
            let location = self.location(error.span().map_or(0, |span| span.start));
            ConfigError(format!("{location}: {}", error.message().lines().collect::<Vec<_>>().join(", ")))
        });
        parsed.map(toml::Spanned::into_inner)
    }

    /// Settings outside of `[[target]]` tables.
    pub(super) fn settings<'d>(&self, document: &'d DeTable<'a>) -> Result<Vec<Entry<'d>>, ConfigError> {
        let mut found = Vec::new();
        for (key, value) in document.iter().filter(|(key, _)| key.get_ref() != TARGET) {
            let (location, key) = (self.location(key.span().start), key.get_ref().to_string());
            let is_section = super::settings().any(|known| known.section() == key);
            match value.get_ref() {
                DeValue::Table(table) => found.extend(self.entries(&key, table)),
                other if is_section => {
                    let message = format!("expected a table `[{key}]`, found {}", other.type_str());
                    return Err(ConfigError::of_key(&location, &key, &message));
                }
                other => found.push(Entry { key, value: Value::Toml(other), location }),
            }
        }
        Ok(found)
    }

    /// The `[[target]]` tables, each with its file and line.
    pub(super) fn targets<'d>(
        &self,
        document: &'d DeTable<'a>,
    ) -> Result<Vec<(String, Vec<Entry<'d>>)>, ConfigError> {
        let Some((key, value)) = document.get_key_value(TARGET) else { return Ok(Vec::new()) };
        let refuse = || {
            let message = "expected tables: [[target]] with target = \"host:port\"";
            ConfigError::of_key(&self.location(key.span().start), TARGET, message)
        };
        let DeValue::Array(items) = value.get_ref() else { return Err(refuse()) };
        let table = |item: &'d toml::Spanned<DeValue<'a>>| {
            let DeValue::Table(table) = item.get_ref() else { return Err(refuse()) };
            // Some tables of an array have an empty span. For such a table, use the position of its
            // first key.
            let first = table.iter().map(|(key, _)| key.span().start).min().unwrap_or(0);
            let start = if self.text[item.span()].is_empty() { first } else { item.span().start };
            Ok((self.location(start), self.entries(TARGET, table)))
        };
        items.iter().map(table).collect()
    }

    fn location(&self, offset: usize) -> String {
        let before = self.text.as_bytes().iter().take(offset);
        format!("{}:{}", self.path.display(), 1 + before.filter(|byte| **byte == b'\n').count())
    }

    fn entries<'d>(&self, section: &str, table: &'d DeTable<'a>) -> Vec<Entry<'d>> {
        // The parser orders tables by key; report errors in the order of lines.
        let mut found: Vec<_> = table.iter().collect();
        found.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&toml::Spanned<_>, &'d toml::Spanned<_>)| Entry {
            key: format!("{section}.{}", key.get_ref()),
            value: Value::Toml(value.get_ref()),
            location: self.location(key.span().start),
        };
        found.into_iter().map(entry).collect()
    }
}

const TARGET: &str = "target";

//! A TOML text as settings that know their lines.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::{ConfigError, KEYS, Value};
use crate::measure::target::{Provenance, Target};

/// Where a setting was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file.
    Line {
        /// Its path.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// In an environment variable.
    Variable(String),
    /// In a flag.
    Flag(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag for {name}"),
        }
    }
}

/// A setting and its place.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) place: Place,
}

/// A `[[target]]` table: its own line and its entries.
pub(super) struct TargetTable {
    place: Place,
    entries: Vec<Entry>,
}

impl TargetTable {
    pub(super) fn place(&self) -> &Place {
        &self.place
    }
}

/// What a file says.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) values: Vec<Entry>,
    pub(super) targets: Vec<TargetTable>,
}

/// Flattens a TOML text; tables become prefixes, `[[target]]` tables stay together.
pub(super) fn entries(path: &Path, text: &str) -> Result<Entries, ConfigError> {
    let lines = Lines { path, text };
    let document = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        place: lines.place(error.span().map_or(0, |span| span.start)),
        message: error.message().lines().collect::<Vec<_>>().join(", "),
    })?;
    let mut found = Entries::default();
    for (key, value) in document.get_ref() {
        let place = lines.place(key.span().start);
        match value.get_ref() {
            DeValue::Array(items) if key.get_ref() == "target" => {
                for item in items {
                    let DeValue::Table(table) = item.get_ref() else { return Err(not_tables(place)) };
                    // An array of tables has no span of its own in every form; its first key is near enough.
                    let first = table.iter().map(|(key, _)| key.span().start).min();
                    let start =
                        if text[item.span()].is_empty() { first.unwrap_or(0) } else { item.span().start };
                    found
                        .targets
                        .push(TargetTable { place: lines.place(start), entries: lines.entries("", table) });
                }
            }
            _ if key.get_ref() == "target" => return Err(not_tables(place)),
            DeValue::Table(table) => {
                found.values.extend(lines.entries(&format!("{}.", key.get_ref()), table))
            }
            other if KEYS.iter().any(|known| known.starts_with(&format!("{}.", key.get_ref()))) => {
                let message = format!("expected a table `[{}]`, found {}", key.get_ref(), other.type_str());
                return Err(ConfigError::Value { place, key: key.get_ref().to_string(), message });
            }
            other => {
                found.values.push(Entry { key: key.get_ref().to_string(), value: convert(other), place })
            }
        }
    }
    Ok(found)
}

/// Makes a target of its table.
pub(super) fn target(table: &TargetTable) -> Result<Target, ConfigError> {
    let mut address = None;
    let mut quantities = Vec::new();
    let mut period = None;
    let mut token_file = None;
    for entry in &table.entries {
        let refuse =
            |message| ConfigError::Value { place: entry.place.clone(), key: entry.key.clone(), message };
        match entry.key.as_str() {
            "target" => address = Some((entry.value.text().map_err(refuse)?, entry)),
            "quantities" => quantities = entry.value.words().map_err(refuse)?,
            "period_s" => period = Some(entry.value.seconds(0.1, super::DAY_S).map_err(refuse)?),
            "token_file" => token_file = Some(entry.value.path().map_err(refuse)?),
            key => {
                let suggestion = nearest(key, &["target", "quantities", "period_s", "token_file"]);
                let place = entry.place.clone();
                return Err(ConfigError::UnknownKey { place, key: format!("target.{key}"), suggestion });
            }
        }
    }
    let Some((address, entry)) = address else {
        let message = "the address is missing: target = \"host:port\"".to_string();
        return Err(ConfigError::Value { place: table.place.clone(), key: "target".into(), message });
    };
    let parsed = Target::parse(&address, &quantities, period, Provenance::Config);
    parsed.map(|target| Target { token_file, ..target }).map_err(|error| {
        let wrong_quantity = matches!(error, crate::measure::target::TargetError::Quantity { .. });
        let culprit = table.entries.iter().find(|entry| wrong_quantity && entry.key == "quantities");
        let entry = culprit.unwrap_or(entry);
        ConfigError::Value { place: entry.place.clone(), key: entry.key.clone(), message: error.to_string() }
    })
}

/// The known key nearest to `key`, if it is near enough to be meant.
#[must_use]
pub fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    // Longer keys are settled by nothing: the distance is quadratic in their length.
    let key: String = key.chars().take(64).collect();
    let by_distance = known.iter().map(|candidate| (distance(&key, candidate), *candidate));
    by_distance.min().filter(|(distance, _)| *distance <= usize::max(1, key.len() / 4)).map(|(_, key)| key)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

struct Lines<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Lines<'_> {
    fn place(&self, offset: usize) -> Place {
        let before = self.text.as_bytes().iter().take(offset);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        Place::Line { path: self.path.to_path_buf(), line }
    }

    fn entries(&self, prefix: &str, table: &DeTable<'_>) -> Vec<Entry> {
        let entry =
            |(key, value): (&toml::Spanned<std::borrow::Cow<'_, str>>, &toml::Spanned<DeValue<'_>>)| Entry {
                key: format!("{prefix}{}", key.get_ref()),
                value: convert(value.get_ref()),
                place: self.place(key.span().start),
            };
        let mut entries: Vec<Entry> = table.iter().map(entry).collect();
        // Tables are kept in the order of their keys; people read errors in the order of lines.
        entries.sort_by_key(|entry| match &entry.place {
            Place::Line { line, .. } => *line,
            _ => 0,
        });
        entries
    }
}

fn convert(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("an integer that is too large"), Value::Integer),
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Other("a float"), Value::Float),
        DeValue::Array(items) => Value::List(items.iter().map(|item| convert(item.get_ref())).collect()),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Table(_) => Value::Other("a table"),
    }
}

fn not_tables(place: Place) -> ConfigError {
    let message = "targets are tables: [[target]], then target = \"host:port\"".to_string();
    ConfigError::Value { place, key: "target".into(), message }
}

//! A setting's value before its key has said what it must be.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use barograph_forecast::Name;

/// A value from the file, or raw text from a variable or a flag.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A TOML string.
    Text(String),
    /// A TOML integer.
    Integer(i64),
    /// A TOML float.
    Float(f64),
    /// A TOML boolean.
    Flag(bool),
    /// A TOML array.
    List(Vec<Value>),
    /// Anything else, by the name of its type.
    Other(&'static str),
    /// Text from a variable or a flag: each key reads it as what it needs.
    Raw(String),
}

type Result<T> = std::result::Result<T, String>;

impl Value {
    /// A text that is not empty.
    pub(crate) fn text(&self) -> Result<String> {
        match self {
            Self::Text(text) | Self::Raw(text) if !text.is_empty() => Ok(text.clone()),
            _ => Err(format!("expected a text that is not empty, found {}", self.shown())),
        }
    }

    pub(crate) fn path(&self) -> Result<PathBuf> {
        self.text().map(PathBuf::from)
    }

    pub(crate) fn name(&self) -> Result<Name> {
        // As in the file, where a shell's own quotes are gone already; it would be a name.
        if matches!(self, Self::Raw(text) if text.starts_with('"')) {
            return Err(format!("expected a name without quotes, found {}", self.shown()));
        }
        Name::new(&self.text()?).map_err(|error| error.to_string())
    }

    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let text = self.text()?;
        text.parse()
            .map_err(|_| format!("expected ADDRESS:PORT such as 127.0.0.1:10132, found `{}`", short(&text)))
    }

    pub(crate) fn flag(&self) -> Result<bool> {
        match self {
            Self::Flag(flag) => Ok(*flag),
            Self::Raw(text) if text == "true" => Ok(true),
            Self::Raw(text) if text == "false" => Ok(false),
            _ => Err(format!("expected true or false, found {}", self.shown())),
        }
    }

    pub(crate) fn integer(&self, min: u64, max: u64) -> Result<u64> {
        let found = match self {
            Self::Integer(value) => u64::try_from(*value).ok(),
            Self::Raw(text) => text.parse().ok(),
            _ => None,
        };
        found
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| format!("expected a whole number from {min} to {max}, found {}", self.shown()))
    }

    pub(crate) fn seconds(&self, min: f64, max: f64) -> Result<Duration> {
        self.number(min, max).map(Duration::from_secs_f64)
    }

    pub(crate) fn number(&self, min: f64, max: f64) -> Result<f64> {
        let found = match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Raw(text) => text.parse().ok(),
            _ => None,
        };
        // NaN is in no range.
        found
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| format!("expected a number from {min} to {max}, found {}", self.shown()))
    }

    pub(crate) fn words(&self) -> Result<Vec<String>> {
        match self {
            Self::List(items) => items.iter().map(Self::text).collect(),
            // As in the file; `["a"]` would be a word.
            Self::Raw(text) if text.starts_with('[') => {
                Err(format!("expected words separated by commas, such as a,b, found {}", self.shown()))
            }
            Self::Raw(text) => {
                Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(String::from).collect())
            }
            _ => Err(format!("expected a list of texts, found {}", self.shown())),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Raw(text) => format!("`{}`", short(text)),
            Self::Integer(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Flag(value) => value.to_string(),
            Self::List(_) => "a list".into(),
            Self::Other(kind) => (*kind).into(),
        }
    }
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_not_spelt_as_in_the_file() {
        let raw = |text: &str| Value::Raw(text.into());
        assert_eq!(raw("a, b,").words(), Ok(vec!["a".to_string(), "b".into()]));
        assert!(raw(r#"["global"]"#).words().is_err_and(|error| error.contains("such as a,b, found `[")));
        assert!(raw(r#""lyon""#).name().is_err_and(|error| error.contains("without quotes")));
        assert!(raw("lyon").name().is_ok());
    }
}

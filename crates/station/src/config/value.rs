//! The value of a setting before its key converts it.

use toml::de::DeValue;

/// A value of the file, or the text of a variable or flag. Each key reads the type that it needs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Toml(&'a DeValue<'a>),
    Raw(&'a str),
}

impl Value<'_> {
    /// Reads a text that is not empty.
    pub(super) fn text(&self) -> Result<String, String> {
        let text = match self {
            Self::Toml(DeValue::String(text)) => text,
            Self::Raw(text) => *text,
            Self::Toml(_) => "",
        };
        match text {
            "" => Err(self.type_error("a text that is not empty")),
            text => Ok(text.to_string()),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, String> {
        match self {
            Self::Toml(DeValue::Boolean(flag)) => Ok(*flag),
            Self::Raw("true") => Ok(true),
            Self::Raw("false") => Ok(false),
            _ => Err(self.type_error("true or false")),
        }
    }

    pub(super) fn integer(&self) -> Option<u64> {
        match self {
            Self::Toml(DeValue::Integer(number)) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            Self::Raw(text) => text.parse().ok(),
            Self::Toml(_) => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Toml(DeValue::Float(number)) => number.as_str().parse().ok(),
            Self::Toml(_) => self.integer().map(|number| number as f64),
            Self::Raw(text) => text.parse().ok(),
        }
    }

    pub(super) fn list(&self) -> Result<Vec<String>, String> {
        match self {
            Self::Toml(DeValue::Array(items)) => {
                items.iter().map(|item| Value::Toml(item.get_ref()).text()).collect()
            }
            // The text is a list in the syntax of the file. Without this check, `["a"]` would be
            // read as one word.
            Self::Raw(text) if text.starts_with('[') => {
                Err(self.type_error("words separated by commas, such as a,b"))
            }
            Self::Raw(text) => {
                Ok(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(String::from).collect())
            }
            Self::Toml(_) => Err(self.type_error("a list of texts")),
        }
    }

    /// Error text for an unexpected value.
    pub(super) fn type_error(&self, expected: &str) -> String {
        format!("expected {expected}, found {}", self.shown())
    }

    fn shown(&self) -> String {
        match self {
            Self::Toml(DeValue::String(text)) => format!("`{}`", short(text)),
            Self::Raw(text) => format!("`{}`", short(text)),
            Self::Toml(DeValue::Boolean(flag)) => flag.to_string(),
            Self::Toml(DeValue::Integer(number)) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or("an integer that is too large".into(), |number| number.to_string()),
            Self::Toml(DeValue::Float(number)) => {
                number.as_str().parse().map_or("a float".into(), |number: f64| number.to_string())
            }
            Self::Toml(DeValue::Array(_)) => "a list".into(),
            Self::Toml(DeValue::Datetime(_)) => "a date".into(),
            Self::Toml(DeValue::Table(_)) => "a table".into(),
        }
    }
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

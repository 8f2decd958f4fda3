//! Kinds of values that keys accept.

use std::fmt::{Debug, Display};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use barograph_forecast::Name;

use super::value::Value;

/// The values that a key accepts, and their conversion to a `T`.
pub(super) struct SettingKind<T> {
    /// Parses a value. An error names the expected and the found value.
    pub(super) read: Read<T>,
    /// Formats a value as in the file; returns `None` if the value is unset. Different values have
    /// different texts.
    pub(super) shown: Shown<T>,
    /// Accepted values, if the type does not imply them.
    pub(super) range: Option<String>,
}

type Read<T> = Box<dyn Fn(&Value<'_>) -> Result<T, String>>;
type Shown<T> = Box<dyn Fn(&T) -> Option<String>>;

fn kind<T: Debug>(read: impl Fn(&Value<'_>) -> Result<T, String> + 'static) -> SettingKind<T> {
    SettingKind { read: Box::new(read), shown: Box::new(|of| Some(format!("{of:?}"))), range: None }
}

fn bounds<T: Display>(range: &RangeInclusive<T>) -> String {
    format!("{} to {}", range.start(), range.end())
}

/// `true` or `false`, without quotes.
pub(super) fn flag() -> SettingKind<bool> {
    kind(|value| value.flag())
}

/// A whole number within `range`.
pub(super) fn integer<T: TryFrom<u64> + Debug>(range: RangeInclusive<u64>) -> SettingKind<T> {
    let bounds = bounds(&range);
    let expected = format!("a whole number from {bounds}");
    let read = move |value: &Value<'_>| {
        let found = value.integer().filter(|found| range.contains(found));
        found.and_then(|found| T::try_from(found).ok()).ok_or_else(|| value.type_error(&expected))
    };
    SettingKind { range: Some(bounds), ..kind(read) }
}

/// A number with a fraction, within `range`.
pub(super) fn number(range: RangeInclusive<f64>) -> SettingKind<f64> {
    number_of("a number", range)
}

/// As [`number`]; `what` names the number and its unit in errors.
fn number_of(what: &str, range: RangeInclusive<f64>) -> SettingKind<f64> {
    let bounds = bounds(&range);
    let expected = format!("{what} from {bounds}");
    // No range contains NaN.
    let found = move |value: &Value<'_>| value.number().filter(|found| range.contains(found));
    SettingKind {
        range: Some(bounds),
        ..kind(move |value| found(value).ok_or_else(|| value.type_error(&expected)))
    }
}

pub(super) fn seconds(range: RangeInclusive<f64>) -> SettingKind<Duration> {
    time("a number of seconds", 1.0, range)
}

pub(super) fn days(range: RangeInclusive<f64>) -> SettingKind<Duration> {
    time("a number of days", DAY_S, range)
}

/// A duration in a unit of `unit_s` seconds; `what` names the number and its unit in errors.
fn time(what: &str, unit_s: f64, range: RangeInclusive<f64>) -> SettingKind<Duration> {
    let SettingKind { read, range, .. } = number_of(what, range);
    SettingKind {
        read: Box::new(move |value| read(value).map(|found| Duration::from_secs_f64(found * unit_s))),
        shown: Box::new(move |of| Some((of.as_secs_f64() / unit_s).to_string())),
        range,
    }
}

/// A text that is not empty, converted by `parse`.
pub(super) fn text<T: Debug + 'static>(parse: fn(String) -> Result<T, String>) -> SettingKind<T> {
    kind(move |value| value.text().and_then(parse))
}

/// An IP address with a port.
pub(super) fn address() -> SettingKind<SocketAddr> {
    let read = |value: &Value<'_>| {
        let parsed = value.text()?.parse();
        parsed.map_err(|_| value.type_error("ADDRESS:PORT such as 127.0.0.1:10132"))
    };
    SettingKind { shown: Box::new(|of| Some(format!("\"{of}\""))), ..kind(read) }
}

/// A list of texts, converted by `parse`.
pub(super) fn list<T: Debug + 'static>(
    parse: fn(Vec<String>) -> Result<Vec<T>, String>,
) -> SettingKind<Vec<T>> {
    kind(move |value| value.list().and_then(parse))
}

/// One of a few words, each with its value.
pub(super) fn choice<T: Copy + Debug + PartialEq>(of: &'static [(&'static str, T)]) -> SettingKind<T> {
    let possible = of.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
    let expected = possible.clone();
    let read = move |value: &Value<'_>| {
        let text = value.text()?;
        let found = of.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).ok_or_else(|| value.type_error(&expected))
    };
    let word =
        |meaning: &T| of.iter().find(|(_, other)| meaning == other).map(|(word, _)| format!("{word:?}"));
    SettingKind { read: Box::new(read), shown: Box::new(word), range: Some(possible) }
}

/// Path of a file or directory.
pub(super) fn path() -> SettingKind<PathBuf> {
    text(|text| Ok(text.into()))
}

/// Name of a station or site.
pub(super) fn name() -> SettingKind<Name> {
    let read = |value: &Value<'_>| {
        // Refuse a text with quotes, which are needed only in the file. Without this check, the
        // quotes would become part of the name.
        if matches!(value, Value::Raw(text) if text.starts_with('"')) {
            return Err(value.type_error("a name without quotes"));
        }
        Name::new(&value.text()?).map_err(|error| error.to_string())
    };
    SettingKind { shown: Box::new(|of| Some(format!("{:?}", of.as_str()))), ..kind(read) }
}

/// A value that may be unset.
pub(super) fn optional<T: 'static>(
    SettingKind { read, shown, range }: SettingKind<T>,
) -> SettingKind<Option<T>> {
    SettingKind {
        read: Box::new(move |value| read(value).map(Some)),
        shown: Box::new(move |of| of.as_ref().and_then(&shown)),
        range,
    }
}

impl<T: 'static> SettingKind<T> {
    /// The same kind with a further check.
    pub(super) fn checked(self, check: fn(&T) -> Result<(), String>) -> Self {
        let read = self.read;
        Self {
            read: Box::new(move |value| read(value).and_then(|found| check(&found).map(|()| found))),
            ..self
        }
    }
}

pub(super) const DAY_S: f64 = 86_400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_in_toml_syntax_is_refused_with_a_hint() {
        let list = |text| Value::Raw(text).list();
        assert_eq!(list("a, b,"), Ok(vec!["a".to_string(), "b".into()]));
        assert!(list(r#"["global"]"#).is_err_and(|error| error.contains("such as a,b, found `[")));
        let name = |text| (name().read)(&Value::Raw(text));
        assert!(name(r#""lyon""#).is_err_and(|error| error.contains("without quotes")));
        assert!(name("lyon").is_ok());
    }
}

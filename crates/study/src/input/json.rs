//! Reads lines of JSON.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::plain::TimedValue;
use super::times::TimeUnit;
use super::{Format, InputError, excerpt, listed, plain};

/// Lines of JSON with the value under a key that the caller chose.
#[derive(Debug)]
pub(super) struct KeyedLines {
    key: String,
    unit: Option<TimeUnit>,
}

impl KeyedLines {
    pub(super) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), unit: None }
    }

    /// Format, time and value of a line; `None` if the line is a failure. The time is under
    /// `time_s` or another name of a time.
    pub(super) fn parse(
        &mut self,
        text: &str,
        format: Option<Format>,
        line: u64,
    ) -> Result<Option<(Format, TimedValue)>, InputError> {
        let unexpected = || InputError::Unexpected { line, expected: KEYED, found: excerpt(text) };
        let object: Map<String, Value> = serde_json::from_str(text).map_err(|_| unexpected())?;
        let is_failure = object.get("error").and_then(Value::as_str).is_some_and(|why| !why.is_empty());
        let value = match object.get(&self.key) {
            Some(Value::Null) | None if is_failure => return Ok(None),
            Some(value) => value.as_f64().ok_or_else(unexpected)?,
            None => {
                let (column, names) = (excerpt(&self.key), listed(object.keys()));
                return Err(InputError::NoSuchColumn { line, column, names });
            }
        };
        let time_s = self.time_s(&object).map(|time_s| time_s.ok_or_else(unexpected)).transpose()?;
        let format_here = if time_s.is_some() { Format::JsonTimed } else { Format::Json };
        if format.is_some_and(|format| format != format_here) {
            return Err(plain::unexpected(text, &"", format, line));
        }
        Ok(Some((format_here, (time_s, value))))
    }

    /// The time of a line, which is `Some(None)` if it cannot be read.
    fn time_s(&mut self, object: &Map<String, Value>) -> Option<Option<f64>> {
        let of_name =
            |(name, time): (&String, _)| Some((TimeUnit::of_name(&name.to_ascii_lowercase())?, time));
        let elapsed =
            |(name, time): (&String, _)| Some((TimeUnit::of_elapsed_name(&name.to_ascii_lowercase())?, time));
        let others = || object.iter().filter(|(name, _)| **name != self.key);
        let in_seconds = object.get("time_s").map(|time| (TimeUnit::SECOND, time));
        let named = in_seconds.or_else(|| others().find_map(of_name));
        let (unit, time) = named.or_else(|| others().find_map(elapsed))?;
        let unit = self.unit.get_or_insert(unit);
        Some(match time {
            Value::String(text) => unit.seconds(text),
            time => time.as_f64().map(|number| unit.in_seconds(number)),
        })
    }
}

/// What a line must contain if the caller chose a key.
const KEYED: &str =
    "a JSON object with a number under the key of --column, and a time in seconds or ISO 8601";

/// Whether a JSON line reports a failure: it has an error and no value, as `barograph probe --json`
/// writes it.
pub(super) fn is_failure(text: &str) -> bool {
    serde_json::from_str::<FailureLine>(text).is_ok_and(|line| line.value.is_none() && !line.error.is_empty())
}

#[derive(Deserialize)]
struct FailureLine {
    error: String,
    #[serde(default, deserialize_with = "present")]
    value: Option<IgnoredAny>,
}

/// A JSON line; other keys are ignored. A time that is present is a number, not null.
#[derive(Deserialize)]
pub(super) struct JsonLine {
    #[serde(default, deserialize_with = "present")]
    pub(super) time_s: Option<f64>,
    pub(super) value: f64,
}

/// A JSON line with a time of any type.
#[derive(Deserialize)]
struct JsonTime {
    #[serde(default, deserialize_with = "present")]
    time_s: Option<IgnoredAny>,
}

/// Deserialises the value of a key that is present, so that null does not count as absent.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

/// Whether a line has a time, even if its numbers are NaN, infinite or too large; `None` = the line
/// is not JSON.
pub(super) fn is_timed(text: &str) -> Option<bool> {
    let mut json = String::with_capacity(text.len());
    let mut rest = text;
    let (mut in_string, mut is_escaped) = (false, false);
    while let Some(character) = rest.chars().next() {
        let word = if in_string { None } else { WORDS.into_iter().find(|word| rest.starts_with(word)) };
        if let Some(word) = word {
            json.push('0');
            rest = &rest[word.len()..];
            continue;
        }
        if character == '"' && !is_escaped {
            in_string = !in_string;
        }
        is_escaped = in_string && character == '\\' && !is_escaped;
        json.push(character);
        rest = &rest[character.len_utf8()..];
    }
    serde_json::from_str::<JsonTime>(&json).ok().map(|keys| keys.time_s.is_some())
}

/// Words for numbers that JSON does not allow, but that common programs write into JSON.
const WORDS: [&str; 2] = ["NaN", "Infinity"];

/// The error of a JSON line that has NaN, infinity or a number beyond the range of a double; `None`
/// if the line has a different fault.
///
/// JSON has no such numbers, but common writers (Python's `json` is one) produce them, and such
/// numbers must be treated as in the other formats.
pub(super) fn not_finite(text: &str, error: &serde_json::Error, line: u64) -> Option<InputError> {
    let at = text.get(error.column().saturating_sub(2)..).unwrap_or("");
    let word = WORDS.into_iter().find(|word| {
        // The column number of the error is the position of the first letter, or the position after
        // a minus sign.
        at.starts_with(word) || at.get(1..).is_some_and(|rest| rest.starts_with(word))
    });
    let word = word.or_else(|| error.to_string().contains("out of range").then_some("out of range"))?;
    let minus = at.starts_with('-') || at.get(1..).is_some_and(|rest| rest.starts_with('-'));
    let before = text.get(..error.column().saturating_sub(1)).unwrap_or("");
    let field = match (before.rfind("\"time_s\""), before.rfind("\"value\"")) {
        (Some(time), value) if value.is_none_or(|value| value < time) => "time_s",
        _ => "value",
    };
    Some(InputError::NotFinite { line, field, found: format!("{}{word}", if minus { "-" } else { "" }) })
}

/// The message of serde_json, without its line number, which is always 1 here.
pub(super) fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    // The message contains the whole string that stands where a number is expected, so it may be
    // very long.
    let shown: String = text[..end].chars().take(REASON_CHARACTERS).collect();
    format!(" ({shown}{})", if shown.len() < end { "…" } else { "" })
}

/// Maximum number of characters of a parser's message.
const REASON_CHARACTERS: usize = 80;

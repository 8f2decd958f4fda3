//! Lines that need no header: `time_s,value`, JSON with `time_s` and `value`, or a number.

use std::fmt;

use super::fields::{Delimiter, unquoted};
use super::json::{self, JsonLine};
use super::times::TimeUnit;
use super::{Format, InputError, excerpt};

/// How lines without a header of several columns are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    delimiter: Delimiter,
}

/// Time in seconds and value of a line; the time is `None` in a format without times.
pub(super) type TimedValue = (Option<f64>, f64);

/// Time and value of a well-formed line.
pub(super) type Numbers = Result<TimedValue, InputError>;

impl Plain {
    /// Lines below a header that names only `time_s` and `value`, or only `value`.
    pub(super) const BELOW_HEADER: Self = Self { delimiter: Delimiter::Comma };

    /// Lines like this one, the first.
    pub(super) fn of_line(text: &str) -> Self {
        Self { delimiter: Delimiter::of_line(text) }
    }

    /// Format and numbers of a line of data; `format` is that of the lines before.
    pub(super) fn parse(
        self,
        text: &str,
        format: Option<Format>,
        line: u64,
    ) -> Result<(Format, Numbers), InputError> {
        let unexpected = || unexpected(text, &"", format, line);
        let looks = match text.as_bytes() {
            [b'{', ..] => Format::Json,
            _ if self.delimiter.is_in(text) => Format::Csv,
            _ => Format::Bare,
        };
        let is_same = match format {
            None => true,
            Some(Format::JsonTimed | Format::Json) => looks == Format::Json,
            Some(format) => looks == format,
        };
        match looks {
            _ if !is_same => Err(unexpected()),
            Format::Csv => {
                let mut fields = self.delimiter.split(text);
                // Numbers are seconds: no name tells another unit.
                let mut unit = TimeUnit::SECOND;
                let time_s = fields.next().and_then(|field| unit.seconds(field));
                let value = fields.next().and_then(|field| field.parse().ok());
                match (time_s, value, fields.next()) {
                    (Some(time_s), Some(value), None) => Ok((Format::Csv, Ok((Some(time_s), value)))),
                    _ => Err(unexpected()),
                }
            }
            Format::Json => json_line(text, format, line),
            _ => {
                let value = unquoted(text).parse().map_err(|_| unexpected())?;
                Ok((Format::Bare, Ok((None, value))))
            }
        }
    }
}

fn json_line(text: &str, format: Option<Format>, line: u64) -> Result<(Format, Numbers), InputError> {
    let (is_timed, numbers) = match serde_json::from_str::<JsonLine>(text) {
        Ok(JsonLine { time_s, value }) => (time_s.is_some(), Ok((time_s, value))),
        Err(error) => match (json::not_finite(text, &error, line), json::is_timed(text)) {
            (Some(not_finite), Some(is_timed)) => (is_timed, Err(not_finite)),
            _ => return Err(unexpected(text, &json::reason(&error), format, line)),
        },
    };
    let format_here = if is_timed { Format::JsonTimed } else { Format::Json };
    if format.is_some_and(|format| format != format_here) {
        return Err(unexpected(text, &"", format, line));
    }
    Ok((format_here, numbers))
}

/// The error of a line that is not of the format.
pub(super) fn unexpected(
    text: &str,
    why: &dyn fmt::Display,
    format: Option<Format>,
    line: u64,
) -> InputError {
    InputError::Unexpected { line, expected: expected(format), found: format!("{}{why}", excerpt(text)) }
}

/// The format that a header line announces, if it needs no names of columns.
pub(super) fn header(text: &str) -> Option<Format> {
    let names: Vec<String> =
        Delimiter::Comma.split(text).take(3).map(|name| name.to_ascii_lowercase()).collect();
    match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["time_s", "value"] => Some(Format::Csv),
        ["value"] => Some(Format::Bare),
        _ => None,
    }
}

/// What a line of a format must contain.
fn expected(format: Option<Format>) -> &'static str {
    match format {
        None => "two numbers time_s,value, or a JSON object with value, or a number",
        Some(Format::Csv) => "two numbers time_s,value",
        Some(Format::JsonTimed) => "a JSON object with the numbers time_s and value, as on the lines before",
        Some(Format::Json) => "a JSON object with the number value and no time_s, as on the lines before",
        Some(Format::Bare) => "a number, as on the lines before",
        Some(Format::CsvUntimed) => super::columns::NAMED,
        Some(Format::PingTimed | Format::Ping) => super::ping::EXPECTED,
    }
}

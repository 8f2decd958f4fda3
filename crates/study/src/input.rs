//! Reads a series of measurements, line by line: CSV, JSON lines or bare numbers.
//!
//! The first line with data decides the format; a later change is an error. Only one line is in
//! memory at a time, and lines are bounded, so an endless pipe needs no more memory than a small
//! file. This module opens no file and reads no clock.

mod columns;
mod series_check;

use std::fmt;
use std::io::{self, BufRead};

use barograph_forecast::Battery;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use self::columns::Columns;
pub use self::columns::{MeasurementDetail, smaller_is_better};
use self::series_check::SeriesCheck;

/// One measurement, as it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds on the series' own clock; without times, the number of values before this value.
    pub time_s: f64,
    /// The value: finite, and of a magnitude that a battery accepts.
    pub value: f64,
}

/// The format of a series in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `time_s,value` on each line, or the columns that a header names.
    Csv,
    /// A JSON object with `time_s` and `value` on each line.
    JsonTimed,
    /// A JSON object with `value` alone on each line; the time of a value is the number of values
    /// before it.
    Json,
    /// A number on each line; the time of a value is the number of values before it.
    Bare,
}

/// Reads the measurements of one series, in order.
///
/// The iterator returns every measurement, or the error of its line. Reading can continue after an
/// error of one value ([`InputError::is_recoverable`]); every other error is final.
///
/// A CSV header may name more columns than `time_s` and `value`, in any order. A line without a
/// value, but with text in the column or key `error`, is a failure and is skipped. Lines of
/// different quantities, sources or targets are not one series. Such lines are an error, unless
/// [`of_quantity`](Self::of_quantity) selects one quantity.
///
/// ```
/// use barograph_study::input::SeriesReader;
///
/// let text = "time_s,value\n# a comment\n0,1.5\n10,1.25\n";
/// let values: Vec<f64> =
///     SeriesReader::new(text.as_bytes()).map(|sample| sample.unwrap().value).collect();
/// assert_eq!(values, [1.5, 1.25]);
/// ```
#[derive(Debug)]
pub struct SeriesReader<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    format: Option<Format>,
    columns: Option<Columns>,
    detail: MeasurementDetail,
    series: SeriesCheck,
    count: u64,
    time_s: f64,
    finished: bool,
}

impl<R: BufRead> SeriesReader<R> {
    /// Creates a reader at the beginning of a series.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
            number: 0,
            format: None,
            columns: None,
            detail: MeasurementDetail::default(),
            series: SeriesCheck::default(),
            count: 0,
            time_s: f64::NEG_INFINITY,
            finished: false,
        }
    }

    /// Reads only the lines of this quantity, and lines without a quantity; `None` = the only
    /// quantity of the file.
    #[must_use]
    pub fn of_quantity(mut self, wanted: Option<&str>) -> Self {
        self.series = SeriesCheck::of_quantity(wanted);
        self
    }

    /// The quantity, if the lines read so far name a quantity.
    pub fn quantity(&self) -> Option<&str> {
        self.series.quantity()
    }

    /// The format, once the first line of data was read.
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// The details on the line of the last measurement.
    pub fn detail(&self) -> &MeasurementDetail {
        &self.detail
    }

    /// The next measurement, or `None` at the end of a series that had at least one measurement.
    fn sample(&mut self) -> Result<Option<Sample>, InputError> {
        while self.read_line()? {
            let line = self.number;
            let bytes = match self.number {
                1 => self.line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.line),
                _ => &self.line,
            };
            let text = str::from_utf8(bytes).map_err(|_| InputError::NotText { line })?.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if self.format.is_none()
                && let Some(format) = header(text)
            {
                self.format = Some(format);
                continue;
            }
            if self.format.is_none()
                && let Some(columns) = Columns::of_header(text)
            {
                self.format = Some(Format::Csv);
                self.columns = Some(columns);
                continue;
            }
            let format = self.format;
            let (format, numbers) = match &self.columns {
                None => match parse(text, format, line) {
                    Err(InputError::Unexpected { .. }) if is_failure(text) => continue,
                    parsed => parsed?,
                },
                Some(columns) => {
                    let unexpected =
                        || InputError::Unexpected { line, expected: NAMED, found: excerpt(text) };
                    let (time_s, value, failed) = columns.fields(text).ok_or_else(unexpected)?;
                    if failed {
                        continue;
                    }
                    let number = |text: &str| text.parse().map_err(|_| unexpected());
                    (Format::Csv, Ok((Some(number(time_s)?), number(value)?)))
                }
            };
            // Even a line with an invalid number decides the format.
            self.format = Some(format);
            self.detail = match (format, &self.columns) {
                (Format::Json | Format::JsonTimed, _) => MeasurementDetail::of_json(text),
                (_, Some(columns)) => columns.detail(text),
                _ => MeasurementDetail::default(),
            };
            if !self.series.accepts(&self.detail)? {
                continue;
            }
            let (time_s, value) = numbers?;
            return self.accept(time_s, value).map(Some);
        }
        if self.count == 0 {
            Err(self.series.missing_quantity().unwrap_or(InputError::Empty))
        } else {
            Ok(None)
        }
    }

    /// Checks a measurement against the earlier measurements.
    fn accept(&mut self, time_s: Option<f64>, value: f64) -> Result<Sample, InputError> {
        let line = self.number;
        // The count is far below 2⁵³, where `f64` begins to lose whole numbers.
        let time_s = time_s.unwrap_or(self.count as f64);
        for (field, number) in [("time_s", time_s), ("value", value)] {
            if !number.is_finite() {
                return Err(InputError::NotFinite { line, field, found: number.to_string() });
            }
        }
        if value.abs() > Battery::VALUE_MAX {
            return Err(InputError::TooLarge { line, value });
        }
        if time_s < self.time_s {
            return Err(InputError::Decreasing { line, time_s, before_s: self.time_s });
        }
        self.time_s = time_s;
        self.count += 1;
        Ok(Sample { time_s, value })
    }

    /// Reads one line into `self.line`; false at the end of the input.
    fn read_line(&mut self) -> Result<bool, InputError> {
        self.line.clear();
        self.number += 1;
        loop {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(InputError::Io(error)),
            };
            if available.is_empty() {
                return Ok(!self.line.is_empty());
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            if self.line.len() + taken > LINE_BYTES_MAX {
                return Err(InputError::TooLong { line: self.number });
            }
            self.line.extend_from_slice(&available[..taken]);
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

impl InputError {
    /// Whether only this measurement is bad, so that reading can continue with the next line.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::TooLarge { .. })
    }
}

impl<R: BufRead> Iterator for SeriesReader<R> {
    type Item = Result<Sample, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let sample = self.sample().transpose();
        self.finished = match &sample {
            Some(Ok(_)) => false,
            Some(Err(error)) => !error.is_recoverable(),
            None => true,
        };
        sample
    }
}

/// Why a series could not be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum InputError {
    /// The bytes could not be read.
    #[error("cannot be read: {}", io_message(.0))]
    Io(#[source] io::Error),
    /// A line does not follow its format.
    #[error("line {line}: expected {expected}, found {found}")]
    Unexpected {
        /// Number of the line, from 1.
        line: u64,
        /// What the line should contain.
        expected: &'static str,
        /// The beginning of the line, and what is wrong with it.
        found: String,
    },
    /// A number is NaN, infinite, or too large for a double.
    #[error("line {line}: {field} is {found}, expected a finite number")]
    NotFinite {
        /// Number of the line, from 1.
        line: u64,
        /// The field: `time_s` or `value`.
        field: &'static str,
        found: String,
    },
    /// A value that no battery accepts.
    #[error("line {line}: value is {value:e}; its magnitude may be at most {:e}", Battery::VALUE_MAX)]
    TooLarge {
        /// Number of the line, from 1.
        line: u64,
        value: f64,
    },
    #[error("line {line}: expected times that do not decrease, found {time_s} after {before_s}")]
    Decreasing {
        /// Number of the line, from 1.
        line: u64,
        /// The time of this line, in seconds.
        time_s: f64,
        /// The time of the measurement before, in seconds.
        before_s: f64,
    },
    #[error("line {line}: expected at most {LINE_BYTES_MAX} bytes a line")]
    TooLong {
        /// Number of the line, from 1.
        line: u64,
    },
    #[error("line {line}: expected UTF-8 text")]
    NotText {
        /// Number of the line, from 1.
        line: u64,
    },
    /// The lines have measurements of more than one quantity.
    #[error("the series contains {before:?} and {quantity:?}; select one with --quantity")]
    MixedQuantities {
        /// Name of the quantity in the lines read so far, such as `rtt`.
        before: String,
        /// Name of the different quantity in the line at which reading stopped.
        quantity: String,
    },
    /// The lines have measurements of more than one source or target.
    #[error("the series contains values of two {end}s, {before} and {next}; keep the lines of one {end}")]
    MixedEndpoints {
        /// What differs: `source` or `target`.
        end: &'static str,
        /// The beginning of the first name, quoted.
        before: String,
        /// The beginning of the next name, quoted.
        next: String,
    },
    /// No line has a measurement of the wanted quantity.
    #[error("the series has no value of {quantity:?}; check --quantity")]
    NoSuchQuantity { quantity: String },
    #[error("no values; expected lines with time_s,value, with a JSON object, or with a number")]
    Empty,
}

/// The format that a header line announces.
fn header(text: &str) -> Option<Format> {
    let names: Vec<String> =
        text.split(',').take(3).map(|name| unquoted(name).to_ascii_lowercase()).collect();
    match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["time_s", "value"] => Some(Format::Csv),
        ["value"] => Some(Format::Bare),
        _ => None,
    }
}

/// The message of a system error, without its number.
pub fn io_message(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Time and value of a well-formed line; the time is `None` in a format without times.
type Numbers = Result<(Option<f64>, f64), InputError>;

/// Format and numbers of a line of data.
fn parse(text: &str, format: Option<Format>, line: u64) -> Result<(Format, Numbers), InputError> {
    let unexpected = |found: &dyn fmt::Display| InputError::Unexpected {
        line,
        expected: expected(format),
        found: format!("{}{found}", excerpt(text)),
    };
    let looks = match text.as_bytes() {
        [b'{', ..] => Format::Json,
        bytes if bytes.contains(&b',') => Format::Csv,
        _ => Format::Bare,
    };
    let same = match format {
        None => true,
        Some(Format::JsonTimed | Format::Json) => looks == Format::Json,
        Some(format) => looks == format,
    };
    if !same {
        return Err(unexpected(&""));
    }
    match looks {
        Format::Csv => {
            let mut fields = text.split(',');
            let mut number = || fields.next().and_then(|field| unquoted(field).parse().ok());
            match (number(), number(), fields.next()) {
                (Some(time_s), Some(value), None) => Ok((Format::Csv, Ok((Some(time_s), value)))),
                _ => Err(unexpected(&"")),
            }
        }
        Format::Bare => {
            let value = unquoted(text).parse().map_err(|_| unexpected(&""))?;
            Ok((Format::Bare, Ok((None, value))))
        }
        Format::Json | Format::JsonTimed => {
            let (is_timed, numbers) = match serde_json::from_str::<JsonLine>(text) {
                Ok(JsonLine { time_s, value }) => (time_s.is_some(), Ok((time_s, value))),
                Err(error) => match (not_finite(text, &error, line), is_timed(text)) {
                    (Some(not_finite), Some(is_timed)) => (is_timed, Err(not_finite)),
                    _ => return Err(unexpected(&reason(&error))),
                },
            };
            let format_here = if is_timed { Format::JsonTimed } else { Format::Json };
            if format.is_some_and(|format| format != format_here) {
                return Err(unexpected(&""));
            }
            Ok((format_here, numbers))
        }
    }
}

/// Whether a JSON line reports a failure: it has an error and no value, as `barograph probe --json`
/// writes it.
fn is_failure(text: &str) -> bool {
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
struct JsonLine {
    #[serde(default, deserialize_with = "present")]
    time_s: Option<f64>,
    value: f64,
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
fn is_timed(text: &str) -> Option<bool> {
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
fn not_finite(text: &str, error: &serde_json::Error, line: u64) -> Option<InputError> {
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
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    // The message contains the whole string that stands where a number is expected, so it may be
    // very long.
    let shown: String = text[..end].chars().take(REASON_CHARACTERS).collect();
    format!(" ({shown}{})", if shown.len() < end { "…" } else { "" })
}

/// What a line must contain below a header of several columns.
const NAMED: &str = "a field for each column of the header, with numbers for time_s and the value";

/// What a line of a format must contain.
fn expected(format: Option<Format>) -> &'static str {
    match format {
        None => "two numbers time_s,value, or a JSON object with value, or a number",
        Some(Format::Csv) => "two numbers time_s,value",
        Some(Format::JsonTimed) => "a JSON object with the numbers time_s and value, as on the lines before",
        Some(Format::Json) => "a JSON object with the number value and no time_s, as on the lines before",
        Some(Format::Bare) => "a number, as on the lines before",
    }
}

/// A field without surrounding space and without the quotes that spreadsheets put around it.
fn unquoted(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field).trim()
}

/// The beginning of a line, quoted, with control characters made visible.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARACTERS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The longest line that is read, in bytes, including its end: about a thousand times the length of
/// a measurement. The limit bounds memory if a file has no line ends.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of characters of a bad line in a message: enough to recognise the line, and few
/// enough for one line of a terminal.
const EXCERPT_CHARACTERS: usize = 40;

/// Maximum number of characters of a parser's message.
const REASON_CHARACTERS: usize = 80;

/// UTF-8's byte order mark, which some spreadsheets write.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Vec<(f64, f64)>, String> {
        SeriesReader::new(bytes)
            .map(|sample| sample.map(|s| (s.time_s, s.value)).map_err(|e| e.to_string()))
            .collect()
    }

    #[test]
    fn series_in_every_format_are_read() {
        let two = vec![(0.0, 1.5), (10.0, -2e3)];
        let counted = vec![(0.0, 1.5), (1.0, -2e3)];
        let cases: &[(&str, &Vec<(f64, f64)>)] = &[
            ("time_s,value\n0,1.5\n10,-2e3\n", &two),
            ("0,1.5\n10,-2e3", &two),
            ("\u{feff}time_s,value\r\n0,1.5\r\n10,-2e3\r\n", &two),
            ("\n# made by hand\n time_s , value \n\n  0 , 1.5\t\n#x\n10,-2000\n\n", &two),
            ("\"time_s\",\"value\"\n\"0\",\"1.5\"\n10,-2e3\n", &two),
            ("{\"time_s\":0,\"value\":1.5,\"host\":{\"a\":[1]}}\n{\"value\":-2000,\"time_s\":10}\n", &two),
            ("{\"value\":1.5}\n\n{\"value\":-2e3}\n", &counted),
            ("1.5\n-2e3\n", &counted),
            ("# bare\n 1.5 \r\n-2000", &counted),
            ("value\n1.5\n-2e3\n", &counted),
            ("host,time_s,value,retrans\na,0,1.5,3\nb,10,-2e3,\n", &two),
            ("time_s,rtt,error\n0,1.5,\n4,,timed_out\n10,-2e3,\n", &two),
        ];
        for (text, samples) in cases {
            assert_eq!(read(text.as_bytes()).as_ref(), Ok(*samples), "{text:?}");
        }
        assert_eq!(read(b"5,1\n5,2\n"), Ok(vec![(5.0, 1.0), (5.0, 2.0)]), "equal times are fine");
        assert_eq!(read(b"0,1e70\n1,-1e70\n"), Ok(vec![(0.0, 1e70), (1.0, -1e70)]));
    }

    #[test]
    fn invalid_series_are_rejected_with_line_and_reason() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "no values"),
            (b"# nothing\n\n", "no values"),
            (b"time_s,value\n", "no values"),
            (b"time_s,value\n0,1\nx,2\n", "line 3: expected two numbers time_s,value, found \"x,2\""),
            (b"0,1\n1\n", "line 2: expected two numbers time_s,value, found \"1\""),
            (b"0,1\n1,2,3\n", "line 2: expected two numbers"),
            (b"0,1\n1,\n", "line 2: expected two numbers"),
            (b"0,1\n\ntime_s,value\n", "line 3: expected two numbers"),
            (b"time_s,value\ntime_s,value\n", "line 2: expected two numbers"),
            (b"time_s,value,x\n0,1\n", "line 2: expected a field for each column of the header"),
            (b"time_s,value,error\n0,,\n", "line 2: expected a field for each column of the header"),
            (b"time_s,value,x\n0,1,2\n{\"value\":2}\n", "line 3: expected a field for each column"),
            (b"time_s,what\n0,1\n", "line 1: expected two numbers time_s,value"),
            (b"when,what\n", "line 1: expected two numbers time_s,value, or a JSON object"),
            (b"1\n2,3\n", "line 2: expected a number, as on the lines before, found \"2,3\""),
            (b"1\n{\"value\":2}\n", "line 2: expected a number, as on the lines before"),
            (b"{\"value\":2}\n3\n", "line 2: expected a JSON object with the number value and no time_s"),
            (b"{\"value\":2}\n{\"time_s\":1,\"value\":2}\n", "line 2: expected a JSON object"),
            (b"{\"time_s\":1,\"value\":2}\n{\"value\":2}\n", "line 2: expected a JSON object"),
            (b"{\"time_s\":1}\n", "missing field `value`"),
            (b"{\"value\":\"1\"}\n", "invalid type: string"),
            (b"{\"value\":1\n", "line 1: expected"),
            (b"[1,2]\n", "line 1: expected"),
            (b"0,1\n5,1\n4,1\n", "line 3: expected times that do not decrease, found 4 after 5"),
            (b"0,NaN\n", "line 1: value is NaN, expected a finite number"),
            (b"0,1\n1,-inf\n", "line 2: value is -inf"),
            (b"nan,1\n", "line 1: time_s is NaN"),
            (b"0,1e400\n", "line 1: value is inf"),
            (b"0,-1e71\n", "line 1: value is -1e71; its magnitude may be at most 1e70"),
            (b"{\"value\":NaN}\n", "line 1: value is NaN"),
            (b"{\"value\":NaN,,}\n", "line 1: expected"),
            (
                b"{\"value\":1}\n{\"time_s\":1,\"value\":NaN}\n",
                "line 2: expected a JSON object with the number",
            ),
            (b"{\"time_s\":null,\"value\":2}\n", "invalid type: null"),
            (b"{\"value\": -Infinity}\n", "line 1: value is -Infinity"),
            (b"{\"value\":1, \"time_s\":  Infinity}\n", "line 1: time_s is Infinity"),
            (b"{\"time_s\":1,\"value\":1e400}\n", "line 1: value is out of range"),
            (b"0,1\n\xff\xfe,2\n", "line 2: expected UTF-8 text"),
        ];
        for (bytes, message) in cases {
            let text = String::from_utf8_lossy(bytes);
            let error = read(bytes).expect_err(&text);
            assert!(error.contains(message), "{text:?}: {error:?} lacks {message:?}");
            assert!(!error.contains('\n') && error.len() < 200, "{error:?}");
        }
    }

    #[test]
    fn details_of_a_measurement_are_read_from_columns_and_keys() {
        let detail = |text: &str| {
            let mut reader = SeriesReader::new(text.as_bytes());
            reader.next().unwrap().unwrap();
            let MeasurementDetail { quantity, retrans, min_rtt_s, .. } = reader.detail().clone();
            (quantity.unwrap_or_default(), retrans, min_rtt_s)
        };
        let all = ("rtt".to_owned(), Some(3), Some(0.5));
        for text in [
            "time_s,value,quantity,total_retrans,min_rtt_s\n0,1,rtt,3,0.5\n",
            "min_rtt_s,retrans,rtt,time_s\n0.5,3,1,0\n",
            "{\"time_s\":0,\"value\":1,\"quantity\":\"rtt\",\"retrans\":3,\"min_rtt_s\":0.5}",
            "{\"value\":1,\"quantity\":\"rtt\",\"tcp_info\":{\"total_retrans\":3,\"min_rtt_s\":0.5}}",
            "{\"value\":1,\"quantity\":\"rtt\",\"detail\":{\"tcp_info\":{\"total_retrans\":3,\"min_rtt_s\":0.5}}}",
        ] {
            assert_eq!(detail(text), all, "{text}");
        }
        let nothing = (String::new(), None, None);
        for text in [
            "0,1\n",
            "time_s,value,quantity,retrans,min_rtt_s\n0,1,,-3,inf\n",
            "{\"value\":1,\"quantity\":7,\"detail\":\"none\",\"retrans\":-1}",
        ] {
            assert_eq!(detail(text), nothing, "{text}");
        }
    }

    #[test]
    fn an_endless_line_is_rejected_with_bounded_memory() {
        let mut endless = io::BufReader::new(io::repeat(b'7'));
        let error = SeriesReader::new(&mut endless).next().unwrap().unwrap_err();
        assert!(matches!(error, InputError::TooLong { line: 1 }), "{error}");
    }

    #[test]
    fn reading_continues_after_a_value_that_is_not_finite() {
        let mut reader = SeriesReader::new(&b"1\nNaN\n2\nx\n3\n"[..]);
        assert_eq!(reader.next().unwrap().unwrap().value, 1.0);
        assert!(matches!(reader.next(), Some(Err(InputError::NotFinite { line: 2, .. }))));
        assert_eq!(reader.next().unwrap().unwrap(), Sample { time_s: 1.0, value: 2.0 });
        assert!(matches!(reader.next(), Some(Err(InputError::Unexpected { line: 4, .. }))));
        assert!(reader.next().is_none(), "the other errors are final");
    }

    #[test]
    fn the_format_is_detected_from_a_first_line_without_a_finite_number() {
        let cases: [(&[u8], Format); 8] = [
            (b"0,NaN\n", Format::Csv),
            (b"NaN\n", Format::Bare),
            (b"{\"value\":NaN}\n", Format::Json),
            (b"{\"value\":-Infinity,\"of\":{\"time_s\":\"\\\"NaN\"}}\n", Format::Json),
            (b"{\"value\":1e400}\n", Format::Json),
            (b"{\"value\":NaN,\"time_s\":3}\n", Format::JsonTimed),
            (b"{\"time_s\":NaN,\"value\":3}\n", Format::JsonTimed),
            (b"{\"time_s\":1e400,\"value\":3}\n", Format::JsonTimed),
        ];
        for (line, format) in cases {
            let text = [line, b"x\n"].concat();
            let mut reader = SeriesReader::new(&text[..]);
            let what = String::from_utf8_lossy(line);
            assert!(matches!(reader.next(), Some(Err(InputError::NotFinite { line: 1, .. }))), "{what}");
            assert_eq!(reader.format(), Some(format), "{what}");
            assert!(matches!(reader.next(), Some(Err(InputError::Unexpected { line: 2, .. }))), "{what}");
        }
        let mut reader = SeriesReader::new(&b"{\"value\":NaN}\n1,2\n"[..]);
        assert!(reader.next().is_some_and(|first| first.is_err_and(|error| error.is_recoverable())));
        assert!(matches!(reader.next(), Some(Err(InputError::Unexpected { line: 2, .. }))), "CSV after JSON");
    }

    proptest! {
        #[test]
        fn written_series_read_back_equal(
            mut times in prop::collection::vec(-1e12..1e12f64, 1..40),
            values in prop::collection::vec(prop_oneof![-1e70..1e70, -1.0..1.0, Just(0.0), Just(5e-324)], 40),
            format in 0..4u8,
            end in prop::sample::select(vec!["\n", "\r\n", "\n\n# x\n"]),
            chunk in 1..20usize,
        ) {
            times.sort_by(f64::total_cmp);
            let mut text = String::new();
            let mut samples = Vec::new();
            for (i, (time, value)) in times.into_iter().zip(values).enumerate() {
                let (line, time) = match format {
                    0 => (format!("{time},{value}"), time),
                    1 => (format!("{{\"value\":{value:e},\"time_s\":{time}}}"), time),
                    2 => (format!("{{\"value\":{value:e}}}"), i as f64),
                    _ => (format!(" {value:e}"), i as f64),
                };
                text = text + &line + end;
                samples.push(Sample { time_s: time, value });
            }
            let reader = SeriesReader::new(io::BufReader::with_capacity(chunk, text.as_bytes()));
            let read: Vec<Sample> = reader.collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(read, samples);
        }
    }
}

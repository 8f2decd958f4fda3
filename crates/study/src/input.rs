//! Reads a series of measurements, line by line: CSV, JSON lines, bare numbers, or the output of
//! `ping`.
//!
//! The first line with data decides the format; a later change is an error. Only one line is in
//! memory at a time, and lines are bounded, so an endless pipe needs no more memory than a small
//! file. This module opens no file and reads no clock.

mod columns;
mod error;
mod fields;
mod json;
mod ping;
mod plain;
mod series_check;
mod times;

use std::io::{self, BufRead};

use barograph_forecast::Battery;

use self::columns::{Columns, Header};
pub use self::columns::{MeasurementDetail, smaller_is_better};
pub use self::error::{InputError, io_message};
use self::error::{excerpt, listed};
use self::json::KeyedLines;
use self::ping::PingLog;
use self::plain::{Numbers, Plain, TimedValue};
use self::series_check::SeriesCheck;

/// One measurement, as it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds on the series' own clock, or since 1970; without times, the number of values before
    /// this value, or of probes if the input is the output of `ping`.
    pub time_s: f64,
    /// The value: finite, and of a magnitude that a battery accepts.
    pub value: f64,
}

/// The format of a series in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `time_s,value` on each line, or the columns that a header names.
    Csv,
    /// Columns that a header names, with no times among them; the time of a value is the number of
    /// values before it.
    CsvUntimed,
    /// A JSON object with `time_s` and `value` on each line.
    JsonTimed,
    /// A JSON object with `value` alone on each line; the time of a value is the number of values
    /// before it.
    Json,
    /// A number on each line; the time of a value is the number of values before it.
    Bare,
    /// Output of `ping -D`; the values are milliseconds.
    PingTimed,
    /// Output of `ping`, in milliseconds; the time of a value is the number of probes before it.
    Ping,
}

impl Format {
    /// Whether the times of samples are seconds.
    #[must_use]
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Csv | Self::JsonTimed | Self::PingTimed)
    }
}

/// Reads the measurements of one series, in order.
///
/// The iterator returns every measurement, or the error of its line. Reading can continue after an
/// error of one value ([`InputError::is_recoverable`]); every other error is final.
///
/// A CSV header may name more columns than `time_s` and `value`, in any order; commas, semicolons
/// or tabs separate fields. The values are those of the column `value`, else of a column with the
/// name of a quantity, else of the only column with numbers, unless [`of_column`](Self::of_column)
/// selects one. Times are seconds or ISO 8601; those of a column with a name also milli-, micro- or
/// nanoseconds since 1970. A line without a value, but with text in the column or key `error`, is a
/// failure. Lines of different quantities, sources or targets are not one series. Such lines are an
/// error, unless [`of_quantity`](Self::of_quantity) selects one quantity.
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
    layout: Layout,
    column: Option<String>,
    detail: MeasurementDetail,
    series: SeriesCheck,
    lists_quantities: bool,
    failures: u64,
    count: u64,
    time_s: f64,
    finished: bool,
}

/// How lines are read.
#[derive(Debug)]
enum Layout {
    /// No line with data or a header was read.
    Unknown,
    /// A header was read. The first line of data decides the columns.
    Header(Header),
    Columns(Columns),
    Plain(Plain),
    Keyed(KeyedLines),
    Ping(PingLog),
}

impl<R: BufRead> SeriesReader<R> {
    /// Creates a reader at the beginning of a series.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
            number: 0,
            format: None,
            layout: Layout::Unknown,
            column: None,
            detail: MeasurementDetail::default(),
            series: SeriesCheck::default(),
            lists_quantities: false,
            failures: 0,
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

    /// Reads the values from this column of CSV with a header, or from this key of JSON; the names
    /// of columns match in any case. `None` = a column that is chosen.
    #[must_use]
    pub fn of_column(mut self, wanted: Option<&str>) -> Self {
        self.column = wanted.map(str::to_owned);
        self
    }

    /// If the lines are of several quantities, reads on to the end, and names all quantities in the
    /// error. Not for a pipe that may be endless.
    #[must_use]
    pub fn listing_quantities(mut self) -> Self {
        self.lists_quantities = true;
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

    /// Returns the number of failed measurements since the last call: lines with an error and no
    /// value, and probes of `ping` without a reply. They precede the last measurement; at the end
    /// of the series, they follow it.
    pub fn take_failures(&mut self) -> u64 {
        std::mem::take(&mut self.failures)
    }

    /// The next measurement, or `None` at the end of a series that had at least one measurement.
    fn sample(&mut self) -> Result<Option<Sample>, InputError> {
        loop {
            if let Some((time_s, value)) = self.ping_reply() {
                return self.accept(time_s, value).map(Some);
            }
            if !self.read_line()? {
                break;
            }
            let line = std::mem::take(&mut self.line);
            let numbers = self.parse(&line);
            self.line = line;
            match numbers {
                Ok(Some((time_s, value))) => return self.accept(time_s, value).map(Some),
                Ok(None) => {}
                Err(error) => return Err(self.with_all_quantities(error)),
            }
        }
        if let Layout::Ping(log) = &mut self.layout {
            log.finish();
            if let Some((time_s, value)) = self.ping_reply() {
                return self.accept(time_s, value).map(Some);
            }
        }
        if let Layout::Ping(log) = &mut self.layout {
            self.failures += log.take_lost();
        }
        if self.count == 0 { Err(self.no_values()) } else { Ok(None) }
    }

    /// Time and value of a line; `None` if the line has none, as a comment, a header and a failure,
    /// or if it is of another quantity.
    fn parse(&mut self, bytes: &[u8]) -> Result<Option<TimedValue>, InputError> {
        let line = self.number;
        let bytes = if line == 1 { bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes) } else { bytes };
        let whole = str::from_utf8(bytes).map_err(|_| InputError::NotText { line })?;
        let text = whole.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        if matches!(self.layout, Layout::Unknown) && self.begin(whole)? {
            return Ok(None);
        }
        if let Layout::Header(header) = &self.layout {
            let Some(columns) = header.columns(whole, line)? else {
                self.failures += 1;
                return Ok(None);
            };
            self.layout = Layout::Columns(columns);
        }
        let (format, numbers, detail) = match &mut self.layout {
            Layout::Ping(log) => {
                self.series
                    .accepts(&MeasurementDetail { target: ping::target(text), ..Default::default() })?;
                let learned = log.learn(text);
                return learned.map(|()| None).ok_or_else(|| ping_error(text, line));
            }
            Layout::Columns(columns) => {
                let unexpected =
                    || InputError::Unexpected { line, expected: columns::NAMED, found: excerpt(text) };
                let row = columns.row(whole).ok_or_else(unexpected)?;
                columns.check(&row, line)?;
                let detail = columns.detail(&row);
                if columns.is_failure(&row) {
                    return Ok(self.fail(&detail));
                }
                let numbers = columns.numbers(&row).ok_or_else(unexpected)?;
                let format = if columns.is_timed() { Format::Csv } else { Format::CsvUntimed };
                (format, Ok(numbers), detail)
            }
            Layout::Keyed(keyed) => match keyed.parse(text, self.format, line)? {
                Some((format, numbers)) => (format, Ok(numbers), MeasurementDetail::of_json(text)),
                None => return Ok(self.fail(&MeasurementDetail::of_json(text))),
            },
            Layout::Plain(plain) => match plain.parse(text, self.format, line) {
                Err(InputError::Unexpected { .. }) if json::is_failure(text) => {
                    return Ok(self.fail(&MeasurementDetail::of_json(text)));
                }
                parsed => {
                    let (format, numbers) = parsed?;
                    let is_json = matches!(format, Format::Json | Format::JsonTimed);
                    let detail = if is_json { MeasurementDetail::of_json(text) } else { Default::default() };
                    (format, numbers, detail)
                }
            },
            // Decided above.
            Layout::Unknown | Layout::Header(_) => return Ok(None),
        };
        self.learn(format, numbers, detail)
    }

    /// Decides the layout by the first line; true if that line is a header.
    fn begin(&mut self, whole: &str) -> Result<bool, InputError> {
        let (text, line) = (whole.trim(), self.number);
        let column = self.column.as_deref();
        if ping::is_ping(text) {
            self.layout = Layout::Ping(PingLog::default());
        } else if text.starts_with('{') {
            self.layout = match column {
                Some(key) => Layout::Keyed(KeyedLines::new(key)),
                None => Layout::Plain(Plain::of_line(text)),
            };
        } else if let (None, Some(format)) = (column, plain::header(text)) {
            (self.layout, self.format) = (Layout::Plain(Plain::BELOW_HEADER), Some(format));
            return Ok(true);
        } else if let Some(header) = Header::read(whole, column, line)? {
            self.layout = Layout::Header(header);
            return Ok(true);
        } else if column.is_some() {
            return Err(InputError::NoHeader { line });
        } else {
            self.layout = Layout::Plain(Plain::of_line(text));
        }
        Ok(false)
    }

    /// Takes over format and details of a line. Even a line with an invalid number decides the
    /// format.
    fn learn(
        &mut self,
        format: Format,
        numbers: Numbers,
        detail: MeasurementDetail,
    ) -> Result<Option<TimedValue>, InputError> {
        (self.format, self.detail) = (Some(format), detail);
        if self.series.accepts(&self.detail)? { numbers.map(Some) } else { Ok(None) }
    }

    /// Counts a failure, unless it is of another series.
    fn fail<T>(&mut self, detail: &MeasurementDetail) -> Option<T> {
        self.failures += u64::from(self.series.is_same(detail));
        None
    }

    /// Time and value of the next reply of `ping`, if it is known.
    fn ping_reply(&mut self) -> Option<TimedValue> {
        let Layout::Ping(log) = &mut self.layout else { return None };
        let reply = log.pop()?;
        self.failures += reply.lost;
        self.format = Some(if reply.time_s.is_some() { Format::PingTimed } else { Format::Ping });
        // Replies that came in another order than their numbers, and a clock that was set back,
        // must not end the series.
        let time_s = reply.time_s.unwrap_or(reply.index as f64).max(self.time_s);
        Some((Some(time_s), reply.rtt_ms))
    }

    /// The error of a series without values.
    fn no_values(&self) -> InputError {
        match (&self.layout, self.series.missing_quantity()) {
            (_, Some(error)) => error,
            (Layout::Ping(_), None) => InputError::NoReply,
            _ => InputError::Empty,
        }
    }

    /// Names all quantities of the remaining lines in the error, if the caller wants that.
    fn with_all_quantities(&mut self, error: InputError) -> InputError {
        let InputError::MixedQuantities { mut quantities } = error else { return error };
        while self.lists_quantities && quantities.len() < QUANTITIES_MAX && self.read_line().unwrap_or(false)
        {
            let text = String::from_utf8_lossy(&self.line);
            let quantity = match &self.layout {
                Layout::Columns(columns) => columns.row(&text).and_then(|row| columns.detail(&row).quantity),
                _ => MeasurementDetail::of_json(&text).quantity,
            };
            quantities.extend(quantity.filter(|quantity| !quantities.contains(quantity)));
        }
        InputError::MixedQuantities { quantities }
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

/// The longest line that is read, in bytes, including its end: about a thousand times the length of
/// a measurement. The limit bounds memory if a file has no line ends.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// The error of a line that `ping` does not write.
fn ping_error(text: &str, line: u64) -> InputError {
    plain::unexpected(text, &"", Some(Format::Ping), line)
}

/// Maximum number of quantities that are collected for a message.
const QUANTITIES_MAX: usize = 100;

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
            ("0;1.5\n10;-2e3\n", &two),
            ("0\t1.5\n10\t-2e3\t\n", &two),
            ("time_s;value\n0;1.5\n10;-2e3\n", &two),
            ("\ttime_s\tlatency\n0\t0\t1.5\n1\t10\t-2e3\n", &two),
            ("time_s,what\n0,1.5\n10,-2e3\n", &two),
            ("time,latency\n1970-01-01T00:00:00Z,1.5\n1970-01-01T02:00:10+02:00,-2e3\n", &two),
            ("1970-01-01 00:00:00;1.5\n1970-01-01 00:00:10;-2e3\n", &two),
            ("ts_ms,\"a, b\",latency\n0,\"x, y\",1.5\n10000,z,-2e3\n", &two),
            ("host,value\na,1.5\nb,-2e3\n", &counted),
            ("latency\n1.5\n-2e3\n", &counted),
            ("elapsed_ms,rtt\n0,1.5\n10000,-2e3\n", &two),
            ("time,note,latency\n0,,1.5\n10,slow,-2e3\n", &two),
            ("time,note,value\n0,,1.5\n10,7,-2e3\n", &two),
        ];
        for (text, samples) in cases {
            assert_eq!(read(text.as_bytes()).as_ref(), Ok(*samples), "{text:?}");
        }
        let ms = b"time,rtt\n1777636800000,1\n1777636810000,2\n";
        assert_eq!(read(ms), Ok(vec![(1_777_636_800.0, 1.0), (1_777_636_810.0, 2.0)]));
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
            (b"when,what\n", "no values"),
            (b"1,a\n", "line 1: expected two numbers time_s,value, or a JSON object"),
            (b"a,b\n1;2\n", "line 2: expected a field for each column of the header"),
            (
                b"a,b\n1,2\n",
                "line 2: several columns hold numbers, \"a\" and \"b\"; select one with --column",
            ),
            (
                b"time,p50,p99\n0,,31\n10,20,35\n",
                "line 3: several columns hold numbers, \"p99\" and \"p50\"; select one with --column",
            ),
            (
                b"when,p99\n,31\n2026-05-01T12:00:00Z,35\n",
                "line 3: expected no time in column \"when\", because the lines before have none",
            ),
            (
                b"elapsed_s,value\n,31\n10,35\n",
                "line 3: expected no time in column \"elapsed_s\", because the lines before have none",
            ),
            (b"a;b\nx;y\n", "line 2: no column holds a number; the columns are \"a\" and \"b\""),
            (b"time,b\nnoon,1\n", "line 2: expected a time in column \"time\""),
            (b"time,b\n2026-05-01,1\n2026-13-01,1\n", "line 3: expected a field for each column"),
            (b"date,time,value\n2026-05-01,12:00:00,1\n", "line 2: expected a time in column \"time\""),
            (b"date,value\n20260501,1\n", "line 2: expected a time in column \"date\""),
            (b"PING a (192.0.2.1) 56(84) bytes of data.\n", "no values; expected a reply of ping"),
            (
                b"PING a (192.0.2.1) 56(84) bytes of data.\nPING b (192.0.2.2) 56(84) bytes of data.\n",
                "the series contains values of two targets, \"a\" and \"b\"",
            ),
            (b"8 bytes from ::1: seq=1 ttl=1\n", "line 1: expected a reply of ping with its time"),
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
    fn values_are_read_from_the_wanted_column_or_key() {
        let read = |text: &str, column: &str| -> Result<Vec<(f64, f64)>, String> {
            SeriesReader::new(text.as_bytes())
                .of_column(Some(column))
                .map(|sample| sample.map(|s| (s.time_s, s.value)).map_err(|e| e.to_string()))
                .collect()
        };
        let expected = Ok(vec![(0.0, 7.0), (10.0, 8.0)]);
        for text in [
            "time_s,value,Loss\n0,1,7\n10,2,8\n",
            "time,loss\n0,7\n10,8\n",
            "{\"time_s\":0,\"loss\":7}\n{\"error\":\"lost\",\"time_s\":5}\n{\"loss\":8,\"time_s\":10}\n",
            "{\"elapsed_ms\":0,\"loss\":7}\n{\"loss\":8,\"elapsed_ms\":10000}\n",
            "{\"ts\":\"1970-01-01T00:00:00Z\",\"loss\":7}\n{\"loss\":8,\"ts\":\"1970-01-01T00:00:10Z\"}\n",
        ] {
            assert_eq!(read(text, "loss"), expected, "{text}");
        }
        assert_eq!(read("{\"loss\":7}\n{\"loss\":8}\n", "loss"), Ok(vec![(0.0, 7.0), (1.0, 8.0)]));
        for (text, message) in [
            ("time_s,value\n0,1\n", "line 1: no column \"loss\"; the columns are \"time_s\" and \"value\""),
            ("{\"a\":1}\n", "line 1: no column \"loss\"; the columns are \"a\""),
            ("{\"loss\":\"1\"}\n", "line 1: expected a JSON object with a number under the key"),
            (
                "{\"loss\":1}\n{\"loss\":1,\"time\":2}\n",
                "line 2: expected a JSON object with the number value",
            ),
            ("0,1\n", "line 1: expected a header"),
        ] {
            let error = read(text, "loss").expect_err(text);
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn replies_of_ping_are_values_and_missing_numbers_are_failures() {
        let text = "PING a (192.0.2.1) 56(84) bytes of data.\n\
            [100.5] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=12.3 ms\n\
            [102.5] 64 bytes from 192.0.2.1: icmp_seq=3 ttl=57 time=13 ms\n\
            5 packets transmitted, 2 received, 60% packet loss, time 4005ms\n";
        let mut reader = SeriesReader::new(text.as_bytes());
        let mut next = || (reader.next().map(|sample| sample.unwrap()), reader.take_failures());
        assert_eq!(next(), (Some(Sample { time_s: 100.5, value: 12.3 }), 0));
        assert_eq!(next(), (Some(Sample { time_s: 102.5, value: 13.0 }), 1));
        assert_eq!(next(), (None, 2));
        assert_eq!(reader.format(), Some(Format::PingTimed));
        let untimed = text.replace("[100.5] ", "").replace("[102.5] ", "");
        assert_eq!(read(untimed.as_bytes()), Ok(vec![(0.0, 12.3), (2.0, 13.0)]));
    }

    #[test]
    fn failures_are_counted_with_the_value_after_them() {
        for text in [
            "time_s,rtt,error\n0,1,\n1,,lost\n2,,lost\n3,1,\n4,,lost\n",
            "{\"time_s\":0,\"value\":1}\n{\"error\":\"a\"}\n{\"error\":\"a\"}\n{\"time_s\":3,\"value\":1}\n{\"error\":\"a\"}\n",
        ] {
            let mut reader = SeriesReader::new(text.as_bytes());
            let failures: Vec<u64> =
                (0..3).map(|_| reader.next().map_or(10, |_| 0) + reader.take_failures()).collect();
            assert_eq!(failures, [0, 2, 11], "{text}");
        }
    }

    #[test]
    fn failures_of_other_series_are_not_counted() {
        for text in [
            "time_s,quantity,value,error\n0,rtt,1,\n1,connect,,refused\n2,rtt,1,\n",
            "time_s,target,rtt,error\n0,a,1,\n1,b,,lost\n2,a,1,\n",
        ] {
            let mut reader = SeriesReader::new(text.as_bytes());
            let failures: Vec<u64> = (0..3).map(|_| (reader.next(), reader.take_failures()).1).collect();
            assert_eq!(failures, [0, 0, 0], "{text}");
        }
    }

    #[test]
    fn a_date_beside_a_time_is_not_the_time() {
        let text = b"date,epoch,value\n2026-05-01,1777636800,1\n2026-05-01,1777636810,2\n";
        assert_eq!(read(text), Ok(vec![(1_777_636_800.0, 1.0), (1_777_636_810.0, 2.0)]));
    }

    #[test]
    fn all_quantities_are_listed_if_the_caller_wants_that() {
        let csv = "time_s,quantity,value\n0,rtt,1\n0,rtt,2\n0,loss,1\n0,rtt,1\n0,connect,\n";
        let json = "{\"value\":1,\"quantity\":\"rtt\"}\n{\"value\":1,\"quantity\":\"loss\"}\nx\n\
            {\"value\":1,\"quantity\":\"connect\"}\n";
        for text in [csv, json] {
            let mut reader = SeriesReader::new(text.as_bytes()).listing_quantities();
            let error = reader.find_map(Result::err).unwrap().to_string();
            assert_eq!(
                error,
                "the series contains \"rtt\", \"loss\" and \"connect\"; select one with --quantity"
            );
            let first = SeriesReader::new(text.as_bytes()).find_map(Result::err).unwrap().to_string();
            assert_eq!(first, "the series contains \"rtt\" and \"loss\"; select one with --quantity");
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

//! The columns of a CSV header, and the details of a measurement beside its time and value.

use barograph_forecast::Quantity;
use serde_json::Value;

use super::fields::Delimiter;
use super::plain::TimedValue;
use super::times::{TimeUnit, is_compact_date, is_date, iso_seconds};
use super::{InputError, excerpt, listed};

/// The details of a measurement, if its line has them.
///
/// On a CSV line, the details are in the columns with these names; a header is needed. On a JSON
/// line, the details are in the keys with these names, also in an object under `tcp_info`, `info`
/// or `detail`, as stations record them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeasurementDetail {
    /// The host that measured (`source`).
    pub source: Option<String>,
    /// The host or URL that was measured (`target`).
    pub target: Option<String>,
    /// The quantity (`quantity`, or the name of the column of values).
    pub quantity: Option<String>,
    /// Number of segments that TCP retransmitted (`retrans` or `total_retrans`).
    pub retrans: Option<u64>,
    /// The smallest round-trip time that the kernel saw, in seconds (`min_rtt_s`).
    pub min_rtt_s: Option<f64>,
    /// Duration of the test that measured the value, in seconds (`test_s`).
    pub test_s: Option<f64>,
}

impl MeasurementDetail {
    /// The details on a JSON line; a value of another type is ignored.
    pub(super) fn of_json(text: &str) -> Self {
        let Ok(object) = serde_json::from_str::<Value>(text) else { return Self::default() };
        let objects = || COUNTER_POINTERS.iter().filter_map(|pointer| object.pointer(pointer));
        let find =
            |names: &[&str]| objects().find_map(|object| names.iter().find_map(|name| object.get(name)));
        let end = |name: &str| object.get(name).and_then(Value::as_str).and_then(named);
        Self {
            source: end("source"),
            target: end("target"),
            quantity: find(&["quantity"]).and_then(Value::as_str).and_then(identifier),
            retrans: find(&RETRANS).and_then(Value::as_u64),
            min_rtt_s: find(&["min_rtt_s"]).and_then(Value::as_f64),
            test_s: find(&["test_s"]).and_then(Value::as_f64),
        }
    }
}

/// A finite time in seconds, from a column.
fn seconds(text: &str) -> Option<f64> {
    text.parse().ok().filter(|seconds: &f64| seconds.is_finite())
}

fn named(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn identifier(text: &str) -> Option<String> {
    Quantity::new(text).ok().map(|quantity| quantity.as_str().to_owned())
}

/// The names of the columns of a CSV header.
#[derive(Clone, Debug)]
pub(super) struct Header {
    /// Names in lower case.
    names: Vec<String>,
    delimiter: Delimiter,
    /// Index of the column of values, if its name tells.
    value: Option<usize>,
}

impl Header {
    /// The header on a line; `None` if the line is no header. `wanted` is the name of the column of
    /// values, in any case.
    ///
    /// # Errors
    /// [`InputError::NoSuchColumn`] if there is no column `wanted`.
    pub(super) fn read(text: &str, wanted: Option<&str>, line: u64) -> Result<Option<Self>, InputError> {
        let delimiter = Delimiter::of_line(text);
        let fields: Vec<&str> = delimiter.split(delimiter.trim(text)).take(COLUMNS_MAX + 1).collect();
        let names: Vec<String> = fields.iter().map(|name| name.to_ascii_lowercase()).collect();
        if COLUMNS_MAX < names.len() || !(names.iter().any(|name| name == TIME) || are_names(&fields)) {
            return Ok(None);
        }
        let at = |wanted: &str| names.iter().position(|name| name == wanted);
        let value = match wanted {
            Some(column) => Some(at(&column.trim().to_ascii_lowercase()).ok_or_else(|| {
                InputError::NoSuchColumn { line, column: excerpt(column), names: listed(fields.iter()) }
            })?),
            None => at("value").or_else(|| names.iter().position(|name| smaller_is_better(name).is_some())),
        };
        Ok(Some(Self { names, delimiter, value }))
    }

    /// The columns of time and value, by their names and the first line of data. `None` if the line
    /// is a failure, and cannot show which column has the values.
    ///
    /// # Errors
    /// If the line has a different number of fields, or if not exactly one column may be that of
    /// the values.
    pub(super) fn columns(&self, text: &str, line: u64) -> Result<Option<Columns>, InputError> {
        let fields: Vec<&str> = self.delimiter.split(self.delimiter.trim(text)).collect();
        if fields.len() != self.names.len() {
            return Err(InputError::Unexpected { line, expected: NAMED, found: excerpt(text) });
        }
        let time = self.time(&fields, line)?.or_else(|| self.elapsed(&fields));
        let value = match self.value {
            Some(value) => value,
            None => {
                let at = self.numbers(&fields, time.map(|(at, _)| at));
                match at[..] {
                    [value] => value,
                    [] if self
                        .names
                        .iter()
                        .zip(&fields)
                        .any(|(name, field)| name == ERROR && !field.is_empty()) =>
                    {
                        return Ok(None);
                    }
                    [] => return Err(InputError::NoNumbers { line, names: listed(self.names.iter()) }),
                    _ => {
                        let names = listed(at.iter().map(|at| &self.names[*at]));
                        return Err(InputError::ManyColumns { line, names });
                    }
                }
            }
        };
        let is_open = |at: &usize| fields[*at].is_empty() && *at != value && self.may_be_value(*at);
        Ok(Some(Columns {
            open: (0..self.names.len()).filter(is_open).collect(),
            is_value_named: self.value.is_some(),
            names: self.names.clone(),
            delimiter: self.delimiter,
            time,
            value,
        }))
    }

    /// The column of times: `time_s`, else the first one with another name for a time, else the
    /// first one with an ISO 8601 time.
    fn time(&self, fields: &[&str], line: u64) -> Result<Option<(usize, TimeUnit)>, InputError> {
        if let Some(at) = self.names.iter().position(|name| name == TIME) {
            return Ok(Some((at, TimeUnit::SECOND)));
        }
        let mut others = (0..self.names.len()).filter(|at| Some(*at) != self.value);
        // A date beside a time is only a part of it.
        let mut named = others.clone().filter(|at| TimeUnit::of_name(&self.names[*at]).is_some());
        let at = named.clone().find(|at| !is_date(fields[*at])).or_else(|| named.next());
        let Some((at, unit)) = at.and_then(|at| Some((at, TimeUnit::of_name(&self.names[at])?))) else {
            let iso = others.find(|at| iso_seconds(fields[*at]).is_some());
            return Ok(iso.map(|at| (at, TimeUnit::UNKNOWN)));
        };
        let mut first = unit;
        if first.seconds(fields[at]).is_none() || self.names[at] == "date" && is_compact_date(fields[at]) {
            let (column, found) = (excerpt(&self.names[at]), excerpt(fields[at]));
            return Err(InputError::NoTime { line, column, found });
        }
        Ok(Some((at, unit)))
    }

    /// The column of times since the beginning, such as `elapsed_s`, if a column beside it has the
    /// values.
    fn elapsed(&self, fields: &[&str]) -> Option<(usize, TimeUnit)> {
        let mut others = (0..self.names.len()).filter(|at| Some(*at) != self.value);
        let (at, unit) = others.find_map(|at| Some((at, TimeUnit::of_elapsed_name(&self.names[at])?)))?;
        let is_time = fields[at].parse::<f64>().is_ok();
        let has_value = self.value.is_some() || !self.numbers(fields, Some(at)).is_empty();
        (is_time && has_value).then_some((at, unit))
    }

    /// Indices of the columns with a number that may be a value.
    fn numbers(&self, fields: &[&str], time: Option<usize>) -> Vec<usize> {
        let is_value =
            |at: &usize| Some(*at) != time && self.may_be_value(*at) && fields[*at].parse::<f64>().is_ok();
        (0..self.names.len()).filter(is_value).collect()
    }

    /// Whether the name of a column is no detail, so that its numbers may be the values.
    fn may_be_value(&self, at: usize) -> bool {
        let name = self.names[at].as_str();
        !(name.is_empty() || DETAILS.contains(&name) || RETRANS.contains(&name))
    }
}

/// Whether the fields of a line may be the names of columns: no numbers or times, and at least one
/// word.
fn are_names(fields: &[&str]) -> bool {
    let is_data = |field: &&str| field.parse::<f64>().is_ok() || iso_seconds(field).is_some();
    let is_word = |field: &&str| field.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '@'));
    !fields.iter().any(is_data) && fields.iter().any(is_word)
}

/// The names of the columns, and the indices of the columns for time and value.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// Names in lower case.
    names: Vec<String>,
    delimiter: Delimiter,
    time: Option<(usize, TimeUnit)>,
    value: usize,
    /// Whether the column of values was chosen by its name.
    is_value_named: bool,
    /// Indices of the columns that had no text so far, and may be those of the values or times.
    open: Vec<usize>,
}

/// The fields of a line below a header.
pub(super) struct Row<'a> {
    fields: Vec<&'a str>,
}

impl Columns {
    /// The fields of a line; `None` if the line and the header have different numbers of fields.
    pub(super) fn row<'a>(&self, text: &'a str) -> Option<Row<'a>> {
        let fields: Vec<&str> = self.delimiter.split(self.delimiter.trim(text)).collect();
        (fields.len() == self.names.len()).then_some(Row { fields })
    }

    /// Checks that a column that had no text on the lines before does not change the choice of the
    /// columns, which was made by the first line of data.
    ///
    /// # Errors
    /// If such a column has a number, and the values are not chosen by name, or if it has the first
    /// time of the series.
    pub(super) fn check(&mut self, row: &Row<'_>, line: u64) -> Result<(), InputError> {
        let is_filled = |at: &usize| !row.fields[*at].is_empty();
        for at in self.open.iter().copied().filter(is_filled) {
            let (name, field) = (&self.names[at], row.fields[at]);
            let is_number = field.parse::<f64>().is_ok();
            let is_elapsed = is_number && TimeUnit::of_elapsed_name(name).is_some();
            if self.time.is_none() && (is_elapsed || iso_seconds(field).is_some()) {
                return Err(InputError::LateTime { line, column: excerpt(name) });
            }
            if !self.is_value_named && is_number {
                let names = listed([self.value, at].map(|at| &self.names[at]));
                return Err(InputError::ManyColumns { line, names });
            }
        }
        self.open.retain(|at| !is_filled(at));
        Ok(())
    }

    /// Whether the values have times.
    pub(super) fn is_timed(&self) -> bool {
        self.time.is_some()
    }

    /// Whether a line reports a failure: it has an error and no value.
    pub(super) fn is_failure(&self, row: &Row<'_>) -> bool {
        row.fields[self.value].is_empty() && self.field(row, ERROR).is_some_and(|why| !why.is_empty())
    }

    /// Time and value; `None` if one of them is not.
    pub(super) fn numbers(&mut self, row: &Row<'_>) -> Option<TimedValue> {
        let time_s = match &mut self.time {
            Some((at, unit)) => Some(unit.seconds(row.fields[*at])?),
            None => None,
        };
        Some((time_s, row.fields[self.value].parse().ok()?))
    }

    /// The details in the other columns.
    pub(super) fn detail(&self, row: &Row<'_>) -> MeasurementDetail {
        let field = |name: &str| self.field(row, name);
        let column = Some(self.names[self.value].as_str()).filter(|name| *name != "value");
        MeasurementDetail {
            source: field("source").and_then(named),
            target: field("target").and_then(named),
            quantity: field("quantity").or(column).and_then(identifier),
            retrans: RETRANS.iter().find_map(|name| field(name)?.parse().ok()),
            min_rtt_s: field("min_rtt_s").and_then(seconds),
            test_s: field("test_s").and_then(seconds),
        }
    }

    fn field<'a>(&self, row: &Row<'a>, wanted: &str) -> Option<&'a str> {
        row.fields.get(self.names.iter().position(|name| name == wanted)?).copied()
    }
}

/// Whether smaller values of a quantity are better, by its name; `None` = the name is not known.
#[must_use]
pub fn smaller_is_better(quantity: &str) -> Option<bool> {
    // Compare whole names, because for example `rtt_forecast_s` is a detail of a measurement, not a
    // measured quantity.
    match quantity.strip_suffix("_loaded").unwrap_or(quantity) {
        "rtt" | "rtt_tls" | "rtt_nagle" | "rtt_udp" | "connect" | "first_byte" | "response_time" => {
            Some(true)
        }
        "goodput" | "goodput_down" | "transfer" => Some(false),
        _ => None,
    }
}

/// What a line must contain below a header.
pub(super) const NAMED: &str =
    "a field for each column of the header, with a time (in seconds or ISO 8601) and a number";

/// Column of times in seconds.
const TIME: &str = "time_s";

/// Column of the reason of a failure.
const ERROR: &str = "error";

/// Columns that describe a value, and are not chosen as values.
const DETAILS: [&str; 7] = ["source", "target", "quantity", "unit", ERROR, "min_rtt_s", "test_s"];

/// Columns of TCP's retransmissions: a short name, and the kernel's name.
const RETRANS: [&str; 2] = ["retrans", "total_retrans"];

/// JSON pointers (RFC 6901) to the kernel's counters, as in lines of `barograph probe --json`, of
/// other programs, of stations and of pages.
const COUNTER_POINTERS: [&str; 6] = ["", "/tcp_info", "/info", "/detail", "/detail/tcp_info", "/detail/tcp"];

/// Maximum number of columns of a header. No record has this many columns. The limit bounds the
/// cost of a header.
const COLUMNS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_quantities_have_a_better_direction() {
        for (name, expected) in [
            ("rtt", Some(true)),
            ("rtt_loaded", Some(true)),
            ("goodput_down", Some(false)),
            ("transfer", Some(false)),
            ("rtt_forecast_s", None),
            ("goodput_bytes", None),
            // A column `loss` is a detail beside the value of a test. So the name `loss` selects no
            // column of values, and a comparison of losses needs `--better`.
            ("loss", None),
        ] {
            assert_eq!(smaller_is_better(name), expected, "{name}");
        }
    }

    /// Names of the columns of time and value that are chosen, or the message.
    fn chosen(header: &str, row: &str, wanted: Option<&str>) -> Result<(String, String), String> {
        let text = |error: InputError| error.to_string();
        let header = Header::read(header, wanted, 1).map_err(text)?.ok_or("no header")?;
        let columns = header.columns(row, 2).map_err(text)?.ok_or("a failure")?;
        let name = |at: usize| columns.names[at].clone();
        Ok((columns.time.map(|(at, _)| name(at)).unwrap_or_default(), name(columns.value)))
    }

    #[test]
    fn columns_are_chosen_by_name_and_by_what_they_hold() {
        for (header, row, expected) in [
            ("time_s,rtt_forecast_s,goodput", "0,1,2", ("time_s", "goodput")),
            ("time_s,rtt_forecast_s", "0,1", ("time_s", "rtt_forecast_s")),
            ("time_s,value,latency", "0,1,2", ("time_s", "value")),
            ("Timestamp;Host;Latency (ms)", "2026-05-01T12:00:00Z;a;12", ("timestamp", "latency (ms)")),
            ("host\twhen\tms", "a\t2026-05-01 12:00\t3", ("when", "ms")),
            ("\tlatency", "0\t3", ("", "latency")),
            ("host,value", "0,1", ("", "value")),
            ("time,latency,retrans,unit", "0,1,2,ms", ("time", "latency")),
            ("elapsed_s,rtt", "0,1", ("elapsed_s", "rtt")),
            ("latency,Elapsed_ms", "1,0", ("elapsed_ms", "latency")),
            ("elapsed_ms,timestamp", "12,0", ("timestamp", "elapsed_ms")),
            ("host,elapsed_ms", "a,12", ("", "elapsed_ms")),
            ("latency", "1", ("", "latency")),
        ] {
            let expected = Ok((expected.0.to_owned(), expected.1.to_owned()));
            assert_eq!(chosen(header, row, None), expected, "{header}");
        }
        assert_eq!(chosen("a,b,time", "1,2,3", Some(" B ")), Ok(("time".to_owned(), "b".to_owned())));
        assert_eq!(chosen("time,t", "1,2", Some("time")), Ok(("t".to_owned(), "time".to_owned())));
    }

    #[test]
    fn columns_that_cannot_be_chosen_are_listed() {
        for (header, row, wanted, message) in [
            ("time,Min,max", "0,1,2", None, "line 2: several columns hold numbers, \"min\" and \"max\"; "),
            (
                "time,host",
                "0,a",
                None,
                "line 2: no column holds a number; the columns are \"time\" and \"host\"",
            ),
            ("a,B,c", "0,1,2", Some("d"), "line 1: no column \"d\"; the columns are \"a\", \"B\" and \"c\""),
            ("ts,rtt", "noon,1", None, "line 2: expected a time in column \"ts\", in seconds or as ISO 8601"),
            ("time,a,error", "0,,lost", None, "a failure"),
            ("0,a", "", None, "no header"),
            ("[1,2]", "", None, "no header"),
        ] {
            let error = chosen(header, row, wanted).expect_err(header);
            assert!(error.starts_with(message), "{error}");
        }
    }
}

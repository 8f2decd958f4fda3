//! The columns of a CSV header, and the details of a measurement beside its time and value.

use barograph_forecast::Quantity;
use serde_json::Value;

use super::unquoted;

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

/// The names of the columns, and the indices of the columns for time and value.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    names: Vec<String>,
    time: usize,
    value: usize,
}

impl Columns {
    /// The columns of a header that names a time and a value, in any order.
    pub(super) fn of_header(text: &str) -> Option<Self> {
        let names: Vec<String> =
            text.split(',').take(COLUMNS_MAX + 1).map(|name| unquoted(name).to_ascii_lowercase()).collect();
        let at = |wanted: &str| names.iter().position(|name| name == wanted);
        let time = at("time_s")?;
        let value =
            at("value").or_else(|| names.iter().position(|name| smaller_is_better(name).is_some()))?;
        (names.len() <= COLUMNS_MAX).then_some(Self { names, time, value })
    }

    /// Time, value, and whether the line reports a failure; `None` if the line and the header have
    /// different numbers of fields.
    pub(super) fn fields<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str, bool)> {
        let fields: Vec<&str> = text.split(',').map(unquoted).collect();
        let failed = self.at("error").is_some_and(|at| fields.get(at).is_some_and(|why| !why.is_empty()));
        let (time, value) = (*fields.get(self.time)?, *fields.get(self.value)?);
        (fields.len() == self.names.len()).then_some((time, value, failed && value.is_empty()))
    }

    /// The details in the other columns.
    pub(super) fn detail(&self, text: &str) -> MeasurementDetail {
        let field = |name: &str| text.split(',').nth(self.at(name)?).map(unquoted);
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

    fn at(&self, wanted: &str) -> Option<usize> {
        self.names.iter().position(|name| name == wanted)
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
        assert_eq!(Columns::of_header("time_s,rtt_forecast_s,goodput").map(|columns| columns.value), Some(2));
        assert!(Columns::of_header("time_s,rtt_forecast_s").is_none());
    }
}

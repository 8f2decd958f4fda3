//! The columns that a CSV header names beside time and value, and what they tell of a measurement.

use barograph_forecast::Quantity;
use serde_json::Value;

use super::unquoted;

/// What stands beside a measurement, where its line says so.
///
/// Of a CSV line with a header, the columns of these names; of a JSON line, the keys of these names, also in an
/// object under `tcp_info`, `info` or `detail`, as stations record them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail {
    /// The host that measured (`source`).
    pub source: Option<String>,
    /// What was measured against (`target`).
    pub target: Option<String>,
    /// What was measured (`quantity`, or the name of the column of values).
    pub quantity: Option<String>,
    /// Segments that TCP sent again (`retrans` or `total_retrans`).
    pub retrans: Option<u64>,
    /// The smallest round-trip time that the kernel saw, in seconds (`min_rtt_s`).
    pub min_rtt_s: Option<f64>,
    /// How long the test took that measured the value, in seconds (`test_s`).
    pub test_s: Option<f64>,
}

impl Detail {
    /// Of a JSON line; what is not of the expected type is passed over.
    pub(super) fn of_json(text: &str) -> Self {
        let Ok(object) = serde_json::from_str::<Value>(text) else { return Self::default() };
        let places = || PLACES.iter().filter_map(|place| object.pointer(place));
        let find = |names: &[&str]| places().find_map(|place| names.iter().find_map(|name| place.get(name)));
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

/// A time in a column of its own.
fn seconds(text: &str) -> Option<f64> {
    text.parse().ok().filter(|seconds: &f64| seconds.is_finite())
}

/// A text that is not empty.
fn named(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A text that is the name of a quantity.
fn identifier(text: &str) -> Option<String> {
    Quantity::new(text).ok().map(|quantity| quantity.as_str().to_owned())
}

/// Where the time, the value and the rest stand on a line.
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

    /// Time, value and whether the line tells of a failure; `None` when it has another number of fields.
    pub(super) fn fields<'a>(&self, text: &'a str) -> Option<(&'a str, &'a str, bool)> {
        let fields: Vec<&str> = text.split(',').map(unquoted).collect();
        let failed = self.at("error").is_some_and(|at| fields.get(at).is_some_and(|why| !why.is_empty()));
        let (time, value) = (*fields.get(self.time)?, *fields.get(self.value)?);
        (fields.len() == self.names.len()).then_some((time, value, failed && value.is_empty()))
    }

    /// What the other columns tell.
    pub(super) fn detail(&self, text: &str) -> Detail {
        let field = |name: &str| text.split(',').nth(self.at(name)?).map(unquoted);
        let column = Some(self.names[self.value].as_str()).filter(|name| *name != "value");
        Detail {
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

/// Whether smaller values of a quantity are the better ones, from its name; `None` = its name does not tell.
#[must_use]
pub fn smaller_is_better(quantity: &str) -> Option<bool> {
    // Whole names, or `rtt_forecast_s` beside a measurement would pass for one.
    match quantity.strip_suffix("_loaded").unwrap_or(quantity) {
        "rtt" | "rtt_tls" | "rtt_nagle" | "rtt_udp" | "connect" | "first_byte" | "response_time" => {
            Some(true)
        }
        "goodput" | "goodput_down" | "transfer" => Some(false),
        _ => None,
    }
}

/// What counts as TCP's retransmissions: a column of one's own choice, and the kernel's name.
const RETRANS: [&str; 2] = ["retrans", "total_retrans"];

/// Where lines, `barograph probe --json`, others, stations and pages keep what the kernel said (RFC 6901).
const PLACES: [&str; 6] = ["", "/tcp_info", "/info", "/detail", "/detail/tcp_info", "/detail/tcp"];

/// More columns than any record of ours has; a bound on what a header can cost.
const COLUMNS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_beside_a_measurement_is_no_quantity() {
        for (name, expected) in [
            ("rtt", Some(true)),
            ("rtt_loaded", Some(true)),
            ("goodput_down", Some(false)),
            ("transfer", Some(false)),
            ("rtt_forecast_s", None),
            ("goodput_bytes", None),
            ("loss", None),
        ] {
            assert_eq!(smaller_is_better(name), expected, "{name}");
        }
        assert_eq!(Columns::of_header("time_s,rtt_forecast_s,goodput").map(|columns| columns.value), Some(2));
        assert!(Columns::of_header("time_s,rtt_forecast_s").is_none());
    }
}

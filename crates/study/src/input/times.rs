//! Times of measurements: seconds, other units since 1970, and ISO 8601.

use time::format_description::well_known::Iso8601;
use time::{Date, OffsetDateTime, PrimitiveDateTime};

/// The unit of the times in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TimeUnit {
    /// Number of units in a second; `None` until the first number decides it.
    per_s: Option<f64>,
}

impl TimeUnit {
    pub(super) const SECOND: Self = Self { per_s: Some(1.0) };
    /// Decided by the first number.
    pub(super) const UNKNOWN: Self = Self { per_s: None };

    /// The unit of a column with this name, in lower case; `None` if the name is not that of a
    /// time.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        if NAMES.contains(&name) { Some(Self::UNKNOWN) } else { Self::of_suffix(name, &NAMES) }
    }

    /// The unit of a column with this name, in lower case, if it may have the times since the
    /// beginning of the series, such as `elapsed_s`. Without a unit in its name, or beside another
    /// time, such a column often has the duration of what was measured.
    pub(super) fn of_elapsed_name(name: &str) -> Option<Self> {
        Self::of_suffix(name, &[ELAPSED])
    }

    /// The unit at the end of a name, if one of `names` precedes it.
    fn of_suffix(name: &str, names: &[&str]) -> Option<Self> {
        let units = [("_s", 1.0), ("_ms", 1e3), ("_us", 1e6), ("_ns", 1e9)];
        units.into_iter().find_map(|(suffix, per_s)| {
            names.contains(&name.strip_suffix(suffix)?).then_some(Self { per_s: Some(per_s) })
        })
    }

    /// Seconds of a time, for ISO 8601 since 1970; `None` if the text is no time.
    pub(super) fn seconds(&mut self, text: &str) -> Option<f64> {
        text.parse().ok().map(|number| self.in_seconds(number)).or_else(|| iso_seconds(text))
    }

    /// Converts a number to seconds. The first finite number decides the unit, unless the name of
    /// the column did.
    pub(super) fn in_seconds(&mut self, number: f64) -> f64 {
        if self.per_s.is_none() && number.is_finite() {
            let is_at_most = |(most, _): &(f64, f64)| number.abs() < *most;
            self.per_s = UNITS.into_iter().find(is_at_most).map(|(_, per_s)| per_s);
        }
        number / self.per_s.unwrap_or(1.0)
    }
}

/// Seconds since 1970 of a date, or of a date and time, by ISO 8601. A space may stand in place of
/// the `T`. A time without a zone counts as UTC. `None` for other texts, and for numbers.
pub(super) fn iso_seconds(text: &str) -> Option<f64> {
    let is_date = text.is_ascii() && text.len() <= ISO_BYTES_MAX && text.get(4..5) == Some("-");
    if !is_date {
        return None;
    }
    let with_t = match text.split_once(' ') {
        Some((date, time)) => format!("{date}T{time}"),
        None => text.to_owned(),
    };
    let utc = || PrimitiveDateTime::parse(&with_t, &Iso8601::PARSING).map(PrimitiveDateTime::assume_utc).ok();
    let midnight = || Some(Date::parse(&with_t, &Iso8601::PARSING).ok()?.midnight().assume_utc());
    let time = OffsetDateTime::parse(&with_t, &Iso8601::PARSING).ok().or_else(utc).or_else(midnight)?;
    Some(time.unix_timestamp() as f64 + f64::from(time.nanosecond()) * 1e-9)
}

/// Whether a text is a date without a time of day.
pub(super) fn is_date(text: &str) -> bool {
    text.len() == DATE_BYTES && iso_seconds(text).is_some()
}

/// Whether a text may be a date without separators, such as 20260501, and no number of seconds.
pub(super) fn is_compact_date(text: &str) -> bool {
    text.len() == DATE_BYTES - 2 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Length of `2026-05-01`.
const DATE_BYTES: usize = 10;

/// Names of columns with times; each may end in `_s`, `_ms`, `_us` or `_ns`.
const NAMES: [&str; 11] = [
    "time",
    "timestamp",
    "@timestamp",
    "datetime",
    "date_time",
    "date",
    "epoch",
    "unix",
    "unix_time",
    "ts",
    "t",
];

/// Name of a column with the times since the beginning of a series, before its unit.
const ELAPSED: &str = "elapsed";

/// Numbers below the first bound are seconds, up to the year 5138; then milliseconds, microseconds
/// and nanoseconds since 1970, from the year 1973 on. No series of seconds from its own start is
/// that long.
const UNITS: [(f64, f64); 4] = [(1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (f64::INFINITY, 1e9)];

/// Longest text of a time: with nine digits after the point and a zone, a time has 35.
const ISO_BYTES_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_times_are_read_with_and_without_a_zone() {
        for (text, expected) in [
            ("1970-01-01T00:00:10Z", Some(10.0)),
            ("2026-05-01T12:00:00.25Z", Some(1_777_636_800.25)),
            ("2026-05-01T14:00:00+02:00", Some(1_777_636_800.0)),
            ("2026-05-01 14:00:00,5+0200", Some(1_777_636_800.5)),
            ("2026-05-01 12:00", Some(1_777_636_800.0)),
            ("2026-05-01", Some(1_777_593_600.0)),
            ("2026-02-29T00:00:00Z", None),
            ("2026-05-01T25:00:00Z", None),
            ("2026-05-01T12:00:00Zx", None),
            ("20260501", None),
            ("01.05.2026", None),
            ("2026-", None),
            ("", None),
        ] {
            assert_eq!(iso_seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn the_first_number_or_the_name_decides_the_unit() {
        let seconds = |name: &str, numbers: [&str; 2]| {
            let mut unit = TimeUnit::of_name(name).unwrap_or(TimeUnit::UNKNOWN);
            numbers.map(|number| unit.seconds(number).unwrap_or(f64::NAN))
        };
        assert_eq!(seconds("time", ["1777636800", "1777636800.5"]), [1_777_636_800.0, 1_777_636_800.5]);
        assert_eq!(seconds("ts", ["1777636800000", "1777636800500"]), [1_777_636_800.0, 1_777_636_800.5]);
        assert_eq!(seconds("", ["1777636800000000000", "5e9"]), [1_777_636_800.0, 5.0]);
        assert_eq!(seconds("time", ["0", "1777636800000"]), [0.0, 1_777_636_800_000.0]);
        assert_eq!(seconds("time_ms", ["0", "1500"]), [0.0, 1.5]);
        assert_eq!(seconds("time_s", ["0", "1777636800000"]), [0.0, 1_777_636_800_000.0]);
        assert_eq!(seconds("epoch_us", ["inf", "1e6"]), [f64::INFINITY, 1.0]);
        assert_eq!(TimeUnit::of_name("rtt_ms"), None);
        assert_eq!(TimeUnit::of_name("elapsed_s"), None, "it may be a value");
        assert_eq!(TimeUnit::of_elapsed_name("elapsed_ms"), TimeUnit::of_name("time_ms"));
        assert_eq!(TimeUnit::of_elapsed_name("elapsed"), None);
    }
}

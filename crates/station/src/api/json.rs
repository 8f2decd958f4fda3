//! The shapes of docs/spec/api.md. Core types carry no serde; this is where they become JSON.

use barograph_engine::wire::is_sound_detail;
use barograph_engine::{Record, labelled_unix_ns};
use barograph_forecast::{Forecast, Outcome, Series};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::forecast::bank::{Account, LEVELS, Measured, Next, Point};
use crate::forecast::best::Age;
use crate::time::now_unix_ns;
use crate::unit;

#[derive(Serialize)]
pub(super) struct SeriesJson<'a> {
    #[serde(flatten)]
    id: Id<'a>,
    count: u64,
    failures: u64,
    last: Option<RecordJson<'a>>,
    next: Option<ForecastsJson<'a>>,
}

/// What every object about a series begins with.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Id<'a> {
    source: &'a str,
    target: &'a str,
    quantity: &'a str,
    unit: &'static str,
}

#[derive(Serialize)]
pub(super) struct RecordJson<'a> {
    #[serde(flatten)]
    id: Id<'a>,
    time_s: f64,
    /// How far the label is ahead of now, or was of the record's arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead_s: Option<f64>,
    #[serde(flatten)]
    outcome: OutcomeJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OutcomeJson {
    Value { value: f64 },
    Failed { error: &'static str, after_s: f64 },
}

#[derive(Serialize)]
pub(super) struct PointJson {
    time_s: f64,
    #[serde(flatten)]
    outcome: OutcomeJson,
    /// Given only where it is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<bool>,
    #[serde(flatten)]
    issued: Option<IssuedJson>,
}

#[derive(Serialize)]
struct IssuedJson {
    forecast: f64,
    #[serde(flatten)]
    ends: Option<Ends>,
    method: &'static str,
}

#[derive(Serialize)]
struct Ends {
    lower: f64,
    upper: f64,
}

#[derive(Serialize)]
pub(super) struct EventJson<'a> {
    #[serde(flatten)]
    id: Id<'a>,
    #[serde(flatten)]
    point: PointJson,
    next: Option<ForecastsJson<'a>>,
}

#[derive(Serialize)]
pub(super) struct ForecastsJson<'a> {
    #[serde(flatten)]
    id: Id<'a>,
    time_s: f64,
    count: u64,
    level: f64,
    mean: ForecastJson,
    median: ForecastJson,
    #[serde(flatten)]
    ends: Option<Ends>,
}

#[derive(Serialize)]
struct ForecastJson {
    value: f64,
    mse: Option<f64>,
    mae: Option<f64>,
    recent_mse: Option<f64>,
    recent_mae: Option<f64>,
    method: &'static str,
    /// Of the method in the blend.
    weight: Option<f64>,
}

/// Nanoseconds as seconds; exact to a microsecond in this century.
pub(super) fn seconds(unix_ns: i64) -> f64 {
    unix_ns as f64 / 1e9
}

impl<'a> From<&'a Series> for Id<'a> {
    fn from(series: &'a Series) -> Self {
        Self {
            source: series.source.as_str(),
            target: series.target.as_str(),
            quantity: series.quantity.as_str(),
            unit: unit(&series.quantity),
        }
    }
}

impl<'a> SeriesJson<'a> {
    pub(super) fn new(series: &'a Series, account: &'a Account) -> Self {
        let Measured { time_unix_ns, outcome, detail, .. } = account.last();
        Self {
            id: Id::from(series),
            count: account.count(),
            failures: account.failures(),
            last: Some(RecordJson::of(series, *time_unix_ns, outcome, detail)),
            next: ForecastsJson::of(series, account, DEFAULT_LEVEL),
        }
    }
}

impl<'a> RecordJson<'a> {
    pub(super) fn new(record: &'a Record) -> Self {
        Self::of(&record.series, record.time_unix_ns, &record.outcome, &record.detail)
    }

    fn of(series: &'a Series, time_unix_ns: i64, outcome: &Outcome, detail: &'a str) -> Self {
        let ahead_s = labelled_unix_ns(detail).map(|label| seconds(label.saturating_sub(time_unix_ns)));
        Self {
            id: Id::from(series),
            time_s: seconds(time_unix_ns),
            ahead_s: Age::at(now_unix_ns(), time_unix_ns, ahead_s).ahead_s,
            outcome: OutcomeJson::from(outcome),
            // A detail that breaks a reader, stored before such were refused, is left out.
            detail: is_sound_detail(detail).then(|| serde_json::from_str(detail).ok()).flatten(),
        }
    }
}

impl PointJson {
    /// The point with the interval at `LEVELS[level]`.
    pub(super) fn new(point: &Point, level: usize) -> Self {
        let issued = point.issued.map(|issued| IssuedJson {
            forecast: issued.forecast,
            ends: issued.intervals[level].map(Ends::from),
            method: issued.method,
        });
        let refused = point.refused.then_some(true);
        Self {
            time_s: seconds(point.time_unix_ns),
            outcome: OutcomeJson::from(&point.outcome),
            refused,
            issued,
        }
    }
}

impl<'a> EventJson<'a> {
    pub(super) fn new(event: &'a crate::forecast::hub::Event, level: usize) -> Self {
        let ends = event.intervals[level];
        let next = event.next.as_ref();
        Self {
            id: Id::from(&event.series),
            point: PointJson::new(&event.point, level),
            next: next.map(|next| ForecastsJson::new(&event.series, next, LEVELS[level], ends)),
        }
    }
}

impl<'a> ForecastsJson<'a> {
    pub(super) fn of(series: &'a Series, account: &Account, level: f64) -> Option<Self> {
        account.next().map(|next| Self::new(series, &next, level, account.interval(level)))
    }

    fn new(series: &'a Series, next: &Next, level: f64, ends: Option<(f64, f64)>) -> Self {
        Self {
            id: Id::from(series),
            time_s: seconds(next.time_unix_ns),
            count: next.median.count,
            level,
            mean: ForecastJson::from(&next.mean),
            median: ForecastJson::from(&next.median),
            ends: ends.map(Ends::from),
        }
    }
}

impl From<&Outcome> for OutcomeJson {
    fn from(outcome: &Outcome) -> Self {
        match *outcome {
            Outcome::Value(value) => Self::Value { value },
            Outcome::Failed { failure, after_s } => Self::Failed { error: failure.as_str(), after_s },
        }
    }
}

impl From<&Forecast> for ForecastJson {
    fn from(forecast: &Forecast) -> Self {
        let scored = |error: f64| forecast.is_scored().then_some(error);
        Self {
            value: forecast.value,
            mse: scored(forecast.mse),
            mae: scored(forecast.mae),
            recent_mse: scored(forecast.recent_mse),
            recent_mae: scored(forecast.recent_mae),
            method: forecast.method.0,
            weight: forecast.weight,
        }
    }
}

impl From<(f64, f64)> for Ends {
    fn from((lower, upper): (f64, f64)) -> Self {
        Self { lower, upper }
    }
}

/// The level of intervals unless another is asked for.
pub(super) const DEFAULT_LEVEL: f64 = 0.9;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::{Name, Quantity};

    use super::*;

    #[test]
    fn a_detail_that_breaks_a_reader_is_left_out() {
        let name = || Name::new("a").unwrap();
        let series = Series { source: name(), target: name(), quantity: Quantity::RTT };
        let outcome = Outcome::Value(1.0);
        let text =
            |detail: &str| serde_json::to_string(&RecordJson::of(&series, 1, &outcome, detail)).unwrap();
        assert!(text("{\"n\":1}").contains("\"detail\":{\"n\":1}"));
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(2000), "]".repeat(2000));
        for detail in ["", "none", "7", &deep] {
            assert!(!text(detail).contains("detail"), "{detail}");
        }
    }
}

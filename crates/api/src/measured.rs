//! Series, records, points and forecasts: what a station measured, and what it was given.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Word;

/// One series: how much is known of it, its newest record and its next forecasts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series<'a> {
    /// Host that measures.
    pub source: Cow<'a, str>,
    /// Host or target that is measured.
    pub target: Cow<'a, str>,
    /// Quantity, such as `rtt`.
    pub quantity: Cow<'a, str>,
    /// Unit of its values.
    pub unit: Word,
    pub count: u64,
    pub failures: u64,
    pub last: Option<Record<'a>>,
    pub next: Option<Forecasts<'a>>,
}

/// One measurement: `value`, or `error` and `after_s`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record<'a> {
    pub source: Cow<'a, str>,
    pub target: Cow<'a, str>,
    pub quantity: Cow<'a, str>,
    pub unit: Word,
    /// Time of the measurement, seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// How far the label is ahead of now, or was of the record's arrival, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_s: Option<f64>,
    /// Value, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Word>,
    /// Time until the failure, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_s: Option<f64>,
    /// Object with details of the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Cow<'a, RawValue>>,
}

/// One point of a series, with the forecast that was issued for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// Time of the measurement, seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// Value, in the series' unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Word>,
    /// Time until the failure, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_s: Option<f64>,
    /// `Some(true)` = the other end refused the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<bool>,
    /// Forecast of the value, issued before it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Word>,
}

/// One point as `/v1/stream` sends it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Event<'a> {
    pub source: Cow<'a, str>,
    pub target: Cow<'a, str>,
    pub quantity: Cow<'a, str>,
    pub unit: Word,
    #[serde(flatten)]
    pub point: Point,
    /// Forecasts of the value after it.
    pub next: Option<Forecasts<'a>>,
}

/// How many events a reader of a live stream missed, because it read too slowly.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lag {
    pub missed: u64,
}

/// Forecasts of a series' next value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Forecasts<'a> {
    pub source: Cow<'a, str>,
    pub target: Cow<'a, str>,
    pub quantity: Cow<'a, str>,
    pub unit: Word,
    /// Time of the newest value, seconds since 1970-01-01 UTC.
    pub time_s: f64,
    pub count: u64,
    /// Level of the interval, 0 to 1.
    pub level: f64,
    /// Forecast for the least squared error.
    pub mean: Forecast,
    /// Forecast for the least absolute error.
    pub median: Forecast,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

/// One forecast with its errors so far; they are `None` before a forecast was scored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Forecast {
    /// The forecast, in the series' unit.
    pub value: f64,
    pub mse: Option<f64>,
    pub mae: Option<f64>,
    /// Mean squared error of the newest forecasts.
    pub recent_mse: Option<f64>,
    /// Mean absolute error of the newest forecasts.
    pub recent_mae: Option<f64>,
    pub method: Word,
    /// The method's weight in the blend, 0 to 1.
    pub weight: Option<f64>,
}

/// Series that were asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SeriesList<'a> {
    pub series: Vec<Series<'a>>,
}

/// Forecasts of the series that were asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ForecastList<'a> {
    pub forecasts: Vec<Forecasts<'a>>,
}

/// The newest record of each series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latest<'a> {
    pub latest: Vec<Record<'a>>,
    /// Where the next page begins; `None` = this was the last.
    pub next: Option<String>,
}

/// Records of one series, the oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History<'a> {
    pub records: Vec<Record<'a>>,
    /// Where the next page begins; `None` = this was the last.
    pub next: Option<String>,
}

/// The points of one series that are kept in memory, the oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recent<'a> {
    pub source: Cow<'a, str>,
    pub target: Cow<'a, str>,
    pub quantity: Cow<'a, str>,
    pub unit: Word,
    /// Level of the intervals, 0 to 1.
    pub level: f64,
    pub points: Vec<Point>,
    pub next: Option<Forecasts<'a>>,
}

/// How latencies to each peer are spread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LatencyList<'a> {
    pub latencies: Vec<Latency<'a>>,
}

/// How the latencies of one series are spread, all times in seconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency<'a> {
    pub source: Cow<'a, str>,
    pub target: Cow<'a, str>,
    pub quantity: Cow<'a, str>,
    /// Answers.
    pub count: u64,
    /// Requests without an answer.
    pub missed: u64,
    /// Mean; `None` = nothing was answered.
    pub mean_s: Option<f64>,
    /// Longest.
    pub max_s: Option<f64>,
    /// Quantiles; `None` = so many were missed that it is beyond all answers.
    pub p50_s: Option<f64>,
    pub p90_s: Option<f64>,
    pub p99_s: Option<f64>,
    pub p99_9_s: Option<f64>,
}

/// Values of an application, all stored or none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    /// Name under which the caller numbers records; `None` = the station numbers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    pub records: Vec<NewRecord>,
}

/// One value of an application.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRecord {
    /// Number of the record, 1 to 2^53; required with an origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// What measured; `None` = the origin, else the station's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What was measured; `None` = the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub quantity: String,
    /// Time of the measurement, seconds since 1970-01-01 UTC; `None` = now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// Value, finite.
    pub value: f64,
}

/// The answer to [`Measurements`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub stored: usize,
}

//! Series, records, points and forecasts of what a station measured or received from applications.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Keyword;

/// One series: its number of measurements, its newest record and its next forecasts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SeriesSummary<'a> {
    /// Name of the host that measures.
    pub source: Cow<'a, str>,
    /// Host, URL or address that is measured.
    pub target: Cow<'a, str>,
    /// Quantity, such as `rtt` or `goodput`.
    pub quantity: Cow<'a, str>,
    /// Unit of the values of the series: `s`, `bit/s`, `ratio`, `bytes`, or empty.
    pub unit: Keyword,
    /// Number of values from which the forecasts are made.
    pub count: u64,
    /// Number of failed measurements.
    pub failures: u64,
    /// Newest record; `None` = there is none.
    pub last: Option<Record<'a>>,
    /// Forecasts of the next value; `None` = there is no value yet.
    pub next: Option<Forecasts<'a>>,
}

/// One measurement: `value`, or `error` and `after_s`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record<'a> {
    /// Name of the host that measured.
    pub source: Cow<'a, str>,
    /// Host, URL or address that was measured.
    pub target: Cow<'a, str>,
    /// Quantity, such as `rtt` or `goodput`.
    pub quantity: Cow<'a, str>,
    /// Unit of `value`, as in [`SeriesSummary`].
    pub unit: Keyword,
    /// Time of the measurement, in seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// Time in seconds by which the time label was ahead of the clock when the record arrived, if
    /// this time was more than a minute. Otherwise it is the time by which the label is ahead of
    /// now. `None` = the label is not ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_s: Option<f64>,
    /// Measured value, in `unit`; `None` = the measurement failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Why the measurement failed: `unresolved`, `refused`, `unreachable`, `reset`, `timed_out`,
    /// `garbage`, `declined`, `untrusted` or `local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Keyword>,
    /// Time from the beginning of the measurement to its failure, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_s: Option<f64>,
    /// JSON object with details of the measurement, such as `tcp_info`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Cow<'a, RawValue>>,
}

/// One measurement of a series, with the forecast that was issued for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Time of the measurement, in seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// Measured value, in the series' unit; `None` = the measurement failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Why the measurement failed, as in [`Record`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Keyword>,
    /// Time from the beginning of the measurement to its failure, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_s: Option<f64>,
    /// `Some(true)` = the other end refused the connection, and `value` is the time of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<bool>,
    /// Median forecast of the value, in the series' unit, issued before the value was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<f64>,
    /// Lower end of the forecast's interval, in the series' unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Upper end of the forecast's interval, in the series' unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// Method that made the forecast; in a blend, the method with the largest weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Keyword>,
}

/// One point, as `/v1/stream` sends it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamEvent<'a> {
    /// Name of the host that measured.
    pub source: Cow<'a, str>,
    /// Host, URL or address that was measured.
    pub target: Cow<'a, str>,
    /// Quantity, such as `rtt` or `goodput`.
    pub quantity: Cow<'a, str>,
    /// Unit of the values, as in [`SeriesSummary`].
    pub unit: Keyword,
    /// The measurement, with the forecast that was issued for it.
    #[serde(flatten)]
    pub point: SeriesPoint,
    /// Forecasts of the next value; `None` = there is no value yet.
    pub next: Option<Forecasts<'a>>,
}

/// A notice to the reader of a live stream: the reader was too slow and missed events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MissedEvents {
    /// Number of events that were missed.
    pub missed: u64,
}

/// Forecasts of a series' next value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Forecasts<'a> {
    /// Name of the host that measures.
    pub source: Cow<'a, str>,
    /// Host, URL or address that is measured.
    pub target: Cow<'a, str>,
    /// Quantity, such as `rtt` or `goodput`.
    pub quantity: Cow<'a, str>,
    /// Unit of the forecasts, as in [`SeriesSummary`].
    pub unit: Keyword,
    /// Time of the newest value, in seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// Number of values from which the forecasts are made.
    pub count: u64,
    /// Level of the interval, 0 to 1.
    pub level: f64,
    /// Mean forecast: the forecast that minimises the squared error.
    pub mean: Forecast,
    /// Median forecast: the forecast that minimises the absolute error.
    pub median: Forecast,
    /// Lower end of the interval around `median`, in `unit`; `None` before ten forecasts were
    /// scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Upper end of the interval around `median`, in `unit`; `None` before ten forecasts were
    /// scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// Forecast of the value at the time of the response; `None` = no horizon was requested, or the
    /// newest value is labelled ahead of now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<AgedForecast>,
    /// Forecasts for the horizons that were requested, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub horizons: Vec<HorizonForecast>,
    /// Time of a transfer in the direction of the series, as if it began at the time of the
    /// response; `None` = the series has no goodputs, or no size was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<TransferForecast>,
}

/// Time of a transfer of `bytes` over a new TCP connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TransferForecast {
    /// Size of the transfer, in bytes.
    pub bytes: u64,
    /// Forecast of the time, in seconds; `None` = the path has no recent round-trip time, the
    /// goodput has no forecast, or the transfer would take longer than a year.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<f64>,
    /// Lower end of the interval of the time, at the level of the [`Forecasts`], in seconds; `None`
    /// before ten forecasts of both goodput and round-trip time were scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Upper end of the interval of the time, in seconds, at most a year; `None` as for `lower`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
}

/// Forecast of the value now, with an interval that widens with the age of the newest value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AgedForecast {
    /// Age of the newest value, in seconds.
    pub age_s: f64,
    /// Median forecast, in the series' unit.
    pub value: f64,
    /// Lower end of the interval around `value`, in the series' unit; `None` before ten forecasts
    /// were scored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Upper end of the interval around `value`; `None` as for `lower`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// Quantiles as in [`HorizonForecast`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<Quantile>,
}

/// Forecast for one horizon, which begins at the newest value: `steps` or `seconds`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HorizonForecast {
    /// Length of the horizon, in values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Length of the horizon, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// What is forecast: `mean` of the values up to the horizon, or the `value` at the horizon.
    pub of: Keyword,
    /// Number of forecasts of this horizon that were scored.
    pub scored: u64,
    /// Forecast that minimises the squared error; `None` = the period of the series is not known
    /// yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Forecast>,
    /// Forecast that minimises the absolute error; `None` as for `mean`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median: Option<Forecast>,
    /// Lower end of the interval around `median`, in the series' unit; `None` = it is not
    /// calibrated yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<f64>,
    /// Upper end of the interval around `median`; `None` as for `lower`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// Forecasts from which the errors and the interval come: `own` = for this horizon, `between` =
    /// interpolated between two horizons that the station keeps, `beyond` = for the longest horizon
    /// that has an interval, which is shorter. `None` = there is no forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<Keyword>,
    /// Lengths in values of the horizons of `basis` `between` (two) and `beyond` (one); else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from_steps: Vec<f64>,
    /// Quantiles that were requested and are calibrated, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<Quantile>,
    /// Probability that the measurement at the horizon gives a value, 0 to 1; `None` = no
    /// measurement failed so far, or the period of the series is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability: Option<f64>,
}

/// A quantile: the number below which a share of the values should be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Quantile {
    /// The share, 0 to 1.
    pub share: f64,
    /// The quantile, in the series' unit.
    pub value: f64,
}

/// One forecast with its errors so far; the errors are `None` before a forecast was scored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Forecast {
    /// Value expected next, in the series' unit.
    pub value: f64,
    /// Mean squared error of all forecasts, in the unit squared.
    pub mse: Option<f64>,
    /// Mean absolute error of all forecasts, in the series' unit.
    pub mae: Option<f64>,
    /// Mean squared error in which an error's weight halves every 100 values, in the unit squared.
    pub recent_mse: Option<f64>,
    /// Mean absolute error in which an error's weight halves every 100 values, in the series' unit.
    pub recent_mae: Option<f64>,
    /// Method that made the forecast; in a blend, the method with the largest weight.
    pub method: Keyword,
    /// Weight of the method in the blend, 0 to 1; `None` = the forecast is not a blend.
    pub weight: Option<f64>,
}

/// The series that a request selected.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SeriesList<'a> {
    /// Series, ordered by quantity, target and source.
    pub series: Vec<SeriesSummary<'a>>,
    /// Where the next page begins, for the parameter `after`; `None` = this is the last page, or
    /// the request did not ask for a page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Forecasts of the series that a request selected.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ForecastList<'a> {
    /// Forecasts of each series that has values.
    pub forecasts: Vec<Forecasts<'a>>,
}

/// The newest record of each series.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LatestPage<'a> {
    /// Records, one for each series.
    pub latest: Vec<Record<'a>>,
    /// Where the next page begins, for the parameter `after`; `None` = this is the last page.
    pub next: Option<String>,
}

/// Records of one series, the newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HistoryPage<'a> {
    /// Records of this page, the newest first.
    pub records: Vec<Record<'a>>,
    /// Where the next page begins, for the parameter `after`; `None` = this is the last page.
    pub next: Option<String>,
}

/// The points of one series that are kept in memory, the oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecentPoints<'a> {
    /// Name of the host that measures.
    pub source: Cow<'a, str>,
    /// Host, URL or address that is measured.
    pub target: Cow<'a, str>,
    /// Quantity, such as `rtt` or `goodput`.
    pub quantity: Cow<'a, str>,
    /// Unit of the values, as in [`SeriesSummary`].
    pub unit: Keyword,
    /// Level of the intervals, 0 to 1.
    pub level: f64,
    /// Points, the oldest first.
    pub points: Vec<SeriesPoint>,
    /// Forecasts of the next value; `None` = there is no value yet.
    pub next: Option<Forecasts<'a>>,
}

/// Distributions of the latencies to each peer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LatencyList<'a> {
    /// Distributions, one for each peer and quantity.
    pub latencies: Vec<Latency<'a>>,
}

/// Distribution of the latencies to one peer since the start of the station.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency<'a> {
    /// Name of this station.
    pub source: Cow<'a, str>,
    /// Name of the peer.
    pub target: Cow<'a, str>,
    /// `rtt` (idle) or `rtt_loaded` (during a bulk test).
    pub quantity: Cow<'a, str>,
    /// Number of exchanges with a response.
    pub count: u64,
    /// Number of exchanges that were due and had no response.
    pub missed: u64,
    /// Mean latency of the `count` exchanges with a response, in seconds; `None` = no exchange had
    /// a response.
    pub mean_s: Option<f64>,
    /// Largest latency of the `count` exchanges with a response, in seconds; `None` = no exchange
    /// had a response.
    pub max_s: Option<f64>,
    /// Median in seconds; exchanges without a response count as the slowest. `None` = the median is
    /// an exchange without a response.
    pub p50_s: Option<f64>,
    /// 90 % quantile in seconds; `None` as for `p50_s`.
    pub p90_s: Option<f64>,
    /// 99 % quantile in seconds; `None` as for `p50_s`.
    pub p99_s: Option<f64>,
    /// 99.9 % quantile in seconds; `None` as for `p50_s`.
    pub p99_9_s: Option<f64>,
}

/// Values of an application. The station stores all of them or none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    /// Name under which the caller numbers records; `None` = the station numbers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Values to store, 1000 at most.
    pub records: Vec<NewRecord>,
}

/// One value of an application.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewRecord {
    /// Sequence number of the record, 1 to 2^53; required with an origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Name of the host or program that measured; `None` = the origin, or the station's host if
    /// there is no origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Name of what was measured; `None` = the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Quantity, such as `rtt`, or a quantity that the application defines.
    pub quantity: String,
    /// Time of the measurement, in seconds since 1970-01-01 UTC; `None` = now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// Finite value, in the unit of the quantity.
    pub value: f64,
}

/// The response to [`Measurements`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StoredCount {
    /// Number of records that are stored, including records of an earlier request.
    pub stored: usize,
}

//! Converts core types, which have no serde, to the types of `barograph_api`.

use std::borrow::Cow;

use barograph_api::{Forecasts, Keyword, StreamEvent};
use barograph_engine::wire::is_sound_detail;
use barograph_engine::{Record, original_label_unix_ns};
use barograph_forecast::{Forecast, HorizonForecast, Interval, Outcome, SeriesId};

use super::heavy::Rows;
use crate::forecast::best::Age;
use crate::forecast::hub;
use crate::forecast::series::{LEVELS, Measurement, NextForecasts, SeriesPoint, SeriesState};
use crate::time::now_unix_ns;
use crate::unit;

/// Converts nanoseconds to seconds; the result is exact to a microsecond in this century.
pub(super) fn seconds(unix_ns: i64) -> f64 {
    unix_ns as f64 / 1e9
}

/// Source, target, quantity and unit, the first fields of every type with a series.
pub(super) fn id(series: &SeriesId) -> (Cow<'_, str>, Cow<'_, str>, Cow<'_, str>, Keyword) {
    let SeriesId { source, target, quantity } = series;
    (source.as_str().into(), target.as_str().into(), quantity.as_str().into(), unit(quantity).into())
}

/// Adds the row of a series to the list `/v1/series`.
pub(super) fn push_series(rows: &mut Rows, series: &SeriesId, state: &SeriesState) {
    rows.push(&self::series(series, state));
}

fn series<'a>(series: &'a SeriesId, state: &'a SeriesState) -> barograph_api::SeriesSummary<'a> {
    let Measurement { time_unix_ns, outcome, detail, .. } = state.last();
    let (source, target, quantity, unit) = id(series);
    barograph_api::SeriesSummary {
        source,
        target,
        quantity,
        unit,
        count: state.count(),
        failures: state.failures(),
        last: Some(record_of(series, *time_unix_ns, outcome, detail)),
        next: forecasts_of(series, state, Interval::DEFAULT_LEVEL),
    }
}

pub(super) fn record(record: &Record) -> barograph_api::Record<'_> {
    record_of(&record.series, record.time_unix_ns, &record.outcome, &record.detail)
}

fn record_of<'a>(
    series: &'a SeriesId,
    time_unix_ns: i64,
    outcome: &Outcome,
    detail: &'a str,
) -> barograph_api::Record<'a> {
    let ahead_s = original_label_unix_ns(detail).map(|label| seconds(label.saturating_sub(time_unix_ns)));
    let (source, target, quantity, unit) = id(series);
    let (value, error, after_s) = parts(outcome);
    barograph_api::Record {
        source,
        target,
        quantity,
        unit,
        time_s: seconds(time_unix_ns),
        ahead_s: Age::at(now_unix_ns(), time_unix_ns, ahead_s).ahead_s,
        value,
        error,
        after_s,
        // Omit a detail that would break readers. Earlier versions stored such details; this
        // version refuses them.
        detail: is_sound_detail(detail)
            .then(|| serde_json::from_str(detail).ok().map(Cow::Borrowed))
            .flatten(),
    }
}

/// Fields of an outcome: `value`, or `error` and `after_s`.
fn parts(outcome: &Outcome) -> (Option<f64>, Option<Keyword>, Option<f64>) {
    match *outcome {
        Outcome::Value(value) => (Some(value), None, None),
        Outcome::Failed { failure, after_s } => (None, Some(failure.as_str().into()), Some(after_s)),
    }
}

/// Converts a point, with the interval at `LEVELS[level]`.
pub(super) fn point(point: &SeriesPoint, level: usize) -> barograph_api::SeriesPoint {
    let (value, error, after_s) = parts(&point.outcome);
    let ends = point.issued.and_then(|issued| issued.intervals[level]);
    barograph_api::SeriesPoint {
        time_s: seconds(point.time_unix_ns),
        value,
        error,
        after_s,
        refused: point.refused.then_some(true),
        forecast: point.issued.map(|issued| issued.forecast),
        lower: ends.map(|(lower, _)| lower),
        upper: ends.map(|(_, upper)| upper),
        method: point.issued.map(|issued| issued.method.into()),
    }
}

pub(super) fn event(event: &hub::PointEvent, level: usize) -> StreamEvent<'_> {
    let (source, target, quantity, unit) = id(&event.series);
    let next = event.next.as_ref();
    StreamEvent {
        source,
        target,
        quantity,
        unit,
        point: point(&event.point, level),
        next: next.map(|next| forecasts(&event.series, next, LEVELS[level], event.intervals[level])),
    }
}

/// Returns the function that adds the row of a series to the list `/v1/forecast`, with the interval
/// at `level`. A series without a forecast has no row.
pub(super) fn push_forecasts(level: f64) -> impl Fn(&mut Rows, &SeriesId, &SeriesState) {
    move |rows, series, state| {
        if let Some(forecasts) = forecasts_of(series, state, level) {
            rows.push(&forecasts);
        }
    }
}

pub(super) fn forecasts_of<'a>(
    series: &'a SeriesId,
    state: &SeriesState,
    level: f64,
) -> Option<Forecasts<'a>> {
    state.forecasts_with_interval(level).map(|(next, ends)| forecasts(series, &next, level, ends))
}

fn forecasts<'a>(
    series: &'a SeriesId,
    next: &NextForecasts,
    level: f64,
    ends: Option<(f64, f64)>,
) -> Forecasts<'a> {
    let (source, target, quantity, unit) = id(series);
    Forecasts {
        source,
        target,
        quantity,
        unit,
        time_s: seconds(next.time_unix_ns),
        count: next.median.count,
        level,
        mean: forecast(&next.mean),
        median: forecast(&next.median),
        lower: ends.map(|(lower, _)| lower),
        upper: ends.map(|(_, upper)| upper),
        now: None,
        horizons: Vec::new(),
        transfer: None,
    }
}

fn forecast(forecast: &Forecast) -> barograph_api::Forecast {
    forecast_over(&HorizonForecast::from(*forecast))
}

/// Converts the forecast for a horizon.
pub(super) fn forecast_over(forecast: &HorizonForecast) -> barograph_api::Forecast {
    let scored = |error: f64| (forecast.scored != 0).then_some(error);
    barograph_api::Forecast {
        value: forecast.value,
        mse: scored(forecast.mse),
        mae: scored(forecast.mae),
        recent_mse: scored(forecast.recent_mse),
        recent_mae: scored(forecast.recent_mae),
        method: forecast.method.0.into(),
        weight: forecast.weight,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use barograph_forecast::{Name, Quantity};

    use super::*;

    #[test]
    fn a_detail_that_is_not_a_shallow_json_object_is_omitted() {
        let name = || Name::new("a").unwrap();
        let series = SeriesId { source: name(), target: name(), quantity: Quantity::RTT };
        let outcome = Outcome::Value(1.0);
        let text = |detail: &str| serde_json::to_string(&record_of(&series, 1, &outcome, detail)).unwrap();
        assert!(text("{\"n\":1}").contains("\"detail\":{\"n\":1}"));
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(2000), "]".repeat(2000));
        for detail in ["", "none", "7", &deep] {
            assert!(!text(detail).contains("detail"), "{detail}");
        }
    }
}

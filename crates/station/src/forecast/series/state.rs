//! One series: its forecaster, its newest points, and the forecasts issued for them.

use barograph_engine::original_label_unix_ns;
use barograph_forecast::{
    Battery, Forecast, Forecaster, ForecasterConfig, Interval, Objective, Outcome, Quantity,
};

use super::ahead::{self, is_no_answer};
use super::ring::{Methods, Ring};
use super::slow_start::SlowStarts;
use super::{LEVELS, Measurement};

/// A forecast that was issued for a value before this value was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IssuedForecast {
    /// Forecast for least absolute error, in the series' unit.
    pub forecast: f64,
    /// Name of the method that made the forecast.
    pub method: &'static str,
    /// Lower and upper end of the interval at each of [`LEVELS`]; `None` until the intervals are
    /// calibrated.
    pub intervals: [Option<(f64, f64)>; LEVELS.len()],
}

/// A point of a series and the forecast issued for it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoint {
    /// Wall-clock label, nanoseconds since 1970-01-01 UTC.
    pub time_unix_ns: i64,
    /// The value or the typed failure.
    pub outcome: Outcome,
    /// Whether the value is the time of a refused connection: the host is up, and the port is
    /// closed.
    pub refused: bool,
    /// `None` if no forecast was issued.
    pub issued: Option<IssuedForecast>,
}

/// The forecasts of a series' next value.
#[derive(Clone, Debug, PartialEq)]
pub struct NextForecasts {
    /// Time label of the newest value from which the forecasts are made.
    pub time_unix_ns: i64,
    /// Forecast for least squared error; it aims at the mean.
    pub mean: Forecast,
    /// Forecast for least absolute error; it aims at the median.
    pub median: Forecast,
}

/// All that the series table keeps of one series.
#[derive(Clone, Debug)]
pub struct SeriesState {
    pub(super) forecaster: Forecaster,
    ring: Ring,
    failures: u64,
    scored: u64,
    outside: u64,
    last: Measurement,
    value_time_unix_ns: i64,
    /// Time (ns) from the arrival of the newest value to its label; 0 if the label was not ahead of
    /// the arrival.
    value_ahead_ns: i64,
    /// Which goodputs include slow start.
    slow_starts: SlowStarts,
    last_error: Option<f64>,
}

impl SeriesState {
    pub(super) fn new(measurement: &Measurement, config: &ForecasterConfig, methods: &Methods) -> Self {
        Self {
            forecaster: ahead::forecaster(config),
            ring: Ring::new(&config.battery, methods),
            failures: 0,
            scored: 0,
            outside: 0,
            last: Measurement { time_unix_ns: i64::MIN, ..measurement.clone() },
            value_time_unix_ns: 0,
            value_ahead_ns: 0,
            slow_starts: SlowStarts::default(),
            last_error: None,
        }
    }

    pub(super) fn observe(&mut self, measurement: &Measurement) -> Option<SeriesPoint> {
        let ungapped_forecast = self.battery().forecast(Objective::Absolute).map(|median| median.value);
        let issued = self.issue(measurement.time_unix_ns);
        match measurement.outcome {
            // Refuse two kinds of values. A battery cannot make forecasts from a value outside the
            // battery's range. A value that is impossible for its quantity comes from a faulty or
            // hostile station.
            Outcome::Value(value) => {
                let (least, most) = bounds(&measurement.series.quantity);
                if !(least..=most).contains(&value)
                    || self.forecaster.update_at(value, seconds(measurement.time_unix_ns)).is_err()
                {
                    return None;
                }
                self.value_time_unix_ns = measurement.time_unix_ns;
                self.value_ahead_ns = original_label_unix_ns(&measurement.detail)
                    .map_or(0, |label| label.saturating_sub(measurement.time_unix_ns).max(0));
                if crate::unit(&measurement.series.quantity) == "bit/s" {
                    self.slow_starts.learn(crate::detail::slow_start_bytes(&measurement.detail));
                }
                self.score(issued.as_ref(), value);
            }
            Outcome::Failed { failure, .. } => {
                self.failures += 1;
                if is_no_answer(failure) {
                    self.forecaster.fail();
                }
            }
        }
        let Measurement { time_unix_ns, outcome, .. } = *measurement;
        let refused = matches!(outcome, Outcome::Value(_)) && crate::detail::is_refused(&measurement.detail);
        let point = SeriesPoint { time_unix_ns, outcome, refused, issued };
        self.last_error = match (point.outcome, issued) {
            (Outcome::Value(value), Some(issued)) => Some(value - issued.forecast),
            _ => None,
        };
        self.ring.push(&point, ungapped_forecast);
        self.last = measurement.clone();
        Some(point)
    }

    /// See [`SeriesTable::restart_scores`](super::SeriesTable::restart_scores).
    pub(super) fn restart_scores(&mut self) {
        (self.scored, self.outside) = (0, 0);
    }

    /// Counts whether `value` is inside the interval that was issued for it.
    fn score(&mut self, issued: Option<&IssuedForecast>, value: f64) {
        if let Some((lower, upper)) = issued.and_then(|issued| issued.intervals[SCORED_LEVEL]) {
            self.scored += 1;
            self.outside += u64::from(value < lower || upper < value);
        }
    }

    fn battery(&self) -> &Battery {
        self.forecaster.battery()
    }

    fn issue(&self, time_unix_ns: i64) -> Option<IssuedForecast> {
        let median = self.battery().forecast_at(Objective::Absolute, seconds(time_unix_ns))?;
        let intervals = LEVELS.map(|level| self.interval_at(level, time_unix_ns));
        Some(IssuedForecast { forecast: median.value, method: median.method.0, intervals })
    }

    /// The forecasts of the next value; `None` before the first value.
    #[must_use]
    pub fn forecasts(&self) -> Option<NextForecasts> {
        Some(NextForecasts {
            time_unix_ns: self.value_time_unix_ns,
            mean: self.battery().forecast(Objective::Squared)?,
            median: self.battery().forecast(Objective::Absolute)?,
        })
    }

    /// Forecasts of a value at `time_unix_ns`. After a gap, these forecasts differ from the
    /// forecasts that [`SeriesState::forecasts`] returns.
    #[must_use]
    pub fn forecasts_at(&self, time_unix_ns: i64) -> Option<NextForecasts> {
        let time_s = seconds(time_unix_ns);
        Some(NextForecasts {
            time_unix_ns: self.value_time_unix_ns,
            mean: self.battery().forecast_at(Objective::Squared, time_s)?,
            median: self.battery().forecast_at(Objective::Absolute, time_s)?,
        })
    }

    /// The calibrated interval for the next value at `level`, limited to possible values: a time is
    /// not negative, a share at most 1. No value lies in the part that is cut off, so the
    /// probability of the interval is still `level`.
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<(f64, f64)> {
        self.clamped(self.battery().interval(level))
    }

    /// As [`SeriesState::forecasts`], with [`SeriesState::interval`] at `level`.
    #[must_use]
    pub fn forecasts_with_interval(&self, level: f64) -> Option<(NextForecasts, Option<(f64, f64)>)> {
        Some((self.forecasts()?, self.interval(level)))
    }

    /// As [`SeriesState::interval`], for a value at `time_unix_ns`.
    #[must_use]
    pub fn interval_at(&self, level: f64, time_unix_ns: i64) -> Option<(f64, f64)> {
        self.clamped(self.battery().interval_at(level, seconds(time_unix_ns)))
    }

    /// The ends of an interval, limited to possible values.
    pub(super) fn clamped(&self, interval: Option<Interval>) -> Option<(f64, f64)> {
        clamp_interval(interval, &self.last.series.quantity)
    }

    /// `value`, limited to possible values.
    pub(super) fn clamped_value(&self, value: f64) -> f64 {
        let (least, most) = bounds(&self.last.series.quantity);
        value.clamp(least, most)
    }

    /// The newest points, oldest first, at most [`POINTS_MAX`](super::POINTS_MAX), equal to those
    /// that [`SeriesTable::observe`](super::SeriesTable::observe) returned.
    pub fn points(&self) -> impl Iterator<Item = SeriesPoint> + '_ {
        self.ring.points(&self.last.series.quantity)
    }

    /// The newest measurement, value or failure.
    #[must_use]
    pub fn last(&self) -> &Measurement {
        &self.last
    }

    /// Whether the newest point is the time of a refused connection.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.ring.is_refused()
    }

    /// The newest value, if it is among the points kept.
    #[must_use]
    pub fn last_value(&self) -> Option<f64> {
        self.ring.last_value()
    }

    /// Time (s) from the arrival of the newest value to its label; `None` if the label was not
    /// ahead of the arrival.
    #[must_use]
    pub fn value_ahead_s(&self) -> Option<f64> {
        (self.value_ahead_ns > 0).then(|| seconds(self.value_ahead_ns))
    }

    /// Size (bytes) of the tests of a series of goodputs, if the forecasts include slow start,
    /// because more than half of the newest tests do.
    pub(crate) fn slow_start_bytes(&self) -> Option<u64> {
        self.slow_starts.usual()
    }

    /// Size (bytes) of the test that measured the newest value, if that value is a goodput that
    /// includes slow start.
    pub(crate) fn newest_slow_start_bytes(&self) -> Option<u64> {
        self.slow_starts.newest()
    }

    /// The least of the values that are among the points kept.
    pub(crate) fn least_value(&self) -> Option<f64> {
        self.ring.least_value()
    }

    /// Mean time between the newest nine points (s). `None` before the second point, or if the
    /// clock was set back between them.
    #[must_use]
    pub fn period_s(&self) -> Option<f64> {
        self.ring.period_s()
    }

    /// Newest value minus the forecast issued for it, in the series' unit. `None` if the newest
    /// point is a failure or had no forecast.
    #[must_use]
    pub fn last_error(&self) -> Option<f64> {
        self.last_error
    }

    /// Number of values with an interval at 90 %, since
    /// [`SeriesTable::restart_scores`](super::SeriesTable::restart_scores).
    #[must_use]
    pub fn scored(&self) -> u64 {
        self.scored
    }

    /// Number of [`SeriesState::scored`] values outside their intervals at 90 %: one in ten while
    /// the link behaves as before.
    #[must_use]
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// Number of values that the battery has learnt, including those replayed at the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.battery().forecast(Objective::Absolute).map_or(0, |forecast| forecast.count)
    }

    /// Number of failures, including those replayed at the start.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

/// A time label in seconds, the unit of batteries.
pub(super) fn seconds(unix_ns: i64) -> f64 {
    unix_ns as f64 / 1e9
}

/// The ends of an interval, limited to possible values of `quantity`.
pub(super) fn clamp_interval(interval: Option<Interval>, quantity: &Quantity) -> Option<(f64, f64)> {
    let (least, most) = bounds(quantity);
    interval.map(|interval| (interval.lower.clamp(least, most), interval.upper.clamp(least, most)))
}

/// Minimum and maximum possible value of a quantity; an application's own quantity has no limits.
pub(crate) fn bounds(quantity: &Quantity) -> (f64, f64) {
    match crate::unit(quantity) {
        "ratio" => (0.0, 1.0),
        "bit/s" => (0.0, RATE_MAX_BIT_S),
        "s" => (0.0, TIME_MAX_S),
        "" => (f64::NEG_INFINITY, f64::INFINITY),
        _ => (0.0, f64::INFINITY),
    }
}

/// Highest possible rate (bit/s): ten Tbit/s, more than ten times the rate of the fastest single
/// link (IEEE 802.3df: 800 Gbit/s).
pub(crate) const RATE_MAX_BIT_S: f64 = 1e13;

/// Longest possible time (s): an hour, which is longer than any experiment waits for a response.
const TIME_MAX_S: f64 = 3600.0;

/// Index in [`LEVELS`] of the level at which misses are counted: 90 %, as on the page.
const SCORED_LEVEL: usize = 2;

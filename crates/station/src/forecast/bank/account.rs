//! One series: its battery, its newest points, and what was issued for them.

use barograph_engine::labelled_unix_ns;
use barograph_forecast::{Battery, Config, Forecast, Interval, Loss, Outcome, Quantity};

use super::ring::{Methods, Ring};
use super::{LEVELS, Measured};

/// The forecast that was issued before a point was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Issued {
    /// Under absolute loss, in the series' unit.
    pub forecast: f64,
    /// The method that made it.
    pub method: &'static str,
    /// Lower and upper end at each of [`LEVELS`], where calibrated.
    pub intervals: [Option<(f64, f64)>; LEVELS.len()],
}

/// A point of a series and what had been expected of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Wall-clock label, nanoseconds since 1970-01-01 UTC.
    pub time_unix_ns: i64,
    /// The value or the typed failure.
    pub outcome: Outcome,
    /// The value is the time of a refused connection: the host answers, the port is closed.
    pub refused: bool,
    /// `None` = no forecast had been issued.
    pub issued: Option<Issued>,
}

/// The forecasts of a series' next value.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Time of the newest value they were made from.
    pub time_unix_ns: i64,
    /// Aims at the mean: least squared error.
    pub mean: Forecast,
    /// Aims at the median: least absolute error.
    pub median: Forecast,
}

/// Everything the bank knows of one series.
#[derive(Clone, Debug)]
pub struct Account {
    battery: Battery,
    ring: Ring,
    failures: u64,
    scored: u64,
    outside: u64,
    last: Measured,
    value_time_unix_ns: i64,
    /// How far the newest value was labelled ahead of its arrival; 0 = it was not.
    value_ahead_ns: i64,
    residual: Option<f64>,
}

impl Account {
    pub(super) fn new(measured: &Measured, config: &Config, methods: &Methods) -> Self {
        Self {
            battery: Battery::new(config),
            ring: Ring::new(config, methods),
            failures: 0,
            scored: 0,
            outside: 0,
            last: Measured { time_unix_ns: i64::MIN, ..measured.clone() },
            value_time_unix_ns: 0,
            value_ahead_ns: 0,
            residual: None,
        }
    }

    pub(super) fn observe(&mut self, measured: &Measured) -> Option<Point> {
        let usual = self.battery.forecast(Loss::Absolute).map(|median| median.value);
        let issued = self.issue(measured.time_unix_ns);
        match measured.outcome {
            // A value out of a battery's range could be shown, but never be forecast from; one that its quantity
            // cannot have comes of a bad neighbour, and neither.
            Outcome::Value(value) => {
                let (least, most) = bounds(&measured.series.quantity);
                if !(least..=most).contains(&value)
                    || self.battery.update_at(value, seconds(measured.time_unix_ns)).is_err()
                {
                    return None;
                }
                self.value_time_unix_ns = measured.time_unix_ns;
                self.value_ahead_ns = labelled_unix_ns(&measured.detail)
                    .map_or(0, |label| label.saturating_sub(measured.time_unix_ns).max(0));
                self.score(issued.as_ref(), value);
            }
            Outcome::Failed { .. } => self.failures += 1,
        }
        let Measured { time_unix_ns, outcome, .. } = *measured;
        let refused = matches!(outcome, Outcome::Value(_)) && crate::detail::is_refused(&measured.detail);
        let point = Point { time_unix_ns, outcome, refused, issued };
        self.residual = match (point.outcome, issued) {
            (Outcome::Value(value), Some(issued)) => Some(value - issued.forecast),
            _ => None,
        };
        self.ring.push(&point, usual);
        self.last = measured.clone();
        Some(point)
    }

    /// See [`Bank::restart_scores`](super::Bank::restart_scores).
    pub(super) fn restart_scores(&mut self) {
        (self.scored, self.outside) = (0, 0);
    }

    /// Counts whether `value` lies in the interval that had been issued for it.
    fn score(&mut self, issued: Option<&Issued>, value: f64) {
        if let Some((lower, upper)) = issued.and_then(|issued| issued.intervals[SCORED_LEVEL]) {
            self.scored += 1;
            self.outside += u64::from(value < lower || upper < value);
        }
    }

    fn issue(&self, time_unix_ns: i64) -> Option<Issued> {
        let median = self.battery.forecast_at(Loss::Absolute, seconds(time_unix_ns))?;
        let intervals = LEVELS.map(|level| self.interval_at(level, time_unix_ns));
        Some(Issued { forecast: median.value, method: median.method.0, intervals })
    }

    /// The forecasts of the next value; `None` before the first value.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        Some(Next {
            time_unix_ns: self.value_time_unix_ns,
            mean: self.battery.forecast(Loss::Squared)?,
            median: self.battery.forecast(Loss::Absolute)?,
        })
    }

    /// As [`Account::next`], of a value at `time_unix_ns`: others after a gap.
    #[must_use]
    pub fn next_at(&self, time_unix_ns: i64) -> Option<Next> {
        let time_s = seconds(time_unix_ns);
        Some(Next {
            time_unix_ns: self.value_time_unix_ns,
            mean: self.battery.forecast_at(Loss::Squared, time_s)?,
            median: self.battery.forecast_at(Loss::Absolute, time_s)?,
        })
    }

    /// The interval for the next value at `level`, where calibrated, as far as values can lie: no time
    /// is negative, and no share exceeds 1. What is cut off holds no value, so that the level stays.
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<(f64, f64)> {
        cut(self.battery.interval(level), &self.last.series.quantity)
    }

    /// As [`Account::interval`], for a value at `time_unix_ns`.
    #[must_use]
    pub fn interval_at(&self, level: f64, time_unix_ns: i64) -> Option<(f64, f64)> {
        cut(self.battery.interval_at(level, seconds(time_unix_ns)), &self.last.series.quantity)
    }

    /// The newest points, oldest first, at most [`POINTS_MAX`](super::POINTS_MAX), as they were when they were new.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.ring.points(&self.last.series.quantity)
    }

    /// The newest measurement, value or failure.
    #[must_use]
    pub fn last(&self) -> &Measured {
        &self.last
    }

    /// Whether the newest point is a value, and the time of a refused connection.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.ring.is_refused()
    }

    /// The newest value, if it is among the points kept.
    #[must_use]
    pub fn last_value(&self) -> Option<f64> {
        self.ring.last_value()
    }

    /// How far ahead of its arrival the newest value was labelled (s); `None` = it was not.
    #[must_use]
    pub fn value_ahead_s(&self) -> Option<f64> {
        (0 < self.value_ahead_ns).then(|| seconds(self.value_ahead_ns))
    }

    /// The mean time between the newest points, nine at most (s); `None` before the second, or when the clock was set
    /// back between.
    #[must_use]
    pub fn period_s(&self) -> Option<f64> {
        self.ring.period_s()
    }

    /// The newest value minus the forecast that had been issued for it, in the series' unit; `None` when the
    /// newest point is a failure, or nothing had been issued.
    #[must_use]
    pub fn residual(&self) -> Option<f64> {
        self.residual
    }

    /// Values for which an interval at 90 % had been issued, since [`Bank::restart_scores`](super::Bank::restart_scores).
    #[must_use]
    pub fn scored(&self) -> u64 {
        self.scored
    }

    /// How many of [`Account::scored`] were outside that interval: one in ten, while the link behaves as
    /// it did.
    #[must_use]
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// How many values were learnt, with those replayed at the start.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.battery.forecast(Loss::Absolute).map_or(0, |forecast| forecast.count)
    }

    /// How many failures were seen, with those replayed at the start.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }
}

/// A time label in seconds, as batteries take it.
pub(super) fn seconds(unix_ns: i64) -> f64 {
    unix_ns as f64 / 1e9
}

/// The ends of an interval as far as values of `quantity` can lie.
pub(super) fn cut(interval: Option<Interval>, quantity: &Quantity) -> Option<(f64, f64)> {
    let (least, most) = bounds(quantity);
    interval.map(|interval| (interval.lower.clamp(least, most), interval.upper.clamp(least, most)))
}

/// Between which values a quantity can lie; an application's own can be anything.
pub(crate) fn bounds(quantity: &Quantity) -> (f64, f64) {
    match crate::unit(quantity) {
        "ratio" => (0.0, 1.0),
        "bit/s" => (0.0, RATE_MAX_BIT_S),
        "s" => (0.0, TIME_MAX_S),
        "" => (f64::NEG_INFINITY, f64::INFINITY),
        _ => (0.0, f64::INFINITY),
    }
}

/// Ten Tbit/s, ten times the fastest single link there is (IEEE 802.3df: 800 Gbit/s).
pub(crate) const RATE_MAX_BIT_S: f64 = 1e13;

/// An hour: longer than any experiment waits for an answer.
const TIME_MAX_S: f64 = 3600.0;

/// The place in [`LEVELS`] of the level whose misses are counted: 90 %, which the page shows.
const SCORED_LEVEL: usize = 2;

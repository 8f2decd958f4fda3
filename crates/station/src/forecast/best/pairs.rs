//! Forecasts of pairs of hosts, from a station's series table.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use barograph_forecast::{Interval, Name, Outcome, Quantity, SeriesId};
use barograph_mesh::{ComposedQuantity, CompositionModel, LegForecast, PathEstimate, RttState};
use barograph_probe::Plan;

use super::{Age, PathForecast, PathForecasts};
use crate::forecast::series::{SeriesState, SeriesTable};
use crate::sync::lock;

/// Access to the series table, which is locked for [`LOOKUPS_PER_LOCK`] look-ups at a time. If each
/// look-up locked the series table, each look-up would wait for a battery that learns. If one lock
/// covered all look-ups, batteries would wait for a large request.
pub(crate) struct Pairs<'a> {
    series_table: &'a Mutex<SeriesTable>,
    now_unix_ns: i64,
    pause: Duration,
    held: RefCell<Option<(MutexGuard<'a, SeriesTable>, usize)>>,
}

impl<'a> Pairs<'a> {
    /// Creates access for one request. With a `pause`, sleeps between two locks, so that other
    /// threads can use the series table. Without a pause, yields to threads that already wait.
    pub(crate) fn new(series_table: &'a Mutex<SeriesTable>, now_unix_ns: i64, pause: Duration) -> Self {
        Self { series_table, now_unix_ns, pause, held: RefCell::default() }
    }
}

impl PathForecasts for Pairs<'_> {
    /// Forecast of the pair's own series. If this forecast is not fresh, uses the series that the
    /// other end measured: the round trip and the loss are the same from both ends, and the goodput
    /// from `from` to `to` is the `goodput_down` that `to` measures.
    fn path_forecast(&self, from: &Name, to: &Name, what: ComposedQuantity) -> PathForecast {
        let (own, others) = match what {
            ComposedQuantity::Rtt => (Quantity::RTT, Quantity::RTT),
            ComposedQuantity::Goodput => (Quantity::GOODPUT, Quantity::GOODPUT_DOWN),
            ComposedQuantity::Loss => (Quantity::LOSS, Quantity::LOSS),
        };
        let own = self.series(from, to, own, what);
        match (own, self.series_unless_fresh(own, to, from, others, what)) {
            (PathForecast::Fresh(..), _) | (PathForecast::Stale(_), PathForecast::Missing) => own,
            (PathForecast::Stale(a), PathForecast::Stale(b)) => {
                PathForecast::Stale(if b.distance_s() < a.distance_s() { b } else { a })
            }
            (_, others) => others,
        }
    }

    fn unlock(&self) {
        *self.held.borrow_mut() = None;
    }
}

impl Pairs<'_> {
    /// Forecast of the round trip from `source` to `target` (s), if the forecast is fresh and its
    /// interval is known.
    pub(crate) fn round_trip(&self, source: &Name, target: &Name) -> Option<PathEstimate> {
        let series = SeriesId { source: source.clone(), target: target.clone(), quantity: Quantity::RTT };
        self.look_up(&series, |state| {
            state.interval_at(Interval::DEFAULT_LEVEL, self.now_unix_ns)?;
            match path_forecast(state, ComposedQuantity::Rtt, self.now_unix_ns) {
                PathForecast::Fresh(path, _) => Some(path.forecast),
                PathForecast::Stale(_) | PathForecast::Missing => None,
            }
        })?
    }

    /// As [`Pairs::round_trip`]. If the round trip is unknown, also returns whether the newest
    /// measurement failed.
    pub(crate) fn tried_round_trip(&self, source: &Name, target: &Name) -> RttState {
        if let Some(rtt) = self.round_trip(source, target) {
            return RttState::Known(rtt);
        }
        let series = SeriesId { source: source.clone(), target: target.clone(), quantity: Quantity::RTT };
        let is_failed = |state: &SeriesState| matches!(state.last().outcome, Outcome::Failed { .. });
        if self.look_up(&series, is_failed) == Some(true) { RttState::Failed } else { RttState::Unmeasured }
    }

    fn series_unless_fresh(
        &self,
        own: PathForecast,
        source: &Name,
        target: &Name,
        quantity: Quantity,
        what: ComposedQuantity,
    ) -> PathForecast {
        match own {
            PathForecast::Fresh(..) => PathForecast::Missing,
            PathForecast::Stale(_) | PathForecast::Missing => self.series(source, target, quantity, what),
        }
    }

    fn series(
        &self,
        source: &Name,
        target: &Name,
        quantity: Quantity,
        what: ComposedQuantity,
    ) -> PathForecast {
        let series = SeriesId { source: source.clone(), target: target.clone(), quantity };
        self.look_up(&series, |state| path_forecast(state, what, self.now_unix_ns))
            .unwrap_or(PathForecast::Missing)
    }

    /// Applies `read` to the state of a series. `read` must not look up another series, because the
    /// series table is locked.
    fn look_up<T>(&self, series: &SeriesId, read: impl FnOnce(&SeriesState) -> T) -> Option<T> {
        let mut held = self.held.borrow_mut();
        if held.as_ref().is_some_and(|(_, lookups)| *lookups >= LOOKUPS_PER_LOCK) {
            *held = None;
            if self.pause.is_zero() {
                std::thread::yield_now();
            } else {
                std::thread::sleep(self.pause);
            }
        }
        let (series_table, lookups) = held.get_or_insert_with(|| (lock(self.series_table), 0));
        *lookups += 1;
        series_table.get(series).map(read)
    }
}

/// Forecast of a series for its path, if its newest value is fresh.
fn path_forecast(state: &SeriesState, what: ComposedQuantity, now_unix_ns: i64) -> PathForecast {
    let Some(next) = state.forecasts_at(now_unix_ns) else { return PathForecast::Missing };
    // A label can be ahead of now after a clock was set back. Such a value stays fresh as long as a
    // value with a label equally far in the past.
    let age = Age::at(now_unix_ns, next.time_unix_ns, state.value_ahead_s());
    if freshness_s(state.period_s(), what) < age.distance_s() {
        return PathForecast::Stale(age);
    }
    let (interval, count) = (state.interval_at(Interval::DEFAULT_LEVEL, now_unix_ns), state.count());
    let path = match what {
        // Use the mean, because means add. The median of a path with rare losses is 0, and so is
        // the sum of three medians.
        ComposedQuantity::Loss => {
            let mean = next.mean.value.clamp(0.0, 1.0);
            LegForecast::from_loss(mean, interval, state.last_value().unwrap_or(mean), count)
        }
        ComposedQuantity::Rtt | ComposedQuantity::Goodput => {
            let value = next.median.value;
            let known = |forecast| LegForecast { forecast, last: state.last_value().unwrap_or(value), count };
            let forecast = match interval {
                // Keep the lower limit above 0: at a rate of 0, a transfer would never end.
                Some((lower, upper)) => PathEstimate {
                    value,
                    lower: lower.clamp(value * LEAST, value.max(value * LEAST)),
                    upper: upper.max(value),
                },
                None => PathEstimate { value, lower: value, upper: value },
            };
            match interval {
                Some(_) => Some(known(forecast)),
                // Too few errors are known for a calibrated interval. Use an estimated interval, as
                // wide as the interval of a composed path.
                None => CompositionModel::prior(what).estimate(&[known(forecast)]).map(known),
            }
        }
    };
    match path.filter(|path| what.is_valid(&path.forecast)) {
        Some(path) => PathForecast::Fresh(path, age),
        None => PathForecast::Missing,
    }
}

/// Largest age of a fresh value (s).
fn freshness_s(period_s: Option<f64>, what: ComposedQuantity) -> f64 {
    let least_s = match what {
        ComposedQuantity::Rtt | ComposedQuantity::Loss => RTT_S,
        ComposedQuantity::Goodput => GOODPUT_S,
    };
    period_s.map_or(least_s, |period_s| least_s.max(PERIODS * period_s)).min(OLDEST_S)
}

/// Minimum of the lower end of an interval, as a share of the forecast.
const LEAST: f64 = 1e-3;

/// Number of look-ups under one lock of the series table. These look-ups take some tens of
/// microseconds. A request about ten hosts locks the series table two or three times.
const LOOKUPS_PER_LOCK: usize = 64;

/// Number of periods after which a forecast without new measurements is stale.
const PERIODS: f64 = 6.0;

/// Ages (s) up to which a value is always fresh. The limit for round trips and losses is a minute,
/// which is enough to notice a host that does not respond. The limit for goodput is an hour; an age
/// of an hour increases the error of a goodput forecast by about a tenth (Gloperf §4.2).
const RTT_S: f64 = 60.0;
const GOODPUT_S: f64 = 3600.0;

/// Age (s) above which a value is never fresh: a day, the longest period in the Gloperf paper.
const OLDEST_S: f64 = 86_400.0;

// The composition of losses must assume as many datagrams as a station's probe has.
const _: () = assert!(Plan::DATAGRAMS == ComposedQuantity::LOSS_DATAGRAMS);

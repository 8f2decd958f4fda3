//! Forecasts of pairs of hosts, from a station's series table.

mod transfer;

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use barograph_forecast::{GoodputForecast, Interval, Name, Outcome, Quantity, SeriesId, SettledRate};
use barograph_mesh::{ComposedQuantity, CompositionModel, LegForecast, PathEstimate, RttState};
use barograph_probe::Plan;

use super::{Age, PathForecast, PathForecasts};
use crate::forecast::series::{RATE_MAX_BIT_S, SeriesState, SeriesTable};
use crate::sync::lock;

pub(crate) use transfer::{is_goodput, series_transfer_time};

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
    /// Forecast of the pair's own series. If the newest value of that series is not recent, uses
    /// the series that the other end measured, if its newest value is newer: the round trip and the
    /// loss are the same from both ends, and the goodput from `from` to `to` is the `goodput_down`
    /// that `to` measures.
    fn path_forecast(&self, from: &Name, to: &Name, what: ComposedQuantity) -> PathForecast {
        self.forecast_over((from, to), what, 0.0, None)
    }

    fn goodput_over(&self, from: &Name, to: &Name, horizon_s: f64, rtt_s: f64) -> PathForecast {
        self.forecast_over((from, to), ComposedQuantity::Goodput, horizon_s, Some(rtt_s))
    }

    fn unlock(&self) {
        *self.held.borrow_mut() = None;
    }
}

/// Forecast of a series, and whether its newest value is recent.
type SeriesForecast = (PathForecast, bool);

impl Pairs<'_> {
    /// Forecast of the round trip from `source` to `target` (s), if the forecast is fresh and its
    /// interval is known.
    pub(crate) fn round_trip(&self, source: &Name, target: &Name) -> Option<PathEstimate> {
        let series = SeriesId { source: source.clone(), target: target.clone(), quantity: Quantity::RTT };
        self.look_up(&series, |state| {
            state.interval_at(Interval::DEFAULT_LEVEL, self.now_unix_ns)?;
            let (what, now_unix_ns) = (ComposedQuantity::Rtt, self.now_unix_ns);
            let context = ForecastContext { what, now_unix_ns, horizon_s: 0.0, rtt_s: None };
            match context.path_forecast(state).0 {
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

    /// `rtt_s` is the round trip of the path, if the caller knows it.
    fn forecast_over(
        &self,
        (from, to): (&Name, &Name),
        what: ComposedQuantity,
        horizon_s: f64,
        rtt_s: Option<f64>,
    ) -> PathForecast {
        let (own, others) = match what {
            ComposedQuantity::Rtt => (Quantity::RTT, Quantity::RTT),
            ComposedQuantity::Goodput => (Quantity::GOODPUT, Quantity::GOODPUT_DOWN),
            ComposedQuantity::Loss => (Quantity::LOSS, Quantity::LOSS),
        };
        let context = ForecastContext { what, now_unix_ns: self.now_unix_ns, horizon_s, rtt_s };
        let own = self.series((from, to, own), (from, to), context);
        if own.1 {
            return own.0;
        }
        newer(own, self.series((to, from, others), (from, to), context))
    }

    /// Forecast of one series for the path `(from, to)`.
    fn series(
        &self,
        (source, target, quantity): (&Name, &Name, Quantity),
        (from, to): (&Name, &Name),
        context: ForecastContext,
    ) -> SeriesForecast {
        let series = SeriesId { source: source.clone(), target: target.clone(), quantity };
        let needs_rtt = context.rtt_s.is_none()
            && context.what == ComposedQuantity::Goodput
            && self.look_up(&series, includes_slow_start) == Some(true);
        let own_rtt_s = || match self.path_forecast(from, to, ComposedQuantity::Rtt) {
            PathForecast::Fresh(rtt, _) => Some(rtt.forecast.value),
            PathForecast::Stale(_) | PathForecast::Missing => None,
        };
        let rtt_s = if needs_rtt { own_rtt_s() } else { context.rtt_s };
        let context = ForecastContext { rtt_s, ..context };
        self.look_up(&series, |state| context.path_forecast(state)).unwrap_or(NOTHING)
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

/// The forecast that counts of those of both ends: a fresh one before a stale one, then the newer
/// one.
pub(super) fn newer(own: SeriesForecast, others: SeriesForecast) -> PathForecast {
    use PathForecast::{Fresh, Missing, Stale};
    let is_newer = |a: Age, b: Age| b.distance_s() < a.distance_s();
    match (own.0, others.0) {
        (Fresh(_, a), Fresh(_, b)) | (Stale(a), Stale(b)) if is_newer(a, b) => others.0,
        (Missing, _) | (Stale(_), Fresh(..)) => others.0,
        _ => own.0,
    }
}

/// Whether forecasts or the newest value of a series of goodputs include slow start.
fn includes_slow_start(state: &SeriesState) -> bool {
    state.slow_start_bytes().or(state.newest_slow_start_bytes()).is_some()
}

/// What a series is read for.
#[derive(Clone, Copy, Debug)]
struct ForecastContext {
    what: ComposedQuantity,
    now_unix_ns: i64,
    /// The forecast is that of the mean over this time (s); 0 = the next value.
    horizon_s: f64,
    /// Round trip of the path (s), which turns goodputs that include slow start into rates after
    /// it.
    rtt_s: Option<f64>,
}

impl ForecastContext {
    /// Age of the newest value, and whether that value is recent; `None` before the first value.
    fn age(&self, state: &SeriesState) -> Option<(Age, bool)> {
        let newest_unix_ns = state.forecasts()?.time_unix_ns;
        // A label can be ahead of now after a clock was set back. Such a value stays fresh as long
        // as a value with a label equally far in the past.
        let age = Age::at(self.now_unix_ns, newest_unix_ns, state.value_ahead_s());
        Some((age, age.distance_s() <= recent_s(state.period_s(), self.what)))
    }

    /// Whether a value counts. A goodput counts at every age that is known: its interval widens.
    fn counts(&self, age: Age, is_recent: bool) -> bool {
        is_recent || self.what == ComposedQuantity::Goodput && age.age_s.is_some()
    }

    /// Forecast of a series for its path, and whether its newest value is recent.
    fn path_forecast(&self, state: &SeriesState) -> SeriesForecast {
        let Some((age, is_recent)) = self.age(state) else { return NOTHING };
        if !self.counts(age, is_recent) {
            return (PathForecast::Stale(age), false);
        }
        let path = match self.what {
            ComposedQuantity::Loss => self.loss(state),
            ComposedQuantity::Rtt => self.leg(state, age, |share| self.ahead(state, share)),
            ComposedQuantity::Goodput => {
                let least_bit_s = self.least_bit_s(state, age);
                self.leg(state, age, |share| self.goodput(state, share, least_bit_s))
            }
        };
        match path.filter(|path| self.what.is_valid(&path.forecast)) {
            Some(path) => (PathForecast::Fresh(path, age), is_recent),
            None => NOTHING,
        }
    }

    /// Uses the mean, because means add. The median of a path with rare losses is 0, and so is the
    /// sum of three medians.
    fn loss(&self, state: &SeriesState) -> Option<LegForecast> {
        let mean = state.forecasts_at(self.now_unix_ns)?.mean.value.clamp(0.0, 1.0);
        let interval = state.interval_at(Interval::DEFAULT_LEVEL, self.now_unix_ns);
        LegForecast::from_loss(mean, interval, state.last_value().unwrap_or(mean), state.count())
    }

    /// `quantile` returns the number that this share of the values does not exceed.
    fn leg(
        &self,
        state: &SeriesState,
        age: Age,
        quantile: impl Fn(f64) -> Option<f64>,
    ) -> Option<LegForecast> {
        let (value, count) = (quantile(0.5)?, state.count());
        let last = state.last_value().map_or(Some(value), |last| self.settled(state, last));
        let known = |forecast| LegForecast { forecast, last: last.unwrap_or(value), count };
        match quantile(EARLY_SHARE).zip(quantile(1.0 - EARLY_SHARE)) {
            Some((lower, upper)) => {
                // Keep the lower limit above 0: at a round trip of 0, no transfer takes time.
                let lower = lower.clamp(value * LEAST, value.max(value * LEAST));
                // Tests that did not fill the path do not bound its rate. In a sum of legs, such an
                // end would widen both sides, so the end of the next value mirrors the other one.
                let is_open = self.what == ComposedQuantity::Goodput && RATE_MAX_BIT_S <= upper;
                let upper = if is_open && self.horizon_s == 0.0 { value * value / lower } else { upper };
                Some(known(PathEstimate { value, lower, upper: upper.max(value) }))
            }
            // Too few errors are known for a calibrated interval. Use an estimated interval, as
            // wide as the interval of a composed path, and wider for an old goodput.
            None => {
                let factor = match self.what {
                    ComposedQuantity::Goodput => guessed_factor(age),
                    ComposedQuantity::Rtt | ComposedQuantity::Loss => 1.0,
                };
                let aged = PathEstimate { value, lower: value / factor, upper: value * factor };
                let guess = CompositionModel::prior(self.what).estimate(&[known(aged)])?;
                let is_open = 0.0 < self.horizon_s && self.is_lower_bound(state);
                Some(known(if is_open { PathEstimate { upper: RATE_MAX_BIT_S, ..guess } } else { guess }))
            }
        }
    }

    fn ahead(&self, state: &SeriesState, share: f64) -> Option<f64> {
        state.forecaster().quantile_ahead(share, self.now_unix_ns as f64 / 1e9, self.horizon_s)
    }

    fn goodput(&self, state: &SeriesState, share: f64, least_bit_s: Option<f64>) -> Option<f64> {
        let goodput = self.goodput_forecast(state, least_bit_s);
        Some(goodput.rate_bit_s(share, self.horizon_s)?.min(RATE_MAX_BIT_S))
    }

    fn goodput_forecast<'s>(&self, state: &'s SeriesState, least_bit_s: Option<f64>) -> GoodputForecast<'s> {
        GoodputForecast {
            forecaster: state.forecaster(),
            now_s: self.now_unix_ns as f64 / 1e9,
            test: state.slow_start_bytes().zip(self.rtt_s),
            least_bit_s,
        }
    }

    /// Least of the kept goodputs (bit/s), lowered with the age of the newest value.
    fn least_bit_s(&self, state: &SeriesState, age: Age) -> Option<f64> {
        state.least_value().map(|least| least / guessed_factor(age))
    }

    /// The newest value as the forecasts of `what` are: without slow start.
    fn settled(&self, state: &SeriesState, last: f64) -> Option<f64> {
        match state.newest_slow_start_bytes().zip(self.rtt_s) {
            Some((bytes, rtt_s)) => Some(SettledRate::of_test(bytes, last, rtt_s)?.rate_bit_s),
            None => Some(last),
        }
    }

    /// Whether the newest test did not fill the path, so that the path may be faster.
    fn is_lower_bound(&self, state: &SeriesState) -> bool {
        let newest = state.newest_slow_start_bytes().zip(self.rtt_s).zip(state.last_value());
        newest
            .and_then(|((bytes, rtt_s), last)| SettledRate::of_test(bytes, last, rtt_s))
            .is_some_and(|settled| settled.is_lower_bound)
    }
}

/// Half of the interval of an old goodput with an interval that is a guess, as a factor, before the
/// guess itself. The variance of the guess, a factor of two, is larger by a fifth for each doubling
/// of 1 + the age in hours: at an hour, its deviation is larger by a tenth (Gloperf §4.2).
fn guessed_factor(age: Age) -> f64 {
    let hours = age.distance_s() / 3600.0;
    let deviations = (AGE_VARIANCE * (1.0 + hours).log2()).sqrt();
    2f64.powf(NORMAL_95 * deviations)
}

/// The forecast of a series without usable values.
const NOTHING: SeriesForecast = (PathForecast::Missing, false);

/// Largest age of a recent value (s).
fn recent_s(period_s: Option<f64>, what: ComposedQuantity) -> f64 {
    let least_s = match what {
        ComposedQuantity::Rtt | ComposedQuantity::Loss => RTT_S,
        ComposedQuantity::Goodput => GOODPUT_S,
    };
    period_s.map_or(least_s, |period_s| least_s.max(PERIODS * period_s))
}

/// Minimum of the lower end of an interval, as a share of the forecast.
const LEAST: f64 = 1e-3;

/// Number of look-ups under one lock of the series table. These look-ups take up to a millisecond:
/// a request about nine measured hosts needs about as many, and takes 0.8 ms in all
/// (lab/results/best.md).
const LOOKUPS_PER_LOCK: usize = 64;

/// Number of periods after which a value is not recent.
const PERIODS: f64 = 6.0;

/// Ages (s) up to which a value is always recent. The limit for round trips and losses is a minute,
/// which is enough to notice a host that does not respond. The limit for goodput is an hour; an age
/// of an hour increases the error of a goodput forecast by about a tenth (Gloperf §4.2).
const RTT_S: f64 = 60.0;
const GOODPUT_S: f64 = 3600.0;

/// Share of the variance of a guess that is added at an age of an hour.
const AGE_VARIANCE: f64 = 0.2;

/// Share of values below an interval at 90 %.
const EARLY_SHARE: f64 = 0.05;

/// The 95 % quantile of the normal distribution, in standard deviations.
const NORMAL_95: f64 = 1.645;

// The composition of losses must assume as many datagrams as a station's probe has.
const _: () = assert!(Plan::DATAGRAMS == ComposedQuantity::LOSS_DATAGRAMS);

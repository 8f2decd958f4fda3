//! Forecasts for one horizon, learned from the errors of earlier forecasts for the same horizon.

use alloc::vec::Vec;

use libm::ceil;

use super::candidates::{self, CandidateSet, Candidates, METHODS, OFFSETS, OneStep, SHARED};
use super::kind::{CalibrationConfig, KindState, own_range, restored};
use super::pending::{IssuedForecast, PendingForecast, PendingForecasts};
use super::{Horizon, HorizonBasis, HorizonConfig, HorizonForecast, HorizonOf};
use crate::gap;
use crate::interval::FadingMean;
use crate::quantiles::SHARE_COUNT;
use crate::{Interval, Method};

/// Forecasts of the mean up to one horizon and of the value at that horizon.
///
/// Each forecast waits until its values are known. Then it is scored, and the candidates, weights
/// and intervals learn from it.
#[derive(Clone, Debug)]
pub(crate) struct DirectForecaster {
    horizon: Horizon,
    /// Length of the horizon, and time between two forecasts, in the unit of keys.
    length: f64,
    stride: f64,
    /// The key of a value is its number, counted from 1, or its time in seconds. `None` before the
    /// first value with a key.
    latest_key: Option<f64>,
    /// Key from which the next forecast is issued.
    next_tick: f64,
    /// Number of values since a forecast was issued, and the least such number.
    values_since_issue: u32,
    values_min: u32,
    /// Number of values in the windows that are over; only for horizons in seconds.
    values_in_window: FadingMean,
    candidates: Candidates,
    pending: PendingForecasts,
    /// Distances of the waiting forecasts when the last forecast was issued.
    distances: [f64; 2],
    /// Number of values that the horizon had at the start, and number of values since the start.
    started_length: f64,
    values_since_start: u32,
    kinds: [KindState; 2],
    /// The forecasts after the newest value, if they were issued.
    issued: Option<CurrentForecast>,
}

/// The forecasts after the newest value, for the mean and for the value at the horizon.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentForecast {
    set: CandidateSet,
    offsets: [f32; OFFSETS],
    combined: [IssuedForecast; 2],
}

impl CurrentForecast {
    /// The forecast of `of` for absolute error.
    pub(super) fn median(&self, of: HorizonOf) -> f64 {
        self.combined[of as usize].forecast[1]
    }
}

/// What a horizon is forecast from, besides its own state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HorizonInputs {
    /// Newest value of the series.
    pub(crate) value: f64,
    pub(crate) one_step: OneStep,
    /// Lower bound of forecasts: 0 or −∞.
    pub(crate) floor: f64,
    /// Number of values learned, with the newest one.
    pub(crate) count: u64,
    /// Time of the newest value, and the median time between values (s).
    pub(crate) time_s: Option<f64>,
    pub(crate) period_s: Option<f64>,
}

impl DirectForecaster {
    /// Creates a forecaster for a valid `config`.
    pub(crate) fn new(config: HorizonConfig, calibration: &CalibrationConfig<'_>) -> Self {
        let (length, len_max) = match config.horizon {
            Horizon::Steps(steps) => (f64::from(steps), config.pending_max.min(steps)),
            Horizon::Seconds(seconds) => (seconds, config.pending_max),
        };
        let stride = match config.horizon {
            Horizon::Steps(_) => ceil(length / f64::from(len_max)).max(f64::from(config.stride_min)),
            Horizon::Seconds(_) => length / f64::from(len_max),
        };
        // A horizon in seconds starts anew when its number of values is known.
        let kind = KindState::new(length, stride, calibration);
        let factors_len = 2 * kind.factors_len();
        Self {
            horizon: config.horizon,
            length,
            stride,
            latest_key: None,
            next_tick: f64::NEG_INFINITY,
            values_since_issue: 0,
            values_min: config.stride_min,
            values_in_window: FadingMean::new(VALUES_GAIN),
            candidates: Candidates::new(len_max as usize),
            pending: PendingForecasts::new(len_max as usize, factors_len),
            distances: [0.0; 2],
            started_length: length,
            values_since_start: 0,
            kinds: [kind.clone(), kind],
            issued: None,
        }
    }

    pub(crate) fn horizon(&self) -> Horizon {
        self.horizon
    }

    /// Learns a value that the battery has learned before.
    pub(crate) fn update(&mut self, inputs: &HorizonInputs) {
        let value = inputs.value;
        self.issued = None;
        let (key, slack, late_max, expected) = match self.horizon {
            Horizon::Steps(_) => (inputs.count as f64, 0.0, 0.0, self.length),
            Horizon::Seconds(seconds) => {
                let (Some(time_s), Some(period_s)) = (inputs.time_s, inputs.period_s) else { return };
                (time_s, 0.5 * period_s, LATE_PERIODS_MAX * period_s, seconds / period_s)
            }
        };
        let is_changed = self.started_length < 0.75 * expected || 1.25 * expected < self.started_length;
        if self.latest_key.is_none() || (self.values_since_start == SETTLED_VALUES && is_changed) {
            self.start(expected);
        }
        self.values_since_start = self.values_since_start.saturating_add(1);
        if self.latest_key.is_some_and(|latest_key| key < latest_key) {
            // The clock went back. This is no error of the forecasts.
            self.pending.clear();
            self.next_tick = key;
        }
        self.latest_key = Some(key);
        // First the windows that ended before this value, then those that end with this value.
        let window = Window { value, key, late_max, expected };
        while let Some(slot) = self.pending.oldest().filter(|slot| self.pending.slot(*slot).due + slack < key)
        {
            self.score(slot, &window);
        }
        self.pending.add(value);
        while let Some(slot) =
            self.pending.oldest().filter(|slot| self.pending.slot(*slot).due - slack <= key)
        {
            self.score(slot, &window);
        }
        let values = self.values(expected);
        self.candidates.learn(value, values);
        self.values_since_issue = self.values_since_issue.saturating_add(1);
        let is_due = self.next_tick <= key && self.values_min <= self.values_since_issue;
        if is_due && self.pending.has_room() {
            let current = self.combined(inputs, true);
            self.distances = current.combined.map(|forecast| forecast.distance);
            for (kind, forecast) in self.kinds.iter_mut().zip(&current.combined) {
                kind.intervals.learn_jump((inputs.one_step.median - forecast.forecast[1]).abs());
            }
            self.issue(key, &current);
            self.issued = Some(current);
        }
    }

    /// Number of forecasts that are issued in a horizon, at least 1.
    fn ticks(&self) -> usize {
        match self.horizon {
            Horizon::Steps(_) => (self.length / self.stride).max(1.0) as usize,
            // Those that wait, and the next one.
            Horizon::Seconds(_) => self.pending.len() + 1,
        }
    }

    /// Starts at the first value with a key, and again if the first times between values were not
    /// usual, as in a burst. The horizon has about `length` values.
    fn start(&mut self, length: f64) {
        self.started_length = length;
        if let Horizon::Seconds(_) = self.horizon {
            self.pending.clear();
            self.next_tick = f64::NEG_INFINITY;
            let levels: Vec<f64> = self.kinds[0].intervals.levels().collect();
            let length = length.max(1.0);
            let stride = (length * self.stride / self.length).max(f64::from(self.values_min));
            let has_quantiles = self.kinds[0].quantiles.is_some();
            let kind = KindState::new(length, stride, &CalibrationConfig { levels: &levels, has_quantiles });
            self.kinds = [kind.clone(), kind];
        }
    }

    /// Keeps the forecast until its values are known.
    fn issue(&mut self, key: f64, current: &CurrentForecast) {
        let forecast = PendingForecast {
            due: key + self.length,
            origin: current.set.origin,
            unit: current.set.unit,
            offsets: current.offsets,
            issued: current.combined,
        };
        let [mean, value] = &self.kinds;
        let halves = [mean, value].map(|kind| kind.intervals.factor(Interval::DEFAULT_LEVEL));
        let halves = core::array::from_fn(|of| halves[of].map(|factor| factor * current.combined[of].scale));
        self.pending.push(forecast, halves, mean.factors().chain(value.factors()));
        self.next_tick = key + self.stride;
        self.values_since_issue = 0;
    }

    /// Scores the oldest forecast, learns from it, and removes it.
    fn score(&mut self, slot: usize, window: &Window) {
        let (sum, count) = self.pending.window(slot);
        let forecast = self.pending.slot(slot);
        let is_mean_known = 0.0 < count && window.expected <= 2.0 * count;
        let is_value_known = window.key - forecast.due <= window.late_max;
        let targets = [is_mean_known.then(|| sum / count), is_value_known.then_some(window.value)];
        let factors = self.pending.factors(slot).chunks_exact(self.kinds[0].factors_len().max(1));
        for (of, ((kind, target), factors)) in self.kinds.iter_mut().zip(targets).zip(factors).enumerate() {
            if let Some(target) = target {
                kind.learn(of, forecast, factors, target);
            }
        }
        if let Some(mean) = targets[HorizonOf::Mean as usize] {
            self.candidates.learn_window(mean);
        }
        if is_mean_known {
            self.values_in_window.learn(count);
        }
        self.pending.pop();
    }

    /// Number of values in a horizon.
    fn values(&self, expected: f64) -> f64 {
        match self.horizon {
            Horizon::Seconds(_) if self.values_in_window.count != 0 => self.values_in_window.mean,
            _ => expected,
        }
    }
}

// Reading.
impl DirectForecaster {
    /// The forecasts after the newest value; `None` before a value was learned.
    pub(super) fn current(&self, inputs: &HorizonInputs) -> Option<CurrentForecast> {
        self.latest_key?;
        Some(self.issued.unwrap_or_else(|| self.combined(inputs, false)))
    }

    /// The forecast of `of` for one objective, after `count` values. `methods` are the names of the
    /// battery's methods.
    pub(super) fn forecast(
        &self,
        current: &CurrentForecast,
        of: HorizonOf,
        objective: usize,
        count: u64,
        methods: &[Method; METHODS],
    ) -> HorizonForecast {
        let kind = &self.kinds[of as usize];
        let score = &kind.scores[objective];
        let (candidate, weight) = kind.rule.largest_weight(objective);
        HorizonForecast {
            value: current.combined[of as usize].forecast[objective],
            mse: score.mse(),
            mae: score.mae(),
            recent_mse: score.recent_squared,
            recent_mae: score.recent_absolute,
            method: methods.get(candidate).copied().unwrap_or_else(|| candidates::name(candidate)),
            weight: Some(weight),
            count,
            scored: score.count,
            basis: HorizonBasis::Own,
        }
    }

    /// Whether there is an interval.
    pub(super) fn is_calibrated(&self, of: HorizonOf) -> bool {
        self.kinds[of as usize].intervals.is_calibrated()
    }

    /// Half-width of the interval at `level`; `None` until it is calibrated.
    pub(super) fn half(&self, current: &CurrentForecast, of: HorizonOf, level: f64) -> Option<f64> {
        let factor = self.kinds[of as usize].intervals.factor(level)?;
        Some(factor * current.combined[of as usize].scale)
    }

    /// Distances of the quantiles from the forecast for absolute error; `None` until they are
    /// calibrated, and without quantiles.
    pub(super) fn quantile_offsets(
        &self,
        current: &CurrentForecast,
        of: HorizonOf,
    ) -> Option<[f64; SHARE_COUNT]> {
        let kind = &self.kinds[of as usize];
        let quantiles = kind.quantiles.as_ref().filter(|_| kind.intervals.is_calibrated())?;
        Some(quantiles.ends().map(|end| end * current.combined[of as usize].scale))
    }

    /// Length in values; `None` while the period of a horizon in seconds is unknown.
    pub(crate) fn steps(&self, period_s: Option<f64>) -> Option<f64> {
        match self.horizon {
            Horizon::Steps(steps) => Some(f64::from(steps)),
            Horizon::Seconds(seconds) => period_s.map(|period_s| seconds / period_s),
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let kinds = self.kinds.iter().map(|kind| kind.intervals.heap_bytes());
        self.candidates.heap_bytes() + self.pending.heap_bytes() + kinds.sum::<usize>()
    }

    /// The forecasts after the newest value. `is_due` is whether they are issued.
    fn combined(&self, inputs: &HorizonInputs, is_due: bool) -> CurrentForecast {
        let ticks = self.ticks();
        let set = self.candidates.forecasts(inputs.value, &inputs.one_step, ticks);
        let bounds = self.candidates.bounds();
        let values = self.values(self.steps(inputs.period_s).unwrap_or(self.length));
        let mut offsets = [0.0; OFFSETS];
        offsets[..SHARED].copy_from_slice(&set.offsets);
        let mut combined = [IssuedForecast::default(); 2];
        for (of, (kind, combined)) in self.kinds.iter().zip(&mut combined).enumerate() {
            let own = kind.rule.regressions(&set, bounds);
            offsets[own_range(of)].copy_from_slice(&own);
            let forecasts = restored(&set, &offsets, of);
            *combined = kind.rule.combine(&forecasts);
            for forecast in &mut combined.forecast {
                *forecast = if *forecast < inputs.floor { inputs.floor } else { *forecast };
            }
            // Waiting forecasts that will probably miss show that errors are now larger. Between
            // two issued forecasts the distances of the last one count, because half-widths are
            // learned with those.
            combined.distance = if is_due {
                self.pending.distance(of, combined.forecast[1], values)
            } else {
                self.distances[of]
            };
            let jump = (inputs.one_step.median - combined.forecast[1]).abs();
            combined.scale = kind.intervals.scale(combined.distance, jump);
        }
        CurrentForecast { set, offsets, combined }
    }
}

/// A window that ends with, or ended before, a value.
#[derive(Clone, Copy, Debug)]
struct Window {
    value: f64,
    key: f64,
    /// Largest time from the end of a horizon to the value that counts as the value at the horizon.
    late_max: f64,
    /// Usual number of values in a window.
    expected: f64,
}

/// Number of values after the start until the usual time between values is known well: the median
/// is then over all its periods.
const SETTLED_VALUES: u32 = 26;
/// Gain of the number of values in a window.
const VALUES_GAIN: f64 = 0.1;
/// A value later than this after the end of a horizon is not the value at the horizon: it comes
/// after a gap.
const LATE_PERIODS_MAX: f64 = gap::GAP;

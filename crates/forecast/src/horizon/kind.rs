//! Weights, intervals, quantiles and scores of the mean up to a horizon, or of the value at it.

use libm::exp2;

use super::calibration::HorizonIntervals;
use super::candidates::{CANDIDATES, CandidateSet, OFFSETS, REGRESSIONS, SHARED};
use super::combination::HorizonRule;
use super::pending::PendingForecast;
use super::quantiles::HorizonQuantiles;
use crate::quantiles::SHARE_COUNT;
use crate::scored_methods::ForecastScore;

/// Weights, intervals and scores of one kind of target.
#[derive(Clone, Debug)]
pub(super) struct KindState {
    pub(super) rule: HorizonRule,
    pub(super) intervals: HorizonIntervals,
    /// `None` if the forecaster has no quantiles.
    pub(super) quantiles: Option<HorizonQuantiles>,
    pub(super) scores: [ForecastScore; 2],
    /// Gain of the recent errors.
    recent_gain: f64,
}

/// What is calibrated at a horizon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CalibrationConfig<'a> {
    /// Levels of intervals, besides the usual ones.
    pub(crate) levels: &'a [f64],
    pub(crate) has_quantiles: bool,
}

impl KindState {
    /// Starts a horizon of `length` values with a forecast every `stride` values.
    pub(super) fn new(length: f64, stride: f64, calibration: &CalibrationConfig<'_>) -> Self {
        Self {
            rule: HorizonRule::new(length, stride),
            intervals: HorizonIntervals::new(length, stride, calibration.levels),
            quantiles: calibration.has_quantiles.then(|| HorizonQuantiles::new(length, stride)),
            scores: [ForecastScore::default(); 2],
            recent_gain: 1.0 - exp2(-stride / RECENT_VALUES.max(RECENT_HORIZONS * length)),
        }
    }

    /// Half-widths of the intervals, and ends of the quantiles, in units of the scale; infinite
    /// until enough errors are known.
    pub(super) fn factors(&self) -> impl Iterator<Item = f64> + '_ {
        let is_known = self.intervals.is_calibrated();
        let ends = self.quantiles.iter().flat_map(HorizonQuantiles::ends);
        self.intervals.factors().chain(ends.map(move |end| if is_known { end } else { f64::INFINITY }))
    }

    /// Number of [`Self::factors`].
    pub(super) fn factors_len(&self) -> usize {
        self.intervals.len() + if self.quantiles.is_some() { SHARE_COUNT } else { 0 }
    }

    /// Scores a forecast on `target` and learns from it.
    pub(super) fn learn(&mut self, of: usize, forecast: &PendingForecast, factors: &[f64], target: f64) {
        let issued = &forecast.issued[of];
        for (score, value) in self.scores.iter_mut().zip(issued.forecast) {
            score.learn(value - target, self.recent_gain);
        }
        let set =
            CandidateSet { origin: forecast.origin, unit: forecast.unit, offsets: shared(&forecast.offsets) };
        let bound = self.intervals.error_max();
        self.rule.learn(&set, &restored(&set, &forecast.offsets, of), issued, target, bound);
        let (factors, ends) = factors.split_at(self.intervals.len().min(factors.len()));
        self.intervals.learn(issued.forecast[1] - target, issued.scale, factors);
        if let Some(quantiles) = self.quantiles.as_mut().filter(|_| ends.iter().all(|end| end.is_finite())) {
            quantiles.learn(target - issued.forecast[1], issued.scale, ends);
        }
    }
}

/// Positions of the regressions of one kind of target among the offsets.
pub(super) fn own_range(of: usize) -> core::ops::Range<usize> {
    let first = SHARED + of * REGRESSIONS;
    first..first + REGRESSIONS
}

fn shared(offsets: &[f32; OFFSETS]) -> [f32; SHARED] {
    core::array::from_fn(|i| offsets[i])
}

/// The candidates of one kind of target.
pub(super) fn restored(set: &CandidateSet, offsets: &[f32; OFFSETS], of: usize) -> [f64; CANDIDATES] {
    core::array::from_fn(|i| {
        let at = if i < SHARED { i } else { own_range(of).start + i - SHARED };
        set.origin + set.unit * f64::from(offsets[at])
    })
}

/// Half-life of the recent errors.
const RECENT_VALUES: f64 = 100.0;
const RECENT_HORIZONS: f64 = 10.0;

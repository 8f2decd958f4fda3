//! Intervals of forecasts for a horizon, calibrated by the errors of earlier forecasts.

use libm::{exp2, sqrt};

use crate::interval::{Dynamics, IntervalTracker, LEVEL_RANGE, SCORED_MIN_FOR_INTERVAL};

/// Half-widths of the intervals of one kind of target at one horizon.
///
/// They are tracked as at the next value, with steps that suit errors of overlapping windows. An
/// error is compared with the half-width that was issued with the forecast. So the share of misses
/// of the issued intervals differs from 1 − level by at most |ln(q' ÷ q)| ÷ (step · number of
/// errors), where q and q' are the first and the last factor, whatever the values are.
#[derive(Clone, Debug)]
pub(crate) struct HorizonIntervals {
    tracker: IntervalTracker,
    scored_min: u64,
}

impl HorizonIntervals {
    /// Creates tracks for a horizon of `length` values with one error every `stride` values.
    pub(crate) fn new(length: f64, stride: f64, levels: &[f64]) -> Self {
        let root = sqrt(length);
        let step = (STEP / sqrt(length.min(STEP_LENGTH_MAX))).min(STABLE_STEP / length);
        let per_error = |half_life: f64| 1.0 - exp2(-stride / half_life);
        let dynamics = Dynamics {
            step: (step * stride).min(STEP_MAX),
            factor_start: FACTOR_START,
            factor_exponent: FACTOR_EXPONENT,
            fast_gain: (FAST_GAIN * stride / root).min(FAST_GAIN),
            slow_gain: per_error(SLOW_VALUES.max(SLOW_HORIZONS * length)),
            plateau_gain: per_error(PLATEAU_VALUES.max(PLATEAU_HORIZONS * length)),
            overlap: (length / stride).max(1.0),
        };
        let scored_min = SCORED_MIN_FOR_INTERVAL + (length / stride) as u64;
        Self { tracker: IntervalTracker::new(&GRID, levels, &dynamics), scored_min }
    }

    /// Levels that have a track each.
    pub(crate) fn levels(&self) -> impl Iterator<Item = f64> + '_ {
        self.tracker.tracks.iter().map(|track| track.level)
    }

    /// Number of tracked levels.
    pub(crate) fn len(&self) -> usize {
        self.tracker.tracks.len()
    }

    /// Unit of the half-widths: a geometric mean in which the slow average of errors counts three
    /// times as much as the fast one.
    pub(crate) fn scale(&self) -> f64 {
        sqrt(self.tracker.slow_mean.mean * self.tracker.scale())
    }

    /// The half-width of each tracked level, in units of the scale; infinite until enough errors
    /// are known, so that no interval is scored.
    pub(crate) fn factors(&self) -> impl Iterator<Item = f64> + '_ {
        let is_known = self.is_calibrated();
        let mut most = 0.0;
        self.tracker.tracks.iter().map(move |track| {
            // The interval of a higher level contains the interval of a lower level.
            most = if most < track.factor { track.factor } else { most };
            if is_known { most } else { f64::INFINITY }
        })
    }

    /// Scores the half-widths that were issued, and then learns the error.
    pub(crate) fn learn(&mut self, error: f64, scale: f64, factors: &[f64]) {
        let size = error.abs();
        for (track, factor) in self.tracker.tracks.iter_mut().zip(factors) {
            if *factor < f64::INFINITY {
                track.learn(*factor * scale < size);
            }
        }
        self.tracker.learn_scale(size);
    }

    /// Half-width of the interval at `level` in units of the scale; `None` until enough errors are
    /// known, or if `level` is out of range.
    pub(crate) fn factor(&self, level: f64) -> Option<f64> {
        if !LEVEL_RANGE.contains(&level) || !self.is_calibrated() {
            return None;
        }
        Some(self.tracker.factor(level))
    }

    /// Largest error that counts in full in the weights; infinite until enough errors are known.
    pub(crate) fn error_max(&self) -> f64 {
        let usual = &self.tracker.slow_mean;
        if ERRORS_KNOWN < usual.count && 0.0 < usual.mean { ERROR_MAX * usual.mean } else { f64::INFINITY }
    }

    /// Whether enough errors are known.
    pub(crate) fn is_calibrated(&self) -> bool {
        self.scored_min <= self.tracker.slow_mean.count
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.tracker.heap_bytes()
    }
}

/// Levels that are tracked besides those of the configuration.
const GRID: [f64; 5] = [0.5, 0.8, 0.9, 0.95, 0.99];

// The constants were chosen on the open traces at horizons of 5, 30 and 120 values, for a coverage
// of 88 % to 92 % on every trace at little width.

/// Step for a horizon of one value; it decreases with the root of the horizon, because overlapping
/// errors are similar. A smaller step than at 30 values would not adapt within a few windows.
const STEP: f64 = 0.14;
const STEP_LENGTH_MAX: f64 = 30.0;
/// Largest step, where few forecasts are scored.
const STEP_MAX: f64 = 0.3;
/// Bound of the step times the horizon. Errors are known one horizon late, so the factor would
/// oscillate with much larger steps.
const STABLE_STEP: f64 = 2.8;
/// Factor of the 90 % interval at the start: an error that is normal has 2.1; a little more,
/// because the first scale comes from one or two independent windows.
const FACTOR_START: f64 = 2.5;
/// Exponent of the width of a Laplace distribution that gives, within 4 %, the width of a normal
/// distribution at the levels of the grid; means of many values are nearly normal.
const FACTOR_EXPONENT: f64 = 0.65;
/// Gain of the fast average for a horizon of one value, as at the next value.
const FAST_GAIN: f64 = 0.067;
/// Half-lives of the slow and of the very slow average.
const SLOW_VALUES: f64 = 1000.0;
const SLOW_HORIZONS: f64 = 100.0;
const PLATEAU_VALUES: f64 = 14_000.0;
const PLATEAU_HORIZONS: f64 = 100.0;
/// Bound of errors in units of the mean error: one extreme error must not make all weights equal.
const ERROR_MAX: f64 = 50.0;
const ERRORS_KNOWN: u64 = 20;

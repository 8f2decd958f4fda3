//! Intervals of forecasts for a horizon, calibrated by the errors of earlier forecasts.

use libm::{exp, exp2, hypot, sqrt};

use crate::Interval;
use crate::interval::{Dynamics, FadingMean, IntervalTracker, LEVEL_RANGE, SCORED_MIN_FOR_INTERVAL};

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
    /// Index of the track of [`Interval::DEFAULT_LEVEL`].
    usual: usize,
    /// Share of misses of the newest forecasts at that level, and its gain.
    recent_misses: f64,
    recent_gain: f64,
    /// Mean distance from the forecast of the next value to the forecast.
    jump: FadingMean,
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
        let tracker = IntervalTracker::new(&GRID, levels, &dynamics);
        Self {
            usual: tracker.tracks.partition_point(|track| track.level < Interval::DEFAULT_LEVEL),
            tracker,
            scored_min,
            recent_misses: USUAL_MISSES,
            recent_gain: per_error(RECENT_VALUES.max(RECENT_HORIZONS * length)),
            jump: FadingMean::new(per_error(JUMP_VALUES.max(JUMP_HORIZONS * length))),
        }
    }

    /// Levels that have a track each.
    pub(crate) fn levels(&self) -> impl Iterator<Item = f64> + '_ {
        self.tracker.tracks.iter().map(|track| track.level)
    }

    /// Number of tracked levels.
    pub(crate) fn len(&self) -> usize {
        self.tracker.tracks.len()
    }

    /// Unit of the half-widths. `distance` is the mean distance of the waiting forecasts; `jump` is
    /// the distance from the forecast of the next value to the forecast.
    ///
    /// The unit is a geometric mean in which the slow average of errors counts three times as much
    /// as the fast one. It is larger while waiting forecasts will probably miss, and while the
    /// forecast has not yet followed a shift of the series' level.
    pub(crate) fn scale(&self, distance: f64, jump: f64) -> f64 {
        let errors = sqrt(self.tracker.slow_mean.mean * self.tracker.scale());
        let scale = errors * exp(WIDENING * distance);
        let shift = jump - JUMP_USUAL * self.jump.mean;
        if shift > 0.0 { hypot(scale, shift) } else { scale }
    }

    /// Learns how far the forecast of the next value is from a forecast that is issued.
    pub(crate) fn learn_jump(&mut self, jump: f64) {
        let most = JUMP_MAX * self.jump.mean;
        let is_capped = ERRORS_KNOWN < self.jump.count && 0.0 < most && most < jump;
        self.jump.learn(if is_capped { most } else { jump });
    }

    /// The half-width of each tracked level, in units of the scale; infinite until enough errors
    /// are known, so that no interval is scored.
    pub(crate) fn factors(&self) -> impl Iterator<Item = f64> + '_ {
        let recovery = if self.is_calibrated() { self.recovery() } else { f64::INFINITY };
        (0..self.len()).map(move |i| recovery * self.nested(i))
    }

    /// What the tracked factors are multiplied by: above 1 after more misses than usual.
    fn recovery(&self) -> f64 {
        exp(MISS_WIDENING * (self.recent_misses - USUAL_MISSES))
    }

    /// Factor of the track with this index. The interval of a higher level contains the interval of
    /// a lower level; where they would cross, that of the usual level keeps its width.
    fn nested(&self, index: usize) -> f64 {
        let tracks = &self.tracker.tracks;
        let factor = tracks[index].factor;
        if index < self.usual {
            let higher = &tracks[index..=self.usual];
            higher.iter().fold(factor, |least, track| if track.factor < least { track.factor } else { least })
        } else {
            let lower = &tracks[self.usual..=index];
            lower.iter().fold(factor, |most, track| if most < track.factor { track.factor } else { most })
        }
    }

    /// Scores the half-widths that were issued, and then learns the error.
    pub(crate) fn learn(&mut self, error: f64, scale: f64, factors: &[f64]) {
        let size = error.abs();
        for (i, (track, factor)) in self.tracker.tracks.iter_mut().zip(factors).enumerate() {
            if *factor < f64::INFINITY {
                let is_miss = *factor * scale < size;
                track.learn(is_miss);
                if i == self.usual {
                    let missed = if is_miss { 1.0 } else { 0.0 };
                    self.recent_misses += self.recent_gain * (missed - self.recent_misses);
                }
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
        Some(self.recovery() * self.tracker.between(level, |i| self.nested(i)))
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
const STABLE_STEP: f64 = 2.4;
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
/// Usual share of misses at the usual level.
const USUAL_MISSES: f64 = 1.0 - Interval::DEFAULT_LEVEL;
/// Half-life of the recent share of misses, and growth of the logarithm of the half-widths with it.
/// The tracks alone would let misses accumulate in one part of a series and none occur in another.
/// On the open traces at 120 values, the lowest coverage of a block is 69 % and not 57 %.
/// In less than a horizon, one run of misses would make half-widths many times as large.
const RECENT_VALUES: f64 = 140.0;
const RECENT_HORIZONS: f64 = 1.1;
const MISS_WIDENING: f64 = 3.0;
/// Growth of the logarithm of the half-widths with the mean distance of the waiting forecasts. On
/// the open traces, it makes intervals at 120 values narrower by an eighth at equal coverage.
const WIDENING: f64 = 0.7;
/// A forecast of the next value that is further away than this many means shows a shift of the
/// level. The forecast for a horizon follows within about a horizon.
const JUMP_USUAL: f64 = 3.0;
/// Half-life of the mean distance, and bound of one distance in means. The half-lives in horizons
/// are those in values at 120 values.
const JUMP_VALUES: f64 = 350.0;
const JUMP_HORIZONS: f64 = 2.9;
const JUMP_MAX: f64 = 10.0;
/// Bound of errors in units of the mean error: one extreme error must not make all weights equal.
const ERROR_MAX: f64 = 50.0;
const ERRORS_KNOWN: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals at 30 values, after 100 errors of one unit.
    fn calibrated() -> HorizonIntervals {
        let mut intervals = HorizonIntervals::new(30.0, 1.0, &[]);
        for _ in 0..100 {
            intervals.learn(1.0, 1.0, &[f64::INFINITY; GRID.len()]);
        }
        intervals
    }

    #[test]
    fn the_usual_level_keeps_its_width_where_levels_cross() {
        let mut intervals = calibrated();
        for (track, factor) in intervals.tracker.tracks.iter_mut().zip([3.0, 4.0, 2.0, 1.0, 5.0]) {
            track.factor = factor;
        }
        assert!(intervals.factors().eq([2.0, 2.0, 2.0, 2.0, 5.0]));
        assert_eq!(GRID.map(|level| intervals.factor(level)), [2.0, 2.0, 2.0, 2.0, 5.0].map(Some));
    }

    #[test]
    fn half_widths_are_larger_after_more_misses_than_usual() {
        let mut intervals = calibrated();
        let recovery = |intervals: &HorizonIntervals| {
            let usual = intervals.tracker.tracks[intervals.usual].factor;
            intervals.factor(Interval::DEFAULT_LEVEL).map(|factor| factor / usual)
        };
        assert_eq!(recovery(&intervals), Some(1.0));
        for _ in 0..20 {
            intervals.learn(2.0, 1.0, &[1.0; GRID.len()]);
        }
        assert!(recovery(&intervals) > Some(1.2), "{intervals:?}");
        for _ in 0..500 {
            intervals.learn(0.5, 1.0, &[1.0; GRID.len()]);
        }
        assert!(recovery(&intervals).is_some_and(|factor| factor < 0.9), "{intervals:?}");
    }

    #[test]
    fn only_an_unusual_distance_to_the_next_value_widens() {
        let mut intervals = calibrated();
        (0..30).for_each(|_| intervals.learn_jump(1.0));
        let usual = intervals.scale(0.0, 0.0);
        assert_eq!(intervals.scale(0.0, 3.0), usual);
        assert_eq!(intervals.scale(0.0, 11.0), hypot(usual, 8.0));
        assert!(usual < intervals.scale(1.0, 0.0));
    }
}

//! Half-widths of intervals, tracked by the errors of the issued forecasts.

use alloc::boxed::Box;
use alloc::vec::Vec;

use libm::{exp, log, pow, sqrt};

use super::{LEVEL_RANGE, SCORED_MIN_FOR_INTERVAL};
use crate::Interval;

/// Half-widths of symmetric intervals: quantile tracking on normalised errors.
///
/// The half-width at a level is `q s`. The scale `s` is the geometric mean of a quick and a slow
/// average of absolute errors, so the scale follows a change in the size of errors within a few
/// values. The factor `q` of each level changes after each value. So the share of misses becomes 1
/// − level for any distribution of errors. The change is the online gradient step on the pinball
/// loss (Gibbs & Candès 2021), but is a multiplication here.
#[derive(Clone, Debug)]
pub(crate) struct IntervalTracker {
    fast_mean: FadingMean,
    pub(crate) slow_mean: FadingMean,
    /// A very slow average of errors: the average decreases little during a plateau.
    plateau_mean: FadingMean,
    pub(crate) tracks: Box<[LevelTrack]>,
}

/// How fast an interval follows the errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dynamics {
    /// Step of the logarithm of a factor.
    pub(crate) step: f64,
    /// Factor of the 90 % interval before the first error, and the exponent by which it differs
    /// for other levels; with exponent 0 it does not.
    pub(crate) factor_start: f64,
    pub(crate) factor_exponent: f64,
    /// Gains of the three averages of errors.
    pub(crate) fast_gain: f64,
    pub(crate) slow_gain: f64,
    pub(crate) plateau_gain: f64,
    /// Number of errors that count as one: errors of overlapping windows come in runs.
    pub(crate) overlap: f64,
}

impl Dynamics {
    /// For the errors of forecasts of the next value.
    pub(super) const NEXT_VALUE: Self = Self {
        step: STEP,
        factor_start: FACTOR_START,
        factor_exponent: 0.0,
        fast_gain: FAST_GAIN,
        slow_gain: SLOW_GAIN,
        plateau_gain: PLATEAU_GAIN,
        overlap: 1.0,
    };
}

/// The factor of one level, and the multipliers that change the factor after each value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelTrack {
    pub(crate) level: f64,
    pub(crate) factor: f64,
    /// Multiplier of the factor after a miss; `on_hit` is the multiplier after a hit.
    on_miss: f64,
    on_hit: f64,
    /// Number of consecutive misses so far. `usual_misses` is the largest number of consecutive
    /// misses that counts as usual.
    misses: u32,
    usual_misses: u32,
    /// Number of misses in a row that count as one.
    overlap: u32,
    /// If the factor is below this bound, a plateau has made the factor small. Then a long run of
    /// misses raises the factor faster.
    collapsed: f64,
}

impl IntervalTracker {
    /// Creates tracks for `grid` and for `levels`. Levels outside [`LEVEL_RANGE`] are left out,
    /// because no interval is given for them.
    pub(crate) fn new(grid: &[f64], levels: &[f64], dynamics: &Dynamics) -> Self {
        // Inserted one by one for the reason of `quantiles::sort`.
        let mut sorted: Vec<f64> = Vec::new();
        for level in grid.iter().chain(levels).copied().filter(|level| LEVEL_RANGE.contains(level)) {
            let at = sorted.partition_point(|other| *other < level);
            if sorted.get(at) != Some(&level) {
                sorted.insert(at, level);
            }
        }
        Self {
            fast_mean: FadingMean::new(dynamics.fast_gain),
            slow_mean: FadingMean::new(dynamics.slow_gain),
            plateau_mean: FadingMean::new(dynamics.plateau_gain),
            tracks: sorted.into_iter().map(|level| LevelTrack::new(level, dynamics)).collect(),
        }
    }

    /// Scores the current intervals on the error of the issued forecast, then learns the error.
    pub(super) fn learn(&mut self, error: f64) {
        let size = error.abs();
        if self.slow_mean.count >= SCORED_MIN_FOR_INTERVAL {
            let scale = self.scale();
            for track in &mut self.tracks {
                track.learn(track.factor * scale < size);
            }
        }
        self.learn_scale(size);
    }

    /// Updates the averages with an absolute error.
    pub(crate) fn learn_scale(&mut self, size: f64) {
        let known = self.slow_mean.count > CAP_FROM;
        let remembered = MEMORY_SHARE * self.plateau_mean.mean;
        for scale in [&mut self.fast_mean, &mut self.slow_mean, &mut self.plateau_mean] {
            // An outlier counts as ten scales, so that it does not dominate the average.
            let most = CAP * scale.mean.max(remembered);
            scale.learn(if known && most > 0.0 { size.min(most) } else { size });
        }
    }

    /// The interval around `center`; `None` until [`SCORED_MIN_FOR_INTERVAL`] errors are known, or
    /// if `level` is outside [`LEVEL_RANGE`].
    pub(super) fn around(&self, center: f64, level: f64) -> Option<Interval> {
        if !LEVEL_RANGE.contains(&level) || self.slow_mean.count < SCORED_MIN_FOR_INTERVAL {
            return None;
        }
        let half = self.factor(level) * self.scale();
        Some(Interval { level, lower: center - half, upper: center + half })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.tracks)
    }

    pub(crate) fn scale(&self) -> f64 {
        sqrt(self.fast_mean.mean * self.slow_mean.mean)
    }

    /// The factors at the levels 0.5, 0.8, 0.9, 0.95 and 0.99, which are always tracked.
    pub(super) fn factors(&self) -> [f64; 5] {
        let (mut factors, mut known, mut most) = ([0.0; 5], 0, 0.0);
        for track in &self.tracks {
            // As in `factor`, the interval of a higher level contains that of a lower level.
            most = if most < track.factor { track.factor } else { most };
            if known < factors.len() && track.level == GRID[known + 1] {
                factors[known] = most;
                known += 1;
            }
        }
        factors
    }

    /// The factor at a level. The result is the factor of the level's own track, or a linear
    /// interpolation between two tracks over −ln(miss rate), because the quantiles of an
    /// exponential tail are linear in this variable.
    pub(crate) fn factor(&self, level: f64) -> f64 {
        // The interval of a higher level must contain the interval of a lower level.
        self.between(level, |i| self.tracks[..=i].iter().fold(0.0, |most: f64, t| most.max(t.factor)))
    }

    /// Like [`Self::factor`], with the factor of each track, by its index, from `factor_at`.
    pub(crate) fn between(&self, level: f64, factor_at: impl Fn(usize) -> f64) -> f64 {
        let above = self.tracks.partition_point(|track| track.level < level).min(self.tracks.len() - 1);
        let wide = (laplace(self.tracks[above].level), factor_at(above));
        let narrow = match above {
            0 => (0.0, 0.0),
            _ => (laplace(self.tracks[above - 1].level), factor_at(above - 1)),
        };
        narrow.1 + (wide.1 - narrow.1) * (laplace(level) - narrow.0) / (wide.0 - narrow.0)
    }
}

impl LevelTrack {
    fn new(level: f64, dynamics: &Dynamics) -> Self {
        let miss = 1.0 - level;
        Self {
            level,
            factor: dynamics.factor_start * pow(laplace(level), dynamics.factor_exponent),
            on_miss: exp(dynamics.step * (1.0 - miss)),
            on_hit: exp(-dynamics.step * miss),
            misses: 0,
            usual_misses: (log(RUN_PROBABILITY_MAX) / log(miss) * dynamics.overlap) as u32,
            overlap: dynamics.overlap.max(1.0) as u32,
            collapsed: PLATEAU_FACTOR * laplace(level),
        }
    }

    pub(crate) fn learn(&mut self, miss: bool) {
        if !miss {
            self.misses = 0;
            self.factor = (self.factor * self.on_hit).max(FACTOR_MIN);
            return;
        }
        self.misses += 1;
        let hurried = self.usual_misses < self.misses && self.factor < self.collapsed;
        let repeats = (self.misses / self.overlap).clamp(1, MISS_REPEATS_MAX);
        for _ in 0..if hurried { repeats } else { 1 } {
            self.factor *= self.on_miss;
        }
        self.factor = self.factor.min(FACTOR_MAX);
    }
}

/// Width of the interval at `level`, divided by the width of the interval at 90 %, if errors have a
/// Laplace distribution.
pub(crate) fn laplace(level: f64) -> f64 {
    log(1.0 - level) / log(1.0 - 0.9)
}

/// An exponentially fading mean, usually of absolute errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FadingMean {
    pub(crate) mean: f64,
    gain: f64,
    pub(crate) count: u64,
}

impl FadingMean {
    pub(crate) fn new(gain: f64) -> Self {
        Self { mean: 0.0, gain, count: 0 }
    }

    pub(crate) fn learn(&mut self, size: f64) {
        self.count += 1;
        self.mean += self.gain.max(1.0 / self.count as f64) * (size - self.mean);
    }
}

/// Levels that every battery tracks; levels between tracks are interpolated.
pub(super) const GRID: [f64; 7] = [0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999];
// Constants of the intervals in `docs/spec/full.md`: half-lives of 10 and 300 values; after 20
// errors, an error counts as at most 10 means; a step of 0.1.
const FAST_GAIN: f64 = 0.067;
const SLOW_GAIN: f64 = 0.0023;
const CAP: f64 = 10.0;
const CAP_FROM: u64 = 20;
const STEP: f64 = 0.1;
const FACTOR_START: f64 = 2.0;
/// Gain of the very slow average. The half-life of this average is 14 000 values: a day and a half
/// at a period of 10 s.
const PLATEAU_GAIN: f64 = 0.000_05;
/// Share of the very slow average that is used in the cap of an error. The cap is ten times the
/// larger of two numbers: the average that the error updates, and this share of the very slow
/// average. So after a plateau, an error counts in full up to the size that errors had before the
/// plateau.
const MEMORY_SHARE: f64 = 0.1;
/// Lower bound of the factor. On a plateau every value is a hit, so the factor shrinks; from this
/// bound, the factor can grow back within about ten values.
const FACTOR_MIN: f64 = 0.1;
/// Upper bound of the factor, a million scales; it keeps products finite.
const FACTOR_MAX: f64 = 1e6;
/// Largest probability at which a run of misses counts as unusual: one in a thousand, computed for
/// independent misses. Unusual runs occur when a plateau ends. In an unusual run, while the factor
/// is below `PLATEAU_FACTOR` times the [`laplace`] width of its level, each miss is applied several
/// times: as many times as the run has misses so far, but at most nine times. On series without
/// plateaus the factor does not get that small.
const RUN_PROBABILITY_MAX: f64 = 1e-3;
const PLATEAU_FACTOR: f64 = 1.5;
const MISS_REPEATS_MAX: u32 = 9;

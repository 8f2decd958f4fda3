//! Errors of the issued forecasts of four series, and the intervals that follow from them.

use alloc::boxed::Box;
use core::array::from_fn;

use barograph_lanes::{Lanes, Mask, Numbers};
use libm::sqrt;

use super::state::{Cells, LANES};
use crate::interval::{
    CAP, FACTOR_MAX, FACTOR_MIN, IntervalCalibration, LEVEL_RANGE, MEMORY_SHARE, MISS_REPEATS_MAX,
    interpolated_factor,
};
use crate::scored_methods::{ForecastScore, RECENT_GAIN};
use crate::{Forecast, Interval, Method};

/// [`ForecastScore`] of four series that have more than one value.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
pub(super) struct Scores {
    squared: [f64; LANES],
    absolute: [f64; LANES],
    recent_squared: [f64; LANES],
    recent_absolute: [f64; LANES],
}

impl Scores {
    pub(super) fn of(scores: [&ForecastScore; LANES]) -> Self {
        Self {
            squared: scores.map(|score| score.squared),
            absolute: scores.map(|score| score.absolute),
            recent_squared: scores.map(|score| score.recent_squared),
            recent_absolute: scores.map(|score| score.recent_absolute),
        }
    }

    /// `counts` are the numbers of values before this one: one more than were scored.
    #[inline(always)]
    pub(super) fn learn<L: Lanes>(&mut self, lanes: L, counts: [u64; LANES], error: L::Numbers) {
        let (squared, absolute) = (error * error, error.abs());
        self.squared = (lanes.load(&self.squared) + squared).to_array();
        self.absolute = (lanes.load(&self.absolute) + absolute).to_array();
        let gain = gain(lanes, counts, RECENT_GAIN);
        let recent = lanes.load(&self.recent_squared);
        self.recent_squared = (recent + gain * (squared - recent)).to_array();
        let recent = lanes.load(&self.recent_absolute);
        self.recent_absolute = (recent + gain * (absolute - recent)).to_array();
    }

    pub(super) fn forecast(&self, lane: usize, count: u64, value: f64, method: Method) -> Forecast {
        let scored = (count - 1) as f64;
        Forecast {
            value,
            mse: self.squared[lane] / scored,
            mae: self.absolute[lane] / scored,
            recent_mse: self.recent_squared[lane],
            recent_mae: self.recent_absolute[lane],
            method,
            weight: None,
            count,
        }
    }

    pub(super) fn for_each(&mut self, visit: &mut Cells) {
        for cell in
            [&mut self.squared, &mut self.absolute, &mut self.recent_squared, &mut self.recent_absolute]
        {
            visit(cell);
        }
    }
}

/// The larger of `gain` and 1 ÷ the number of values.
#[inline(always)]
fn gain<L: Lanes>(lanes: L, counts: [u64; LANES], gain: f64) -> L::Numbers {
    let mean = lanes.splat(1.0) / lanes.load(&counts.map(|count| count as f64));
    let gain = lanes.splat(gain);
    mean.less(gain).select(gain, mean)
}

/// [`IntervalCalibration`] of four series that have more than 20 values, none after a gap.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
pub(super) struct Calibrations {
    /// The quick, the slow and the very slow average of absolute errors.
    means: [[f64; LANES]; 3],
    value_min: [f64; LANES],
    /// 1 if the next update must not change the calibration of the series, else 0.
    held: [f64; LANES],
    tracks: Box<[Track]>,
    gains: [f64; 3],
}

/// One level of all series.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
struct Track {
    factor: [f64; LANES],
    misses: [f64; LANES],
    level: f64,
    on_miss: f64,
    on_hit: f64,
    usual_misses: f64,
    collapsed: f64,
}

impl Calibrations {
    pub(super) fn of(calibrations: [&IntervalCalibration; LANES]) -> Self {
        let intervals = calibrations.map(IntervalCalibration::intervals);
        let means = intervals.map(|tracker| [&tracker.fast_mean, &tracker.slow_mean, &tracker.plateau_mean]);
        Self {
            means: from_fn(|i| means.map(|means| means[i].mean)),
            gains: means[0].map(|mean| mean.gain),
            value_min: calibrations.map(|calibration| calibration.value_min),
            tracks: (0..intervals[0].tracks.len())
                .map(|i| {
                    let track = intervals[0].tracks[i];
                    Track {
                        level: track.level,
                        on_miss: track.on_miss,
                        on_hit: track.on_hit,
                        usual_misses: f64::from(track.usual_misses),
                        collapsed: track.collapsed,
                        factor: intervals.map(|tracker| tracker.tracks[i].factor),
                        misses: intervals.map(|tracker| f64::from(tracker.tracks[i].misses)),
                    }
                })
                .collect(),
            held: [0.0; LANES],
        }
    }

    /// The next update leaves these series as they are.
    pub(super) fn hold(&mut self, held: [bool; LANES]) {
        self.held = held.map(f64::from);
    }

    /// Updates change all series again.
    pub(super) fn release(&mut self) {
        self.held = [0.0; LANES];
    }

    #[inline(always)]
    pub(super) fn learn<L: Lanes>(
        &mut self,
        lanes: L,
        counts: [u64; LANES],
        error: L::Numbers,
        value: L::Numbers,
    ) {
        let held = lanes.splat(0.0).less(lanes.load(&self.held));
        let size = error.abs();
        let scale = (lanes.load(&self.means[0]) * lanes.load(&self.means[1])).sqrt();
        for track in &mut self.tracks {
            let factor = lanes.load(&track.factor);
            let is_miss = (factor * scale).less(size);
            let missed = (factor * lanes.splat(track.on_miss)).least(lanes.splat(FACTOR_MAX));
            let shrunk = factor * lanes.splat(track.on_hit);
            let least = lanes.splat(FACTOR_MIN);
            let hit = shrunk.less(least).select(least, shrunk);
            let misses = lanes.load(&track.misses);
            let counted = is_miss.select(misses + lanes.splat(1.0), lanes.splat(0.0));
            let is_unusual = lanes.splat(track.usual_misses).less(counted).bits()
                & factor.less(lanes.splat(track.collapsed)).bits();
            let mut next = held.select(factor, is_miss.select(missed, hit)).to_array();
            track.misses = held.select(misses, counted).to_array();
            if is_unusual != 0 {
                for lane in (0..LANES).filter(|lane| is_unusual >> lane & 1 == 1 && self.held[*lane] == 0.0) {
                    next[lane] = hurried(track.factor[lane], track.on_miss, track.misses[lane]);
                }
            }
            track.factor = next;
        }
        let remembered = lanes.splat(MEMORY_SHARE) * lanes.load(&self.means[2]);
        for (mean, own) in self.means.iter_mut().zip(self.gains) {
            let before = lanes.load(mean);
            let larger = before.less(remembered).select(remembered, before);
            let most = lanes.splat(CAP) * larger;
            let bounded = lanes.splat(0.0).less(most).select(size.least(most), size);
            let after = before + gain(lanes, counts, own) * (bounded - before);
            *mean = held.select(before, after).to_array();
        }
        let least = lanes.load(&self.value_min);
        self.value_min = held.select(least, least.least(value)).to_array();
    }

    pub(super) fn interval(&self, lane: usize, center: f64, level: f64) -> Option<Interval> {
        if !LEVEL_RANGE.contains(&level) {
            return None;
        }
        let factor = interpolated_factor(level, self.tracks.len(), |i| {
            (self.tracks[i].level, self.tracks[i].factor[lane])
        });
        let half = factor * sqrt(self.means[0][lane] * self.means[1][lane]);
        let floor = if self.value_min[lane] >= 0.0 { 0.0 } else { f64::NEG_INFINITY };
        let lower = center - half;
        let lower = if lower < floor { floor.min(center) } else { lower };
        Some(Interval { level, lower, upper: center + half })
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.tracks)
    }
}

/// The factor after one more miss of an unusual run.
#[cold]
fn hurried(factor: f64, on_miss: f64, misses: f64) -> f64 {
    let repeats = (misses as u32).min(MISS_REPEATS_MAX);
    (0..repeats).fold(factor, |factor, _| factor * on_miss).min(FACTOR_MAX)
}

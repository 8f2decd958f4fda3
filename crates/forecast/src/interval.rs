//! Prediction intervals, calibrated online from the errors of the issued forecasts.

use alloc::boxed::Box;

use libm::{log, pow, sqrt};

use crate::Interval;

/// Levels at which an interval can be asked for.
///
/// Below 1 % an interval says nothing; above 99.9 % a track would need thousands of values to be
/// touched at all.
pub const LEVELS: core::ops::RangeInclusive<f64> = 0.01..=0.999;

/// Half-widths of symmetric intervals by quantile tracking on normalised errors.
///
/// The half-width at a level is `q s`: the scale `s` is the geometric mean of a quick and a slow
/// average of absolute errors, so it follows level shifts within some values; the factor `q` of
/// each level moves so that the share of misses comes out right whatever the errors' law (the
/// online gradient step on the pinball loss, Gibbs & Candès 2021; here multiplicative).
#[derive(Clone, Debug)]
pub(crate) struct Intervals {
    quick: Scale,
    slow: Scale,
    tracks: Box<[Track]>,
}

/// One level's factor.
#[derive(Clone, Copy, Debug)]
struct Track {
    level: f64,
    factor: f64,
    /// What the factor is multiplied by after a miss, and after a hit.
    on_miss: f64,
    on_hit: f64,
}

impl Intervals {
    pub(crate) fn new(levels: &[f64]) -> Self {
        let mut tracks: alloc::vec::Vec<Track> =
            levels.iter().filter(|level| LEVELS.contains(level)).map(|level| Track::new(*level)).collect();
        tracks.sort_by(|a, b| a.level.total_cmp(&b.level));
        tracks.dedup_by(|a, b| a.level == b.level);
        Self { quick: Scale::new(QUICK_GAIN), slow: Scale::new(SLOW_GAIN), tracks: tracks.into_boxed_slice() }
    }

    /// Scores the intervals that stood on the error of the issued forecast, then learns it.
    pub(crate) fn learn(&mut self, error: f64) {
        let size = error.abs();
        if BURN_IN <= self.slow.count {
            let scale = self.scale();
            for track in &mut self.tracks {
                let miss = track.factor * scale < size;
                track.factor *= if miss { track.on_miss } else { track.on_hit };
                track.factor = track.factor.clamp(FACTOR_LEAST, FACTOR_MOST);
            }
        }
        self.quick.learn(size);
        self.slow.learn(size);
    }

    /// The interval around `center`; `None` before the first error and outside [`LEVELS`].
    pub(crate) fn around(&self, center: f64, level: f64) -> Option<Interval> {
        if !LEVELS.contains(&level) || self.slow.count == 0 {
            return None;
        }
        let half = if self.slow.count < BURN_IN {
            BURN_IN_FACTOR * self.quick.mean
        } else {
            self.factor(level) * self.scale()
        };
        Some(Interval { level, lower: center - half, upper: center + half })
    }

    /// Heap memory in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.tracks)
    }

    fn scale(&self) -> f64 {
        sqrt(self.quick.mean * self.slow.mean)
    }

    /// The factor at a level: its own track's, or between tracks along the logarithms of miss rate
    /// and factor (a line there is a power-law tail); beyond them the nearest line is continued.
    fn factor(&self, level: f64) -> f64 {
        // A wider level's track must not be inside a narrower one's.
        let factor_at = |i: usize| self.tracks[..=i].iter().fold(0.0, |most: f64, t| most.max(t.factor));
        match self.tracks.binary_search_by(|track| track.level.total_cmp(&level)) {
            Ok(i) => factor_at(i),
            Err(_) if self.tracks.is_empty() => Track::new(level).factor,
            Err(_) if self.tracks.len() == 1 => factor_at(0),
            Err(above) => {
                let above = above.clamp(1, self.tracks.len() - 1);
                let (low, high) = (above - 1, above);
                let miss = |level: f64| log(1.0 - level);
                let share = (miss(level) - miss(self.tracks[low].level))
                    / (miss(self.tracks[high].level) - miss(self.tracks[low].level));
                factor_at(low) * pow(factor_at(high) / factor_at(low), share)
            }
        }
    }
}

impl Track {
    fn new(level: f64) -> Self {
        let miss = 1.0 - level;
        Self {
            level,
            factor: FACTOR_START,
            on_miss: libm::exp(STEP * (1.0 - miss)),
            on_hit: libm::exp(-STEP * miss),
        }
    }
}

/// An average of absolute errors that one outlier cannot own.
#[derive(Clone, Copy, Debug)]
struct Scale {
    mean: f64,
    gain: f64,
    count: u64,
}

impl Scale {
    fn new(gain: f64) -> Self {
        Self { mean: 0.0, gain, count: 0 }
    }

    fn learn(&mut self, size: f64) {
        self.count += 1;
        let capped = if CAP_FROM < self.count && 0.0 < self.mean { size.min(CAP * self.mean) } else { size };
        let gain = self.gain.max(1.0 / self.count as f64);
        self.mean += gain * (capped - self.mean);
    }
}

// Constants of `forecast_limit.md` §4 (chosen there on the open traces): half-lives of 10 and 300
// values; an error counts at most 10 scales once 20 are known; a step of 0.1.
const QUICK_GAIN: f64 = 0.067;
const SLOW_GAIN: f64 = 0.0023;
const CAP: f64 = 10.0;
const CAP_FROM: u64 = 20;
const STEP: f64 = 0.1;
const FACTOR_START: f64 = 2.0;
/// Below this an interval on a plateau would never open again within sensible time.
const FACTOR_LEAST: f64 = 1e-3;
/// e²⁰ times the scale: beyond it the track would not come back within a thousand values.
const FACTOR_MOST: f64 = 1e6;
/// While no factor can be known, three mean absolute errors either way.
const BURN_IN: u64 = 10;
const BURN_IN_FACTOR: f64 = 3.0;

//! Methods for series that stay at one level for some time, and then change to a different level at
//! once.

use super::limited;

/// The mean since the last level shift. A two-sided CUSUM detects level shifts (Page 1954).
#[derive(Clone, Debug)]
pub(crate) struct LevelShiftMean {
    mean: f64,
    spread: f64,
    count: f64,
    up: f64,
    down: f64,
}

// Constants of method 13 in `docs/spec/full.md`, in units of the spread.
const DEVIATION_MAX: f64 = 4.8;
const SLACK: f64 = 0.5;
const ALARM: f64 = 8.0;
const SPREAD_GAIN: f64 = 0.03;
const SPREAD_CAP: f64 = 4.0;
const COUNT_MAX: f64 = 1000.0;
const STEP_MAX: f64 = 3.0;

impl LevelShiftMean {
    pub(crate) fn new() -> Self {
        Self { mean: 0.0, spread: 0.0, count: 0.0, up: 0.0, down: 0.0 }
    }

    /// Learns `value` and returns the mean of the level. `median3` is the median of the last three
    /// values, including `value`.
    pub(crate) fn learn(&mut self, value: f64, median3: f64) -> f64 {
        if self.count == 0.0 {
            (self.mean, self.count) = (value, 1.0);
            return self.mean;
        }
        let deviation = (value - self.mean).abs();
        if self.spread == 0.0 {
            self.spread = deviation;
        }
        if self.spread != 0.0 {
            let z = ((value - self.mean) / self.spread).clamp(-DEVIATION_MAX, DEVIATION_MAX);
            self.up = (self.up + z - SLACK).max(0.0);
            self.down = (self.down - z - SLACK).max(0.0);
            let gain = SPREAD_GAIN.max(1.0 / (self.count + 1.0));
            self.spread += gain * (deviation.min(SPREAD_CAP * self.spread) - self.spread);
        }
        if self.up > ALARM || self.down > ALARM {
            (self.mean, self.count, self.up, self.down) = (median3, 2.0, 0.0, 0.0);
        } else {
            self.count = (self.count + 1.0).min(COUNT_MAX);
            let most = STEP_MAX * self.spread;
            self.mean += limited(value - self.mean, -most, most) / self.count;
        }
        self.mean
    }
}

/// Remembers the levels that a series returns to, and forecasts the nearest of these levels.
#[derive(Clone, Debug)]
pub(crate) struct LevelHistory {
    centers: [f64; SLOTS],
    counts: [f64; SLOTS],
}

const SLOTS: usize = 16;
// Constants of method 14 in `docs/spec/full.md`; distances are in step scales.
const NEAR: f64 = 4.0;
const CENTER_STEP_MAX: f64 = 12.0;
const CENTER_COUNT_MAX: f64 = 50.0;
const COUNT_FADE: f64 = 0.999;

impl LevelHistory {
    pub(crate) fn new() -> Self {
        // An empty slot is infinitely far from everything.
        Self { centers: [f64::INFINITY; SLOTS], counts: [0.0; SLOTS] }
    }

    /// Learns `value` and returns the centre nearest to `median3`, the median of the last three
    /// values, including `value`.
    pub(crate) fn learn(&mut self, value: f64, median3: f64, scale: f64) -> f64 {
        let (index, distance) = self.nearest(median3);
        if distance <= NEAR * scale {
            self.counts[index] += 1.0;
            let most = CENTER_STEP_MAX * scale;
            self.centers[index] += limited(value - self.centers[index], -most, most)
                / self.counts[index].clamp(1.0, CENTER_COUNT_MAX);
        } else {
            let index = self.rarest();
            (self.centers[index], self.counts[index]) = (median3, 1.0);
        }
        for count in &mut self.counts {
            *count *= COUNT_FADE;
        }
        // The centre has just changed, so a different centre may be nearest now.
        self.centers[self.nearest(median3).0]
    }

    fn nearest(&self, value: f64) -> (usize, f64) {
        let distances = self.centers.map(|center| (value - center).abs());
        let index = crate::rules::argmin(&distances);
        (index, distances[index])
    }

    fn rarest(&self) -> usize {
        crate::rules::argmin(&self.counts)
    }
}

//! Gaps in time: detects a value that comes late, and learns how far values after gaps are from the
//! usual forecast.

use alloc::boxed::Box;

use super::interval::{FadingMean, laplace};

/// Detects gaps from the recent times between values.
#[derive(Clone, Debug)]
pub(crate) struct GapDetector {
    latest_s: Option<f64>,
    periods_s: [f64; PERIODS],
    count: usize,
}

impl GapDetector {
    pub(crate) fn new() -> Self {
        Self { latest_s: None, periods_s: [0.0; PERIODS], count: 0 }
    }

    /// Whether the time from the latest value to `time_s` exceeds 2.5 times the median period;
    /// false until [`PERIODS_MIN`] periods are known.
    pub(crate) fn is_gap(&self, time_s: Option<f64>) -> bool {
        let known = &self.periods_s[..self.count.min(PERIODS)];
        let Some(elapsed) = time_s.zip(self.latest_s).map(|(time, latest)| time - latest) else {
            return false;
        };
        if known.len() < PERIODS_MIN {
            return false;
        }
        // The elapsed time exceeds 2.5 medians if, for more than half of the periods, the elapsed
        // time exceeds 2.5 times the period. So the periods need not be sorted.
        let exceeded = known.iter().filter(|period| GAP * **period < elapsed).count();
        known.len() < 2 * exceeded
    }

    /// Learns the time of a value. A time that is unknown or goes back adds no period.
    pub(crate) fn learn(&mut self, time_s: Option<f64>) {
        if let Some(elapsed) = time_s.zip(self.latest_s).map(|(time, latest)| time - latest)
            && elapsed > 0.0
            && elapsed.is_finite()
        {
            self.periods_s[self.count % PERIODS] = elapsed;
            self.count += 1;
        }
        self.latest_s = time_s;
    }
}

/// Forecasts and quantiles of values after gaps, in units of a scale.
#[derive(Clone, Debug)]
pub(crate) struct GapCalibration {
    count: u64,
    /// Slow mean of the series; `spread` is the mean distance of the values from this mean.
    mean: FadingMean,
    spread: FadingMean,
    median: f64,
    /// For each tracked level: the level, and the lower and the upper end of the interval at this
    /// level.
    tracks: Box<[(f64, f64, f64)]>,
    /// For each of [`GapCalibration::candidates`]: the sum of the absolute errors.
    errors: [f64; 3],
}

impl GapCalibration {
    /// Creates tracks for `levels`, which are in ascending order.
    pub(crate) fn new(levels: impl Iterator<Item = f64>) -> Self {
        let start = |level| (level, -START * laplace(level), START * laplace(level));
        Self {
            count: 0,
            mean: FadingMean::new(SPREAD_GAIN),
            spread: FadingMean::new(SPREAD_GAIN),
            median: 0.0,
            tracks: levels.map(start).collect(),
            errors: [0.0; 3],
        }
    }

    /// Updates the slow mean and the spread with any value, also with a value after a gap.
    pub(crate) fn learn_spread(&mut self, value: f64) {
        if self.mean.count != 0 {
            let size = (value - self.mean.mean).abs();
            let most = SPREAD_CAP * self.spread.mean;
            let capped = self.mean.count > SPREAD_CAP_FROM && most > 0.0;
            self.spread.learn(if capped { size.min(most) } else { size });
        }
        self.mean.learn(value);
    }

    /// Learns a value after a gap. `center` is the forecast that ignores the gap, and `scale` is
    /// the scale of usual errors.
    pub(crate) fn learn(&mut self, center: f64, scale: f64, floor: f64, value: f64) {
        let candidates = self.candidates(center, scale, floor);
        for (error, candidate) in self.errors.iter_mut().zip(candidates) {
            *error += (candidate - value).abs();
        }
        let scale = self.scale(scale);
        if scale <= 0.0 {
            return;
        }
        self.count += 1;
        let position = ((value - center) / scale).clamp(-END_MAX, END_MAX);
        let step = STEP.max(1.0 / (self.count as f64 + 1.0));
        let learn = |end: &mut f64, share: f64| {
            let missed = if position < *end { 1.0 } else { 0.0 };
            let moved = *end + step * (end.abs() + 0.5) * (share - missed);
            *end = moved.clamp(-END_MAX, END_MAX);
        };
        learn(&mut self.median, 0.5);
        for (level, lower, upper) in &mut self.tracks {
            learn(lower, 0.5 * (1.0 - *level));
            learn(upper, 0.5 * (1.0 + *level));
        }
    }

    /// Returns the forecast of a value after a gap. Of the three candidates, the forecast is the
    /// candidate with the least error after earlier gaps.
    pub(crate) fn forecast(&self, center: f64, scale: f64, floor: f64) -> f64 {
        let candidates = self.candidates(center, scale, floor);
        candidates[crate::rules::argmin(&self.errors)]
    }

    /// The ends of the interval at `level`, around `center`.
    pub(crate) fn ends(&self, center: f64, scale: f64, level: f64) -> (f64, f64) {
        let (mut lower, mut upper) = (self.median, self.median);
        let (mut narrow, mut wide) = ((0.0, lower, upper), (0.0, lower, upper));
        for (tracked, low, high) in &self.tracks {
            (lower, upper) = (lower.min(*low), upper.max(*high));
            narrow = wide;
            wide = (laplace(*tracked), lower, upper);
            if level <= *tracked {
                break;
            }
        }
        let share = (laplace(level) - narrow.0) / (wide.0 - narrow.0);
        let scale = self.scale(scale);
        let end = |narrow: f64, wide: f64| center + scale * (narrow + (wide - narrow) * share);
        (end(narrow.1, wide.1), end(narrow.2, wide.2))
    }

    /// The three candidates, in order: the forecast that ignores the gap; the tracked median of
    /// values after gaps; the slow mean of the series.
    fn candidates(&self, center: f64, scale: f64, floor: f64) -> [f64; 3] {
        [center, (center + self.scale(scale) * self.median).max(floor.min(center)), self.mean.mean]
    }

    /// The larger of `scale` and the spread: the error after a gap may be as large as the spread of
    /// the series, even if the usual errors are small.
    fn scale(&self, scale: f64) -> f64 {
        scale.max(self.spread.mean)
    }

    /// Mean distance of the values from their slow mean.
    pub(crate) fn spread(&self) -> f64 {
        self.spread.mean
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.tracks)
    }
}

// Constants of the section Gaps of `docs/spec/full.md`. The constants were chosen on the open
// traces, both complete and with parts removed.
pub(crate) const GAP: f64 = 2.5;
/// Number of periods in the median. The number is odd, so that the median is one of the periods.
pub(crate) const PERIODS: usize = 31;
pub(crate) const PERIODS_MIN: usize = 5;
const SPREAD_GAIN: f64 = 0.02;
const SPREAD_CAP: f64 = 10.0;
const SPREAD_CAP_FROM: u64 = 20;
pub(crate) const START: f64 = 3.5;
/// Step of an end, in units of its distance from the forecast plus half a scale. The step does not
/// grow with the distance of the value: otherwise one extreme value would keep the intervals of
/// hundreds of gaps wide.
const STEP: f64 = 0.15;
/// Maximum distance of an interval's end from the forecast, in scales. This limit keeps products
/// finite.
const END_MAX: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_extreme_value_after_a_gap_hardly_widens_the_intervals_after_gaps() {
        let mut gaps = GapCalibration::new([0.9].into_iter());
        let width = |gaps: &GapCalibration| {
            let (lower, upper) = gaps.ends(0.0, 1.0, 0.9);
            upper - lower
        };
        for n in 0..200_u32 {
            gaps.learn(0.0, 1.0, f64::NEG_INFINITY, f64::from(n * 7919 % 101) / 50.0 - 1.0);
        }
        let usual = width(&gaps);
        assert!((1.5..2.5).contains(&usual), "{usual}");
        gaps.learn(0.0, 1.0, f64::NEG_INFINITY, 1000.0);
        assert!(width(&gaps) < 1.2 * usual, "{}", width(&gaps));
    }
}

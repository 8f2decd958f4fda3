//! Prediction intervals, calibrated online from the errors of the issued forecasts.

mod tracker;

use crate::Interval;
use crate::gap::{GapCalibration, GapDetector};

pub(crate) use tracker::{Dynamics, FadingMean, IntervalTracker, laplace};

/// Levels for which a battery gives an interval.
///
/// An interval below 1 % has no use. Above 99.9 %, misses are so rare that a track would need
/// thousands of values to adapt at all.
pub const LEVEL_RANGE: core::ops::RangeInclusive<f64> = 0.01..=0.999;

/// Number of forecasts that must be scored before a battery gives an interval.
///
/// With nine errors or fewer, a miss rate of one in ten cannot be distinguished from 0, and the
/// scale is the mean of only a few errors.
pub const SCORED_MIN_FOR_INTERVAL: u64 = 10;

/// The intervals of a battery, without its methods.
///
/// An interval depends only on the forecasts that were issued earlier, and on the values that were
/// measured for these forecasts. A caller that keeps the values and forecasts of a series can
/// compute each interval again, with exactly the same bits. The caller starts with a copy of the
/// calibration from before the first value, so the caller need not store the intervals.
///
/// If the values have times, a calibration also detects gaps, and has forecasts and intervals for
/// the values after gaps.
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, IntervalCalibration, Objective};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let config = BatteryConfig::default();
/// let mut battery = Battery::new(&config);
/// let mut calibration = IntervalCalibration::new(&config.levels);
/// for n in 0..20_u32 {
///     let issued = battery.forecast(Objective::Absolute).map(|forecast| forecast.value);
///     battery.update(f64::from(n % 7))?;
///     calibration.learn(issued, f64::from(n % 7), None);
/// }
/// let center = battery.forecast(Objective::Absolute).expect("there are values").value;
/// assert_eq!(calibration.interval(center, 0.9, None), battery.interval(0.9));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct IntervalCalibration {
    intervals: IntervalTracker,
    value_min: f64,
    gap_detector: GapDetector,
    gaps: GapCalibration,
}

impl IntervalCalibration {
    /// The calibration of a new battery with these
    /// [`BatteryConfig::levels`](crate::BatteryConfig::levels).
    #[must_use]
    pub fn new(levels: &[f64]) -> Self {
        let intervals = IntervalTracker::new(&tracker::GRID, levels, &Dynamics::NEXT_VALUE);
        let gaps = GapCalibration::new(intervals.tracks.iter().map(|track| track.level));
        Self { intervals, value_min: f64::INFINITY, gap_detector: GapDetector::new(), gaps }
    }

    /// Learns a value that the battery accepted. `issued` is the median that the battery forecast
    /// for `value`, computed as if there were no gap; `None` for the first value of the battery.
    pub fn learn(&mut self, issued: Option<f64>, value: f64, time_s: Option<f64>) {
        match issued {
            Some(center) if self.is_gap(time_s) => {
                self.gaps.learn(center, self.intervals.scale(), self.floor(), value);
                // Intervals after gaps are calibrated separately; only the scale of errors is
                // shared.
                self.intervals.learn_scale((center - value).abs());
            }
            Some(issued) => self.intervals.learn(issued - value),
            None => {}
        }
        self.gaps.learn_spread(value);
        self.gap_detector.learn(finite(time_s));
        self.value_min = if value < self.value_min { value } else { self.value_min };
    }

    /// Returns the forecast for `time_s`. `issued` is the forecast that was computed as if there
    /// were no gap. The two forecasts differ only after a gap.
    #[must_use]
    pub fn forecast(&self, issued: f64, time_s: Option<f64>) -> f64 {
        if self.is_gap(time_s) {
            self.gaps.forecast(issued, self.intervals.scale(), self.floor())
        } else {
            issued
        }
    }

    /// Returns the interval at `level` for `time_s`. `center` is the forecast that ignores gaps.
    /// The result equals the result of [`Battery::interval_at`](crate::Battery::interval_at) after
    /// the same values.
    #[must_use]
    pub fn interval(&self, center: f64, level: f64, time_s: Option<f64>) -> Option<Interval> {
        let usual = self.intervals.around(center, level)?;
        if !self.is_gap(time_s) {
            return Some(Interval { lower: self.above_floor(usual.lower, center), ..usual });
        }
        let forecast = self.forecast(center, time_s);
        let (lower, upper) = self.gaps.ends(center, self.intervals.scale(), level);
        let lower = self.above_floor(lower.min(forecast), forecast);
        Some(Interval { level, lower, upper: upper.max(forecast) })
    }

    /// Whether a value at `time_s` comes after a gap; false until [`SCORED_MIN_FOR_INTERVAL`]
    /// errors are known.
    pub(crate) fn is_gap(&self, time_s: Option<f64>) -> bool {
        self.intervals.slow_mean.count >= SCORED_MIN_FOR_INTERVAL && self.gap_detector.is_gap(finite(time_s))
    }

    /// Lower bound of forecasts: 0 while no value was below 0 (most quantities are never negative),
    /// else −∞.
    pub(crate) fn floor(&self) -> f64 {
        if self.value_min >= 0.0 { 0.0 } else { f64::NEG_INFINITY }
    }

    /// Mean distance of the values from their slow mean.
    pub(crate) fn spread(&self) -> f64 {
        self.gaps.spread()
    }

    fn above_floor(&self, lower: f64, center: f64) -> f64 {
        let floor = self.floor();
        if lower < floor { floor.min(center) } else { lower }
    }

    /// The scale of errors, and the half-widths of the intervals at the levels 0.98, 0.9, 0.8 and
    /// 0.5; `None` until [`SCORED_MIN_FOR_INTERVAL`] errors are known.
    pub(crate) fn half_widths(&self) -> Option<(f64, [f64; 4])> {
        if self.intervals.slow_mean.count < SCORED_MIN_FOR_INTERVAL {
            return None;
        }
        let scale = self.intervals.scale();
        let [at_50, at_80, at_90, at_95, at_99] = self.intervals.factors();
        let at_98 = at_95 + SHARE_098 * (at_99 - at_95);
        Some((scale, [at_98, at_90, at_80, at_50].map(|factor| factor * scale)))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.intervals.heap_bytes() + self.gaps.heap_bytes()
    }
}

fn finite(time_s: Option<f64>) -> Option<f64> {
    time_s.filter(|time_s| time_s.is_finite())
}

/// Position of the level 0.98 between 0.95 and 0.99: log(0.02/0.05) / log(0.01/0.05).
const SHARE_098: f64 = 0.569_323_441_926_606_7;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Battery, BatteryConfig, Objective};

    #[test]
    fn calibration_of_the_issued_forecasts_gives_the_intervals_of_the_battery() {
        let config = BatteryConfig { levels: [0.25, 0.9].to_vec(), ..BatteryConfig::default() };
        let mut battery = Battery::new(&config);
        let mut calibration = IntervalCalibration::new(&config.levels);
        for i in 0..600_u32 {
            let issued = battery.forecast(Objective::Absolute).map(|forecast| forecast.value);
            for level in [0.25, 0.5, 0.9, 0.97] {
                let again = issued.and_then(|center| calibration.interval(center, level, None));
                assert_eq!(again, battery.interval(level), "value {i} at {level}");
            }
            let value = f64::from(i * 7919 % 101) + if i > 300 { -50.0 } else { 0.0 };
            battery.update(value).unwrap();
            calibration.learn(issued, value, None);
        }
    }
}

//! How predictable a series is: the errors of the forecasts that were issued for it (JavaNws §5).

use barograph_forecast::{Battery, BatteryConfig, InvalidValue, Objective};
use serde::Serialize;

/// Returns the measured value minus its forecast, for every value except the first, which has no
/// forecast.
///
/// Each forecast is the forecast for the least absolute error, made before the value was read.
///
/// # Errors
/// [`InvalidValue`] for a value that no battery accepts.
pub fn forecast_errors(
    values: impl Iterator<Item = f64>,
    config: &BatteryConfig,
) -> Result<Vec<f64>, InvalidValue> {
    let mut battery = Battery::new(config);
    let mut errors = Vec::new();
    for value in values {
        let issued = battery.forecast(Objective::Absolute);
        battery.update(value)?;
        errors.extend(issued.map(|issued| value - issued.value));
    }
    Ok(errors)
}

/// Counts of errors in [`BINS`] bins of equal width around 0.
///
/// "We form a histogram of 100 bins spanning the difference between the minimum and maximum
/// measured values" (JavaNws §5). The first bin begins half that difference below 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// The width of a bin, in the unit of the values.
    pub width: f64,
    /// Number of errors in each bin; an error on the lower edge of a bin belongs to this bin.
    pub counts: Vec<u64>,
    /// Number of errors below the first bin.
    pub below: u64,
    /// Number of errors above the last bin or on its upper edge.
    pub above: u64,
}

impl Histogram {
    /// Counts errors; `span` is the range of the measured values, in their unit.
    #[must_use]
    pub fn of(errors: &[f64], span: f64) -> Self {
        // All forecasts of a constant series have the error 0, so the width does not matter.
        let span = if span > 0.0 { span } else { 1.0 };
        let mut histogram = Self { width: span / BINS as f64, counts: vec![0; BINS], below: 0, above: 0 };
        for error in errors {
            let index = ((error / span + 0.5) * BINS as f64).floor();
            if index < 0.0 {
                histogram.below += 1;
            } else {
                match histogram.counts.get_mut(index as usize) {
                    Some(count) => *count += 1,
                    None => histogram.above += 1,
                }
            }
        }
        histogram
    }

    /// The share of the errors that lie below the upper edge of each bin; empty without errors.
    #[must_use]
    pub fn cumulative(&self) -> Vec<f64> {
        let total = self.below + self.counts.iter().sum::<u64>() + self.above;
        let mut so_far = self.below;
        let shares = self.counts.iter().map(|count| {
            so_far += count;
            so_far as f64 / total as f64
        });
        if total == 0 { Vec::new() } else { shares.collect() }
    }

    /// The lower edge of a bin, in the unit of the values.
    #[must_use]
    pub fn edge(&self, bin: usize) -> f64 {
        (bin as f64 - (self.counts.len() / 2) as f64) * self.width
    }
}

/// Number of bins, as in the paper (JavaNws §5). It is even, so that 0 is an edge.
pub const BINS: usize = 100;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use barograph_forecast::{Preset, Rule};
    use proptest::prelude::*;

    fn config() -> BatteryConfig {
        BatteryConfig { preset: Preset::Full, rule: Rule::Blend, levels: Vec::new() }
    }

    #[test]
    fn the_first_value_has_no_forecast_and_constants_have_error_0() {
        assert_eq!(forecast_errors([5.0; 4].into_iter(), &config()).unwrap(), [0.0; 3]);
        assert!(forecast_errors([5.0].into_iter(), &config()).unwrap().is_empty());
        // After a single value, the only possible forecast is that value.
        assert_eq!(forecast_errors([5.0, 7.0].into_iter(), &config()).unwrap(), [2.0]);
        assert!(forecast_errors([f64::NAN].into_iter(), &config()).is_err());
    }

    #[test]
    fn histogram_bins_equal_results_computed_by_hand() {
        let histogram = Histogram::of(&[-50.0, -0.5, 0.0, 0.25, 49.9, 50.0, -50.1], 100.0);
        assert_eq!((histogram.width, histogram.below, histogram.above), (1.0, 1, 1));
        let counts = &histogram.counts;
        assert_eq!((counts.len(), counts[0], counts[49], counts[50], counts[99]), (100, 1, 1, 2, 1));
        assert_eq!((histogram.edge(0), histogram.edge(50), histogram.edge(100)), (-50.0, 0.0, 50.0));
        assert_eq!(Histogram::of(&[0.0; 3], 0.0).counts[50], 3);
    }

    proptest! {
        #[test]
        fn every_error_is_counted_in_one_bin(errors in prop::collection::vec(-1e70..1e70f64, 0..50), span in 0.0..1e70) {
            let Histogram { counts, below, above, .. } = Histogram::of(&errors, span);
            prop_assert_eq!(counts.iter().sum::<u64>() + below + above, errors.len() as u64);
        }
    }
}

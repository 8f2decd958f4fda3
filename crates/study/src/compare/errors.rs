//! How predictable a series is: the errors of the forecasts that were issued for it (JavaNws §5).

use barograph_forecast::{
    Battery, BatteryConfig, Forecaster, ForecasterConfig, Horizon, HorizonConfig, HorizonError, InvalidValue,
    Objective,
};
use serde::Serialize;

use crate::ahead::{ForecastTarget, median_step_s};
use crate::input::Sample;

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

/// The errors of the forecasts of a series further ahead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorsAhead {
    /// What was measured minus its forecast, in the order in which the forecasts were issued.
    pub errors: Vec<f64>,
    /// Number of windows that do not overlap, at most the number of errors. The errors of windows
    /// that overlap are not independent.
    pub windows: usize,
}

impl ErrorsAhead {
    /// Computes the errors of the forecasts for the least absolute error. Each forecast was issued
    /// before the values of its window were read.
    ///
    /// A horizon in seconds needs samples with times. Its windows are those of `docs/spec/ahead.md`
    /// with the median period of the whole series. A window that is not complete, or has a gap, has
    /// no error.
    ///
    /// # Errors
    /// [`AheadError`] for a value that no forecaster accepts, and for a horizon out of range.
    pub fn of(
        samples: &[Sample],
        config: &BatteryConfig,
        target: ForecastTarget,
    ) -> Result<Self, AheadError> {
        let horizons = vec![HorizonConfig::exact(target.horizon)];
        let config = ForecasterConfig { battery: config.clone(), horizons, ..ForecasterConfig::default() };
        let mut forecaster = Forecaster::new(&config)?;
        // Equal times have no period; then the forecaster has no forecast in seconds either.
        let period_s = median_step_s(samples).unwrap_or(1.0);
        let mut errors = Vec::new();
        for (sample, measured) in samples.iter().zip(target.measured(samples, period_s)) {
            match target.horizon {
                // As in `forecast_errors`, gaps do not matter if values are counted.
                Horizon::Steps(_) => forecaster.update(sample.value)?,
                Horizon::Seconds(_) => forecaster.update_at(sample.value, sample.time_s)?,
            }
            let issued = forecaster.forecast_over(target.horizon, target.of, Objective::Absolute);
            errors.extend(measured.zip(issued).map(|(measured, issued)| measured - issued.value));
        }
        let windows = (errors.len() as f64 / target.steps(period_s)).ceil() as usize;
        Ok(Self { errors, windows })
    }
}

/// Why a series has no forecasts further ahead.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum AheadError {
    #[error(transparent)]
    Value(#[from] InvalidValue),
    #[error(transparent)]
    Horizon(#[from] HorizonError),
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
    use barograph_forecast::{HorizonOf, Preset, Rule};
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

    fn ahead(values: &[f64], horizon: Horizon, of: HorizonOf) -> ErrorsAhead {
        let samples: Vec<Sample> = values
            .iter()
            .enumerate()
            .map(|(i, value)| Sample { time_s: 10.0 * i as f64, value: *value })
            .collect();
        ErrorsAhead::of(&samples, &config(), ForecastTarget { horizon, of }).unwrap()
    }

    #[test]
    fn errors_at_a_horizon_of_one_value_are_those_of_the_next_value() {
        let values: Vec<f64> = (0..200).map(|i| f64::from(i * 7919 % 101)).collect();
        let next = forecast_errors(values.iter().copied(), &config()).unwrap();
        for of in [HorizonOf::Mean, HorizonOf::Value] {
            let ErrorsAhead { errors, windows } = ahead(&values, Horizon::Steps(1), of);
            assert_eq!((errors, windows), (next.clone(), 199));
        }
    }

    /// The forecaster scores the same forecasts on the same windows.
    #[test]
    fn the_mean_absolute_error_ahead_is_that_of_the_forecaster() {
        let values: Vec<f64> = (0..400).map(|i| f64::from(i * 7919 % 101)).collect();
        for (horizon, windows) in [(Horizon::Steps(6), 66), (Horizon::Seconds(60.0), 65)] {
            let config = ForecasterConfig {
                horizons: vec![HorizonConfig::exact(horizon)],
                ..ForecasterConfig::default()
            };
            let mut forecaster = Forecaster::new(&config).unwrap();
            for (i, value) in values.iter().enumerate() {
                forecaster.update_at(*value, 10.0 * i as f64).unwrap();
            }
            for of in [HorizonOf::Mean, HorizonOf::Value] {
                let study = ahead(&values, horizon, of);
                let scored = forecaster.forecast_over(horizon, of, Objective::Absolute).unwrap();
                let mae =
                    study.errors.iter().map(|error| error.abs()).sum::<f64>() / study.errors.len() as f64;
                assert_eq!(study.errors.len() as u64, scored.scored, "{horizon:?} {of:?}");
                assert!((mae / scored.mae - 1.0).abs() < 1e-9, "{horizon:?} {of:?}: {mae} {scored:?}");
                assert_eq!(study.windows, windows, "{horizon:?}");
            }
        }
    }

    #[test]
    fn horizons_beyond_the_series_have_no_errors_and_bad_ones_are_rejected() {
        assert_eq!(ahead(&[1.0, 2.0], Horizon::Steps(2), HorizonOf::Mean), ErrorsAhead::default());
        let target = ForecastTarget { horizon: Horizon::Steps(0), of: HorizonOf::Mean };
        assert!(matches!(ErrorsAhead::of(&[], &config(), target), Err(AheadError::Horizon(_))));
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

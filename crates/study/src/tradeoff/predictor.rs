//! Predictors of the next measurement, and their errors on one subsample.

use barograph_forecast::{Battery, BatteryConfig, Objective};
use serde::Serialize;

use super::grid::Grid;

/// How the next measurement is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Predictor {
    /// The last measurement (Gloperf §4).
    Last,
    /// A running exponential average, with [`EXPONENTIAL_WEIGHT`] on the most recent measurement
    /// (Gloperf §4).
    Exponential,
    /// A uniform draw from the range of the entire trace (Gloperf §4), seeded; each slot of the
    /// grid has a draw of its own.
    Random,
    /// The default forecast of `barograph forecast`.
    Battery,
}

impl Predictor {
    /// All predictors, in the order in which they are printed.
    pub const ALL: [Self; 4] = [Self::Last, Self::Exponential, Self::Random, Self::Battery];

    /// The name that is printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Exponential => "exponential",
            Self::Random => "random",
            Self::Battery => "battery",
        }
    }

    /// The errors on every `every`-th slot from `offset` on; `None` if no forecast was scored.
    ///
    /// A forecast is for the next slot of the subsample. The forecast is discarded if that slot is
    /// blank, so that every error belongs to a single period. All predictors are scored on the same
    /// values: the values that directly follow a slot with a value. The battery is scored on what
    /// it optimises: its median forecast by absolute error, its mean forecast by squared error.
    #[must_use]
    pub fn errors(self, grid: &Grid, every: usize, offset: usize, seed: u64) -> Option<OffsetErrors> {
        self.errors_within(grid, grid.range(), every, offset, seed)
    }

    /// Returns the same as [`errors`](Self::errors), for a caller that already has the range of the
    /// grid's values.
    pub(super) fn errors_within(
        self,
        grid: &Grid,
        range: (f64, f64),
        every: usize,
        offset: usize,
        seed: u64,
    ) -> Option<OffsetErrors> {
        // In a series with gaps, many offsets have no value and so need no predictor.
        let mut state = None;
        let mut sums = ErrorSums::default();
        let mut is_issued = false;
        for (index, slot) in grid.subsample(every, offset) {
            let Some(value) = slot else {
                is_issued = false;
                continue;
            };
            let state = state.get_or_insert_with(|| PredictorState::new(self, range, seed));
            if let (true, Some(forecast)) = (is_issued, state.forecast(index)) {
                sums.add(value, forecast);
            }
            state.learn(value);
            is_issued = true;
        }
        sums.mean(offset)
    }
}

/// Sums of the errors of a predictor on one subsample.
#[derive(Default)]
pub(super) struct ErrorSums {
    absolute: f64,
    squared: f64,
    scored: usize,
}

impl ErrorSums {
    /// Scores the median and the mean forecast of a value.
    pub(super) fn add(&mut self, value: f64, (median, mean): (f64, f64)) {
        self.absolute += (value - median).abs();
        self.squared += (value - mean).powi(2);
        self.scored += 1;
    }

    /// The mean errors; `None` if no forecast was scored.
    pub(super) fn mean(self, offset: usize) -> Option<OffsetErrors> {
        let Self { absolute, squared, scored } = self;
        let count = scored as f64;
        (scored > 0).then(|| OffsetErrors { offset, scored, mae: absolute / count, mse: squared / count })
    }
}

/// The errors of a predictor on one subsample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OffsetErrors {
    /// Index of the first slot of the subsample.
    pub offset: usize,
    /// Number of forecasts that were scored.
    pub scored: usize,
    /// Mean absolute error, in the unit of the values.
    pub mae: f64,
    /// Mean squared error, in the unit squared.
    pub mse: f64,
}

/// The state of a predictor on one subsample.
pub(super) enum PredictorState {
    Mean { weight: f64, mean: Option<f64> },
    Random { seed: u64, low: f64, width: f64 },
    Battery(Box<Battery>),
}

impl PredictorState {
    pub(super) fn new(predictor: Predictor, (low, high): (f64, f64), seed: u64) -> Self {
        match predictor {
            Predictor::Last => Self::Mean { weight: 1.0, mean: None },
            Predictor::Exponential => Self::Mean { weight: EXPONENTIAL_WEIGHT, mean: None },
            Predictor::Random => Self::Random { seed, low, width: high - low },
            Predictor::Battery => Self::Battery(Box::new(Battery::new(&BatteryConfig::default()))),
        }
    }

    /// The forecasts for the slot with index `index`: the forecast for the least absolute error,
    /// and the forecast for the least squared error.
    pub(super) fn forecast(&self, index: usize) -> Option<(f64, f64)> {
        match self {
            Self::Mean { mean, .. } => mean.map(|mean| (mean, mean)),
            Self::Random { seed, low, width } => {
                let drawn = low + width * uniform(*seed, index);
                Some((drawn, drawn))
            }
            Self::Battery(battery) => battery
                .forecast(Objective::Absolute)
                .zip(battery.forecast(Objective::Squared))
                .map(|(median, mean)| (median.value, mean.value)),
        }
    }

    pub(super) fn learn(&mut self, value: f64) {
        match self {
            // With weight 1, the result is exactly the new value.
            Self::Mean { weight, mean } => {
                *mean = Some(mean.map_or(value, |mean| (1.0 - *weight) * mean + *weight * value));
            }
            Self::Random { .. } => {}
            Self::Battery(battery) => {
                // The reader rejects what a battery would reject.
                let learnt = battery.update(value);
                debug_assert!(learnt.is_ok(), "{value} was read");
            }
        }
    }
}

/// A pseudorandom number in [0, 1) for a slot: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, §2),
/// with the index of the slot as its counter.
fn uniform(seed: u64, index: usize) -> f64 {
    let mut z = seed.wrapping_add((index as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// "an exponential average predictor with a weight of 0.35 on the most recent measurement" (Gloperf
/// §4).
pub const EXPONENTIAL_WEIGHT: f64 = 0.35;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    fn grid(slots: &[Option<f64>]) -> Grid {
        Grid { base_s: 300.0, slots: slots.to_vec(), duplicates: 0 }
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12 * b.abs().max(1.0)
    }

    /// 10, 14, 12, 20, 8: differences 4, 2, 8, 12; so MAE 26/4 and MSE 228/4.
    #[test]
    fn last_value_errors_equal_results_computed_by_hand() {
        let grid = grid(&[10.0, 14.0, 12.0, 20.0, 8.0].map(Some));
        let plain = Predictor::Last.errors(&grid, 1, 0, 0).unwrap();
        assert_eq!(plain, OffsetErrors { offset: 0, scored: 4, mae: 6.5, mse: 57.0 });
        // The subsamples with every second value are 10, 12, 8 and 14, 20.
        let even = Predictor::Last.errors(&grid, 2, 0, 0).unwrap();
        assert_eq!(even, OffsetErrors { offset: 0, scored: 2, mae: 3.0, mse: 10.0 });
        let odd = Predictor::Last.errors(&grid, 2, 1, 0).unwrap();
        assert_eq!(odd, OffsetErrors { offset: 1, scored: 1, mae: 6.0, mse: 36.0 });
        assert_eq!(Predictor::Last.errors(&grid, 5, 3, 0), None, "one value alone is never forecast");
    }

    /// 10, then 10 + 0.35·4 = 11.4, then 11.4 + 0.35·0.6 = 11.61: errors 4, 0.6 and 8.39.
    #[test]
    fn exponential_average_errors_equal_results_computed_by_hand() {
        let grid = grid(&[10.0, 14.0, 12.0, 20.0].map(Some));
        let errors = Predictor::Exponential.errors(&grid, 1, 0, 0).unwrap();
        assert_eq!(errors.scored, 3);
        assert!(near(errors.mae, (4.0 + 0.6 + 8.39) / 3.0), "{errors:?}");
        assert!(near(errors.mse, (16.0 + 0.36 + 8.39 * 8.39) / 3.0), "{errors:?}");
    }

    /// 10, –, 14, 12: only 12 follows a measurement. The average is updated with 14, but no
    /// forecast of 14 is scored.
    #[test]
    fn no_forecast_is_scored_after_a_blank() {
        let grid = grid(&[Some(10.0), None, Some(14.0), Some(12.0)]);
        let last = Predictor::Last.errors(&grid, 1, 0, 0).unwrap();
        assert_eq!((last.scored, last.mae), (1, 2.0));
        let average = Predictor::Exponential.errors(&grid, 1, 0, 0).unwrap();
        assert!(near(average.mae, 12.0 - 11.4), "{average:?}");
        let every_second = Predictor::Last.errors(&grid, 2, 0, 0).unwrap();
        assert_eq!((every_second.scored, every_second.mae), (1, 4.0));
        for predictor in Predictor::ALL {
            assert_eq!(predictor.errors(&grid, 1, 0, 7).unwrap().scored, 1, "{predictor:?}");
        }
    }

    #[test]
    fn random_forecasts_cover_the_range_of_the_trace() {
        let grid = grid(&[Some(2.0), Some(6.0)]);
        let state = PredictorState::new(Predictor::Random, grid.range(), 3);
        let drawn: Vec<f64> = (0..1000).map(|index| state.forecast(index).unwrap().0).collect();
        assert!(drawn.iter().all(|value| (2.0..6.0).contains(value)));
        let mean = drawn.iter().sum::<f64>() / 1000.0;
        assert!((mean - 4.0).abs() < 0.15, "{mean}");
        assert!(drawn.iter().any(|value| *value < 2.05) && drawn.iter().any(|value| *value > 5.95));
    }

    #[test]
    fn the_battery_predictor_equals_the_battery_of_the_compare_command() {
        let values: Vec<f64> = (0..50).map(|i| f64::from(i * 7 % 13) + 5.0).collect();
        let slots: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        let errors = Predictor::Battery.errors(&grid(&slots), 1, 0, 0).unwrap();
        let expected =
            crate::compare::forecast_errors(values.into_iter(), &BatteryConfig::default()).unwrap();
        let mae = expected.iter().map(|error| error.abs()).sum::<f64>() / expected.len() as f64;
        assert!(errors.scored == 49 && near(errors.mae, mae), "{errors:?} {mae}");
    }
}

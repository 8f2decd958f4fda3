//! Forecasts further ahead than the next test, and their errors on one subsample.

use barograph_forecast::{
    Forecaster, ForecasterConfig, Horizon, HorizonConfig, HorizonError, HorizonOf, Objective,
};

use super::grid::Grid;
use super::predictor::{ErrorSums, OffsetErrors, Predictor, PredictorState};
use crate::ahead::ForecastTarget;
use crate::input::Sample;

/// What the predictors of a grid forecast, and what was measured for it.
///
/// The targets are those of the whole grid, also for a subsample. So a longer period changes what
/// the predictors know, and not what they forecast.
pub(super) struct GridTargets {
    horizon: Horizon,
    of: HorizonOf,
    /// Number of base periods in the horizon, at least 1.
    steps: f64,
    base_s: f64,
    /// For each slot of the grid: what was measured from the next slot on. `None` for a blank slot,
    /// too, because no forecast is issued there.
    measured: Vec<Option<f64>>,
}

impl GridTargets {
    /// The targets of a grid. A horizon in values counts the slots of the grid.
    ///
    /// # Errors
    /// [`HorizonError`] for a horizon out of range.
    pub(super) fn of(grid: &Grid, target: ForecastTarget) -> Result<Self, HorizonError> {
        target.horizon.checked()?;
        let steps = target.steps(grid.base_s);
        // A slot may be blank, so the horizon is a time.
        let horizon = Horizon::Seconds((steps * grid.base_s).min(Horizon::SECONDS_MAX));
        let target = ForecastTarget { horizon, of: target.of };
        let slots: Vec<usize> = (0..grid.slots.len()).filter(|index| grid.slots[*index].is_some()).collect();
        let sample = |(index, value): (&usize, f64)| Sample { time_s: *index as f64 * grid.base_s, value };
        let samples: Vec<Sample> = slots.iter().zip(grid.values()).map(sample).collect();
        let mut measured = vec![None; grid.slots.len()];
        for (index, value) in slots.iter().zip(target.measured(&samples, grid.base_s)) {
            measured[*index] = value;
        }
        Ok(Self { horizon, of: target.of, steps, base_s: grid.base_s, measured })
    }
}

impl Predictor {
    /// The errors ahead on every `every`-th slot from `offset` on; `None` if no forecast was
    /// scored.
    ///
    /// Every slot with a value issues a forecast. All predictors are scored on the same targets.
    pub(super) fn errors_ahead(
        self,
        grid: &Grid,
        targets: &GridTargets,
        (every, offset): (usize, usize),
        range: (f64, f64),
        seed: u64,
    ) -> Option<OffsetErrors> {
        let mut state = None;
        let mut sums = ErrorSums::default();
        for (index, slot) in grid.subsample(every, offset) {
            let Some(value) = slot else { continue };
            let state = state.get_or_insert_with(|| match self {
                Self::Battery => State::Ahead(Box::new(BatteryAhead::new(targets, every))),
                _ => State::Constant(PredictorState::new(self, range, seed)),
            });
            let forecast = match state {
                State::Ahead(battery) => battery.learn(value, index),
                State::Constant(state) => {
                    state.learn(value);
                    state.forecast(index)
                }
            };
            if let (Some(measured), Some(forecast)) = (targets.measured[index], forecast) {
                sums.add(measured, forecast);
            }
        }
        sums.mean(offset)
    }
}

enum State {
    /// A predictor that has one forecast for every horizon.
    Constant(PredictorState),
    Ahead(Box<BatteryAhead>),
}

/// The default forecaster, which keeps the horizon.
struct BatteryAhead {
    forecaster: Forecaster,
    horizon: Horizon,
    of: HorizonOf,
    base_s: f64,
}

impl BatteryAhead {
    fn new(targets: &GridTargets, every: usize) -> Self {
        let GridTargets { horizon, of, steps, base_s, .. } = *targets;
        // Every forecast is scored, as with `HorizonConfig::exact`, but little memory is allocated
        // for each of many subsamples. Two more wait where values are late.
        let waiting = ((steps / every as f64).ceil() + 2.0).min(f64::from(HorizonConfig::PENDING_MAX));
        let kept = HorizonConfig { horizon, pending_max: waiting as u32, stride_min: 1 };
        let config = ForecasterConfig { horizons: vec![kept], ..ForecasterConfig::default() };
        let forecaster = Forecaster::new(&config).expect("the horizon was checked");
        Self { forecaster, horizon, of, base_s }
    }

    /// Learns the value of a slot, and returns the median and the mean forecast. Before the period
    /// is known, the forecast is that of the next value.
    fn learn(&mut self, value: f64, index: usize) -> Option<(f64, f64)> {
        // The reader rejects what a forecaster would reject.
        let learnt = self.forecaster.update_at(value, index as f64 * self.base_s);
        debug_assert!(learnt.is_ok(), "{value} was read");
        let forecast = |objective| {
            let ahead = self.forecaster.forecast_over(self.horizon, self.of, objective);
            let value = ahead.map(|ahead| ahead.value);
            value.or_else(|| self.forecaster.battery().forecast(objective).map(|next| next.value))
        };
        forecast(Objective::Absolute).zip(forecast(Objective::Squared))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;

    fn errors(
        predictor: Predictor,
        slots: &[Option<f64>],
        horizon: Horizon,
        of: HorizonOf,
        every: usize,
    ) -> Option<OffsetErrors> {
        let grid = Grid { base_s: 10.0, slots: slots.to_vec(), duplicates: 0 };
        let targets = GridTargets::of(&grid, ForecastTarget { horizon, of }).unwrap();
        predictor.errors_ahead(&grid, &targets, (every, 0), grid.range(), 1)
    }

    /// 10, 14, 12, 20, 8: the means of two are 13, 16 and 14, so the errors 3, 2 and 2.
    #[test]
    fn errors_ahead_of_the_last_value_equal_results_computed_by_hand() {
        let slots = [10.0, 14.0, 12.0, 20.0, 8.0].map(Some);
        for horizon in [Horizon::Steps(2), Horizon::Seconds(20.0)] {
            let errors = |of, every| errors(Predictor::Last, &slots, horizon, of, every).unwrap();
            let plain = errors(HorizonOf::Mean, 1);
            assert_eq!(plain, OffsetErrors { offset: 0, scored: 3, mae: 7.0 / 3.0, mse: 17.0 / 3.0 });
            // Every second forecast, of the same windows.
            let second = errors(HorizonOf::Mean, 2);
            assert_eq!(second, OffsetErrors { offset: 0, scored: 2, mae: 2.5, mse: 6.5 });
            // 10 to 12, 14 to 20, 12 to 8.
            let value = errors(HorizonOf::Value, 1);
            assert_eq!(value, OffsetErrors { offset: 0, scored: 3, mae: 4.0, mse: 56.0 / 3.0 });
        }
    }

    #[test]
    fn blank_slots_issue_no_forecast_and_are_no_part_of_a_mean() {
        let slots = [Some(10.0), None, Some(14.0), Some(12.0), Some(20.0)];
        let mean = errors(Predictor::Last, &slots, Horizon::Steps(2), HorizonOf::Mean, 1).unwrap();
        // After 10: 14 alone; after 14: 12 and 20.
        assert_eq!(mean, OffsetErrors { offset: 0, scored: 2, mae: 3.0, mse: 10.0 });
    }

    #[test]
    fn all_predictors_are_scored_on_the_same_targets() {
        let slots: Vec<Option<f64>> =
            (0..200).map(|i| (i % 9 != 4).then(|| f64::from(i * 7919 % 101))).collect();
        for (of, every) in [(HorizonOf::Mean, 1), (HorizonOf::Value, 1), (HorizonOf::Mean, 7)] {
            let scored = Predictor::ALL
                .map(|predictor| errors(predictor, &slots, Horizon::Steps(12), of, every).unwrap().scored);
            assert!(scored[0] > 10 && scored.iter().all(|count| *count == scored[0]), "{scored:?}");
        }
    }

    /// Independent values: the mean of the next 20 is near the mean of all, and far from the last.
    #[test]
    fn the_battery_forecasts_the_mean_of_noise_better_than_the_last_value() {
        let slots: Vec<Option<f64>> = (0..600).map(|i| Some(f64::from(i * 7919 % 101))).collect();
        let mae = |predictor| errors(predictor, &slots, Horizon::Steps(20), HorizonOf::Mean, 1).unwrap().mae;
        assert!(mae(Predictor::Battery) < 0.5 * mae(Predictor::Last));
    }
}

//! The method with the least error so far makes the forecast, as in the papers on NWS.

use barograph_lanes::Lanes;

use super::{CombinationRule, CombinedForecast, argmin, indicator, picked_forecast};
use crate::Objective;
use crate::method_sets::Classes;

/// The method with the least error so far makes both forecasts. With squared error, this is the
/// rule of the papers (JavaNws §2.1.2).
///
/// Every method is scored on the same values, so the method with the least sum of errors also has
/// the least mean error. If methods have equal errors, the first of these methods is picked.
#[derive(Clone, Debug)]
pub(crate) struct LeastError<const M: usize> {
    /// The measure of errors: squared or absolute error.
    measure: Objective,
    sums: [f64; M],
    pick: usize,
}

impl<const M: usize> LeastError<M> {
    pub(crate) fn new(measure: Objective) -> Self {
        Self { measure, sums: [0.0; M], pick: 0 }
    }
}

impl<const M: usize> CombinationRule<M> for LeastError<M> {
    const IS_VECTORISED: bool = true;

    #[inline(always)]
    fn observe<L: Lanes>(&mut self, _lanes: L, number: u64, predictions: &[f64; M], value: f64) {
        if number == 0 {
            return;
        }
        for (sum, prediction) in self.sums.iter_mut().zip(predictions) {
            let error = prediction - value;
            *sum += match self.measure {
                Objective::Squared => error * error,
                Objective::Absolute => error.abs(),
            };
        }
        self.pick = argmin(&self.sums);
    }

    fn combine(&mut self, predictions: &[f64; M], _: Classes) -> [CombinedForecast; 2] {
        [picked_forecast(predictions, self.pick); 2]
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn weights(&self, _objective: usize) -> [f64; M] {
        indicator(self.pick)
    }
}

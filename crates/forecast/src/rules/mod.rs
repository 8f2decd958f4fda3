//! The rules that make one forecast from many, for squared and for absolute error.

mod blend;
mod context;
mod history;
mod least_error;
mod selection;

use barograph_lanes::Lanes;

pub(crate) use blend::{
    BernsteinAggregation, Blend, Gradient, PowerWeights, exp_of_negative, sorted_by_value, weighted_median,
};
pub(crate) use context::ContextBlend;
pub(crate) use history::{ErrorHistory, ErrorRing, LAGS, LONG_WINDOWS};
pub(crate) use least_error::LeastError;
pub(crate) use selection::{TwoLevel, TwoSelectors, WINDOW_LENGTHS};

use crate::method_sets::Classes;

/// The forecast of one rule for one objective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CombinedForecast {
    pub(crate) value: f64,
    /// Index of the chosen method, or of the method with the largest weight.
    pub(crate) method: usize,
    /// The method's weight, 0 to 1; `None` if the rule has no weights.
    pub(crate) weight: Option<f64>,
}

/// A rule that combines the predictions of `M` methods.
///
/// For each value, the caller calls `observe` with the predictions that were made before the value
/// was known. Then the caller calls `combine` with the predictions of the next value. The
/// predictions of the first value have no meaning.
pub(crate) trait CombinationRule<const M: usize> {
    /// Whether the rule and its methods run with the vector instructions that were detected. The
    /// blend is slower with AVX2 than with the instructions that every processor of the target has.
    const IS_VECTORISED: bool = false;

    /// Scores `predictions` on `value`. `number` is the index of `value` in the series, from 0.
    /// Each kind of `lanes` gives the same bits.
    fn observe<L: Lanes>(&mut self, lanes: L, number: u64, predictions: &[f64; M], value: f64);

    /// The forecasts for squared and for absolute error. `classes` are the classes of the last
    /// values.
    fn combine(&mut self, predictions: &[f64; M], classes: Classes) -> [CombinedForecast; 2];

    fn heap_bytes(&self) -> usize;

    /// Returns every method's weight in the last forecast. `objective` is 0 for squared error and 1
    /// for absolute error.
    fn weights(&self, objective: usize) -> [f64; M];
}

/// The forecast of a rule that selects method `pick`.
fn picked_forecast<const M: usize>(predictions: &[f64; M], pick: usize) -> CombinedForecast {
    let method = pick % M;
    CombinedForecast { value: predictions[method], method, weight: None }
}

/// The weights of a rule that selects method `pick`: 1 for this method, 0 for all others.
fn indicator<const M: usize>(pick: usize) -> [f64; M] {
    core::array::from_fn(|i| if i == pick { 1.0 } else { 0.0 })
}

/// Returns the index of the least score; of equal scores, the first index. NaN is never the least
/// score.
pub(crate) fn argmin<const M: usize>(scores: &[f64; M]) -> usize {
    // Two lanes, so that one instruction makes two comparisons. Then find the first score that
    // equals the minimum.
    let mut lanes = [f64::INFINITY; 2];
    for pair in scores.chunks(2) {
        for (lane, score) in lanes.iter_mut().zip(pair) {
            *lane = if *score < *lane { *score } else { *lane };
        }
    }
    let low = if lanes[1] < lanes[0] { lanes[1] } else { lanes[0] };
    scores.iter().position(|score| *score <= low).unwrap_or(0)
}

/// Returns the index of the greatest weight; of equal weights, the first index.
pub(crate) fn argmax<const M: usize>(weights: &[f64; M]) -> usize {
    let mut high = f64::NEG_INFINITY;
    for weight in weights {
        high = if high < *weight { *weight } else { high };
    }
    weights.iter().position(|weight| *weight == high).unwrap_or(0)
}

//! Online aggregation of experts: a weighted combination of all methods.
//!
//! Under squared error, the combination is Bernstein online aggregation. Under absolute error, four
//! parts (aggregation with and without clipped losses, and weighted medians with a short and a long
//! memory) are combined by a further weighted median (`docs/spec/full.md`, the rule).

mod aggregation;
mod power_weights;

use barograph_lanes::Lanes;

pub(crate) use aggregation::{BernsteinAggregation, Gradient, exp_of_negative};
pub(crate) use power_weights::{PowerWeights, weighted_median};

use super::{CombinationRule, CombinedForecast, argmax};
use crate::method_sets::Classes;

/// The blend of `M` methods.
#[derive(Clone, Debug)]
pub(crate) struct Blend<const M: usize> {
    squared: BernsteinAggregation<M>,
    absolute: [BernsteinAggregation<M>; 2],
    fast: PowerWeights<M>,
    slow: PowerWeights<M>,
    /// Forecasts of the four parts for absolute error: the two parts of `absolute`, then `fast` and
    /// `slow`. `combiner` has the weights of the four parts.
    rules: [f64; 4],
    combiner: PowerWeights<4>,
    /// Factor of the first method's weight in forecasts. The factor is 1 after the first
    /// [`START_COUNT`] values.
    emphasis: f64,
    starts_at_first: bool,
}

impl<const M: usize> Blend<M> {
    pub(crate) fn new() -> Self {
        Self {
            squared: BernsteinAggregation::new(Gradient::Error, SQUARED_CLIP),
            absolute: [
                BernsteinAggregation::new(Gradient::Sign, f64::INFINITY),
                BernsteinAggregation::new(Gradient::Sign, CLIP),
            ],
            fast: PowerWeights::new(FAST_FADE),
            slow: PowerWeights::new(SLOW_FADE),
            rules: [0.0; 4],
            combiner: PowerWeights::new(1.0),
            emphasis: 1.0,
            starts_at_first: false,
        }
    }

    /// Creates a blend that favours the first method, Last Value, while the weights are based on
    /// few values.
    pub(crate) fn starting_at_first() -> Self {
        Self { starts_at_first: true, ..Self::new() }
    }
}

impl<const M: usize> CombinationRule<M> for Blend<M> {
    fn observe<L: Lanes>(&mut self, _lanes: L, number: u64, predictions: &[f64; M], value: f64) {
        if number == 0 {
            return;
        }
        self.combiner.observe::<64>(&self.rules.map(|rule| (rule - value).abs()));
        let losses = predictions.map(|prediction| (prediction - value).abs());
        self.fast.observe::<16>(&losses);
        self.slow.observe::<64>(&losses);
        self.squared.observe(number, predictions, value);
        for aggregation in &mut self.absolute {
            aggregation.observe(number, predictions, value);
        }
        self.emphasis = if self.starts_at_first { emphasis(number + 1) } else { 1.0 };
    }

    fn combine(&mut self, predictions: &[f64; M], _: Classes) -> [CombinedForecast; 2] {
        let order = sorted_by_value(predictions);
        let emphasis = self.emphasis;
        let squared = self.squared.combine(predictions, emphasis);
        let [plain, clipped] = &mut self.absolute;
        self.rules = [
            plain.combine(predictions, emphasis),
            clipped.combine(predictions, emphasis),
            weighted_median(predictions, &emphasised(self.fast.weights(), emphasis), &order),
            weighted_median(predictions, &emphasised(self.slow.weights(), emphasis), &order),
        ];
        let absolute = weighted_median(&self.rules, self.combiner.weights(), &sorted_by_value(&self.rules));
        [
            blended(squared, &emphasised(self.squared.weights(), emphasis)),
            blended(absolute, &self.absolute_weights()),
        ]
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn weights(&self, objective: usize) -> [f64; M] {
        let weights = match objective {
            0 => emphasised(self.squared.weights(), self.emphasis),
            _ => self.absolute_weights(),
        };
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    }
}

impl<const M: usize> Blend<M> {
    /// Returns, for each method, the sum of its normalised weights in the four rules, each
    /// multiplied by the weight of the rule. These sums do not add up to 1.
    fn absolute_weights(&self) -> [f64; M] {
        let rules = self.combiner.weights();
        let [plain, clipped] = &self.absolute;
        let emphasised = |weights| emphasised(weights, self.emphasis);
        let (plain, clipped) = (emphasised(plain.weights()), emphasised(clipped.weights()));
        let (fast, slow) = (emphasised(self.fast.weights()), emphasised(self.slow.weights()));
        let shares = core::array::from_fn::<f64, 4, _>(|i| {
            rules[i] / [&plain, &clipped, &fast, &slow][i].iter().sum::<f64>()
        });
        core::array::from_fn(|i| {
            shares[0] * plain[i] + shares[1] * clipped[i] + shares[2] * fast[i] + shares[3] * slow[i]
        })
    }
}

/// Returns the forecast of a blend, with the method that has the largest weight.
pub(super) fn blended<const M: usize>(value: f64, weights: &[f64; M]) -> CombinedForecast {
    let method = argmax(weights);
    CombinedForecast { value, method, weight: Some(weights[method % M] / weights.iter().sum::<f64>()) }
}

/// Returns `weights` with the first weight multiplied by `emphasis`. The sum of the weights
/// changes.
pub(super) fn emphasised<const M: usize>(weights: &[f64; M], emphasis: f64) -> [f64; M] {
    let mut weights = *weights;
    weights[0] *= emphasis;
    weights
}

/// Factor of the first method's weight after `count` values.
fn emphasis(count: u64) -> f64 {
    let left = (1.0 - count as f64 / START_COUNT).max(0.0);
    1.0 + START_EMPHASIS * left * left
}

/// Indices of the values in ascending order; equal values keep their order.
///
/// The function compares every pair of values, without branches. The comparison of all pairs is
/// faster than a sort, because the branches of a sort are unpredictable here.
pub(crate) fn sorted_by_value<const N: usize>(values: &[f64; N]) -> [u8; N] {
    let mut ranks = [0u64; N];
    for i in 1..N {
        for j in 0..i {
            let before = values[i] < values[j];
            ranks[j] += u64::from(before);
            ranks[i] += u64::from(!before);
        }
    }
    let mut order = [0; N];
    for (index, rank) in ranks.iter().enumerate() {
        order[*rank as usize % N] = index as u8;
    }
    order
}

// Constants of the rule in `docs/spec/full.md`: losses clipped at 10 scales; half-lives of 20 and
// 500 values, 2^(−1/20) and 2^(−1/500).
const CLIP: f64 = 10.0;
/// Bound of regrets of squared error, in scales. The sums contain fourth powers of the error and
/// never decrease, so one extreme outlier would make all weights equal for ever. A bound of 50
/// scales does not change the tails of real series.
const SQUARED_CLIP: f64 = 50.0;
// Constants of the start of the rule in `docs/spec/full.md`. Weights learned from a few values are
// mostly chance. Over the first ten values, the method Last Value was better than the blend by an
// eighth.
const START_COUNT: f64 = 16.0;
const START_EMPHASIS: f64 = 30.0;
pub(super) const FAST_FADE: f64 = 0.965_936_328_924_845_5;
pub(super) const SLOW_FADE: f64 = 0.998_614_665_550_938_1;

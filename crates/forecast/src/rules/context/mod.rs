//! The blend by context: weights of their own for each class of the last values.
//!
//! After a large step, other methods forecast well than on a calm series. A context sorts the
//! moments into classes, and the weights of a class learn only from the values that followed its
//! moments (`docs/spec/full.md`, the rule).

mod aggregation;

use barograph_lanes::Lanes;

use aggregation::CompactAggregation;

use super::blend::{
    BernsteinAggregation, FAST_FADE, Gradient, PowerWeights, SLOW_FADE, blended, emphasised, sorted_by_value,
    weighted_median,
};
use super::{CombinationRule, CombinedForecast};
use crate::method_sets::{CLASSES, CONTEXTS, Classes};

/// The blend of `M` methods by context; `P` is `M`, rounded up to a multiple of four.
#[derive(Clone, Debug)]
pub(crate) struct ContextBlend<const M: usize, const P: usize> {
    squared: Aggregations<P>,
    absolute: Aggregations<P>,
    /// Combines the three forecasts of `squared`.
    top: BernsteinAggregation<PARTS>,
    means: [f64; PARTS],
    fast: PowerWeights<M>,
    slow: PowerWeights<M>,
    /// Forecasts of the five parts for absolute error: the three of `absolute`, then `fast` and
    /// `slow`. `combiner` has the weights of the five parts.
    medians: [f64; PARTS + 2],
    combiner: PowerWeights<{ PARTS + 2 }>,
    last: f64,
    /// The methods' forecasts minus the last value.
    offsets: [f64; P],
    classes: Classes,
    emphasis: f64,
}

impl<const M: usize, const P: usize> ContextBlend<M, P> {
    pub(crate) fn new() -> Self {
        const { assert!(P == M.next_multiple_of(4)) }
        Self {
            squared: Aggregations::new(M, Gradient::Error, SQUARED_CLIP, SQUARED_CLIP),
            absolute: Aggregations::new(M, Gradient::Sign, ABSOLUTE_CLIP, CLASS_ABSOLUTE_CLIP),
            top: BernsteinAggregation::new(Gradient::Error, f64::from(SQUARED_CLIP)),
            means: [0.0; PARTS],
            fast: PowerWeights::new(FAST_FADE),
            slow: PowerWeights::new(SLOW_FADE),
            medians: [0.0; PARTS + 2],
            combiner: PowerWeights::new(SLOW_FADE),
            last: 0.0,
            offsets: [0.0; P],
            classes: [0; CONTEXTS],
            emphasis: 1.0,
        }
    }
}

impl<const M: usize, const P: usize> CombinationRule<M> for ContextBlend<M, P> {
    fn observe<L: Lanes>(&mut self, _lanes: L, number: u64, predictions: &[f64; M], value: f64) {
        if number == 0 {
            return;
        }
        self.combiner.observe::<64>(&self.medians.map(|median| (median - value).abs()));
        self.top.observe(number, &self.means, value);
        let losses = predictions.map(|prediction| (prediction - value).abs());
        self.fast.observe::<16>(&losses);
        self.slow.observe::<64>(&losses);
        let offset = value - self.last;
        self.squared.learn(&self.offsets, self.classes, offset);
        self.absolute.learn(&self.offsets, self.classes, offset);
        self.emphasis = emphasis(number + 1);
    }

    fn combine(&mut self, predictions: &[f64; M], classes: Classes) -> [CombinedForecast; 2] {
        self.last = predictions[0];
        self.classes = classes;
        for (offset, prediction) in self.offsets.iter_mut().zip(predictions) {
            *offset = prediction - self.last;
        }
        let emphasis = self.emphasis;
        let last = self.last;
        self.means = self.squared.combine(&self.offsets, classes, emphasis).map(|offset| last + offset);
        let medians = self.absolute.combine(&self.offsets, classes, emphasis).map(|offset| last + offset);
        let order = sorted_by_value(predictions);
        let [fast, slow] = [&self.fast, &self.slow]
            .map(|rule| weighted_median(predictions, &emphasised(rule.weights(), emphasis), &order));
        self.medians[..PARTS].copy_from_slice(&medians);
        self.medians[PARTS..].copy_from_slice(&[fast, slow]);
        let mean = self.top.combine(&self.means, 1.0);
        let median = weighted_median(&self.medians, &self.median_shares(), &sorted_by_value(&self.medians));
        [blended(mean, &self.mean_weights()), blended(median, &self.median_weights())]
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn weights(&self, objective: usize) -> [f64; M] {
        let weights = if objective == 0 { self.mean_weights() } else { self.median_weights() };
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    }
}

impl<const M: usize, const P: usize> ContextBlend<M, P> {
    /// The weights of the methods in the forecast for squared error, times a constant.
    fn mean_weights(&self) -> [f64; M] {
        self.squared.weights(self.classes, self.top.weights(), self.emphasis)
    }

    /// The weights of the five parts for absolute error: those of `combiner`, or 0 for a class that
    /// has learned few values.
    fn median_shares(&self) -> [f64; PARTS + 2] {
        let mut shares = *self.combiner.weights();
        for (i, share) in shares[1..PARTS].iter_mut().enumerate() {
            if !self.absolute.class(i, self.classes).is_reliable() {
                *share = 0.0;
            }
        }
        shares
    }

    /// Returns, for each method, the sum of its normalised weights in the five parts, each
    /// multiplied by the weight of the part.
    fn median_weights(&self) -> [f64; M] {
        let [plain, first, second, fast_share, slow_share] = self.median_shares();
        let mut weights = self.absolute.weights(self.classes, &[plain, first, second], self.emphasis);
        for (rule, share) in [(&self.fast, fast_share), (&self.slow, slow_share)] {
            let rule = emphasised(rule.weights(), self.emphasis);
            let share = share / rule.iter().sum::<f64>();
            for (weight, method) in weights.iter_mut().zip(&rule) {
                *weight += share * method;
            }
        }
        weights
    }
}

/// One aggregation for all moments, and one for each class of each context.
#[derive(Clone, Debug)]
struct Aggregations<const P: usize> {
    plain: CompactAggregation<P>,
    by_class: [[CompactAggregation<P>; CLASSES]; CONTEXTS],
}

impl<const P: usize> Aggregations<P> {
    fn new(methods: usize, gradient: Gradient, clip: f32, class_clip: f32) -> Self {
        let class = || CompactAggregation::new(methods, gradient, class_clip);
        Self {
            plain: CompactAggregation::new(methods, gradient, clip),
            by_class: core::array::from_fn(|_| core::array::from_fn(|_| class())),
        }
    }

    /// Updates the aggregations that were in force for the last forecast.
    fn learn(&mut self, offsets: &[f64; P], classes: Classes, value: f64) {
        self.plain.learn(offsets, value);
        for (by_class, class) in self.by_class.iter_mut().zip(classes) {
            by_class[usize::from(class) % CLASSES].learn(offsets, value);
        }
    }

    fn class(&self, context: usize, classes: Classes) -> &CompactAggregation<P> {
        &self.by_class[context][usize::from(classes[context]) % CLASSES]
    }

    /// Combined offsets: of the aggregation for all moments, then of each context. A class that has
    /// learned few values is replaced by the aggregation for all moments.
    fn combine(&mut self, offsets: &[f64; P], classes: Classes, emphasis: f64) -> [f64; PARTS] {
        let mut combined = [self.plain.combine(offsets, emphasis); PARTS];
        for (i, class) in classes.into_iter().enumerate() {
            let class = &mut self.by_class[i][usize::from(class) % CLASSES];
            let offset = class.combine(offsets, emphasis);
            if class.is_reliable() {
                combined[1 + i] = offset;
            }
        }
        combined
    }

    /// The sum of the weights that `combine` used, each multiplied by the share of its part.
    fn weights<const M: usize>(&self, classes: Classes, shares: &[f64; PARTS], emphasis: f64) -> [f64; M] {
        let mut weights = [0.0; M];
        let mut add = |aggregation: &CompactAggregation<P>, share: f64| {
            let share = share / (1.0 + (emphasis - 1.0) * f64::from(aggregation.weights()[0]));
            for (sum, weight) in weights.iter_mut().zip(aggregation.weights()) {
                *sum += share * f64::from(*weight);
            }
        };
        add(&self.plain, shares[0]);
        for (i, share) in shares[1..].iter().enumerate() {
            let class = self.class(i, classes);
            add(if class.is_reliable() { class } else { &self.plain }, *share);
        }
        emphasised(&weights, emphasis)
    }
}

/// Factor of the first method's weight after `count` values.
fn emphasis(count: u64) -> f64 {
    let left = (1.0 - count as f64 / START_COUNT).max(0.0);
    1.0 + START_EMPHASIS * left * left
}

/// Number of aggregations that are combined for one objective.
const PARTS: usize = 1 + CONTEXTS;

// Constants of the rule in `docs/spec/full.md`.
const SQUARED_CLIP: f32 = 50.0;
const ABSOLUTE_CLIP: f32 = 10.0;
const CLASS_ABSOLUTE_CLIP: f32 = 20.0;
// Weights learned from a few values are mostly chance.
const START_COUNT: f64 = 20.0;
const START_EMPHASIS: f64 = 40.0;

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_lanes::Portable;

    /// In each class another method is right. One set of weights for both would forecast 0.5.
    #[test]
    fn each_class_learns_weights_of_its_own() {
        let predictions = [0.0, 1.0];
        for context in 0..CONTEXTS {
            let mut rule = ContextBlend::<2, 4>::new();
            for number in 0..400 {
                let right = usize::from(number % 2 == 1);
                let mut classes = [1; CONTEXTS];
                classes[context] = 2 * right as u8;
                let forecasts = rule.combine(&predictions, classes);
                if number > 200 {
                    for forecast in forecasts {
                        assert!((forecast.value - predictions[right]).abs() < 0.1, "{number}: {forecast:?}");
                        assert_eq!(forecast.method, right, "{number}: {forecast:?}");
                    }
                }
                rule.observe(Portable, number, &predictions, predictions[right]);
            }
        }
    }
}

//! Online aggregation of experts: every method speaks, weighted by what it has been worth.
//!
//! Under squared error, Bernstein online aggregation alone; under absolute error, four rules
//! (aggregation with and without clipped losses, and weighted medians with a short and a long
//! memory) that are combined in turn by a weighted median (`docs/spec/full.md`, the rule).

mod aggregation;
mod power;

use aggregation::{Aggregation, Gradient};
use power::{Power, weighted_median};

use super::{Choice, Choose, most};

/// The blend of `M` methods.
#[derive(Clone, Debug)]
pub(crate) struct Blend<const M: usize> {
    squared: Aggregation<M>,
    absolute: [Aggregation<M>; 2],
    quick: Power<M>,
    steady: Power<M>,
    /// The four rules' forecasts under absolute error, and who of them has been right.
    rules: [f64; 4],
    combiner: Power<4>,
}

impl<const M: usize> Choose<M> for Blend<M> {
    fn new() -> Self {
        Self {
            squared: Aggregation::new(Gradient::Error, SQUARED_CLIP),
            absolute: [
                Aggregation::new(Gradient::Sign, f64::INFINITY),
                Aggregation::new(Gradient::Sign, CLIP),
            ],
            quick: Power::new(QUICK_FADE),
            steady: Power::new(STEADY_FADE),
            rules: [0.0; 4],
            combiner: Power::new(1.0),
        }
    }

    fn observe(&mut self, number: u64, predictions: &[f64; M], value: f64) {
        if number == 0 {
            return;
        }
        self.combiner.observe::<64>(&self.rules.map(|rule| (rule - value).abs()));
        let losses = predictions.map(|prediction| (prediction - value).abs());
        self.quick.observe::<16>(&losses);
        self.steady.observe::<64>(&losses);
        self.squared.observe(number, predictions, value);
        for aggregation in &mut self.absolute {
            aggregation.observe(number, predictions, value);
        }
    }

    fn choose(&mut self, predictions: &[f64; M]) -> [Choice; 2] {
        let order = sorted_by_value(predictions);
        let squared = self.squared.combine(predictions);
        let [plain, clipped] = &mut self.absolute;
        self.rules = [
            plain.combine(predictions),
            clipped.combine(predictions),
            weighted_median(predictions, self.quick.weights(), &order),
            weighted_median(predictions, self.steady.weights(), &order),
        ];
        let absolute = weighted_median(&self.rules, self.combiner.weights(), &sorted_by_value(&self.rules));
        [
            Choice { value: squared, method: most(self.squared.weights()) },
            Choice { value: absolute, method: most(&self.absolute_weights()) },
        ]
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn weights(&self, loss: usize) -> [f64; M] {
        let weights = if loss == 0 { *self.squared.weights() } else { self.absolute_weights() };
        let sum: f64 = weights.iter().sum();
        weights.map(|weight| weight / sum)
    }
}

impl<const M: usize> Blend<M> {
    /// Each method's weight within the four rules, by the rules' own weights; the sum is not 1.
    fn absolute_weights(&self) -> [f64; M] {
        let rules = self.combiner.weights();
        let [plain, clipped] = &self.absolute;
        let (quick, steady) = (self.quick.weights(), self.steady.weights());
        let shares =
            [rules[0], rules[1], rules[2] / quick.iter().sum::<f64>(), rules[3] / steady.iter().sum::<f64>()];
        let (plain, clipped) = (plain.weights(), clipped.weights());
        core::array::from_fn(|i| {
            shares[0] * plain[i] + shares[1] * clipped[i] + shares[2] * quick[i] + shares[3] * steady[i]
        })
    }
}

/// The places of values, least value first; ties go to the first.
///
/// Every pair is compared: that is quicker than a sort that stops early where nobody can foretell.
fn sorted_by_value<const N: usize>(values: &[f64; N]) -> [u8; N] {
    let mut ranks = [0u64; N];
    for i in 1..N {
        for j in 0..i {
            let before = values[i] < values[j];
            ranks[j] += u64::from(before);
            ranks[i] += u64::from(!before);
        }
    }
    let mut order = [0; N];
    for (place, rank) in ranks.iter().enumerate() {
        order[*rank as usize % N] = place as u8;
    }
    order
}

// `docs/spec/full.md`, the rule: losses clipped at 10 scales; half-lives of 20 and 500 values,
// 2^(−1/20) and 2^(−1/500).
const CLIP: f64 = 10.0;
/// Regrets of squared error are summed as fourth powers of the error and never forgotten, so one
/// outlier beyond all measure would level the weights for ever; 50 scales leave real tails alone.
const SQUARED_CLIP: f64 = 50.0;
const QUICK_FADE: f64 = 0.965_936_328_924_845_5;
const STEADY_FADE: f64 = 0.998_614_665_550_938_1;

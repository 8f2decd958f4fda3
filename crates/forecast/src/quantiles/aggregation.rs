//! Bernstein online aggregation of the candidates for quantiles, under pinball loss.

use libm::{log, sqrt};

use super::{MEDIAN, QUANTILE_SHARES, SHARE_COUNT};
use crate::rules::exp_of_negative;

/// The aggregation of `C` candidates for each of [`QUANTILE_SHARES`], as in `rules/blend`
/// (Wintenberger 2017), but with the gradient of the pinball loss.
#[derive(Clone, Debug)]
pub(super) struct QuantileAggregation<const C: usize> {
    count: u64,
    log_count: f64,
    shares: [ShareAggregation<C>; SHARE_COUNT],
}

/// The aggregation for one share.
#[derive(Clone, Copy, Debug)]
struct ShareAggregation<const C: usize> {
    share: f64,
    /// Mean distance between the values and the quantile.
    scale: f64,
    /// Weight of candidate 0 before the first value, relative to the other candidates.
    prior: f64,
    weights: [f64; C],
    rates: [f64; C],
    /// In the order of the three fields: Σ (regret − η regret²); Σ regret²; the largest |regret|.
    advantage: [f64; C],
    variance: [f64; C],
    largest: [f64; C],
}

impl<const C: usize> QuantileAggregation<C> {
    pub(super) fn new() -> Self {
        let shares = core::array::from_fn(|i| {
            ShareAggregation::new(QUANTILE_SHARES[i], if i == MEDIAN { MEDIAN_PRIOR } else { 1.0 })
        });
        Self { count: 0, log_count: log(C as f64), shares }
    }

    /// For each share: the weighted mean of its candidates.
    pub(super) fn combine(&self, candidates: &[[f64; C]; SHARE_COUNT]) -> [f64; SHARE_COUNT] {
        core::array::from_fn(|i| {
            let mut sum = 0.0;
            for (candidate, weight) in candidates[i].iter().zip(&self.shares[i].weights) {
                sum += candidate * weight;
            }
            sum
        })
    }

    /// Updates the weights with `value` and the candidates that were combined to `combined`.
    pub(super) fn learn(
        &mut self,
        candidates: &[[f64; C]; SHARE_COUNT],
        combined: &[f64; SHARE_COUNT],
        value: f64,
    ) {
        self.count += 1;
        for (i, share) in self.shares.iter_mut().enumerate() {
            let is_turn = self.count < ALL_UNTIL || (self.count + i as u64).is_multiple_of(TURNS);
            share.learn(self.count, &candidates[i], combined[i], value, self.log_count, is_turn);
        }
    }
}

impl<const C: usize> ShareAggregation<C> {
    fn new(share: f64, prior: f64) -> Self {
        let mut weights = [1.0 / (prior + (C - 1) as f64); C];
        weights[0] *= prior;
        Self {
            share,
            scale: 0.0,
            prior,
            weights,
            rates: [0.0; C],
            advantage: [0.0; C],
            variance: [0.0; C],
            largest: [0.0; C],
        }
    }

    /// Adds each candidate's regret. If it is the share's turn, or if a regret is large, learning
    /// rates and weights are computed, too.
    fn learn(
        &mut self,
        count: u64,
        candidates: &[f64; C],
        combined: f64,
        value: f64,
        log_count: f64,
        is_turn: bool,
    ) {
        let bound = if count > BURN_IN && self.scale > 0.0 { CLIP * self.scale } else { f64::INFINITY };
        let size = (combined - value).abs();
        let gain = SCALE_GAIN.max(1.0 / count as f64);
        self.scale += gain * (if size < bound { size } else { bound } - self.scale);
        // A value that equals the quantile says nothing about it.
        if value == combined {
            return;
        }
        let slope = if value < combined { 1.0 - self.share } else { -self.share };
        let mut regrets = [0.0; C];
        let mut most = 0.0;
        for i in 0..C {
            let distance = combined - candidates[i];
            let distance = if bound < distance { bound } else { distance };
            let distance = if distance < -bound { -bound } else { distance };
            regrets[i] = slope * distance;
            self.variance[i] += regrets[i] * regrets[i];
            self.largest[i] = greater(self.largest[i], regrets[i].abs());
            most = greater(most, self.rates[i] * regrets[i].abs());
        }
        // With the rates of this value, no product of rate and regret would exceed ½.
        let is_computed = is_turn || most > 0.5;
        if is_computed {
            self.update_rates(log_count);
        }
        for (i, regret) in regrets.iter().enumerate() {
            self.advantage[i] += regret - self.rates[i] * regret * regret;
        }
        if is_computed {
            self.update_weights();
        }
    }

    fn update_rates(&mut self, log_count: f64) {
        let (mut variance_min, mut largest_min) = (0.0, 0.0);
        for i in 0..C {
            variance_min = greater(variance_min, self.variance[i]);
            largest_min = greater(largest_min, self.largest[i]);
        }
        variance_min = greater(REGRET_SHARE_MIN * REGRET_SHARE_MIN * variance_min, f64::MIN_POSITIVE);
        largest_min = greater(REGRET_SHARE_MIN * largest_min, f64::MIN_POSITIVE);
        for i in 0..C {
            self.rates[i] = log_count / greater(self.variance[i], variance_min);
        }
        self.rates = self.rates.map(sqrt);
        for i in 0..C {
            let bound = 0.5 / greater(self.largest[i], largest_min);
            self.rates[i] = if bound < self.rates[i] { bound } else { self.rates[i] };
        }
    }

    /// Weights ∝ prior · η exp(η · advantage), with the learning rate η.
    fn update_weights(&mut self) {
        let exponents: [f64; C] = core::array::from_fn(|i| self.rates[i] * self.advantage[i]);
        let most = exponents.iter().fold(f64::NEG_INFINITY, |most, exponent| greater(most, *exponent));
        for (i, exponent) in exponents.iter().enumerate() {
            self.weights[i] = self.rates[i] * exp_of_negative(exponent - most);
        }
        self.weights[0] *= self.prior;
        let mut sum = 0.0;
        for weight in &self.weights {
            sum += weight;
        }
        for weight in &mut self.weights {
            *weight /= sum;
        }
    }
}

fn greater(a: f64, b: f64) -> f64 {
    if a < b { b } else { a }
}

/// Prior weight of candidate 0 at the median, where that candidate is the forecast for least
/// absolute error: the other candidates need evidence, or the median would lose half a percent.
const MEDIAN_PRIOR: f64 = 100.0;
/// From this number of values on, the weights of a share are computed at every third value. They
/// change slowly by then, and they take most of the time.
const ALL_UNTIL: u64 = 100;
const TURNS: u64 = 3;
// Constants as in `rules/blend/aggregation.rs`, with the clip of squared error.
const CLIP: f64 = 50.0;
const BURN_IN: u64 = 20;
const SCALE_GAIN: f64 = 0.01;
const REGRET_SHARE_MIN: f64 = 1e-3;

//! Bernstein online aggregation (Wintenberger 2017, "Optimal learning with Bernstein online
//! aggregation", Machine Learning 106), with a learning rate for every method.

use libm::{log, sqrt};

use crate::methods::limited;

/// The gradient of the error measure that the aggregation minimises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gradient {
    /// Gradient of the squared error: the error itself.
    Error,
    /// Gradient of the absolute error: the sign of the error.
    Sign,
}

/// The aggregation of `M` methods.
#[derive(Clone, Debug)]
pub(crate) struct BernsteinAggregation<const M: usize> {
    gradient: Gradient,
    /// Bound of regrets, in scales of the error.
    clip: f64,
    /// The logarithm of the number of methods, and the greatest product of a learning rate and a
    /// regret: 1/2. Both are divided by the number of forecasts between a forecast and its value.
    log_count: f64,
    rate_max: f64,
    scale: f64,
    combined: f64,
    weights: [f64; M],
    /// For each method, in the order of the three fields: Σ (regret − η regret²); Σ regret²; the
    /// largest |regret|.
    advantage: [f64; M],
    variance: [f64; M],
    largest: [f64; M],
}

impl<const M: usize> BernsteinAggregation<M> {
    pub(crate) fn new(gradient: Gradient, clip: f64) -> Self {
        Self {
            gradient,
            clip,
            log_count: log(M as f64),
            rate_max: 0.5,
            scale: 0.0,
            combined: 0.0,
            weights: [1.0 / M as f64; M],
            advantage: [0.0; M],
            variance: [0.0; M],
            largest: [0.0; M],
        }
    }

    /// An aggregation that learns each value `delay` forecasts after the forecast of that value.
    /// Regrets of overlapping windows are similar, so `delay` of them count as one.
    pub(crate) fn delayed(gradient: Gradient, clip: f64, delay: f64) -> Self {
        let next = Self::new(gradient, clip);
        Self { log_count: next.log_count / delay, rate_max: next.rate_max / delay, ..next }
    }

    /// The weighted mean of the predictions.
    pub(crate) fn mean_of(&self, predictions: &[f64; M]) -> f64 {
        predictions.iter().zip(&self.weights).map(|(p, w)| p * w).sum()
    }

    /// The weighted mean of the predictions, with the first method's weight multiplied by
    /// `emphasis`.
    ///
    /// Regrets refer to the mean without emphasis, so that the emphasis at the start does not
    /// change what is learned.
    pub(crate) fn combine(&mut self, predictions: &[f64; M], emphasis: f64) -> f64 {
        self.combined = self.mean_of(predictions);
        if emphasis == 1.0 {
            return self.combined;
        }
        let added = (emphasis - 1.0) * self.weights[0];
        (self.combined + added * predictions[0]) / (1.0 + added)
    }

    /// Updates the regrets with `value` and the predictions combined last. `number` is the index of
    /// the value in the series, from 0.
    pub(crate) fn observe(&mut self, number: u64, predictions: &[f64; M], value: f64) {
        self.learn(number, self.combined, predictions, value);
    }

    /// Updates the regrets with `value` and the predictions that were combined to `combined`.
    pub(crate) fn learn(&mut self, number: u64, combined: f64, predictions: &[f64; M], value: f64) {
        let error = combined - value;
        let bound = if number > BURN_IN && self.scale > 0.0 { self.clip * self.scale } else { f64::INFINITY };
        let gradient = match self.gradient {
            Gradient::Error => limited(error, -bound, bound),
            Gradient::Sign if error == 0.0 => 0.0,
            Gradient::Sign => 1f64.copysign(error),
        };
        self.learn_scale(number, error.abs().min(bound));
        let eta = self.learn_regrets(combined, predictions, gradient, bound);
        self.update_weights(&eta);
    }

    /// The weights; their sum is 1.
    pub(crate) fn weights(&self) -> &[f64; M] {
        &self.weights
    }

    fn learn_scale(&mut self, number: u64, size: f64) {
        self.scale += SCALE_GAIN.max(1.0 / number as f64) * (size - self.scale);
    }

    /// Adds each method's regret, and returns the learning rates.
    ///
    /// Each step is a loop of its own, so that the compiler vectorises every loop except the loop
    /// of the square roots. A square root is a function call.
    fn learn_regrets(
        &mut self,
        combined: f64,
        predictions: &[f64; M],
        gradient: f64,
        bound: f64,
    ) -> [f64; M] {
        let mut regrets = [0.0; M];
        for i in 0..M {
            let distance = max_of_numbers(min_of_numbers(combined - predictions[i], bound), -bound);
            regrets[i] = gradient * distance;
            self.variance[i] += regrets[i] * regrets[i];
            self.largest[i] = max_of_numbers(self.largest[i], regrets[i].abs());
        }
        let variance_min =
            (REGRET_SHARE_MIN * REGRET_SHARE_MIN * max_in_lanes(&self.variance)).max(f64::MIN_POSITIVE);
        let largest_min = (REGRET_SHARE_MIN * max_in_lanes(&self.largest)).max(f64::MIN_POSITIVE);
        let mut eta = self.variance.map(|variance| self.log_count / max_of_numbers(variance, variance_min));
        for rate in &mut eta {
            *rate = sqrt(*rate);
        }
        for i in 0..M {
            eta[i] = min_of_numbers(eta[i], self.rate_max / max_of_numbers(self.largest[i], largest_min));
            self.advantage[i] += regrets[i] - eta[i] * regrets[i] * regrets[i];
        }
        eta
    }

    /// Weights ∝ η exp(η · advantage).
    fn update_weights(&mut self, eta: &[f64; M]) {
        let mut exponents = [0.0; M];
        for i in 0..M {
            exponents[i] = eta[i] * self.advantage[i];
        }
        let most = max_in_lanes(&exponents);
        weigh(&mut self.weights, eta, &exponents, most);
        // The sum is not computed in the loop above, because a sum in fixed order would prevent the
        // vectorisation of the loop.
        let sum: f64 = self.weights.iter().sum();
        for weight in &mut self.weights {
            *weight /= sum;
        }
    }
}

/// Computes η exp(exponent − most) of each method.
// Not inlined: in a large function the compiler unrolls the loop and does not vectorise it. `full`
// was then a seventh slower.
#[inline(never)]
fn weigh<const M: usize>(weights: &mut [f64; M], eta: &[f64; M], exponents: &[f64; M], most: f64) {
    for i in 0..M {
        weights[i] = eta[i] * exp_of_negative(exponents[i] - most);
    }
}

/// The greatest value, found in four lanes; the values must not be NaN.
fn max_in_lanes<const M: usize>(values: &[f64; M]) -> f64 {
    let mut lanes = [f64::NEG_INFINITY; 4];
    for values in values.chunks(4) {
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = max_of_numbers(*lane, *value);
        }
    }
    max_of_numbers(max_of_numbers(lanes[0], lanes[1]), max_of_numbers(lanes[2], lanes[3]))
}

/// Like `f64::max`, but without the handling of NaN. That handling takes several instructions.
fn max_of_numbers(a: f64, b: f64) -> f64 {
    if a < b { b } else { a }
}

fn min_of_numbers(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

/// Returns e^x for x ≤ 0, with a relative error below 1e-13; returns 0 for x ≤ −700. The
/// computation consists of sums and products. So the compiler vectorises the computation, and every
/// target gives the same bits.
pub(crate) fn exp_of_negative(x: f64) -> f64 {
    // Adding 1.5·2^52 to a number rounds the number to an integer. The low bits of the sum contain
    // this integer.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LOG2_E: f64 = core::f64::consts::LOG2_E;
    // ln 2 as the sum of two parts. The first part is exact in 32 bits (Cody & Waite 1980).
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let bounded = if x > -700.0 { x } else { -700.0 };
    let shifted = bounded * LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = bounded - whole * LN2_HIGH - whole * LN2_LOW;
    // Taylor's series to r^11 / 11!, |r| ≤ 0.347.
    let mut sum = 1.0 / 39_916_800.0;
    for coefficient in [
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * r + coefficient;
    }
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    if x > -700.0 { sum * power } else { 0.0 }
}

// Constants of the rule in `docs/spec/full.md`: clipping from value 21 on, in units of scales that
// are updated with gain 0.01.
const BURN_IN: u64 = 20;
const SCALE_GAIN: f64 = 0.01;
/// The smallest |regret| that is used for a method, as a share of the largest regret of all
/// methods. Without this bound, a method that hardly differed from the blend would have an
/// unbounded learning rate, and would keep all the weight.
const REGRET_SHARE_MIN: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::exp_of_negative;

    #[test]
    fn fast_exponential_agrees_with_libm() {
        for i in 0..70_000 {
            let x = -f64::from(i) / 100.0;
            let exact = libm::exp(x);
            assert!((exp_of_negative(x) - exact).abs() <= 1e-13 * exact, "{x}");
        }
        assert_eq!(exp_of_negative(-1e300), 0.0);
    }
}

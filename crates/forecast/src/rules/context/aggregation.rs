//! Bernstein online aggregation in `f32`: half the memory and twice the lanes of
//! [`BernsteinAggregation`](crate::rules::blend::BernsteinAggregation).

use libm::log;

use crate::rules::blend::Gradient;

/// The aggregation of up to `P` methods; `P` is a multiple of four.
///
/// Errors and distances are in units of the aggregation's own scale, so that no series overflows an
/// `f32`. A regret is multiplied by the scale, relative to the first scale: errors of a time with
/// large errors count for more, but not by the square.
#[derive(Clone, Debug)]
pub(crate) struct CompactAggregation<const P: usize> {
    gradient: Gradient,
    /// Bound of errors and distances, in scales.
    clip: f32,
    /// 1 / ln(number of methods).
    inverse_log_count: f32,
    count: u32,
    /// Mean absolute error, and 1 / the first mean that was above 0; 0 before.
    scale: f64,
    inverse_first: f64,
    /// The combined forecast, as an offset from the last value.
    combined: f64,
    weights: [f32; P],
    /// For each method, in the order of the three fields: Σ (regret − η regret²); Σ regret²; the
    /// largest |regret|.
    advantage: [f32; P],
    variance: [f32; P],
    largest: [f32; P],
}

impl<const P: usize> CompactAggregation<P> {
    /// Creates an aggregation of the first `methods` of `P` lanes.
    pub(crate) fn new(methods: usize, gradient: Gradient, clip: f32) -> Self {
        const { assert!(P.is_multiple_of(4)) }
        // A lane without a method never gets a weight.
        let lane = |i| if i < methods { 0.0 } else { f32::NEG_INFINITY };
        let weight = |i| if i < methods { 1.0 / methods as f32 } else { 0.0 };
        Self {
            gradient,
            clip,
            inverse_log_count: (1.0 / log(methods as f64)) as f32,
            count: 0,
            scale: 0.0,
            inverse_first: 0.0,
            combined: 0.0,
            weights: core::array::from_fn(weight),
            advantage: core::array::from_fn(lane),
            variance: [0.0; P],
            largest: [0.0; P],
        }
    }

    /// The weighted mean of the methods' offsets from the last value. The offset of the first
    /// method, Last Value, is 0; `emphasis` multiplies its weight in the result, but not in what is
    /// learned.
    pub(crate) fn combine(&mut self, offsets: &[f64; P], emphasis: f64) -> f64 {
        let mut lanes = [0.0; 4];
        for (offsets, weights) in offsets.chunks_exact(4).zip(self.weights.chunks_exact(4)) {
            for lane in 0..4 {
                lanes[lane] += offsets[lane] * f64::from(weights[lane]);
            }
        }
        self.combined = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
        self.combined / (1.0 + (emphasis - 1.0) * f64::from(self.weights[0]))
    }

    /// Updates the regrets with the offset of the value that arrived, and the offsets that were
    /// combined last.
    pub(crate) fn learn(&mut self, offsets: &[f64; P], value: f64) {
        let error = self.combined - value;
        self.learn_scale(error.abs());
        if self.scale == 0.0 {
            return;
        }
        let inverse = (1.0 / self.scale).min(f64::MAX);
        let bound = if self.count > BURN_IN { self.clip } else { EARLY_CLIP };
        let gradient = match self.gradient {
            Gradient::Error => bounded((error * inverse) as f32, bound),
            Gradient::Sign if error == 0.0 => 0.0,
            Gradient::Sign => 1f32.copysign(error as f32),
        };
        let growth = (self.scale * self.inverse_first).clamp(1.0 / GROWTH_MAX, GROWTH_MAX) as f32;
        let mut regrets = [0.0; P];
        for (regret, offset) in regrets.iter_mut().zip(offsets) {
            *regret = ((self.combined - offset) * inverse) as f32;
        }
        for regret in &mut regrets {
            *regret = gradient * growth * bounded(*regret, bound);
        }
        let rates = self.learn_regrets(&regrets);
        self.update_weights(&rates);
    }

    /// The weights of all lanes; their sum is 1, except for rounding.
    pub(crate) fn weights(&self) -> &[f32; P] {
        &self.weights
    }

    /// Whether enough values were learned; before, the weights are mostly chance.
    pub(crate) fn is_reliable(&self) -> bool {
        self.count >= BURN_IN
    }

    fn learn_scale(&mut self, size: f64) {
        self.count = self.count.saturating_add(1);
        let bound = f64::from(self.clip) * self.scale;
        let size = if self.count > BURN_IN && self.scale > 0.0 && bound < size { bound } else { size };
        let gain = if self.count < GAIN_COUNT { 1.0 / f64::from(self.count) } else { SCALE_GAIN };
        self.scale += gain * (size - self.scale);
        if self.inverse_first == 0.0 && self.scale > 0.0 {
            self.inverse_first = (1.0 / self.scale).min(f64::MAX);
        }
    }

    /// Adds each method's regret, and returns the learning rates.
    fn learn_regrets(&mut self, regrets: &[f32; P]) -> [f32; P] {
        for (i, regret) in regrets.iter().enumerate() {
            self.variance[i] += regret * regret;
            self.largest[i] = max_of_numbers(self.largest[i], regret.abs());
        }
        let variance_min = max_of_numbers(VARIANCE_SHARE_MIN * max_in_lanes(&self.variance), SQUARE_MIN);
        let largest_min = REGRET_SHARE_MIN * max_in_lanes(&self.largest);
        let mut rates = [0.0; P];
        for (i, rate) in rates.iter_mut().enumerate() {
            let variance = max_of_numbers(self.variance[i], variance_min) * self.inverse_log_count;
            let largest = 2.0 * max_of_numbers(self.largest[i], largest_min);
            // The lesser of two rates, √(ln M / variance) and 1 / (2 · largest), without a
            // division.
            *rate = inverse_root(max_of_numbers(variance, largest * largest));
        }
        for i in 0..P {
            self.advantage[i] += regrets[i] - rates[i] * regrets[i] * regrets[i];
        }
        rates
    }

    /// Weights ∝ η exp(η · advantage).
    fn update_weights(&mut self, rates: &[f32; P]) {
        let mut exponents = [0.0; P];
        for i in 0..P {
            exponents[i] = rates[i] * self.advantage[i];
        }
        let most = max_in_lanes(&exponents);
        let mut sums = [0.0; 4];
        weigh(&mut self.weights, rates, &exponents, most);
        for weights in self.weights.chunks_exact(4) {
            for lane in 0..4 {
                sums[lane] += weights[lane];
            }
        }
        let inverse = 1.0 / ((sums[0] + sums[1]) + (sums[2] + sums[3]));
        for weight in &mut self.weights {
            *weight *= inverse;
        }
    }
}

/// Computes η exp(exponent − most) of each method.
// Not inlined: in a large function the compiler does not vectorise the loop.
#[inline(never)]
fn weigh<const P: usize>(weights: &mut [f32; P], rates: &[f32; P], exponents: &[f32; P], most: f32) {
    for i in 0..P {
        weights[i] = rates[i] * exp_of_negative(exponents[i] - most);
    }
}

fn bounded(value: f32, most: f32) -> f32 {
    max_of_numbers(min_of_numbers(value, most), -most)
}

/// Like `f32::max`, but without the handling of NaN.
fn max_of_numbers(a: f32, b: f32) -> f32 {
    if a < b { b } else { a }
}

fn min_of_numbers(a: f32, b: f32) -> f32 {
    if b < a { b } else { a }
}

/// The greatest value, found in four lanes; the values must not be NaN.
fn max_in_lanes<const P: usize>(values: &[f32; P]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 4];
    for values in values.chunks_exact(4) {
        for lane in 0..4 {
            lanes[lane] = max_of_numbers(lanes[lane], values[lane]);
        }
    }
    max_of_numbers(max_of_numbers(lanes[0], lanes[1]), max_of_numbers(lanes[2], lanes[3]))
}

/// Returns 1/√x for a normal x above 0, with a relative error below 1e-5. Only sums and products,
/// so the compiler vectorises it: an estimate from the exponent (Lomont 2003), and two steps of
/// Newton's method.
fn inverse_root(x: f32) -> f32 {
    let half = 0.5 * x;
    let mut root = f32::from_bits(0x5f37_59df - (x.to_bits() >> 1));
    root *= 1.5 - half * root * root;
    root * (1.5 - half * root * root)
}

/// Returns e^x for x ≤ 0, with a relative error below 1e-6; returns 0 for x ≤ −87. The `f32` twin
/// of the function in the blend.
fn exp_of_negative(x: f32) -> f32 {
    // Adding 1.5·2^23 to a number rounds the number to an integer. The low bits of the sum contain
    // this integer.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 as the sum of two parts. The first part is exact in 12 bits (Cody & Waite 1980).
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let bounded = if x > -87.0 { x } else { -87.0 };
    let shifted = bounded * core::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = bounded - whole * LN2_HIGH - whole * LN2_LOW;
    // Taylor's series to r^6 / 6!, |r| ≤ 0.347.
    let mut sum = 1.0 / 720.0;
    for coefficient in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * r + coefficient;
    }
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if x > -87.0 { sum * power } else { 0.0 }
}

// Constants of the rule in `docs/spec/full.md`: clipping from the 21st value on, in units of scales
// that are updated with gain 0.01.
const BURN_IN: u32 = 20;
const SCALE_GAIN: f64 = 0.01;
const GAIN_COUNT: u32 = 100;
/// Bound before the scale is known, in scales; it keeps squares of regrets below 1e20.
const EARLY_CLIP: f32 = 1e3;
/// Bound of a scale, relative to the first scale; it keeps sums of squares finite.
const GROWTH_MAX: f64 = 1e4;
/// The smallest |regret| that is used for a method, as a share of the largest regret of all
/// methods, and the same for Σ regret².
const REGRET_SHARE_MIN: f32 = 1e-3;
const VARIANCE_SHARE_MIN: f32 = 1e-6;
/// Least sum of squares: far below any that changes a weight.
const SQUARE_MIN: f32 = 1e-30;

#[cfg(test)]
mod tests {
    use super::{exp_of_negative, inverse_root};

    #[test]
    fn fast_functions_agree_with_libm() {
        for i in 0..87_000 {
            let x = -(i as f32) / 1000.0;
            let exact = libm::exp(f64::from(x));
            assert!((f64::from(exp_of_negative(x)) - exact).abs() <= 1e-6 * exact, "{x}");
        }
        assert_eq!(exp_of_negative(f32::NEG_INFINITY), 0.0);
        let mut x = 1e-30_f32;
        while x < 1e30 {
            let exact = 1.0 / libm::sqrt(f64::from(x));
            assert!((f64::from(inverse_root(x)) - exact).abs() <= 1e-5 * exact, "{x}");
            x *= 1.01;
        }
    }
}

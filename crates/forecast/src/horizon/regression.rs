//! Regression of the values at a horizon on the other candidates, learned recursively.

/// Recursive least squares with `N` features (Haykin, Adaptive Filter Theory §10.3), in units of
/// the slots that the features come from. The target is known one horizon later (a direct forecast:
/// Marcellino, Stock & Watson 2006).
#[derive(Clone, Debug)]
pub(crate) struct DirectRegression<const N: usize> {
    weights: [f64; N],
    /// The inverse correlation matrix, which is symmetric.
    inverse: [[f64; N]; N],
    forget: f64,
    grow: f64,
    trace_max: f64,
    loss: RegressionLoss,
    /// Mean of |error|, and the number of errors.
    scale: f64,
    count: u64,
}

/// The errors that a regression minimises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RegressionLoss {
    /// Squared errors, with Huber's weight for large errors.
    Squared,
    /// Absolute errors, by weights that decrease with the size of the error.
    Absolute,
}

impl<const N: usize> DirectRegression<N> {
    /// Creates a regression that starts at `weights`. `prior` is the variance of these weights, and
    /// `memory` the number of targets that it remembers.
    pub(crate) fn new(weights: [f64; N], prior: f64, memory: f64, loss: RegressionLoss) -> Self {
        let inverse = core::array::from_fn(|i| core::array::from_fn(|j| if i == j { prior } else { 0.0 }));
        let trace_max = 2.0 * N as f64 * prior;
        let forget = 1.0 - 1.0 / memory;
        let grow = 1.0 / forget;
        Self { weights, inverse, forget, grow, trace_max, loss, scale: 0.0, count: 0 }
    }

    /// Predicts the target from the features.
    pub(crate) fn predict(&self, features: &[f64; N]) -> f64 {
        let mut sum = 0.0;
        for (weight, feature) in self.weights.iter().zip(features) {
            sum += weight * feature;
        }
        sum
    }

    /// Learns `target`, the result for `features`.
    pub(crate) fn learn(&mut self, features: &[f64; N], target: f64) {
        let error = target.clamp(-TARGET_MAX, TARGET_MAX) - self.predict(features);
        self.learn_scale(error.abs());
        let mut gain = [0.0; N];
        for (gain, row) in gain.iter_mut().zip(&self.inverse) {
            for (entry, feature) in row.iter().zip(features) {
                *gain += entry * feature;
            }
        }
        let mut denominator = self.forget / self.weight(error.abs());
        for (gain, feature) in gain.iter().zip(features) {
            denominator += gain * feature;
        }
        let step = error / denominator;
        let share = gain.map(|gain| gain / denominator);
        let mut trace = 0.0;
        for i in 0..N {
            self.weights[i] += gain[i] * step;
            trace += self.inverse[i][i] - gain[i] * share[i];
        }
        // Old data keep their weight while new data contain no information.
        let grow = if trace < self.trace_max { self.grow } else { 1.0 };
        for (i, gain) in gain.iter().enumerate() {
            for (j, share) in share.iter().enumerate().skip(i) {
                self.inverse[i][j] = (self.inverse[i][j] - gain * share) * grow;
                // Computed once, so that the matrix stays symmetric.
                self.inverse[j][i] = self.inverse[i][j];
            }
        }
    }

    /// Weight of an error of this size.
    fn weight(&self, size: f64) -> f64 {
        let scale = if self.scale < SCALE_MIN { 1.0 } else { self.scale };
        let ratio = size / scale;
        match self.loss {
            RegressionLoss::Squared if ratio <= HUBER => 1.0,
            RegressionLoss::Squared => HUBER / ratio,
            RegressionLoss::Absolute if ratio <= RATIO_MIN => 1.0 / RATIO_MIN,
            RegressionLoss::Absolute => 1.0 / ratio,
        }
    }

    fn learn_scale(&mut self, size: f64) {
        self.count += 1;
        let most = SCALE_CAP * self.scale;
        let is_capped = SCALE_CAP_FROM < self.count && 0.0 < most && most < size;
        let capped = if is_capped { most } else { size };
        self.scale += SCALE_GAIN.max(1.0 / self.count as f64) * (capped - self.scale);
    }
}

/// Bound of a target, in units of the features; see the step bound of the other regressions.
const TARGET_MAX: f64 = 1e3;
/// Errors above this many scales count linearly instead of quadratically.
const HUBER: f64 = 3.0;
/// Smallest ratio of an error to the scale, so that weights of absolute errors are at most 5.
const RATIO_MIN: f64 = 0.2;
const SCALE_GAIN: f64 = 0.003;
const SCALE_CAP: f64 = 10.0;
const SCALE_CAP_FROM: u64 = 20;
/// Smallest scale that is used as a divisor.
const SCALE_MIN: f64 = 1e-300;

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise between −1 and 1 (Knuth's MMIX).
    fn noise(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    #[test]
    fn weights_of_a_linear_target_are_learned() {
        for loss in [RegressionLoss::Squared, RegressionLoss::Absolute] {
            let (mut state, truth) = (7, [0.7, -0.2, 0.4]);
            let mut regression = DirectRegression::new([1.0, 0.0, 0.0], 1.0, 500.0, loss);
            for _ in 0..500 {
                let features = core::array::from_fn(|_| noise(&mut state));
                let target = features.iter().zip(&truth).map(|(z, w)| z * w).sum();
                regression.learn(&features, target);
            }
            for (weight, truth) in regression.weights.iter().zip(&truth) {
                assert!((weight - truth).abs() < 1e-2, "{loss:?} {:?}", regression.weights);
            }
        }
    }

    #[test]
    fn a_jump_leaves_the_regression_finite() {
        let mut regression = DirectRegression::new([1.0, 0.0], 1.0, 500.0, RegressionLoss::Squared);
        for target in [1.0, -1.0, 1e70, -1e70, 1e300, 0.0].repeat(50) {
            regression.learn(&[20.0, -20.0], target);
            assert!(regression.predict(&[20.0, 20.0]).is_finite());
        }
    }
}

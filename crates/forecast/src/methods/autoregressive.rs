//! Regressions on recent differences and on the distance to an average, learned recursively.

use super::limited;

/// The scale of a series' steps: an average of |difference| that one jump cannot dominate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepScale {
    mean: f64,
    count: u64,
}

impl StepScale {
    pub(crate) fn learn(&mut self, difference: f64) {
        let size = difference.abs();
        self.count += 1;
        if self.count <= SCALE_BURN_IN {
            self.mean += (size - self.mean) / self.count as f64;
        } else if self.mean == 0.0 {
            self.mean = 0.1 * size;
        } else {
            self.mean += SCALE_GAIN * (size.min(SCALE_CAP * self.mean) - self.mean);
        }
    }

    /// The scale, or 1 while all values are equal, so that the result can be a divisor.
    pub(crate) fn get(&self) -> f64 {
        if self.mean < SCALE_MIN { 1.0 } else { self.mean }
    }
}

// Constants of the scale in `docs/spec/full.md`: the mean of the first 20 differences, then gain
// 0.03 with a cap of 5 scales.
const SCALE_BURN_IN: u64 = 20;
const SCALE_GAIN: f64 = 0.03;
const SCALE_CAP: f64 = 5.0;
/// Smallest scale that is used as a divisor. On a plateau the scale fades towards 0, and division
/// by a smaller scale could overflow.
const SCALE_MIN: f64 = 1e-300;

/// Recursive least squares with two features (Haykin, Adaptive Filter Theory §10.3), in units of
/// the step scale. Old data keep their weight while new data contain no information.
#[derive(Clone, Debug)]
pub(crate) struct TwoFeatureRegression {
    weights: [f64; 2],
    /// The inverse correlation matrix [a b; b c].
    inverse: [f64; 3],
    features: [f64; 2],
    robust: bool,
}

impl TwoFeatureRegression {
    /// Creates a regression. If `robust` is true, large errors get Huber's weight, and features
    /// have tighter bounds.
    pub(crate) fn new(robust: bool) -> Self {
        Self { weights: [0.0; 2], inverse: [PRIOR, 0.0, PRIOR], features: [0.0; 2], robust }
    }

    /// Sets the features and predicts the target, all in units of the step scale.
    pub(crate) fn predict(&mut self, features: [f64; 2]) -> f64 {
        let most = if self.robust { FEATURE_MAX } else { STEP_MAX };
        self.features = features.map(|z| limited(z, -most, most));
        self.weights[0] * self.features[0] + self.weights[1] * self.features[1]
    }

    /// Learns `target`, the true result for the features that were set last, in units of the step
    /// scale.
    pub(crate) fn learn(&mut self, target: f64) {
        let target = target.clamp(-STEP_MAX, STEP_MAX);
        let [x, y] = self.features;
        let error = target - (self.weights[0] * x + self.weights[1] * y);
        let discount = if self.robust && error.abs() > HUBER { FORGET * error.abs() / HUBER } else { FORGET };
        let [a, b, c] = self.inverse;
        let (p, q) = (a * x + b * y, b * x + c * y);
        let denominator = discount + x * p + y * q;
        let step = error / denominator;
        self.weights[0] += p * step;
        self.weights[1] += q * step;
        let (a, b, c) = (a - p * p / denominator, b - p * q / denominator, c - q * q / denominator);
        let grow = if a + c < TRACE_MAX { 1.0 / FORGET } else { 1.0 };
        self.inverse = [a * grow, b * grow, c * grow];
    }
}

// Constants of method 10, and of Autoregression 2 of `lean`, in `docs/spec/full.md`.
const FORGET: f64 = 0.998;
const PRIOR: f64 = 100.0;
const TRACE_MAX: f64 = 10.0 * 2.0 * PRIOR;
const HUBER: f64 = 3.0;
const FEATURE_MAX: f64 = 20.0;
/// Maximum size of a step, in scales. A larger step occurs only at the end of a plateau, and the
/// regression cannot use such a step. Without this bound, the square of the step would make the
/// regression infinite.
const STEP_MAX: f64 = 1e3;

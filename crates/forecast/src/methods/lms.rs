//! Normalised least mean squares over many lags (Widrow & Hoff 1960; Nagumo & Noda 1967).

/// A linear filter of the last 32 inputs, learned by normalised gradient steps.
///
/// Inputs and errors are bounded in units of a scale that the caller passes, so that one outlier
/// neither moves the weights far nor stays in the input with its full size.
#[derive(Clone, Debug)]
pub(crate) struct LeastMeanSquares {
    weights: [f64; LAGS],
    /// The last 32 inputs, stored twice, so that the last 32 inputs are always one slice.
    inputs: [f64; 2 * LAGS],
    next: usize,
    features: [f64; LAGS],
    energy: f64,
    step: f64,
}

/// Number of lags of the filter.
const LAGS: usize = 32;
// Constants of method 10 in `docs/spec/full.md`.
const INPUT_MAX: f64 = 10.0;
const ERROR_MAX: f64 = 3.0;

impl LeastMeanSquares {
    pub(crate) fn new(step: f64) -> Self {
        Self {
            weights: [0.0; LAGS],
            inputs: [0.0; 2 * LAGS],
            next: 0,
            features: [0.0; LAGS],
            energy: 0.0,
            step,
        }
    }

    /// Learns `target`, the true result for the features that were set last, in scales.
    pub(crate) fn learn(&mut self, target: f64) {
        let error = (target - self.product()).clamp(-ERROR_MAX, ERROR_MAX);
        let rate = self.step * error / (1.0 + self.energy);
        for (weight, feature) in self.weights.iter_mut().zip(&self.features) {
            *weight += rate * feature;
        }
    }

    /// Adds an input, and predicts the target in units of `scale`.
    pub(crate) fn predict(&mut self, input: f64, scale: f64) -> f64 {
        self.inputs[self.next] = input;
        self.inputs[self.next + LAGS] = input;
        self.next = (self.next + 1) % LAGS;
        let inverse = 1.0 / scale;
        let recent = &self.inputs[self.next..self.next + LAGS];
        for (feature, input) in self.features.iter_mut().zip(recent) {
            let scaled = input * inverse;
            let scaled = if scaled < INPUT_MAX { scaled } else { INPUT_MAX };
            *feature = if -INPUT_MAX < scaled { scaled } else { -INPUT_MAX };
        }
        self.energy = dot(&self.features, &self.features);
        self.product()
    }

    fn product(&self) -> f64 {
        dot(&self.weights, &self.features)
    }
}

/// Dot product in four fixed lanes: fast, and equal to the bit on every target.
fn dot(a: &[f64; LAGS], b: &[f64; LAGS]) -> f64 {
    let mut lanes = [0.0; 4];
    for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4)) {
        for lane in 0..4 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

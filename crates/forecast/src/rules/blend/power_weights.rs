//! Weights of methods. Each weight is a high power of the ratio of the least loss of all methods to
//! the loss of the method.

/// Weights `(least sum / sum)^q`, where `sum` is a method's discounted sum of losses.
#[derive(Clone, Debug)]
pub(crate) struct PowerWeights<const N: usize> {
    losses: [f64; N],
    weights: [f64; N],
    fade: f64,
}

impl<const N: usize> PowerWeights<N> {
    pub(crate) fn new(fade: f64) -> Self {
        Self { losses: [0.0; N], weights: [1.0; N], fade }
    }

    /// Adds the losses of one step and computes the weights with exponent `Q`, a power of two.
    pub(crate) fn observe<const Q: u32>(&mut self, losses: &[f64; N]) {
        let mut least = f64::INFINITY;
        for (sum, loss) in self.losses.iter_mut().zip(losses) {
            *sum = self.fade * *sum + loss;
            least = if *sum < least { *sum } else { least };
        }
        // If one method has no error at all, all other methods get a weight of almost 0.
        let least = least.max(f64::MIN_POSITIVE);
        for (weight, sum) in self.weights.iter_mut().zip(&self.losses) {
            let mut ratio = least / sum.max(f64::MIN_POSITIVE);
            let mut power = 1;
            while power < Q {
                ratio *= ratio;
                power *= 2;
            }
            *weight = ratio;
        }
    }

    /// The weights; the largest weight is 1.
    pub(crate) fn weights(&self) -> &[f64; N] {
        &self.weights
    }
}

/// Weighted median: the least value at which half of the weight is reached. `order` has the indices
/// of the values in ascending order.
pub(crate) fn weighted_median<const N: usize>(values: &[f64; N], weights: &[f64; N], order: &[u8; N]) -> f64 {
    let half = 0.5 * weights.iter().sum::<f64>();
    let mut sum = 0.0;
    for index in order {
        let index = usize::from(*index) % N;
        sum += weights[index];
        if half <= sum {
            return values[index];
        }
    }
    values[usize::from(order[N - 1]) % N]
}

//! Mean and variance of a sample.

use serde::Serialize;

/// The first two moments of a sample (JavaNws §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moments {
    /// Number of values in the sample.
    pub count: usize,
    /// Arithmetic mean, in the unit of the values; 0 without values.
    pub mean: f64,
    /// Sum of squared deviations ÷ (n − 1), in the unit squared; `None` for fewer than two values.
    pub variance: Option<f64>,
}

impl Moments {
    /// Computes the moments of a sample.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count();
        let mean = values.clone().sum::<f64>() / count.max(1) as f64;
        // Computed in a second pass, because Σx² − n·mean² loses all digits if the deviations are
        // small.
        let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
        Self { count, mean, variance: (count > 1).then(|| squares / (count - 1) as f64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variance_are_those_of_a_sample() {
        let moments = Moments::of([2.0, 4.0, 4.0, 6.0].into_iter());
        assert_eq!(moments, Moments { count: 4, mean: 4.0, variance: Some(8.0 / 3.0) });
        assert_eq!(Moments::of([7.0].into_iter()), Moments { count: 1, mean: 7.0, variance: None });
        let far = Moments::of([1e9, 1e9 + 1.0].into_iter());
        assert_eq!(far.variance, Some(0.5), "small deviations of large values");
    }
}

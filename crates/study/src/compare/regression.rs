//! Ratio between the values of two series, from a least-squares line through the origin (JavaNws
//! §4.2).

/// Whether larger or smaller values of a quantity are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Preference {
    /// Larger is better, as for goodput: the coefficient is B ÷ A.
    Larger,
    /// Smaller is better, as for times: the coefficient is A ÷ B.
    Smaller,
}

impl Preference {
    /// The coefficient as a formula of the two series.
    #[must_use]
    pub fn coefficient_formula(self) -> &'static str {
        match self {
            Self::Larger => "B ÷ A",
            Self::Smaller => "A ÷ B",
        }
    }
}

/// The coefficient c of the least-squares line through the origin over pairs (a, b). A coefficient
/// below 1 always means that the second series (b) has worse values: "higher round trip times and
/// lower bandwidth values" (JavaNws §4.2).
///
/// `None` if the series that the coefficient divides by has only zeros.
#[must_use]
pub fn coefficient(pairs: impl Iterator<Item = (f64, f64)>, better: Preference) -> Option<f64> {
    let (mut products, mut squares) = (0.0, 0.0);
    for (a, b) in pairs {
        // Larger is better: fit b = c·a. Smaller is better: fit a = c·b.
        let (x, y) = match better {
            Preference::Larger => (a, b),
            Preference::Smaller => (b, a),
        };
        products += x * y;
        squares += x * x;
    }
    // The c at which Σ(y − c·x)² is least: its derivative −2·Σx·(y − c·x) is 0 (JavaNws §4.2).
    let c: f64 = products / squares;
    c.is_finite().then_some(c)
}

/// The least value that is an outlier, given the median of its series: "occasional values that
/// deviated by two or three orders of magnitude" (JavaNws §4.2). `None` if the median is not
/// positive, because no factor of such a median is meaningful.
#[must_use]
pub fn outlier_from(median: f64) -> Option<f64> {
    (median > 0.0).then_some(OUTLIER_FACTOR * median)
}

/// Multiple of the median from which a value is an outlier: two orders of magnitude.
pub const OUTLIER_FACTOR: f64 = 100.0;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn regression_coefficient_equals_results_computed_by_hand() {
        let pairs = || [(1.0, 2.0), (2.0, 2.0)].into_iter();
        // B on A: (1·2 + 2·2) ÷ (1 + 4); A on B: 6 ÷ (4 + 4).
        assert_eq!(coefficient(pairs(), Preference::Larger), Some(1.2));
        assert_eq!(coefficient(pairs(), Preference::Smaller), Some(0.75));
        assert_eq!(coefficient([(0.0, 1.0)].into_iter(), Preference::Larger), None);
        assert_eq!(coefficient([].into_iter(), Preference::Smaller), None);
        assert_eq!(outlier_from(0.02), Some(2.0));
        assert_eq!(outlier_from(0.0), None);
    }

    #[test]
    fn a_coefficient_below_1_means_that_b_is_worse() {
        let half_the_goodput = [(10.0, 5.0), (8.0, 4.0)].into_iter();
        assert_eq!(coefficient(half_the_goodput, Preference::Larger), Some(0.5));
        let twice_the_time = [(0.01, 0.02), (0.02, 0.04)].into_iter();
        assert_eq!(coefficient(twice_the_time, Preference::Smaller), Some(0.5));
    }

    proptest! {
        #[test]
        fn the_coefficient_of_multiples_is_their_factor(
            values in prop::collection::vec(1e-3..1e9f64, 1..50),
            factor in 0.01..100.0f64,
        ) {
            let pairs = || values.iter().map(|a| (*a, factor * a));
            let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 1e-9;
            prop_assert!(near(coefficient(pairs(), Preference::Larger).unwrap(), factor));
            prop_assert!(near(coefficient(pairs(), Preference::Smaller).unwrap(), 1.0 / factor));
        }
    }
}

//! How far two samples are apart: the statistic of Kolmogorov and Smirnov.

/// The largest distance between the cumulative distribution functions of two samples, 0 to 1;
/// `None` if a sample is empty.
///
/// D = sup |F(x) − G(x)| (Smirnov 1939), exact: both functions are evaluated at every distinct
/// value, and equal values of both samples are one step.
#[must_use]
pub fn kolmogorov_smirnov(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (a, b) = (sorted(a), sorted(b));
    let (mut i, mut j) = (0, 0);
    // The distance multiplied by both sizes. It is a whole number, so the distance of equal
    // functions is exactly 0.
    let mut most: u128 = 0;
    while i < a.len() && j < b.len() {
        let at = a[i].min(b[j]);
        i += a[i..].iter().take_while(|value| **value <= at).count();
        j += b[j..].iter().take_while(|value| **value <= at).count();
        most = most.max((i as u128 * b.len() as u128).abs_diff(j as u128 * a.len() as u128));
    }
    Some(most as f64 / (a.len() as u128 * b.len() as u128) as f64)
}

/// The distance that two samples of these sizes from one distribution exceed with probability 5 %;
/// `None` if a size is 0.
///
/// The distance follows from the limiting distribution, √(−ln(α/2)/2) · √((n + m)/(n·m)) (Smirnov
/// 1948), and holds for independent values. The errors of a series are hardly independent, so the
/// value is for information only.
#[must_use]
pub fn critical_value(n: usize, m: usize) -> Option<f64> {
    let (n, m) = (n as f64, m as f64);
    let value = (-(LEVEL / 2.0).ln() / 2.0).sqrt() * ((n + m) / (n * m)).sqrt();
    value.is_finite().then_some(value)
}

fn sorted(sample: &[f64]) -> Vec<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The usual significance level, 5 %.
const LEVEL: f64 = 0.05;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kolmogorov_smirnov_equals_results_computed_by_hand() {
        let distance = |a: &[f64], b: &[f64]| kolmogorov_smirnov(a, b).unwrap();
        assert_eq!(distance(&[1.0, 2.0], &[3.0, 4.0]), 1.0);
        // After 1, F is 1/2 and G is 0. After 2, F is 1/2 and G is 1/3. After 3, F is 1 and G is
        // 2/3.
        assert_eq!(distance(&[1.0, 3.0], &[2.0, 3.0, 4.0]), 0.5);
        assert_eq!(distance(&[0.0, 0.0, 1.0], &[0.0, 1.0, 1.0]), 1.0 / 3.0, "ties are one step");
        assert_eq!(distance(&[-0.0], &[0.0]), 0.0);
        assert_eq!(kolmogorov_smirnov(&[], &[1.0]), None);
    }

    #[test]
    fn the_critical_value_equals_the_published_table() {
        // Published tables give 1.358 · √(2/n).
        assert!((critical_value(1000, 1000).unwrap() - 0.060_74).abs() < 1e-4);
        assert_eq!(critical_value(0, 5), None);
    }

    fn sample() -> impl Strategy<Value = Vec<f64>> {
        // The samples have few distinct values, so that equal values are common.
        prop::collection::vec((-20..20i32).prop_map(f64::from), 1..40)
    }

    proptest! {
        #[test]
        fn kolmogorov_smirnov_is_symmetric_and_equals_its_definition(a in sample(), b in sample()) {
            let distance = kolmogorov_smirnov(&a, &b).unwrap();
            prop_assert!((0.0..=1.0).contains(&distance));
            prop_assert_eq!(kolmogorov_smirnov(&b, &a).unwrap(), distance);
            let mut shuffled = a.clone();
            shuffled.reverse();
            prop_assert_eq!(kolmogorov_smirnov(&a, &shuffled).unwrap(), 0.0);
            // The definition of the distance.
            let share = |sample: &[f64], x: f64| {
                sample.iter().filter(|value| **value <= x).count() as f64 / sample.len() as f64
            };
            let most = a.iter().chain(&b).map(|x| (share(&a, *x) - share(&b, *x)).abs()).fold(0.0, f64::max);
            prop_assert!((most - distance).abs() < 1e-12);
        }

        #[test]
        fn kolmogorov_smirnov_depends_only_on_the_order_of_values(a in sample(), b in sample()) {
            let bent = |sample: &[f64]| sample.iter().map(|x| (x / 3.0).exp() + x).collect::<Vec<f64>>();
            prop_assert_eq!(kolmogorov_smirnov(&a, &b), kolmogorov_smirnov(&bent(&a), &bent(&b)));
        }
    }
}

//! Test of Shapiro and Wilk for a normal distribution, computed after Royston (Applied Statistics
//! 44, 1995, remark AS R94).

/// Result of the test of Shapiro and Wilk.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ShapiroWilk {
    /// Statistic W, 0 to 1; 1 = exactly normal.
    pub w: f64,
    /// Probability that W of a normal sample is at most `w`, 0 to 1; accurate below 0.1 (Royston
    /// 1995).
    pub p: f64,
}

/// Tests 3 to 5000 values; `None` for fewer or more values, if all values are equal, or if a value
/// is not finite.
pub(super) fn shapiro_wilk(values: &[f64]) -> Option<ShapiroWilk> {
    let count = values.len();
    if !(3..=5000).contains(&count) || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    // The weights are antisymmetric, so each weight applies to two values.
    let weighted: f64 = weights(count)
        .iter()
        .enumerate()
        .map(|(index, weight)| weight * (values[count - 1 - index] - values[index]))
        .sum();
    let w = (weighted * weighted / squares).min(1.0);
    (squares > 0.0).then(|| ShapiroWilk { w, p: significance(w, count) })
}

/// Weights of the upper half, from the greatest value inwards.
fn weights(count: usize) -> Vec<f64> {
    let n = count as f64;
    let expected: Vec<f64> =
        (1..=count / 2).map(|rank| -quantile((rank as f64 - 0.375) / (n + 0.25))).collect();
    if count == 3 {
        return vec![std::f64::consts::FRAC_1_SQRT_2];
    }
    let squares = 2.0 * expected.iter().map(|score| score * score).sum::<f64>();
    let outermost = [
        [-2.706056, 4.434685, -2.07119, -0.147981, 0.221157],
        [-3.582633, 5.682633, -1.752461, -0.293762, 0.042981],
    ];
    let corrected = if count > 5 { 2 } else { 1 };
    let mut weights = expected.clone();
    let (mut rest, mut ones) = (squares, 1.0);
    for (index, correction) in outermost.iter().take(corrected).enumerate() {
        let u = 1.0 / n.sqrt();
        weights[index] = expected[index] / squares.sqrt() + u * polynomial(correction, u);
        rest -= 2.0 * expected[index].powi(2);
        ones -= 2.0 * weights[index].powi(2);
    }
    for weight in weights.iter_mut().skip(corrected) {
        *weight *= (ones / rest).sqrt();
    }
    weights
}

/// Probability that W is at most `w`.
fn significance(w: f64, count: usize) -> f64 {
    let n = count as f64;
    if count == 3 {
        // For three values, the formula is exact, and W is at least 0.75.
        let p = 6.0 / std::f64::consts::PI * (libm::asin(w.sqrt()) - libm::asin(0.75f64.sqrt()));
        return p.clamp(0.0, 1.0);
    }
    let mut score = libm::log(1.0 - w);
    let (mean, sd);
    if count <= 11 {
        let gamma = 0.459 * n - 2.273;
        if score >= gamma {
            return 0.0;
        }
        score = -libm::log(gamma - score);
        mean = polynomial(&[-6.714e-4, 0.025054, -0.39978, 0.544], n);
        sd = libm::exp(polynomial(&[-0.0020322, 0.062767, -0.77857, 1.3822], n));
    } else {
        let log = libm::log(n);
        mean = polynomial(&[0.0038915, -0.083751, -0.31082, -1.5861], log);
        sd = libm::exp(polynomial(&[0.0030302, -0.082676, -0.4803], log));
    }
    normal_below(-(score - mean) / sd)
}

/// Value of a polynomial at `x`. The first coefficient belongs to the highest power.
fn polynomial(factors: &[f64], x: f64) -> f64 {
    factors.iter().fold(0.0, |sum, factor| sum * x + factor)
}

/// Probability that a standard normal value is less than `z`.
fn normal_below(z: f64) -> f64 {
    0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2)
}

/// Quantile of the standard normal distribution for a probability of 0.0001 to 0.5. Newton's steps
/// from 0 decrease monotonically to the quantile, because the distribution function is convex
/// there.
fn quantile(probability: f64) -> f64 {
    let mut z = 0.0;
    for _ in 0..50 {
        let density = libm::exp(-0.5 * z * z) / (2.0 * std::f64::consts::PI).sqrt();
        let step = (normal_below(z) - probability) / density;
        z -= step;
        if step.abs() < 1e-12 {
            break;
        }
    }
    z
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn shapiro_wilk_equals_the_published_algorithm() {
        let roots: Vec<f64> = (0..200).map(|index| f64::from(index * 7919 % 200).sqrt()).collect();
        let squares: Vec<f64> = (0..30).map(|index| f64::from(index * index)).collect();
        // The first sample is the example of Shapiro and Wilk 1965 (weights of eleven men). The
        // expected W and p were computed with scipy 1.17, which translates AS R94.
        for (values, w, p) in [
            (
                &[148., 154., 158., 160., 161., 162., 166., 170., 182., 195., 236.][..],
                0.7888146949,
                0.006703814062,
            ),
            (&[48.4, 49.0, 59.5, 59.6, 60.7, 88.8, 98.2, 109.4, 169.1, 227.1], 0.8078288177, 0.01804658837),
            (&[1.0, 2.0, 4.0], 0.9642857143, 0.6368868450),
            (&[1.0, 2.0, 3.0, 10.0], 0.8068856643, 0.1151529813),
            (&[6.0, 2.0, 3.0, 4.0, 1.0], 0.9787161501, 0.9276364233),
            (&[0.0, 1.0, 3.0, 4.0, 8.0, 9.0], 0.9196803152, 0.5030614573),
            (&squares, 0.8939559474, 0.005994663222),
            (&roots, 0.9468343640, 9.455981629e-7),
        ] {
            let found = shapiro_wilk(values).unwrap();
            assert!((found.w - w).abs() < 1e-6 && (found.p - p).abs() <= 1e-4 * p, "{found:?} for {w}, {p}");
        }
    }

    #[test]
    fn shapiro_wilk_returns_none_for_unusable_samples() {
        assert_eq!(shapiro_wilk(&[1.0, 2.0]), None);
        assert_eq!(shapiro_wilk(&[1.0; 9]), None);
        assert_eq!(shapiro_wilk(&[1.0, f64::NAN, 2.0]), None);
        assert_eq!(shapiro_wilk(&vec![1.0; 5001]), None);
    }

    #[test]
    fn normal_quantiles_equal_the_table() {
        for (probability, z) in [
            (0.5, 0.0),
            (0.158_655_253_931_457, -1.0),
            (0.025, -1.959_963_984_540),
            (0.0001, -3.719_016_485_456),
        ] {
            assert!((quantile(probability) - z).abs() < 1e-9);
        }
    }
}

//! Statistics of samples: one definition of each, for all studies.

use barograph_sim::SeededRng;
use barograph_study::compare::Moments;

pub(crate) use barograph_probe::reduce::median;

/// The arithmetic mean; NaN without values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The arithmetic mean; `None` without values.
pub(crate) fn mean_of_some(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| mean(values))
}

/// The standard deviation of a sample (n − 1); `None` with fewer than two values.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    Moments::of(values.iter().copied()).variance.map(f64::sqrt)
}

/// The standard deviation of a whole population (n).
pub(crate) fn population_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// The mean and its standard error; NaN with too few values.
pub(crate) fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let variance = Moments::of(values.iter().copied()).variance.unwrap_or(f64::NAN);
    (mean(values), (variance / values.len() as f64).sqrt())
}

/// The geometric mean of the positive, finite values: the mean for ratios.
pub(crate) fn geometric_mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .fold((0.0, 0.0), |(sum, count), ratio| (sum + ratio.ln(), count + 1.0));
    (sum / count).exp()
}

/// The least and the greatest value; (∞, −∞) without values.
pub(crate) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

pub(crate) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Which value of a sorted sample is a quantile. Each study keeps the definition of its published
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Linear between the two nearest ranks (Hyndman and Fan 1996, type 7).
    Linear,
    /// The nearest of the two ranks.
    Nearest,
    /// The least value that at least this share of the sample does not exceed (type 1).
    Least,
    /// The first value above this share.
    Above,
}

/// The quantile `share`, 0 to 1, of a sorted sample; `None` without values, and beyond the last
/// one.
pub(crate) fn quantile(sorted: &[f64], share: f64, rank: Rank) -> Option<f64> {
    let count = sorted.len() as f64;
    let at = match rank {
        Rank::Linear => {
            let at = share * (count - 1.0);
            let (low, high) = (sorted.get(at.floor() as usize)?, sorted.get(at.ceil() as usize)?);
            return Some(low + (high - low) * at.fract());
        }
        Rank::Nearest => (share * (count - 1.0)).round() as usize,
        Rank::Least => ((share * count).ceil() as usize).saturating_sub(1),
        Rank::Above => (share * count) as usize,
    };
    sorted.get(at).copied()
}

/// Jain's index of fairness: 1 if all rates are equal, 1/n if one has everything (Jain, Chiu and
/// Hawe 1984).
pub(crate) fn jain(rates: &[f64]) -> f64 {
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares).max(f64::MIN_POSITIVE)
}

/// The first second from which a condition holds until `last`; `None` if it does not hold at
/// `last`.
pub(crate) fn fair_from(first: u64, last: u64, is_fair: impl Fn(u64) -> bool) -> Option<u64> {
    match (first..=last).rev().find(|second| !is_fair(*second)) {
        None => (first <= last).then_some(first),
        Some(second) => (second < last).then_some(second + 1),
    }
}

/// Values of a statistic for `resamples` resamples of `count` units, drawn with replacement (Efron
/// and Tibshirani, *An Introduction to the Bootstrap*, §13.3). `of` gets the indices of each
/// resample.
pub(crate) fn resampled<T>(
    count: usize,
    resamples: usize,
    rng: &mut SeededRng,
    mut of: impl FnMut(&[usize]) -> T,
) -> Vec<T> {
    let mut drawn = vec![0; count];
    (0..resamples)
        .map(|_| {
            drawn.iter_mut().for_each(|index| *index = rng.index_below(count));
            of(&drawn)
        })
        .collect()
}

/// The percentile interval that excludes the share `outside` of the values on each side.
pub(crate) fn interval(values: Vec<f64>, outside: f64) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    let at = |share| quantile(&sorted, share, Rank::Nearest);
    Some((at(outside)?, at(1.0 - outside)?))
}

/// Statistics of times that a study reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) mean: f64,
    pub(crate) max: f64,
    pub(crate) min: f64,
    pub(crate) p95: f64,
    pub(crate) sd: f64,
}

impl Summary {
    /// Statistics of `values`, which must not be empty.
    pub(crate) fn of(values: &[f64]) -> Self {
        let sorted = sorted(values.iter().copied());
        let p95 = quantile(&sorted, 0.95, Rank::Linear).unwrap_or(f64::NAN);
        let (mean, sd) = (mean(values), population_deviation(values));
        Self { mean, max: sorted[sorted.len() - 1], min: sorted[0], p95, sd }
    }

    pub(crate) fn variance(&self) -> f64 {
        self.sd * self.sd
    }
}

/// Gain of the moving averages: that of the smoothed round-trip time (RFC 6298 §2).
pub(crate) const EWMA_GAIN: f64 = 0.125;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_mean_range_p95_and_variance() {
        let summary = Summary::of(&[4.0, 1.0, 2.0, 3.0, 5.0]);
        assert_eq!((summary.mean, summary.min, summary.max), (3.0, 1.0, 5.0));
        assert_eq!((summary.p95, summary.variance().round()), (4.8, 2.0));
    }

    #[test]
    fn quantiles_follow_the_rank_rule() {
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        let at = |share, rank| quantile(&ten, share, rank).unwrap_or(f64::NAN);
        assert_eq!((at(0.9, Rank::Least), at(0.91, Rank::Least)), (9.0, 10.0));
        assert_eq!((at(0.9, Rank::Above), at(0.95, Rank::Nearest)), (10.0, 10.0));
        assert_eq!((at(0.5, Rank::Linear), at(0.5, Rank::Above)), (5.5, 6.0));
        for rank in [Rank::Linear, Rank::Nearest, Rank::Least, Rank::Above] {
            assert_eq!((quantile(&[3.0], 0.9, rank), quantile(&[], 0.9, rank)), (Some(3.0), None));
        }
    }

    #[test]
    fn deviations_differ_for_samples_and_populations() {
        assert_eq!((deviation(&[1.0, 3.0]), population_deviation(&[1.0, 3.0])), (Some(2f64.sqrt()), 1.0));
        assert_eq!((deviation(&[1.0]), deviation(&[])), (None, None));
        assert_eq!(mean_and_error(&[1.0, 3.0]), (2.0, 1.0));
    }

    #[test]
    fn the_geometric_mean_of_ratios_ignores_nan() {
        assert!((geometric_mean([0.5, 2.0, f64::NAN].into_iter()) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn fairness_starts_at_the_second_after_which_it_lasts() {
        let at = |second| second == 3 || second > 5;
        assert_eq!(fair_from(0, 9, at), Some(6));
        assert_eq!(fair_from(6, 9, at), Some(6));
        assert_eq!(fair_from(0, 5, at), None);
        assert_eq!(fair_from(7, 6, at), None, "too short to tell");
    }

    #[test]
    fn jains_index_is_between_1_over_n_and_1() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 0.0);
    }
}

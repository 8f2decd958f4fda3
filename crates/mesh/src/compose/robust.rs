//! Weights of measured pairs, robust against one host that lies or is wrong.

use core::ops::RangeInclusive;
use std::collections::BTreeMap;

use super::{ComposedQuantity, CompositionModel, NORMAL_95, PRIOR_DEVIATION};

/// Weights of measured pairs, and the number of believed pairs.
pub(super) struct RobustWeights {
    /// Weight of each pair, about 1 on average; 0 if the pair is not believed.
    weights: Vec<f64>,
    /// Number of pairs that are believed.
    pub(super) count: usize,
}

impl RobustWeights {
    /// Returns the weights of measured pairs. `ends` has the two hosts of each pair, and `errors`
    /// has the class and the error of each pair.
    ///
    /// Returns `None` if fewer than [`CompositionModel::PAIRS_MIN`] pairs are believed. Also
    /// returns `None` if the pairs of one host would have nearly half of the weight, because this
    /// host could then determine the result alone. If one host could determine the result within a
    /// class, the range of this class is computed from the errors of all pairs.
    pub(super) fn of<H: Ord + Copy>(
        ends: &[[H; 2]],
        errors: &[(usize, f64)],
        what: ComposedQuantity,
    ) -> Option<Self> {
        let all = weights(ends)?;
        let ranges = [0, 1].map(|class| {
            let of_class = || errors.iter().enumerate().filter(move |(_, (of, _))| *of == class);
            let own: Vec<[H; 2]> = of_class().filter_map(|(at, _)| ends.get(at).copied()).collect();
            let (values, weights, count): (Vec<f64>, _, _) = match weights(&own) {
                Some(weights) => (of_class().map(|(_, (_, error))| *error).collect(), weights, own.len()),
                None => (errors.iter().map(|(_, error)| *error).collect(), all.clone(), 0),
            };
            match what {
                ComposedQuantity::Rtt => range(&values, &weights, prior_width(count), 1.0),
                ComposedQuantity::Goodput => range(&values, &weights, prior_width(count), SKEW),
                // Most errors are 0, and so the median distance may be 0.
                ComposedQuantity::Loss => range(&values, &weights, prior_width(0), 1.0),
            }
        });
        let is_believed =
            |(class, error): &(usize, f64)| ranges.get(*class).is_some_and(|range| range.contains(error));
        let weights: Vec<f64> = all
            .iter()
            .zip(errors)
            .map(|(weight, error)| if is_believed(error) { *weight } else { 0.0 })
            .collect();
        let count = weights.iter().filter(|weight| **weight > 0.0).count();
        (count >= CompositionModel::PAIRS_MIN).then_some(Self { weights, count })
    }

    /// Returns the believed pairs of `observations`, each with its weight.
    pub(super) fn weighted<'a, T>(&'a self, observations: &'a [T]) -> impl Iterator<Item = (&'a T, f64)> {
        observations.iter().zip(self.weights.iter().copied()).filter(|(_, weight)| *weight > 0.0)
    }
}

/// Weights of pairs, such that the pairs of one host together have at most the weight of one pair.
/// A host that lies is an end of each pair that it reports, so more pairs do not give it more
/// weight. `None` if one host would have more than 0.45 of the weight.
fn weights<H: Ord + Copy>(ends: &[[H; 2]]) -> Option<Vec<f64>> {
    let mut pairs_of: BTreeMap<H, u32> = BTreeMap::new();
    for end in ends.iter().flatten() {
        *pairs_of.entry(*end).or_default() += 1;
    }
    let most = |pair: &[H; 2]| pair.iter().filter_map(|end| pairs_of.get(end)).max().copied();
    let weights: Vec<f64> = ends.iter().map(|pair| 1.0 / f64::from(most(pair).unwrap_or(1))).collect();
    // The weights of one host's pairs sum to 1 at most.
    let hosts: f64 = weights.iter().sum();
    (hosts >= HOSTS_MIN).then(|| weights.iter().map(|weight| weight / hosts * ends.len() as f64).collect())
}

/// Range of errors that are believed, around the weighted median.
///
/// The range extends five standard deviations to each side of the median. The standard deviation is
/// estimated from the median distance to the median. A side with a longer tail uses its own median
/// distance, up to `skew` times the median distance of both sides. Each side extends by at least
/// `least`.
fn range(errors: &[f64], weights: &[f64], least: f64, skew: f64) -> RangeInclusive<f64> {
    let centre = median(errors, weights);
    let distance = |is_of_side: &dyn Fn(f64) -> bool| {
        let of_side = errors.iter().zip(weights).filter(|(error, _)| is_of_side(**error));
        let (distances, weights): (Vec<f64>, Vec<f64>) =
            of_side.map(|(error, weight)| ((error - centre).abs(), *weight)).unzip();
        median(&distances, &weights)
    };
    let both = distance(&|_| true);
    let reach = |side: f64| (DEVIATIONS * NORMAL_MAD * side.clamp(both, skew * both)).max(least);
    centre - reach(distance(&|error| error <= centre))..=centre + reach(distance(&|error| centre <= error))
}

/// Errors up to this limit are always believed. The limit is the half-width of the guess without
/// pairs; the limit decreases with the square root of the number of pairs.
fn prior_width(count: usize) -> f64 {
    let share = CompositionModel::PAIRS_MIN as f64 / count.max(CompositionModel::PAIRS_MIN) as f64;
    share.sqrt() * NORMAL_95 * PRIOR_DEVIATION
}

/// Weighted median: the lowest value at or below which half of the weight lies; 0 without values.
pub(super) fn median(values: &[f64], weights: &[f64]) -> f64 {
    let mut sorted: Vec<(f64, f64)> = values.iter().copied().zip(weights.iter().copied()).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = weights.iter().sum::<f64>() / 2.0;
    let mut below = 0.0;
    let at = sorted.iter().find(|(_, weight)| {
        below += weight;
        half <= below
    });
    at.or(sorted.last()).map_or(0.0, |(value, _)| *value)
}

/// Smallest allowed sum of weights. This limit ensures that one host has at most 0.45 of the
/// weight. So a median is always between the values of other hosts.
const HOSTS_MIN: f64 = 1.0 / 0.45;

/// Largest believed distance from the median, in standard deviations. In a normal distribution, one
/// value in two million is farther away; in a skewed distribution, more values are farther away.
/// With four deviations, the intervals of rates would cover less than 85 %
/// (`composed_estimates_have_their_coverage_and_find_the_best_host`). With more than five
/// deviations, a host that lies could make the intervals wider.
const DEVIATIONS: f64 = 5.0;

/// Largest median distance of the errors on one side of the median, for rates, as a multiple of the
/// median distance of all errors. Hosts that are slower than their representative are slightly
/// slower. Hosts that are faster may be many times as fast.
const SKEW: f64 = 2.0;

/// Standard deviation of a normal distribution divided by its median distance from the centre: 1 /
/// Φ⁻¹(¾).
const NORMAL_MAD: f64 = 1.482_602_218_505_602;

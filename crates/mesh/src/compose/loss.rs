//! Composition of losses: the values −ln (1 − share) of the legs are added, because probabilities
//! of arrival multiply if losses are independent.
//!
//! Most losses are 0, so the logarithms of other compositions cannot be used. The correction is
//! learned from sums. The share that the next probe loses has a beta-binomial distribution. The
//! variance of this share has two causes: a probe has few datagrams, and the loss probability of
//! the path is known only from the datagrams so far.

use super::robust::RobustWeights;
use super::{
    ComposedQuantity, CompositionModel, LegForecast, NORMAL_95, PairObservation, PathEstimate, student_95,
};

/// Forecast of loss for [`LegForecast::from_loss`].
pub(super) fn forecast(mean: f64, interval: Option<(f64, f64)>, count: u64) -> PathEstimate {
    let seen = LossPosterior::of(mean, count);
    let (lower, upper) = interval.unwrap_or((mean, mean));
    PathEstimate {
        value: mean,
        lower: lower.min(seen.next_share(0.05)).min(mean),
        upper: upper.max(seen.next_share(0.95)).max(mean),
    }
}

/// Implements [`CompositionModel::fit`] for losses. The observations are of paths between sites.
pub(super) fn fit<'a, H: Ord + Copy>(
    observations: impl Iterator<Item = PairObservation<'a, H>>,
) -> Option<CompositionModel> {
    let (ends, all): (Vec<[H; 2]>, Vec<(LossDepth, LossDepth)>) = observations
        .filter_map(|PairObservation { ends, legs, measured }| {
            Some((ends, (LossDepth::of(legs)?, LossDepth::of(&[measured])?)))
        })
        .unzip();
    let errors: Vec<(usize, f64)> =
        all.iter().map(|(sum, measured)| (0, measured.depth - sum.depth)).collect();
    let robust = RobustWeights::of(&ends, &errors, ComposedQuantity::Loss)?;
    let pairs = || robust.weighted(&all);
    let (n, weights) = (robust.count as f64, pairs().map(|(_, weight)| weight).sum::<f64>());
    let mean = |of: &dyn Fn(&(LossDepth, LossDepth)) -> f64| {
        pairs().map(|(pair, weight)| weight * of(pair)).sum::<f64>() / weights
    };
    let (composed, measured) = (mean(&|(sum, _)| sum.depth), mean(&|(_, measured)| measured.depth));
    let one_lost = ONE_LOST / n;
    let model = CompositionModel {
        shift: [((measured + one_lost) / (composed + one_lost)).min(1.0).ln(); 2],
        added: (measured - composed).max(0.0),
        width: student_95(n - 1.0),
        pairs: robust.count,
        ..CompositionModel::prior(ComposedQuantity::Loss)
    };
    let least = mean(&|(sum, _)| model.centre(sum.depth));
    let squares = mean(&|(sum, measured)| (measured.depth - model.centre(sum.depth)).powi(2));
    let explained = mean(&|(sum, measured)| sum.variance * model.factor().powi(2) + measured.variance);
    let scales = mean(&|(sum, _)| model.centre(sum.depth).max(least).powi(2));
    // Include the variance of the mean itself, as for other quantities.
    let left = (squares - explained).max(0.0) + squares / n;
    Some(CompositionModel { variance: if scales > 0.0 { left / scales } else { 0.0 }, least, ..model })
}

/// Implements [`CompositionModel::estimate`] for losses.
pub(super) fn estimate(model: &CompositionModel, legs: &[LegForecast]) -> Option<PathEstimate> {
    let sum = LossDepth::of(legs)?;
    let value = share(model.centre(sum.depth));
    let centre = model.centre(sum.expected);
    let variance = model.factor().powi(2) * (sum.variance + sum.bursts)
        + model.variance * centre.max(model.least).powi(2);
    let width = model.width / NORMAL_95;
    let next =
        LossPosterior { mean: share(centre), variance: variance * (width * (1.0 - share(centre))).powi(2) };
    let estimate = PathEstimate {
        value,
        lower: next.next_share(0.05).min(value),
        upper: next.next_share(0.95).max(value),
    };
    ComposedQuantity::Loss.is_valid(&estimate).then_some(estimate)
}

impl CompositionModel {
    fn factor(&self) -> f64 {
        self.shift[1].exp()
    }

    fn centre(&self, depth: f64) -> f64 {
        self.added + self.factor() * depth
    }
}

/// −ln (1 − share) of a path, with legs taken as independent.
struct LossDepth {
    /// Sum of −ln (1 − share) over the forecasts of the legs.
    depth: f64,
    /// The same sum over the posterior means of the legs, given the datagrams so far; above 0 even
    /// if no datagram was lost.
    expected: f64,
    /// Variance of `expected`, due to the small number of datagrams.
    variance: f64,
    /// Variance of the legs' intervals in excess of `variance`. The cause of this excess is that
    /// losses come in bursts.
    bursts: f64,
}

impl LossDepth {
    fn of(legs: &[LegForecast]) -> Option<Self> {
        if legs.is_empty() || !legs.iter().all(|leg| ComposedQuantity::Loss.is_valid(&leg.forecast)) {
            return None;
        }
        let mut sum = Self { depth: 0.0, expected: 0.0, variance: 0.0, bursts: 0.0 };
        for LegForecast { forecast, count, .. } in legs {
            let seen = LossPosterior::of(forecast.value, *count);
            let beyond = |upper: f64| ((upper - forecast.value).max(0.0) / NORMAL_95).powi(2);
            // d −ln (1 − share) = d share / (1 − share).
            let slope = (1.0 - seen.mean).powi(-2);
            sum.depth += depth(forecast.value);
            sum.expected += depth(seen.mean);
            sum.variance += slope * seen.variance;
            sum.bursts += slope * (beyond(forecast.upper) - beyond(seen.next_share(0.95))).max(0.0);
        }
        Some(sum)
    }
}

/// Distribution of the probability that a datagram is lost.
struct LossPosterior {
    mean: f64,
    variance: f64,
}

impl LossPosterior {
    /// Posterior after `count` probes that lost this share of their datagrams. The prior is Beta(½,
    /// ½) (Jeffreys 1946).
    fn of(share: f64, count: u64) -> Self {
        let datagrams = count.min(MEMORY) as f64 * f64::from(ComposedQuantity::LOSS_DATAGRAMS);
        let mean = (datagrams * share + 0.5) / (datagrams + 1.0);
        Self { mean, variance: mean * (1.0 - mean) / (datagrams + 2.0) }
    }

    /// Quantile of the share that the next probe loses: beta-binomial.
    fn next_share(&self, level: f64) -> f64 {
        let n = ComposedQuantity::LOSS_DATAGRAMS;
        let total = (self.mean * (1.0 - self.mean) / self.variance - 1.0).clamp(1.0 / TOTAL_MAX, TOTAL_MAX);
        let (a, b) = (self.mean * total, ((1.0 - self.mean) * total).max(1.0 / TOTAL_MAX));
        let mut chance: f64 = (0..n).map(f64::from).map(|i| (b + i) / (a + b + i)).product();
        let (mut below, mut lost) = (chance, 0);
        while below < level && lost < n {
            // Compute the probability of `lost + 1` losses from the probability of `lost` losses.
            let (k, left) = (f64::from(lost), f64::from(n - lost));
            chance *= left / (k + 1.0) * (a + k) / (b + left - 1.0);
            below += chance;
            lost += 1;
        }
        f64::from(lost) / f64::from(n)
    }
}

fn depth(share: f64) -> f64 {
    -(1.0 - share.min(SHARE_MAX)).ln()
}

fn share(depth: f64) -> f64 {
    1.0 - (-depth).exp()
}

/// Largest share of lost datagrams that is used. A path with a higher loss is useless, and at a
/// share of 1 the logarithm would be infinite.
const SHARE_MAX: f64 = 0.999;

/// Value that is added to both sums of the ratio: the share of one lost datagram in one probe. With
/// this value, the ratio stays near 1 if there are no losses, or only a few by chance.
const ONE_LOST: f64 = 1.0 / ComposedQuantity::LOSS_DATAGRAMS as f64;

/// Number of probes that influence a forecast: the longest window of the battery
/// (docs/spec/full.md, method 8).
const MEMORY: u64 = 51;

/// Largest sum of the two parameters of the beta distribution, in datagrams; a larger sum changes
/// no quantile.
const TOTAL_MAX: f64 = 1e6;

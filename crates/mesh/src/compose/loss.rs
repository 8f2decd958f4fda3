//! Losses of legs, composed: −ln (1 − share) adds, as survivals multiply (independent losses).
//!
//! What other compositions do with logarithms cannot be done here: most losses are 0. So what pairs teach is a ratio of sums, and
//! the interval has at least the steps in which a probe of few datagrams can fall.

use super::{Composition, Estimate, Model, NORMAL_95, student_95};

/// As [`Model::learnt`], of paths across sites.
pub(super) fn learnt<'a>(pairs: impl Iterator<Item = (&'a [Estimate], f64)>) -> Model {
    let pairs: Vec<(Sum, f64)> = pairs
        .filter(|(_, measured)| (0.0..=1.0).contains(measured))
        .filter_map(|(legs, measured)| Some((Sum::of(legs)?, depth(measured))))
        .collect();
    if pairs.len() < Model::PAIRS_MIN {
        return Model::guessed(Composition::Loss, pairs.len());
    }
    let n = pairs.len() as f64;
    let composed: f64 = pairs.iter().map(|(sum, _)| sum.depth).sum();
    let measured: f64 = pairs.iter().map(|(_, measured)| measured).sum();
    let factor = (measured + ONE_LOST) / (composed + ONE_LOST);
    let left = pairs.iter().map(|(sum, measured)| {
        let explained = sum.below.max(sum.above) * factor.powi(2);
        (measured - factor * sum.depth).powi(2) - explained
    });
    // Relative to the estimate, as the scatter of other quantities is.
    let squares: f64 = pairs.iter().map(|(sum, _)| (factor * sum.depth).powi(2)).sum();
    let variance = if 0.0 < squares { left.sum::<f64>().max(0.0) / squares } else { 0.0 };
    Model {
        composition: Composition::Loss,
        shift: [factor.ln(); 2],
        variance,
        width: student_95(n - 1.0),
        pairs: pairs.len(),
    }
}

/// As [`Model::estimate`].
pub(super) fn estimate(model: &Model, legs: &[Estimate]) -> Option<Estimate> {
    let sum = Sum::of(legs)?;
    let factor = model.shift[1].exp();
    let centre = factor * sum.depth;
    let half =
        |variance: f64| model.width * (factor.powi(2) * variance + model.variance * centre.powi(2)).sqrt();
    let value = share(centre);
    let [least, most] = [0.05, 0.95].map(|level| next_share(value, level));
    let estimate = Estimate {
        value,
        lower: share((centre - half(sum.below)).max(0.0)).min(least).min(value),
        upper: share(centre + half(sum.above)).max(most).max(value),
    };
    Composition::Loss.admits(&estimate).then_some(estimate)
}

/// A path's −ln (1 − share), and its variances by the errors of its legs, taken as independent.
struct Sum {
    depth: f64,
    below: f64,
    above: f64,
}

impl Sum {
    fn of(legs: &[Estimate]) -> Option<Self> {
        if legs.is_empty() || !legs.iter().all(|leg| Composition::Loss.admits(leg)) {
            return None;
        }
        let over = |end: fn(&Estimate) -> f64| -> f64 {
            legs.iter().map(|leg| ((depth(end(leg)) - depth(leg.value)) / NORMAL_95).powi(2)).sum()
        };
        Some(Self {
            depth: legs.iter().map(|leg| depth(leg.value)).sum(),
            below: over(|leg| leg.lower),
            above: over(|leg| leg.upper),
        })
    }
}

fn depth(share: f64) -> f64 {
    -(1.0 - share.min(SHARE_MAX)).ln()
}

fn share(depth: f64) -> f64 {
    1.0 - (-depth).exp()
}

/// The quantile of the share that the next probe loses, where each datagram is lost with a probability of `share`.
pub(super) fn next_share(share: f64, level: f64) -> f64 {
    let n = Composition::LOSS_DATAGRAMS;
    let mut chance = (1.0 - share).powi(n as i32);
    let mut below = chance;
    let mut lost = 0;
    while below < level && lost < n {
        lost += 1;
        // Of exactly `lost`, from that of one fewer; all are lost if the share is 1.
        chance *= f64::from(n - lost + 1) / f64::from(lost) * share / (1.0 - share).max(f64::MIN_POSITIVE);
        below += chance;
    }
    f64::from(lost) / f64::from(n)
}

/// Beyond this a path carries nothing, and its logarithm would be infinite.
const SHARE_MAX: f64 = 0.999;

/// Counts on either side of the ratio as one datagram lost in one probe: a few losses by chance, or none, are no factor.
const ONE_LOST: f64 = 1.0 / Composition::LOSS_DATAGRAMS as f64;

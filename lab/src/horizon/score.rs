//! Scores forecasts against what was measured.

use serde::Serialize;

use crate::stats::{Rank, mean, quantile, sorted};

/// Level of the intervals that are scored.
pub(super) const LEVEL: f64 = 0.9;

/// Shares of the quantiles that are scored.
pub(super) const SHARES: [f64; 4] = [0.1, 0.5, 0.9, 0.99];

/// Coverage must hold in every disjoint block of this many values, not only over all values.
pub(super) const BLOCK: usize = 500;

/// A forecast, as it was issued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issued {
    /// Forecast that minimises the squared error.
    pub(super) mean: f64,
    /// Forecast that minimises the absolute error.
    pub(super) median: f64,
    pub(super) lower: f64,
    pub(super) upper: f64,
    /// Quantiles of the shares in [`SHARES`].
    pub(super) quantiles: [f64; SHARES.len()],
}

/// Scores of a forecaster on one trace; shares from 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Score {
    pub(crate) coverage: f64,
    /// The lowest coverage of a disjoint block of [`BLOCK`] forecasts.
    pub(crate) worst_block: f64,
    /// Mean half-width of the intervals.
    pub(crate) half_width: f64,
    pub(crate) mse: f64,
    pub(crate) mae: f64,
    /// Mean pinball loss over [`SHARES`].
    pub(crate) pinball: f64,
}

/// Scores forecasts; `None` if one of them is missing.
pub(super) fn score(issued: &[Option<Issued>], targets: &[f64]) -> Option<Score> {
    let issued: Vec<Issued> = issued.iter().copied().collect::<Option<_>>()?;
    let of = |of: fn(&Issued, f64) -> f64| -> Vec<f64> {
        issued.iter().zip(targets).map(|(issued, target)| of(issued, *target)).collect()
    };
    let inside = of(|issued, target| f64::from(u8::from(issued.lower <= target && target <= issued.upper)));
    let coverage = mean(&inside);
    Some(Score {
        coverage,
        worst_block: inside.chunks_exact(BLOCK).map(mean).fold(coverage, f64::min),
        half_width: mean(&of(|issued, _| 0.5 * (issued.upper - issued.lower))),
        mse: mean(&of(|issued, target| (issued.mean - target).powi(2))),
        mae: mean(&of(|issued, target| (issued.median - target).abs())),
        pinball: mean(&of(|issued, target| {
            mean(&[0, 1, 2, 3].map(|at| pinball(SHARES[at], issued.quantiles[at], target)))
        })),
    })
}

/// The loss that the quantile `share` minimises.
fn pinball(share: f64, quantile: f64, target: f64) -> f64 {
    let above = target - quantile;
    if above < 0.0 { (share - 1.0) * above } else { share * above }
}

/// The constant half-width around the medians that covers [`LEVEL`] of the targets.
pub(super) fn hindsight_half_width(issued: &[Option<Issued>], targets: &[f64]) -> Option<f64> {
    let errors =
        issued.iter().zip(targets).map(|(issued, target)| Some((issued.as_ref()?.median - target).abs()));
    quantile(&sorted(errors.collect::<Option<Vec<f64>>>()?), LEVEL, Rank::Least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_means_over_the_forecasts() {
        let issued =
            Issued { mean: 1.0, median: 2.0, lower: 0.0, upper: 4.0, quantiles: [0.0, 2.0, 4.0, 5.0] };
        let score = score(&[Some(issued); 2], &[3.0, 5.0]).unwrap();
        assert_eq!((score.coverage, score.worst_block, score.half_width), (0.5, 0.5, 2.0));
        assert_eq!((score.mse, score.mae), (10.0, 2.0));
        // 0.1·3 + 0.5·1 + 0.1·1 + 0.01·2 and 0.1·5 + 0.5·3 + 0.9·1 + 0, over four shares and two
        // targets.
        assert!((score.pinball - (0.92 + 2.9) / 8.0).abs() < 1e-12, "{score:?}");
        assert_eq!(hindsight_half_width(&[Some(issued); 2], &[3.0, 5.0]), Some(3.0));
        assert!(super::score(&[None], &[1.0]).is_none());
    }
}

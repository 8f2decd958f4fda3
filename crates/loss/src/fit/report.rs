//! How well the paper's models fit windows: Dickens §3.1.6–3.2, its Figures 4 to 6.

use super::Labelled;
use super::normality::{ShapiroWilk, shapiro_wilk};
use super::paper::{is_fitted, is_outlier, of, spread};
use crate::paper::{LOSS_RATE_LOW, LOSS_RATE_MAX, loss_rate};
use crate::{Cause, Curve, Metrics, Normal, PaperClassifier, PaperModel};

/// How well one model fits windows of its length, those it was fitted on or others.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FitReport {
    /// The length of the windows (packets).
    pub packets: u32,
    /// Complexity of what the host's CPU lost.
    pub cpu: CurveReport,
    /// Complexity of what the network lost.
    pub network: CurveReport,
    /// Success proportions, CPU and network; `None` where the model has none.
    pub low: Option<[LowReport; 2]>,
}

/// How well one curve fits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CurveReport {
    /// The curve.
    pub curve: Curve,
    /// Windows looked at.
    pub windows: usize,
    /// Share of the windows within 1, 2 and 3 standard deviations of the curve; of a normal distribution 0.683, 0.954, 0.997. NaN without windows.
    pub within: [f64; 3],
    /// By loss rate, in steps of 1, 2, 5 from 0.0005 to 0.05; the paper does not tell its own.
    pub bins: Vec<BinReport>,
}

/// Windows of similar loss rates.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BinReport {
    /// The lowest loss rate.
    pub from: f64,
    /// The loss rate that is too high; 0.05 itself is in the last bin.
    pub to: f64,
    /// Windows, outliers among them.
    pub windows: usize,
    /// Windows farther from the curve than 3 standard deviations, which are left out of what follows.
    pub outliers: usize,
    /// Their complexity in the mean, and its standard deviation; `None` with fewer than two windows.
    pub complexity: Option<Normal>,
    /// Whether their distances from the curve look normal; `None` with fewer than 3 or more than 5000 windows, or when all are the same.
    pub normality: Option<ShapiroWilk>,
}

/// How well a normal distribution fits success proportions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LowReport {
    /// The distribution of the model.
    pub normal: Normal,
    /// Windows looked at.
    pub windows: usize,
    /// Whether they look normal; `None` as in [`BinReport::normality`].
    pub normality: Option<ShapiroWilk>,
}

impl FitReport {
    /// One for each model of a classifier; windows of other lengths, of both causes or beyond 0.00008 to 0.05 are passed over.
    pub fn of(classifier: &PaperClassifier, windows: &[Labelled]) -> Vec<Self> {
        let report = |model: &PaperModel| {
            let is_of = |window: &&Labelled| window.metrics.packets == model.packets && is_fitted(window);
            let windows: Vec<_> = windows.iter().filter(is_of).collect();
            let low = |cause, normal| LowReport::of(normal, of(&windows, cause, true));
            Self {
                packets: model.packets,
                cpu: CurveReport::of(model.cpu, of(&windows, Cause::Host, false)),
                network: CurveReport::of(model.network, of(&windows, Cause::Network, false)),
                low: model.low.map(|model| [low(Cause::Host, model.cpu), low(Cause::Network, model.network)]),
            }
        };
        classifier.models().iter().map(report).collect()
    }
}

impl CurveReport {
    /// Bins that could be tested, and those in which a normal distribution need not be rejected (p at least 0.05).
    pub fn normal_bins(&self) -> (usize, usize) {
        let tested = || self.bins.iter().filter_map(|bin| bin.normality);
        (tested().count(), tested().filter(|test| test.p >= REJECTED_BELOW).count())
    }

    fn of<'a>(curve: Curve, windows: impl Iterator<Item = &'a Metrics>) -> Self {
        let pairs: Vec<_> = windows.map(|metrics| (loss_rate(metrics), metrics.complexity)).collect();
        let within = [1.0, 2.0, 3.0].map(|sds| {
            let is_within = |(rate, complexity): &&(f64, f64)| {
                (complexity - curve.at(*rate).mean).abs() <= sds * curve.sd
            };
            pairs.iter().filter(is_within).count() as f64 / pairs.len() as f64
        });
        let bins =
            BINS.windows(2).map(|bounds| BinReport::of(&curve, &pairs, bounds[0], bounds[1])).collect();
        Self { curve, windows: pairs.len(), within, bins }
    }
}

impl BinReport {
    fn of(curve: &Curve, pairs: &[(f64, f64)], from: f64, to: f64) -> Self {
        let is_last = BINS.last() == Some(&to);
        let is_here = |(rate, _): &(f64, f64)| *rate >= from && (*rate < to || (is_last && *rate == to));
        let mut pairs: Vec<_> = pairs.iter().copied().filter(is_here).collect();
        let windows = pairs.len();
        pairs.retain(|pair| !is_outlier(curve, *pair));
        let distances: Vec<f64> =
            pairs.iter().map(|(rate, complexity)| complexity - curve.at(*rate).mean).collect();
        Self {
            from,
            to,
            windows,
            outliers: windows - pairs.len(),
            complexity: spread(pairs.iter().map(|(_, complexity)| *complexity)),
            normality: shapiro_wilk(&distances),
        }
    }
}

impl LowReport {
    fn of<'a>(normal: Normal, windows: impl Iterator<Item = &'a Metrics>) -> Self {
        let values: Vec<_> = windows.map(|metrics| metrics.success_proportion).collect();
        Self { normal, windows: values.len(), normality: shapiro_wilk(&values) }
    }
}

/// From 0.0005 to 0.05, in the usual steps.
const BINS: [f64; 7] = [LOSS_RATE_LOW, 0.001, 0.002, 0.005, 0.01, 0.02, LOSS_RATE_MAX];

/// The usual level.
const REJECTED_BELOW: f64 = 0.05;

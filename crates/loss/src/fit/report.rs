//! Goodness of fit of the paper's models: Dickens §3.1.6–3.2, Figures 4 to 6.

use super::LabelledWindow;
use super::normality::{ShapiroWilk, shapiro_wilk};
use super::paper::{is_fitted, is_outlier, mean_and_sd, metrics_of};
use crate::paper::{LOSS_RATE_LOW, LOSS_RATE_MAX, loss_rate};
use crate::{ComplexityCurve, Label, Metrics, NormalDistribution, PaperClassifier, PaperModel};

/// Goodness of fit of one model on windows of the model's length. The model may be fitted on these
/// windows or on other windows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FitReport {
    /// Length of the windows, in packets.
    pub packets: u32,
    /// Complexity of windows with losses of the host.
    pub host: CurveReport,
    /// Complexity of windows with losses of the network.
    pub network: CurveReport,
    /// Success proportions, host and network; `None` if the model has none.
    pub low: Option<[LowReport; 2]>,
}

/// Goodness of fit of one curve.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CurveReport {
    /// The curve of the model.
    pub curve: ComplexityCurve,
    /// Number of windows that were compared.
    pub windows: usize,
    /// Share of the windows within 1, 2 and 3 standard deviations of the curve; for a normal
    /// distribution 0.683, 0.954 and 0.997. `None` without windows.
    pub within: Option<[f64; 3]>,
    /// Bins of the loss rate, in steps of 1, 2, 5 from 0.0005 to 0.05. The paper does not state its
    /// own bins.
    pub bins: Vec<BinReport>,
}

/// Windows with similar loss rates.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BinReport {
    /// Lowest loss rate of the bin, inclusive.
    pub from: f64,
    /// Upper end of the bin, exclusive; the last bin includes 0.05.
    pub to: f64,
    /// Number of windows, including outliers.
    pub windows: usize,
    /// Number of windows farther from the curve than 3 standard deviations. The fields below
    /// exclude these windows.
    pub outliers: usize,
    /// Mean and standard deviation of the complexity; `None` with fewer than two windows.
    pub complexity: Option<NormalDistribution>,
    /// Test whether the distances from the curve are normal; `None` with fewer than 3 or more than
    /// 5000 windows, or if all distances are equal.
    pub normality: Option<ShapiroWilk>,
}

/// Goodness of fit of a normal distribution to success proportions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LowReport {
    /// Distribution of the model.
    pub normal: NormalDistribution,
    /// Number of windows that were compared.
    pub windows: usize,
    /// Test whether the proportions are normal; `None` as in [`BinReport::normality`].
    pub normality: Option<ShapiroWilk>,
}

impl FitReport {
    /// Returns a report for each model of a classifier. Windows of other lengths, windows with both
    /// causes, and windows with a loss rate outside 0.00008 to 0.05 are ignored.
    ///
    /// ```
    /// use barograph_loss::{FitReport, Meter, PaperClassifier, read_labelled};
    ///
    /// let mut meter = Meter::new();
    /// let line = "3000,60,2000,40\tcause=cpu";
    /// let window = read_labelled(line, Some(10_000), &mut meter).unwrap();
    /// let reports = FitReport::of(&PaperClassifier::shipped(), window.as_slice());
    /// let (packets, host) = (reports[0].packets, &reports[0].host);
    /// assert_eq!((packets, host.windows), (10_000, 1));
    /// // The complexity of the window is within one standard deviation of the curve.
    /// assert_eq!(host.within, Some([1.0, 1.0, 1.0]));
    /// ```
    pub fn of(classifier: &PaperClassifier, windows: &[LabelledWindow]) -> Vec<Self> {
        let report = |model: &PaperModel| {
            let is_of =
                |window: &&LabelledWindow| window.metrics.packets == model.packets && is_fitted(window);
            let windows: Vec<_> = windows.iter().filter(is_of).collect();
            let low = |cause, normal| LowReport::of(normal, metrics_of(&windows, cause, true));
            Self {
                packets: model.packets,
                host: CurveReport::of(model.host, metrics_of(&windows, Label::Host, false)),
                network: CurveReport::of(model.network, metrics_of(&windows, Label::Network, false)),
                low: model
                    .low
                    .map(|model| [low(Label::Host, model.host), low(Label::Network, model.network)]),
            }
        };
        classifier.models().iter().map(report).collect()
    }
}

impl CurveReport {
    /// Returns two numbers: the bins that could be tested, and the tested bins that do not reject a
    /// normal distribution (p at least 0.05).
    pub fn normal_bins(&self) -> (usize, usize) {
        let tested = || self.bins.iter().filter_map(|bin| bin.normality);
        (tested().count(), tested().filter(|test| test.p >= REJECTED_BELOW).count())
    }

    fn of<'a>(curve: ComplexityCurve, windows: impl Iterator<Item = &'a Metrics>) -> Self {
        let pairs: Vec<_> = windows.map(|metrics| (loss_rate(metrics), metrics.complexity)).collect();
        let share_within = |sds: f64| {
            let is_within = |(rate, complexity): &&(f64, f64)| {
                (complexity - curve.at(*rate).mean).abs() <= sds * curve.sd
            };
            pairs.iter().filter(is_within).count() as f64 / pairs.len() as f64
        };
        let within = (!pairs.is_empty()).then(|| [1.0, 2.0, 3.0].map(share_within));
        let bins =
            BINS.windows(2).map(|bounds| BinReport::of(&curve, &pairs, bounds[0], bounds[1])).collect();
        Self { curve, windows: pairs.len(), within, bins }
    }
}

impl BinReport {
    fn of(curve: &ComplexityCurve, pairs: &[(f64, f64)], from: f64, to: f64) -> Self {
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
            complexity: mean_and_sd(pairs.iter().map(|(_, complexity)| *complexity)),
            normality: shapiro_wilk(&distances),
        }
    }
}

impl LowReport {
    fn of<'a>(normal: NormalDistribution, windows: impl Iterator<Item = &'a Metrics>) -> Self {
        let values: Vec<_> = windows.map(|metrics| metrics.success_proportion).collect();
        Self { normal, windows: values.len(), normality: shapiro_wilk(&values) }
    }
}

/// Ends of the bins, in steps of 1, 2, 5.
const BINS: [f64; 7] = [LOSS_RATE_LOW, 0.001, 0.002, 0.005, 0.01, 0.02, LOSS_RATE_MAX];

/// Level of significance of the test.
const REJECTED_BELOW: f64 = 0.05;

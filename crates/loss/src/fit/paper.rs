//! Fitting of the paper's models (Dickens §3.1.5–3.2).

use std::collections::{BTreeMap, BTreeSet};

use super::curve::{fit_exponential, fit_exponentials};
use super::order::in_order;
use super::{FitError, LabelledWindow, UnfittedLength};
use crate::paper::{
    ComplexityCurve, LOSS_RATE_LOW, LOSS_RATE_MAX, LOSS_RATE_MIN, LowModel, NormalDistribution, loss_rate,
};
use crate::{Label, Metrics, PaperClassifier, PaperModel};

/// Fits the paper's models, one for each length of windows. Lengths with too few windows or without
/// a curve are left out.
///
/// Windows with both causes, and windows with a loss rate outside 0.00008 to 0.05, are ignored. A
/// model needs 10 windows of each cause at a loss rate of 0.0005 or above. Below that rate, a model
/// uses success proportions if each cause has a window there and one cause has 3 or more; a cause
/// with fewer windows gets the standard deviation of the other cause.
///
/// The order of the windows does not matter.
///
/// ```
/// use barograph_loss::{Meter, fit_paper, read_labelled};
///
/// // One window of 20 000 packets is too few for a model.
/// let mut meter = Meter::new();
/// let window = read_labelled("3000,60\tcause=cpu", Some(20_000), &mut meter).unwrap();
/// let error = fit_paper(window.as_slice()).unwrap_err();
/// assert!(error.to_string().starts_with("windows of 20000 packets: too few windows"));
/// ```
///
/// # Errors
/// If no length has a model. The error has the reason for each length.
pub fn fit_paper(windows: &[LabelledWindow]) -> Result<PaperFit, FitError> {
    let mut lengths: BTreeMap<u32, Vec<&LabelledWindow>> = BTreeMap::new();
    for window in in_order(windows) {
        let of_length = lengths.entry(window.metrics.packets).or_default();
        if is_fitted(window) {
            of_length.push(window);
        }
    }
    let (mut models, mut runs, mut left_out) = (Vec::new(), BTreeSet::new(), Vec::new());
    for (packets, windows) in lengths {
        match fit_length(packets, &windows) {
            Ok(model) => {
                models.push(model);
                runs.extend(windows.iter().map(|window| &window.run));
            }
            Err(reason) => left_out.push(UnfittedLength { packets, reason }),
        }
    }
    if models.is_empty() {
        return Err(match left_out.is_empty() {
            true => {
                FitError::TooFew { cause: Label::Host, at: CURVE_RATES, found: 0, needed: CURVE_WINDOWS_MIN }
            }
            false => FitError::NoLength(left_out),
        });
    }
    Ok(PaperFit { classifier: PaperClassifier::new(runs.len() as u64, models), left_out })
}

/// Result of [`fit_paper`]: the classifier and the lengths without a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PaperFit {
    /// Classifier with a model for each fitted length.
    pub classifier: PaperClassifier,
    /// Lengths without a model, from short to long. For these lengths, the classifier uses the
    /// model with the nearest length.
    pub left_out: Vec<UnfittedLength>,
}

fn fit_length(packets: u32, windows: &[&LabelledWindow]) -> Result<PaperModel, FitError> {
    let curve = |cause, fit: Fit| {
        let pairs: Vec<_> = metrics_of(windows, cause, false)
            .map(|metrics| (loss_rate(metrics), metrics.complexity))
            .collect();
        if pairs.len() < CURVE_WINDOWS_MIN {
            return Err(FitError::TooFew {
                cause,
                at: CURVE_RATES,
                found: pairs.len(),
                needed: CURVE_WINDOWS_MIN,
            });
        }
        fit_without_outliers(pairs, fit)
            .map(rounded_curve)
            .map_err(|reason| FitError::NoCurve { cause, reason })
    };
    Ok(PaperModel {
        packets,
        windows: windows.len() as u64,
        low: low_model(windows),
        host: curve(Label::Host, fit_exponential)?,
        network: curve(Label::Network, fit_exponentials)?,
    })
}

/// Fits a curve to pairs of loss rate and complexity.
type Fit = fn(&[(f64, f64)]) -> Result<ComplexityCurve, &'static str>;

/// Fits twice: the second time without the points far from the first curve. Dickens §3.2 removes
/// outliers and does not state how.
fn fit_without_outliers(mut pairs: Vec<(f64, f64)>, fit: Fit) -> Result<ComplexityCurve, &'static str> {
    let first = fit(&pairs)?;
    let all = pairs.len();
    pairs.retain(|pair| !is_outlier(&first, *pair));
    if pairs.len() == all || pairs.len() < CURVE_WINDOWS_MIN { Ok(first) } else { fit(&pairs) }
}

/// Outliers are not removed here. Almost all proportions of a cause may be equal, and without
/// outliers the standard deviation would be 0.
fn low_model(windows: &[&LabelledWindow]) -> Option<LowModel> {
    let normal = |cause| {
        let proportions = metrics_of(windows, cause, true).map(|metrics| metrics.success_proportion);
        let count = proportions.clone().count();
        let mean = proportions.clone().sum::<f64>() / count as f64;
        let sd = mean_and_sd(proportions).filter(|_| count >= SPREAD_WINDOWS_MIN).map(|normal| normal.sd);
        (count > 0).then_some((mean, sd))
    };
    let ((host, host_sd), (network, network_sd)) = (normal(Label::Host)?, normal(Label::Network)?);
    let normal = |mean, sd: f64| NormalDistribution { mean: rounded(mean), sd: rounded(sd.max(SD_MIN)) };
    Some(LowModel {
        host: normal(host, host_sd.or(network_sd)?),
        network: normal(network, network_sd.or(host_sd)?),
    })
}

fn rounded_curve(curve: ComplexityCurve) -> ComplexityCurve {
    let ComplexityCurve { a, b, c, d, sd } = curve;
    ComplexityCurve {
        a: rounded(a),
        b: rounded(b),
        c: rounded(c),
        d: rounded(d),
        sd: rounded(sd.max(SD_MIN)),
    }
}

/// Rounds to six digits. Further digits depend on the machine, and a regenerated file would differ.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Whether a window is used for fitting.
pub(super) fn is_fitted(window: &LabelledWindow) -> bool {
    let Metrics { na17, complexity, success_proportion, .. } = window.metrics;
    let rate = loss_rate(&window.metrics);
    window.cause != Label::Both
        && na17 > 0
        && complexity.is_finite()
        && success_proportion.is_finite()
        && (LOSS_RATE_MIN..=LOSS_RATE_MAX).contains(&rate)
}

/// Mean and standard deviation of at least two values.
pub(super) fn mean_and_sd(values: impl Iterator<Item = f64> + Clone) -> Option<NormalDistribution> {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (count >= 2.0).then(|| NormalDistribution { mean, sd: (squares / (count - 1.0)).sqrt() })
}

/// Metrics of the windows of one cause at low loss rates, or at higher loss rates.
pub(super) fn metrics_of<'a>(
    windows: &'a [&'a LabelledWindow],
    cause: Label,
    is_low: bool,
) -> impl Iterator<Item = &'a Metrics> + Clone {
    windows
        .iter()
        .filter(move |window| window.cause == cause && (loss_rate(&window.metrics) < LOSS_RATE_LOW) == is_low)
        .map(|window| &window.metrics)
}

/// Whether a point lies too far from a curve to belong to it.
pub(super) fn is_outlier(curve: &ComplexityCurve, (rate, complexity): (f64, f64)) -> bool {
    (complexity - curve.at(rate).mean).abs() > OUTLIER_SDS * curve.sd
}

/// Kinds of contention that the paper fitted its models on, generated (§3.1.4) or observed (§7.1).
/// Kinds of the network: random losses, streams, bursts and TCP. Kinds of the host: the process
/// generator and a share of the CPU. The shipped model of [`PaperClassifier`] is fitted on these
/// kinds.
pub const PAPER_KINDS: [&str; 6] = ["random", "poisson", "onoff", "tcp", "gen", "quota"];

/// Smallest number of windows from which a curve is fitted. A curve has four constants, and the
/// error of its standard deviation must be at most a third.
const CURVE_WINDOWS_MIN: usize = 10;

/// [`LOSS_RATE_LOW`] to [`LOSS_RATE_MAX`], for messages.
const CURVE_RATES: &str = " at loss rates of 0.0005 to 0.05";

/// Smallest number of values for a standard deviation, as in the test of Shapiro and Wilk. Two
/// values could be equal by chance.
const SPREAD_WINDOWS_MIN: usize = 3;

/// Largest distance from the curve, in standard deviations. In a normal distribution, one value in
/// 370 is farther away.
const OUTLIER_SDS: f64 = 3.0;

/// Smallest standard deviation of a curve. It is the standard deviation of rounding to one word:
/// log2(35/34)/17 = 0.0025 for the 34 words of a window with one burst, divided by √12.
const SD_MIN: f64 = 0.0007;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Evidence, Signature, Verdict};

    fn window(cause: Label, lost: u32, complexity: f64, success_proportion: f64) -> LabelledWindow {
        let metrics = Metrics {
            packets: 100_000,
            lost,
            na17: 34,
            complexity,
            success_proportion,
            ..Metrics::default()
        };
        let (signature, evidence) = (Signature::new(), Evidence::default());
        LabelledWindow { signature, metrics, evidence, cause, kind: String::new(), run: lost.to_string() }
    }

    /// Windows with loss rates of 0.0005 to 0.05 and complexities of 0.3 and 0.6, alternately 0.01
    /// more and less.
    fn windows(count: u32) -> Vec<LabelledWindow> {
        let both = |index| {
            let (lost, off) = (50 + 4950 * index / count, if index % 2 == 0 { 0.01 } else { -0.01 });
            [window(Label::Host, lost, 0.3 + off, 0.9), window(Label::Network, lost, 0.6 + off, 0.1)]
        };
        (0..count).flat_map(both).collect()
    }

    #[test]
    fn windows_outside_the_fit_and_outliers_leave_the_curves_unchanged() {
        let mut all = windows(50);
        let fitted = fit_paper(&all).unwrap().classifier;
        all.push(window(Label::Both, 1000, 0.9, 0.5));
        all.push(window(Label::Host, 7, 0.9, 0.5));
        all.push(window(Label::Host, 5001, 0.9, 0.5));
        all.push(window(Label::Host, 1000, f64::NAN, 0.5));
        assert_eq!(fit_paper(&all).unwrap().classifier, fitted);
        // An outlier does not change the curve or its standard deviation, but the outlier is
        // counted as a window.
        all.push(window(Label::Host, 1000, 0.9, 0.5));
        let with_outlier = fit_paper(&all).unwrap().classifier;
        assert_eq!(
            (with_outlier.models()[0].host, with_outlier.models()[0].windows),
            (fitted.models()[0].host, 101)
        );
        assert_eq!(PaperClassifier::read(&fitted.write()).unwrap(), fitted);
        let model = &fitted.models()[0];
        assert!(
            (model.host.at(0.01).mean - 0.3).abs() < 0.003 && (model.host.sd - 0.01).abs() < 0.001,
            "{model:?}"
        );
        assert!((model.network.at(0.01).mean - 0.6).abs() < 0.005, "{model:?}");
    }

    #[test]
    fn too_few_windows_are_an_error_with_cause_and_count() {
        let few = |cause, found| FitError::TooFew { cause, at: CURVE_RATES, found, needed: 10 };
        let none = |reason| Err(FitError::NoLength(vec![UnfittedLength { packets: 100_000, reason }]));
        assert_eq!(fit_paper(&[]), Err(few(Label::Host, 0)));
        assert_eq!(fit_paper(&windows(9)), none(few(Label::Host, 9)));
        let mut all = windows(10);
        all.retain(|window| window.cause == Label::Host);
        assert_eq!(fit_paper(&all), none(few(Label::Network, 0)));
        assert_eq!(fit_paper(&windows(10)).map(|fit| fit.classifier.models().len()), Ok(1));
        assert_eq!(
            fit_paper(&windows(9)).unwrap_err().to_string(),
            "windows of 100000 packets: too few windows with losses of the host only at loss rates of 0.0005 to 0.05: 9 of the 10 needed"
        );
    }

    #[test]
    fn lengths_that_cannot_be_fitted_are_reported_and_the_other_lengths_fitted() {
        let mut all = windows(20);
        let fitted = fit_paper(&all).unwrap();
        assert_eq!(fitted.left_out, []);
        let of_length = |packets, mut window: LabelledWindow| {
            window.metrics.packets = packets;
            window
        };
        // Add two lengths without a model: one with too few windows in the range of loss rates, and
        // one with complexities that no curve fits.
        all.extend(
            windows(20)
                .into_iter()
                .map(|window| of_length(20_000, window))
                .filter(|window| window.metrics.lost < 500),
        );
        all.extend(windows(20).into_iter().map(|mut window| {
            window.metrics.complexity *= 1e300;
            of_length(200_000, window)
        }));
        let found = fit_paper(&all).unwrap();
        assert_eq!(found.classifier, fitted.classifier);
        let said: Vec<_> = found.left_out.iter().map(UnfittedLength::to_string).collect();
        assert_eq!(
            said,
            [
                "windows of 20000 packets: too few windows with losses of the host only at loss rates of 0.0005 to 0.05: 2 of the 10 needed",
                "windows of 200000 packets: no curve fits the complexities of losses of the host: the fit met numbers that are not finite"
            ]
        );
    }

    #[test]
    fn the_order_of_windows_does_not_change_the_fit() {
        let mut all = windows(60);
        for (index, window) in all.iter_mut().enumerate() {
            window.metrics.complexity += 1e-4 * (index as f64 * 0.7).sin();
        }
        let fitted = fit_paper(&all).unwrap();
        all.reverse();
        assert_eq!(fit_paper(&all).unwrap(), fitted);
        all.sort_by_key(|window| window.metrics.lost % 7);
        assert_eq!(fit_paper(&all).unwrap(), fitted);
    }

    #[test]
    fn at_low_loss_both_causes_share_a_deviation_if_one_cause_has_few_windows() {
        let mut all = windows(20);
        let low = |all: &[LabelledWindow]| fit_paper(all).unwrap().classifier.models()[0].low;
        all.extend([0.0, 0.1, 0.2].map(|success| window(Label::Network, 20, 0.3, success)));
        assert_eq!(low(&all), None);
        all.push(window(Label::Host, 20, 0.3, 0.9));
        let (host, network) =
            (NormalDistribution { mean: 0.9, sd: 0.1 }, NormalDistribution { mean: 0.1, sd: 0.1 });
        assert_eq!(low(&all), Some(LowModel { host, network }));
        let said = fit_paper(&all).unwrap().classifier.diagnose(&window(Label::Host, 40, 0.3, 0.8).metrics);
        assert_eq!(said.verdict, Verdict::Host);
        all.extend([0.8, 0.7].map(|success| window(Label::Host, 20, 0.3, success)));
        assert_eq!(low(&all).unwrap().host, NormalDistribution { mean: 0.8, sd: 0.1 });
    }

    #[test]
    fn equal_windows_get_the_minimum_standard_deviation() {
        let same = |cause, complexity| (0..30).map(move |_| window(cause, 1000, complexity, 0.5));
        let all: Vec<_> = same(Label::Host, 0.3).chain(same(Label::Network, 0.6)).collect();
        if let Ok(PaperFit { classifier, .. }) = fit_paper(&all) {
            assert_eq!(classifier.models()[0].host.sd, SD_MIN);
            assert_eq!(PaperClassifier::read(&classifier.write()), Ok(classifier));
        }
    }
}

//! The paper's classifier (Dickens §3).

use std::fmt::Write;
use std::ops::RangeInclusive;

use serde::Deserialize;

use crate::evidence::VERDICT_PROBABILITY;
use crate::model;
use crate::{Diagnosis, Metrics, ModelError, Signature, Verdict, WORD_MAX};

/// The classifier exactly as Dickens §3 describes it, from one metric of the pattern of losses.
///
/// From a loss rate of 0.0005 on, the metric is the complexity, compared with its mean at that
/// rate; from 0.00008 to 0.0005 it is the success proportion. The likelihood of a cause is the area
/// of its normal distribution that is farther from the mean than the metric. Both causes are
/// equally likely a priori, and a verdict needs a probability of 0.95. At loss rates below 0.00008,
/// and if neither cause explains the metric, both causes stay equally likely. The result is marked
/// as extrapolated above a loss rate of 0.05, and for windows shorter or longer than all fitted
/// windows.
///
/// A fit is valid for one length of windows. The classifier uses the fitted length that is nearest
/// on a logarithmic scale. Constants are not interpolated, because interpolated constants do not
/// belong to any fit.
///
/// ```
/// use barograph_loss::{Meter, PaperClassifier, Signature, Verdict};
///
/// let window = Signature::from_runs(20_000, [3000, 60, 2000, 150, 5000, 90]).unwrap();
/// let diagnosis = PaperClassifier::shipped().diagnose(&Meter::new().measure(&window));
/// assert_eq!((diagnosis.verdict, diagnosis.lost_host), (Verdict::Host, 300));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PaperClassifier {
    runs: u64,
    models: Vec<PaperModel>,
}

/// Model fitted on windows of one length.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PaperModel {
    /// Length of the windows, in packets.
    pub packets: u32,
    /// Number of windows that were fitted.
    pub windows: u64,
    /// Success proportion at low loss rates; `None` if there were too few windows. Windows at these
    /// loss rates are then inconclusive.
    pub low: Option<LowModel>,
    /// Complexity of windows with losses of the host's CPU.
    #[serde(rename = "cpu")]
    pub host: ComplexityCurve,
    /// Complexity of windows with losses of the network.
    pub network: ComplexityCurve,
}

/// Success proportion at loss rates of 0.00008 to 0.0005, where it does not depend on the rate
/// (Dickens §3.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LowModel {
    /// Success proportion of windows with losses of the host's CPU.
    #[serde(rename = "cpu")]
    pub host: NormalDistribution,
    /// Success proportion of windows with losses of the network.
    pub network: NormalDistribution,
}

/// A normal distribution with its mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NormalDistribution {
    /// Mean of the distribution, without unit.
    pub mean: f64,
    /// Standard deviation, greater than 0.
    pub sd: f64,
}

/// Mean complexity as a function of the loss rate p, a exp(b p) + c exp(d p), with the standard
/// deviation around the mean (Dickens §3.1.6). For the CPU there is one exponential: c and d are 0.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the formula defines a to d")]
pub struct ComplexityCurve {
    pub a: f64,
    pub b: f64,
    #[serde(default)]
    pub c: f64,
    #[serde(default)]
    pub d: f64,
    /// Standard deviation of the complexity around the curve, greater than 0.
    pub sd: f64,
}

impl NormalDistribution {
    /// Probability that a sample is at least as far from the mean as `value`, on either side, 0 to
    /// 1: 1 − P(−z < Z < z) (Dickens §3.3).
    ///
    /// ```
    /// use barograph_loss::PaperClassifier;
    ///
    /// let complexity = PaperClassifier::shipped().models()[0].host.at(0.01);
    /// assert_eq!(complexity.tail_area(complexity.mean), 1.0);
    /// // About 4.6 % of the samples are farther from the mean than two standard deviations.
    /// let two_sds = complexity.mean + 2.0 * complexity.sd;
    /// assert!((complexity.tail_area(two_sds) - 0.0455).abs() < 0.0001);
    /// ```
    pub fn tail_area(&self, value: f64) -> f64 {
        let z = (value - self.mean).abs() / self.sd;
        libm::erfc(z * std::f64::consts::FRAC_1_SQRT_2)
    }

    fn is_possible(&self) -> bool {
        self.mean.is_finite() && self.sd.is_finite() && self.sd > 0.0
    }
}

impl ComplexityCurve {
    /// Distribution of the complexity at a loss rate of 0 to 1.
    ///
    /// ```
    /// use barograph_loss::PaperClassifier;
    ///
    /// // The curve of the host has one exponential.
    /// let curve = PaperClassifier::shipped().models()[0].host;
    /// assert_eq!((curve.at(0.0).mean, curve.at(0.0).sd), (curve.a, curve.sd));
    /// ```
    pub fn at(&self, loss_rate: f64) -> NormalDistribution {
        let exponential = |factor: f64, exponent: f64| factor * libm::exp(exponent * loss_rate);
        NormalDistribution { mean: exponential(self.a, self.b) + exponential(self.c, self.d), sd: self.sd }
    }

    /// Each term of the curve is monotone, so a curve with finite values at both ends is finite
    /// between these ends.
    pub(crate) fn is_possible(&self) -> bool {
        [self.a, self.b, self.c, self.d].iter().all(|constant| constant.is_finite())
            && self.at(0.0).is_possible()
            && self.at(1.0).is_possible()
    }
}

impl PaperClassifier {
    /// Loss rates for which the classifier is made (Dickens §2.2, §3.1.4) and results are
    /// published.
    pub const LOSS_RATES: RangeInclusive<f64> = LOSS_RATE_MIN..=LOSS_RATE_MAX;

    /// Creates a classifier with the shipped model, `models/paper.toml`, fitted on the paper's
    /// kinds of contention. The script `scripts/fit-models` regenerates this model.
    pub fn shipped() -> Self {
        // A test ensures that the model is readable, so the default is not used. The default would
        // be a classifier without models, and every window would be inconclusive.
        Self::read(SHIPPED).unwrap_or_default()
    }

    #[cfg(feature = "fit")]
    pub(crate) fn new(runs: u64, models: Vec<PaperModel>) -> Self {
        Self { runs, models }
    }

    /// Creates a classifier with a saved model.
    ///
    /// # Errors
    /// If the model is truncated, newer than this program, or impossible.
    pub fn read(model: &str) -> Result<Self, ModelError> {
        let File { fitted_on, models } = model::read(model, FORMAT, VERSION)?;
        let mut longer_than = WORD_MAX - 1;
        for PaperModel { packets, low, host, network, .. } in &models {
            if *packets <= longer_than || *packets > Signature::PACKETS_MAX {
                return Err(ModelError::Invalid(format!(
                    "a model for windows of {packets} packets follows one of {longer_than}; lengths must increase, \
                     from {WORD_MAX} to {}",
                    Signature::PACKETS_MAX
                )));
            }
            let is_low_possible = low.is_none_or(|low| low.host.is_possible() && low.network.is_possible());
            if !(is_low_possible && host.is_possible() && network.is_possible()) {
                return Err(ModelError::Invalid(format!(
                    "a curve for windows of {packets} packets has constants out of range"
                )));
            }
            longer_than = *packets;
        }
        // Detects a file that was truncated between two models.
        if models.is_empty() || count(&models) != Some(fitted_on.windows) {
            return Err(ModelError::Invalid("models are missing; the file may be truncated".to_owned()));
        }
        Ok(Self { runs: fitted_on.runs, models })
    }

    /// Returns the model as text, for [`PaperClassifier::read`].
    pub fn write(&self) -> String {
        let windows = count(&self.models).unwrap_or_default();
        let mut text = format!(
            "# The paper's classifier (Dickens §3): complexity against the loss rate p, a exp(b p) + c exp(d p), and at low loss the\n\
             # success proportion.\n\
             format = \"{FORMAT}\"\nversion = {VERSION}\nfitted_on = {{ windows = {windows}, runs = {} }}\n",
            self.runs
        );
        let normal =
            |normal: &NormalDistribution| format!("{{ mean = {:?}, sd = {:?} }}", normal.mean, normal.sd);
        for PaperModel { packets, windows, low, host, network } in &self.models {
            let _ = write!(text, "\n[[models]]\npackets = {packets}\nwindows = {windows}\n");
            if let Some(low) = low {
                let _ = writeln!(
                    text,
                    "low = {{ cpu = {}, network = {} }}",
                    normal(&low.host),
                    normal(&low.network)
                );
            }
            let _ = writeln!(text, "cpu = {{ a = {:?}, b = {:?}, sd = {:?} }}", host.a, host.b, host.sd);
            let ComplexityCurve { a, b, c, d, sd } = network;
            let _ = writeln!(text, "network = {{ a = {a:?}, b = {b:?}, c = {c:?}, d = {d:?}, sd = {sd:?} }}");
        }
        text
    }

    /// Fitted models, from short to long windows.
    pub fn models(&self) -> &[PaperModel] {
        &self.models
    }

    /// Diagnoses a window with these `metrics`.
    pub fn diagnose(&self, metrics: &Metrics) -> Diagnosis {
        let mut diagnosis = Diagnosis::inconclusive(metrics.lost);
        let Some((host, network)) = self.likelihoods(metrics) else { return diagnosis };
        diagnosis.evidence_used.pattern = true;
        diagnosis.evidence_used.extrapolated =
            loss_rate(metrics) > LOSS_RATE_MAX || !self.has_length(metrics.packets);
        if host.max(network) >= TAIL_MIN {
            diagnosis.p_host = host / (host + network);
        }
        if diagnosis.p_host >= VERDICT_PROBABILITY {
            diagnosis.verdict = Verdict::Host;
            diagnosis.lost_host = std::mem::take(&mut diagnosis.lost_unknown);
        } else if 1.0 - diagnosis.p_host >= VERDICT_PROBABILITY {
            diagnosis.verdict = Verdict::Network;
            diagnosis.lost_network = std::mem::take(&mut diagnosis.lost_unknown);
        }
        diagnosis
    }

    /// Tail areas of both causes; `None` if the window has too little information.
    fn likelihoods(&self, metrics: &Metrics) -> Option<(f64, f64)> {
        let rate = loss_rate(metrics);
        if metrics.na17 == 0 || rate < LOSS_RATE_MIN {
            return None;
        }
        let model = self.model_for(metrics.packets)?;
        if rate < LOSS_RATE_LOW {
            let tail_area = |normal: NormalDistribution| normal.tail_area(metrics.success_proportion);
            model.low.map(|low| (tail_area(low.host), tail_area(low.network)))
        } else {
            let tail_area = |curve: ComplexityCurve| curve.at(rate).tail_area(metrics.complexity);
            Some((tail_area(model.host), tail_area(model.network)))
        }
    }

    /// Whether `packets` is within the range of fitted lengths.
    fn has_length(&self, packets: u32) -> bool {
        match self.models.as_slice() {
            [shortest, .., longest] => (shortest.packets..=longest.packets).contains(&packets),
            [only] => only.packets == packets,
            [] => false,
        }
    }

    /// Returns the model with the nearest length, by ratio.
    fn model_for(&self, packets: u32) -> Option<&PaperModel> {
        let packets = f64::from(packets);
        let ratio =
            |model: &PaperModel| (packets / f64::from(model.packets)).max(f64::from(model.packets) / packets);
        self.models.iter().min_by(|one, other| ratio(one).total_cmp(&ratio(other)))
    }
}

/// Share of the packets that were lost, 0 to 1; 0 if there are none.
pub(crate) fn loss_rate(metrics: &Metrics) -> f64 {
    if metrics.packets == 0 { 0.0 } else { f64::from(metrics.lost) / f64::from(metrics.packets) }
}

fn count(models: &[PaperModel]) -> Option<u64> {
    models.iter().try_fold(0u64, |sum, model| sum.checked_add(model.windows))
}

/// Contents of a model file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    fitted_on: FittedOn,
    models: Vec<PaperModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FittedOn {
    windows: u64,
    runs: u64,
}

const FORMAT: &str = "barograph-loss-paper";

/// Version of the format that is read and written.
const VERSION: u64 = 1;

const SHIPPED: &str = include_str!("../models/paper.toml");

/// Lowest loss rate that the classifier judges. Below this rate, signatures "did not, in general,
/// contain enough information" (Dickens §2.2, §3.1.5).
pub(crate) const LOSS_RATE_MIN: f64 = 0.00008;

/// Lowest loss rate at which the complexity is used. Below this rate, the complexities of both
/// causes overlap (Dickens §3.1.4).
pub(crate) const LOSS_RATE_LOW: f64 = 0.0005;

/// Highest loss rate that models are fitted and reported on: "loss rates in the range of 0 to 5%"
/// (Dickens §3.1.4).
pub(crate) const LOSS_RATE_MAX: f64 = 0.05;

/// Smallest tail area at which a cause explains a window. If both tail areas are smaller, neither
/// cause explains the window: its metric is about five standard deviations or more from both means.
/// Under a normal distribution, the expected number of such windows among the paper's 160 000 is
/// 0.16, less than one window (§4.3). So the data do not show which cause has more windows at this
/// distance from its mean.
const TAIL_MIN: f64 = 1e-6;

#[cfg(test)]
mod tests;

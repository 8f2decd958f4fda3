//! Model of the pattern of losses, with the sender's burst and the delay before the losses if
//! known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::evidence::VERDICT_PROBABILITY;
use crate::model;
use crate::paper::{LOSS_RATE_MAX, LOSS_RATE_MIN, loss_rate};
use crate::{Metrics, ModelError, Signature, WORD_MAX};

/// Features of the model, by their names in its file. Lengths, spacings and counts are natural
/// logarithms; the delay (µs) is a decimal logarithm.
pub(crate) const FEATURES: [&str; 13] = [
    "weighted_burst",
    "mean_burst",
    "longest_burst",
    "success_proportion",
    "isolated",
    "mean_spacing",
    "is_lone_run",
    "inverse_burst",
    "weighted_burst_apart",
    "close_spacings",
    "weighted_burst_in_bursts",
    "longest_burst_in_bursts",
    "delay",
];

/// Number of features that are always known. Two further features need the burst, and the last one
/// needs the delay.
const ALWAYS: usize = FEATURES.len() - 3;

/// Index of the delay in [`FEATURES`].
const DELAY: usize = FEATURES.len() - 1;

/// Constant that is added to a delay before its logarithm is taken, µs. The constant is about as
/// large as the noise of clocks and interrupts.
const DELAY_FLOOR_US: f64 = 5.0;

/// Largest weight that a model file may contain. This limit is far above the weights of any
/// sensible model: a weight of 1000 gives one feature alone a factor of e^1000.
const WEIGHT_MAX: f64 = 1e3;

/// Evidence on a window or on a part of a window, in addition to the pattern of losses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KnownEvidence {
    /// Number of packets that the sender sends at once.
    pub(crate) burst: Option<u32>,
    /// One-way delay before the losses, minus the path's minimum, s.
    pub(crate) delay_s: Option<f64>,
    /// Whether the network marked packets as congested.
    pub(crate) is_marked: bool,
}

/// Model of the probability that the host lost the packets. For each combination of known evidence,
/// the model is a logistic model with three causes: the host, a full queue, and a network without a
/// queue.
///
/// The two network causes have different patterns. A queue delays packets before it drops packets,
/// and the dropped packets are close to each other. A faulty link, a policer or a filter does not
/// delay packets, and the dropped packets are not close to each other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PatternModel {
    /// Range of the lengths of the windows that the model was fitted on, in packets.
    pub(crate) packets: WindowRange,
    /// Models by [`KnownEvidence::index`].
    pub(crate) odds: [CauseModel; 4],
}

/// Range of lengths of windows, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WindowRange {
    pub(crate) low: u32,
    pub(crate) high: u32,
}

/// Log-odds of the two network causes against the host: a full queue, and a network without a
/// queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogOdds {
    pub(crate) queue: f64,
    pub(crate) link: f64,
}

/// Weight of one feature in the log-odds. A value outside the fitted range counts as the nearer end
/// of the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeatureWeight {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) queue: f64,
    pub(crate) link: f64,
}

/// Model for one combination of known evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CauseModel {
    pub(crate) base: LogOdds,
    /// Terms by [`FEATURES`]; features that are not known have no weight.
    pub(crate) terms: [FeatureWeight; FEATURES.len()],
}

impl KnownEvidence {
    /// All combinations in the order of [`KnownEvidence::index`], with their names in the file.
    pub(crate) const COMBINATIONS: [(&str, EvidenceKinds); 4] = [
        ("pattern", EvidenceKinds { has_burst: false, has_delay: false }),
        ("pattern_and_burst", EvidenceKinds { has_burst: true, has_delay: false }),
        ("pattern_and_delay", EvidenceKinds { has_burst: false, has_delay: true }),
        ("pattern_burst_and_delay", EvidenceKinds { has_burst: true, has_delay: true }),
    ];

    /// Index of the combination.
    fn index(self) -> usize {
        usize::from(self.burst.is_some()) + 2 * usize::from(self.delay_s.is_some())
    }
}

/// Combination of the evidence that may be known in addition to the pattern of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvidenceKinds {
    /// Whether [`KnownEvidence::burst`] is known.
    pub(crate) has_burst: bool,
    /// Whether [`KnownEvidence::delay_s`] is known.
    pub(crate) has_delay: bool,
}

impl EvidenceKinds {
    /// Whether the feature at this index of [`FEATURES`] can be computed from the evidence.
    pub(crate) fn has_feature(self, feature: usize) -> bool {
        match feature {
            0..ALWAYS => true,
            DELAY => self.has_delay,
            _ => self.has_burst,
        }
    }
}

/// Values of [`FEATURES`] for a window with losses; 0 for features that are not known.
///
/// The number of runs and the variation of their spacings are no features: both depend on the
/// length of the window and on how busy the host or the link is, not on the cause.
pub(crate) fn features(metrics: &Metrics, known: KnownEvidence) -> [f64; FEATURES.len()] {
    let single = f64::from(metrics.packets.saturating_sub(metrics.lost));
    let spacing = if metrics.gaps > 1 { metrics.mean_spacing } else { single };
    let weighted = metrics.weighted_run.ln();
    let longest = f64::from(metrics.longest_run.max(1));
    // Three spacings are added that are not close, because a single close spacing is little
    // evidence.
    let close = f64::from(metrics.close_spacings) / (f64::from(metrics.gaps) + 2.0);
    // Long runs that are not close to each other are the host's. A lone run has no spacing.
    let apart = if metrics.gaps > 1 { weighted * (1.0 - close) } else { 0.0 };
    // Only runs longer than a burst are measured in bursts, because the burst adds no information
    // to shorter runs.
    let in_bursts = |run: f64| known.burst.map_or(0.0, |burst| (run / f64::from(burst.max(1))).max(1.0).ln());
    [
        weighted,
        metrics.mean_run.ln(),
        longest.ln(),
        metrics.success_proportion,
        metrics.isolated,
        spacing.ln_1p(),
        f64::from(u8::from(metrics.gaps == 1)),
        metrics.weighted_run.recip(),
        apart,
        close,
        in_bursts(metrics.weighted_run),
        in_bursts(longest),
        known.delay_s.map_or(0.0, |delay| (delay.max(0.0) * 1e6 + DELAY_FLOOR_US).log10()),
    ]
}

impl PatternModel {
    /// Probability that the host lost the packets of this window, 0 to 1.
    pub(crate) fn p_host(&self, metrics: &Metrics, known: KnownEvidence) -> f64 {
        self.odds[known.index()].p_host(&features(metrics, known), known.is_marked)
    }

    /// As [`Self::p_host`], with [`HOST_EXPONENT`] for windows of [`MANY_RUNS`] runs or more. But
    /// if the model of all evidence names no cause, the most certain model of a part of the
    /// evidence decides. If it favours the other cause, it must be [`CONTRARY_PROBABILITY`]
    /// certain.
    ///
    /// The weights of a model with more features are less certain. Without this rule, further
    /// evidence would make windows undecided that a part of the evidence decides.
    pub(crate) fn p_host_by_parts(&self, metrics: &Metrics, known: KnownEvidence) -> f64 {
        // A model has no weights for the features that its evidence does not have.
        let features = features(metrics, known);
        let of = |index: usize| {
            let p_host = self.odds[index].p_host(&features, known.is_marked);
            if metrics.gaps < MANY_RUNS { p_host } else { with_many_runs(p_host) }
        };
        let all = known.index();
        let whole = of(all);
        let parts = (0..all).filter(|part| part & all == *part).map(of);
        let surest = parts.fold(
            whole,
            |surest, part| {
                if (part - 0.5).abs() > (surest - 0.5).abs() { part } else { surest }
            },
        );
        let certainty = |p_host: f64| p_host.max(1.0 - p_host);
        let is_alike = (surest > 0.5) == (whole > 0.5);
        let needed = if is_alike { VERDICT_PROBABILITY } else { CONTRARY_PROBABILITY };
        if certainty(whole) < VERDICT_PROBABILITY && needed <= certainty(surest) { surest } else { whole }
    }

    /// Whether the length or the loss rate of this window is outside the range for which accuracy
    /// was measured.
    pub(crate) fn is_extrapolated(&self, metrics: &Metrics) -> bool {
        !(self.packets.low..=self.packets.high).contains(&metrics.packets)
            || !(LOSS_RATE_MIN..=LOSS_RATE_MAX).contains(&loss_rate(metrics))
    }

    pub(crate) fn read(text: &str) -> Result<Self, ModelError> {
        let File { packets, mut sections } = model::read(text, FORMAT, VERSION)?;
        if packets.low < WORD_MAX || packets.high < packets.low || packets.high > Signature::PACKETS_MAX {
            let WindowRange { low, high } = packets;
            return Err(ModelError::Invalid(format!(
                "windows of {low} to {high} packets, which is not a range within {WORD_MAX} to {}",
                Signature::PACKETS_MAX
            )));
        }
        let mut odds = [CauseModel::default(); 4];
        for ((name, kinds), odds) in KnownEvidence::COMBINATIONS.into_iter().zip(&mut odds) {
            let section = sections.remove(name);
            let section = section.ok_or_else(|| ModelError::Invalid(format!("[{name}] is missing")))?;
            *odds = section.check(kinds).map_err(|what| ModelError::Invalid(format!("[{name}]: {what}")))?;
        }
        if let Some(name) = sections.keys().next() {
            return Err(ModelError::Invalid(format!("unknown section [{name}]")));
        }
        Ok(Self { packets, odds })
    }

    pub(crate) fn write(&self) -> String {
        let mut text = HEAD.to_owned();
        let WindowRange { low, high } = self.packets;
        text += &format!(
            "format = \"{FORMAT}\"\nversion = {VERSION}\npackets = {{ low = {low}, high = {high} }}\n"
        );
        for ((name, kinds), odds) in KnownEvidence::COMBINATIONS.into_iter().zip(&self.odds) {
            let LogOdds { queue, link } = odds.base;
            text += &format!("\n[{name}]\nbase = {{ queue = {queue:?}, link = {link:?} }}\n");
            for (index, (feature, term)) in FEATURES.iter().zip(&odds.terms).enumerate() {
                if kinds.has_feature(index) {
                    let FeatureWeight { low, high, queue, link } = term;
                    text += &format!(
                        "{feature} = {{ low = {low:?}, high = {high:?}, queue = {queue:?}, link = {link:?} }}\n"
                    );
                }
            }
        }
        text
    }
}

impl CauseModel {
    fn p_host(&self, features: &[f64], is_marked: bool) -> f64 {
        let LogOdds { mut queue, mut link } = self.base;
        for (term, feature) in self.terms.iter().zip(features) {
            // `clamp` would keep NaN. With `max` and `min`, NaN becomes the lower end.
            let feature = feature.max(term.low).min(term.high);
            queue += term.queue * feature;
            link += term.link * feature;
        }
        if is_marked {
            queue += MARKED;
        }
        let p_host = 1.0 / (1.0 + queue.exp() + link.exp());
        if is_marked { p_host.min(MARKED_MAX) } else { p_host }
    }
}

/// Probability for the host in a window with many runs of losses, which the model underestimates.
fn with_many_runs(p_host: f64) -> f64 {
    if p_host <= 0.5 {
        return p_host;
    }
    1.0 / (1.0 + ((1.0 - p_host) / p_host).powf(HOST_EXPONENT))
}

/// Smallest number of runs of losses at which [`HOST_EXPONENT`] counts. No feature grows with the
/// number of runs, but many runs of the same lengths are more evidence than few.
const MANY_RUNS: u32 = 8;

/// Exponent of the odds for the host in windows of many runs, ln(19) / ln(9): a probability of 0.9
/// becomes 0.95.
///
/// Exponent and number of runs were chosen on the even-numbered runs of the open signatures: of
/// their held-out windows of [`MANY_RUNS`] runs or more, all with a probability of 0.9 to 0.95 for
/// the host were the host's. Two windows with fewer runs were the network's above 0.95.
const HOST_EXPONENT: f64 = 1.340_065;

/// Amount by which congestion marks increase the log-odds of a queue, ln(460/18). A mark shows that
/// there was a queue in the window (RFC 3168 §5). The ratio is from the windows of 20 000 packets
/// of the open signatures. All windows with losses of a queue had a queue. Of the 460 windows with
/// losses of the host only, 18 had a queue. The queues were detected by their delays, because no
/// window has marks.
const MARKED: f64 = 3.241;

/// Limit of the probability for the host in a window with marks. A router marks a packet that it
/// would otherwise have dropped (RFC 3168 §5), and a sender must slow down for a mark as for a loss
/// (§6.1.2). With the verdict that the host lost the packets, a sender would not slow down.
const MARKED_MAX: f64 = 0.5;

/// Smallest probability of a cause, by a part of the evidence, at which this part decides although
/// all evidence slightly favours the other cause. A host may stall while a short queue stands: the
/// delay then contradicts a pattern that is clear.
const CONTRARY_PROBABILITY: f64 = 0.99;

const FORMAT: &str = "barograph-loss-default";

/// Version of the format that is read and written. Models of version 1 have other features.
const VERSION: u64 = 2;

const HEAD: &str = "\
# The default classifier: log-odds against the host of the losses coming from a full queue, or from a network without a queue:
# the base, and for each feature its weight a unit, held between the lowest and the highest that was seen; packets: of the windows.
";

#[derive(Deserialize)]
struct File {
    packets: WindowRange,
    #[serde(flatten)]
    sections: BTreeMap<String, Section>,
}

#[derive(Deserialize)]
struct Section {
    base: LogOdds,
    #[serde(flatten)]
    terms: BTreeMap<String, FeatureWeight>,
}

impl Section {
    fn check(mut self, kinds: EvidenceKinds) -> Result<CauseModel, String> {
        let sane = |weight: f64| weight.abs() <= WEIGHT_MAX;
        if !sane(self.base.queue) || !sane(self.base.link) {
            return Err("`base` is out of range".to_owned());
        }
        let mut odds = CauseModel { base: self.base, ..CauseModel::default() };
        for (index, name) in FEATURES.into_iter().enumerate().filter(|(index, _)| kinds.has_feature(*index)) {
            let term = self.terms.remove(name).ok_or_else(|| format!("`{name}` is missing"))?;
            let is_possible =
                [term.low, term.high, term.queue, term.link].into_iter().all(sane) && term.low <= term.high;
            if !is_possible {
                return Err(format!("`{name}` is out of range"));
            }
            odds.terms[index] = term;
        }
        match self.terms.keys().next() {
            Some(name) => Err(format!("unknown feature `{name}`")),
            None => Ok(odds),
        }
    }
}

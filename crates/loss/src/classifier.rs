//! The default classifier: finds the cause of a window's losses by pattern and evidence.

mod lengths;
mod parts;
pub(crate) mod pattern;
mod verdict;

use std::iter;

use self::lengths::{RunHistogram, select_gaps};
use self::parts::{CombinedEvidence, GapGroup, GapGrouping, GroupSums, without_evidence};
use self::pattern::{KnownEvidence, PatternModel};
use self::verdict::{LossTotals, SplitProbabilities, cause};
use crate::{
    Cause, Diagnosis, Evidence, EvidenceUsed, GapEvidence, LossRun, Metrics, ModelError, Signature, WORD_MAX,
};

#[cfg(feature = "fit")]
pub(crate) use self::verdict::is_like_an_outage;

/// Names the cause of losses from the best evidence present. A doubtful window is inconclusive.
///
/// The classifier uses the kernel's drop counter first, unless all other evidence contradicts the
/// counter. Otherwise a model fitted on labelled windows combines marks, delay and pattern.
/// Diagnosing a window allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifier {
    pub(crate) pattern: PatternModel,
}

impl Classifier {
    /// Creates a classifier with the shipped model, `models/default.toml`, which
    /// `scripts/fit-models` regenerates.
    pub fn shipped() -> Self {
        Self::read(include_str!("../models/default.toml"))
            .expect("a test reads the model that comes with the crate")
    }

    /// Creates a classifier with a saved model.
    ///
    /// ```
    /// use barograph_loss::Classifier;
    ///
    /// let model = Classifier::shipped().write();
    /// assert_eq!(Classifier::read(&model).unwrap(), Classifier::shipped());
    /// ```
    ///
    /// # Errors
    /// If the model is truncated, newer than this program, or impossible.
    pub fn read(model: &str) -> Result<Self, ModelError> {
        Ok(Self { pattern: PatternModel::read(model)? })
    }

    /// Returns the model as text, for [`Classifier::read`].
    pub fn write(&self) -> String {
        self.pattern.write()
    }

    /// Diagnoses a window with the given `metrics`.
    ///
    /// ```
    /// use barograph_loss::{Classifier, Evidence, Meter, Signature, Verdict};
    ///
    /// let window = Signature::from_runs(20_000, [3000, 60, 2000, 150]).unwrap();
    /// let metrics = Meter::new().measure(&window);
    /// // The kernel counted no drops at the receiving socket.
    /// let evidence = Evidence { host_drops: Some(0), ..Evidence::default() };
    /// let diagnosis = Classifier::shipped().diagnose(&window, &metrics, &evidence);
    /// assert_eq!((diagnosis.verdict, diagnosis.lost_network), (Verdict::Network, 210));
    /// assert!(diagnosis.evidence_used.host_drops);
    /// ```
    pub fn diagnose(&self, signature: &Signature, metrics: &Metrics, evidence: &Evidence) -> Diagnosis {
        let (evidence, disbelieved) = evidence.possible(metrics);
        let mut evidence_used = EvidenceUsed { disbelieved, ..EvidenceUsed::default() };
        if has_too_little(metrics) {
            return Diagnosis { evidence_used, ..Diagnosis::inconclusive(metrics.lost) };
        }
        let known = KnownEvidence::of(&evidence);
        if let Some(host) = evidence.host_drops {
            let claimed = longest_runs_metrics(signature, metrics, host);
            if self.is_claim_plausible((&claimed, known), (metrics, known)) {
                evidence_used.host_drops = true;
                let mut totals = LossTotals::default();
                totals.add(host, 1.0);
                totals.add(metrics.lost - host, 0.0);
                let is_networks = host == 0;
                let pattern = is_networks
                    .then(|| verdict::known_pattern(signature.loss_runs(), metrics, known))
                    .flatten();
                return totals.diagnosis(pattern, evidence_used);
            }
            evidence_used.disbelieved = true;
        }
        self.record_evidence_used(&mut evidence_used, metrics, known);
        let probabilities = self.classify_gaps(|| signature.loss_runs(), metrics, known);
        let mut totals = LossTotals::default();
        totals.add(probabilities.long_lost, probabilities.long);
        totals.add(metrics.lost.saturating_sub(probabilities.long_lost), probabilities.short);
        totals.diagnosis(probabilities.pattern, evidence_used)
    }

    /// Diagnoses a window with evidence for each gap, in the order of [`Signature::loss_runs`];
    /// gaps without an entry count as [`GapEvidence::default`]. If a kind of evidence is missing
    /// for all gaps, the window's evidence of this kind is used.
    ///
    /// Calls `on_gap` for each gap with its cause and the probability that the host lost the
    /// packets of the gap.
    ///
    /// ```
    /// use barograph_loss::{Cause, Classifier, Evidence, GapEvidence, Meter, Signature, Verdict};
    ///
    /// let window = Signature::from_runs(20_000, [3000, 60, 2000, 20]).unwrap();
    /// let metrics = Meter::new().measure(&window);
    /// // The socket's drop counter increased over the first gap only.
    /// let gaps =
    ///     [60, 0].map(|drops| GapEvidence { host_drops: Some(drops), ..GapEvidence::default() });
    /// let (classifier, evidence) = (Classifier::shipped(), Evidence::default());
    /// let mut causes = Vec::new();
    /// let diagnosis =
    ///     classifier.diagnose_gaps(&window, &metrics, &evidence, gaps.into_iter(), |_, cause, _| {
    ///         causes.push(cause);
    ///     });
    /// assert_eq!(causes, [Cause::Host, Cause::Network]);
    /// assert_eq!(diagnosis.verdict, Verdict::Hybrid);
    /// ```
    pub fn diagnose_gaps(
        &self,
        signature: &Signature,
        metrics: &Metrics,
        evidence: &Evidence,
        gaps: impl Iterator<Item = GapEvidence> + Clone,
        on_gap: impl FnMut(LossRun, Cause, f64),
    ) -> Diagnosis {
        let known = gaps.chain(iter::repeat(GapEvidence::default()));
        self.diagnose_each(metrics, evidence, signature.loss_runs().zip(known), on_gap)
    }

    /// Diagnoses a window of `packets` packets that lost these gaps, with evidence for each, in
    /// order. The result is that of [`Classifier::diagnose_gaps`], in a fraction of the time for a
    /// window with few gaps, because no [`Signature`] is built or read.
    ///
    /// If the gaps need more packets than the window has, or than [`Signature::PACKETS_MAX`], the
    /// cause of all gaps is unknown.
    ///
    /// ```
    /// use barograph_loss::{Classifier, Evidence, GapEvidence, LossRun, Verdict};
    ///
    /// // 20 000 packets: 3000 received, 60 lost, 2000 received, 150 lost, and so on.
    /// let gaps = [(3000, 60), (2000, 150), (5000, 90)]
    ///     .map(|(received, lost)| (LossRun { received, lost }, GapEvidence::default()));
    /// let evidence = Evidence { burst: Some(1), ..Evidence::default() };
    /// let gaps = gaps.into_iter();
    /// let diagnosis = Classifier::shipped().diagnose_runs(20_000, &evidence, gaps, |_, _, _| {});
    /// assert_eq!((diagnosis.verdict, diagnosis.lost_host), (Verdict::Host, 300));
    /// ```
    pub fn diagnose_runs(
        &self,
        packets: u32,
        evidence: &Evidence,
        gaps: impl Iterator<Item = (LossRun, GapEvidence)> + Clone,
        on_gap: impl FnMut(LossRun, Cause, f64),
    ) -> Diagnosis {
        let room = u64::from(packets.min(Signature::PACKETS_MAX));
        let mut needed = 0;
        let fitting = without_evidence(gaps.clone()).take_while(|gap| {
            needed += u64::from(gap.received) + u64::from(gap.lost);
            needed <= room
        });
        let metrics = Metrics::of_gaps(packets, fitting);
        let metrics = if needed <= room { metrics } else { Metrics::default() };
        self.diagnose_each(&metrics, evidence, gaps, on_gap)
    }

    fn diagnose_each(
        &self,
        metrics: &Metrics,
        evidence: &Evidence,
        gaps: impl Iterator<Item = (LossRun, GapEvidence)> + Clone,
        mut on_gap: impl FnMut(LossRun, Cause, f64),
    ) -> Diagnosis {
        let (evidence, disbelieved) = evidence.possible(metrics);
        let mut evidence_used = EvidenceUsed { disbelieved, ..EvidenceUsed::default() };
        if has_too_little(metrics) {
            without_evidence(gaps).for_each(|gap| on_gap(gap, Cause::Unknown, 0.5));
            return Diagnosis { evidence_used, ..Diagnosis::inconclusive(metrics.lost) };
        }
        let has_gap_counts = gaps.clone().any(|(_, known)| known.host_drops.is_some());
        // If there is one count of drops for the whole window, assume that the host dropped the
        // longest runs. This assumption is the best case for the host's claim.
        let window_count = evidence.host_drops.filter(|_| !has_gap_counts);
        let window_count =
            window_count.map(|count| RunHistogram::of(without_evidence(gaps.clone())).longest(count));
        let each = || {
            let mut count = window_count;
            gaps.clone().map(move |(gap, mut known)| {
                known.host_drops =
                    count.as_mut().map_or(known.host_drops, |longest| Some(longest.select(gap).into()));
                (gap, known)
            })
        };
        if has_gap_counts || window_count.is_some() {
            let (mut of_all, mut of_claimed) = (CombinedEvidence::default(), CombinedEvidence::default());
            let all = each().inspect(|(gap, known)| of_all.add(*gap, known));
            let claimed = select_gaps(all, |_, known| known.host_drops > Some(0));
            let claimed = claimed.inspect(|(gap, known)| of_claimed.add(*gap, known));
            let claimed = Metrics::of_gaps(metrics.packets, without_evidence(claimed));
            let window = of_all.known(KnownEvidence::of(&evidence));
            evidence_used.host_drops =
                self.is_claim_plausible((&claimed, of_claimed.known(window)), (metrics, window));
            evidence_used.disbelieved |= !evidence_used.host_drops;
        }
        let grouping = GapGrouping::of(each(), evidence_used.host_drops);
        let [of_delayed, of_rest] = grouping.sums(each());
        let mut classify = |group: GapGroup, sums: GroupSums| {
            let metrics = sums.runs.metrics(metrics.packets);
            let known = grouping.known(group, sums.delay, &evidence);
            (metrics.gaps > 0).then(|| {
                self.record_evidence_used(&mut evidence_used, &metrics, known);
                let of_group = || select_gaps(each(), move |_, known| grouping.of_gap(known) == group);
                self.classify_gaps(|| without_evidence(of_group()), &metrics, known)
            })
        };
        let (delayed, rest) = (classify(GapGroup::Delayed, of_delayed), classify(GapGroup::Rest, of_rest));
        let mut totals = LossTotals::default();
        for (gap, known) in each() {
            let p_host = |probabilities: Option<SplitProbabilities>| {
                probabilities.map_or(0.5, |probabilities| probabilities.p_host(gap))
            };
            let p_host = match grouping.of_gap(&known) {
                GapGroup::Host => 1.0,
                GapGroup::Network => 0.0,
                GapGroup::Delayed => p_host(delayed),
                GapGroup::Rest => p_host(rest),
            };
            totals.add(gap.lost, p_host);
            on_gap(gap, cause(p_host), p_host);
        }
        totals.diagnosis(rest.and_then(|probabilities| probabilities.pattern), evidence_used)
    }
}

/// Metrics of the longest runs with `lost` losses in total. If the host claims `lost` drops, the
/// dropped packets are most likely these runs.
fn longest_runs_metrics(signature: &Signature, metrics: &Metrics, lost: u32) -> Metrics {
    match lost {
        0 => Metrics::default(),
        lost if lost == metrics.lost => *metrics,
        lost => {
            let mut longest = RunHistogram::of(signature.loss_runs()).longest(lost);
            let gaps = signature.loss_runs().map(|gap| (gap, ()));
            Metrics::of_gaps(
                metrics.packets,
                without_evidence(select_gaps(gaps, |gap, ()| longest.select(gap))),
            )
        }
    }
}

/// Whether the window is shorter than a word, or has no losses.
fn has_too_little(metrics: &Metrics) -> bool {
    metrics.packets < WORD_MAX || metrics.lost == 0
}

//! The default classifier.

mod judge;
mod lengths;
mod parts;
pub(crate) mod pattern;

use std::iter;

use self::judge::{Judged, Tally, cause};
use self::lengths::{Lengths, some};
use self::parts::{MeanDelay, OfGaps, Part, Parts, gaps_only};
use self::pattern::{Known, Pattern};
use crate::{Cause, Diagnosis, Evidence, Found, Gap, GapEvidence, Metrics, ModelError, Signature, WORD_MAX};

#[cfg(feature = "fit")]
pub(crate) use self::judge::is_like_an_outage;

/// Names the cause of losses from the best evidence present. A doubtful window is inconclusive.
///
/// The kernel's drop counter comes first, unless all other evidence contradicts it. Otherwise a
/// model fitted on labelled windows combines marks, delay and pattern. Diagnosing a window
/// allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Classifier {
    pub(crate) pattern: Pattern,
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
    /// # Errors
    /// If the model is truncated, newer than this program, or impossible.
    pub fn read(model: &str) -> Result<Self, ModelError> {
        Ok(Self { pattern: Pattern::read(model)? })
    }

    /// Returns the model as text, for [`Classifier::read`].
    pub fn write(&self) -> String {
        self.pattern.write()
    }

    /// Diagnoses a window with the given `metrics`.
    pub fn diagnose(&self, signature: &Signature, metrics: &Metrics, evidence: &Evidence) -> Diagnosis {
        let (evidence, disbelieved) = evidence.possible(metrics);
        let mut found = Found { disbelieved, ..Found::default() };
        if has_too_little(metrics) {
            return Diagnosis { found, ..Diagnosis::inconclusive(metrics.lost) };
        }
        let known = Known::of(&evidence);
        if let Some(host) = evidence.host_drops {
            let claimed = best_case(signature, metrics, host);
            if self.may_be_the_hosts((&claimed, known), (metrics, known)) {
                found.host_drops = true;
                let mut tally = Tally::default();
                tally.add(host, 1.0);
                tally.add(metrics.lost - host, 0.0);
                let is_networks = host == 0;
                let shape = is_networks.then(|| judge::shape(signature.gaps(), metrics, known)).flatten();
                return tally.diagnosis(shape, found);
            }
            found.disbelieved = true;
        }
        self.note(&mut found, metrics, known);
        let judged = self.judge(|| signature.gaps(), metrics, known);
        let mut tally = Tally::default();
        tally.add(judged.long_lost, judged.long);
        tally.add(metrics.lost.saturating_sub(judged.long_lost), judged.short);
        tally.diagnosis(judged.shape, found)
    }

    /// Diagnoses a window with evidence for each gap, in the order of [`Signature::gaps`]; missing
    /// ones count as [`GapEvidence::default`]. A kind of evidence that no gap has is taken from the
    /// window.
    ///
    /// Calls `say` for each gap with its cause and the probability that the host lost it.
    pub fn diagnose_gaps(
        &self,
        signature: &Signature,
        metrics: &Metrics,
        evidence: &Evidence,
        gaps: impl Iterator<Item = GapEvidence> + Clone,
        mut say: impl FnMut(Gap, Cause, f64),
    ) -> Diagnosis {
        let (evidence, disbelieved) = evidence.possible(metrics);
        let mut found = Found { disbelieved, ..Found::default() };
        if has_too_little(metrics) {
            signature.gaps().for_each(|gap| say(gap, Cause::Unknown, 0.5));
            return Diagnosis { found, ..Diagnosis::inconclusive(metrics.lost) };
        }
        let has_gap_counts = gaps.clone().any(|known| known.host_drops.is_some());
        // A count for the whole window is assigned to its longest runs, which is the best case for
        // the claim.
        let window_count = evidence.host_drops.filter(|_| !has_gap_counts);
        let window_count = window_count.map(|count| Lengths::of(signature.gaps()).longest(count));
        let each = || {
            let mut count = window_count;
            let known = gaps.clone().chain(iter::repeat(GapEvidence::default()));
            signature.gaps().zip(known).map(move |(gap, mut known)| {
                known.host_drops =
                    count.as_mut().map_or(known.host_drops, |longest| Some(longest.has(gap).into()));
                (gap, known)
            })
        };
        if has_gap_counts || window_count.is_some() {
            let (mut of_all, mut of_claimed) = (OfGaps::default(), OfGaps::default());
            let all = each().inspect(|(gap, known)| of_all.add(*gap, known));
            let claimed = some(all, |_, known| known.host_drops > Some(0));
            let claimed = claimed.inspect(|(gap, known)| of_claimed.add(*gap, known));
            let claimed = Metrics::of_gaps(metrics.packets, gaps_only(claimed));
            let window = of_all.known(Known::of(&evidence));
            found.host_drops = self.may_be_the_hosts((&claimed, of_claimed.known(window)), (metrics, window));
            found.disbelieved |= !found.host_drops;
        }
        let parts = Parts::of(each(), found.host_drops);
        let mut judge = |part: Part| {
            if !parts.may_have(part) {
                return None;
            }
            let of_part = || some(each(), move |_, known| parts.of_gap(known) == part);
            let mut delay = MeanDelay::default();
            let of_part_with_delay = of_part().inspect(|(gap, known)| delay.add(*gap, known));
            let metrics = Metrics::of_gaps(metrics.packets, gaps_only(of_part_with_delay));
            let known = parts.known(part, delay, &evidence);
            (metrics.gaps > 0).then(|| {
                self.note(&mut found, &metrics, known);
                self.judge(|| gaps_only(of_part()), &metrics, known)
            })
        };
        let (delayed, rest) = (judge(Part::Delayed), judge(Part::Rest));
        let mut tally = Tally::default();
        for (gap, known) in each() {
            let p_host = |judged: Option<Judged>| judged.map_or(0.5, |judged| judged.p_host(gap));
            let p_host = match parts.of_gap(&known) {
                Part::Host => 1.0,
                Part::Network => 0.0,
                Part::Delayed => p_host(delayed),
                Part::Rest => p_host(rest),
            };
            tally.add(gap.lost, p_host);
            say(gap, cause(p_host), p_host);
        }
        tally.diagnosis(rest.and_then(|judged| judged.shape), found)
    }
}

/// Metrics of the longest runs with `lost` losses in total. If the host claims `lost` drops, it
/// most likely dropped these runs.
fn best_case(signature: &Signature, metrics: &Metrics, lost: u32) -> Metrics {
    match lost {
        0 => Metrics::default(),
        lost if lost == metrics.lost => *metrics,
        lost => {
            let mut longest = Lengths::of(signature.gaps()).longest(lost);
            let gaps = signature.gaps().map(|gap| (gap, ()));
            Metrics::of_gaps(metrics.packets, gaps_only(some(gaps, |gap, ()| longest.has(gap))))
        }
    }
}

/// Whether the window is shorter than a word, or without loss.
fn has_too_little(metrics: &Metrics) -> bool {
    metrics.packets < WORD_MAX || metrics.lost == 0
}

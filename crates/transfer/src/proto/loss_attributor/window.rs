//! The most recent packets of a transfer, with the causes reported for the lost packets.

use std::collections::VecDeque;

use barograph_loss::{Cause, Classifier, GapEvidence, Meter, Signature};

use super::{AttributedLoss, UnattributedLoss};
use crate::proto::wire::GapReport;

/// Runs of lost packets in order; all other packets arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    gaps: VecDeque<Gap>,
    start: u64,
    /// This field and the next three fields are buffers for [`Window::classify`]. The buffers are
    /// kept so that no memory is allocated for each classification.
    signature: Signature,
    meter: Meter,
    known: Vec<GapEvidence>,
    causes: Vec<Cause>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) missing: UnattributedLoss,
    pub(super) reported: ReportedCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportedCause {
    Nothing,
    /// The receiving host; only the receiver's claim supports this cause.
    Claimed,
    Host,
    Network,
}

impl Gap {
    fn end(&self) -> u64 {
        self.missing.index + u64::from(self.missing.packets)
    }
}

impl Window {
    /// Whether every loss has a cause, and no claim still has to be checked.
    pub(super) fn is_attributed(&self) -> bool {
        self.gaps.iter().all(|gap| matches!(gap.reported, ReportedCause::Host | ReportedCause::Network))
    }

    pub(super) fn push(&mut self, gap: Gap) {
        match self.gaps.back_mut() {
            Some(last)
                if last.end() == gap.missing.index
                    && (last.reported, last.missing.evidence) == (gap.reported, gap.missing.evidence) =>
            {
                last.missing.packets = last.missing.packets.saturating_add(gap.missing.packets);
                last.missing.bytes += gap.missing.bytes;
            }
            _ => self.gaps.push_back(gap),
        }
    }

    /// Removes runs that began before `start`. Runs without a cause are reported as unknown.
    pub(super) fn trim(&mut self, start: u64, attributed: &mut Vec<AttributedLoss>) {
        self.start = self.start.max(start);
        while let Some(gap) = self.gaps.front().filter(|gap| gap.missing.index < start) {
            // If the window's start would cut a run, begin the window after this run, because the
            // classifier was not fitted on parts of runs.
            self.start = self.start.max(gap.end());
            if gap.reported == ReportedCause::Nothing {
                attributed.push(AttributedLoss {
                    missing: gap.missing,
                    cause: Cause::Unknown,
                    is_taken_back: false,
                });
            }
            self.gaps.pop_front();
        }
    }

    /// Records that a packet arrived after it was declared lost. Returns the cause that was
    /// reported for the packet, or `None` if no cause was reported.
    pub(super) fn ack_lost(&mut self, index: u64, bytes: u64) -> Option<Cause> {
        let at = self.gaps.partition_point(|gap| gap.end() <= index);
        // If the run is no longer kept, its cause was reported when the run left the window.
        let Some(gap) = self.gaps.get_mut(at).filter(|gap| gap.missing.index <= index) else {
            return Some(Cause::Unknown);
        };
        let before = (index - gap.missing.index) as u32;
        let after = gap.missing.packets.saturating_sub(before + 1);
        let reported = gap.reported;
        // All packets of a run are full, except the object's last one.
        let rest = gap.missing.bytes.saturating_sub(bytes);
        let bytes_before = rest * u64::from(before) / u64::from((before + after).max(1));
        let behind =
            UnattributedLoss { index: index + 1, packets: after, bytes: rest - bytes_before, ..gap.missing };
        (gap.missing.packets, gap.missing.bytes) = (before, bytes_before);
        match (before, after) {
            (0, 0) => drop(self.gaps.remove(at)),
            (0, _) => gap.missing = behind,
            (_, 0) => {}
            _ => self.gaps.insert(at + 1, Gap { missing: behind, reported }),
        }
        match reported {
            ReportedCause::Nothing => None,
            ReportedCause::Claimed | ReportedCause::Host => Some(Cause::Host),
            ReportedCause::Network => Some(Cause::Network),
        }
    }

    /// Classifies the window, which ends before `settled`, and reports the causes of the losses
    /// that waited for this verdict. Returns whether the receiver's claims are contradicted, or
    /// `None` if the receiver made no claims.
    pub(super) fn classify(
        &mut self,
        classifier: &Classifier,
        settled: u64,
        burst: u32,
        attributed: &mut Vec<AttributedLoss>,
    ) -> Option<bool> {
        let claims = self.gaps.iter().filter(|gap| gap.missing.evidence.host_drops == Some(true)).count();
        self.draw(settled);
        let metrics = self.meter.measure(&self.signature);
        let window = barograph_loss::Evidence { burst: Some(burst), ..barograph_loss::Evidence::default() };
        self.causes.clear();
        let diagnosis = classifier.diagnose_gaps(
            &self.signature,
            &metrics,
            &window,
            self.known.iter().copied(),
            |_, cause, _| self.causes.push(cause),
        );
        let is_disbelieved = diagnosis.evidence_used.disbelieved;
        let is_short = self.signature.packets() < PATTERN_PACKETS_MIN;

        let (mut at, mut last_end) = (0, None);
        for gap in &mut self.gaps {
            // Adjacent runs are one run in the signature.
            at += usize::from(last_end.is_some_and(|end| end != gap.missing.index));
            last_end = Some(gap.end());
            let is_claimed = gap.missing.evidence.host_drops == Some(true) && !is_disbelieved;
            let cause = match self.causes.get(at).copied().unwrap_or(Cause::Unknown) {
                Cause::Host if is_short && !is_claimed => Cause::Unknown,
                cause => cause,
            };
            let is_taken_back =
                gap.reported == ReportedCause::Claimed && is_disbelieved && cause != Cause::Host;
            if gap.reported == ReportedCause::Nothing || is_taken_back {
                attributed.push(AttributedLoss { missing: gap.missing, cause, is_taken_back });
            }
            gap.reported = match gap.reported {
                ReportedCause::Claimed if !is_taken_back => ReportedCause::Host,
                ReportedCause::Nothing | ReportedCause::Claimed if cause == Cause::Host => {
                    ReportedCause::Host
                }
                ReportedCause::Nothing | ReportedCause::Claimed => ReportedCause::Network,
                reported => reported,
            };
        }
        (claims > 0).then_some(is_disbelieved)
    }

    /// Builds the signature of the window, with the evidence of each gap.
    fn draw(&mut self, settled: u64) {
        self.signature.clear();
        self.known.clear();
        let mut at = self.start;
        let mut last_end = None;
        for gap in &self.gaps {
            let known = known(&gap.missing.evidence);
            match (last_end, self.known.last_mut()) {
                (Some(end), Some(last)) if end == gap.missing.index => join(last, &known),
                _ => self.known.push(known),
            }
            let came = u32::try_from(gap.missing.index.saturating_sub(at)).unwrap_or(u32::MAX);
            // A window is far shorter than the longest signature. Only a single run can be longer
            // than a signature; such a run is left out.
            let _ = self.signature.push_received(came);
            let _ = self.signature.push_lost(gap.missing.packets);
            at = gap.end();
            last_end = Some(at);
        }
        let came = u32::try_from(settled.saturating_sub(at)).unwrap_or(u32::MAX);
        let _ = self.signature.push_received(came);
    }
}

fn known(evidence: &GapReport) -> GapEvidence {
    GapEvidence {
        host_drops: evidence.host_drops.map(u32::from),
        delay_s: evidence.delay_us.map(|delay_us| f64::from(delay_us) / 1e6),
        is_marked: evidence.is_marked,
    }
}

/// Merges the evidence of two adjacent runs. The merged delay is the delay before the first run, if
/// it is known.
fn join(whole: &mut GapEvidence, part: &GapEvidence) {
    whole.host_drops = whole.host_drops.max(part.host_drops);
    whole.is_marked = whole.is_marked.max(part.is_marked);
    whole.delay_s = whole.delay_s.or(part.delay_s);
}

/// Number of packets in the shortest window that the classifier was fitted on. In a shorter window,
/// a pattern alone does not prove that the host lost the packets.
const PATTERN_PACKETS_MIN: u32 = 2000;

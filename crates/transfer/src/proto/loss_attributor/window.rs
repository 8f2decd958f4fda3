//! The most recent packets of a transfer, with the causes reported for the lost packets.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_loss::{Cause, GapEvidence, LossRun};

use super::judge::Judge;
use super::{AttributedLoss, SettledBy, UnattributedLoss};
use crate::proto::wire::GapReport;

/// Runs of lost packets in order; all other packets arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    gaps: VecDeque<Gap>,
    start: u64,
    /// `runs`: the gaps as the classifier takes them, with the evidence of each. `causes`: the
    /// cause of each of these runs. Both are buffers for [`Window::classify`], kept so that no
    /// memory is allocated for each classification.
    runs: Vec<(LossRun, GapEvidence)>,
    causes: Vec<Cause>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) missing: UnattributedLoss,
    pub(super) reported: ReportedCause,
    /// Evidence of what was reported.
    pub(super) settled_by: SettledBy,
    /// Whether the loss was in a window that was classified.
    pub(super) is_judged: bool,
    /// Time until which the loss is pending without a verdict.
    pub(super) deadline: Duration,
    /// Whether the loss was given time to wait.
    pub(super) may_wait: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportedCause {
    /// No cause: the loss is pending.
    Nothing,
    /// The receiving host; only the receiver's claim supports this cause.
    Claimed,
    Host,
    Network,
    /// Unknown, or the network without a verdict on enough packets. A verdict for the host takes
    /// this report back.
    Doubtful(Cause),
}

/// When and with how much a window is classified.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) now: Duration,
    /// The window ends before this index.
    pub(super) settled: u64,
    /// Number of packets that the sender sends in one burst.
    pub(super) burst: u32,
    /// Whether a pattern named the host not long ago, and none the network since.
    pub(super) knows_host: bool,
}

/// What a classification found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Whether claims of the receiver are contradicted.
    pub(super) is_disbelieved: bool,
    /// Whether losses without a claim were the host's.
    pub(super) is_host: bool,
    /// Whether pending losses were the network's.
    pub(super) is_network: bool,
    /// Whether the deadline of a loss passed without a verdict.
    pub(super) has_expired: bool,
    /// Index and deadline of the oldest loss that is still pending.
    pub(super) oldest_pending: Option<(u64, Duration)>,
}

/// The runs of a window before they are classified.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    /// Number of packets of the window.
    packets: u32,
    /// Whether the receiver claims that its host dropped some of the losses.
    has_claims: bool,
    /// Number of gaps with final causes before the first other gap, and number of their runs.
    settled_gaps: usize,
    settled_runs: usize,
}

impl Gap {
    fn end(&self) -> u64 {
        self.missing.index + u64::from(self.missing.packets)
    }

    /// Whether the receiver claims that its host dropped packets of the run, and does not hide the
    /// delay before it.
    fn has_claim(&self) -> bool {
        let evidence = &self.missing.evidence;
        evidence.host_drops == Some(true) && evidence.delay_us.is_some()
    }

    /// Whether the classifier would take the run for an outage if it were alone, and no queue is
    /// known to be long. After stalls of the host, one more stall is likelier than an outage.
    fn is_like_an_outage(&self) -> bool {
        let evidence = &self.missing.evidence;
        OUTAGE_RUN < self.missing.packets && evidence.host_drops.is_none() && !has_queue(evidence, LONG_DELAY)
    }

    /// Cause that was reported, if any.
    fn cause(&self) -> Option<Cause> {
        match self.reported {
            ReportedCause::Nothing => None,
            ReportedCause::Claimed | ReportedCause::Host => Some(Cause::Host),
            ReportedCause::Network => Some(Cause::Network),
            ReportedCause::Doubtful(cause) => Some(cause),
        }
    }

    /// The report before a classification; `None` if the loss is pending.
    pub(super) fn first_report(&self) -> Option<AttributedLoss> {
        let Self { missing, settled_by, .. } = *self;
        self.cause().map(|cause| AttributedLoss { missing, cause, settled_by, before: None })
    }

    /// Changes what is reported. Returns the new report.
    fn report(&mut self, reported: ReportedCause, settled_by: SettledBy) -> Option<AttributedLoss> {
        let before = self.cause().map(|cause| (cause, self.settled_by));
        (self.reported, self.settled_by) = (reported, settled_by);
        let missing = self.missing;
        self.cause().map(|cause| AttributedLoss { missing, cause, settled_by, before })
    }
}

impl Window {
    /// Whether no loss waits for a classification.
    pub(super) fn is_attributed(&self) -> bool {
        // Losses that wait are the latest ones.
        self.gaps.iter().rev().all(|gap| match gap.reported {
            ReportedCause::Nothing | ReportedCause::Claimed => false,
            ReportedCause::Doubtful(_) => gap.is_judged,
            ReportedCause::Host | ReportedCause::Network => true,
        })
    }

    /// Number of runs of lost packets in the window.
    pub(super) fn gaps(&self) -> usize {
        self.gaps.len()
    }

    /// Number of lost packets without a cause.
    pub(super) fn pending(&self) -> u64 {
        let pending = self.gaps.iter().filter(|gap| gap.reported == ReportedCause::Nothing);
        pending.map(|gap| u64::from(gap.missing.packets)).sum()
    }

    /// Adds a gap. Joins it to the last gap if they are adjacent and neither was charged, because a
    /// charge is taken back as a whole.
    pub(super) fn push(&mut self, gap: Gap) {
        let is_charged = matches!(gap.reported, ReportedCause::Doubtful(_));
        match self.gaps.back_mut() {
            Some(last)
                if last.end() == gap.missing.index
                    && !is_charged
                    && (last.reported, last.missing.evidence) == (gap.reported, gap.missing.evidence) =>
            {
                last.missing.packets = last.missing.packets.saturating_add(gap.missing.packets);
                last.missing.bytes += gap.missing.bytes;
            }
            _ => self.gaps.push_back(gap),
        }
    }

    /// Index before which the window has no gaps.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Removes runs that began before `start`. Runs without a cause are reported as unknown.
    /// Returns whether one of them still had time to wait.
    pub(super) fn trim(&mut self, start: u64, attributed: &mut Vec<AttributedLoss>) -> bool {
        self.start = self.start.max(start);
        let mut has_expired = false;
        while let Some(gap) = self.gaps.front_mut().filter(|gap| gap.missing.index < start) {
            // If the window's start would cut a run, begin the window after this run, because the
            // classifier was not fitted on parts of runs.
            self.start = self.start.max(gap.end());
            if gap.reported == ReportedCause::Nothing {
                has_expired |= gap.may_wait;
                attributed.extend(gap.expire());
            }
            self.gaps.pop_front();
        }
        has_expired
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
        let cause = gap.cause();
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
            _ => {
                let behind = Gap { missing: behind, ..*gap };
                self.gaps.insert(at + 1, behind);
            }
        }
        cause
    }

    /// Classifies the window. Reports the causes of the losses that waited for this verdict, and
    /// takes back doubtful reports of losses that are the host's.
    pub(super) fn classify(
        &mut self,
        judge: &mut Judge,
        look: Look,
        attributed: &mut Vec<AttributedLoss>,
    ) -> Outcome {
        let Listed { packets, has_claims, settled_gaps, settled_runs } = self.list_runs(look.settled);
        self.causes.clear();
        let is_disbelieved = judge.judge(packets, &self.runs, look.burst, &mut self.causes);
        let is_short = packets < PATTERN_PACKETS_MIN;
        let has_few_runs = self.runs.len() < RUNS_MIN && judge.has_path_evidence();
        let mut outcome = Outcome { is_disbelieved: has_claims && is_disbelieved, ..Outcome::default() };
        // Final causes stay, so these gaps are not read again. Most gaps of a window have them.
        let by_pattern = |(_, known): &(LossRun, GapEvidence)| {
            (is_disbelieved || known.host_drops != Some(1)) && !(has_few_runs && known.delay_s.is_none())
        };
        let mut settled = self.runs.iter().zip(&self.causes).take(settled_runs);
        outcome.is_host = !is_short && settled.any(|(run, cause)| *cause == Cause::Host && by_pattern(run));
        let (mut at, mut last_end) = (settled_runs, None);
        for gap in self.gaps.range_mut(settled_gaps..) {
            // Adjacent runs are one run in the signature.
            at += usize::from(last_end.is_some_and(|end| end != gap.missing.index));
            last_end = Some(gap.end());
            let is_claimed = gap.has_claim() && !is_disbelieved;
            let cause = match self.causes.get(at).copied().unwrap_or(Cause::Unknown) {
                Cause::Host if is_claimed => Cause::Host,
                Cause::Host if is_short => Cause::Unknown,
                // Without the delay, a queue that overflows once and a stall look alike.
                _ if has_few_runs && gap.missing.evidence.delay_us.is_none() => Cause::Unknown,
                cause => cause,
            };
            outcome.is_host |= cause == Cause::Host && !is_claimed;
            outcome.is_network |= cause == Cause::Network && gap.reported == ReportedCause::Nothing;
            let cause = if cause == Cause::Unknown && look.knows_host && gap.is_like_an_outage() {
                Cause::Host
            } else {
                cause
            };
            let settled_by = if is_claimed { SettledBy::Counter } else { settled_by(gap, cause, judge) };
            let is_sure = !is_short || has_queue(&gap.missing.evidence, QUEUE_DELAY);
            let settled = gap.settle(Verdict { cause, settled_by, is_disbelieved, is_sure }, look.now);
            outcome.has_expired |= gap.may_wait
                && settled.is_some_and(|settled| settled.cause == Cause::Unknown && settled.before.is_none());
            attributed.extend(settled);
            if gap.reported == ReportedCause::Nothing && outcome.oldest_pending.is_none() {
                outcome.oldest_pending = Some((gap.missing.index, gap.deadline));
            }
        }
        if outcome.has_expired {
            self.expire(attributed);
            outcome.oldest_pending = None;
        }
        outcome
    }

    /// Reports all pending losses as unknown.
    pub(super) fn expire(&mut self, attributed: &mut Vec<AttributedLoss>) {
        let pending = self.gaps.iter_mut().filter(|gap| gap.reported == ReportedCause::Nothing);
        attributed.extend(pending.filter_map(Gap::expire));
    }

    /// Lists the runs of the window, with the evidence of each; adjacent gaps are one run.
    fn list_runs(&mut self, settled: u64) -> Listed {
        self.runs.clear();
        let mut listed = Listed::default();
        let (mut at, mut is_settled) = (self.start, true);
        for (position, gap) in self.gaps.iter().enumerate() {
            listed.has_claims |= gap.has_claim();
            let is_new = self.runs.is_empty() || at != gap.missing.index;
            if is_new && is_settled {
                (listed.settled_gaps, listed.settled_runs) = (position, self.runs.len());
            }
            is_settled &= matches!(gap.reported, ReportedCause::Host | ReportedCause::Network);
            let known = known(&gap.missing.evidence);
            match self.runs.last_mut() {
                Some((run, whole)) if !is_new => {
                    run.lost = run.lost.saturating_add(gap.missing.packets);
                    join(whole, &known);
                }
                _ => {
                    let received = packets_between(at, gap.missing.index);
                    self.runs.push((LossRun { received, lost: gap.missing.packets }, known));
                }
            }
            at = gap.end();
        }
        listed.packets = packets_between(self.start, settled.max(at));
        listed
    }
}

/// Number of packets from one index to another. A window has far less than 2^32 packets.
fn packets_between(from: u64, to: u64) -> u32 {
    u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX)
}

/// Verdict on a gap.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    cause: Cause,
    settled_by: SettledBy,
    /// Whether the receiver's claims are contradicted.
    is_disbelieved: bool,
    /// Whether a verdict for the network is final.
    is_sure: bool,
}

impl Gap {
    /// Reports the loss as unknown.
    fn expire(&mut self) -> Option<AttributedLoss> {
        self.report(ReportedCause::Doubtful(Cause::Unknown), SettledBy::Nothing)
    }

    /// Applies a verdict. Returns what is reported, if anything.
    fn settle(&mut self, verdict: Verdict, now: Duration) -> Option<AttributedLoss> {
        let Verdict { cause, settled_by, is_disbelieved, is_sure } = verdict;
        self.is_judged = true;
        let reported = match (self.reported, cause) {
            (ReportedCause::Nothing, Cause::Unknown) if now < self.deadline => return None,
            (ReportedCause::Nothing | ReportedCause::Doubtful(_), Cause::Host) => ReportedCause::Host,
            (ReportedCause::Nothing | ReportedCause::Doubtful(_), Cause::Network) if is_sure => {
                ReportedCause::Network
            }
            (ReportedCause::Nothing, cause) => ReportedCause::Doubtful(cause),
            (ReportedCause::Claimed, Cause::Network | Cause::Unknown) if is_disbelieved => {
                ReportedCause::Network
            }
            (ReportedCause::Claimed, _) => {
                self.reported = ReportedCause::Host;
                return None;
            }
            _ => return None,
        };
        self.report(reported, settled_by)
    }
}

/// Evidence that settles a loss without a believed claim.
fn settled_by(gap: &Gap, cause: Cause, judge: &Judge) -> SettledBy {
    let evidence = &gap.missing.evidence;
    if cause == Cause::Unknown {
        SettledBy::Nothing
    } else if evidence.is_marked == Some(true) && judge.has_path_evidence() {
        SettledBy::Marks
    } else if evidence.delay_us.is_some() && judge.has_path_evidence() {
        SettledBy::Delay
    } else {
        SettledBy::Pattern
    }
}

/// Whether a mark, or a delay of at least `delay`, shows a queue before the gap.
pub(super) fn has_queue(evidence: &GapReport, delay: Duration) -> bool {
    let before = evidence.delay_us.map(|delay_us| Duration::from_micros(delay_us.into()));
    evidence.is_marked == Some(true) || before.is_some_and(|before| delay <= before)
}

fn known(evidence: &GapReport) -> GapEvidence {
    // A receiver that counts drops knows the delay, too. A claim that hides it is no evidence.
    let host_drops = evidence.host_drops.filter(|is_claim| !is_claim || evidence.delay_us.is_some());
    GapEvidence {
        host_drops: host_drops.map(u32::from),
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

/// Number of runs of losses from which a pattern alone names the host. The delay excludes a queue;
/// without it, a queue that overflows once or twice looks like stalls.
const RUNS_MIN: usize = 4;

/// Longest run of losses that is no outage (packets; `docs/spec/classify.md`, §2).
const OUTAGE_RUN: u32 = 250;

/// One-way delays before a gap, above the path's minimum, from which a queue stood, and from which
/// no pattern names the host: the classifier's own limits (`docs/spec/classify.md`, §2).
const QUEUE_DELAY: Duration = Duration::from_micros(150);
const LONG_DELAY: Duration = Duration::from_millis(4);

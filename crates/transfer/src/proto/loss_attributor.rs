//! Loss classification beside a transfer: which losses the network caused, and which losses are
//! reported to the controller.

mod accounting;
mod charges;
mod judge;
mod window;

use std::time::Duration;

use barograph_loss::Cause;

pub(super) use self::accounting::LossAccounting;
use self::judge::Judge;
use self::window::{Gap, Look, ReportedCause, Window, has_queue};
use crate::proto::LossClassification;
use crate::proto::rtt::GRANULARITY;
use crate::proto::wire::GapReport;

/// Classifies losses by cause.
///
/// A packet is identified by its index, which is the number of packets that were sent before it. If
/// the receiver has a drop counter, a loss is classified at once: it is a network loss if the
/// counter did not rise over the gap, and a host loss if the counter rose and the receiver's claims
/// are trusted: no look contradicted them in the last [`LossAttributor::NO_WAIT_PACKETS`]
/// packets. A loss beside a mark or over a long queue is charged to the network at once. Other
/// losses are *pending*.
///
/// After half a round trip to one round trip, when a pattern is visible, losses are classified in
/// the window of the last [`LossAttributor::WINDOW_PACKETS`] packets, pending ones again in each
/// round trip until a verdict names their cause. If the window has many gaps, it is classified more
/// rarely, but at least every 0.1 s or once in a round trip. If no verdict comes until the deadline
/// ([`LossAttributor::deadline`]), their cause is reported as unknown. A later verdict for the host
/// takes a charge back, as long as the loss is in the window and no verdict named the network.
/// Packets that arrive before a report are not reported as lost.
///
/// After a deadline has passed, further losses do not wait for theirs, until
/// [`LossAttributor::NO_WAIT_PACKETS`] packets were sent or a pattern names the host. So losses
/// with an unknown cause are answered late only once in so many packets. A loss of which the
/// receiver reports no delay does not wait either after a pending loss was not the host's, until
/// [`LossAttributor::DELAY_NEEDED_PACKETS`] packets were sent or a pattern names the host.
///
/// Classifying a window takes 4 to 50 µs, depending on the number of gaps. After the window has had
/// its largest number of gaps, no more memory is allocated.
#[derive(Clone, Debug)]
pub struct LossAttributor {
    judge: Judge,
    window: Window,
    /// Claims of losses below this index are not used without a check, because a check contradicted
    /// earlier claims.
    distrusted_until: u64,
    /// Time when the window is classified next; `None` if no loss waits for a classification.
    due: Option<Duration>,
    classified_at: Option<Duration>,
    /// Lowest index of a pending loss.
    waits_from: Option<u64>,
    /// Losses below this index do not wait for a deadline.
    no_wait_until: u64,
    /// Losses below this index do not wait if the receiver reported no delay.
    delay_needed_until: u64,
    /// Until this index, a run that would be an outage is a stall of the host.
    host_known_until: u64,
    /// Whether the last classification left losses pending.
    is_undecided: bool,
    classifications: u64,
}

/// A run of packets that was declared lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnattributedLoss {
    pub index: u64,
    pub packets: u32,
    /// Bytes of these packets, headers included.
    pub bytes: u64,
    /// Time when the run's first packet was sent.
    pub sent: Duration,
    /// Bytes in flight when the run's first packet was sent.
    pub in_flight_bytes: u64,
    /// What the receiver reported about the gap.
    pub evidence: GapReport,
}

/// The cause of a run of lost packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttributedLoss {
    pub missing: UnattributedLoss,
    pub cause: Cause,
    pub settled_by: SettledBy,
    /// Cause that was reported for these packets before, and its evidence; `None` for the first
    /// report.
    pub before: Option<(Cause, SettledBy)>,
}

/// Evidence that settled the cause of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// The receiver's drop counter.
    Counter,
    /// A congestion mark beside the loss.
    Marks,
    /// The one-way delay before the loss, with the pattern.
    Delay,
    /// The pattern of losses.
    Pattern,
    /// None, until the deadline.
    Nothing,
}

/// Time and state of the path at which losses are classified.
#[derive(Clone, Copy, Debug)]
pub struct PathContext {
    pub now: Duration,
    pub rtt: Duration,
    /// Number of packets that the sender sends in one burst.
    pub burst: u32,
}

impl Default for LossAttributor {
    fn default() -> Self {
        Self::with_judge(Judge::shipped())
    }
}

impl LossAttributor {
    /// Number of packets in a window: 20 000. The classifier was fitted on windows of this length,
    /// and a transfer soon fills such a window (`docs/spec/classify.md`).
    pub const WINDOW_PACKETS: u64 = 20_000;

    /// Number of packets after a deadline that passed without a verdict, for which losses do not
    /// wait: five windows. So at most one window in six is answered late.
    pub const NO_WAIT_PACKETS: u64 = 5 * Self::WINDOW_PACKETS;

    /// Number of packets after a wait that did not end with a verdict for the host, for which
    /// losses do not wait if the receiver reported no delay: 50 windows. Without the delay, no loss
    /// over a queue is charged at once, so such a wait must be rarer than others.
    pub const DELAY_NEEDED_PACKETS: u64 = 50 * Self::WINDOW_PACKETS;

    /// Creates an attributor for this choice; `None` if every loss counts as the network's.
    pub fn for_classification(classification: &LossClassification) -> Option<Self> {
        Judge::new(classification).map(Self::with_judge)
    }

    fn with_judge(judge: Judge) -> Self {
        Self {
            judge,
            window: Window::default(),
            distrusted_until: 0,
            due: None,
            classified_at: None,
            waits_from: None,
            no_wait_until: 0,
            delay_needed_until: 0,
            host_known_until: 0,
            is_undecided: false,
            classifications: 0,
        }
    }

    /// Longest time that a loss is pending: 16 round trips, but at least 350 ms. A loss also stops
    /// waiting when [`LossAttributor::WINDOW_PACKETS`] packets were sent after it.
    pub fn deadline(rtt: Duration) -> Duration {
        rtt.saturating_mul(WAIT_ROUND_TRIPS).max(WAIT_MIN)
    }

    /// Adds a run of packets that was declared lost. All packets before the run must be settled:
    /// acknowledged or declared lost. Runs must be added in ascending order.
    ///
    /// Causes that are known now are appended to `attributed`.
    pub fn lose(
        &mut self,
        context: PathContext,
        mut missing: UnattributedLoss,
        attributed: &mut Vec<AttributedLoss>,
    ) {
        if self.waits_from.is_some_and(|index| index + Self::WINDOW_PACKETS < missing.index) {
            // Classify now: otherwise the waiting loss would drop out of the window before its
            // cause is known.
            self.classify_window(context, missing.index, attributed);
        }
        // Trim several gaps at once, which is cheaper.
        if self.window.start() + Self::WINDOW_PACKETS + TRIM_PACKETS < missing.index {
            self.trim(missing.index, attributed);
        }
        if !self.judge.has_counter {
            missing.evidence.host_drops = None;
        }
        let (reported, settled_by) = self.first_report(&missing, context.rtt);
        let may_wait = self.no_wait_until <= missing.index;
        let deadline = context.now + if may_wait { Self::deadline(context.rtt) } else { Duration::ZERO };
        let gap = Gap { missing, reported, settled_by, is_judged: false, deadline, may_wait };
        attributed.extend(gap.first_report());
        self.window.push(gap);
        if reported == ReportedCause::Nothing {
            self.waits_from = self.waits_from.or(Some(missing.index));
        }
        if reported != ReportedCause::Network && self.due.is_none() {
            let soonest = context.now + context.rtt / 2;
            let next = self.classified_at.map_or(soonest, |at| at + self.interval(context.rtt));
            self.due = Some(soonest.max(next));
        }
    }

    /// What is reported of a loss before a classification, and why.
    fn first_report(&self, missing: &UnattributedLoss, rtt: Duration) -> (ReportedCause, SettledBy) {
        let evidence = &missing.evidence;
        let is_trusted = self.distrusted_until <= missing.index && evidence.delay_us.is_some();
        match evidence.host_drops {
            Some(false) => (ReportedCause::Network, SettledBy::Counter),
            Some(true) if is_trusted => (ReportedCause::Claimed, SettledBy::Counter),
            // A receiver must not gain time by a claim that is not trusted, or that hides the
            // delay.
            Some(true) => (ReportedCause::Doubtful(Cause::Network), SettledBy::Nothing),
            None if !self.judge.has_pattern => (ReportedCause::Network, SettledBy::Nothing),
            // A queue may stand before such a loss.
            None if self.judge.has_path_evidence()
                && evidence.delay_us.is_none()
                && missing.index < self.delay_needed_until =>
            {
                (ReportedCause::Doubtful(Cause::Network), SettledBy::Nothing)
            }
            None if self.judge.has_path_evidence() && has_queue(evidence, long_queue(rtt)) => {
                let is_marked = evidence.is_marked == Some(true);
                let settled_by = if is_marked { SettledBy::Marks } else { SettledBy::Delay };
                (ReportedCause::Doubtful(Cause::Network), settled_by)
            }
            None => (ReportedCause::Nothing, SettledBy::Nothing),
        }
    }

    /// Records that a packet of `bytes` arrived after it was declared lost. Returns the cause that
    /// was reported for the packet, or `None` if no cause was reported. Returns [`Cause::Unknown`]
    /// if the packet is no longer in the window.
    pub fn ack_lost(&mut self, index: u64, bytes: u64) -> Option<Cause> {
        self.window.ack_lost(index, bytes)
    }

    /// Classifies the window if it is due. Packets below `settled` arrived or were declared lost.
    pub fn poll(&mut self, context: PathContext, settled: u64, attributed: &mut Vec<AttributedLoss>) {
        if self.due.is_some_and(|due| due <= context.now) {
            self.classify_window(context, settled, attributed);
        }
    }

    /// Time at which [`LossAttributor::poll`] must be called next; `None` if no loss waits.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Number of times that the window was classified.
    pub fn classifications(&self) -> u64 {
        self.classifications
    }

    /// Whether the receiver's drop counter is used.
    pub fn uses_counter(&self) -> bool {
        self.judge.has_counter
    }

    /// Number of lost packets without a verdict.
    pub fn pending(&self) -> u64 {
        self.window.pending()
    }

    /// Whether the last classification left losses without a verdict.
    pub fn is_undecided(&self) -> bool {
        self.is_undecided
    }

    /// Trims the window, which ends before `settled`.
    fn trim(&mut self, settled: u64, attributed: &mut Vec<AttributedLoss>) {
        if self.window.trim(settled.saturating_sub(Self::WINDOW_PACKETS), attributed) {
            self.window.expire(attributed);
            self.no_wait_until = settled + Self::NO_WAIT_PACKETS;
            self.delay_needed_until = settled + Self::DELAY_NEEDED_PACKETS;
        }
    }

    fn classify_window(&mut self, context: PathContext, settled: u64, attributed: &mut Vec<AttributedLoss>) {
        let now = context.now;
        (self.due, self.classified_at, self.waits_from) = (None, Some(now), None);
        self.is_undecided = false;
        self.trim(settled, attributed);
        if self.window.is_attributed() {
            return;
        }
        self.classifications += 1;
        let knows_host = settled < self.host_known_until;
        let look = Look { now, settled, burst: context.burst, knows_host };
        let outcome = self.window.classify(&mut self.judge, look, attributed);
        if outcome.is_disbelieved {
            self.distrusted_until = settled + Self::NO_WAIT_PACKETS;
        }
        if outcome.is_network {
            self.host_known_until = 0;
        } else if outcome.is_host {
            self.host_known_until = settled + Self::NO_WAIT_PACKETS;
        }
        if outcome.has_expired {
            self.no_wait_until = settled + Self::NO_WAIT_PACKETS;
        } else if outcome.is_host {
            self.no_wait_until = 0;
        }
        if outcome.has_expired || outcome.is_network {
            self.delay_needed_until = settled + Self::DELAY_NEEDED_PACKETS;
        } else if outcome.is_host {
            self.delay_needed_until = 0;
        }
        if let Some((index, deadline)) = outcome.oldest_pending {
            self.is_undecided = true;
            self.waits_from = Some(index);
            self.due = Some((now + self.interval(context.rtt)).min(deadline));
        }
    }

    /// Time from one classification of the window to the next: a round trip, or more if the window
    /// has many gaps.
    fn interval(&self, rtt: Duration) -> Duration {
        let gaps = u32::try_from(self.window.gaps()).unwrap_or(u32::MAX);
        rtt.max((GRANULARITY + TIME_PER_GAP.saturating_mul(gaps)).min(INTERVAL_MIN_MAX))
    }
}

/// One-way delay before a gap, above the path's minimum, from which a loss is charged at once: an
/// eighth of the round trip, at least 0.3 ms. A burst of the sender makes no queue of this length.
/// At most 4 ms, from which no pattern names the host (`docs/spec/classify.md`, §2).
fn long_queue(rtt: Duration) -> Duration {
    (rtt / 8).clamp(Duration::from_micros(300), Duration::from_millis(4))
}

/// Time between two classifications for each gap in the window. Classifying takes about 50 ns for
/// each gap, so it takes at most 0.05 % of a core. That is less than 1 % of the CPU time of a
/// sender at 1 Gbit/s. At most 0.1 s, so that losses are not answered much later in a window of
/// many gaps.
const TIME_PER_GAP: Duration = Duration::from_micros(100);
const INTERVAL_MIN_MAX: Duration = Duration::from_millis(100);

/// Number of packets by which a window that is not classified may be too long.
const TRIM_PACKETS: u64 = LossAttributor::WINDOW_PACKETS / 16;

/// Longest time that a loss is pending, in round trips and as a time. The rationale of
/// `docs/spec/transfer.md` has the reasons.
const WAIT_ROUND_TRIPS: u32 = 16;
const WAIT_MIN: Duration = Duration::from_millis(350);

#[cfg(test)]
mod tests;

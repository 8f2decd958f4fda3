//! Loss classification beside a transfer: which losses the network caused, and which losses are
//! reported to the controller.

mod window;

use std::sync::OnceLock;
use std::time::Duration;

use barograph_loss::{Cause, Classifier};

use self::window::{Gap, ReportedCause, Window};
use crate::proto::LossClassification;
use crate::proto::controller::DetectedLossRun;
use crate::proto::wire::GapReport;

/// Classifies losses by cause.
///
/// A packet is identified by its index, which is the number of packets that were sent before it. If
/// the receiver has a drop counter, a loss is classified at once: it is a network loss if the
/// counter did not rise over the gap, and a host loss if the counter rose and the receiver's claims
/// are trusted. Other losses wait for half a round trip to one round trip, until a pattern is
/// visible. Then they are classified in the window of the last [`LossAttributor::WINDOW_PACKETS`]
/// packets. Packets that arrive before this classification are not reported as lost.
///
/// Classifying a window takes 4 to 40 µs, depending on the number of runs. A window is classified
/// once a round trip, or more often if a round trip has more packets than a window, and never
/// without losses. After the window has had its largest number of runs, no more memory is
/// allocated.
#[derive(Clone, Debug)]
pub struct LossAttributor {
    classifier: Classifier,
    window: Window,
    /// Whether the receiver's claims are used without a check. False after a check contradicted the
    /// claims.
    trusts: bool,
    /// Time when the window is classified next; `None` if no loss waits for a classification.
    due: Option<Duration>,
    classified_at: Option<Duration>,
    /// Lowest index of a lost packet that waits for a cause.
    waits_from: Option<u64>,
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
    /// Whether these packets were reported as host losses before, because of a claim that is no
    /// longer believed.
    pub is_taken_back: bool,
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
        // Parse the model only once, because this takes longer than sending a small object.
        static SHIPPED: OnceLock<Classifier> = OnceLock::new();
        Self::new(SHIPPED.get_or_init(Classifier::shipped).clone())
    }
}

impl LossAttributor {
    /// Number of packets in a window: 20 000. The classifier was fitted on windows of this length,
    /// and a transfer soon fills such a window (`docs/spec/classify.md`).
    pub const WINDOW_PACKETS: u64 = 20_000;

    pub fn new(classifier: Classifier) -> Self {
        Self {
            classifier,
            window: Window::default(),
            trusts: true,
            due: None,
            classified_at: None,
            waits_from: None,
            classifications: 0,
        }
    }

    /// Adds a run of packets that was declared lost. All packets before the run must be settled:
    /// acknowledged or declared lost. Runs must be added in ascending order.
    ///
    /// Causes that are known now are appended to `attributed`.
    pub fn lose(
        &mut self,
        context: PathContext,
        missing: UnattributedLoss,
        attributed: &mut Vec<AttributedLoss>,
    ) {
        if self.waits_from.is_some_and(|index| index + Self::WINDOW_PACKETS < missing.index) {
            // Classify now: otherwise the waiting loss would drop out of the window before its
            // cause is known.
            self.classify_window(context, missing.index, attributed);
        }
        self.window.trim(missing.index.saturating_sub(Self::WINDOW_PACKETS), attributed);
        let (reported, cause) = match missing.evidence.host_drops {
            Some(false) => (ReportedCause::Network, Some(Cause::Network)),
            Some(true) if self.trusts => (ReportedCause::Claimed, Some(Cause::Host)),
            Some(true) | None => (ReportedCause::Nothing, None),
        };
        self.window.push(Gap { missing, reported });
        if reported == ReportedCause::Nothing {
            self.waits_from = self.waits_from.or(Some(missing.index));
        }
        attributed.extend(cause.map(|cause| AttributedLoss { missing, cause, is_taken_back: false }));
        if reported != ReportedCause::Network {
            let soonest = context.now + context.rtt / 2;
            let at =
                self.classified_at.map_or(soonest, |classified_at| soonest.max(classified_at + context.rtt));
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
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

    fn classify_window(&mut self, context: PathContext, settled: u64, attributed: &mut Vec<AttributedLoss>) {
        (self.due, self.classified_at, self.waits_from) = (None, Some(context.now), None);
        self.window.trim(settled.saturating_sub(Self::WINDOW_PACKETS), attributed);
        if self.window.is_attributed() {
            return;
        }
        self.classifications += 1;
        if let Some(is_disbelieved) =
            self.window.classify(&self.classifier, settled, context.burst, attributed)
        {
            self.trusts = !is_disbelieved;
        }
    }
}

/// Counts losses by the cause that the [`LossAttributor`] finds.
#[derive(Debug)]
pub(super) struct LossAccounting {
    /// `None` if all losses count as network losses.
    attributor: Option<Box<LossAttributor>>,
    /// Runs of lost packets with a newly known cause that is not counted yet.
    attributed: Vec<AttributedLoss>,
    /// Losses not yet reported to the controller, and host losses since its last call.
    losses: Vec<DetectedLossRun>,
    host_pending: u64,
    /// Number of packets accounted for so far: acknowledged, or lost with a known cause; without
    /// host losses.
    accounted: u64,
    /// `host`: number of host losses so far, without packets that arrived later. `host_reported`:
    /// number of host losses that were reported so far. Claims that were taken back are not
    /// counted. `host` is below 0 only within `poll`, if a claim is taken back before the claim is
    /// counted.
    host: i64,
    host_reported: i64,
    /// End of the last reported run of losses, in the count of
    /// [`FeedbackSample::accounted_packets`](crate::proto::controller::FeedbackSample).
    losses_end: u64,
    pub(super) network: u64,
    pub(super) unknown: u64,
}

impl LossAccounting {
    pub(super) fn new(classification: &LossClassification) -> Self {
        let attributor = match classification {
            LossClassification::None => None,
            LossClassification::Model(classifier) => Some(LossAttributor::new((**classifier).clone())),
            _ => Some(LossAttributor::default()),
        };
        Self {
            attributor: attributor.map(Box::new),
            attributed: Vec::new(),
            losses: Vec::new(),
            host_pending: 0,
            accounted: 0,
            host: 0,
            host_reported: 0,
            losses_end: 0,
            network: 0,
            unknown: 0,
        }
    }

    pub(super) fn lose(&mut self, context: PathContext, missing: UnattributedLoss) {
        match &mut self.attributor {
            Some(attributor) => attributor.lose(context, missing, &mut self.attributed),
            None => {
                self.attributed.push(AttributedLoss { missing, cause: Cause::Network, is_taken_back: false })
            }
        }
    }

    /// Counts an acknowledged packet of `bytes` that was declared lost before.
    pub(super) fn ack_lost(&mut self, index: u64, bytes: u64) {
        let cause = match &mut self.attributor {
            Some(attributor) => attributor.ack_lost(index, bytes),
            None => Some(Cause::Network),
        };
        // A network loss was counted already; any other packet is counted now.
        match cause {
            Some(Cause::Network | Cause::Unknown) => {}
            Some(Cause::Host) => {
                self.accounted += 1;
                self.host = self.host.saturating_sub(1).max(0);
            }
            None => self.accounted += 1,
        }
    }

    /// Counts `acked` newly acknowledged packets that were not declared lost before, and then the
    /// losses with a newly known cause. Packets below `settled` were acknowledged or declared lost.
    pub(super) fn poll(&mut self, context: PathContext, settled: u64, acked: u64) {
        self.accounted += acked;
        if let Some(attributor) = &mut self.attributor {
            attributor.poll(context, settled, &mut self.attributed);
        }
        let mut attributed = std::mem::take(&mut self.attributed);
        attributed.sort_unstable_by_key(|attributed| attributed.missing.index);
        attributed.drain(..).for_each(|attributed| self.count(&attributed));
        self.attributed = attributed;
        self.host = self.host.max(0);
    }

    fn count(&mut self, attributed: &AttributedLoss) {
        let (missing, packets) = (&attributed.missing, u64::from(attributed.missing.packets));
        if attributed.is_taken_back {
            self.host_reported -= i64::from(missing.packets);
            self.host -= i64::from(missing.packets);
        }
        match attributed.cause {
            Cause::Host => {
                self.host_reported += i64::from(missing.packets);
                self.host += i64::from(missing.packets);
                self.host_pending += packets;
                return;
            }
            Cause::Network => self.network += packets,
            Cause::Unknown => self.unknown += packets,
        }
        self.accounted += packets;
        // The position is the index minus the number of host losses before this index. The position
        // is not before the end of the last reported run, and the run ends within the packets
        // accounted for.
        let at = missing.index.saturating_sub(u64::try_from(self.host).unwrap_or(0));
        let at = at.min(self.accounted.saturating_sub(packets)).max(self.losses_end);
        self.losses_end = at + packets;
        self.losses.push(DetectedLossRun {
            at,
            packets: missing.packets,
            bytes: missing.bytes,
            sent: missing.sent,
            in_flight_bytes: missing.in_flight_bytes,
        });
    }

    /// Packets accounted for so far, without host losses.
    pub(super) fn accounted(&self) -> u64 {
        self.accounted
    }

    /// Number of host losses reported so far.
    pub(super) fn host(&self) -> u64 {
        u64::try_from(self.host_reported).unwrap_or(0)
    }

    /// Returns what to report to the controller: the losses, and the number of host losses.
    pub(super) fn pending(&self) -> (&[DetectedLossRun], u64) {
        (&self.losses, self.host_pending)
    }

    /// Clears what was reported to the controller.
    pub(super) fn clear_pending(&mut self) {
        self.losses.clear();
        self.host_pending = 0;
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.attributor.as_ref()?.due()
    }

    pub(super) fn classifications(&self) -> u64 {
        self.attributor.as_ref().map_or(0, |attributor| attributor.classifications())
    }
}

#[cfg(test)]
mod tests;

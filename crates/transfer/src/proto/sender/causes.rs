//! Causes of losses, and the losses that are reported to the controller.

use std::time::Duration;

use barograph_loss::Cause;

use crate::proto::controller::DetectedLossRun;
use crate::proto::{AttributedLoss, LossAttributor, PathContext, UnattributedLoss};

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
    /// Host losses so far: those that did not arrive later, and all that were reported. It is below
    /// 0 only within `poll`, where a claim may be taken back before it is counted.
    host: i64,
    host_reported: i64,
    /// End of the last reported run of losses, in the count of
    /// [`FeedbackSample::accounted_packets`](crate::proto::controller::FeedbackSample).
    losses_end: u64,
    pub(super) network: u64,
    pub(super) unknown: u64,
}

impl LossAccounting {
    pub(super) fn new(classify_losses: bool) -> Self {
        Self {
            attributor: classify_losses.then(Box::default),
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

    /// Counts an acknowledged packet that was not declared lost before.
    pub(super) fn ack(&mut self) {
        self.accounted += 1;
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

    /// Counts the losses with a newly known cause. Packets below `settled` were acknowledged or
    /// declared lost.
    pub(super) fn poll(&mut self, context: PathContext, settled: u64) {
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
        // The position is the index minus the number of host losses before this index. It is not
        // before the end of the last reported run, and not after the packets accounted for.
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

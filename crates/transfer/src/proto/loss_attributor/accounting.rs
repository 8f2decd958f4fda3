//! Counts losses by cause, and reports them to the controller.

use std::time::Duration;

use barograph_loss::Cause;

use super::charges::{Charge, Charges};
use super::{AttributedLoss, LossAttributor, PathContext, SettledBy, UnattributedLoss};
use crate::proto::controller::DetectedLossRun;
use crate::proto::{LossClassification, LossesByEvidence};

/// Counts losses by the cause that the [`LossAttributor`] finds.
#[derive(Debug)]
pub(in crate::proto) struct LossAccounting {
    /// `None` if all losses count as network losses.
    attributor: Option<Box<LossAttributor>>,
    /// Runs of lost packets with a newly known cause that is not counted yet.
    attributed: Vec<AttributedLoss>,
    report: LossReport,
    charges: Charges,
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
    pub(in crate::proto) network: u64,
    pub(in crate::proto) unknown: u64,
    pub(in crate::proto) taken_back: u64,
    settled: LossesByEvidence,
}

/// What to report to the controller at its next call.
#[derive(Debug, Default)]
pub(in crate::proto) struct LossReport {
    /// Charged losses that were taken back, in the order in which the controller removes them.
    pub(in crate::proto) taken_back: Vec<DetectedLossRun>,
    /// Losses that were charged since the last call.
    pub(in crate::proto) losses: Vec<DetectedLossRun>,
    /// Number of host losses since the last call.
    pub(in crate::proto) host_packets: u64,
}

impl LossReport {
    /// Takes back a charged run: from the losses of this report, or from the losses that the
    /// controller already has.
    fn take_back(&mut self, run: DetectedLossRun) {
        let packets = u64::from(run.packets);
        // Losses are in the order of their positions, so the controller has those before the first.
        let is_reported = self.losses.first().is_none_or(|first| run.at < first.at);
        if is_reported {
            self.taken_back.push(run);
        }
        for loss in &mut self.losses {
            if run.at < loss.at {
                loss.at -= packets;
            } else if run.at < loss.at + u64::from(loss.packets) {
                loss.packets -= run.packets.min(loss.packets);
                loss.bytes -= run.bytes.min(loss.bytes);
            }
        }
        self.losses.retain(|loss| loss.packets > 0);
    }
}

impl LossAccounting {
    pub(in crate::proto) fn new(classification: &LossClassification) -> Self {
        Self {
            attributor: LossAttributor::for_classification(classification).map(Box::new),
            attributed: Vec::new(),
            report: LossReport::default(),
            charges: Charges::default(),
            accounted: 0,
            host: 0,
            host_reported: 0,
            losses_end: 0,
            network: 0,
            unknown: 0,
            taken_back: 0,
            settled: LossesByEvidence::default(),
        }
    }

    pub(in crate::proto) fn lose(&mut self, context: PathContext, missing: UnattributedLoss) {
        match &mut self.attributor {
            Some(attributor) => attributor.lose(context, missing, &mut self.attributed),
            None => self.attributed.push(AttributedLoss {
                missing,
                cause: Cause::Network,
                settled_by: SettledBy::Nothing,
                before: None,
            }),
        }
    }

    /// Counts an acknowledged packet of `bytes` that was declared lost before.
    pub(in crate::proto) fn ack_lost(&mut self, index: u64, bytes: u64) {
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
    pub(in crate::proto) fn poll(&mut self, context: PathContext, settled: u64, acked: u64) {
        self.accounted += acked;
        if let Some(attributor) = &mut self.attributor {
            attributor.poll(context, settled, &mut self.attributed);
        }
        let mut attributed = std::mem::take(&mut self.attributed);
        attributed.sort_unstable_by_key(|attributed| (attributed.missing.index, attributed.before.is_some()));
        // Take back before new losses are counted, so that positions ascend. A loss that is charged
        // and taken back in this call is charged first.
        attributed.retain(|attributed| {
            let is_first =
                attributed.is_charge_taken_back() && self.charges.contains(attributed.missing.index);
            if is_first {
                self.count(attributed);
            }
            !is_first
        });
        attributed.drain(..).for_each(|attributed| self.count(&attributed));
        self.attributed = attributed;
        self.charges.forget_below(settled.saturating_sub(LossAttributor::WINDOW_PACKETS));
        self.host = self.host.max(0);
    }

    fn count(&mut self, attributed: &AttributedLoss) {
        let (missing, packets) = (&attributed.missing, u64::from(attributed.missing.packets));
        if self.attributor.is_some() {
            self.settled.count(attributed.settled_by, packets);
        }
        if let Some((before, settled_by)) = attributed.before {
            self.settled.remove(settled_by, packets);
            if before != Cause::Host {
                self.count_again(attributed, before);
                return;
            }
            self.host_reported -= i64::from(missing.packets);
            self.host -= i64::from(missing.packets);
        }
        match attributed.cause {
            Cause::Host => return self.count_host(missing.packets),
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
        let run = DetectedLossRun {
            at,
            packets: missing.packets,
            bytes: missing.bytes,
            sent: missing.sent,
            in_flight_bytes: missing.in_flight_bytes,
        };
        self.report.losses.push(run);
        if self.attributor.is_some() && attributed.settled_by != SettledBy::Counter {
            self.charges.push(Charge { index: missing.index, run });
        }
    }

    /// Counts packets with another cause that were charged before. If they are the host's, the
    /// charge is taken back.
    fn count_again(&mut self, attributed: &AttributedLoss, before: Cause) {
        let packets = u64::from(attributed.missing.packets);
        let charged = if before == Cause::Network { &mut self.network } else { &mut self.unknown };
        *charged = charged.saturating_sub(packets);
        if attributed.cause != Cause::Host {
            self.network += packets;
        } else if let Some(charge) = self.charges.take_back(&attributed.missing) {
            debug_assert_eq!(charge.run.packets, attributed.missing.packets, "a gap has one charge");
            self.taken_back += packets;
            self.accounted -= packets;
            self.losses_end -= packets;
            self.count_host(charge.run.packets);
            self.report.take_back(charge.run);
        }
    }

    fn count_host(&mut self, packets: u32) {
        self.host_reported += i64::from(packets);
        self.host += i64::from(packets);
        self.report.host_packets += u64::from(packets);
    }

    /// Packets accounted for so far, without host losses.
    pub(in crate::proto) fn accounted(&self) -> u64 {
        self.accounted
    }

    /// Number of host losses reported so far.
    pub(in crate::proto) fn host(&self) -> u64 {
        u64::try_from(self.host_reported).unwrap_or(0)
    }

    /// Lost packets by the evidence that settled their cause.
    pub(in crate::proto) fn settled(&self) -> LossesByEvidence {
        self.settled
    }

    /// Number of lost packets without a verdict.
    pub(in crate::proto) fn pending(&self) -> u64 {
        self.attributor.as_ref().map_or(0, |attributor| attributor.pending())
    }

    /// Whether the last classification left losses without a verdict.
    pub(in crate::proto) fn is_undecided(&self) -> bool {
        self.attributor.as_ref().is_some_and(|attributor| attributor.is_undecided())
    }

    /// Returns what to report to the controller.
    pub(in crate::proto) fn report(&self) -> &LossReport {
        &self.report
    }

    /// Clears what was reported to the controller.
    pub(in crate::proto) fn clear_report(&mut self) {
        self.report.taken_back.clear();
        self.report.losses.clear();
        self.report.host_packets = 0;
    }

    /// Whether the receiver's drop counter is used.
    pub(in crate::proto) fn uses_counter(&self) -> bool {
        self.attributor.as_ref().is_some_and(|attributor| attributor.uses_counter())
    }

    pub(in crate::proto) fn due(&self) -> Option<Duration> {
        self.attributor.as_ref()?.due()
    }

    pub(in crate::proto) fn classifications(&self) -> u64 {
        self.attributor.as_ref().map_or(0, |attributor| attributor.classifications())
    }
}

impl AttributedLoss {
    /// Whether these packets were charged to the network before, and are the host's.
    pub(super) fn is_charge_taken_back(&self) -> bool {
        self.cause == Cause::Host && matches!(self.before, Some((Cause::Network | Cause::Unknown, _)))
    }
}

impl LossesByEvidence {
    fn of(&mut self, settled_by: SettledBy) -> &mut u64 {
        match settled_by {
            SettledBy::Counter => &mut self.counter,
            SettledBy::Marks => &mut self.marks,
            SettledBy::Delay => &mut self.delay,
            SettledBy::Pattern => &mut self.pattern,
            SettledBy::Nothing => &mut self.expired,
        }
    }

    fn count(&mut self, settled_by: SettledBy, packets: u64) {
        *self.of(settled_by) += packets;
    }

    fn remove(&mut self, settled_by: SettledBy, packets: u64) {
        let of = self.of(settled_by);
        *of = of.saturating_sub(packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::GapReport;

    #[test]
    fn a_loss_that_is_charged_and_taken_back_in_one_call_counts_as_the_hosts() {
        let mut accounting = LossAccounting::new(&LossClassification::Default);
        let at =
            |ms| PathContext { now: Duration::from_millis(ms), rtt: Duration::from_millis(20), burst: 16 };
        // Stalls. The receiver hides the delay before the last one, which is charged at once, while
        // a classification of the others is due.
        let stalls = 6;
        for n in 1..=stalls {
            let delay_us = (n < stalls).then_some(0);
            let missing = UnattributedLoss {
                index: n * 3000,
                packets: 120 + n as u32,
                bytes: 1500 * (120 + n),
                sent: Duration::from_millis(n),
                in_flight_bytes: 0,
                evidence: GapReport { delay_us, ..GapReport::default() },
            };
            accounting.lose(at(n), missing);
        }
        let lost: u64 = (1..=stalls).map(|n| 120 + n).sum();
        accounting.poll(at(100), stalls * 3000 + 1000, stalls * 3000 + 1000 - lost);
        assert_eq!((accounting.host(), accounting.network, accounting.unknown), (lost, 0, 0));
        assert_eq!(accounting.accounted(), stalls * 3000 + 1000 - lost);
        assert_eq!((accounting.report().losses.len(), accounting.report().host_packets), (0, lost));
        let settled = accounting.settled();
        assert_eq!(settled.delay + settled.pattern, lost, "{settled:?}");
    }
}

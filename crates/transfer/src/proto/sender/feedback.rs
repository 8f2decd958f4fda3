//! Processing of feedback: acknowledgements, round-trip times, losses, and the controller's sample.

use std::ops::Range;
use std::time::Duration;

use super::losses::Coverage;
use super::sent_packets::SentState;
use super::{ProtocolViolation, Sender, micros};
use crate::proto::controller::{Delivery, FeedbackSample};
use crate::proto::wire::{Feedback, Totals};
use crate::proto::{PathContext, nanos};

impl Sender {
    /// Handles a feedback; `number` is the number of the feedback's datagram.
    ///
    /// An older feedback adds acknowledgements and nothing else. A feedback without new information
    /// restarts no timer.
    /// Errors: the receiver breaks the protocol; a part of the feedback may have been processed.
    pub fn handle_feedback(
        &mut self,
        now: Duration,
        number: u64,
        feedback: &Feedback,
    ) -> Result<(), ProtocolViolation> {
        let is_newer = self.reports.is_newer(number);
        if is_newer && self.reports.are_less(&feedback.totals) {
            return Err(ProtocolViolation::TakenBack);
        }
        let (acked_before, acked_to_before) = (self.pending.packets, self.sent_packets.acked_to());
        let never_lost_packets = self.process_runs(now, feedback, is_newer, acked_to_before)?;
        let has_acked = acked_before < self.pending.packets;
        // Replayed feedback, or feedback without new information, does not show that the path
        // works.
        let is_news = is_newer && (has_acked || self.reports.totals().packets < feedback.totals.packets);
        let mut coverage = None;
        if is_newer {
            self.pending.marked_packets += self.reports.store_totals(feedback.totals);
            self.process_echo(now, feedback)?;
            let indices = self.numbers.index_of(feedback.start)
                ..self.numbers.index_of(feedback.end().min(self.numbers.end()));
            coverage = Some(Coverage { indices, is_next: self.reports.store_number(number) });
        }
        let mut sample = None;
        if is_news {
            self.timers.on_feedback(now, has_acked);
            sample = Some(self.rate_sampler.sample(nanos(now), self.rtt.min));
        }
        self.detect_losses(now, coverage);
        if let Some((has_round_ended, _)) = sample {
            self.losses.update_rounds(now, has_round_ended, &self.rtt);
        }
        self.forget_settled();
        self.attribute_losses(now, never_lost_packets);
        if let Some((_, delivery)) = sample {
            self.call_controller(now, delivery);
        }
        Ok(())
    }

    /// Acknowledges packets, and records the evidence of gaps. `acked_to_before` is the highest
    /// index that was acknowledged before this feedback, plus one. Returns how many of the newly
    /// acknowledged packets were not declared lost before.
    fn process_runs(
        &mut self,
        now: Duration,
        feedback: &Feedback,
        is_newer: bool,
        acked_to_before: u64,
    ) -> Result<u64, ProtocolViolation> {
        let mut never_lost_packets = 0;
        let (mut at, end) = (feedback.start, self.numbers.end());
        let mut cursor = self.numbers.seek(at);
        for run in &feedback.runs {
            let came_to = at.saturating_add(u64::from(run.received));
            if run.received > 0 {
                // This check also refuses runs with a sum that saturates at the highest number.
                if end <= at || end < came_to {
                    return Err(ProtocolViolation::NeverSent(at.max(end)));
                }
                let from = self.numbers.index_from(&mut cursor, at);
                if let Some(skipped) = self.numbers.skipped_to(cursor, came_to) {
                    return Err(ProtocolViolation::NeverSent(skipped));
                }
                // No number was skipped within this run.
                never_lost_packets += self.ack(now, from..from + (came_to - at), acked_to_before);
            }
            at = came_to.saturating_add(u64::from(run.missing));
            if is_newer && run.missing > 0 && came_to < end {
                let from = self.numbers.index_from(&mut cursor, came_to);
                let gap = from..self.numbers.index_from(&mut cursor, at.min(end));
                if !self.sent_packets.are_open(gap.clone()) {
                    return Err(ProtocolViolation::TakenBack);
                }
                // Ignore settled gaps, and gaps made only of skipped packet numbers.
                if self.losses.settled() < gap.end
                    && !gap.is_empty()
                    && let Some(sent) = self.sent_packets.get_mut(gap.start)
                {
                    sent.evidence = Some(run.evidence);
                }
            }
        }
        Ok(never_lost_packets)
    }

    /// Acknowledges the packets with these indices that were not acknowledged before. Returns how
    /// many of these packets were not declared lost before.
    fn ack(&mut self, now: Duration, indices: Range<u64>, acked_to_before: u64) -> u64 {
        let (now_ns, mut never_lost_packets) = (nanos(now), 0);
        let (mut from, mut range) = (indices.start, 0..0);
        while let Some(index) = self.sent_packets.next_open(from..indices.end) {
            from = index + 1;
            let Some(sent) = self.sent_packets.settle(index, SentState::Acked) else { break };
            let bytes = self.sent_packets.bytes(&sent);
            self.rate_sampler.ack(now_ns, &sent.snapshot, bytes);
            self.pending.packets += 1;
            self.pending.bytes += bytes;
            if sent.state == SentState::Lost {
                self.losses.ack_lost(index, acked_to_before, self.rate_sampler.round());
                self.loss_accounting.ack_lost(index, bytes);
                if let Some(windows) = &mut self.windows {
                    windows.ack_lost(index);
                }
            } else {
                never_lost_packets += 1;
            }
            // Consecutive packets often carry consecutive ranges, which are recorded as one.
            if range.end == sent.start {
                range.end = sent.range().end;
            } else {
                self.stats.acked_bytes += self.object.ack(std::mem::replace(&mut range, sent.range()));
            }
        }
        self.stats.acked_bytes += self.object.ack(range);
        never_lost_packets
    }

    /// Measures the round-trip time with the packet that the receiver echoes, once for each packet.
    fn process_echo(&mut self, now: Duration, feedback: &Feedback) -> Result<(), ProtocolViolation> {
        let Some(echo) = feedback.echo else { return Ok(()) };
        if self.numbers.end() <= echo.number || self.numbers.is_skipped(echo.number) {
            return Err(ProtocolViolation::NeverSent(echo.number));
        }
        // Ignore the echo if the packet is forgotten, or if the echoed sending time is not the
        // packet's.
        let sent = self
            .sent_packets
            .get(self.numbers.index_of(echo.number))
            .filter(|sent| sent.state == SentState::Acked);
        let sent_at = sent.map(|sent| Duration::from_nanos(sent.snapshot.sent_ns));
        if let Some(sent_at) = sent_at.filter(|at| micros(*at) == echo.sent_us)
            && self.reports.store_echo(echo.number)
        {
            self.rtt.add(now.saturating_sub(sent_at), Duration::from_micros(echo.held_us.into()));
            self.pending.round_trip = self.rtt.latest;
        }
        Ok(())
    }

    pub(super) fn context(&self, now: Duration) -> PathContext {
        PathContext { now, rtt: self.rtt.smoothed, burst: self.pacing.burst_packets() }
    }

    /// Declares lost all packets that were overtaken long enough ago. `coverage` is given for
    /// feedback that is newer than all earlier feedback. Then also declares lost the packets that
    /// enough other packets overtook.
    pub(super) fn detect_losses(&mut self, now: Duration, coverage: Option<Coverage>) {
        let context = self.context(now);
        let Self { losses, loss_accounting, windows, rtt, sent_packets, object, .. } = self;
        losses.detect(now, coverage, rtt, sent_packets, object, |loss| {
            if let Some(windows) = windows {
                windows.lose(&loss, context.burst);
            }
            loss_accounting.lose(context, loss);
        });
    }

    /// Counts the losses with a newly known cause, and `acked` newly acknowledged packets that were
    /// not declared lost before.
    pub(super) fn attribute_losses(&mut self, now: Duration, acked: u64) {
        self.loss_accounting.poll(self.context(now), self.losses.settled(), acked);
        if let Some(windows) = &mut self.windows {
            windows.settle(self.losses.settled());
        }
    }

    pub(super) fn forget_settled(&mut self) {
        self.sent_packets.forget(self.losses.forgets_below(&self.sent_packets));
        self.numbers.forget_below(self.sent_packets.first());
    }

    fn call_controller(&mut self, now: Duration, delivery: Option<Delivery>) {
        let full = self.pacing.full_bytes();
        // The receiver measures its drain rate with its counter.
        let drain = if self.loss_accounting.uses_counter() { self.drain_bytes_s() } else { 0 };
        // The receiver counts bytes of the object, but the controller counts headers too.
        let drain = u128::from(drain) * u128::from(full) / u128::from(self.pacing.payload());
        let pending = std::mem::take(&mut self.pending);
        let report = self.loss_accounting.report();
        let seen = FeedbackSample {
            rtt: self.rtt,
            round_trip: pending.round_trip,
            round: self.rate_sampler.round(),
            acked_packets: pending.packets,
            acked_bytes: pending.bytes,
            marked_packets: pending.marked_packets,
            in_flight_bytes: self.sent_packets.in_flight_bytes(),
            delivery,
            losses: &report.losses,
            taken_back: &report.taken_back,
            is_undecided: self.loss_accounting.is_undecided(),
            host_lost_packets: report.host_packets,
            drain_bytes_s: u64::try_from(drain).unwrap_or(u64::MAX),
            accounted_packets: self.loss_accounting.accounted(),
            packet_bytes: u32::try_from(full).unwrap_or(u32::MAX),
        };
        self.pacing.on_feedback(now, &seen);
        self.loss_accounting.clear_report();
    }
}

/// Number, totals and echo of the newest report. A report is one datagram of feedback.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    number: Option<u64>,
    totals: Totals,
    /// The packet number echoed last.
    echoed: Option<u64>,
}

impl Reports {
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Whether a report with this number is newer than all earlier reports.
    fn is_newer(&self, number: u64) -> bool {
        self.number.is_none_or(|newest| newest < number)
    }

    /// Whether any of the totals of a newer report is less than in the report before. An honest
    /// receiver never sends such a report.
    fn are_less(&self, new: &Totals) -> bool {
        let old = &self.totals;
        new.packets < old.packets || new.bytes < old.bytes || new.marked < old.marked
    }

    /// Stores the checked totals of a newer report. Returns how many more packets were marked.
    fn store_totals(&mut self, totals: Totals) -> u64 {
        totals.marked - std::mem::replace(&mut self.totals, totals).marked
    }

    /// Stores the number of a newer report. Returns whether this number directly follows the number
    /// of the newest report before.
    fn store_number(&mut self, number: u64) -> bool {
        self.number.replace(number).is_some_and(|before| before.checked_add(1) == Some(number))
    }

    /// Stores the number of an echoed packet. Returns true if the last echo was for a different
    /// packet.
    fn store_echo(&mut self, packet: u64) -> bool {
        self.echoed.replace(packet) != Some(packet)
    }
}

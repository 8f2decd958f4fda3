//! State of a sender: which bytes are still to be sent, which packets are in flight, and which
//! packets were acknowledged or lost.

mod causes;
mod losses;
mod numbers;
mod object;
mod pacing;
mod path;
mod reorder;
mod reports;
mod sent_packets;
#[cfg(test)]
mod tests;
mod timers;

use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use self::causes::LossAccounting;
use self::losses::LossDetector;
use self::numbers::NumberAllocator;
use self::object::Object;
use self::pacing::Pacing;
use self::path::DeliveryRateSampler;
use self::reports::Reports;
use self::sent_packets::{PACKETS_MAX, SentPacket, SentPackets, SentState};
use self::timers::Timers;
use crate::proto::controller::{Delivery, FeedbackSample};
use crate::proto::wire::{Feedback, NOTE_BYTES, SenderReport};
use crate::proto::{Controller, PathContext, Rtt, TooLong, nanos};

/// Configuration of a [`Sender`].
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Bytes of the object in a full packet; 0 counts as 1.
    pub payload_bytes: u32,
    /// Bytes that headers, seal, UDP and IP add to a packet.
    pub overhead_bytes: u32,
    /// Seed of the packet numbers that are skipped. An acknowledgement of a skipped number proves a
    /// false report, so the seed must stay secret.
    pub seed: u64,
    /// Whether losses are classified by cause. If not, all losses count as network losses.
    pub classify_losses: bool,
}

/// A packet to send: the caller reads the bytes of the range, and encodes and seals the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub number: u64,
    /// Sending time (µs since the epoch, wrapping).
    pub sent_us: u32,
    /// Range of the object that the packet carries.
    pub range: Range<u64>,
    /// Report to the receiver, if one is due.
    pub note: Option<SenderReport>,
}

/// Breach of the protocol by the receiver; it ends the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// The receiver acknowledged a packet that was not sent.
    #[error("the receiver acknowledged packet {0}, which was not sent: check which program runs there")]
    NeverSent(u64),
    /// The receiver withdrew an acknowledgement, or the receiver's totals decreased.
    #[error("the receiver withdrew an acknowledgement: check which program runs there")]
    TakenBack,
}

/// What limits a sender at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendLimit {
    /// The controller's rate. If this rate is infinite, the calls of [`Sender::poll_packet`] limit
    /// the sender.
    Rate,
    /// The drain rate of the receiver's host ([`crate::proto::controller::DrainLimiter`]).
    Drain,
    /// The congestion window, which is full.
    Window,
    /// The memory for sent packets ([`Sender::PACKETS_MAX`]).
    Memory,
    /// The object: all its bytes are in flight or acknowledged.
    Object,
}

/// Counts of a sender since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    pub sent_packets: u64,
    /// Bytes of the object that were sent, including bytes that were sent again.
    pub sent_bytes: u64,
    /// Bytes of the object acknowledged, each counted once.
    pub acked_bytes: u64,
    /// Number of probe packets, which are sent if no feedback comes.
    pub probe_packets: u64,
    /// Number of packets that were declared lost. The cause of a loss is known about a round trip
    /// later.
    pub lost_packets: u64,
    /// Number of packets that were declared lost and acknowledged later.
    pub spurious_packets: u64,
    /// Packets lost by the receiving host.
    pub lost_host: u64,
    /// Packets lost by the network.
    pub lost_network: u64,
    /// Number of packets lost with an unknown cause. The controller treats these losses as network
    /// losses.
    pub lost_unknown: u64,
}

/// The sending half of the protocol, for one object.
///
/// Its memory is bounded for any size of the object: it stores at most [`Sender::PACKETS_MAX`]
/// packets, with about 80 bytes for each packet.
#[derive(Debug)]
pub struct Sender {
    object: Object,
    numbers: NumberAllocator,
    sent_packets: SentPackets,
    rate_sampler: DeliveryRateSampler,
    rtt: Rtt,
    pacing: Pacing,
    losses: LossDetector,
    causes: LossAccounting,
    reports: Reports,
    timers: Timers,
    pending: PendingAcks,
    /// All counts except those of [`LossDetector`] and [`LossAccounting`].
    stats: SenderStats,
}

/// What was acknowledged since the last call of the controller.
#[derive(Debug, Default)]
struct PendingAcks {
    packets: u64,
    bytes: u64,
    marked_packets: u64,
    round_trip: Option<Duration>,
}

impl Sender {
    /// Maximum number of packets that are kept, with 80 bytes for each packet. Packets in flight
    /// are kept, and packets after the oldest of these that were acknowledged or recently declared
    /// lost.
    pub const PACKETS_MAX: usize = PACKETS_MAX;

    /// Creates a sender of an object of `object_bytes`, of which the receiver already has the
    /// ranges `held`. Errors: the object is too long for offsets ([`TooLong`]).
    pub fn new(
        config: SenderConfig,
        object_bytes: u64,
        held: &RangeSet<u64>,
        controller: Box<dyn Controller>,
    ) -> Result<Self, TooLong> {
        TooLong::check(object_bytes)?;
        Ok(Self {
            object: Object::new(object_bytes, held),
            numbers: NumberAllocator::new(config.seed),
            sent_packets: SentPackets::new(config.overhead_bytes.into()),
            rate_sampler: DeliveryRateSampler::default(),
            rtt: Rtt::default(),
            pacing: Pacing::new(config.payload_bytes, config.overhead_bytes, controller),
            losses: LossDetector::default(),
            causes: LossAccounting::new(config.classify_losses),
            reports: Reports::default(),
            timers: Timers::default(),
            pending: PendingAcks::default(),
            stats: SenderStats::default(),
        })
    }

    /// Sets the bytes of the object in a full packet (0 counts as 1), if the path carries shorter
    /// packets than was assumed, or longer ones.
    ///
    /// Packets in flight do not change. Lost ranges are cut into packets of the new length. The
    /// controller receives the new length with the next feedback.
    pub fn set_payload_bytes(&mut self, payload_bytes: u32) {
        self.pacing.set_payload(payload_bytes);
    }

    /// Bytes of the object in a full packet.
    pub fn payload_bytes(&self) -> u32 {
        // The cast loses nothing: a payload fits 32 bits.
        self.pacing.payload() as u32
    }

    /// Whether all bytes of the object were acknowledged.
    pub fn is_done(&self) -> bool {
        self.object.is_complete()
    }

    /// Returns the counts since the start.
    pub fn stats(&self) -> SenderStats {
        SenderStats {
            lost_packets: self.losses.lost_packets,
            spurious_packets: self.losses.spurious_packets,
            lost_host: self.causes.host(),
            lost_network: self.causes.network,
            lost_unknown: self.causes.unknown,
            ..self.stats
        }
    }

    /// Round-trip times so far.
    pub fn rtt(&self) -> Rtt {
        self.rtt
    }

    /// Pacing rate in bytes a second, headers included; infinite if only the window limits.
    pub fn rate_bytes_s(&self) -> f64 {
        self.pacing.rate_bytes_s()
    }

    /// Bytes in flight, headers included.
    pub fn in_flight_bytes(&self) -> u64 {
        self.sent_packets.in_flight_bytes()
    }

    /// Time since the last new feedback, or since the first packet in flight. 0 before the first
    /// packet, and after all bytes were acknowledged. The caller decides when to give up.
    pub fn silence(&self, now: Duration) -> Duration {
        if self.is_done() { Duration::ZERO } else { self.timers.silence(now) }
    }

    /// Bytes of the object that the receiver is known to have, including the bytes that the
    /// receiver had before the transfer.
    pub fn held_bytes(&self) -> u64 {
        self.object.held_bytes()
    }

    /// Drain rate that the receiver reported (bytes of the object a second); 0 if the receiver did
    /// not limit the transfer.
    pub fn drain_bytes_s(&self) -> u64 {
        self.reports.totals().drain_bytes_s
    }

    /// Time when the classifier runs next; `None` if no loss waits for a classification.
    pub fn classifier_due(&self) -> Option<Duration> {
        self.causes.due()
    }

    /// Number of times that the classifier ran.
    pub fn classifier_runs(&self) -> u64 {
        self.causes.classifications()
    }

    /// Returns the packets and bytes in flight twice: from the counters, and as a sum over the kept
    /// packets. Also returns the number of kept packets.
    pub(crate) fn kept(&self) -> ([(u64, u64); 2], usize) {
        let kept = (self.sent_packets.first()..self.sent_packets.end())
            .filter_map(|index| self.sent_packets.get(index));
        let in_flight =
            kept.filter(|sent| sent.state == SentState::InFlight).map(|sent| self.sent_packets.bytes(sent));
        let summed = in_flight.fold((0, 0), |(packets, bytes), length| (packets + 1, bytes + length));
        (
            [(self.sent_packets.in_flight_packets(), self.sent_packets.in_flight_bytes()), summed],
            self.sent_packets.len(),
        )
    }

    /// What limits the sender at present.
    pub fn limit(&self) -> SendLimit {
        if !self.object.has_next() {
            SendLimit::Object
        } else if self.sent_packets.is_full() {
            SendLimit::Memory
        } else if !self.has_room() {
            SendLimit::Window
        } else if self.pacing.is_capped() {
            SendLimit::Drain
        } else {
            SendLimit::Rate
        }
    }

    /// Returns the next packet if one may be sent at `now`; call it until it returns `None`.
    pub fn poll_packet(&mut self, now: Duration) -> Option<Packet> {
        if self.is_done() {
            return None;
        }
        if self.timers.take_probe() {
            return self.probe(now);
        }
        if !self.object.has_next() || self.sent_packets.is_full() {
            // No range waits to be sent, or the memory is full, so the path does not limit the
            // sender.
            self.hold_back();
            return None;
        }
        if !self.has_room() || !self.pacing.is_ready(now) {
            return None;
        }
        let range = self.object.take(self.room(now))?;
        Some(self.send(now, range))
    }

    /// The range that is sent next, in one packet or several, if nothing is lost before: lost bytes
    /// first, then bytes that were never sent.
    ///
    /// A caller that reads ahead checks whether it has this range. If not, it calls
    /// [`Sender::hold_back`] instead of [`Sender::poll_packet`]. Probes may carry other bytes.
    pub fn next_range(&self) -> Option<Range<u64>> {
        self.object.next()
    }

    /// The first range at or after `from` that was never sent and that the receiver does not have;
    /// empty if there is none.
    pub fn unsent(&self, from: u64) -> Range<u64> {
        self.object.unsent(from)
    }

    /// Records that the caller has not read the next range yet, so the path does not limit the
    /// sender.
    pub fn hold_back(&mut self) {
        self.rate_sampler.set_app_limited(self.sent_packets.in_flight_bytes());
    }

    /// Handles a feedback; `number` is that of its datagram.
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
        let acked_before = self.pending.packets;
        self.process_runs(now, feedback, is_newer)?;
        let has_acked = acked_before < self.pending.packets;
        // Replayed feedback, or feedback without new information, does not show that the path
        // works.
        let is_news = is_newer && (has_acked || self.reports.totals().packets < feedback.totals.packets);
        if is_newer {
            self.pending.marked_packets += self.reports.store_totals(feedback.totals);
            self.process_echo(now, feedback)?;
            let covered = self.numbers.index_of(feedback.start)
                ..self.numbers.index_of(feedback.end().min(self.numbers.end()));
            self.losses.cover(covered, self.reports.store_number(number), &self.sent_packets);
        }
        if is_news {
            self.timers.on_feedback(now, has_acked);
        }
        self.detect_losses(now, is_newer);
        self.attribute_losses(now);
        self.losses.end_feedback();
        if !is_news {
            self.forget_settled();
            return Ok(());
        }
        let (has_round_ended, delivery) = self.rate_sampler.sample(nanos(now), self.rtt.min);
        self.losses.update_rounds(now, has_round_ended, &self.rtt);
        self.forget_settled();
        self.call_controller(now, delivery);
        Ok(())
    }

    /// When [`Sender::handle_timeout`] or [`Sender::poll_packet`] must be called next if no
    /// feedback comes before; `None` once all is acknowledged.
    ///
    /// It may be in the past.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.is_done() {
            return None;
        }
        let sending = if self.timers.is_probe_due() {
            Some(Duration::ZERO)
        } else {
            (self.object.has_next() && self.has_room()).then(|| self.pacing.next())
        };
        let all = [sending, self.causes.due(), self.loss_at(), self.probe_at(), self.no_feedback_at()];
        all.into_iter().flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Duration) {
        if self.is_done() {
            return;
        }
        if self.loss_at().is_some_and(|at| at <= now) {
            self.detect_losses(now, false);
        }
        self.attribute_losses(now);
        // Also remove packets that were declared lost only because of time. Otherwise a full memory
        // would stay full.
        self.forget_settled();
        if self.no_feedback_at().is_some_and(|at| at <= now) {
            self.timers.restart_no_feedback(now);
            self.pacing.on_no_feedback(now);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.timers.make_probe_due(now);
        }
    }

    /// Whether the window and the memory have room for a full packet.
    fn has_room(&self) -> bool {
        self.pacing.has_room(self.sent_packets.in_flight_bytes()) && !self.sent_packets.is_full()
    }

    /// Returns when the oldest overtaken packet is declared lost.
    fn loss_at(&self) -> Option<Duration> {
        self.losses.due(&self.sent_packets, &self.rtt)
    }

    fn probe_at(&self) -> Option<Duration> {
        self.timers.probe_at(&self.rtt).filter(|_| 0 < self.sent_packets.in_flight_packets())
    }

    /// Returns when the no-feedback timer expires; `None` if no packets are in flight.
    fn no_feedback_at(&self) -> Option<Duration> {
        let (packet_bytes, rate) = (self.pacing.full_bytes(), self.pacing.rate_bytes_s());
        (0 < self.sent_packets.in_flight_packets())
            .then(|| self.timers.no_feedback_at(&self.rtt, packet_bytes, rate))
    }

    /// Sends a probe packet, which pacing and the window do not limit. The probe carries bytes that
    /// wait to be sent, or if there are none, the bytes of the oldest packet in flight (RFC 9002
    /// §6.2.4).
    fn probe(&mut self, now: Duration) -> Option<Packet> {
        if self.sent_packets.len() >= PACKETS_MAX {
            self.give_up_oldest(now);
        }
        let room = self.room(now);
        let range = match self.object.take(room) {
            Some(range) => range,
            None => {
                let mut oldest = self.sent_packets.next_open(self.losses.settled()..self.sent_packets.end());
                while let Some(index) = oldest
                    && self
                        .sent_packets
                        .get(index)
                        .is_some_and(|sent| sent.is_copied || sent.state != SentState::InFlight)
                {
                    oldest = self.sent_packets.next_open(index + 1..self.sent_packets.end());
                }
                let sent = self.sent_packets.get_mut(oldest?)?;
                let range = sent.range();
                // If the packet is longer than the current packet length, the probe carries only a
                // part of its bytes. Then all bytes of the packet are sent again if the packet is
                // lost.
                sent.is_copied = range.end - range.start <= room;
                range.start..range.end.min(range.start + room)
            }
        };
        self.stats.probe_packets += 1;
        Some(self.send(now, range))
    }

    fn give_up_oldest(&mut self, now: Duration) {
        self.forget_settled();
        if self.sent_packets.len() < PACKETS_MAX {
            return;
        }
        let context = self.context(now);
        if let Some(loss) = self.losses.give_up_oldest(&mut self.sent_packets, &mut self.object) {
            self.causes.lose(context, loss);
        }
        self.forget_settled();
    }

    /// Maximum number of bytes of the object in the next packet. A packet with a note carries fewer
    /// bytes, so that all full packets have the same length (spec §3).
    fn room(&self, now: Duration) -> u64 {
        let note_bytes = if self.timers.is_note_due(now, &self.rtt) { NOTE_BYTES as u64 } else { 0 };
        let payload = self.pacing.payload();
        payload.checked_sub(note_bytes).filter(|room| 0 < *room).unwrap_or(payload)
    }

    fn send(&mut self, now: Duration, range: Range<u64>) -> Packet {
        let len = range.end - range.start;
        let number = self.numbers.take(self.sent_packets.end());
        let mut sent = SentPacket {
            start: range.start,
            // The cast loses nothing: a payload fits 32 bits.
            len: len as u32,
            state: SentState::InFlight,
            is_copied: false,
            snapshot: path::SendSnapshot::default(),
            evidence: None,
        };
        sent.snapshot = self.rate_sampler.send(
            nanos(now),
            self.sent_packets.in_flight_bytes(),
            self.sent_packets.bytes(&sent),
        );
        self.timers.sent(now, self.sent_packets.in_flight_packets() == 0);
        self.sent_packets.push(sent);
        self.pacing.spend(len);
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += len;
        Packet { number, sent_us: micros(now), range, note: self.sender_report(now) }
    }

    /// The note of this packet, if one is due: a note is sent about twice in each round trip.
    fn sender_report(&mut self, now: Duration) -> Option<SenderReport> {
        self.timers.is_note_due(now, &self.rtt).then(|| {
            self.timers.note_sent(now);
            let smoothed_us = || u32::try_from(self.rtt.smoothed.as_micros()).unwrap_or(u32::MAX).max(1);
            let rtt_us = self.rtt.latest.map_or(0, |_| smoothed_us());
            SenderReport { floor: self.numbers.number_of(self.sent_packets.first()), rtt_us }
        })
    }

    /// Acknowledges packets, and records the evidence of gaps.
    fn process_runs(
        &mut self,
        now: Duration,
        feedback: &Feedback,
        is_newer: bool,
    ) -> Result<(), ProtocolViolation> {
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
                self.ack(now, from..from + (came_to - at));
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
        Ok(())
    }

    /// Acknowledges the packets with these indices that were not acknowledged before.
    fn ack(&mut self, now: Duration, indices: Range<u64>) {
        let now_ns = nanos(now);
        let (mut from, mut range) = (indices.start, 0..0);
        while let Some(index) = self.sent_packets.next_open(from..indices.end) {
            from = index + 1;
            let Some(sent) = self.sent_packets.settle(index, SentState::Acked) else { break };
            let bytes = self.sent_packets.bytes(&sent);
            self.rate_sampler.ack(now_ns, &sent.snapshot, bytes);
            self.pending.packets += 1;
            self.pending.bytes += bytes;
            self.losses.ack(index);
            if sent.state == SentState::Lost {
                self.losses.ack_lost(index, self.rate_sampler.round());
                self.causes.ack_lost(index, bytes);
            } else {
                self.causes.ack();
            }
            // Consecutive packets often carry consecutive ranges, which are recorded as one.
            if range.end == sent.start {
                range.end = sent.range().end;
            } else {
                self.stats.acked_bytes += self.object.ack(std::mem::replace(&mut range, sent.range()));
            }
        }
        self.stats.acked_bytes += self.object.ack(range);
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

    fn context(&self, now: Duration) -> PathContext {
        PathContext { now, rtt: self.rtt.smoothed, burst: self.pacing.burst_packets() }
    }

    /// Declares packets lost that were overtaken long enough ago. If `is_newer` is true (the
    /// feedback is newer than all earlier feedback), also declares packets lost that enough other
    /// packets overtook.
    fn detect_losses(&mut self, now: Duration, is_newer: bool) {
        let context = self.context(now);
        let Self { losses, causes, rtt, sent_packets, object, .. } = self;
        losses.detect(now, is_newer, rtt, sent_packets, object, |loss| causes.lose(context, loss));
    }

    fn attribute_losses(&mut self, now: Duration) {
        self.causes.poll(self.context(now), self.losses.settled());
    }

    fn forget_settled(&mut self) {
        self.sent_packets.forget(self.losses.forgets_below(&self.sent_packets));
        self.numbers.forget_below(self.sent_packets.first());
    }

    fn call_controller(&mut self, now: Duration, delivery: Option<Delivery>) {
        let full = self.pacing.full_bytes();
        // The receiver counts bytes of the object, but the controller counts headers too.
        let drain = u128::from(self.drain_bytes_s()) * u128::from(full) / u128::from(self.pacing.payload());
        let pending = std::mem::take(&mut self.pending);
        let (losses, host_lost_packets) = self.causes.pending();
        let seen = FeedbackSample {
            rtt: self.rtt,
            round_trip: pending.round_trip,
            round: self.rate_sampler.round(),
            acked_packets: pending.packets,
            acked_bytes: pending.bytes,
            marked_packets: pending.marked_packets,
            in_flight_bytes: self.sent_packets.in_flight_bytes(),
            delivery,
            losses,
            host_lost_packets,
            drain_bytes_s: u64::try_from(drain).unwrap_or(u64::MAX),
            accounted_packets: self.causes.accounted(),
            packet_bytes: u32::try_from(full).unwrap_or(u32::MAX),
        };
        self.pacing.on_feedback(now, &seen);
        self.causes.clear_pending();
    }
}

/// Converts a time to microseconds, modulo 2^32.
fn micros(time: Duration) -> u32 {
    time.as_micros() as u32
}

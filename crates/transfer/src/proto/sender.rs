//! State of a sender: which bytes are still to be sent, which packets are in flight, and which
//! packets were acknowledged or lost.

mod delivery_rate;
mod feedback;
mod losses;
mod numbers;
mod object;
mod pacing;
mod reorder;
mod sent_packets;
#[cfg(test)]
mod tests;
mod timers;

use std::ops::Range;
use std::time::Duration;

use barograph_loss::LabelledWindow;
use rangemap::RangeSet;

use self::delivery_rate::DeliveryRateSampler;
use self::feedback::Reports;
use self::losses::LossDetector;
use self::numbers::NumberAllocator;
use self::object::Object;
use self::pacing::Pacing;
use self::sent_packets::{PACKETS_MAX, SentPacket, SentPackets, SentState};
use self::timers::Timers;
use crate::proto::loss_attributor::LossAccounting;
use crate::proto::window_recorder::WindowRecorder;
use crate::proto::wire::{NOTE_BYTES, SenderReport};
use crate::proto::{Controller, LossClassification, LossesByEvidence, Rtt, TooLong, nanos};

/// Configuration of a [`Sender`].
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Bytes of the object in a full packet; 0 counts as 1.
    pub payload_bytes: u32,
    /// Bytes that headers, seal, UDP and IP add to a packet.
    pub overhead_bytes: u32,
    /// Seed of the packet numbers that are skipped. An acknowledgement of a skipped number proves a
    /// false report, so the seed must stay secret.
    pub seed: u64,
    /// How the causes of losses are found.
    pub classification: LossClassification,
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
    /// Lost packets by the evidence that settled their cause.
    pub settled: LossesByEvidence,
    /// Packets that were charged to the network first and to the receiving host later. They count
    /// in `lost_host`.
    pub taken_back: u64,
    /// Lost packets that wait for a verdict.
    pub pending: u64,
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
    loss_accounting: LossAccounting,
    /// `None` if no windows are recorded.
    windows: Option<Box<WindowRecorder>>,
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
    /// Maximum number of packets that are kept, with 80 bytes for each packet. All packets are kept
    /// from the oldest packet on that is in flight or was recently declared lost.
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
            loss_accounting: LossAccounting::new(&config.classification),
            windows: None,
            reports: Reports::default(),
            timers: Timers::default(),
            pending: PendingAcks::default(),
            stats: SenderStats::default(),
        })
    }

    /// Sets the bytes of the object in a full packet (0 counts as 1), if the path carries shorter
    /// or longer packets than were assumed.
    ///
    /// Packets in flight do not change. Lost ranges are cut into packets of the new length. The
    /// controller receives the new length with the next feedback.
    pub fn set_payload_bytes(&mut self, payload_bytes: u32) {
        self.pacing.set_payload(payload_bytes);
    }

    /// Records labelled windows from now on. Then the caller must call [`Sender::poll_window`]
    /// after feedback; windows that wait too long are dropped.
    pub fn record_windows(&mut self) {
        self.windows.get_or_insert_default();
    }

    /// Returns the next labelled window: 20 000 packets with losses, labelled by the receiver's
    /// counter. `None` if there is no complete window, or if no windows are recorded. The names of
    /// the run are empty.
    pub fn poll_window(&mut self) -> Option<LabelledWindow> {
        let (is_done, settled) = (self.is_done(), self.losses.settled());
        let windows = self.windows.as_mut()?;
        if is_done {
            windows.finish(settled);
        }
        windows.poll()
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
            lost_host: self.loss_accounting.host(),
            lost_network: self.loss_accounting.network,
            lost_unknown: self.loss_accounting.unknown,
            settled: self.loss_accounting.settled(),
            taken_back: self.loss_accounting.taken_back,
            pending: self.loss_accounting.pending(),
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
        self.loss_accounting.due()
    }

    /// Number of times that the classifier ran.
    pub fn classifier_runs(&self) -> u64 {
        self.loss_accounting.classifications()
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

    /// Returns the next packet if one may be sent at `now`. The caller must repeat the call until
    /// `None` is returned.
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
    /// A caller that reads ahead checks whether it has this range. If the range is missing, the
    /// caller calls [`Sender::hold_back`] instead of [`Sender::poll_packet`]. Probes may carry
    /// other bytes.
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

    /// When [`Sender::handle_timeout`] or [`Sender::poll_packet`] must be called next if no
    /// feedback comes before; `None` once all is acknowledged.
    ///
    /// The returned time may be in the past.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.is_done() {
            return None;
        }
        let sending = if self.timers.is_probe_due() {
            Some(Duration::ZERO)
        } else {
            (self.object.has_next() && self.has_room()).then(|| self.pacing.next())
        };
        let all =
            [sending, self.loss_accounting.due(), self.loss_at(), self.probe_at(), self.no_feedback_at()];
        all.into_iter().flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Duration) {
        if self.is_done() {
            return;
        }
        if self.loss_at().is_some_and(|at| at <= now) {
            self.detect_losses(now, None);
        }
        self.attribute_losses(now, 0);
        // Also remove packets that were declared lost only because of time. Otherwise a full memory
        // would stay full.
        self.forget_settled();
        if self.no_feedback_at().is_some_and(|at| at <= now) {
            self.timers.restart_no_feedback_timer(now);
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
        self.timers.probe_at(&self.rtt).filter(|_| self.sent_packets.in_flight_packets() > 0)
    }

    /// Returns when the no-feedback timer expires; `None` if no packets are in flight.
    fn no_feedback_at(&self) -> Option<Duration> {
        let (packet_bytes, rate) = (self.pacing.full_bytes(), self.pacing.rate_bytes_s());
        (self.sent_packets.in_flight_packets() > 0)
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
            if let Some(windows) = &mut self.windows {
                windows.lose(&loss, context.burst);
            }
            self.loss_accounting.lose(context, loss);
        }
        self.forget_settled();
    }

    /// Maximum number of bytes of the object in the next packet. A packet with a note carries fewer
    /// bytes, so that all full packets have the same length (spec §3).
    fn room(&self, now: Duration) -> u64 {
        let note_bytes = if self.timers.is_note_due(now, &self.rtt) { NOTE_BYTES as u64 } else { 0 };
        let payload = self.pacing.payload();
        payload.checked_sub(note_bytes).filter(|room| *room > 0).unwrap_or(payload)
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
            snapshot: delivery_rate::SendSnapshot::default(),
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
}

/// Converts a time to microseconds, modulo 2^32.
fn micros(time: Duration) -> u32 {
    time.as_micros() as u32
}

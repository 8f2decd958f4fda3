//! What a sender keeps: what is still to be sent, what is under way, and what became of it.

mod book;
mod causes;
mod losses;
mod numbers;
mod object;
mod pacing;
mod path;
mod reorder;
mod reports;
#[cfg(test)]
mod tests;
mod timers;

use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use self::book::{Book, Fate, PACKETS_MAX, Sent};
use self::causes::Causes;
use self::losses::Losses;
use self::numbers::Numbers;
use self::object::Object;
use self::pacing::Pacing;
use self::path::Path;
use self::reports::Reports;
use self::timers::Timers;
use crate::proto::controller::{Delivery, Seen};
use crate::proto::wire::{Feedback, NOTE_BYTES, Note};
use crate::proto::{Controller, Moment, Rtt, TooLong, nanos};

/// What a sender is made of.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Bytes of the object in a full packet; 0 counts as 1.
    pub payload_bytes: u32,
    /// Bytes that headers, seal, UDP and IP add to it on the way.
    pub overhead_bytes: u32,
    /// What the numbers that are left out are drawn from: a receiver that acknowledges one of them lies. Nobody else may know it.
    pub seed: u64,
    /// Whether losses are told apart; without it all are the network's.
    pub has_ear: bool,
}

/// A packet to be sent: the shell reads the range, encodes, seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub number: u64,
    /// When it is sent (µs since the epoch, wrapping).
    pub sent_us: u32,
    /// What it carries of the object.
    pub range: Range<u64>,
    /// What to tell beside.
    pub note: Option<Note>,
}

/// What a receiver did that none of ours does: the transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It acknowledged a packet that was not sent.
    #[error("the receiver acknowledged packet {0}, which was not sent")]
    NeverSent(u64),
    /// It took back an acknowledgement, or its totals fell.
    #[error("the receiver took back what it had said")]
    TakenBack,
}

/// What keeps a sender from sending more at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// The controller's rate; where that is infinite, only how often [`Sender::poll_packet`] is called.
    Rate,
    /// What the receiver's host drains ([`crate::proto::controller::Governor`]).
    Drain,
    /// The controller's window: so much is under way as it allows.
    Window,
    /// The memory for packets under way ([`Sender::PACKETS_MAX`]).
    Memory,
    /// There is nothing to send: all of the object is under way, or there.
    Object,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub sent_packets: u64,
    /// Bytes of the object sent, those sent again among them.
    pub sent_bytes: u64,
    /// Bytes of the object acknowledged, each once.
    pub acked_bytes: u64,
    /// Packets sent to ask for an answer, for none came.
    pub probe_packets: u64,
    /// Packets taken for lost; whose fault it was is known a round trip later.
    pub lost_packets: u64,
    /// Of these, later acknowledged after all.
    pub spurious_packets: u64,
    /// Packets lost by the receiving host.
    pub lost_host: u64,
    /// Packets lost by the network.
    pub lost_network: u64,
    /// Packets lost nobody knows where, which count as the network's.
    pub lost_unknown: u64,
}

/// The sending half, of one object.
///
/// Its memory is bounded whatever the object's size: [`Sender::PACKETS_MAX`] packets under way, and some bytes for each.
#[derive(Debug)]
pub struct Sender {
    object: Object,
    numbers: Numbers,
    book: Book,
    path: Path,
    rtt: Rtt,
    pacing: Pacing,
    losses: Losses,
    causes: Causes,
    reports: Reports,
    timers: Timers,
    untold: Untold,
    /// But for what [`Losses`] and [`Causes`] count.
    stats: Stats,
}

/// What was acknowledged since the controller was told last.
#[derive(Debug, Default)]
struct Untold {
    packets: u64,
    bytes: u64,
    marked_packets: u64,
    /// The round trip measured last.
    round_trip: Option<Duration>,
}

impl Sender {
    /// Packets under way at the most, with those behind them that came already or were lost a moment ago; 80 bytes are kept for each.
    pub const PACKETS_MAX: usize = PACKETS_MAX;

    /// Sends an object of `object_bytes`, of which the receiver has `held` already.
    /// Errors: the object is longer than places in it can say.
    pub fn new(
        config: SenderConfig,
        object_bytes: u64,
        held: &RangeSet<u64>,
        controller: Box<dyn Controller>,
    ) -> Result<Self, TooLong> {
        TooLong::check(object_bytes)?;
        Ok(Self {
            object: Object::new(object_bytes, held),
            numbers: Numbers::new(config.seed),
            book: Book::new(config.overhead_bytes.into()),
            path: Path::default(),
            rtt: Rtt::default(),
            pacing: Pacing::new(config.payload_bytes, config.overhead_bytes, controller),
            losses: Losses::default(),
            causes: Causes::new(config.has_ear),
            reports: Reports::default(),
            timers: Timers::default(),
            untold: Untold::default(),
            stats: Stats::default(),
        })
    }

    /// From now on a full packet carries so many bytes of the object (0 counts as 1): the path takes less than was thought, or more.
    ///
    /// Packets under way stay as they are; what of them is lost is cut anew. The controller hears of it with the next feedback.
    pub fn set_payload_bytes(&mut self, payload_bytes: u32) {
        self.pacing.set_payload(payload_bytes);
    }

    /// Bytes of the object in a full packet.
    pub fn payload_bytes(&self) -> u32 {
        // A payload has 32 bits.
        self.pacing.payload() as u32
    }

    /// Whether all of the object was acknowledged.
    pub fn is_done(&self) -> bool {
        self.object.is_there()
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        Stats {
            lost_packets: self.losses.lost_packets,
            spurious_packets: self.losses.spurious_packets,
            lost_host: self.causes.host(),
            lost_network: self.causes.network,
            lost_unknown: self.causes.unknown,
            ..self.stats
        }
    }

    /// Round trips so far.
    pub fn rtt(&self) -> Rtt {
        self.rtt
    }

    /// Bytes a second at which packets are spread, headers included; infinite where the window alone limits.
    pub fn rate_bytes_s(&self) -> f64 {
        self.pacing.rate_bytes_s()
    }

    /// Bytes under way, headers included.
    pub fn in_flight_bytes(&self) -> u64 {
        self.book.in_flight_bytes()
    }

    /// How long nothing new was heard, since the first packet and until all is done: whether to give up is the caller's to decide.
    pub fn silence(&self, now: Duration) -> Duration {
        if self.is_done() { Duration::ZERO } else { self.timers.silence(now) }
    }

    /// Bytes of the object that the receiver is known to have, those that it had before among them.
    pub fn held_bytes(&self) -> u64 {
        self.object.there_bytes()
    }

    /// What the receiver said that it can take (bytes of the object a second); 0 while it was not the limit.
    pub fn drain_bytes_s(&self) -> u64 {
        self.reports.totals().drain_bytes_s
    }

    /// When the classifier will look at the window, if it has a reason to.
    pub fn looks_at(&self) -> Option<Duration> {
        self.causes.due()
    }

    /// How often the classifier looked at the window.
    pub fn looks(&self) -> u64 {
        self.causes.looks()
    }

    /// Packets and bytes under way, as they are counted and as the packets kept add up to; and how many are kept.
    pub(crate) fn kept(&self) -> ([(u64, u64); 2], usize) {
        let kept = (self.book.first()..self.book.end()).filter_map(|index| self.book.get(index));
        let in_flight = kept.filter(|sent| sent.fate == Fate::InFlight).map(|sent| self.book.bytes(sent));
        let summed = in_flight.fold((0, 0), |(packets, bytes), length| (packets + 1, bytes + length));
        ([(self.book.in_flight_packets(), self.book.in_flight_bytes()), summed], self.book.len())
    }

    /// What keeps it from sending more just now.
    pub fn limit(&self) -> Limit {
        if !self.object.has_some() {
            Limit::Object
        } else if self.book.is_full() {
            Limit::Memory
        } else if !self.has_room() {
            Limit::Window
        } else if self.pacing.is_capped() {
            Limit::Drain
        } else {
            Limit::Rate
        }
    }

    /// The next packet to send at `now`, if there is one and the rate allows it; call until it gives none.
    pub fn poll_packet(&mut self, now: Duration) -> Option<Packet> {
        if self.is_done() {
            return None;
        }
        if self.timers.takes_probe() {
            return self.probe(now);
        }
        if !self.object.has_some() || self.book.is_full() {
            // The path could carry more than there is, or than this memory has room for.
            self.hold_back();
            return None;
        }
        if !self.has_room() || !self.pacing.is_ready(now) {
            return None;
        }
        let range = self.object.take(self.room(now))?;
        Some(self.send(now, range))
    }

    /// What goes next, in one packet or in several, if nothing is lost before: what was lost, or else what was never sent.
    ///
    /// A caller that reads ahead looks here whether it has it at hand, and where not, calls [`Sender::hold_back`] instead of
    /// [`Sender::poll_packet`]. Probes may carry something else.
    pub fn next_range(&self) -> Option<Range<u64>> {
        self.object.next()
    }

    /// The first range at or behind `from` that was never sent and that the receiver does not have; empty where there is none.
    pub fn unsent(&self, from: u64) -> Range<u64> {
        self.object.unsent(from)
    }

    /// What goes next is not at hand: it is not the path that keeps it back.
    pub fn hold_back(&mut self) {
        self.path.limit(self.book.in_flight_bytes());
    }

    /// Takes a feedback, of which `number` is the datagram's: an older one adds what it acknowledges, and nothing else; one that says nothing new
    /// does not count as heard.
    /// Errors: the receiver breaks the protocol; what this said may be taken in by half.
    pub fn handle_feedback(
        &mut self,
        now: Duration,
        number: u64,
        feedback: &Feedback,
    ) -> Result<(), Violation> {
        let is_newer = self.reports.is_newer(number);
        if is_newer && self.reports.are_less(&feedback.totals) {
            return Err(Violation::TakenBack);
        }
        let acked_before = self.untold.packets;
        self.take_runs(now, feedback, is_newer)?;
        let has_acked = acked_before < self.untold.packets;
        // What is replayed, or says nothing new, is no sign of life of the path.
        let is_news = is_newer && (has_acked || self.reports.totals().packets < feedback.totals.packets);
        if is_newer {
            self.untold.marked_packets += self.reports.count(feedback.totals);
            self.take_echo(now, feedback)?;
            let told = self.numbers.index_of(feedback.start)
                ..self.numbers.index_of(feedback.end().min(self.numbers.end()));
            self.losses.survey(told, self.reports.note_number(number), &self.book);
        }
        if is_news {
            self.timers.heard(now, has_acked);
        }
        self.detect_losses(now, is_newer);
        self.listen(now);
        self.losses.end_report();
        if !is_news {
            self.forget();
            return Ok(());
        }
        let (is_round, delivery) = self.path.sample(nanos(now), self.rtt.min);
        self.losses.end_round(now, is_round, &self.rtt);
        self.forget();
        self.tell(now, delivery);
        Ok(())
    }

    /// When [`Sender::handle_timeout`] or [`Sender::poll_packet`] has something to do next, if no feedback comes before; `None` once all is done.
    ///
    /// It may have passed already.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.is_done() {
            return None;
        }
        let sending = if self.timers.is_probe_due() {
            Some(Duration::ZERO)
        } else {
            (self.object.has_some() && self.has_room()).then(|| self.pacing.next())
        };
        let all = [sending, self.causes.due(), self.loss_at(), self.probe_at(), self.silence_at()];
        all.into_iter().flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Duration) {
        if self.is_done() {
            return;
        }
        if self.loss_at().is_some_and(|at| at <= now) {
            self.detect_losses(now, false);
        }
        self.listen(now);
        // What was taken for lost by time alone makes room, too: else a full memory stays full for ever.
        self.forget();
        if self.silence_at().is_some_and(|at| at <= now) {
            self.timers.silence_ended(now);
            self.pacing.on_silence(now);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.timers.ask(now);
        }
    }

    /// Whether window and memory have room for a full packet.
    fn has_room(&self) -> bool {
        self.pacing.has_room(self.book.in_flight_bytes()) && !self.book.is_full()
    }

    /// When the oldest packet that was overtaken counts as lost.
    fn loss_at(&self) -> Option<Duration> {
        self.losses.due(&self.book, &self.rtt)
    }

    /// When an answer is asked for.
    fn probe_at(&self) -> Option<Duration> {
        self.timers.probe_at(&self.rtt).filter(|_| 0 < self.book.in_flight_packets())
    }

    /// When the no-feedback timer ends.
    fn silence_at(&self) -> Option<Duration> {
        let (packet_bytes, rate) = (self.pacing.full_bytes(), self.pacing.rate_bytes_s());
        (0 < self.book.in_flight_packets()).then(|| self.timers.silence_at(&self.rtt, packet_bytes, rate))
    }

    /// A packet that asks for an answer, in nobody's turn: what waits to be sent, or else the oldest that is under way (RFC 9002 §6.2.4).
    fn probe(&mut self, now: Duration) -> Option<Packet> {
        if self.book.len() >= PACKETS_MAX {
            self.give_up_oldest(now);
        }
        let room = self.room(now);
        let range = match self.object.take(room) {
            Some(range) => range,
            None => {
                let mut oldest = self.book.next_open(self.losses.settled()..self.book.end());
                while let Some(index) = oldest
                    && self.book.get(index).is_some_and(|sent| sent.is_copied || sent.fate != Fate::InFlight)
                {
                    oldest = self.book.next_open(index + 1..self.book.end());
                }
                let sent = self.book.get_mut(oldest?)?;
                let range = sent.range();
                // Of a packet that was longer than packets are now, a part asks as well, and the whole stays to be sent again.
                sent.is_copied = range.end - range.start <= room;
                range.start..range.end.min(range.start + room)
            }
        };
        self.stats.probe_packets += 1;
        Some(self.send(now, range))
    }

    fn give_up_oldest(&mut self, now: Duration) {
        self.forget();
        if self.book.len() < PACKETS_MAX {
            return;
        }
        let moment = self.moment(now);
        if let Some(missing) = self.losses.give_up_oldest(&mut self.book, &mut self.object) {
            self.causes.lose(moment, missing);
        }
        self.forget();
    }

    /// Bytes of the object in the next packet: fewer beside a note, so that all full packets are of one length (spec §3).
    fn room(&self, now: Duration) -> u64 {
        let note_bytes = if self.timers.is_note_due(now, &self.rtt) { NOTE_BYTES as u64 } else { 0 };
        let payload = self.pacing.payload();
        payload.checked_sub(note_bytes).filter(|room| 0 < *room).unwrap_or(payload)
    }

    fn send(&mut self, now: Duration, range: Range<u64>) -> Packet {
        let len = range.end - range.start;
        let number = self.numbers.take(self.book.end());
        let mut sent = Sent {
            start: range.start,
            // A payload has 32 bits.
            len: len as u32,
            fate: Fate::InFlight,
            is_copied: false,
            stamp: path::Stamp::default(),
            evidence: None,
        };
        sent.stamp = self.path.send(nanos(now), self.book.in_flight_bytes(), self.book.bytes(&sent));
        self.timers.sent(now, self.book.in_flight_packets() == 0);
        self.book.push(sent);
        self.pacing.spend(len);
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += len;
        Packet { number, sent_us: micros(now), range, note: self.note(now) }
    }

    /// What the receiver is told at least twice a round trip.
    fn note(&mut self, now: Duration) -> Option<Note> {
        self.timers.is_note_due(now, &self.rtt).then(|| {
            self.timers.noted(now);
            let smoothed_us = || u32::try_from(self.rtt.smoothed.as_micros()).unwrap_or(u32::MAX).max(1);
            let rtt_us = self.rtt.latest.map_or(0, |_| smoothed_us());
            Note { floor: self.numbers.number_of(self.book.first()), rtt_us }
        })
    }

    /// Acknowledges what came, and notes what is known of the gaps.
    fn take_runs(&mut self, now: Duration, feedback: &Feedback, is_newer: bool) -> Result<(), Violation> {
        let (mut at, end) = (feedback.start, self.numbers.end());
        let mut place = self.numbers.seek(at);
        for run in &feedback.runs {
            let came_to = at.saturating_add(u64::from(run.received));
            if run.received > 0 {
                // Also where the sum of the runs stands still at the highest number there is.
                if end <= at || end < came_to {
                    return Err(Violation::NeverSent(at.max(end)));
                }
                let from = self.numbers.index_from(&mut place, at);
                if let Some(left_out) = self.numbers.left_out_to(place, came_to) {
                    return Err(Violation::NeverSent(left_out));
                }
                // No number was left out between them.
                self.ack(now, from..from + (came_to - at));
            }
            at = came_to.saturating_add(u64::from(run.missing));
            if is_newer && run.missing > 0 && came_to < end {
                let from = self.numbers.index_from(&mut place, came_to);
                let gap = from..self.numbers.index_from(&mut place, at.min(end));
                if !self.book.are_open(gap.clone()) {
                    return Err(Violation::TakenBack);
                }
                // Of what is settled nobody asks any more; and a gap of a number left out has no packet to note it at.
                if self.losses.settled() < gap.end
                    && !gap.is_empty()
                    && let Some(sent) = self.book.get_mut(gap.start)
                {
                    sent.evidence = Some(run.evidence);
                }
            }
        }
        Ok(())
    }

    /// Acknowledges packets of these indices; those acknowledged before are passed over.
    fn ack(&mut self, now: Duration, indices: Range<u64>) {
        let now_ns = nanos(now);
        let (mut from, mut range) = (indices.start, 0..0);
        while let Some(index) = self.book.next_open(from..indices.end) {
            from = index + 1;
            let Some(sent) = self.book.settle(index, Fate::Acked) else { break };
            let bytes = self.book.bytes(&sent);
            self.path.ack(now_ns, &sent.stamp, bytes);
            self.untold.packets += 1;
            self.untold.bytes += bytes;
            self.losses.ack(index);
            if sent.fate == Fate::Lost {
                self.losses.find(index, self.path.round());
                self.causes.find(index, bytes);
            } else {
                self.causes.ack();
            }
            // Packets in a row carry ranges in a row, which are noted as one.
            if range.end == sent.start {
                range.end = sent.range().end;
            } else {
                self.stats.acked_bytes += self.object.ack(std::mem::replace(&mut range, sent.range()));
            }
        }
        self.stats.acked_bytes += self.object.ack(range);
    }

    /// Measures a round trip by the packet that the receiver echoes, once for each.
    fn take_echo(&mut self, now: Duration, feedback: &Feedback) -> Result<(), Violation> {
        let Some(echo) = feedback.echo else { return Ok(()) };
        if self.numbers.end() <= echo.number || self.numbers.is_left_out(echo.number) {
            return Err(Violation::NeverSent(echo.number));
        }
        // Of a packet that is forgotten, or with a time that it did not have, nothing is learned.
        let sent = self.book.get(self.numbers.index_of(echo.number)).filter(|sent| sent.fate == Fate::Acked);
        let sent_at = sent.map(|sent| Duration::from_nanos(sent.stamp.sent_ns));
        if let Some(sent_at) = sent_at.filter(|at| micros(*at) == echo.sent_us)
            && self.reports.note_echo(echo.number)
        {
            self.rtt.add(now.saturating_sub(sent_at), Duration::from_micros(echo.held_us.into()));
            self.untold.round_trip = self.rtt.latest;
        }
        Ok(())
    }

    fn moment(&self, now: Duration) -> Moment {
        Moment { now, rtt: self.rtt.smoothed, burst: self.pacing.burst_packets() }
    }

    /// Takes packets for lost: with a report that `is_newer` than the others, those that enough packets overtook.
    fn detect_losses(&mut self, now: Duration, is_newer: bool) {
        let moment = self.moment(now);
        let Self { losses, causes, rtt, book, object, .. } = self;
        losses.detect(now, is_newer, rtt, book, object, |missing| causes.lose(moment, missing));
    }

    fn listen(&mut self, now: Duration) {
        self.causes.listen(self.moment(now), self.losses.settled());
    }

    fn forget(&mut self) {
        self.book.forget(self.losses.forgets_below(&self.book));
        self.numbers.forget_below(self.book.first());
    }

    fn tell(&mut self, now: Duration, delivery: Option<Delivery>) {
        let full = self.pacing.full_bytes();
        // The receiver counts bytes of the object; on the way each packet has more.
        let drain = u128::from(self.drain_bytes_s()) * u128::from(full) / u128::from(self.pacing.payload());
        let untold = std::mem::take(&mut self.untold);
        let (losses, host_lost_packets) = self.causes.untold();
        let seen = Seen {
            rtt: self.rtt,
            round_trip: untold.round_trip,
            round: self.path.round(),
            acked_packets: untold.packets,
            acked_bytes: untold.bytes,
            marked_packets: untold.marked_packets,
            in_flight_bytes: self.book.in_flight_bytes(),
            delivery,
            losses,
            host_lost_packets,
            drain_bytes_s: u64::try_from(drain).unwrap_or(u64::MAX),
            settled_packets: self.causes.settled(),
            packet_bytes: u32::try_from(full).unwrap_or(u32::MAX),
        };
        self.pacing.on_feedback(now, &seen);
        self.causes.told();
    }
}

/// Microseconds of a time, wrapping.
fn micros(time: Duration) -> u32 {
    time.as_micros() as u32
}

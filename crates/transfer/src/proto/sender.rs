//! What a sender keeps: what is still to be sent, what is under way, and what became of it.

mod book;
mod feedback;
mod losses;
mod numbers;
mod object;
mod path;
mod reorder;
mod seen;
#[cfg(test)]
mod tests;
mod timers;

use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use self::book::{Book, Fate, PACKETS_MAX, Sent};
use self::feedback::{Heeded, News};
use self::numbers::Numbers;
use self::object::Object;
use self::path::Path;
use self::reorder::Reorder;
use self::timers::Timers;
use crate::proto::pacer::Pacer;
use crate::proto::wire::{Feedback, NOTE_BYTES, Note};
use crate::proto::{Controller, Ear, Rtt, TooLong, nanos};

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
    /// Its number.
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
    /// Packets sent.
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
    payload: u64,
    overhead: u64,
    object: Object,
    numbers: Numbers,
    book: Book,
    path: Path,
    rtt: Rtt,
    pacer: Pacer,
    window_bytes: u64,
    reorder: Reorder,
    /// Packets below this index are settled.
    settled: u64,
    /// What was settled when the last round (or two round trips) ended, and the one before: below the second, lost packets are forgotten; others may still come.
    round_ends: [u64; 2],
    rounded: Duration,
    has_lost_in_round: bool,
    /// The highest index acknowledged, plus one.
    acked_to: u64,
    heeded: Heeded,
    timers: Timers,
    noted: Option<Duration>,
    ear: Option<Box<Ear>>,
    news: News,
    controller: Box<dyn Controller>,
    stats: Stats,
}

impl Sender {
    /// Packets under way at the most, with those behind them that came already or were lost a moment ago; 80 bytes are kept for each.
    pub const PACKETS_MAX: usize = PACKETS_MAX;

    /// Sends an object of `object_bytes`, of which the receiver has `held` already.
    ///
    /// # Errors
    /// The object is longer than places in it can say.
    pub fn new(
        config: SenderConfig,
        object_bytes: u64,
        held: &RangeSet<u64>,
        controller: Box<dyn Controller>,
    ) -> Result<Self, TooLong> {
        TooLong::check(object_bytes)?;
        let (payload, overhead) = (u64::from(config.payload_bytes.max(1)), u64::from(config.overhead_bytes));
        Ok(Self {
            payload,
            overhead,
            object: Object::new(object_bytes, held),
            numbers: Numbers::new(config.seed),
            book: Book::new(),
            path: Path::default(),
            rtt: Rtt::default(),
            pacer: Pacer::new(payload + overhead, controller.rate_bytes_s()),
            window_bytes: controller.window_bytes(),
            reorder: Reorder::default(),
            settled: 0,
            round_ends: [0; 2],
            rounded: Duration::ZERO,
            has_lost_in_round: false,
            acked_to: 0,
            heeded: Heeded::default(),
            timers: Timers::default(),
            noted: None,
            ear: config.has_ear.then(Box::default),
            news: News::default(),
            controller,
            stats: Stats::default(),
        })
    }

    /// From now on a full packet carries so many bytes of the object (0 counts as 1): the path takes less than was thought, or more.
    ///
    /// Packets under way stay as they are; what of them is lost is cut anew. The controller hears of it with the next feedback.
    pub fn set_payload_bytes(&mut self, payload_bytes: u32) {
        self.payload = u64::from(payload_bytes.max(1));
        self.pacer.set_packet(self.full_bytes());
    }

    /// Bytes of the object in a full packet.
    pub fn payload_bytes(&self) -> u32 {
        // A payload has 32 bits.
        self.payload as u32
    }

    /// What keeps it from sending more just now.
    pub fn limit(&self) -> Limit {
        if !self.object.has_some() {
            Limit::Object
        } else if self.is_full() {
            Limit::Memory
        } else if !self.has_room() {
            Limit::Window
        } else if self.controller.is_capped() {
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
        if !self.object.has_some() {
            // The path could carry more than there is.
            self.path.limit(self.book.in_flight_bytes());
            return None;
        }
        if self.is_full() {
            // Nor is it the path that holds back what this memory has no room for.
            self.path.limit(self.book.in_flight_bytes());
            return None;
        }
        if !self.has_room() || !self.pacer.is_ready(now) {
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
    ///
    /// # Errors
    /// The receiver breaks the protocol; what this said may be taken in by half.
    pub fn handle_feedback(
        &mut self,
        now: Duration,
        number: u64,
        feedback: &Feedback,
    ) -> Result<(), Violation> {
        self.heed(now, number, feedback)
    }

    /// When [`Sender::handle_timeout`] or [`Sender::poll_packet`] has something to do next, if no feedback comes before; `None` once all is done.
    ///
    /// It may have passed already.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.is_done() {
            return None;
        }
        let may_send = self.timers.is_probe_due() || self.object.has_some() && self.has_room();
        let sending =
            may_send.then(|| if self.timers.is_probe_due() { Duration::ZERO } else { self.pacer.next() });
        let listening = self.ear.as_ref().and_then(|ear| ear.due());
        [sending, listening, self.loss_at(), self.probe_at(), self.silence_at()].into_iter().flatten().min()
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Duration) {
        if self.is_done() {
            return;
        }
        if self.loss_at().is_some_and(|at| at <= now) {
            self.detect_losses(now, 0);
        }
        self.listen(now);
        // What was taken for lost by time alone makes room, too: else a full memory stays full for ever.
        self.forget();
        self.time_out(now);
    }

    fn full_bytes(&self) -> u64 {
        self.payload + self.overhead
    }

    /// Whether window and memory have room for a full packet.
    fn has_room(&self) -> bool {
        let in_flight = self.book.in_flight_bytes();
        let fits = in_flight.saturating_add(self.full_bytes()) <= self.window_bytes;
        // A window of less than a packet would end the transfer.
        (fits || in_flight == 0) && !self.is_full()
    }

    /// Whether all memory is taken but what is reserved for probes.
    fn is_full(&self) -> bool {
        PACKETS_MAX - PROBES_RESERVED <= self.book.len()
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
                let mut oldest = self.book.next_open(self.settled..self.book.end());
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

    /// Bytes of the object in the next packet: fewer beside a note, so that all full packets are of one length (spec §3).
    fn room(&self, now: Duration) -> u64 {
        let note_bytes = if self.is_note_due(now) { NOTE_BYTES as u64 } else { 0 };
        self.payload.checked_sub(note_bytes).filter(|room| 0 < *room).unwrap_or(self.payload)
    }

    fn send(&mut self, now: Duration, range: Range<u64>) -> Packet {
        let len = range.end - range.start;
        let bytes = len + self.overhead;
        let number = self.numbers.take(self.book.end());
        let stamp = self.path.send(nanos(now), self.book.in_flight_bytes(), bytes);
        self.timers.sent(now, self.book.in_flight_packets() == 0);
        let sent = Sent {
            start: range.start,
            // A payload has 32 bits.
            len: len as u32,
            fate: Fate::InFlight,
            is_copied: false,
            stamp,
            evidence: None,
        };
        self.book.push(sent, bytes);
        self.pacer.spend(bytes);
        self.stats.sent_packets += 1;
        self.stats.sent_bytes += len;
        Packet { number, sent_us: micros(now), range, note: self.note(now) }
    }

    fn is_note_due(&self, now: Duration) -> bool {
        self.noted.is_none_or(|noted| noted + self.rtt.smoothed / 2 <= now)
    }

    /// What the receiver is told at least twice a round trip.
    fn note(&mut self, now: Duration) -> Option<Note> {
        self.is_note_due(now).then(|| {
            self.noted = Some(now);
            let rtt_us = self
                .rtt
                .latest
                .map_or(0, |_| u32::try_from(self.rtt.smoothed.as_micros()).unwrap_or(u32::MAX).max(1));
            Note { floor: self.numbers.number_of(self.book.first()), rtt_us }
        })
    }
}

/// Microseconds of a time, wrapping.
fn micros(time: Duration) -> u32 {
    time.as_micros() as u32
}

/// Room for packets that ask for an answer when the book is full: at most one in 4 s is sent then, which is an hour of them. After it the
/// oldest packet makes room for each.
const PROBES_RESERVED: usize = 1024;

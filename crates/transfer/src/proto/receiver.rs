//! What a receiver keeps: which parts of the object it has, which packets came, and what is known of the gaps.

mod delay;
mod drain;
mod held;
mod numbers;
mod schedule;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use crate::proto::TooLong;
use crate::proto::wire::{Echo, Evidence, Feedback, HEADER_BYTES, Note, Totals};
use delay::LeastDelay;
use drain::Drain;
use held::Held;
use numbers::{Numbers, Place};
use schedule::Schedule;

/// What a receiver is made of.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Bytes that a feedback datagram may have, header and seal apart; [`Feedback::BYTES_MIN`] at least, or it is taken for that.
    pub feedback_bytes_max: usize,
}

/// A data packet, as it came from the socket.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub number: u64,
    /// When it was sent, by the sender's clock (µs, wrapping).
    pub sent_us: u32,
    /// What it carries of the object.
    pub range: Range<u64>,
    /// What the sender told beside.
    pub note: Option<Note>,
    /// When it came, by the kernel's timestamp where there is one, as a time since the epoch of all other calls: not later than the next
    /// `now`, and never before the last packet's.
    pub at: Duration,
    /// Whether it was marked as congested (RFC 3168); `None` where that is not seen.
    pub is_marked: Option<bool>,
    /// The kernel's count of what the socket dropped so far (SO_RXQ_OVFL, wrapping); `None` where there is none. Linux tells none while it
    /// is 0: where the option is set, that is `Some(0)`, or nothing would be known of the first gap.
    pub drops: Option<u32>,
}

/// What of a packet is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fresh {
    All,
    /// These ranges of the object: the rest is there already.
    Parts(Vec<Range<u64>>),
    /// Nothing: its bytes came before.
    Nothing,
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its number came before, or is below the floor: a copy, or a replay.
    #[error("packet {0} came before")]
    Repeated(u64),
    /// It carries bytes that the object does not have.
    #[error("bytes to {end} of an object of {object_bytes}")]
    Beyond {
        /// Where its bytes end.
        end: u64,
        /// Bytes of the object.
        object_bytes: u64,
    },
    /// Its number is further ahead than packets can be under way, or there are more gaps than are kept.
    #[error("packet {0} is too far ahead")]
    TooFar(u64),
    /// Its bytes touch nothing that is there, and so many separate ranges of the object are kept already.
    #[error("more than {0} separate ranges of the object")]
    Scattered(usize),
}

/// The receiving half, of one object.
///
/// Its memory is bounded, whatever comes: 2^16 gaps between packets and 2^17 ranges of the object, 12 MiB in all.
///
/// ```
/// use std::time::Duration;
///
/// use barograph_transfer::testkit::{Arrival, Fresh, Receiver, ReceiverConfig};
/// use rangemap::RangeSet;
///
/// let config = ReceiverConfig { feedback_bytes_max: 1200 };
/// let mut receiver = Receiver::new(config, 3000, RangeSet::new())?;
/// let at = Duration::from_millis(40);
/// let first =
///     Arrival { number: 0, sent_us: 7, range: 0..1000, note: None, at, is_marked: None, drops: Some(0) };
/// let third = Arrival { number: 2, range: 2000..3000, drops: Some(1), ..first.clone() };
/// assert_eq!(receiver.handle_data(&first), Ok(Fresh::All));
/// assert_eq!(receiver.handle_data(&third), Ok(Fresh::All));
///
/// let feedback = receiver.poll_feedback(at).expect("the first is due at once");
/// let [before, behind] = feedback.runs[..] else { panic!("one gap") };
/// assert_eq!((before.received, before.missing, behind.received), (1, 1, 1));
/// assert_eq!(before.evidence.host_drops, Some(true));
/// # Ok::<(), barograph_transfer::testkit::TooLong>(())
/// ```
#[derive(Debug)]
pub struct Receiver {
    feedback_bytes_max: usize,
    object_bytes: u64,
    held: Held,
    numbers: Numbers,
    /// The packet of the highest number.
    highest: Option<Seen>,
    /// The packet that came last.
    newest: Option<Echo>,
    newest_at: Duration,
    least_delay: LeastDelay,
    drain: Drain,
    totals: Totals,
    schedule: Schedule,
    round: Option<Round>,
}

/// What a packet tells of the gap before or behind it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    drops: Option<u32>,
    is_marked: Option<bool>,
    /// As [`LeastDelay::learn`] has it.
    delay_us: u32,
}

/// Feedback that is being told, in several datagrams.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Where the next begins.
    at: u64,
    /// What came when it began ends here.
    end: u64,
}

impl Receiver {
    /// Waits for an object of `object_bytes`, of which it has `held` already.
    /// Errors: the object is longer than places in it can say.
    pub fn new(config: ReceiverConfig, object_bytes: u64, held: RangeSet<u64>) -> Result<Self, TooLong> {
        TooLong::check(object_bytes)?;
        Ok(Self {
            feedback_bytes_max: config.feedback_bytes_max.max(Feedback::BYTES_MIN),
            object_bytes,
            held: Held::new(object_bytes, held),
            numbers: Numbers::default(),
            highest: None,
            newest: None,
            newest_at: Duration::ZERO,
            least_delay: LeastDelay::default(),
            drain: Drain::default(),
            totals: Totals::default(),
            schedule: Schedule::default(),
            round: None,
        })
    }

    /// Takes a packet: what of it is new, to be written at its place.
    /// Errors: a packet that is to be forgotten; the transfer goes on.
    pub fn handle_data(&mut self, arrival: &Arrival) -> Result<Fresh, Refusal> {
        let Arrival { number, sent_us, ref range, note, at, is_marked, drops } = *arrival;
        let bytes = range.end.saturating_sub(range.start);
        if self.object_bytes < range.end || self.object_bytes < range.start {
            let end = range.end.max(range.start);
            return Err(Refusal::Beyond { end, object_bytes: self.object_bytes });
        }
        let mut place = match self.numbers.place(number) {
            // A copy was read, too: it took the receiver's time.
            Err(repeated @ Refusal::Repeated(_)) => {
                self.count(at, bytes, drops);
                return Err(repeated);
            }
            place => place?,
        };
        self.count(at, bytes, drops);
        if let Some(Note { floor, rtt_us }) = note {
            // Whatever it claims, this packet is not settled yet.
            self.numbers.raise_floor(floor.min(number));
            place = self.numbers.place(number)?;
            if 0 < rtt_us {
                self.schedule.set_rtt(Duration::from_micros(u64::from(rtt_us)));
            }
        }
        let was_complete = self.held.is_complete();
        let fresh = self.take(number, place, arrival);
        let opens_gap = fresh.is_ok() && place == Place::Ahead;
        // Also of one that was refused for want of room: its sender has to learn what came, to raise the floor.
        self.schedule.on_packet(at, opens_gap);
        let fresh = fresh?;
        if !was_complete && self.held.is_complete() {
            self.schedule.on_complete();
        }
        self.totals.marked += u64::from(is_marked == Some(true));
        (self.newest, self.newest_at) = (Some(Echo { number, sent_us, held_us: 0 }), at);
        Ok(fresh)
    }

    /// The way back takes no longer datagrams than with so many bytes, header and seal apart; fewer than [`Feedback::BYTES_MIN`] are taken for
    /// that.
    pub fn limit_feedback(&mut self, bytes_max: usize) {
        self.feedback_bytes_max = self.feedback_bytes_max.min(bytes_max.max(Feedback::BYTES_MIN));
    }

    /// The next feedback, if one is due at `now`; call until it gives none.
    ///
    /// Each fits a datagram of the configured size. A round of them tells of all packets from the floor on, or, where more bytes would be sent
    /// than came, of the first: of one run at least.
    #[must_use]
    pub fn poll_feedback(&mut self, now: Duration) -> Option<Feedback> {
        let (round, bytes_max) = match self.round {
            Some(round) => (round, self.feedback_bytes_max),
            None if self.schedule.due()? <= now => {
                self.schedule.begin(now);
                let earned = usize::try_from(self.schedule.credit_bytes).unwrap_or(usize::MAX);
                let earned = earned.saturating_sub(HEADER_BYTES);
                let bytes_max = self.feedback_bytes_max.min(earned.max(Feedback::BYTES_MIN));
                (Round { at: self.numbers.floor, end: self.numbers.next }, bytes_max)
            }
            None => return None,
        };
        let feedback = self.feedback(now, round.at.max(self.numbers.floor), bytes_max);
        self.schedule.on_datagram(HEADER_BYTES + feedback.bytes());
        let at = feedback.end();
        let next = (HEADER_BYTES + self.feedback_bytes_max) as u64;
        let goes_on = at < round.end && next <= self.schedule.credit_bytes;
        self.round = goes_on.then_some(Round { at, ..round });
        Some(feedback)
    }

    /// When feedback is due next, if nothing comes before.
    ///
    /// Amid a round it is in the past. May change after [`Receiver::handle_data`] and [`Receiver::poll_feedback`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.round.is_some() { Some(Duration::ZERO) } else { self.schedule.due() }
    }

    /// What of the object is there.
    pub fn held(&mut self) -> &RangeSet<u64> {
        self.held.ranges()
    }

    /// Whether all of it is.
    pub fn is_complete(&self) -> bool {
        self.held.is_complete()
    }

    /// Gaps between numbers and ranges of the object that are kept, and the most of both.
    pub(crate) fn kept(&self) -> [(usize, usize); 2] {
        [(self.numbers.gaps(), numbers::GAPS_MAX), (self.held.len(), held::RANGES_MAX)]
    }

    /// A packet was read.
    fn count(&mut self, at: Duration, bytes: u64, drops: Option<u32>) {
        self.totals.packets += 1;
        self.schedule.earn(bytes);
        self.totals.bytes = self.totals.bytes.saturating_add(bytes);
        self.drain.on_read(at, bytes, drops);
    }

    /// Notes a packet and its bytes, or neither.
    fn take(&mut self, number: u64, place: Place, arrival: &Arrival) -> Result<Fresh, Refusal> {
        if !self.numbers.has_room(number, place) {
            return Err(Refusal::TooFar(number));
        }
        let fresh = self.held.take(&arrival.range).ok_or(Refusal::Scattered(held::RANGES_MAX))?;
        let delay_us = self.least_delay.learn(arrival.sent_us, arrival.at);
        let seen = Seen { drops: arrival.drops, is_marked: arrival.is_marked, delay_us };
        let evidence = || between(self.highest.as_ref(), &seen, &self.least_delay);
        self.numbers.take(number, place, evidence);
        if !matches!(place, Place::Late { .. }) {
            self.highest = Some(seen);
        }
        Ok(fresh)
    }

    /// A datagram of feedback from number `at` on, of so many bytes at most but with one run.
    fn feedback(&self, now: Duration, at: u64, bytes_max: usize) -> Feedback {
        let held_us = now.saturating_sub(self.newest_at).as_micros();
        let held_us = u32::try_from(held_us).unwrap_or(u32::MAX);
        let mut feedback = Feedback {
            start: at,
            runs: Vec::new(),
            echo: self.newest.map(|newest| Echo { held_us, ..newest }),
            totals: Totals { drain_bytes_s: self.drain.bytes_s(), ..self.totals },
        };
        let room = bytes_max.saturating_sub(feedback.head_len());
        feedback.runs = self.numbers.runs(at, room);
        feedback
    }
}

/// What is known of the gap between the highest packet before it and the one that opens it.
fn between(before: Option<&Seen>, after: &Seen, least_delay: &LeastDelay) -> Evidence {
    let Some(before) = before else { return Evidence::default() };
    Evidence {
        host_drops: before.drops.zip(after.drops).map(|(before, after)| drain::rose(before, after)),
        is_marked: match (before.is_marked, after.is_marked) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        },
        delay_us: least_delay.above(before.delay_us),
    }
}

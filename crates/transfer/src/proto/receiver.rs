//! State of a receiver: ranges of the object that it holds, packets that arrived, and what is known
//! about the gaps.

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
use crate::proto::wire::{Feedback, GapReport, HEADER_BYTES, SenderReport, TimestampEcho, Totals};
use delay::LeastDelay;
use drain::Drain;
use held::ReceivedRanges;
use numbers::{NumberPosition, ReceivedNumbers};
use schedule::Schedule;

/// Configuration of a [`Receiver`].
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Maximum size of a feedback datagram in bytes, without header and seal. A size below
    /// [`Feedback::BYTES_MIN`] counts as [`Feedback::BYTES_MIN`].
    pub feedback_bytes_max: usize,
}

/// A data packet that arrived, with what the socket reports about it.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub number: u64,
    /// Sending time of the packet, by the sender's clock (µs, wrapping).
    pub sent_us: u32,
    /// Range of the object that the packet carries.
    pub range: Range<u64>,
    /// The sender's note, if the packet has one.
    pub note: Option<SenderReport>,
    /// Arrival time since the epoch that all calls use. The time is the kernel's timestamp if there
    /// is one. The time must not be later than the next `now`, and not earlier than the arrival
    /// time of the previous packet.
    pub at: Duration,
    /// Whether the packet has a congestion mark (RFC 3168); `None` if marks are not visible.
    pub is_marked: Option<bool>,
    /// The kernel's count of packets that the socket dropped so far (SO_RXQ_OVFL, wrapping); `None`
    /// if there is none. Linux reports no count while it is 0. If the option is set and Linux
    /// reports no count, pass `Some(0)`; otherwise nothing is known about the first gap.
    pub drops: Option<u32>,
}

/// Which bytes of a packet are new and must be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewBytes {
    All,
    /// Only these ranges of the object; the receiver already has the other bytes of the packet.
    Parts(Vec<Range<u64>>),
    /// Nothing: the receiver already has all bytes of the packet.
    Nothing,
}

/// Reason why the receiver refused a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The packet's number was already received or is below the floor, so the packet is a copy or a
    /// replay.
    #[error("packet {0} is a duplicate")]
    Repeated(u64),
    /// The packet carries bytes beyond the end of the object.
    #[error("the packet has bytes up to {end}, but the object has only {object_bytes}")]
    Beyond {
        /// Offset in the object at which the packet's bytes end.
        end: u64,
        /// Length of the object in bytes.
        object_bytes: u64,
    },
    /// The packet's number is further ahead than packets can be in flight, or there are too many
    /// gaps.
    #[error("packet number {0} is too far above the numbers received so far")]
    TooFar(u64),
    /// The packet's bytes touch no range that the receiver holds, and there are too many separate
    /// ranges.
    #[error("the object would have more than {0} separate received ranges")]
    Scattered(usize),
}

/// The receiving half of the protocol, for one object.
///
/// Its memory is bounded: at most 2^16 gaps between packets and 2^17 ranges of the object, which
/// take 12 MiB together.
///
/// ```
/// use std::time::Duration;
///
/// use barograph_transfer::testkit::{Arrival, NewBytes, Receiver, ReceiverConfig};
/// use rangemap::RangeSet;
///
/// let config = ReceiverConfig { feedback_bytes_max: 1200 };
/// let mut receiver = Receiver::new(config, 3000, RangeSet::new())?;
/// let at = Duration::from_millis(40);
/// let first = Arrival {
///     number: 0, sent_us: 7, range: 0..1000, note: None, at, is_marked: None, drops: Some(0)
/// };
/// let third = Arrival { number: 2, range: 2000..3000, drops: Some(1), ..first.clone() };
/// assert_eq!(receiver.handle_data(&first), Ok(NewBytes::All));
/// assert_eq!(receiver.handle_data(&third), Ok(NewBytes::All));
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
    held: ReceivedRanges,
    numbers: ReceivedNumbers,
    /// Evidence from the packet with the highest number so far.
    highest: Option<GapContext>,
    /// The packet that arrived last.
    newest: Option<TimestampEcho>,
    newest_at: Duration,
    least_delay: LeastDelay,
    reports_delays: bool,
    drain: Drain,
    totals: Totals,
    schedule: Schedule,
    round: Option<FeedbackRound>,
}

/// Evidence that a packet provides about the gap before or after it.
#[derive(Clone, Copy, Debug)]
struct GapContext {
    drops: Option<u32>,
    is_marked: Option<bool>,
    /// One-way delay of the packet with a constant offset (µs), as [`LeastDelay::learn`] returned
    /// it.
    delay_us: u32,
}

/// A round of feedback that is being sent in several datagrams.
#[derive(Clone, Copy, Debug)]
struct FeedbackRound {
    /// First packet number of the next datagram.
    at: u64,
    /// Highest packet number when the round began, plus one.
    end: u64,
}

impl Receiver {
    /// Creates a receiver of an object of `object_bytes`, of which the receiver already holds the
    /// ranges `held`. Errors: the object is too long for offsets ([`TooLong`]).
    pub fn new(config: ReceiverConfig, object_bytes: u64, held: RangeSet<u64>) -> Result<Self, TooLong> {
        TooLong::check(object_bytes)?;
        Ok(Self {
            feedback_bytes_max: config.feedback_bytes_max.max(Feedback::BYTES_MIN),
            object_bytes,
            held: ReceivedRanges::new(object_bytes, held),
            numbers: ReceivedNumbers::default(),
            highest: None,
            newest: None,
            newest_at: Duration::ZERO,
            least_delay: LeastDelay::default(),
            reports_delays: true,
            drain: Drain::default(),
            totals: Totals::default(),
            schedule: Schedule::default(),
            round: None,
        })
    }

    /// Handles a packet, and returns which of its bytes are new and must be written.
    /// Errors: the packet is refused and must be dropped; the transfer continues.
    pub fn handle_data(&mut self, arrival: &Arrival) -> Result<NewBytes, Refusal> {
        let Arrival { number, sent_us, ref range, note, at, is_marked, drops } = *arrival;
        let bytes = range.end.saturating_sub(range.start);
        if self.object_bytes < range.end || self.object_bytes < range.start {
            let end = range.end.max(range.start);
            return Err(Refusal::Beyond { end, object_bytes: self.object_bytes });
        }
        let mut position = match self.numbers.position(number) {
            // Count copies too, because reading a copy takes time.
            Err(repeated @ Refusal::Repeated(_)) => {
                self.count(at, bytes, drops);
                return Err(repeated);
            }
            position => position?,
        };
        self.count(at, bytes, drops);
        if let Some(SenderReport { floor, rtt_us }) = note {
            // A note cannot raise the floor above the number of its own packet, even if the note
            // contains a higher floor.
            self.numbers.raise_floor(floor.min(number));
            position = self.numbers.position(number)?;
            if rtt_us > 0 {
                self.schedule.set_rtt(Duration::from_micros(u64::from(rtt_us)));
            }
        }
        let was_complete = self.held.is_complete();
        let fresh = self.record(number, position, arrival);
        let opens_gap = fresh.is_ok() && position == NumberPosition::Ahead;
        // Also report packets that were refused for lack of memory: the sender needs the report to
        // raise the floor.
        self.schedule.on_packet(at, opens_gap);
        let fresh = fresh?;
        if !was_complete && self.held.is_complete() {
            self.schedule.on_complete();
        }
        self.totals.marked += u64::from(is_marked == Some(true));
        (self.newest, self.newest_at) = (Some(TimestampEcho { number, sent_us, held_us: 0 }), at);
        Ok(fresh)
    }

    /// Reports no delays from now on, because arrival times are not the kernel's. Packets wait in
    /// the socket while the host is busy. If that time counted as delay on the path, each loss of
    /// the host would seem to have a queue before it.
    pub fn omit_delays(&mut self) {
        self.reports_delays = false;
    }

    /// Lowers the limit of feedback datagrams, without header and seal, because the path to the
    /// sender does not carry longer datagrams. A limit below [`Feedback::BYTES_MIN`] counts as
    /// [`Feedback::BYTES_MIN`].
    pub fn limit_feedback(&mut self, bytes_max: usize) {
        self.feedback_bytes_max = self.feedback_bytes_max.min(bytes_max.max(Feedback::BYTES_MIN));
    }

    /// Returns the next feedback if one is due at `now`. The caller must repeat the call until
    /// `None` is returned.
    ///
    /// Each feedback fits a datagram of the configured size. A round reports all packets from the
    /// floor on. If feedback would take more bytes than arrived, the round reports only the first
    /// packets, but at least one run.
    #[must_use]
    pub fn poll_feedback(&mut self, now: Duration) -> Option<Feedback> {
        let (round, bytes_max) = match self.round {
            Some(round) => (round, self.feedback_bytes_max),
            None if self.schedule.due()? <= now => {
                self.schedule.begin(now);
                let earned = usize::try_from(self.schedule.credit_bytes).unwrap_or(usize::MAX);
                let earned = earned.saturating_sub(HEADER_BYTES);
                let bytes_max = self.feedback_bytes_max.min(earned.max(Feedback::BYTES_MIN));
                (FeedbackRound { at: self.numbers.floor, end: self.numbers.next }, bytes_max)
            }
            None => return None,
        };
        let feedback = self.feedback(now, round.at.max(self.numbers.floor), bytes_max);
        self.schedule.on_datagram(HEADER_BYTES + feedback.bytes());
        let at = feedback.end();
        let next = (HEADER_BYTES + self.feedback_bytes_max) as u64;
        let goes_on = at < round.end && next <= self.schedule.credit_bytes;
        self.round = goes_on.then_some(FeedbackRound { at, ..round });
        Some(feedback)
    }

    /// When feedback is due next if no packet arrives before.
    ///
    /// Between two datagrams of a round of feedback, the returned time is 0, because the next
    /// datagram is due at once. The returned time may change after [`Receiver::handle_data`] and
    /// [`Receiver::poll_feedback`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.round.is_some() { Some(Duration::ZERO) } else { self.schedule.due() }
    }

    /// Ranges of the object that the receiver holds.
    pub fn held(&mut self) -> &RangeSet<u64> {
        self.held.ranges()
    }

    /// Whether the receiver holds all bytes of the object.
    pub fn is_complete(&self) -> bool {
        self.held.is_complete()
    }

    /// The number of gaps that are kept, and the number of ranges of the object that are kept, each
    /// with its maximum.
    pub(crate) fn kept(&self) -> [(usize, usize); 2] {
        [(self.numbers.gaps(), numbers::GAPS_MAX), (self.held.len(), held::RANGES_MAX)]
    }

    fn count(&mut self, at: Duration, bytes: u64, drops: Option<u32>) {
        self.totals.packets += 1;
        self.schedule.earn(bytes);
        self.totals.bytes = self.totals.bytes.saturating_add(bytes);
        self.drain.on_read(at, bytes, drops);
    }

    /// Records the number and the bytes of a packet. In case of an error, records neither.
    fn record(
        &mut self,
        number: u64,
        position: NumberPosition,
        arrival: &Arrival,
    ) -> Result<NewBytes, Refusal> {
        if !self.numbers.has_room(number, position) {
            return Err(Refusal::TooFar(number));
        }
        let fresh = self.held.take(&arrival.range).ok_or(Refusal::Scattered(held::RANGES_MAX))?;
        let delay_us = self.least_delay.learn(arrival.sent_us, arrival.at);
        let seen = GapContext { drops: arrival.drops, is_marked: arrival.is_marked, delay_us };
        let least_delay = self.reports_delays.then_some(&self.least_delay);
        let evidence = || between(self.highest.as_ref(), &seen, least_delay);
        self.numbers.take(number, position, evidence);
        if !matches!(position, NumberPosition::Late { .. }) {
            self.highest = Some(seen);
        }
        Ok(fresh)
    }

    /// Returns a feedback about the packets from number `at` on. The feedback has at most
    /// `bytes_max` bytes, but at least one run.
    fn feedback(&self, now: Duration, at: u64, bytes_max: usize) -> Feedback {
        let held_us = now.saturating_sub(self.newest_at).as_micros();
        let held_us = u32::try_from(held_us).unwrap_or(u32::MAX);
        let mut feedback = Feedback {
            start: at,
            runs: Vec::new(),
            echo: self.newest.map(|newest| TimestampEcho { held_us, ..newest }),
            totals: Totals { drain_bytes_s: self.drain.bytes_s(), ..self.totals },
        };
        let room = bytes_max.saturating_sub(feedback.head_len());
        feedback.runs = self.numbers.runs(at, room);
        feedback
    }
}

/// Returns the evidence of a gap. `before` is the highest packet before the gap, and `after` is the
/// packet that opened the gap. Without `least_delay`, no delay is reported.
fn between(before: Option<&GapContext>, after: &GapContext, least_delay: Option<&LeastDelay>) -> GapReport {
    let Some(before) = before else { return GapReport::default() };
    GapReport {
        host_drops: before.drops.zip(after.drops).map(|(before, after)| drain::rose(before, after)),
        is_marked: match (before.is_marked, after.is_marked) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        },
        delay_us: least_delay.and_then(|least| least.above(before.delay_us)),
    }
}

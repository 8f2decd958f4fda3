//! What others see of a sender.

use std::time::Duration;

use super::book::Fate;
use super::{Sender, Stats};
use crate::proto::Rtt;

impl Sender {
    /// Whether all of the object was acknowledged.
    pub fn is_done(&self) -> bool {
        self.object.is_there()
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Round trips so far.
    pub fn rtt(&self) -> Rtt {
        self.rtt
    }

    /// Bytes a second at which packets are spread, headers included; infinite where the window alone limits.
    pub fn rate_bytes_s(&self) -> f64 {
        self.pacer.rate()
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
        self.heeded.drain_bytes_s()
    }

    /// When the classifier will look at the window, if it has a reason to.
    pub fn looks_at(&self) -> Option<Duration> {
        self.ear.as_ref().and_then(|ear| ear.due())
    }

    /// How often the classifier looked at the window.
    pub fn looks(&self) -> u64 {
        self.ear.as_ref().map_or(0, |ear| ear.looks())
    }

    /// Packets and bytes under way, as they are counted and as the packets kept add up to; and how many are kept.
    pub(crate) fn kept(&self) -> ([(u64, u64); 2], usize) {
        let kept = (self.book.first()..self.book.end()).filter_map(|index| self.book.get(index));
        let in_flight =
            kept.filter(|sent| sent.fate == Fate::InFlight).map(|sent| u64::from(sent.len) + self.overhead);
        let summed = in_flight.fold((0, 0), |(packets, bytes), length| (packets + 1, bytes + length));
        ([(self.book.in_flight_packets(), self.book.in_flight_bytes()), summed], self.book.len())
    }
}

//! When the receiver did not run, and whether packets waited for anything else.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Pauses of the receiver, seen in the times of acknowledgements.
///
/// A receiver that does not run acknowledges nothing, and then all that waited in its socket at
/// once. A queue on the path delays packets, but acknowledgements keep coming.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses {
    /// When the last acknowledgement arrived.
    acked: Option<Instant>,
    /// Times without acknowledgements, oldest first.
    recent: VecDeque<[Instant; 2]>,
    /// When the newest packet was sent that waited for nothing but a pause.
    newest_unqueued: Option<Instant>,
}

impl Pauses {
    /// Adds an acknowledgement of a packet. The oldest packet of those acknowledged together comes
    /// first. `min` is the least round-trip time of the path.
    pub(crate) fn on_ack(&mut self, now: Instant, sent: Instant, min: Duration) {
        let expected = sent + min;
        let waited = now.saturating_duration_since(expected);
        let silent = self.acked.map_or(Duration::ZERO, |acked| now.saturating_duration_since(acked));
        self.acked = Some(now);
        let pause = waited.min(silent);
        if pause >= PAUSE_MIN {
            if self.recent.len() == RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back([now - pause, now]);
        }
        // A packet that arrived in the pause waited for its end.
        let ready = match self.recent.back() {
            Some([from, to]) if expected >= *from => expected.max(*to),
            _ => expected,
        };
        if now.saturating_duration_since(ready) <= DELAY_MAX {
            self.newest_unqueued = self.newest_unqueued.max(Some(sent));
        }
    }

    /// Whether a packet that was sent at this time arrived in a pause.
    pub(crate) fn contain(&self, sent: Instant, min: Duration) -> bool {
        let expected = sent + min;
        self.recent.iter().any(|[from, to]| (*from..=*to + DELAY_MAX).contains(&expected))
    }

    pub(crate) fn newest_unqueued(&self) -> Option<Instant> {
        self.newest_unqueued
    }
}

/// Delay from which on the loss classifier does not charge a window to the host by its pattern.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(4);

/// Least time without acknowledgements that counts as a pause: twice [`DELAY_MAX`]. Linux gives
/// each process that waits for the processor at least 2.8 ms, so three of them cause such a pause.
const PAUSE_MIN: Duration = Duration::from_millis(8);

/// Number of pauses that are kept: with the shortest ones, a quarter of a second, in which the
/// losses of most paths are detected.
const RECENT_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    const MS: Duration = Duration::from_millis(1);
    const MIN: Duration = Duration::from_millis(20);

    /// Packets are sent each millisecond, and acknowledged after the least time and a delay.
    fn pauses(start: Instant, delays_ms: impl IntoIterator<Item = u32>) -> Pauses {
        let mut pauses = Pauses::default();
        for (sent, delay) in (0..).zip(delays_ms) {
            pauses.on_ack(start + (sent + delay) * MS + MIN, start + sent * MS, MIN);
        }
        pauses
    }

    #[test]
    fn a_receiver_that_stops_has_paused() {
        let start = epoch();
        // It runs for 10 ms, and not in the next 30.
        let delays = (0..50).map(|sent: u32| if (10..40).contains(&sent) { 40 - sent } else { 0 });
        let pauses = pauses(start, delays);
        let contained: Vec<u32> = (0..80).filter(|sent| pauses.contain(start + *sent * MS, MIN)).collect();
        assert_eq!((contained.first(), contained.last()), (Some(&10), Some(&44)));
        assert_eq!(contained.len(), 35);
    }

    #[test]
    fn packets_that_waited_for_the_end_of_a_pause_waited_in_no_queue() {
        let start = epoch();
        let delays = (0..40).map(|sent: u32| if sent < 10 { 0 } else { 40 - sent });
        assert_eq!(pauses(start, delays).newest_unqueued(), Some(start + 39 * MS));
        let longer = (0..40).map(|sent: u32| if sent < 10 { 0 } else { 45 - sent + sent / 2 });
        assert_eq!(pauses(start, longer).newest_unqueued(), Some(start + 19 * MS), "4 ms after its end");
    }

    #[test]
    fn a_queue_that_grows_and_falls_is_no_pause() {
        let start = epoch();
        let delays = (0..200).map(|sent: u32| if sent < 100 { sent / 2 } else { 100 - sent / 2 });
        let pauses = pauses(start, delays);
        assert!((0..200).all(|sent| !pauses.contain(start + sent * MS, MIN)));
        assert_eq!(pauses.newest_unqueued(), Some(start + 199 * MS));
    }

    #[test]
    fn a_sender_that_stops_is_no_pause() {
        let start = epoch();
        let mut pauses = Pauses::default();
        for sent in [0, 100, 200] {
            pauses.on_ack(start + sent * MS + MIN, start + sent * MS, MIN);
        }
        assert!(!pauses.contain(start + 150 * MS, MIN));
    }

    #[test]
    fn the_number_of_pauses_is_bounded() {
        let start = epoch();
        let mut pauses = Pauses::default();
        for sent in 0..1000 {
            pauses.on_ack(start + (sent * 50 + 30) * MS + MIN, start + sent * 50 * MS, MIN);
        }
        assert_eq!(pauses.recent.len(), RECENT_MAX);
    }
}

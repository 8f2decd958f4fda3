//! Whether a queue stands on the path.

use std::time::{Duration, Instant};

/// The least round-trip time of the last period and of the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentMinimum {
    since: Instant,
    present: Option<Duration>,
    last: Option<Duration>,
}

impl RecentMinimum {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, present: None, last: None }
    }

    pub(crate) fn add(&mut self, now: Instant, round_trip: Duration, smoothed: Duration) {
        let period = PERIOD_MIN.max(PERIOD_ROUND_TRIPS * smoothed);
        let passed = now.saturating_duration_since(self.since);
        if passed >= period {
            self.last = self.present.take().filter(|_| passed < 2 * period);
            self.since = now;
        }
        self.present = Some(self.present.map_or(round_trip, |least| least.min(round_trip)));
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        self.present.into_iter().chain(self.last).min()
    }
}

/// Whether a queue stands on the path or in the receiver's socket: of late, no round trip was
/// nearly as short as the least one.
///
/// A receiver that pauses delays acknowledgements, too, but not all of them for that long. A
/// receiver that reads slowly without pauses is a bottleneck with a queue, and congestion control
/// suits it.
pub(crate) fn is_standing(recent: Option<Duration>, least: Duration) -> bool {
    recent.is_some_and(|recent| recent > least + DELAY_MAX)
}

/// Delay from which on the loss classifier does not charge a window to the host by its pattern.
const DELAY_MAX: Duration = Duration::from_millis(4);

/// Minimum length of a period. A CPU quota (Linux's `cpu.max`) has a period of 100 ms, so even a
/// receiver that runs for a short part of each has answered at once some times.
const PERIOD_MIN: Duration = Duration::from_millis(500);
/// Length of a period in smoothed round-trip times, so that a period has several rounds.
const PERIOD_ROUND_TRIPS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::epoch;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn one_short_round_trip_in_two_periods_shows_that_no_queue_stands() {
        let start = epoch();
        let mut recent = RecentMinimum::new(start);
        assert_eq!(recent.get(), None);
        recent.add(start, 20 * MS, 20 * MS);
        recent.add(start + 300 * MS, 90 * MS, 20 * MS);
        recent.add(start + 600 * MS, 80 * MS, 20 * MS);
        assert_eq!(recent.get(), Some(20 * MS));
        recent.add(start + 1100 * MS, 70 * MS, 20 * MS);
        assert_eq!(recent.get(), Some(70 * MS));
        recent.add(start + 5000 * MS, 75 * MS, 20 * MS);
        assert_eq!(recent.get(), Some(75 * MS), "what is old is forgotten");
    }

    #[test]
    fn a_delay_of_every_round_trip_is_a_queue() {
        assert!(!is_standing(Some(24 * MS), 20 * MS));
        assert!(is_standing(Some(25 * MS), 20 * MS));
        assert!(!is_standing(None, 20 * MS));
    }
}

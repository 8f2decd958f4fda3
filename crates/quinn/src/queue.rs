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

/// Whether a queue stands on the path although the receiver's buffer may be full: for two periods
/// no round trip was as short as the least one, `BASE` and the time in which the receiver reads a
/// full buffer together.
///
/// A receiver that pauses delays acknowledgements, too, but not all of them for that long.
/// `delivered_bytes_s` is the rate at which the receiver acknowledges.
pub(crate) fn is_standing(
    recent: Option<Duration>,
    least: Duration,
    delivered_bytes_s: f64,
    buffer_bytes: u64,
) -> bool {
    let read_s = buffer_bytes as f64 / delivered_bytes_s.max(1.0);
    recent.is_some_and(|recent| recent.saturating_sub(least + BASE).as_secs_f64() > read_s)
}

/// Delay from which on the loss classifier does not charge a window to the host by its pattern.
const BASE: Duration = Duration::from_millis(4);

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
    fn a_full_buffer_of_the_receiver_is_no_queue_on_the_path() {
        // 250 kB at 25 MB/s are 10 ms.
        let stands = |recent_ms: u32| is_standing(Some(recent_ms * MS), 20 * MS, 25e6, 250_000);
        assert!(!stands(20) && !stands(33));
        assert!(stands(35));
        assert!(!is_standing(None, 20 * MS, 25e6, 250_000));
    }
}

//! Clock of retention: a wall clock that jumps ahead must not make all records too old.
//!
//! The clock goes no further than the newest label of the stored records, so a wrong wall clock
//! changes nothing while no record is stored. A jump of more than a day is ignored for a day: wrong
//! clocks are mostly corrected within hours, and a station that was off for long can wait.

use std::time::{Duration, Instant};

/// Clock of retention, with the newest time that is trusted.
#[derive(Clone, Debug)]
pub(super) struct RetentionClock {
    trusted_unix_ns: i64,
    as_of: Instant,
    /// Time at which the wall clock was first found too far ahead; `None` if the wall clock is not
    /// too far ahead.
    jump_since: Option<Instant>,
}

impl RetentionClock {
    /// Creates the clock of an archive; the newest label in the archive is `newest_unix_ns`.
    pub(super) fn new(wall_unix_ns: i64, newest_unix_ns: Option<i64>, now: Instant) -> Self {
        let trusted_unix_ns = bounded_by_labels(wall_unix_ns, newest_unix_ns);
        Self { trusted_unix_ns, as_of: now, jump_since: None }
    }

    /// Current time in nanoseconds since 1970.
    pub(super) fn now_unix_ns(
        &mut self,
        wall_unix_ns: i64,
        newest_unix_ns: Option<i64>,
        now: Instant,
    ) -> i64 {
        let bounded = bounded_by_labels(wall_unix_ns, newest_unix_ns);
        let expected = self.trusted_unix_ns.saturating_add(nanoseconds(now - self.as_of));
        if bounded > expected.saturating_add(nanoseconds(JUMP_MAX)) {
            let since = *self.jump_since.get_or_insert(now);
            if now - since < TRUSTED_AFTER {
                return expected;
            }
        }
        *self = Self { trusted_unix_ns: bounded, as_of: now, jump_since: None };
        bounded
    }
}

fn bounded_by_labels(wall_unix_ns: i64, newest_unix_ns: Option<i64>) -> i64 {
    newest_unix_ns.map_or(wall_unix_ns, |newest| newest.min(wall_unix_ns))
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Largest step of the wall clock that is trusted at once.
const JUMP_MAX: Duration = Duration::from_hours(24);

/// Time after which a jump is trusted: long enough to notice a wrong clock, and short compared with
/// retention.
const TRUSTED_AFTER: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const HOUR_NS: i64 = 3_600_000_000_000;
    const YEAR_NS: i64 = 365 * 24 * HOUR_NS;

    #[test]
    fn retention_clock_advances_with_the_labels_of_new_records() {
        let start = Instant::now();
        let mut clock = RetentionClock::new(YEAR_NS, Some(YEAR_NS), start);
        assert_eq!(
            clock.now_unix_ns(YEAR_NS + HOUR_NS, Some(YEAR_NS), start + HOUR),
            YEAR_NS,
            "nothing new is stored"
        );
        let newest = Some(YEAR_NS + 2 * HOUR_NS);
        assert_eq!(clock.now_unix_ns(YEAR_NS + 3 * HOUR_NS, newest, start + 3 * HOUR), YEAR_NS + 2 * HOUR_NS);
        assert_eq!(
            clock.now_unix_ns(HOUR_NS, newest, start + 4 * HOUR),
            HOUR_NS,
            "a clock set back is believed"
        );
        // An archive without records follows the wall clock.
        assert_eq!(RetentionClock::new(5, None, start).now_unix_ns(7, None, start), 7);
    }

    #[test]
    fn retention_clock_accepts_a_jump_ahead_after_a_day() {
        let start = Instant::now();
        let mut clock = RetentionClock::new(YEAR_NS, Some(YEAR_NS), start);
        for hours in 1..=24 {
            // The labels of new records have the same wrong time.
            let wall = 10 * YEAR_NS + i64::from(hours) * HOUR_NS;
            let now_unix_ns = clock.now_unix_ns(wall, Some(wall), start + hours * HOUR);
            assert_eq!(now_unix_ns, YEAR_NS + i64::from(hours) * HOUR_NS);
        }
        let wall = 10 * YEAR_NS + 25 * HOUR_NS;
        assert_eq!(clock.now_unix_ns(wall, Some(wall), start + 25 * HOUR), wall);
    }

    #[test]
    fn retention_clock_ignores_a_jump_ahead_that_is_corrected() {
        let start = Instant::now();
        let mut clock = RetentionClock::new(YEAR_NS, Some(YEAR_NS), start);
        let ahead = 10 * YEAR_NS;
        assert_eq!(clock.now_unix_ns(ahead, Some(ahead), start + HOUR), YEAR_NS + HOUR_NS);
        let right = YEAR_NS + 2 * HOUR_NS;
        assert_eq!(clock.now_unix_ns(right, Some(ahead), start + 2 * HOUR), right);
        assert_eq!(clock.now_unix_ns(ahead, Some(ahead), start + 26 * HOUR), YEAR_NS + 26 * HOUR_NS);
    }
}

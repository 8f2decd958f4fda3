//! Limits log lines about records of other stations, because a peer may send records at any rate.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time of the last log line about each origin.
#[derive(Debug, Default)]
pub struct LogLimiter(BTreeMap<String, Instant>);

impl LogLimiter {
    /// Returns whether to log a line about `origin`. Each origin gets at most one line a minute,
    /// and the number of origins with a line is limited.
    pub fn is_due(&mut self, origin: &str, now: Instant) -> bool {
        if self.0.get(origin).is_some_and(|said| now < *said + EVERY) {
            return false;
        }
        if self.0.len() >= ORIGINS_MAX {
            self.0.retain(|_, said| now < *said + EVERY);
        }
        let has_room = self.0.len() < ORIGINS_MAX;
        if has_room {
            self.0.insert(origin.to_owned(), now);
        }
        has_room
    }
}

/// Shortest time between two log lines about one origin. At this rate, an operator still sees these
/// lines, and they do not hide lines about other events.
const EVERY: Duration = Duration::from_mins(1);

/// Largest number of origins that get a log line in one minute. Lines about further origins would
/// add no information.
const ORIGINS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_limiter_permits_one_message_per_origin_and_minute() {
        let (mut log_limiter, began) = (LogLimiter::default(), Instant::now());
        let mut is_due =
            |origin: &str, after_s| log_limiter.is_due(origin, began + Duration::from_secs(after_s));
        assert!(is_due("north", 0));
        assert!(!is_due("north", 59));
        assert!(is_due("south", 59));
        assert!(is_due("north", 60));
        let more = (0..1000).filter(|origin| is_due(&origin.to_string(), 61)).count();
        assert_eq!(more, ORIGINS_MAX - 2, "and of so many only");
    }
}

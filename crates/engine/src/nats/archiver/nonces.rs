//! Nonces, with which an archive executes no old requests.
//!
//! A request may arrive late: the archive stood still, or the network held the request. Its sender
//! may have been withdrawn meanwhile, so a request to write must contain a nonce that the archive
//! issued a short time before. Each response has the present nonce (as in RFC 9449 §8).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The nonces of one archive.
pub(super) struct Nonces {
    /// Each nonce is issued for this time, and then accepted for this time again.
    period: Duration,
    issued: Mutex<Issued>,
}

struct Issued {
    current: String,
    previous: Option<String>,
    since: Moment,
}

impl Nonces {
    pub(super) fn new(period: Duration) -> Self {
        let issued = Issued { current: random(), previous: None, since: Moment::now() };
        Self { period, issued: Mutex::new(issued) }
    }

    /// The nonce for the next requests.
    pub(super) fn current(&self) -> String {
        self.at(Moment::now(), |issued| issued.current.clone())
    }

    /// Returns whether the nonce was issued by this archive at most two periods ago.
    pub(super) fn accepts(&self, nonce: &str) -> bool {
        self.at(Moment::now(), |issued| issued.accepts(nonce))
    }

    /// Discards nonces that are too old at `now`, and calls `get`.
    fn at<T>(&self, now: Moment, get: impl FnOnce(&Issued) -> T) -> T {
        // The values do not depend on each other, so they are valid even after a panic of a
        // different lock holder.
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let age = now.since(issued.since);
        if self.period <= age {
            let before = std::mem::replace(&mut issued.current, random());
            (issued.previous, issued.since) = match age < 2 * self.period {
                // Both clocks begin at this moment, so a clock that was set does not hide a later
                // suspension.
                true => (Some(before), now.before(age - self.period)),
                false => (None, now),
            };
        }
        get(&issued)
    }
}

impl Issued {
    fn accepts(&self, nonce: &str) -> bool {
        !nonce.is_empty() && (nonce == self.current || self.previous.as_deref() == Some(nonce))
    }
}

/// A random text, so that no requester has a nonce before it is issued.
fn random() -> String {
    let mut bytes = [0; 8];
    // Without randomness, TLS does not work either. An empty nonce is never accepted.
    match rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes) {
        Ok(()) => format!("{:016x}", u64::from_be_bytes(bytes)),
        Err(_) => String::new(),
    }
}

/// A time on two clocks. One is never set, and does not count the time in which the computer is
/// suspended; the other counts it.
#[derive(Clone, Copy, Debug)]
struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Self { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// The time `passed` earlier; unchanged on a clock that cannot represent this time.
    fn before(self, passed: Duration) -> Self {
        Self {
            monotonic: self.monotonic.checked_sub(passed).unwrap_or(self.monotonic),
            wall: self.wall.checked_sub(passed).unwrap_or(self.wall),
        }
    }

    fn since(self, before: Self) -> Duration {
        let wall = self.wall.duration_since(before.wall).unwrap_or_default();
        self.monotonic.duration_since(before.monotonic).max(wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(5);

    impl Moment {
        fn after(self, passed: Duration) -> Self {
            Self { monotonic: self.monotonic + passed, wall: self.wall + passed }
        }
    }

    #[test]
    fn nonces_are_accepted_for_two_periods() {
        let nonces = Nonces::new(PERIOD);
        let began = nonces.at(Moment::now(), |issued| issued.since);
        let at = |seconds: u64| began.after(Duration::from_secs(seconds));
        let current = |seconds| nonces.at(at(seconds), |issued| issued.current.clone());
        let accepts = |seconds, nonce: &str| nonces.at(at(seconds), |issued| issued.accepts(nonce));
        let first = current(4);
        assert!(!accepts(4, "") && !accepts(4, "x"));
        assert!(accepts(4, &first) && accepts(9, &first));
        let second = current(9);
        assert_ne!(first, second);
        assert!(!accepts(10, &first) && accepts(10, &second) && accepts(14, &second));
        assert!(!accepts(15, &second));
        let third = current(16);
        assert!(!accepts(26, &third), "the archive stood still");
    }

    #[test]
    fn the_age_of_a_nonce_counts_the_time_of_a_suspended_computer() {
        let hour = Duration::from_secs(3600);
        let before = Moment::now();
        assert_eq!(Moment { wall: before.wall + hour, ..before }.since(before), hour);
        let set_back = Moment { monotonic: before.monotonic + PERIOD, wall: before.wall - hour };
        assert_eq!(set_back.since(before), PERIOD, "the clock was set back");
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_hide_a_later_suspension() {
        let (hour, suspended) = (Duration::from_secs(3600), Duration::from_secs(60));
        let nonces = Nonces::new(PERIOD);
        let began = nonces.at(Moment::now(), |issued| issued.since);
        let next_period = began.after(PERIOD + PERIOD / 5);
        let set_back = Moment { wall: next_period.wall - hour, ..next_period };
        let nonce = nonces.at(set_back, |issued| issued.current.clone());
        assert!(nonces.at(set_back.after(PERIOD / 5), |issued| issued.accepts(&nonce)));
        let resumed = Moment { wall: set_back.wall + suspended, ..set_back };
        assert!(!nonces.at(resumed, |issued| issued.accepts(&nonce)));
    }
}

//! Attempts, the unit that is timed, and the exchange that they belong to.

use core::time::Duration;

/// One attempt of an exchange: send a message of some size and wait for its acknowledgement or
/// response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Bytes that the exchange transfers in both directions together, as far as known beforehand.
    pub bytes: u64,
    /// 0 for the first attempt of the exchange, 1 for its first retry.
    pub number: u32,
    /// Maximum number of attempts of the exchange, at least 1.
    pub tries: u32,
    /// Time from the start of the exchange's first attempt to the start of this one.
    pub elapsed: Duration,
}

impl Attempt {
    /// Whether this is the last attempt of its exchange.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.tries <= self.number.saturating_add(1)
    }
}

/// How an attempt ended. Times run from the start of the attempt and exclude the set-up of the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The response arrived after this time.
    Answered(Duration),
    /// The attempt was cut off at its timeout, after this time. The response would have taken
    /// longer (a right-censored observation).
    TimedOut(Duration),
    /// The attempt has reached its timeout, after this time, and continues beside a copy (hedging).
    /// How it ends is recorded later.
    Overdue(Duration),
    /// The attempt was dropped after this time for a reason other than its timeout: the response to
    /// a different copy arrived first, or the caller cancelled the attempt. The response would have
    /// taken longer (right-censored, too), but this is not a timeout.
    Superseded(Duration),
    /// The attempt failed after this time: refused, reset or broken. This is no information about
    /// response times.
    Failed(Duration),
}

/// Numbers the attempts of one message. It reads no clock: times are those of the caller's clock.
///
/// ```
/// use barograph_timeout::Exchange;
/// use std::time::Duration;
///
/// let began = Duration::from_secs(100);
/// let mut exchange = Exchange::begun_at(65_536, 2, began);
/// assert!(!exchange.attempt(began).is_last());
/// assert!(exchange.again());
/// let retry = exchange.attempt(began + Duration::from_secs(3));
/// assert_eq!((retry.number, retry.elapsed.as_secs(), retry.is_last()), (1, 3, true));
/// assert!(!exchange.again(), "two tries were all");
/// ```
#[derive(Clone, Debug)]
pub struct Exchange {
    bytes: u64,
    number: u32,
    tries: u32,
    began: Duration,
}

impl Exchange {
    /// An exchange of `bytes` that makes at most `tries` attempts (0 counts as 1) and begins at
    /// time 0.
    #[must_use]
    pub fn new(bytes: u64, tries: u32) -> Self {
        Self::begun_at(bytes, tries, Duration::ZERO)
    }

    /// As [`Exchange::new`], with a start time of the caller's monotonic clock.
    #[must_use]
    pub fn begun_at(bytes: u64, tries: u32, began: Duration) -> Self {
        Self { bytes, number: 0, tries: tries.max(1), began }
    }

    /// Returns the attempt that starts at `now`. If the clock jumped back, no time has passed.
    #[must_use]
    pub fn attempt(&self, now: Duration) -> Attempt {
        let elapsed = now.saturating_sub(self.began);
        Attempt { bytes: self.bytes, number: self.number, tries: self.tries, elapsed }
    }

    /// Continues with the next attempt; returns `false` if the last one was made already.
    pub fn again(&mut self) -> bool {
        let more = self.number + 1 < self.tries;
        self.number += u32::from(more);
        more
    }
}

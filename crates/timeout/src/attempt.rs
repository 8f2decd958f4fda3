//! What is timed: the attempts of an exchange.

use core::time::Duration;

/// One attempt at an exchange: send a message of some size, wait for its acknowledgement or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Bytes that the exchange moves, sent and answered together, as far as they are known beforehand.
    pub bytes: u64,
    /// 0 for the first attempt of the exchange, 1 for its first retry.
    pub number: u32,
    /// How many attempts the exchange has in all, at least 1.
    pub tries: u32,
    /// From the start of the exchange's first attempt to the start of this one.
    pub elapsed: Duration,
}

impl Attempt {
    /// Whether no attempt comes after this one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.tries <= self.number.saturating_add(1)
    }
}

/// How an attempt ended. Times run from the start of the attempt and exclude the set-up of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The answer came after so long.
    Answered(Duration),
    /// It was cut off after so long, because its timeout had passed: the answer would have taken longer
    /// (a right-censored observation).
    TimedOut(Duration),
    /// It has run for so long, which is its timeout, and goes on while a copy of it is sent (hedging). It will
    /// end in another way later.
    Overdue(Duration),
    /// It was given up after so long for another reason than its timeout – another copy answered first, the
    /// caller lost interest – so the answer would have taken longer (right-censored as well, but no timeout).
    Superseded(Duration),
    /// It failed after so long: refused, reset, broken. That says nothing about how long an answer takes.
    Failed(Duration),
}

/// Numbers the attempts of one exchange: pure, with times of the caller's clock.
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
    /// An exchange of `bytes` that makes at most `tries` attempts (0 counts as 1) and begins at time 0.
    #[must_use]
    pub fn new(bytes: u64, tries: u32) -> Self {
        Self::begun_at(bytes, tries, Duration::ZERO)
    }

    /// The same, begun at a time of the caller's monotonic clock.
    #[must_use]
    pub fn begun_at(bytes: u64, tries: u32, began: Duration) -> Self {
        Self { bytes, number: 0, tries: tries.max(1), began }
    }

    /// The attempt that starts at `now`. A clock that jumped back counts as no time passed.
    #[must_use]
    pub fn attempt(&self, now: Duration) -> Attempt {
        let elapsed = now.saturating_sub(self.began);
        Attempt { bytes: self.bytes, number: self.number, tries: self.tries, elapsed }
    }

    /// Goes on to the next attempt; `false` if the last one was made already.
    pub fn again(&mut self) -> bool {
        let more = self.number + 1 < self.tries;
        self.number += u32::from(more);
        more
    }
}

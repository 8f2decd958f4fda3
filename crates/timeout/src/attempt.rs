//! Attempts, and the message that the attempts belong to. Each attempt is timed by itself.

use core::time::Duration;

/// One attempt of a message: send the message and wait for its acknowledgement or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Bytes that the message and its response transfer in both directions together, as far as
    /// known beforehand.
    pub bytes: u64,
    /// 0 for the first attempt of the message, 1 for its first retry.
    pub number: u32,
    /// Maximum number of attempts of the message, at least 1.
    pub max_attempts: u32,
    /// Time from the start of the message's first attempt to the start of this attempt.
    pub elapsed: Duration,
}

impl Attempt {
    /// Whether this is the last attempt of its message.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.max_attempts <= self.number.saturating_add(1)
    }
}

/// How an attempt ended. Times run from the start of the attempt and exclude the set-up of the
/// connection.
///
/// ```
/// use barograph_timeout::{Adaptive, AttemptOutcome, MessageAttempts, TimeoutEstimator};
/// use std::time::Duration;
///
/// let mut link = Adaptive::default();
/// let mut message = MessageAttempts::new(1024, 2);
/// let first = message.attempt(Duration::ZERO);
/// link.record(&first, AttemptOutcome::Hedged(Duration::from_millis(50)));
/// message.advance();
/// let copy = message.attempt(Duration::from_millis(50));
/// link.record(&copy, AttemptOutcome::Completed(Duration::from_millis(20)));
/// link.record(&first, AttemptOutcome::Cancelled(Duration::from_millis(70)));
/// assert!(link.decide(&first).forecast.is_some(), "one response was recorded");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The response arrived after this time.
    Completed(Duration),
    /// The attempt was cut off at its timeout, after this time. The response would have taken
    /// longer (a right-censored observation).
    TimedOut(Duration),
    /// The attempt has reached its timeout, after this time, and continues beside a copy (hedging).
    /// The end of the attempt is recorded later.
    Hedged(Duration),
    /// The attempt was dropped after this time for a reason other than its timeout: the response to
    /// a different copy arrived first, or the caller cancelled the attempt. The response would have
    /// taken longer (right-censored, too), but the end of the attempt is not a timeout.
    Cancelled(Duration),
    /// The attempt failed after this time, for example because the connection was refused, reset or
    /// broken. A failure is no information about response times.
    Failed(Duration),
}

/// Numbers the attempts of one message. This type reads no clock: the caller passes all times.
///
/// ```
/// use barograph_timeout::MessageAttempts;
/// use std::time::Duration;
///
/// let began = Duration::from_secs(100);
/// let mut message = MessageAttempts::begun_at(65_536, 2, began);
/// assert!(!message.attempt(began).is_last());
/// assert!(message.advance());
/// let retry = message.attempt(began + Duration::from_secs(3));
/// assert_eq!((retry.number, retry.elapsed.as_secs(), retry.is_last()), (1, 3, true));
/// assert!(!message.advance(), "two attempts were all");
/// ```
#[derive(Clone, Debug)]
pub struct MessageAttempts {
    bytes: u64,
    number: u32,
    max_attempts: u32,
    began: Duration,
}

impl MessageAttempts {
    /// A message of `bytes` that makes at most `max_attempts` attempts (0 counts as 1) and begins
    /// at time 0.
    #[must_use]
    pub fn new(bytes: u64, max_attempts: u32) -> Self {
        Self::begun_at(bytes, max_attempts, Duration::ZERO)
    }

    /// Creates the attempts of a message as [`MessageAttempts::new`] does, but with a start time of
    /// the caller's monotonic clock.
    #[must_use]
    pub fn begun_at(bytes: u64, max_attempts: u32, began: Duration) -> Self {
        Self { bytes, number: 0, max_attempts: max_attempts.max(1), began }
    }

    /// Returns the attempt that starts at `now`. If the clock jumped back, no time has passed.
    #[must_use]
    pub fn attempt(&self, now: Duration) -> Attempt {
        let elapsed = now.saturating_sub(self.began);
        Attempt { bytes: self.bytes, number: self.number, max_attempts: self.max_attempts, elapsed }
    }

    /// Continues with the next attempt; returns `false` if the last attempt was already made.
    pub fn advance(&mut self) -> bool {
        let more = self.number + 1 < self.max_attempts;
        self.number += u32::from(more);
        more
    }
}

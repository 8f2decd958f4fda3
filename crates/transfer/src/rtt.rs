//! Round trips.

use std::time::Duration;

/// Round-trip times of a transfer (RFC 6298 §2; RFC 9002 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// The last; `None` before the first.
    pub latest: Option<Duration>,
    /// Smoothed, by 1/8.
    pub smoothed: Duration,
    /// Smoothed deviation, by 1/4.
    pub variation: Duration,
    /// The least so far.
    pub min: Duration,
}

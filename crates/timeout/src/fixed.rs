//! An estimator with a fixed timeout.

use core::time::Duration;

use crate::{Attempt, AttemptOutcome, TimeoutDecision, TimeoutEstimator, TimeoutReason};

/// The same timeout for every attempt.
///
/// ```
/// use barograph_timeout::{FixedTimeout, MessageAttempts, TimeoutEstimator};
/// use std::time::Duration;
///
/// let estimator = FixedTimeout(Duration::from_secs(2));
/// let attempt = MessageAttempts::new(1024, 3).attempt(Duration::ZERO);
/// assert_eq!(estimator.timeout(&attempt), Duration::from_secs(2));
/// ```
#[derive(Clone, Debug)]
pub struct FixedTimeout(pub Duration);

impl TimeoutEstimator for FixedTimeout {
    fn decide(&self, _attempt: &Attempt) -> TimeoutDecision {
        TimeoutDecision::bare(self.0, TimeoutReason::Fixed)
    }

    fn record(&mut self, _attempt: &Attempt, _ended: AttemptOutcome) {}
}

//! An estimator with a fixed timeout.

use core::time::Duration;

use crate::{Attempt, AttemptOutcome, TimeoutDecision, TimeoutEstimator, TimeoutReason};

/// The same timeout for every attempt.
#[derive(Clone, Debug)]
pub struct FixedTimeout(pub Duration);

impl TimeoutEstimator for FixedTimeout {
    fn decide(&self, _attempt: &Attempt) -> TimeoutDecision {
        TimeoutDecision::bare(self.0, TimeoutReason::Fixed)
    }

    fn record(&mut self, _attempt: &Attempt, _ended: AttemptOutcome) {}
}

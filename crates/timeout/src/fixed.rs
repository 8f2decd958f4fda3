//! An estimator with a fixed timeout.

use core::time::Duration;

use crate::{Attempt, Decision, Ended, Reason, Timeout};

/// The same timeout for every attempt.
#[derive(Clone, Debug)]
pub struct Static(pub Duration);

impl Timeout for Static {
    fn decide(&self, _attempt: &Attempt) -> Decision {
        Decision::bare(self.0, Reason::Set)
    }

    fn record(&mut self, _attempt: &Attempt, _ended: Ended) {}
}

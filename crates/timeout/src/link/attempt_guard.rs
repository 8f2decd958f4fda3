//! A running attempt. The estimator records its end exactly once, even if the attempt is dropped.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Attempt, AttemptOutcome, TimeoutEstimator};

/// A running attempt and its estimator. If the guard is dropped before [`AttemptGuard::end`] was
/// called, the guard records [`AttemptOutcome::Cancelled`].
pub(super) struct AttemptGuard<'a, E: TimeoutEstimator> {
    estimator: &'a mut E,
    attempt: Attempt,
    began: Instant,
    ended: bool,
}

impl<'a, E: TimeoutEstimator> AttemptGuard<'a, E> {
    pub(super) fn begin(estimator: &'a mut E, attempt: Attempt) -> Self {
        Self { estimator, attempt, began: Instant::now(), ended: false }
    }

    /// Records the end of the attempt. `outcome` converts the time of the attempt to the recorded
    /// end. Returns this time.
    pub(super) fn end(mut self, outcome: fn(Duration) -> AttemptOutcome) -> Duration {
        let took = self.began.elapsed();
        self.ended = true;
        self.estimator.record(&self.attempt, outcome(took));
        took
    }
}

impl<E: TimeoutEstimator> Drop for AttemptGuard<'_, E> {
    fn drop(&mut self) {
        if !self.ended {
            self.estimator.record(&self.attempt, AttemptOutcome::Cancelled(self.began.elapsed()));
        }
    }
}

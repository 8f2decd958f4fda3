//! A running attempt. The estimator records its end exactly once, even if the attempt is dropped.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Attempt, Ended, Timeout};

/// A running attempt and its estimator. If it is dropped before [`Trial::end`] was called, it
/// records [`Ended::Superseded`].
pub(super) struct Trial<'a, E: Timeout> {
    estimator: &'a mut E,
    attempt: Attempt,
    began: Instant,
    ended: bool,
}

impl<'a, E: Timeout> Trial<'a, E> {
    pub(super) fn begin(estimator: &'a mut E, attempt: Attempt) -> Self {
        Self { estimator, attempt, began: Instant::now(), ended: false }
    }

    /// Records the end of the attempt, which `how` makes from the time of the attempt. Returns this
    /// time.
    pub(super) fn end(mut self, how: fn(Duration) -> Ended) -> Duration {
        let took = self.began.elapsed();
        self.ended = true;
        self.estimator.record(&self.attempt, how(took));
        took
    }
}

impl<E: Timeout> Drop for Trial<'_, E> {
    fn drop(&mut self) {
        if !self.ended {
            self.estimator.record(&self.attempt, Ended::Superseded(self.began.elapsed()));
        }
    }
}

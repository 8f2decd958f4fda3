//! An attempt while it runs. However it ends, also if it is dropped, the estimator records it once.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Attempt, Ended, Timeout};

/// Records [`Ended::Superseded`] if it is dropped before it has ended otherwise.
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

    /// Records how the attempt ended, with `how` of its time, and returns that time.
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

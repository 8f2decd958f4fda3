//! State of one target. A call locks the state twice, each time only while the estimator computes.

use std::sync::Mutex;

use tokio::time::Instant;

use super::budget::COPY;
use crate::sync::lock;
use crate::{Adaptive, Attempt, AttemptOutcome, TimeoutDecision, TimeoutEstimator};
use core::time::Duration;

/// Counters of the attempts at one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetCounters {
    /// Number of attempts that began: calls, retries and hedges.
    pub attempts: u64,
    /// Number of attempts that got their response.
    pub answered: u64,
    /// Number of attempts cut off by their timeout.
    pub timed_out: u64,
    /// Number of attempts dropped for a different reason: the response to a different copy arrived
    /// first, the caller dropped the call, or its deadline passed.
    pub superseded: u64,
    /// Number of attempts that failed with an error.
    pub failed: u64,
    /// Number of copies sent after the previous attempt was cut off.
    pub retries: u64,
    /// Number of copies sent while an overdue attempt continues.
    pub hedges: u64,
    /// Number of copies that were due but not sent, because the budget was empty.
    pub withheld: u64,
    /// Number of overdue attempts with a response that arrived before the response of the hedge:
    /// observed false timeouts.
    pub false_observed: u64,
    /// Number of attempts that were cut off although their response would have arrived soon:
    /// estimated false timeouts. A timeout counts as false if the retry itself took longer than
    /// that timeout.
    pub false_estimated: u64,
}

/// Role of an attempt in its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    First,
    Retry,
    Hedge,
}

#[derive(Debug)]
pub(super) struct TargetState(Mutex<State>);

#[derive(Debug)]
struct State {
    estimator: Adaptive,
    counts: TargetCounters,
    used: Instant,
    /// Earnings of calls that were not yet added to the budget, in units of 1/[`COPY`] of a copy.
    earned: u64,
    /// Size of the last call. Metrics report the timeout for this size.
    bytes: u64,
}

impl State {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        let decision = self.estimator.decide(attempt);
        TimeoutDecision { timeout: decision.timeout.max(LEAST), ..decision }
    }
}

impl TargetState {
    pub(super) fn new(estimator: Adaptive, now: Instant) -> Self {
        Self(Mutex::new(State {
            estimator,
            counts: TargetCounters::default(),
            used: now,
            earned: 0,
            bytes: 0,
        }))
    }

    /// Begins an attempt. Returns the decision for this attempt, and the earnings to add to the
    /// budget.
    pub(super) fn begin(
        &self,
        attempt: &Attempt,
        kind: Kind,
        now: Instant,
        earns: u64,
    ) -> (TimeoutDecision, u64) {
        let mut state = lock(&self.0);
        state.used = now;
        state.bytes = attempt.bytes;
        state.counts.attempts += 1;
        match kind {
            Kind::First => {}
            Kind::Retry => state.counts.retries += 1,
            Kind::Hedge => state.counts.hedges += 1,
        }
        // Return only earnings of whole copies, so that most calls do not access the counter that
        // all targets share.
        state.earned += earns;
        let whole = state.earned / COPY * COPY;
        state.earned -= whole;
        (state.decide(attempt), whole)
    }

    pub(super) fn end(&self, attempt: &Attempt, ended: AttemptOutcome) {
        let mut state = lock(&self.0);
        match ended {
            AttemptOutcome::Completed(_) => state.counts.answered += 1,
            AttemptOutcome::TimedOut(_) => state.counts.timed_out += 1,
            AttemptOutcome::Cancelled(_) => state.counts.superseded += 1,
            AttemptOutcome::Failed(_) => state.counts.failed += 1,
            // A hedged attempt has not ended yet, so count nothing.
            AttemptOutcome::Hedged(_) => {}
        }
        state.estimator.record(attempt, ended);
    }

    /// Counts a copy that may not be sent, and returns the decision for `attempt` as the last
    /// attempt.
    pub(super) fn withhold(&self, attempt: &Attempt) -> TimeoutDecision {
        let mut state = lock(&self.0);
        state.counts.withheld += 1;
        state.decide(attempt)
    }

    pub(super) fn count_false(&self, observed: bool) {
        let counts = &mut lock(&self.0).counts;
        let count = if observed { &mut counts.false_observed } else { &mut counts.false_estimated };
        *count += 1;
    }

    /// Returns the earnings that were not yet added to the budget, and sets this number to 0.
    pub(super) fn take_earned(&self) -> u64 {
        core::mem::take(&mut lock(&self.0).earned)
    }

    pub(super) fn record_connect(&self, took: Duration) {
        lock(&self.0).estimator.record_connect(took);
    }

    pub(super) fn start_from(&self, forecast: Duration, error: Duration) {
        lock(&self.0).estimator.start_from(forecast, error);
    }

    pub(super) fn replace(&self, estimator: Adaptive) {
        lock(&self.0).estimator = estimator;
    }

    pub(super) fn save(&self) -> std::vec::Vec<u8> {
        lock(&self.0).estimator.save()
    }

    pub(super) fn used(&self) -> Instant {
        lock(&self.0).used
    }

    /// Returns the counters, and the decision for a first attempt of the last call's size.
    pub(super) fn snapshot(&self) -> (TargetCounters, TimeoutDecision) {
        let state = lock(&self.0);
        let next = Attempt { bytes: state.bytes, number: 0, max_attempts: 2, elapsed: Duration::ZERO };
        (state.counts, state.decide(&next))
    }
}

/// Shortest timeout: two ticks of tokio's timer, which has slots of 1 ms. A shorter timeout fires
/// at the end of its slot, and calls that the runtime wakes at the same time would seem overdue. So
/// most timeouts of this length would be false.
const LEAST: Duration = Duration::from_millis(2);

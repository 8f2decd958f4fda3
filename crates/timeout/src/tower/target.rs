//! What is known of one target. Calls to it lock it twice, for as long as an estimator computes.

use std::sync::Mutex;

use tokio::time::Instant;

use super::budget::COPY;
use crate::sync::lock;
use crate::{Adaptive, Attempt, Decision, Ended, Timeout};
use core::time::Duration;

/// What happened to the attempts at one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Attempts begun: calls, retries and hedges.
    pub attempts: u64,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts cut off by their timeout.
    pub timed_out: u64,
    /// Attempts given up for another reason: another copy answered first, the caller dropped the call, or
    /// its deadline passed.
    pub superseded: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that were copies sent after the one before had been cut off.
    pub retries: u64,
    /// Attempts that were copies sent beside one that was overdue.
    pub hedges: u64,
    /// Copies that were due and not sent, because the budget was empty.
    pub withheld: u64,
    /// Overdue attempts that answered before the copy sent beside them did: observed.
    pub false_observed: u64,
    /// Attempts cut off although they would presumably have been answered soon: estimated. A cut is taken
    /// to have been false when the retry itself took longer than the timeout that made the cut.
    pub false_estimated: u64,
}

/// What an attempt is among those of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    First,
    Retry,
    Hedge,
}

#[derive(Debug)]
pub(super) struct Target(Mutex<State>);

#[derive(Debug)]
struct State {
    estimator: Adaptive,
    counts: Counts,
    used: Instant,
    /// Earned for the budget and not handed in yet.
    earned: u64,
    /// The size of the last call, for which metrics tell the timeout.
    bytes: u64,
}

impl State {
    fn decide(&self, attempt: &Attempt) -> Decision {
        let decision = self.estimator.decide(attempt);
        Decision { timeout: decision.timeout.max(LEAST), ..decision }
    }
}

impl Target {
    pub(super) fn new(estimator: Adaptive, now: Instant) -> Self {
        Self(Mutex::new(State { estimator, counts: Counts::default(), used: now, earned: 0, bytes: 0 }))
    }

    /// An attempt begins: how long it may take, and what is to be put into the budget.
    pub(super) fn begin(&self, attempt: &Attempt, kind: Kind, now: Instant, earns: u64) -> (Decision, u64) {
        let mut state = lock(&self.0);
        state.used = now;
        state.bytes = attempt.bytes;
        state.counts.attempts += 1;
        match kind {
            Kind::First => {}
            Kind::Retry => state.counts.retries += 1,
            Kind::Hedge => state.counts.hedges += 1,
        }
        // Whole copies only, so that most calls leave alone what all targets share.
        state.earned += earns;
        let whole = state.earned / COPY * COPY;
        state.earned -= whole;
        (state.decide(attempt), whole)
    }

    pub(super) fn end(&self, attempt: &Attempt, ended: Ended) {
        let mut state = lock(&self.0);
        match ended {
            Ended::Answered(_) => state.counts.answered += 1,
            Ended::TimedOut(_) => state.counts.timed_out += 1,
            Ended::Superseded(_) => state.counts.superseded += 1,
            Ended::Failed(_) => state.counts.failed += 1,
            // It has not ended yet.
            Ended::Overdue(_) => {}
        }
        state.estimator.record(attempt, ended);
    }

    /// No copy may be sent in place of this attempt: how long it may take as the last.
    pub(super) fn withhold(&self, attempt: &Attempt) -> Decision {
        let mut state = lock(&self.0);
        state.counts.withheld += 1;
        state.decide(attempt)
    }

    pub(super) fn count_false(&self, observed: bool) {
        let counts = &mut lock(&self.0).counts;
        let count = if observed { &mut counts.false_observed } else { &mut counts.false_estimated };
        *count += 1;
    }

    /// All that was earned for the budget since the last time.
    pub(super) fn hand_in(&self) -> u64 {
        core::mem::take(&mut lock(&self.0).earned)
    }

    pub(super) fn connected(&self, took: Duration) {
        lock(&self.0).estimator.connected(took);
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

    /// What it counted, and how long a first attempt of the last call's size may take now.
    pub(super) fn snapshot(&self) -> (Counts, Decision) {
        let state = lock(&self.0);
        let next = Attempt { bytes: state.bytes, number: 0, tries: 2, elapsed: Duration::ZERO };
        (state.counts, state.decide(&next))
    }
}

/// No timeout is shorter: two ticks of tokio's timer, whose wheel has slots of 1 ms. What is due in less fires
/// at the end of a slot, and calls that are woken by the same turn of the runtime look overdue when they are
/// not: of timeouts below it most would be false.
const LEAST: Duration = Duration::from_millis(2);

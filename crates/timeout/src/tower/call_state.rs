//! State of a call: which attempts run, since when, and how long they may take. When an attempt
//! ends, the state records the end in the [`TargetState`]. If the call is dropped, the ends of its
//! running attempts are recorded, too.

use core::time::Duration;
use std::sync::Arc;

use tokio::time::Instant;

use super::error::{Elapsed, ElapsedCause};
use super::target::{Kind, TargetState};
use crate::{Attempt, AttemptOutcome, TimeoutDecision};

pub(super) struct CallState {
    target: Arc<TargetState>,
    bytes: u64,
    max_attempts: u32,
    /// Number of attempts that began, at least 1.
    attempts: u32,
    began: Instant,
    /// Deadline of all attempts, if one is set.
    deadline: Option<Instant>,
    /// The first attempt, or its latest retry.
    first: Option<Running>,
    /// The hedge, which runs beside the first attempt.
    copy: Option<Running>,
    /// Decision for the newest attempt.
    decision: TimeoutDecision,
    /// Timeout of the latest attempt that was overdue; `None` if no attempt was overdue.
    passed: Option<Duration>,
    /// Time at which a call without a response is cut off or copied.
    alarm: Instant,
}

pub(super) struct CallParams {
    pub(super) bytes: u64,
    pub(super) max_attempts: u32,
    pub(super) deadline: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Running {
    attempt: Attempt,
    since: Instant,
}

/// One of the two attempts that may run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptSlot {
    First,
    Copy,
}

impl CallState {
    /// Begins the first attempt; also returns the earnings to add to the budget.
    pub(super) fn begin(
        target: Arc<TargetState>,
        params: &CallParams,
        now: Instant,
        earns: u64,
    ) -> (Self, u64) {
        let attempt = Attempt {
            bytes: params.bytes,
            number: 0,
            max_attempts: params.max_attempts,
            elapsed: Duration::ZERO,
        };
        let (decision, earned) = target.begin(&attempt, Kind::First, now, earns);
        let mut state = Self {
            target,
            bytes: params.bytes,
            max_attempts: params.max_attempts,
            attempts: 1,
            began: now,
            deadline: params.deadline.map(|deadline| later(now, deadline)),
            first: Some(Running { attempt, since: now }),
            copy: None,
            decision,
            passed: None,
            alarm: now,
        };
        state.set_alarm(now, decision.timeout);
        (state, earned)
    }

    pub(super) fn begin_again(&mut self, hedge: bool, now: Instant) {
        let attempt = self.attempt(self.attempts, now);
        let kind = if hedge { Kind::Hedge } else { Kind::Retry };
        (self.decision, _) = self.target.begin(&attempt, kind, now, 0);
        self.attempts += 1;
        let slot = if hedge { &mut self.copy } else { &mut self.first };
        *slot = Some(Running { attempt, since: now });
        self.set_alarm(now, self.decision.timeout);
    }

    /// Makes the newest attempt the last attempt of the call.
    pub(super) fn make_last(&mut self) {
        self.max_attempts = self.attempts;
    }

    /// Makes the next attempt the last attempt of the call.
    pub(super) fn make_next_last(&mut self) {
        self.max_attempts = self.attempts + 1;
    }

    pub(super) fn is_next_last(&self) -> bool {
        self.attempts + 1 >= self.max_attempts
    }

    pub(super) fn alarm(&self) -> Instant {
        self.alarm
    }

    pub(super) fn target(&self) -> &TargetState {
        &self.target
    }

    /// If the deadline has passed, drops every attempt.
    pub(super) fn deadline_passed(&mut self, now: Instant) -> Option<Elapsed> {
        self.deadline.is_some_and(|deadline| deadline <= now).then(|| {
            self.end_all(now, AttemptOutcome::Cancelled);
            Elapsed::new(&self.decision, self.attempts, now - self.began, ElapsedCause::Deadline)
        })
    }

    /// Cuts off every attempt, because the newest attempt has reached its timeout and is the last
    /// attempt.
    pub(super) fn time_out(&mut self, now: Instant) -> Elapsed {
        self.end_all(now, AttemptOutcome::TimedOut);
        Elapsed::new(&self.decision, self.attempts, now - self.began, ElapsedCause::Timeout)
    }

    /// Cuts off every attempt, because the service did not become ready for the next attempt.
    pub(super) fn give_up_awaiting_service(&mut self, now: Instant) -> Elapsed {
        self.end_all(now, AttemptOutcome::TimedOut);
        Elapsed::new(&self.decision, self.attempts, now - self.began, ElapsedCause::NotReady)
    }

    /// Cuts off the overdue attempt, or lets it run beside a hedge. The copy may wait until the
    /// service is ready, but at most for `limit`, the longest time of a last attempt.
    pub(super) fn overdue(&mut self, hedge: bool, now: Instant, limit: Duration) {
        self.passed = Some(self.decision.timeout);
        if !hedge {
            self.end(AttemptSlot::First, now, AttemptOutcome::TimedOut);
        } else if let Some(Running { attempt, since }) = self.first {
            self.target.end(&attempt, AttemptOutcome::Hedged(now - since));
        }
        self.set_alarm(now, limit);
    }

    /// Lets the overdue attempt continue as the last attempt, because no copy may be sent.
    pub(super) fn run_on(&mut self, now: Instant) {
        self.make_last();
        if let Some(running) = &mut self.first {
            running.attempt.max_attempts = self.max_attempts;
            self.decision = self.target.withhold(&running.attempt);
            let since = running.since;
            self.set_alarm(since, self.decision.timeout);
        } else {
            self.alarm = now;
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.first.is_some() || self.copy.is_some()
    }

    /// Records that an attempt got its response, and drops the other attempt.
    pub(super) fn answered(&mut self, which: AttemptSlot, now: Instant) {
        let running = match which {
            AttemptSlot::First => self.first,
            AttemptSlot::Copy => self.copy,
        };
        self.end(which, now, AttemptOutcome::Completed);
        if let (AttemptSlot::First, Some(running), Some(passed)) = (which, running, self.passed) {
            // An overdue first attempt continues only if a hedge runs beside it. Here the response
            // of the first attempt arrived before the response of the hedge.
            let observed = running.attempt.number == 0;
            if observed || now - running.since > passed {
                self.target.count_false(observed);
            }
        }
        self.end_all(now, AttemptOutcome::Cancelled);
    }

    pub(super) fn failed(&mut self, which: AttemptSlot, now: Instant) {
        self.end(which, now, AttemptOutcome::Failed);
    }

    fn attempt(&self, number: u32, now: Instant) -> Attempt {
        Attempt { bytes: self.bytes, number, max_attempts: self.max_attempts, elapsed: now - self.began }
    }

    fn end_all(&mut self, now: Instant, ended: fn(Duration) -> AttemptOutcome) {
        self.end(AttemptSlot::First, now, ended);
        self.end(AttemptSlot::Copy, now, ended);
    }

    fn end(&mut self, which: AttemptSlot, now: Instant, ended: fn(Duration) -> AttemptOutcome) {
        let slot = match which {
            AttemptSlot::First => &mut self.first,
            AttemptSlot::Copy => &mut self.copy,
        };
        if let Some(Running { attempt, since }) = slot.take() {
            self.target.end(&attempt, ended(now - since));
        }
    }

    fn set_alarm(&mut self, since: Instant, timeout: Duration) {
        let alarm = later(since, timeout);
        self.alarm = self.deadline.map_or(alarm, |deadline| deadline.min(alarm));
    }
}

impl Drop for CallState {
    fn drop(&mut self) {
        // The caller has dropped the call, so the running attempts are cancelled. These attempts
        // have not timed out.
        if self.is_running() {
            self.end_all(Instant::now(), AttemptOutcome::Cancelled);
        }
    }
}

/// Returns `instant + duration`, or `instant` plus a year if the clock cannot represent the sum.
fn later(instant: Instant, duration: Duration) -> Instant {
    instant.checked_add(duration).unwrap_or_else(|| instant + NEVER)
}

/// A year: longer than any call, and within the range of clocks and of tokio's timer.
const NEVER: Duration = Duration::from_secs(365 * 86_400);

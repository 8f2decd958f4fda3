//! What one member may use of this station: pure budgets that fill with time (docs/spec/engine.md §6).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_engine::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// The budgets of one member.
#[derive(Debug)]
pub(crate) struct Allowance {
    streams: Arc<Semaphore>,
    subscriptions: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    appends: Arc<Semaphore>,
    records: Mutex<Budget>,
    bytes: Mutex<Budget>,
    registrations: Mutex<Budget>,
}

/// What is used now, given back when it is dropped.
pub(crate) type Share = OwnedSemaphorePermit;

impl Allowance {
    /// Full budgets.
    pub(crate) fn new() -> Self {
        Self {
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            subscriptions: Arc::new(Semaphore::new(SUBSCRIPTIONS_MAX)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            appends: Arc::new(Semaphore::new(1)),
            records: Mutex::new(Budget::new(RECORDS_BURST, RECORDS_PER_S)),
            bytes: Mutex::new(Budget::new(BYTES_BURST, BYTES_PER_S)),
            registrations: Mutex::new(Budget::new(REGISTRATIONS_BURST, REGISTRATIONS_PER_S)),
        }
    }

    /// Takes a body of so many bytes off the budget of bytes, unless records of earlier ones are still to be
    /// made up for: how many it has is known when it was read, and a body that was read is not refused.
    pub(crate) fn take_body(&self, bytes: usize, now: Instant) -> Result<(), Error> {
        let wait = lock(&self.records).wait(0.0, now);
        if !wait.is_zero() {
            let why = format!("a member appends {RECORDS_PER_S} records a second at most in the long run");
            return Err(Error::Throttled { why, wait });
        }
        lock(&self.bytes).take(bytes as f64, now).map_err(|wait| {
            let kib = BYTES_PER_S / 1024.0;
            let why = format!("a member appends {kib} KiB a second at most in the long run");
            Error::Throttled { why, wait }
        })
    }

    /// Takes the records of a body off their budget, which may leave it short by them.
    pub(crate) fn take_records(&self, records: usize, now: Instant) {
        lock(&self.records).charge(records as f64, now);
    }

    /// How long until another body of so many bytes is taken.
    pub(crate) fn wait(&self, bytes: usize, now: Instant) -> Duration {
        let records = lock(&self.records).wait(0.0, now);
        records.max(lock(&self.bytes).wait(bytes as f64, now))
    }

    /// Takes a registration off its budget.
    pub(crate) fn take_registration(&self, now: Instant) -> Result<(), Error> {
        lock(&self.registrations).take(1.0, now).map_err(|wait| {
            let why =
                format!("a member registers {REGISTRATIONS_PER_S} times a second at most in the long run");
            Error::Throttled { why, wait }
        })
    }

    /// A stream, or the sentence that says why not; likewise the others.
    pub(crate) fn stream(&self) -> Result<Share, String> {
        let share = Arc::clone(&self.streams).try_acquire_owned();
        share.map_err(|_| format!("a member has at most {STREAMS_MAX} streams open"))
    }

    /// What a subscription needs beside its stream.
    pub(crate) fn subscription(&self) -> Result<Share, String> {
        let share = Arc::clone(&self.subscriptions).try_acquire_owned();
        share.map_err(|_| format!("a member has at most {SUBSCRIPTIONS_MAX} subscriptions open"))
    }

    pub(crate) fn request(&self) -> Result<Share, String> {
        let share = Arc::clone(&self.requests).try_acquire_owned();
        share.map_err(|_| format!("a member has at most {REQUESTS_MAX} requests running"))
    }

    pub(crate) fn append(&self) -> Result<Share, String> {
        let share = Arc::clone(&self.appends).try_acquire_owned();
        share.map_err(|_| "a member appends one batch after the other".into())
    }
}

/// An amount that refills (a token bucket).
#[derive(Debug)]
struct Budget {
    most: f64,
    per_s: f64,
    left: f64,
    /// Of the last look; `None` = none yet.
    at: Option<Instant>,
}

impl Budget {
    fn new(most: f64, per_s: f64) -> Self {
        Self { most, per_s, left: most, at: None }
    }

    /// Takes an amount, or says how long until it is there.
    fn take(&mut self, amount: f64, now: Instant) -> Result<(), Duration> {
        let wait = self.wait(amount, now);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.left -= amount;
        Ok(())
    }

    /// Takes an amount whether it is there or not.
    fn charge(&mut self, amount: f64, now: Instant) {
        self.refill(now);
        self.left -= amount;
    }

    /// How long until an amount is there; for one that never is, until the budget is full.
    fn wait(&mut self, amount: f64, now: Instant) -> Duration {
        self.refill(now);
        let missing = f64::max(0.0, amount.min(self.most) - self.left);
        Duration::from_secs_f64(missing / self.per_s)
    }

    fn refill(&mut self, now: Instant) {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        self.left = f64::min(self.most, self.left + passed.as_secs_f64() * self.per_s);
    }
}

/// A watch for each group that an entry may name, and subscriptions. Each is a connection and holds
/// some tens of KiB; what waits in the directory's channel is shared by all.
pub(crate) const STREAMS_MAX: usize = barograph_engine::Entry::GROUPS_MAX + SUBSCRIPTIONS_MAX;

/// Each may look through the whole archive. A station needs none for itself, and a program one for each
/// selector that it follows.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 16;

/// A lease, an append, and a few questions; a page of history may hold 40 MB while it is sent.
pub(crate) const REQUESTS_MAX: usize = 8;

/// A station with a hundred peers makes some tens of records a second; a whole spool of the usual size
/// (`limits.spool_records_max`) may come at once.
pub(crate) const RECORDS_PER_S: f64 = 200.0;
pub(crate) const RECORDS_BURST: f64 = 100_000.0;

/// Records with all details have about 1 KiB, and most have none.
pub(crate) const BYTES_PER_S: f64 = 256.0 * 1024.0;
pub(crate) const BYTES_BURST: f64 = 64.0 * 1024.0 * 1024.0;

/// Every registration wakes all who watch; a station registers when something of it changes.
pub(crate) const REGISTRATIONS_PER_S: f64 = 1.0;
pub(crate) const REGISTRATIONS_BURST: f64 = 20.0;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_used_comes_back() {
        let allowance = Allowance::new();
        let held: Vec<_> = (0..STREAMS_MAX).map(|_| allowance.stream().unwrap()).collect();
        assert!(allowance.stream().is_err());
        drop(held);
        assert!(allowance.stream().is_ok());
        let _one = allowance.append().unwrap();
        assert!(allowance.append().is_err());
    }

    #[test]
    fn a_body_is_charged_once_and_the_next_one_is_told_when() {
        let (allowance, now) = (Allowance::new(), Instant::now());
        for _ in 0..11 {
            allowance.take_body(1000, now).unwrap();
            allowance.take_records(10_000, now);
        }
        // 10 000 more than the burst.
        let refused = allowance.take_body(1000, now);
        let wait = Duration::from_secs(50);
        assert!(
            matches!(&refused, Err(Error::Throttled { wait: found, .. }) if *found == wait),
            "{refused:?}"
        );
        assert_eq!(allowance.wait(1000, now), wait);
        let left = lock(&allowance.bytes).left;
        assert_eq!(left, BYTES_BURST - 11_000.0, "what is refused costs no bytes");
        allowance.take_body(1000, now + wait).unwrap();
        // Bytes alone.
        let allowance = Allowance::new();
        allowance.take_body(64 << 20, now).unwrap();
        assert_eq!(allowance.wait(512 << 10, now), Duration::from_secs(2));
        assert!(allowance.take_body(512 << 10, now + Duration::from_millis(1999)).is_err());
        allowance.take_body(512 << 10, now + Duration::from_secs(2)).unwrap();
    }

    /// Batches as large as may be, each as soon as it is let: the pace is that of the refill.
    #[test]
    fn ten_thousand_records_go_on_at_the_pace_of_the_budget() {
        let (allowance, began) = (Allowance::new(), Instant::now());
        allowance.take_records(100_000, began);
        let mut now = began;
        for _ in 0..5 {
            now += allowance.wait(300_000, now);
            allowance.take_body(300_000, now).unwrap();
            allowance.take_records(2000, now);
        }
        assert_eq!(now.duration_since(began).as_secs_f64().round(), 40.0);
    }

    proptest! {
        /// In any stretch of time no more is taken than the burst and what it refilled.
        #[test]
        fn a_budget_is_never_exceeded(steps in proptest::collection::vec((0_u64..3000, 0.0..8.0_f64), 1..200)) {
            let began = Instant::now();
            let mut budget = Budget::new(10.0, 2.0);
            let (mut now, mut taken) = (began, 0.0);
            for (wait_ms, amount) in steps {
                now += Duration::from_millis(wait_ms);
                if budget.take(amount, now).is_ok() {
                    taken += amount;
                }
                let allowed = 10.0 + 2.0 * now.duration_since(began).as_secs_f64();
                prop_assert!(taken <= allowed + 1e-6, "{taken} of {allowed}");
            }
        }
    }
}

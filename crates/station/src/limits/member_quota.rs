//! Budgets of one member for the use of this station; they refill with time (docs/spec/engine.md
//! §6).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barograph_engine::EngineError;
use barograph_limits::token_bucket::{Rate, TokenBucket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::lock;

/// The budgets of one member.
#[derive(Debug)]
pub(crate) struct MemberQuota {
    streams: Arc<Semaphore>,
    subscriptions: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    appends: Arc<Semaphore>,
    /// Time from which the times in the budgets are measured.
    began: Instant,
    records: Mutex<TokenBucket>,
    bytes: Mutex<TokenBucket>,
    registrations: Mutex<TokenBucket>,
}

/// A permit taken from the budget of a member; released when dropped.
pub(crate) type QuotaPermit = OwnedSemaphorePermit;

impl MemberQuota {
    /// Creates a quota with full budgets.
    pub(crate) fn new() -> Self {
        Self {
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            subscriptions: Arc::new(Semaphore::new(SUBSCRIPTIONS_MAX)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            appends: Arc::new(Semaphore::new(1)),
            began: Instant::now(),
            records: budget(RECORDS_BURST, RECORDS_PER_S),
            bytes: budget(BYTES_BURST, BYTES_PER_S),
            registrations: budget(REGISTRATIONS_BURST, REGISTRATIONS_PER_S),
        }
    }

    /// Charges a body of `bytes` bytes. Refuses the body while the budget of records is overdrawn.
    /// The records of a body are charged later, because their number is known only after the body
    /// was read. A body that was read is not refused any more.
    pub(crate) fn take_body(&self, bytes: usize, now: Instant) -> Result<(), EngineError> {
        let wait = lock(&self.records).wait(0, self.since(now));
        if !wait.is_zero() {
            let reason = format!("a member may append at most {RECORDS_PER_S} records a second on average");
            return Err(EngineError::Throttled { reason, wait });
        }
        let mut budget = lock(&self.bytes);
        budget.take(bytes as u64, self.since(now)).map_err(|_| {
            let kib = BYTES_PER_S / 1024;
            let reason = format!("a member may append at most {kib} KiB a second on average");
            EngineError::Throttled { reason, wait: budget.wait(bytes as u64, self.since(now)) }
        })
    }

    /// Charges the records of a body; this may overdraw their budget.
    pub(crate) fn take_records(&self, records: usize, now: Instant) {
        lock(&self.records).charge(records as u64, self.since(now));
    }

    /// Time until a further body of `bytes` bytes is accepted.
    pub(crate) fn wait(&self, bytes: usize, now: Instant) -> Duration {
        let records = lock(&self.records).wait(0, self.since(now));
        records.max(lock(&self.bytes).wait(bytes as u64, self.since(now)))
    }

    /// Charges a registration, or returns the time to wait before the next try.
    pub(crate) fn take_registration(&self, now: Instant) -> Result<(), EngineError> {
        lock(&self.registrations).take(1, self.since(now)).map_err(|wait| {
            let reason =
                format!("a member may register at most {REGISTRATIONS_PER_S} times a second on average");
            EngineError::Throttled { reason, wait }
        })
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Takes a permit for a stream. The error is the reason, as a sentence. The functions below
    /// work in the same way.
    pub(crate) fn stream(&self) -> Result<QuotaPermit, String> {
        let permit = Arc::clone(&self.streams).try_acquire_owned();
        permit.map_err(|_| format!("a member may have at most {STREAMS_MAX} open streams"))
    }

    /// Takes a permit for a subscription, which also needs a permit for its stream.
    pub(crate) fn subscription(&self) -> Result<QuotaPermit, String> {
        let permit = Arc::clone(&self.subscriptions).try_acquire_owned();
        permit.map_err(|_| format!("a member may have at most {SUBSCRIPTIONS_MAX} open subscriptions"))
    }

    pub(crate) fn request(&self) -> Result<QuotaPermit, String> {
        let permit = Arc::clone(&self.requests).try_acquire_owned();
        permit.map_err(|_| format!("a member may have at most {REQUESTS_MAX} requests in progress"))
    }

    /// Waits for a permit to read a page of the archive.
    pub(crate) async fn read(&self) -> Option<QuotaPermit> {
        // The semaphore is never closed.
        Arc::clone(&self.reads).acquire_owned().await.ok()
    }

    pub(crate) fn append(&self) -> Result<QuotaPermit, String> {
        let permit = Arc::clone(&self.appends).try_acquire_owned();
        permit.map_err(|_| "a member may have one append in progress; wait for its response".into())
    }
}

fn budget(burst: u64, per_s: u64) -> Mutex<TokenBucket> {
    Mutex::new(TokenBucket::new(Rate::per_s(per_s), Duration::from_secs(burst / per_s)))
}

/// Maximum number of open streams of one member: one for each group that an entry may have, and one
/// for each subscription. Each stream is a connection and takes some tens of KiB. All streams share
/// the events in the channel of the directory.
pub(crate) const STREAMS_MAX: usize = barograph_engine::Entry::GROUPS_MAX + SUBSCRIPTIONS_MAX;

/// Maximum number of open subscriptions of one member. Each subscription may read the whole
/// archive. A station needs no subscription for itself; a program needs one for each selector.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 16;

/// Maximum number of requests of one member at the same time: for a lease, an append, and a few
/// reads. A page of history may take 40 MB while it is sent.
pub(crate) const REQUESTS_MAX: usize = 8;

/// Maximum number of pages that the archive makes for one member at the same time. The archive
/// makes one page after the other, so more pages of one member would delay those of others.
pub(crate) const READS_MAX: usize = 2;

/// Rate and burst of the records of one member. A station with a hundred peers makes some tens of
/// records a second, so the burst covers an outage of half an hour or more. The rest of a longer
/// mesh spool (at most `mesh.spool_records_max` records) arrives at the rate.
pub(crate) const RECORDS_PER_S: u64 = 200;
pub(crate) const RECORDS_BURST: u64 = 100_000;

/// Rate and burst of the bytes that one member appends. A record with all details takes about 1
/// KiB; most records have no details.
pub(crate) const BYTES_PER_S: u64 = 256 * 1024;
pub(crate) const BYTES_BURST: u64 = 64 * 1024 * 1024;

/// Rate and burst of the registrations of one member. Each registration wakes all subscribers of
/// the directory; a station registers when its entry changes.
pub(crate) const REGISTRATIONS_PER_S: u64 = 1;
pub(crate) const REGISTRATIONS_BURST: u64 = 20;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn further_reads_of_a_member_wait_for_the_running_reads() {
        let quota = MemberQuota::new();
        let mut running = Vec::new();
        for _ in 0..READS_MAX {
            running.push(quota.read().await);
        }
        let further = quota.read();
        let waits = tokio::time::timeout(Duration::ZERO, quota.read()).await;
        assert!(waits.is_err());
        running.pop();
        assert!(further.await.is_some());
    }

    #[test]
    fn released_streams_become_available_again() {
        let quota = MemberQuota::new();
        let held: Vec<_> = (0..STREAMS_MAX).map(|_| quota.stream().unwrap()).collect();
        assert!(quota.stream().is_err());
        drop(held);
        assert!(quota.stream().is_ok());
        let _one = quota.append().unwrap();
        assert!(quota.append().is_err());
    }

    #[test]
    fn a_body_is_charged_once_and_a_refused_body_gets_a_retry_time() {
        let (quota, now) = (MemberQuota::new(), Instant::now());
        for _ in 0..11 {
            quota.take_body(1000, now).unwrap();
            quota.take_records(10_000, now);
        }
        // The member has appended 10 000 records more than the burst.
        let refused = quota.take_body(1000, now);
        let wait = Duration::from_secs(50);
        assert!(
            matches!(&refused, Err(EngineError::Throttled { wait: found, .. }) if *found == wait),
            "{refused:?}"
        );
        assert_eq!(quota.wait(1000, now), wait);
        let spent = lock(&quota.bytes).wait(BYTES_BURST, quota.since(now)).as_secs_f64();
        assert_eq!((spent * BYTES_PER_S as f64).round(), 11_000.0, "what is refused costs no bytes");
        quota.take_body(1000, now + wait).unwrap();
        // In this case only the budget of bytes limits the member.
        let (quota, now) = (MemberQuota::new(), Instant::now());
        quota.take_body(64 << 20, now).unwrap();
        assert_eq!(quota.wait(512 << 10, now), Duration::from_secs(2));
        assert!(quota.take_body(512 << 10, now + Duration::from_millis(1999)).is_err());
        quota.take_body(512 << 10, now + Duration::from_secs(2)).unwrap();
    }

    /// Appends each batch as early as allowed: the records are then accepted at the refill rate of
    /// the budget.
    #[test]
    fn after_the_burst_records_are_accepted_at_the_rate_of_the_budget() {
        let (quota, began) = (MemberQuota::new(), Instant::now());
        quota.take_records(100_000, began);
        let mut now = began;
        for _ in 0..5 {
            now += quota.wait(300_000, now);
            quota.take_body(300_000, now).unwrap();
            quota.take_records(2000, now);
        }
        assert_eq!(now.duration_since(began).as_secs_f64().round(), 40.0);
    }
}

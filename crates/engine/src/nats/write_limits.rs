//! Limits the writes of each station through an archive: a station with many writes delays its own
//! writes, not those of others, and not the answers to questions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_limits::token_bucket::{Rate, TokenBucket};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::EngineError;

/// Limits for all stations together, and limits for each station.
#[derive(Debug)]
pub(super) struct WriteLimits {
    /// Limits of each station, by the token in the request's subject. The servers' permissions let
    /// each station use only its own token.
    each: Mutex<HashMap<String, WriterLimits>>,
    /// Time from which the times in the budgets are measured.
    began: Instant,
    appends: Arc<Semaphore>,
    registrations: Arc<Semaphore>,
    stored: Arc<Semaphore>,
}

/// Limits of one station.
#[derive(Debug)]
struct WriterLimits {
    appends: Arc<Semaphore>,
    registrations: Arc<Semaphore>,
    turn: Arc<Semaphore>,
    requests_budget: TokenBucket,
    records_budget: TokenBucket,
    bytes_budget: TokenBucket,
    registrations_budget: TokenBucket,
}

/// What a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Append,
    Registration,
}

/// A write without an answer. The write counts as answered when this value is dropped.
#[derive(Debug)]
pub(super) struct PendingWrite {
    turn: Arc<Semaphore>,
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// Permission to store the records of one request. The permission ends when this value is dropped.
#[derive(Debug)]
pub(super) struct StorePermit {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl WriteLimits {
    pub(super) fn new() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            each: Mutex::default(),
            began: Instant::now(),
            appends: semaphore(WRITES_MAX),
            registrations: semaphore(WRITES_MAX),
            stored: semaphore(STORED_AT_ONCE),
        }
    }

    /// Returns whether a request of `requester` is answered at all, as
    /// [`RequestLimits::admits`](super::request_limits::RequestLimits::admits).
    pub(super) fn admits(&self, requester: &str) -> bool {
        let now = self.began.elapsed();
        self.with_limits(requester, |limits| limits.requests_budget.take(1, now).is_ok())
    }

    /// Charges a request of `bytes` bytes, and reserves a slot for it. Refuses records while the
    /// budget of records is overdrawn, because the number of records is known only after the
    /// request was read.
    pub(super) fn reserve(
        &self,
        requester: &str,
        kind: WriteKind,
        bytes: usize,
    ) -> Result<PendingWrite, EngineError> {
        let now = self.began.elapsed();
        self.with_limits(requester, |limits| {
            let (own, all) = match kind {
                WriteKind::Append => (&limits.appends, &self.appends),
                WriteKind::Registration => (&limits.registrations, &self.registrations),
            };
            let too_many = |whose: &str| {
                let why = format!("too many writes {whose} are pending");
                match kind {
                    WriteKind::Append => no_room(why),
                    WriteKind::Registration => EngineError::Unavailable(why),
                }
            };
            let own = Arc::clone(own).try_acquire_owned().map_err(|_| too_many("of this station"))?;
            let of_all = Arc::clone(all).try_acquire_owned().map_err(|_| too_many("of all stations"))?;
            limits.charge(kind, bytes, now)?;
            Ok(PendingWrite { turn: Arc::clone(&limits.turn), _own: own, _of_all: of_all })
        })
    }

    /// Charges the records of a request; this may overdraw their budget.
    pub(super) fn charge_records(&self, requester: &str, records: usize) {
        let now = self.began.elapsed();
        self.with_limits(requester, |limits| limits.records_budget.charge(records as u64, now));
    }

    /// Waits for permission to store records. The requests of one station are stored one after the
    /// other, so each station waits for at most one request of every other station. `None` if the
    /// archive stops.
    pub(super) async fn permit(&self, pending: &PendingWrite) -> Option<StorePermit> {
        let own = Arc::clone(&pending.turn).acquire_owned().await.ok()?;
        Some(StorePermit { _own: own, _of_all: Arc::clone(&self.stored).acquire_owned().await.ok()? })
    }

    fn with_limits<T>(&self, requester: &str, work: impl FnOnce(&mut WriterLimits) -> T) -> T {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        if each.len() >= WRITERS_MAX {
            let now = self.began.elapsed();
            each.retain(|_, limits| !limits.is_unused(now));
        }
        work(each.entry(requester.to_owned()).or_insert_with(WriterLimits::new))
    }
}

impl WriterLimits {
    fn new() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let budget =
            |burst: u64, per_s: u64| TokenBucket::new(Rate::per_s(per_s), Duration::from_secs(burst / per_s));
        Self {
            appends: semaphore(APPENDS_EACH),
            registrations: semaphore(REGISTRATIONS_EACH),
            turn: semaphore(1),
            requests_budget: budget(REQUESTS_BURST, REQUESTS_PER_S),
            records_budget: budget(RECORDS_BURST, RECORDS_PER_S),
            bytes_budget: budget(BYTES_BURST, BYTES_PER_S),
            registrations_budget: budget(REGISTRATIONS_BURST, REGISTRATIONS_PER_S),
        }
    }

    fn charge(&mut self, kind: WriteKind, bytes: usize, now: Duration) -> Result<(), EngineError> {
        let throttled = |what: String| {
            move |wait| EngineError::Throttled { reason: format!("a station may {what} on average"), wait }
        };
        match kind {
            WriteKind::Append => {
                let wait = self.records_budget.wait(0, now);
                if !wait.is_zero() {
                    return Err(throttled(format!("append at most {RECORDS_PER_S} records a second"))(wait));
                }
                let kib = BYTES_PER_S >> 10;
                let too_long = throttled(format!("append at most {kib} KiB a second"));
                self.bytes_budget.take(bytes as u64, now).map_err(too_long)
            }
            WriteKind::Registration => {
                let too_often = throttled(format!("register at most {REGISTRATIONS_PER_S} times a second"));
                self.registrations_budget.take(1, now).map_err(too_often)
            }
        }
    }

    /// Whether a new value would have the same limits.
    fn is_unused(&self, now: Duration) -> bool {
        let budgets =
            [&self.requests_budget, &self.records_budget, &self.bytes_budget, &self.registrations_budget];
        let slots = [&self.appends, &self.registrations, &self.turn];
        budgets.into_iter().all(|budget| budget.is_full(now))
            && slots.into_iter().all(|slots| Arc::strong_count(slots) == 1)
    }
}

/// Time that the rate limits require for records and bytes that exceed their bursts.
pub(super) fn append_time(records: usize, bytes: usize) -> Duration {
    let time = |amount: usize, per_s: u64| Duration::from_secs_f64(amount as f64 / per_s as f64);
    time(records, RECORDS_PER_S).max(time(bytes, BYTES_PER_S))
}

/// Error of a request to append if the archive has no room: the station repeats only this request.
pub(super) fn no_room(reason: String) -> EngineError {
    EngineError::Throttled { reason, wait: NO_ROOM_WAIT }
}

/// Wait before a request for which the archive had no room is repeated. The repetitions are few: a
/// station sends one request at a time after its first wait.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

/// Largest number of pending requests of one station to append: enough for a station far away.
pub(super) const APPENDS_EACH: usize = 8;

/// Largest number of pending writes of one registration: a station repeats a write that has no
/// answer yet.
const REGISTRATIONS_EACH: usize = 8;

/// Largest number of pending requests of all stations, of each kind. They have at most 20 KiB each.
const WRITES_MAX: usize = 512;

/// Largest number of requests to append that are executed at the same time. Each takes a
/// subscription at the servers. Together the requests that one archive executes have fewer records
/// than the messages that may wait for a stream (`max_buffered_msgs` in `deploy/nats`). The servers
/// may refuse records of several busy archives; the stations then send these records again.
const STORED_AT_ONCE: usize = 8;

/// Requests of one station that are answered, per second, and their burst. A station that forwards
/// many records sends fewer, because its requests are executed one after the other.
const REQUESTS_PER_S: u64 = 400;
const REQUESTS_BURST: u64 = 2000;

/// Budgets of one station: of records and bytes the same as of a member over HTTP
/// (docs/spec/engine.md §6, `member_quota.rs` of barograph-station).
const RECORDS_PER_S: u64 = 200;
const RECORDS_BURST: u64 = 100_000;
const BYTES_PER_S: u64 = 256 << 10;
const BYTES_BURST: u64 = 64 << 20;

/// Registrations of one station per second, with renewals and deletions, and their burst. A station
/// with the shortest lease renews its registration three times a second.
const REGISTRATIONS_PER_S: u64 = 4;
const REGISTRATIONS_BURST: u64 = 80;

/// Largest number of stations with limits in memory. If there are more, unused limits are removed.
const WRITERS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn the_tighter_limit_determines_the_time_of_an_append() {
        assert_eq!(append_time(10_000, 1), Duration::from_secs(50));
        assert_eq!(append_time(1, 100 << 20), Duration::from_secs(400));
    }

    #[tokio::test(start_paused = true)]
    async fn the_writes_of_one_station_are_limited() {
        let limits = WriteLimits::new();
        let append = |bytes| limits.reserve("greedy", WriteKind::Append, bytes);
        let wait_for = |refused: Result<PendingWrite, EngineError>| match refused {
            Err(EngineError::Throttled { wait, .. }) => wait,
            other => panic!("{other:?}"),
        };
        limits.charge_records("greedy", 100_200);
        let wait = wait_for(append(1));
        assert_eq!(wait, Duration::from_secs(1), "200 records are owed");
        tokio::time::advance(wait).await;
        let chunk = 16 << 20;
        assert!((0..4).all(|_| append(chunk).is_ok()));
        let wait = wait_for(append(256 << 10));
        assert_eq!(wait, Duration::from_secs(1));
        let register = || limits.reserve("greedy", WriteKind::Registration, 300);
        assert_eq!((0..90).filter(|_| register().is_ok()).count(), 80);
        assert_eq!(wait_for(register()), Duration::from_millis(250));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(append(256 << 10).is_ok());
        assert_eq!((0..9).filter(|_| register().is_ok()).count(), 4);
        assert_eq!((0..9000).filter(|_| limits.admits("greedy")).count(), 2000);
        assert!(limits.admits("honest") && limits.reserve("honest", WriteKind::Append, chunk).is_ok());
        limits.charge_records("greedy", 10_000);
        for other in 0..2 * WRITERS_MAX {
            tokio::time::advance(Duration::from_millis(10)).await;
            assert!(limits.admits(&other.to_string()));
        }
        assert!(limits.each.lock().unwrap().len() <= WRITERS_MAX);
        assert!(wait_for(append(1)) > Duration::from_secs(20), "the debt is kept while the map is full");
    }

    /// The shortest lease is 1 s, and a registration is renewed after a third of its lease.
    #[tokio::test(start_paused = true)]
    async fn renewals_of_the_shortest_lease_are_not_limited() {
        let limits = WriteLimits::new();
        for renewal in 0..3 * 180 {
            let reserved = limits.reserve("north", WriteKind::Registration, 300);
            assert!(reserved.is_ok(), "renewal {renewal}: {reserved:?}");
            tokio::time::advance(Duration::from_secs(1) / 3).await;
        }
    }

    #[test]
    fn the_documented_limits_match_the_code() {
        let document = include_str!("../../../../docs/limits.md");
        let (kib, mib) = (BYTES_PER_S >> 10, BYTES_BURST >> 20);
        for row in [
            format!("| requests to append that wait | {APPENDS_EACH} | {WRITES_MAX} |"),
            format!("| requests to register that wait | {REGISTRATIONS_EACH} | {WRITES_MAX} |"),
            format!("| requests to append that are executed | 1 | {STORED_AT_ONCE} |"),
            format!(
                "| requests to write; further ones get no answer | {REQUESTS_PER_S} a second, after {REQUESTS_BURST} | – |"
            ),
            format!("| records appended | {RECORDS_PER_S} a second, after {RECORDS_BURST} | – |"),
            format!("| bytes appended | {kib} KiB a second, after {mib} MiB | – |"),
            format!("| registrations | {REGISTRATIONS_PER_S} a second, after {REGISTRATIONS_BURST} | – |"),
        ] {
            assert!(document.contains(&row), "docs/limits.md has no row {row}");
        }
    }

    #[tokio::test]
    async fn stations_take_turns_to_store_records() {
        let limits = WriteLimits::new();
        let reserve = |name: &str| limits.reserve(name, WriteKind::Append, 1);
        let greedy: Vec<_> = (0..APPENDS_EACH).map(|_| reserve("greedy").unwrap()).collect();
        let wait = Duration::from_secs(1);
        let no_room = |refused: Result<PendingWrite, EngineError>| matches!(refused, Err(EngineError::Throttled { wait: found, .. }) if found == wait);
        assert!(no_room(reserve("greedy")));
        assert!(limits.reserve("greedy", WriteKind::Registration, 1).is_ok(), "appends delay no renewal");
        let mut turns: Vec<_> = greedy.iter().map(|pending| Box::pin(limits.permit(pending))).collect();
        let taken: Vec<_> = turns.iter_mut().filter_map(|turn| turn.now_or_never()).collect();
        assert_eq!(taken.len(), 1, "one request of a station is stored at a time");
        let others: Vec<_> = (1..STORED_AT_ONCE).map(|index| reserve(&index.to_string()).unwrap()).collect();
        let held: Vec<_> =
            others.iter().map(|pending| limits.permit(pending).now_or_never().unwrap()).collect();
        let honest = reserve("honest").unwrap();
        let mut next = Box::pin(limits.permit(&honest));
        assert!((&mut next).now_or_never().is_none(), "all permissions are in use");
        drop(taken);
        assert!(
            turns[1].as_mut().now_or_never().is_none(),
            "a second one of the greedy waits behind the honest"
        );
        assert!(next.await.is_some());
        drop((held, turns));
        let stations: Vec<_> = (0..WRITES_MAX / APPENDS_EACH).map(|index| format!("s{index}")).collect();
        drop((greedy, others, honest));
        let all: Vec<_> =
            stations.iter().flat_map(|name| (0..APPENDS_EACH).map(|_| reserve(name).unwrap())).collect();
        assert_eq!(all.len(), WRITES_MAX);
        assert!(no_room(reserve("late")));
    }
}

//! Subscriptions. Each subscription reads the records in the order of storing, as fast as its
//! subscriber reads them. After the newest record, the subscription sleeps.
//!
//! Nothing is buffered for a slow subscriber, so subscribers cost no memory. A subscription is a
//! scan if few of the records that it reads match. A scan loads the archive, and hardly loads its
//! subscriber. Scans run one at a time, and together for at most half of the time; the other half
//! is for other reads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::read::{Reader, RecordRange};
use crate::{BoxStream, Cursor, EngineError, Record, Selector, StartAt};

/// A subscription and its position.
pub(super) struct Subscription {
    reader: Reader,
    selector: Selector,
    head: watch::Receiver<u64>,
    /// All records up to this position were read.
    position: u64,
    /// Highest position that retention had removed at the last read. `None` before the first read,
    /// because earlier removals are not reported.
    removed: Option<u64>,
    /// Largest number of records by which the subscription may be behind. A subscription that is
    /// further behind continues after the newest record. `None` = no limit.
    lag: Option<u64>,
    /// Last position of the subscription; `None` if it does not end.
    until: Option<u64>,
    ready: VecDeque<Result<(Cursor, Record), EngineError>>,
    /// Whether the subscription is a scan: the last range had its full length, and few records in
    /// the range matched.
    is_scan: bool,
    ended: bool,
}

impl Subscription {
    pub(super) fn new(
        reader: Reader,
        head: watch::Receiver<u64>,
        selector: &Selector,
        from: StartAt,
        lag: u64,
    ) -> Self {
        let now = *head.borrow();
        let (position, removed, lag) = match from {
            StartAt::Now => (now, Some(0), Some(lag)),
            StartAt::Oldest => (0, None, None),
            StartAt::After(Cursor(position)) => (position, Some(0), None),
        };
        let mut subscription = Self {
            reader,
            selector: selector.clone(),
            head,
            position,
            removed,
            lag,
            until: None,
            ready: VecDeque::new(),
            is_scan: false,
            ended: false,
        };
        if now < position {
            let error = format!("cursor {position} is beyond the end of this archive, {now}");
            subscription.fail(EngineError::Invalid(error));
        }
        subscription
    }

    /// Makes the stream end after the newest record that is stored now.
    pub(super) fn until_now(mut self) -> Self {
        self.until = Some(*self.head.borrow());
        self
    }

    pub(super) fn into_stream(self) -> BoxStream<(Cursor, Record)> {
        Box::pin(stream::unfold(self, |mut subscription| async {
            let item = subscription.next().await?;
            Some((item, subscription))
        }))
    }

    async fn next(&mut self) -> Option<Result<(Cursor, Record), EngineError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            let head = self.until.unwrap_or(*self.head.borrow_and_update());
            if let Some(lag) = self.lag
                && lag < head - self.position
            {
                let missed = head - std::mem::replace(&mut self.position, head);
                return Some(Err(EngineError::Lagged { missed }));
            }
            if self.position < head {
                self.read_on(head).await;
            } else if self.until.is_some() {
                return None;
            } else if self.head.changed().await.is_err() {
                self.fail(EngineError::Unavailable("the archive was closed".into()));
            }
        }
    }

    async fn read_on(&mut self, head: u64) {
        let until = head.min(self.position + RANGE_RECORDS);
        match self.read_range(until).await {
            Ok(range) => {
                let seen = self.removed.replace(range.removed).unwrap_or(range.removed).max(self.position);
                if seen < range.removed {
                    self.ready.push_back(Err(EngineError::Lagged { missed: range.removed - seen }));
                }
                self.is_scan = is_scan(&range) && until == self.position + RANGE_RECORDS;
                self.ready.extend(range.records.into_iter().map(Ok));
                self.position = until;
            }
            Err(error) => self.fail(error),
        }
    }

    /// Reads up to `until`. A scan first waits for the lock of scans. If few records matched again,
    /// the scan keeps the lock after the read, for the same time that the read took.
    ///
    /// The read runs on a task of its own: if the subscriber's peer does not read, the subscriber
    /// is not polled, and must not block the lock or the connection meanwhile. If the subscriber is
    /// dropped, a waiting read does not start; a running read completes and releases the lock.
    async fn read_range(&self, until: u64) -> Result<RecordRange, EngineError> {
        let (reader, selector) = (self.reader.clone(), self.selector.clone());
        let (position, was_scan) = (self.position, self.is_scan);
        let mut read = JoinSet::new();
        read.spawn(async move {
            let lock = if was_scan { Some(Arc::clone(&reader.scan).lock_owned().await) } else { None };
            let began = Instant::now();
            let (range, _lock) = reader.read_record_range(&selector, position, until, lock).await?;
            if was_scan && is_scan(&range) {
                tokio::time::sleep(began.elapsed()).await;
            }
            Ok(range)
        });
        let read = read.join_next().await.expect("one was spawned");
        read.map_err(|error| EngineError::Unavailable(format!("the read was interrupted: {error}")))?
    }

    fn fail(&mut self, error: EngineError) {
        self.ready.push_back(Err(error));
        self.ended = true;
    }
}

/// Returns whether few of the records in the range matched.
fn is_scan(range: &RecordRange) -> bool {
    (range.records.len() as u64) < RANGE_RECORDS / SCAN_SHARE
}

/// Largest number of positions in one read. Such a read takes some milliseconds, so other readers
/// wait only briefly.
const RANGE_RECORDS: u64 = 1024;
/// Divisor: if less than an eighth of the range matches, the subscription is a scan, which loads
/// the archive more than its subscriber.
const SCAN_SHARE: u64 = 8;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
    use futures_util::{FutureExt as _, StreamExt as _};
    use tokio::time::timeout;

    use super::*;
    use crate::{Engine as _, Local, LocalConfig, Range};

    fn name() -> Name {
        Name::new("a").unwrap()
    }

    fn records(count: u64) -> Vec<Record> {
        let series = SeriesId { source: name(), target: name(), quantity: Quantity::RTT };
        let record = |seq| Record {
            origin: name(),
            seq,
            series: series.clone(),
            time_unix_ns: 1,
            outcome: Outcome::Value(1.0),
            detail: String::new(),
        };
        (1..=count).map(record).collect()
    }

    fn open(state: &tempfile::TempDir) -> Local {
        Local::open(LocalConfig { keep: Duration::MAX, ..LocalConfig::new(state.path()) }).unwrap()
    }

    fn walk(engine: &Local, source: &str) -> BoxStream<(Cursor, Record)> {
        let selector = Selector { source: Some(Name::new(source).unwrap()), ..Selector::default() };
        let (reader, head) = (engine.reader.clone(), engine.head.clone());
        Subscription::new(reader, head, &selector, StartAt::Oldest, 1).until_now().into_stream()
    }

    /// Starts a read that keeps the connection until the sender is dropped.
    async fn occupy(
        engine: &Local,
    ) -> (std::sync::mpsc::Sender<()>, tokio::task::JoinHandle<Result<(), EngineError>>) {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let reader = engine.reader.clone();
        let busy = tokio::spawn(async move {
            let wait = move |_: &rusqlite::Connection| {
                let _ = released.recv_timeout(LIMIT);
                Ok(())
            };
            reader.read(wait).await
        });
        tokio::task::yield_now().await;
        (release, busy)
    }

    #[tokio::test]
    async fn only_a_subscription_with_few_matches_waits_for_the_scan_lock() {
        let state = tempfile::tempdir().unwrap();
        let engine = open(&state);
        let count = 4 * RANGE_RECORDS;
        engine.append(&records(count)).await.unwrap();
        let lock = Arc::clone(&engine.reader.scan).lock_owned().await;
        let scan = tokio::spawn(walk(&engine, "nobody").count());
        assert_eq!(timeout(LIMIT, walk(&engine, "a").count()).await, Ok(count as usize));
        assert!(!scan.is_finished(), "another one scans");
        drop(lock);
        assert_eq!(timeout(LIMIT, scan).await.unwrap().unwrap(), 0);
    }

    #[tokio::test]
    async fn an_unpolled_subscriber_does_not_block_other_reads() {
        let state = tempfile::tempdir().unwrap();
        let engine = open(&state);
        let records = records(1);
        engine.append(&records).await.unwrap();
        let (release, busy) = occupy(&engine).await;
        let mut stalled = walk(&engine, "a");
        assert!(stalled.next().now_or_never().is_none(), "it waits for the connection");
        drop(release);
        let found = timeout(LIMIT, engine.history(&records[0].series, &Range::newest(1))).await;
        assert_eq!(found.unwrap().unwrap().items, records);
        busy.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn reads_of_dropped_subscribers_end() {
        let state = tempfile::tempdir().unwrap();
        let engine = open(&state);
        engine.append(&records(1)).await.unwrap();
        let (release, busy) = occupy(&engine).await;
        let holders = || Arc::strong_count(&engine.reader.scan);
        let before = holders();
        for _ in 0..100 {
            let mut gone = walk(&engine, "nobody");
            assert!(gone.next().now_or_never().is_none(), "it waits for the connection");
        }
        let ended = async {
            while before < holders() {
                tokio::task::yield_now().await;
            }
        };
        timeout(LIMIT, ended).await.expect("all their reads have ended");
        drop(release);
        busy.await.unwrap().unwrap();
    }

    const LIMIT: Duration = Duration::from_secs(20);
}

//! The storage thread: collects appends into groups, commits them, and runs retention in between.
//!
//! The thread sleeps without a timer while it has no work.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tracing::warn;

use super::LocalStatistics;
use super::forwarded::{AppendMode, ForwardedCounts};
use super::spool::Request;
use super::store::{BatchResult, Store};
use super::sweep::Sweep;
use crate::{EngineError, Record, TaskStatus};

pub(super) enum Command {
    Append(Append),
    /// Run retention to its end.
    Sweep(SweepReply),
    /// Execute a request about the spool.
    Spool(Request),
    /// Commit and stop. The reply is sent when the archive is closed.
    Close(oneshot::Sender<()>),
}

/// Receives the number of removed records.
pub(super) type SweepReply = oneshot::Sender<Result<u64, EngineError>>;

/// A batch that waits for its commit.
pub(super) struct Append {
    pub(super) batch: Vec<Record>,
    pub(super) mode: AppendMode,
    /// Permit for the bytes that the batch takes of the queue. It is released after the commit.
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) reply: oneshot::Sender<Result<ForwardedCounts, EngineError>>,
}

/// Statistics that the storage thread shares with its callers.
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<LocalStatistics>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, LocalStatistics> {
        // The values do not depend on each other, so they are valid even after a panic of a
        // different lock holder.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Writer {
    pub(super) store: Store,
    pub(super) commands: Receiver<Command>,
    pub(super) interval: Duration,
    /// Position of the newest record, for subscribers.
    pub(super) head: watch::Sender<u64>,
    pub(super) statistics: Shared,
}

impl Writer {
    /// Runs the storage thread until the archive is closed or all senders are dropped.
    pub(super) fn run(mut self, task: &TaskStatus) {
        let mut group = CommitGroup::default();
        let mut run: Option<RetentionRun> = None;
        let mut commit_at = Instant::now();
        let mut sweep_at = Instant::now();
        let mut sweep_early_at = sweep_at;
        loop {
            task.kill_point();
            match self.next(&group, commit_at, run.is_some()) {
                Ok(Command::Append(append)) => {
                    group.push(append);
                    // Add further appends in the queue to the same commit, until the group is full.
                    if group.bytes < GROUP_BYTES {
                        continue;
                    }
                }
                Ok(Command::Sweep(reply)) => {
                    run.get_or_insert_with(|| RetentionRun::new(&mut self.store)).replies.push(reply);
                    continue;
                }
                Ok(Command::Spool(request)) => {
                    if request.follows_appends() {
                        self.commit(&mut group);
                    }
                    let answer = request.run(&mut self.store);
                    self.publish();
                    answer();
                    continue;
                }
                Ok(Command::Close(reply)) => {
                    self.commit(&mut group);
                    drop(self);
                    // The caller may have stopped waiting.
                    let _ = reply.send(());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return self.commit(&mut group),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if group.is_due(commit_at, now) {
                commit_at = now + self.interval;
                self.commit(&mut group);
                let is_due = sweep_at <= now || (sweep_early_at <= now && self.has_outgrown());
                if run.is_none() && is_due {
                    run = Some(RetentionRun::new(&mut self.store));
                }
            }
            if let Some(removed) = self.step(&mut run) {
                sweep_at = now + SWEEP_EVERY;
                // A run costs the same time even if no record is removed. After such a run, the
                // next run waits for the usual interval.
                let is_vain = removed == 0 && self.has_outgrown();
                sweep_early_at = if is_vain { sweep_at } else { now + SWEEP_EARLY };
            }
        }
    }

    /// Returns whether the archive exceeds its limit by more than a sixteenth.
    fn has_outgrown(&self) -> bool {
        let keep = self.store.retention.keep_bytes;
        self.store.bytes().is_ok_and(|bytes| keep.saturating_add(keep / OUTGROWN) < bytes)
    }

    /// Returns the next command, or a timeout when other work is due.
    fn next(
        &self,
        group: &CommitGroup,
        commit_at: Instant,
        is_sweeping: bool,
    ) -> Result<Command, RecvTimeoutError> {
        if group.is_empty() && !is_sweeping {
            return self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected);
        }
        let wait = if is_sweeping || group.is_worth_it() {
            Duration::ZERO
        } else {
            commit_at.saturating_duration_since(Instant::now())
        };
        self.commands.recv_timeout(wait)
    }

    fn commit(&mut self, group: &mut CommitGroup) {
        if group.is_empty() {
            return;
        }
        let began = Instant::now();
        let batches: Vec<_> =
            group.appends.iter().map(|append| (append.batch.as_slice(), append.mode)).collect();
        let result = self.store.append(&batches);
        self.record_commit(began.elapsed(), result.as_ref().err());
        self.add_counts(result.as_deref().unwrap_or_default());
        self.publish();
        let CommitGroup { appends, .. } = std::mem::take(group);
        let results = match result {
            Ok(results) => results,
            Err(error) => vec![Err(error); appends.len()],
        };
        for (Append { permit, reply, .. }, result) in appends.into_iter().zip(results) {
            drop(permit);
            // Ignore a caller that stopped waiting: the caller repeats the append, which stores
            // nothing twice.
            let _ = reply.send(result.map(|(counts, _)| counts));
        }
    }

    /// Counts the results of the batches of a commit.
    fn add_counts(&self, results: &[Result<BatchResult, EngineError>]) {
        let mut statistics = self.statistics.lock();
        for result in results {
            match result {
                Ok((counts, dropped_by_cause)) => {
                    statistics.discarded += counts.discarded;
                    statistics.refused += counts.refused;
                    statistics.dropped_by_cause.add(*dropped_by_cause);
                }
                Err(EngineError::Unavailable(_)) => statistics.spool_rejections += 1,
                Err(_) => {}
            }
        }
    }

    /// Records the result of a commit.
    fn record_commit(&self, duration: Duration, error: Option<&EngineError>) {
        let mut statistics = self.statistics.lock();
        match error {
            None => {
                statistics.commits += 1;
                statistics.last_commit = Some(duration);
            }
            // A disk that stays full is logged once.
            Some(error) if statistics.last_error.as_ref() != Some(error) => warn!(%error, "a commit failed"),
            Some(_) => {}
        }
        statistics.last_error = error.cloned();
    }

    /// Does one step of the run of retention, if there is a run. Returns the number of removed
    /// records when the run ends; 0 if the run failed.
    fn step(&mut self, run: &mut Option<RetentionRun>) -> Option<u64> {
        let current = run.as_mut()?;
        let result = match current.sweep.step(&mut self.store) {
            Ok(false) => return None,
            Ok(true) => Ok(current.sweep.removed),
            Err(error) => {
                warn!(%error, "retention stopped before its end");
                self.statistics.lock().last_error = Some(error.clone());
                Err(error)
            }
        };
        self.publish();
        for reply in run.take().into_iter().flat_map(|ended| ended.replies) {
            let _ = reply.send(result.clone());
        }
        Some(result.unwrap_or(0))
    }

    /// Publishes the state of the archive to subscribers and statistics.
    pub(super) fn publish(&self) {
        let Some(index) = self.store.index() else { return };
        {
            let mut statistics = self.statistics.lock();
            statistics.records = index.records;
            statistics.series = index.series.len() as u64;
            let spool = index.spool.as_ref();
            statistics.spooled = spool.map_or(0, |spool| spool.count);
            statistics.spooled_resend = spool.map_or(0, |spool| spool.resend);
            if let Ok(bytes) = self.store.bytes() {
                statistics.bytes = bytes;
            }
        }
        self.head.send_if_modified(|head| std::mem::replace(head, index.cursor) != index.cursor);
    }
}

/// A run of retention, and the callers that wait for its end.
struct RetentionRun {
    sweep: Sweep,
    replies: Vec<SweepReply>,
}

impl RetentionRun {
    fn new(store: &mut Store) -> Self {
        Self { sweep: Sweep::new(store), replies: Vec::new() }
    }
}

/// Appends that will share a transaction.
#[derive(Default)]
struct CommitGroup {
    appends: Vec<Append>,
    records: usize,
    bytes: usize,
}

impl CommitGroup {
    fn push(&mut self, append: Append) {
        self.records += append.batch.len();
        self.bytes += append.permit.num_permits();
        self.appends.push(append);
    }

    fn is_empty(&self) -> bool {
        self.appends.is_empty()
    }

    /// Returns whether the group is so large that waiting for further appends saves nothing.
    fn is_worth_it(&self) -> bool {
        self.records >= GROUP_RECORDS || self.bytes >= GROUP_BYTES
    }

    fn is_due(&self, commit_at: Instant, now: Instant) -> bool {
        !self.is_empty() && (commit_at <= now || self.is_worth_it())
    }
}

/// Number of records in a group at which the group is committed without waiting for further
/// appends.
const GROUP_RECORDS: usize = 1000;

/// Size in bytes at which no further append is added to a group, so that a transaction takes less
/// than a second.
const GROUP_BYTES: usize = 4 << 20;

/// Interval of retention runs. A record may be kept longer than its age permits, by at most this
/// interval.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Shortest time between two runs while the archive grows fast: each run reads a little of every
/// series.
const SWEEP_EARLY: Duration = Duration::from_secs(1);

/// Divisor of the archive's limit: early retention begins when the archive exceeds its limit by a
/// sixteenth. At a usual rate of appends this happens rarely, and it happens long before a disk
/// with some free space is full.
const OUTGROWN: u64 = 16;

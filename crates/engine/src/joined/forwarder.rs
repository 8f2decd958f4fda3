//! Forwards the spool to the mesh, one batch at a time. If the mesh's watermark does not advance,
//! sending restarts from the watermark.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::waits::{SplitMix, limited};
use super::{CONFIRM_EVERY_MAX, JoinedConfig, State, possible};
use crate::log_limiter::LogLimiter;
use crate::{Engine, EngineError, HostId, Local, Record};

/// State of the forwarding. Every number is a sequence number of this station.
pub(super) struct Forwarder {
    host: HostId,
    local: Arc<Local>,
    mesh: Arc<dyn Engine>,
    state: State,
    head: watch::Receiver<u64>,
    confirm_every: Duration,
    random: SplitMix,
    /// Watermark of the mesh that the station's archive has recorded.
    passed: u64,
    /// Watermark of the mesh at the last read.
    watermark: u64,
    /// Highest sequence number of this station that the mesh has stored; 0 if unknown. The
    /// forwarder reads this number only for gaps above [`Record::SEQ_JUMP_MAX`].
    mesh_highest: u64,
    /// The mesh's engine has acknowledged all records up to this number.
    sent: u64,
    /// Lowest number below `sent` that the station has neither stored nor skipped; `None` if there
    /// is none. A record with this number may still be appended.
    first_gap: Option<u64>,
    /// When the watermark last changed, or sending began.
    moved: Instant,
    /// When to read the watermark next.
    confirm_at: Instant,
    /// Number up to which missing numbers will never get a record.
    final_until: u64,
    /// A time, and the station's highest sequence number at that time. Once [`FINAL_AFTER`] has
    /// passed since that time, missing numbers up to that number will never get a record.
    highest: (Instant, u64),
    /// Limit of the random part of the wait after the next failure.
    delay: Duration,
    /// The mesh's engine accepts nothing before this time.
    throttled_until: Instant,
    /// Last time at which the mesh accepted a record, or at which no record waited.
    progressed: Instant,
    log_limiter: LogLimiter,
}

impl Forwarder {
    pub(super) fn new(
        config: JoinedConfig,
        local: Arc<Local>,
        mesh: Arc<dyn Engine>,
        state: State,
        (passed, highest): (u64, u64),
    ) -> Self {
        let JoinedConfig { host, confirm_every, seed, .. } = config;
        // Each process has its own seed, so that stations do not reconnect all at the same time.
        let random = SplitMix(seed.unwrap_or_else(|| RandomState::new().hash_one(host.as_str())));
        let head = local.head();
        Self {
            host,
            local,
            mesh,
            state,
            head,
            confirm_every,
            random,
            passed,
            watermark: 0,
            mesh_highest: 0,
            sent: 0,
            first_gap: None,
            moved: Instant::now(),
            confirm_at: Instant::now(),
            // The process that assigned these numbers has ended, so it appends no more records.
            final_until: highest,
            highest: (Instant::now(), highest),
            delay: DELAY_MIN,
            throttled_until: Instant::now(),
            progressed: Instant::now(),
            log_limiter: LogLimiter::default(),
        }
    }

    /// Forwards until the archive is closed.
    pub(super) async fn run(mut self) {
        sleep(self.random.below(START_WITHIN)).await;
        let mut is_connected = false;
        loop {
            let done = async {
                if !is_connected || self.confirm_at <= Instant::now() {
                    self.confirm().await?;
                }
                self.send().await
            };
            match done.await {
                Ok(progress) => {
                    (is_connected, self.delay) = (true, DELAY_MIN);
                    if !self.is_paced() {
                        self.progressed = Instant::now();
                        self.record_error(None);
                    }
                    if progress == Progress::Idle && !self.wait().await {
                        return;
                    }
                }
                // The mesh limits the rate, and reports when it accepts further records. A rate
                // limit is not a failure, so the wait does not grow.
                Err(EngineError::Throttled { reason, wait }) => {
                    self.delay = DELAY_MIN;
                    let now = Instant::now();
                    self.throttled_until = now + wait.max(DELAY_MIN);
                    if self.progressed + STALLED_AFTER <= now {
                        let what = format!(
                            "the mesh has accepted no record for {STALLED_AFTER:?}, only asked to wait"
                        );
                        self.record_error(Some(EngineError::Unavailable(what)));
                    }
                    self.record_rate_limit(&reason);
                    if !is_connected {
                        sleep_until(self.throttled_until).await;
                        continue;
                    }
                    if self.confirm_at <= Instant::now() {
                        self.confirm_at = self.throttled_until;
                    }
                    if !self.wait().await {
                        return;
                    }
                }
                Err(error) => {
                    is_connected = false;
                    let wait = self.back_off(&error);
                    self.state.lock().is_paced = false;
                    self.record_error(Some(error));
                    // If the archive was closed, nothing more is sent.
                    if self.head.has_changed().is_err() {
                        return;
                    }
                    sleep(wait).await;
                }
            }
        }
    }

    /// Waits for work; `false` if the archive is closed.
    async fn wait(&mut self) -> bool {
        let until = if self.is_paced() { self.confirm_at.min(self.throttled_until) } else { self.confirm_at };
        tokio::select! {
            changed = self.head.changed() => changed.is_ok(),
            () = sleep_until(until) => true,
        }
    }

    fn is_paced(&self) -> bool {
        Instant::now() < self.throttled_until
    }

    /// Reads the mesh's watermark, and releases the records that the watermark has passed.
    async fn confirm(&mut self) -> Result<(), EngineError> {
        self.update_final().await?;
        let watermark = limited(self.mesh.watermark(&self.host)).await?;
        let (_, highest) = self.local.sequences(&self.host).await?;
        let watermark = possible(watermark, highest)?;
        let now = Instant::now();
        self.state.lock().watermark = Some(watermark);
        if self.watermark != watermark {
            self.moved = now;
        }
        self.watermark = watermark;
        self.mesh_highest = 0;
        if watermark < highest && highest > Record::SEQ_JUMP_MAX {
            // `next_seq` fails if the origin has used [`Record::SEQ_MAX`].
            let next = limited(self.mesh.next_seq(&self.host)).await.unwrap_or(1);
            self.mesh_highest = possible(next, highest)?.saturating_sub(1);
        }
        if highest < watermark {
            // The mesh's records above `highest` are not from this archive.
            self.state.exclude_taken(&self.local, &self.host, watermark, true).await?;
        }
        if self.passed < watermark {
            self.local.pass_spool(watermark).await?;
            self.passed = watermark;
        } else if watermark < self.passed {
            // The mesh has lost confirmed records. Sending restarts once, even if the watermark
            // falls further.
            self.local.rewind_spool(watermark).await?;
            (self.passed, self.sent, self.first_gap) = (watermark, watermark, None);
        }
        if watermark < self.sent && self.moved + REPEAT_AFTER <= now {
            self.state.lock().resends += 1;
            (self.sent, self.first_gap, self.moved) = (watermark, None, now);
        }
        if self.sent < watermark {
            self.sent = watermark;
        }
        let wait = if self.sent == watermark { CONFIRM_EVERY_MAX } else { self.confirm_every };
        self.confirm_at = now + wait / 2 + self.random.below(wait / 2);
        Ok(())
    }

    /// Updates `final_until`: numbers that have been missing for [`FINAL_AFTER`] will not be
    /// appended any more.
    async fn update_final(&mut self) -> Result<(), EngineError> {
        let (since, highest) = self.highest;
        let now = Instant::now();
        if since + FINAL_AFTER <= now {
            let (_, newest) = self.local.sequences(&self.host).await?;
            self.final_until = highest;
            self.highest = (now, newest);
        }
        Ok(())
    }

    /// Sends the next batch, if records wait and not too many are unconfirmed.
    async fn send(&mut self) -> Result<Progress, EngineError> {
        if let Some(first_gap) = self.first_gap {
            let runs = self.local.seen_runs(&self.host, first_gap - 1).await?;
            if first_gap <= self.skippable_until(first_gap, first_gap, &runs) {
                (self.sent, self.first_gap) = (self.sent.min(first_gap - 1), None);
            }
        }
        if self.is_paced() {
            return Ok(Progress::Idle);
        }
        if self.sent.saturating_sub(self.watermark) >= WINDOW {
            self.confirm_at = self.confirm_at.min(Instant::now() + WINDOW_FULL_CONFIRM);
            return Ok(Progress::Idle);
        }
        // Read the numbers before the records: if a number is counted as stored and the later read
        // finds no record, there is no record to send.
        let runs = self.local.seen_runs(&self.host, self.sent).await?;
        let records = self.local.spooled(self.sent, BATCH_RECORDS, BATCH_BYTES).await?;
        let Next { batch, sent, first_gap, skipped } = self.next(records, &runs);
        if batch.is_empty() {
            self.state.lock().is_paced = false;
            return Ok(Progress::Idle);
        }
        self.append(&batch).await?;
        if self.sent == self.watermark {
            let now = Instant::now();
            self.moved = now;
            self.confirm_at = self.confirm_at.min(now + self.confirm_every);
        }
        self.state.lock().skipped += skipped;
        self.sent = sent;
        self.first_gap = self.first_gap.or(first_gap);
        Ok(Progress::Sent)
    }

    /// Builds the next batch, with markers for the numbers that have no record.
    fn next(&self, records: Vec<Record>, runs: &[(u64, u64)]) -> Next {
        let batch = Vec::with_capacity(records.len());
        let mut next = Next { batch, sent: self.sent, first_gap: None, skipped: 0 };
        if records.is_empty() {
            // No record above `sent` waits, so no stored number above `sent` has a record to send.
            let highest = runs.last().map_or(0, |&(_, last)| last);
            self.add_skip_markers(&mut next, highest, runs);
            next.first_gap = None;
        }
        for record in records {
            if !self.add_skip_markers(&mut next, record.seq - 1, runs) {
                break;
            }
            next.sent = record.seq;
            next.batch.push(record);
        }
        next
    }

    /// Adds markers for the numbers up to `until`, but stops before the first number that may still
    /// get a record. Returns false if the batch has no room for all markers.
    ///
    /// Above [`Record::SEQ_JUMP_MAX`] each marker covers a limited number of sequence numbers,
    /// because the mesh refuses longer markers.
    fn add_skip_markers(&self, next: &mut Next, until: u64, runs: &[(u64, u64)]) -> bool {
        let first = next.sent + 1;
        if until < first {
            return true;
        }
        let last = self.skippable_until(first, until, runs);
        while next.sent < last {
            if next.batch.len() >= BATCH_STEPS {
                return false;
            }
            let (from, to) = (next.sent + 1, last.min(Record::reach(next.sent.max(self.mesh_highest))));
            next.batch.push(Record::skip_marker(&self.host, from, to));
            next.skipped += to - from + 1;
            next.sent = to;
        }
        if last < until {
            next.first_gap = next.first_gap.or(Some(last + 1));
        }
        true
    }

    /// Searches from `first` up to `until` for the first number that may still get a record.
    /// Returns the number before it; `until` if there is no such number. No number from `first` up
    /// to `until` has a record to send.
    fn skippable_until(&self, first: u64, until: u64, runs: &[(u64, u64)]) -> u64 {
        let mut last = first - 1;
        while last < until {
            let next = last + 1;
            let held = runs.iter().find(|&&(from, to)| from <= next && next <= to).map(|&(_, to)| to);
            match held.max((next <= self.final_until).then_some(self.final_until)) {
                Some(to) => last = to.min(until),
                None => break,
            }
        }
        last
    }

    /// Appends to the mesh. A record that the mesh's engine refuses even in a batch of one is
    /// skipped.
    async fn append(&mut self, batch: &[Record]) -> Result<(), EngineError> {
        // Append the first half first, so that the records of each series stay in order.
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            let refusal = match limited(self.mesh.append(part)).await {
                Ok(()) => {
                    let (now, mut state) = (Instant::now(), self.state.lock());
                    self.progressed = now;
                    state.forwarded +=
                        part.iter().filter(|record| record.skipped_range().is_none()).count() as u64;
                    state.conflict.take_if(|(found, _)| *found + CONFLICT_SHOWN_FOR <= now);
                    continue;
                }
                Err(EngineError::Invalid(what)) => EngineError::Invalid(what),
                Err(error) => return Err(error),
            };
            if let [record] = part {
                self.refuse(record, refusal).await?;
            } else {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
        }
        Ok(())
    }

    async fn refuse(&mut self, record: &Record, refusal: EngineError) -> Result<(), EngineError> {
        if record.skipped_range().is_some() {
            return Err(refusal);
        }
        limited(self.mesh.append(&[Record::skip_marker(&self.host, record.seq, record.seq)])).await?;
        if self.log_limiter.is_due("", std::time::Instant::now()) {
            warn!(seq = record.seq, %refusal, "the mesh refused a record; it is stored only in this station's archive");
        }
        let mut state = self.state.lock();
        state.refused += 1;
        state.last_refusal = Some(refusal);
        Ok(())
    }

    /// Returns the wait after an error: [`DELAY_MIN`] plus a random time below a limit. The limit
    /// doubles with each error. After [`EngineError::Denied`], the wait is a random time from half
    /// of [`DENIED_RETRY`] to all of it. So stations that lost a mesh together do not reconnect
    /// together.
    fn back_off(&mut self, error: &EngineError) -> Duration {
        if matches!(error, EngineError::Denied(_)) {
            return DENIED_RETRY / 2 + self.random.below(DENIED_RETRY / 2);
        }
        let wait = DELAY_MIN + self.random.below(self.delay);
        self.delay = (2 * self.delay).min(DELAY_MAX);
        wait
    }

    /// Records that the mesh limits the rate. Logs the rate limit only when `is_paced` becomes
    /// true.
    fn record_rate_limit(&self, reason: &str) {
        let left = self.local.statistics().spooled;
        // Without a rate limit, fewer than [`BATCH_RECORDS`] records usually wait for a
        // confirmation.
        let is_paced = BATCH_RECORDS as u64 <= left;
        if !std::mem::replace(&mut self.state.lock().is_paced, is_paced) && is_paced {
            info!(left, reason, "the mesh limits the rate at which waiting records are sent");
        }
    }

    /// Records the last error. The same error is logged only once in a row.
    fn record_error(&self, error: Option<EngineError>) {
        let mut state = self.state.lock();
        match (&state.last_error, &error) {
            (before, Some(error)) if before.as_ref() != Some(error) => {
                warn!(%error, "no records are forwarded to the mesh; retrying")
            }
            (Some(_), None) => info!("records are forwarded to the mesh again"),
            _ => {}
        }
        state.last_error = error;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Sent,
    Idle,
}

/// The next batch, and the state after it.
struct Next {
    batch: Vec<Record>,
    /// The highest number that the batch covers.
    sent: u64,
    /// First omitted number that may still get a record.
    first_gap: Option<u64>,
    skipped: u64,
}

/// Largest number of records in one append, without markers. An archive commits this number of
/// records in about 50 ms.
const BATCH_RECORDS: usize = 2000;

/// Largest number of records and markers of skipped numbers in one append. It is twice
/// [`BATCH_RECORDS`], because each record may follow a gap. Engines accept a batch of this length.
const BATCH_STEPS: usize = 2 * BATCH_RECORDS;

/// Largest size of the records in one append, in bytes. It is below the limit of engines for a
/// request or message (1 MiB).
const BATCH_BYTES: usize = 512 << 10;

/// Largest number of records that are sent and not confirmed: ten batches. If the mesh lost these
/// records, they can be sent again within seconds.
const WINDOW: u64 = 20_000;

/// Time until the next read of the watermark if [`WINDOW`] records are unconfirmed.
const WINDOW_FULL_CONFIRM: Duration = Duration::from_millis(200);

/// Time after which the mesh counts as having lost a record: the watermark did not advance, and is
/// below an acknowledged number. A healthy archive is behind by seconds only.
const REPEAT_AFTER: Duration = Duration::from_secs(30);

/// Time for which the error about a second writer with the same name is reported. The watermark is
/// read at least twice in this time, so a writer that continues is detected again.
const CONFLICT_SHOWN_FOR: Duration = Duration::from_mins(1);

/// Time after which a missing number gets no record any more, if a higher number exists. A writer
/// stops after the archive's deadline, which is 30 s by default.
const FINAL_AFTER: Duration = Duration::from_mins(10);

/// Time without progress after which forwarding counts as stalled: three times the longest wait
/// that a client accepts.
const STALLED_AFTER: Duration = Duration::from_mins(15);

/// Time over which the first requests of stations that start together are spread.
const START_WITHIN: Duration = Duration::from_secs(1);

/// Lowest and highest limit of the random wait after a failure. After an outage of the mesh, the
/// stations reconnect at random times within `DELAY_MAX`.
const DELAY_MIN: Duration = Duration::from_millis(200);
const DELAY_MAX: Duration = Duration::from_secs(20);

/// Longest wait after a denial. The mesh denies the station until an operator admits it.
const DENIED_RETRY: Duration = Duration::from_mins(5);

//! Sends on what waits: one batch under way, begun again where the mesh's watermark stands still.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::waits::{SplitMix, limited};
use super::{ASK_EVERY, JoinedConfig, State, possible};
use crate::complaints::Complaints;
use crate::{Engine, Error, HostId, Local, Record};

/// What is known of the way to the mesh. Every number is one of the station's own sequence.
pub(super) struct Forwarder {
    host: HostId,
    local: Arc<Local>,
    mesh: Arc<dyn Engine>,
    state: State,
    head: watch::Receiver<u64>,
    confirm_every: Duration,
    random: SplitMix,
    /// The mesh has confirmed everything up to here, as far as the archive knows.
    passed: u64,
    /// The mesh misses nothing up to here.
    watermark: u64,
    /// The highest number that the mesh holds of this station, as far as gaps above
    /// [`Record::SEQ_JUMP_MAX`] need it; 0 = not known.
    mesh_highest: u64,
    /// The mesh's engine has acknowledged everything up to here.
    sent: u64,
    /// A number below `sent` that was neither stored here nor passed over yet: it may still come.
    hole: Option<u64>,
    /// When the watermark moved last, or sending began.
    moved: Instant,
    /// When the watermark is asked for again.
    ask_at: Instant,
    /// Numbers up to here that are missing in the archive can no longer come.
    settled: u64,
    /// The highest number at a time; it settles when that is long ago.
    highest: (Instant, u64),
    /// The wait after the next failure.
    delay: Duration,
    /// The mesh's engine takes nothing before.
    paced_until: Instant,
    /// When the mesh last took something, or had nothing to take.
    progressed: Instant,
    /// Of records that the mesh refuses.
    complaints: Complaints,
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
        // Every process has another, so that stations that come back together spread.
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
            hole: None,
            moved: Instant::now(),
            ask_at: Instant::now(),
            // Whoever gave out these numbers has ended, and uses them no more.
            settled: highest,
            highest: (Instant::now(), highest),
            delay: DELAY_MIN,
            paced_until: Instant::now(),
            progressed: Instant::now(),
            complaints: Complaints::default(),
        }
    }

    /// Forwards until the archive is closed.
    pub(super) async fn run(mut self) {
        sleep(self.random.below(START_WITHIN)).await;
        let mut is_connected = false;
        loop {
            let done = async {
                if !is_connected || self.ask_at <= Instant::now() {
                    self.ask().await?;
                }
                self.send().await
            };
            match done.await {
                Ok(progress) => {
                    (is_connected, self.delay) = (true, DELAY_MIN);
                    if !self.is_paced() {
                        self.progressed = Instant::now();
                        self.note(None);
                    }
                    if progress == Progress::Idle && !self.wait().await {
                        return;
                    }
                }
                // It is there, and says when it takes more: neither a fault nor a reason to wait longer.
                Err(Error::Throttled { why, wait }) => {
                    self.delay = DELAY_MIN;
                    let now = Instant::now();
                    self.paced_until = now + wait.max(DELAY_MIN);
                    if self.progressed + STALLED_AFTER <= now {
                        let what = format!("for {STALLED_AFTER:?} the mesh has only asked to wait");
                        self.note(Some(Error::Unavailable(what)));
                    }
                    self.note_pace(&why);
                    if !is_connected {
                        sleep_until(self.paced_until).await;
                        continue;
                    }
                    if self.ask_at <= Instant::now() {
                        self.ask_at = self.paced_until;
                    }
                    if !self.wait().await {
                        return;
                    }
                }
                Err(error) => {
                    is_connected = false;
                    let wait = self.back_off(&error);
                    self.state.lock().is_paced = false;
                    self.note(Some(error));
                    // Below the archive's head or not, an archive that was closed sends no more.
                    if self.head.has_changed().is_err() {
                        return;
                    }
                    sleep(wait).await;
                }
            }
        }
    }

    /// Waits for something to do; `false` when the archive is closed.
    async fn wait(&mut self) -> bool {
        let until = if self.is_paced() { self.ask_at.min(self.paced_until) } else { self.ask_at };
        tokio::select! {
            changed = self.head.changed() => changed.is_ok(),
            () = sleep_until(until) => true,
        }
    }

    fn is_paced(&self) -> bool {
        Instant::now() < self.paced_until
    }

    /// Asks up to where the mesh misses nothing, and lets go of what it has.
    async fn ask(&mut self) -> Result<(), Error> {
        self.age().await?;
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
        if watermark < highest && Record::SEQ_JUMP_MAX < highest {
            // One that has used the highest number there is has no next one.
            let next = limited(self.mesh.next_seq(&self.host)).await.unwrap_or(1);
            self.mesh_highest = possible(next, highest)?.saturating_sub(1);
        }
        if highest < watermark {
            // What the mesh holds there is not of this archive.
            self.state.keep_clear(&self.local, &self.host, watermark, true).await?;
        }
        if self.passed < watermark {
            self.local.pass_spool(watermark).await?;
            self.passed = watermark;
        } else if watermark < self.passed {
            // It has lost what it confirmed. Sending begins again once, however the watermark then goes on.
            self.local.rewind_spool(watermark).await?;
            (self.passed, self.sent, self.hole) = (watermark, watermark, None);
        }
        if watermark < self.sent && self.moved + REPEAT_AFTER <= now {
            self.state.lock().rewinds += 1;
            (self.sent, self.hole, self.moved) = (watermark, None, now);
        }
        if self.sent < watermark {
            self.sent = watermark;
        }
        let wait = if self.sent == watermark { ASK_EVERY } else { self.confirm_every };
        self.ask_at = now + wait / 2 + self.random.below(wait / 2);
        Ok(())
    }

    /// Settles the numbers that have been below others for so long that nobody appends them still.
    async fn age(&mut self) -> Result<(), Error> {
        let (since, highest) = self.highest;
        let now = Instant::now();
        if since + SETTLE_AFTER <= now {
            let (_, newest) = self.local.sequences(&self.host).await?;
            self.settled = highest;
            self.highest = (now, newest);
        }
        Ok(())
    }

    /// Sends the next batch, if one waits and not too much is unconfirmed.
    async fn send(&mut self) -> Result<Progress, Error> {
        if let Some(hole) = self.hole {
            let runs = self.local.held_runs(&self.host, hole - 1).await?;
            if hole <= self.dead_until(hole, hole, &runs) {
                (self.sent, self.hole) = (self.sent.min(hole - 1), None);
            }
        }
        if self.is_paced() {
            return Ok(Progress::Idle);
        }
        if WINDOW <= self.sent.saturating_sub(self.watermark) {
            self.ask_at = self.ask_at.min(Instant::now() + WINDOW_ASK);
            return Ok(Progress::Idle);
        }
        // In this order: a number that is held before, and has no record after, has none.
        let runs = self.local.held_runs(&self.host, self.sent).await?;
        let records = self.local.spooled(self.sent, BATCH_RECORDS, BATCH_BYTES).await?;
        let Next { batch, sent, hole, passed_over } = self.next(records, &runs);
        if batch.is_empty() {
            self.state.lock().is_paced = false;
            return Ok(Progress::Idle);
        }
        self.append(&batch).await?;
        if self.sent == self.watermark {
            let now = Instant::now();
            self.moved = now;
            self.ask_at = self.ask_at.min(now + self.confirm_every);
        }
        self.state.lock().passed_over += passed_over;
        self.sent = sent;
        self.hole = self.hole.or(hole);
        Ok(Progress::Sent)
    }

    /// The batch that follows, with what passes over the numbers that have no record.
    fn next(&self, records: Vec<Record>, runs: &[(u64, u64)]) -> Next {
        let batch = Vec::with_capacity(records.len());
        let mut next = Next { batch, sent: self.sent, hole: None, passed_over: 0 };
        if records.is_empty() {
            // Nothing waits above, so whatever is held there is nothing to be sent.
            let highest = runs.last().map_or(0, |&(_, last)| last);
            self.pass_over(&mut next, highest, runs);
            next.hole = None;
        }
        for record in records {
            if !self.pass_over(&mut next, record.seq - 1, runs) {
                break;
            }
            next.sent = record.seq;
            next.batch.push(record);
        }
        next
    }

    /// Passes over the numbers up to `until`, as far as none of them can come any more; false = the
    /// batch has no room for all of them.
    ///
    /// Above [`Record::SEQ_JUMP_MAX`] it does so in steps: the mesh refuses a longer one.
    fn pass_over(&self, next: &mut Next, until: u64, runs: &[(u64, u64)]) -> bool {
        let first = next.sent + 1;
        if until < first {
            return true;
        }
        let last = self.dead_until(first, until, runs);
        while next.sent < last {
            if BATCH_STEPS <= next.batch.len() {
                return false;
            }
            let (from, to) = (next.sent + 1, last.min(Record::reach(next.sent.max(self.mesh_highest))));
            next.batch.push(Record::passing_over(&self.host, from, to));
            next.passed_over += to - from + 1;
            next.sent = to;
        }
        if last < until {
            next.hole = next.hole.or(Some(last + 1));
        }
        true
    }

    /// The last of the numbers `first` to `until` before one that may still get a record, given that
    /// none of them has one; `first` − 1 = that one may.
    fn dead_until(&self, first: u64, until: u64, runs: &[(u64, u64)]) -> u64 {
        let mut last = first - 1;
        while last < until {
            let next = last + 1;
            let held = runs.iter().find(|&&(from, to)| from <= next && next <= to).map(|&(_, to)| to);
            match held.max((next <= self.settled).then_some(self.settled)) {
                Some(to) => last = to.min(until),
                None => break,
            }
        }
        last
    }

    /// Appends to the mesh; what its engine refuses by itself alone is passed over.
    async fn append(&mut self, batch: &[Record]) -> Result<(), Error> {
        // Halves in order, so that the order of each series is kept.
        let mut parts = vec![batch];
        while let Some(part) = parts.pop() {
            let refusal = match limited(self.mesh.append(part)).await {
                Ok(()) => {
                    let (now, mut state) = (Instant::now(), self.state.lock());
                    self.progressed = now;
                    state.forwarded +=
                        part.iter().filter(|record| record.passes_over().is_none()).count() as u64;
                    state.overtaken_by.take_if(|(found, _)| *found + OVERTAKEN_FOR <= now);
                    continue;
                }
                Err(Error::Invalid(what)) => Error::Invalid(what),
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

    async fn refuse(&mut self, record: &Record, refusal: Error) -> Result<(), Error> {
        if record.passes_over().is_some() {
            return Err(refusal);
        }
        limited(self.mesh.append(&[Record::passing_over(&self.host, record.seq, record.seq)])).await?;
        if self.complaints.is_due("", std::time::Instant::now()) {
            warn!(seq = record.seq, %refusal, "the mesh does not take a record; it stays in the archive here alone");
        }
        let mut state = self.state.lock();
        state.refused += 1;
        state.last_refusal = Some(refusal);
        Ok(())
    }

    /// How long to wait after an error: anywhere below a limit that doubles, so that stations that
    /// lost a mesh together do not come back together.
    fn back_off(&mut self, error: &Error) -> Duration {
        if matches!(error, Error::Denied(_)) {
            return DENIED_AGAIN / 2 + self.random.below(DENIED_AGAIN / 2);
        }
        let wait = DELAY_MIN + self.random.below(self.delay);
        self.delay = (2 * self.delay).min(DELAY_MAX);
        wait
    }

    /// Keeps account of a mesh that sets the pace; it is reported once, until all is sent.
    fn note_pace(&self, why: &str) {
        let left = self.local.statistics().spooled;
        // So much may wait for a confirmation at any time.
        let is_paced = BATCH_RECORDS as u64 <= left;
        if !std::mem::replace(&mut self.state.lock().is_paced, is_paced) && is_paced {
            info!(left, why, "what waits goes at the pace that the mesh asks for");
        }
    }

    /// Keeps account of how it goes; a mesh that stays away is reported once.
    fn note(&self, error: Option<Error>) {
        let mut state = self.state.lock();
        match (&state.last_error, &error) {
            (before, Some(error)) if before.as_ref() != Some(error) => {
                warn!(%error, "nothing is forwarded to the mesh")
            }
            (Some(_), None) => info!("records are forwarded to the mesh again"),
            _ => {}
        }
        state.last_error = error;
    }
}

/// What one turn of the forwarder came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Sent,
    Idle,
}

/// What is sent next.
struct Next {
    batch: Vec<Record>,
    /// Everything up to here is sent with it.
    sent: u64,
    /// The first number left out that may still come.
    hole: Option<u64>,
    passed_over: u64,
}

/// Records in one append: an archive commits them in some 50 ms.
const BATCH_RECORDS: usize = 2000;

/// Records in one append, those that pass over numbers included: each of [`BATCH_RECORDS`] may
/// follow a gap, and an engine takes a batch of this length.
const BATCH_STEPS: usize = 2 * BATCH_RECORDS;

/// Bytes of records in one append, below what engines take in one request or message (1 MiB).
const BATCH_BYTES: usize = 512 << 10;

/// Numbers sent and not confirmed, at most: ten batches, so that a mesh that lost them gets them
/// again within seconds.
const WINDOW: u64 = 20_000;

/// How soon a full window is asked about.
const WINDOW_ASK: Duration = Duration::from_millis(200);

/// A watermark that stands still for so long below what was acknowledged has lost something: an
/// archive that is well is behind by seconds.
const REPEAT_AFTER: Duration = Duration::from_secs(30);

/// The mesh is asked twice in this time at least, and who still writes under the same name is found again.
const OVERTAKEN_FOR: Duration = Duration::from_mins(1);

/// A number that nobody appended for so long, while higher ones were, is not appended any more: a
/// writer gives up after an archive's deadline, 30 s unless set otherwise.
const SETTLE_AFTER: Duration = Duration::from_mins(10);

/// Three times the longest wait that a client follows.
const STALLED_AFTER: Duration = Duration::from_mins(15);

/// Stations that start together begin within this time.
const START_WITHIN: Duration = Duration::from_secs(1);

/// First and longest limit of the wait after a failure. Stations that lost a mesh come back to it
/// evenly over the latter.
const DELAY_MIN: Duration = Duration::from_millis(200);
const DELAY_MAX: Duration = Duration::from_secs(20);

/// Someone has to let the station in first.
const DENIED_AGAIN: Duration = Duration::from_mins(5);

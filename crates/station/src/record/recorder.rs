//! Records measurements: each is learnt by its battery, published, spooled and stored.
//!
//! One thread does all of this, so that batteries, streams and archive get the records in the same
//! order. Measuring threads only put measurements into a bounded inbox and never wait. If the
//! archive does not work, measurements are still learnt and published, and wait in the bounded
//! spool.
//!
//! ```text
//! prober ─► inbox ─► battery ─► hub ─► spool ─► append ─► acknowledged
//! API ─────► inbox ─────────────────► spool ─► append ─► battery ─► hub ─► answer 201
//! members ─► inbox ─────────────────► spool ─► append ─► battery ─► hub ─► answer 200
//! stream of NATS ─► archive ─────────────────► subscription ─► battery ─► hub
//! ```
//!
//! A record of this station gets its sequence number when its append begins, and keeps this number
//! until the archive has stored the record. So records dropped from the spool leave no gap, and a
//! repeated append stores nothing twice.

mod digests;
mod inbox;
mod store;
mod subscription;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::{Engine, EngineError, Local, Record};
use barograph_forecast::Name;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::forecast::hub::{PointEvent, PointHub};
use crate::forecast::series::{Arrival, Measurement, ObserveResult, SeriesTable};
use crate::health::Health;
use crate::limits::Limit;
use crate::sync::lock;
use crate::time::now_unix_ns;
use digests::RecentDigests;
use inbox::Message;
pub(crate) use inbox::{FeedError, Inbox, InboxReceiver, SubmittedRecord};
use store::{AppendBatch, SpoolEntry, append_forwarded, entries_are_forwarded, store, take_batch};
pub(crate) use subscription::ArchiveSubscription;

/// Parts of the station that the recorder uses.
pub(crate) struct RecorderDependencies {
    pub(crate) host: Name,
    pub(crate) engine: Arc<dyn Engine>,
    /// The archive of this station, if it also stores records that other stations number; `None` if
    /// it stores only records of this station.
    pub(crate) archive: Option<Arc<Local>>,
    pub(crate) series_table: Arc<Mutex<SeriesTable>>,
    pub(crate) hub: PointHub,
    pub(crate) health: Arc<Health>,
    pub(crate) spool_records_max: usize,
}

/// Runs the recorder until it is stopped: records the measurements of `inbox`, and learns the
/// records of `stored`. Returns the number of records that could not be stored.
pub(crate) async fn run(
    parts: RecorderDependencies,
    stored: ArchiveSubscription,
    inbox: InboxReceiver,
) -> usize {
    let mut recorder = Recorder {
        next_seq: None,
        highest: HashMap::new(),
        parts,
        spool: VecDeque::new(),
        digests: RecentDigests::default(),
        spooled: 0,
        forwarded: 0,
        append_singly: 0,
        must_reread_seq: false,
        delay: Duration::ZERO,
        drops: 0,
        drops_logged: None,
    };
    recorder.run(inbox.0, stored).await
}

struct Recorder {
    parts: RecorderDependencies,
    spool: VecDeque<SpoolEntry>,
    /// Digests of the newest records that callers submitted with an identity (origin and sequence
    /// number).
    digests: RecentDigests,
    /// Number of records in the spool.
    spooled: usize,
    /// Number of records in the spool that members forwarded.
    forwarded: usize,
    /// Number of entries that must still be appended one by one, because the archive refused an
    /// append with all of them.
    append_singly: usize,
    /// Next sequence number of this station; `None` until the archive has returned it.
    next_seq: Option<u64>,
    /// Whether to read the next sequence number from the archive again, before a number is
    /// assigned. The archive may have skipped numbers meanwhile, because a different station used
    /// these numbers.
    must_reread_seq: bool,
    /// For each other origin, the highest sequence number that the recorder knows.
    highest: HashMap<Name, u64>,
    /// Delay before the next append, after failures.
    delay: Duration,
    /// Number of entries that the archive refused since the last log line about refusals; and the
    /// time of this log line.
    drops: u64,
    drops_logged: Option<Instant>,
}

type Append = Pin<Box<dyn Future<Output = AppendBatch> + Send>>;

impl Recorder {
    async fn run(&mut self, mut inbox: mpsc::Receiver<Message>, mut stored: ArchiveSubscription) -> usize {
        let mut append: Option<Append> = None;
        let mut deadline: Option<Instant> = None;
        loop {
            if append.is_none() && !self.spool.is_empty() {
                append = Some(self.begin_append());
            }
            if deadline.is_some() && append.is_none() && inbox.is_empty() {
                return 0;
            }
            let running = append.is_some();
            let stop_at = deadline.unwrap_or_else(|| Instant::now() + Duration::from_hours(1));
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(Message::Own(measurement)) => self.take_own(measurement),
                    Some(Message::Feed { records, answer }) => self.take_feed(records, answer),
                    Some(Message::Forwarded { records, answer }) => self.take_forwarded(records, answer),
                    Some(Message::Stop { deadline: at }) => {
                        deadline = Some(at);
                        self.delay = Duration::ZERO;
                        inbox.close();
                    }
                    // The inbox is closed and empty. The running append is finished below.
                    None if running => {
                        let finished = async { append.as_mut().expect("an append is running").await };
                        match tokio::time::timeout_at(stop_at, finished).await {
                            Ok(done) => { append = None; self.finish_append(done); }
                            Err(_) => return usize::max(1, self.spooled),
                        }
                    }
                    None => return 0,
                },
                done = async { append.as_mut().expect("guarded by `running`").await }, if running => {
                    append = None;
                    self.finish_append(done);
                }
                record = stored.next(), if deadline.is_none() => self.learn_stored(&record),
                () = tokio::time::sleep_until(stop_at), if deadline.is_some() => {
                    return usize::max(1, self.spooled);
                }
            }
            self.parts.health.spool_records.store(self.spooled as u64, Ordering::Relaxed);
        }
    }

    fn take_own(&mut self, measurement: Measurement) {
        if self.learn(&measurement, Arrival::Own) == LearnResult::Refused {
            return;
        }
        let record = record(&self.parts.host, 0, measurement);
        while self.spooled >= self.parts.spool_records_max && self.drop_oldest_own() {}
        self.push(SpoolEntry::new(vec![record], None));
    }

    fn take_feed(
        &mut self,
        records: Vec<SubmittedRecord>,
        answer: oneshot::Sender<Result<usize, FeedError>>,
    ) {
        let refusal = if let Some(error) = self.no_room_for(records.len()) {
            Some(error)
        } else if let Some((origin, seq)) = self.digests.conflict(&records) {
            Some(FeedError::Conflict { origin, seq })
        } else if self.highest.len() >= ORIGINS_MAX
            && records.iter().any(|submitted| {
                submitted.identity.as_ref().is_some_and(|(origin, _)| !self.highest.contains_key(origin))
            })
        {
            self.parts.health.refused(Limit::Origins, records.len() as u64);
            Some(FeedError::TooManyOrigins)
        } else {
            None
        };
        if let Some(error) = refusal {
            // The caller may be gone.
            let _ = answer.send(Err(error));
            return;
        }
        self.digests.remember(&records);
        let (host, now) = (&self.parts.host, now_unix_ns());
        let records = records.into_iter().map(|submitted| {
            let (origin, seq) = submitted.identity.unwrap_or_else(|| (host.clone(), 0));
            let mut record = record(&origin, seq, submitted.measurement);
            record.bound_label(now);
            record
        });
        self.push(SpoolEntry::new(records.collect(), Some(answer)));
    }

    fn take_forwarded(
        &mut self,
        mut records: Vec<Record>,
        answer: oneshot::Sender<Result<usize, FeedError>>,
    ) {
        if let Some(error) = self.no_room_for_members(records.len()) {
            // The caller may be gone.
            let _ = answer.send(Err(error));
            return;
        }
        if let Some(archive) = &self.parts.archive {
            archive.bound_labels(records.iter_mut().map(|record| (record, None)));
        }
        self.push(SpoolEntry { is_forwarded: true, ..SpoolEntry::new(records, Some(answer)) });
    }

    /// Returns an error if the spool has no room for `records` more records of members. Half of the
    /// spool is reserved for the station's own measurements. Such a refusal affects only members'
    /// records, so the refusal counts under the limit for members.
    fn no_room_for_members(&self, records: usize) -> Option<FeedError> {
        let (most, half) = (self.parts.spool_records_max, self.parts.spool_records_max / 2);
        let error = if half < records {
            let why =
                format!("at most {half} records at once (half of limits.spool_records_max), found {records}");
            FeedError::Invalid(why)
        } else if half < self.forwarded + records || most < self.spooled + records {
            FeedError::Unavailable(
                "too many records of other stations wait for the archive; try again in 5 s".into(),
            )
        } else {
            return self.no_room_for(records);
        };
        self.parts.health.refused(Limit::MemberSpool, records as u64);
        Some(error)
    }

    fn no_room_for(&self, records: usize) -> Option<FeedError> {
        let is_full = self.spooled + records > self.parts.spool_records_max;
        let (limit, why) = match self.parts.health.archive_error() {
            Some(error) => (Limit::Archive, error),
            None if is_full => {
                (Limit::Spool, "too many records wait for the archive; try again in 5 s".into())
            }
            None => return None,
        };
        self.parts.health.refused(limit, records as u64);
        Some(FeedError::Unavailable(why))
    }

    fn push(&mut self, entry: SpoolEntry) {
        self.spooled += entry.records.len();
        if entry.is_forwarded {
            self.forwarded += entry.records.len();
        }
        self.spool.push_back(entry);
    }

    /// Subtracts the records of an entry that was removed from the spool.
    fn release(&mut self, entry: &SpoolEntry) {
        self.spooled -= entry.records.len();
        if entry.is_forwarded {
            self.forwarded -= entry.records.len();
        }
    }

    /// Drops the oldest entry for which no caller waits; `false` if there is none.
    fn drop_oldest_own(&mut self) -> bool {
        let Some(at) = self.spool.iter().position(|entry| entry.answer.is_none()) else { return false };
        let Some(entry) = self.spool.remove(at) else { return false };
        self.release(&entry);
        let dropped = entry.records.len();
        self.parts.health.dropped(dropped as u64);
        true
    }

    /// Takes the oldest entries and begins to append them, after the delay for earlier failures.
    fn begin_append(&mut self) -> Append {
        let entries = take_batch(&mut self.spool, self.append_singly > 0);
        let mut origins: Vec<(Name, Option<u64>)> = Vec::new();
        for record in entries.iter().flat_map(|entry| &entry.records) {
            let known = record.origin == self.parts.host
                || self.highest.contains_key(&record.origin)
                || origins.iter().any(|(origin, _)| *origin == record.origin);
            if !known {
                origins.push((record.origin.clone(), None));
            }
        }
        let engine = Arc::clone(&self.parts.engine);
        let archive = self.parts.archive.clone();
        let delay = self.delay;
        let mut append = AppendBatch {
            entries,
            next_seq: self.next_seq,
            must_reread_seq: self.must_reread_seq,
            refused: Vec::new(),
            origins,
            result: Ok(()),
        };
        let host = self.parts.host.clone();
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            let forwarded = entries_are_forwarded(&append.entries);
            append.result = match &archive {
                Some(archive) if forwarded => append_forwarded(engine.as_ref(), archive, &mut append).await,
                archive => store(engine.as_ref(), archive.as_deref(), &host, &mut append).await,
            };
            append
        })
    }

    fn finish_append(&mut self, done: AppendBatch) {
        let AppendBatch { mut entries, next_seq, must_reread_seq, refused, origins, result } = done;
        (self.next_seq, self.must_reread_seq) = (next_seq, must_reread_seq);
        for (origin, highest) in origins {
            if let Some(highest) = highest {
                self.highest.insert(origin, highest);
            }
        }
        self.append_singly = self.append_singly.saturating_sub(1);
        match result {
            Ok(()) => {
                self.delay = Duration::ZERO;
                if refused.len() < entries.len() {
                    self.parts.health.appended();
                } else {
                    self.parts.health.archive_answered();
                }
                self.answer_refused(&mut entries, refused);
                self.acknowledge(entries);
            }
            Err(EngineError::Invalid(_)) if entries.len() == 1 && self.renumber(&mut entries[0]) => {
                self.append_singly += 1;
                if let Some(entry) = entries.pop() {
                    self.spool.push_front(entry);
                }
            }
            Err(EngineError::Invalid(message)) if entries.len() == 1 => {
                self.drops += 1;
                if self.drops_logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
                    let drops = std::mem::take(&mut self.drops);
                    self.drops_logged = Some(Instant::now());
                    tracing::error!("dropped {drops} records that break a limit of the archive: {message}");
                }
                self.parts.health.archive_answered();
                for entry in entries {
                    let limit = if entry.answer.is_none() { Limit::OwnRecords } else { Limit::FedRecords };
                    self.parts.health.refused(limit, entry.records.len() as u64);
                    self.release(&entry);
                    self.digests.forget(&entry.records);
                    if let Some(answer) = entry.answer {
                        let _ = answer.send(Err(FeedError::Invalid(message.clone())));
                    }
                }
            }
            Err(error) => {
                if let EngineError::Invalid(_) = error {
                    self.append_singly = entries.len();
                } else {
                    self.fail(&error);
                }
                for entry in entries.into_iter().rev() {
                    self.spool.push_front(entry);
                }
            }
        }
    }

    /// Clears the numbers of a refused entry, once: the archive may have skipped these numbers
    /// since the station read the next number. The archive has not stored these records: if it had
    /// stored them under these numbers, it would not have refused them.
    fn renumber(&mut self, entry: &mut SpoolEntry) -> bool {
        let host = &self.parts.host;
        let is_ours = !entry.is_forwarded && self.next_seq.is_some();
        if !is_ours || entry.is_renumbered || !entry.records.iter().all(|record| record.origin == *host) {
            return false;
        }
        for record in &mut entry.records {
            record.seq = 0;
        }
        (entry.is_renumbered, self.must_reread_seq) = (true, true);
        true
    }

    /// Sends the error to the callers of the refused entries.
    fn answer_refused(&mut self, entries: &mut Vec<SpoolEntry>, refused: Vec<(usize, FeedError)>) {
        for (at, error) in refused.into_iter().rev() {
            let entry = entries.remove(at);
            self.release(&entry);
            if !entry.is_forwarded {
                self.digests.forget(&entry.records);
            }
            if let Some(answer) = entry.answer {
                // The caller may be gone.
                let _ = answer.send(Err(error));
            }
        }
    }

    fn fail(&mut self, error: &EngineError) {
        let message = error.to_string();
        if self.parts.health.archive_error().as_ref() != Some(&message) {
            tracing::error!("{message}; the station still measures, and keeps records in memory");
        }
        self.parts.health.append_failed(&message);
        self.delay = (self.delay * 2).clamp(DELAY_MIN, DELAY_MAX);
    }

    /// Answers the waiting callers, and learns their records.
    fn acknowledge(&mut self, entries: Vec<SpoolEntry>) {
        for entry in entries {
            self.release(&entry);
            let Some(answer) = entry.answer else { continue };
            for record in &entry.records {
                let is_new = self.is_new(record) || entry.is_new;
                if is_new && (!entry.is_forwarded || self.is_within_quota(record)) {
                    // Records of other origins are ordered by their sequence numbers, not by the
                    // clocks of these origins.
                    let arrival = if entry.is_forwarded {
                        Arrival::Forwarded
                    } else if record.origin == self.parts.host {
                        Arrival::Submitted { at_unix_ns: now_unix_ns() }
                    } else {
                        Arrival::Numbered
                    };
                    self.learn(&measurement(record), arrival);
                }
            }
            // The caller may be gone.
            let _ = answer.send(Ok(entry.records.len()));
        }
    }

    /// Learns a member's record that the archive received from the mesh's stream. Records that
    /// callers submit to this station are learnt when the archive acknowledges them.
    fn learn_stored(&mut self, record: &Record) {
        // The archive returns each stored record once. Check the sequence number only for origins
        // that also submit records to this station. Otherwise a forged record with a high number
        // would hide all later records of a member.
        let is_new = !self.highest.contains_key(&record.origin) || self.is_new(record);
        let is_handed_in = self.digests.has(&record.origin, record.seq);
        if is_new && !is_handed_in && self.is_within_quota(record) {
            self.learn(&measurement(record), Arrival::Forwarded);
        }
    }

    /// Whether a stored record is new: its sequence number is the highest of its origin. Stores the
    /// highest sequence number.
    fn is_new(&mut self, record: &Record) -> bool {
        if record.origin == self.parts.host {
            return true;
        }
        let highest = self.highest.entry(record.origin.clone()).or_insert(0);
        let is_new = *highest < record.seq;
        *highest = u64::max(*highest, record.seq);
        is_new
    }

    /// Whether a member's record may be learnt. The member must have measured the record, and the
    /// series of the record must be within the member's share.
    fn is_within_quota(&self, record: &Record) -> bool {
        if !record.is_own() {
            return false;
        }
        let mut series_table = lock(&self.parts.series_table);
        let is_within_quota =
            series_table.get(&record.series).is_some() || series_table.is_within_quota(&record.origin);
        if !is_within_quota {
            self.parts.health.refused(Limit::MemberSeries, 1);
        }
        is_within_quota
    }

    fn learn(&self, measurement: &Measurement, arrival: Arrival) -> LearnResult {
        let mut series_table = lock(&self.parts.series_table);
        match series_table.observe_from(measurement, arrival) {
            ObserveResult::Refused => {
                self.parts.health.refused(Limit::Series, 1);
                return LearnResult::Refused;
            }
            ObserveResult::Impossible => {
                self.parts.health.refused(Limit::Values, 1);
                return LearnResult::Refused;
            }
            ObserveResult::Late | ObserveResult::Removed => {}
            ObserveResult::New(point) => {
                if self.parts.hub.has_subscribers() {
                    let state =
                        series_table.get(&measurement.series).expect("the series table has just stored it");
                    self.parts.hub.publish(PointEvent::new(&measurement.series, state, point));
                }
            }
        }
        LearnResult::Kept
    }
}

#[derive(PartialEq, Eq)]
enum LearnResult {
    Kept,
    Refused,
}

fn record(origin: &Name, seq: u64, measurement: Measurement) -> Record {
    let Measurement { series, time_unix_ns, outcome, detail } = measurement;
    Record { origin: origin.clone(), seq, series, time_unix_ns, outcome, detail }
}

fn measurement(record: &Record) -> Measurement {
    Measurement {
        series: record.series.clone(),
        time_unix_ns: record.time_unix_ns,
        outcome: record.outcome,
        detail: record.detail.clone(),
    }
}

/// Shortest and longest delay after a failed append.
const DELAY_MIN: Duration = Duration::from_millis(200);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Minimum time between two log lines about refused records, because the archive often refuses many
/// records in a short time.
const LOG_EVERY: Duration = Duration::from_mins(1);
/// Maximum number of other origins for which the highest sequence number is stored. Each origin
/// takes about 300 bytes.
const ORIGINS_MAX: usize = 10_000;

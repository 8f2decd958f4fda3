//! The way of a measurement: learnt by its battery, shown to watchers, spooled, stored.
//!
//! One thread does it all, so that batteries, streams and archive see one order. Measuring threads only
//! put a measurement into its bounded inbox and never wait. While the archive does not work,
//! measurements are still learnt and shown, and wait in the bounded spool.
//!
//! ```text
//! prober ─► inbox ─► battery ─► hub ─► spool ─► append ─► acknowledged
//! API ─────► inbox ─────────────────► spool ─► append ─► battery ─► hub ─► answer 201
//! members ─► inbox ─────────────────► spool ─► absorb ─► battery ─► hub ─► answer 200
//! ```
//!
//! A record of this station gets its sequence when its append begins, and keeps it until the append is
//! known to be stored: dropping from the spool leaves no gap, and repeating stores nothing twice.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_engine::{Engine, Error, Local, Record};
use barograph_forecast::{Name, Outcome};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::bank::{Bank, Measured, Observed};
use crate::health::{Health, lock};
use crate::hub::Hub;

/// Where measurements are handed in; clones share the recorder.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Message>,
    health: Arc<Health>,
}

/// A record that somebody handed in; without an identity it is this station's own.
#[derive(Clone, Debug)]
pub(crate) struct Fed {
    pub(crate) measured: Measured,
    pub(crate) identity: Option<(Name, u64)>,
    /// The time was given; else it is when the record came in, and says nothing of its content.
    pub(crate) time_given: bool,
}

/// Why records that were handed in were not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FeedError {
    #[error("the archive takes no records now: {0}")]
    Unavailable(String),
    #[error("the station is stopping")]
    Stopping,
    #[error("{0}")]
    Invalid(String),
    #[error("record {seq} of `{origin}` is there already with another content")]
    Conflict { origin: Name, seq: u64 },
    #[error("more than {ORIGINS_MAX} origins have handed in records")]
    TooManyOrigins,
    #[error("it is not known whether they were stored")]
    Unknown,
}

enum Message {
    Own(Measured),
    Feed { records: Vec<Fed>, answer: oneshot::Sender<Result<usize, FeedError>> },
    Forwarded { records: Vec<Record>, answer: oneshot::Sender<Result<usize, FeedError>> },
    Stop { deadline: Instant },
}

/// What is appended or dropped as a whole.
struct Entry {
    /// Own records have sequence 0 until their append begins.
    records: Vec<Record>,
    /// `None` = measured here: already learnt, nobody waits.
    answer: Option<oneshot::Sender<Result<usize, FeedError>>>,
    /// From a member of the mesh: the archive takes each record by itself.
    is_forwarded: bool,
    /// The archive refused its records under the numbers that they had first.
    is_renumbered: bool,
}

impl Entry {
    fn new(records: Vec<Record>, answer: Option<oneshot::Sender<Result<usize, FeedError>>>) -> Self {
        Self { records, answer, is_forwarded: false, is_renumbered: false }
    }
}

/// What the recorder works with.
pub(crate) struct Parts {
    pub(crate) host: Name,
    pub(crate) engine: Arc<dyn Engine>,
    /// The archive that members' records go to; `None` = there are no members.
    pub(crate) archive: Option<Arc<Local>>,
    pub(crate) bank: Arc<Mutex<Bank>>,
    pub(crate) hub: Hub,
    pub(crate) health: Arc<Health>,
    pub(crate) spool_records_max: usize,
}

impl Inbox {
    /// An inbox and what the recorder reads from it.
    pub(crate) fn new(health: Arc<Health>) -> (Self, Outbox) {
        let (sender, receiver) = mpsc::channel(INBOX_MESSAGES);
        (Self { sender, health }, Outbox(receiver))
    }

    /// Hands a measurement in without waiting; when the recorder is far behind it is dropped and counted.
    pub(crate) fn offer(&self, measured: Measured) {
        self.health.measured();
        if self.sender.try_send(Message::Own(measured)).is_err() {
            self.health.dropped_at_inbox();
        }
    }

    /// As [`Inbox::offer`] for what the station can do without: it takes no room that its own
    /// measurements may need, and is no sign of its health. False = it is dropped.
    pub(crate) fn offer_spare(&self, measured: Measured) -> bool {
        self.sender.max_capacity() / 2 < self.sender.capacity()
            && self.sender.try_send(Message::Own(measured)).is_ok()
    }

    /// Hands records in and waits until all are durable; gives how many there were.
    pub(crate) async fn feed(&self, records: Vec<Fed>) -> Result<usize, FeedError> {
        let (answer, stored) = oneshot::channel();
        self.hand_in(Message::Feed { records, answer }, stored).await.map_err(|error| match error {
            FeedError::Unknown => FeedError::Unavailable(error.to_string()),
            error => error,
        })
    }

    /// Hands in what a member of the mesh has measured and waits until it is durable or counted as seen.
    ///
    /// After [`FeedError::Unknown`] the same records must be handed in again.
    pub(crate) async fn forward(&self, records: Vec<Record>) -> Result<usize, FeedError> {
        let (answer, stored) = oneshot::channel();
        self.hand_in(Message::Forwarded { records, answer }, stored).await
    }

    async fn hand_in(
        &self,
        message: Message,
        stored: oneshot::Receiver<Result<usize, FeedError>>,
    ) -> Result<usize, FeedError> {
        self.sender.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => FeedError::Unavailable("too much is waiting".into()),
            mpsc::error::TrySendError::Closed(_) => FeedError::Stopping,
        })?;
        match tokio::time::timeout(FEED_TIMEOUT, stored).await {
            Ok(Ok(result)) => result,
            // It has ended with its spool, or with an append on its way.
            Ok(Err(_)) => Err(FeedError::Unknown),
            Err(_) => Err(FeedError::Unknown),
        }
    }

    /// Asks the recorder to store what it has, until `limit` has passed, and to end.
    pub(crate) fn stop(&self, limit: Duration) {
        let mut message = Message::Stop { deadline: Instant::now() + limit };
        // A full inbox is emptied all the time; the loop ends with the recorder.
        while let Err(mpsc::error::TrySendError::Full(back)) = self.sender.try_send(message) {
            message = back;
            std::thread::yield_now();
        }
    }
}

/// The recorder's end of the inbox.
pub(crate) struct Outbox(mpsc::Receiver<Message>);

/// Records until it is stopped; returns how many records could not be stored.
pub(crate) async fn run(parts: Parts, inbox: Outbox) -> usize {
    let mut recorder = Recorder {
        next_seq: None,
        highest: HashMap::new(),
        parts,
        spool: VecDeque::new(),
        contents: Contents::default(),
        spooled: 0,
        forwarded: 0,
        singly: 0,
        asks_again: false,
        delay: Duration::ZERO,
    };
    recorder.run(inbox.0).await
}

struct Recorder {
    parts: Parts,
    spool: VecDeque<Entry>,
    /// What the newest identities stand for.
    contents: Contents,
    /// Records in the spool.
    spooled: usize,
    /// Of them such as members forwarded.
    forwarded: usize,
    /// So many entries are appended one by one, because one of them was refused.
    singly: usize,
    /// The sequence of this station's next record; `None` = the archive has not said yet.
    next_seq: Option<u64>,
    /// The archive may have given up numbers since it said, and is asked before the next one is given.
    asks_again: bool,
    /// Highest sequence seen of each other origin.
    highest: HashMap<Name, u64>,
    /// Wait before the next append, after failures.
    delay: Duration,
}

/// A running append.
type Append = Pin<Box<dyn Future<Output = Appended> + Send>>;

/// An append on its way, and what came of it.
struct Appended {
    entries: Vec<Entry>,
    next_seq: Option<u64>,
    /// As [`Recorder::asks_again`].
    asks_again: bool,
    /// Places of the entries of which the archive took no further origin or gap.
    refused: Vec<usize>,
    /// Other origins of which the archive was asked, with the highest sequence it had before.
    origins: Vec<(Name, Option<u64>)>,
    result: Result<(), Error>,
}

impl Recorder {
    async fn run(&mut self, mut inbox: mpsc::Receiver<Message>) -> usize {
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
                    Some(Message::Own(measured)) => self.take_own(measured),
                    Some(Message::Feed { records, answer }) => self.take_feed(records, answer),
                    Some(Message::Forwarded { records, answer }) => self.take_forwarded(records, answer),
                    Some(Message::Stop { deadline: at }) => {
                        deadline = Some(at);
                        self.delay = Duration::ZERO;
                        inbox.close();
                    }
                    // Closed and drained; what runs or waits is finished below.
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
                () = tokio::time::sleep_until(stop_at), if deadline.is_some() => {
                    return usize::max(1, self.spooled);
                }
            }
            self.parts.health.spool_records.store(self.spooled as u64, Ordering::Relaxed);
        }
    }

    fn take_own(&mut self, measured: Measured) {
        if self.learn(&measured, false) == Learnt::Refused {
            return;
        }
        let record = record(&self.parts.host, 0, measured);
        while self.parts.spool_records_max <= self.spooled && self.drop_oldest_own() {}
        self.push(Entry::new(vec![record], None));
    }

    fn take_feed(&mut self, records: Vec<Fed>, answer: oneshot::Sender<Result<usize, FeedError>>) {
        let refusal = if let Some(error) = self.no_room_for(records.len()) {
            Some(error)
        } else if let Some((origin, seq)) = self.contents.conflict(&records) {
            Some(FeedError::Conflict { origin, seq })
        } else if ORIGINS_MAX <= self.highest.len()
            && records.iter().any(|fed| {
                fed.identity.as_ref().is_some_and(|(origin, _)| !self.highest.contains_key(origin))
            })
        {
            Some(FeedError::TooManyOrigins)
        } else {
            None
        };
        if let Some(error) = refusal {
            // Whoever asked may be gone.
            let _ = answer.send(Err(error));
            return;
        }
        self.contents.remember(&records);
        let host = &self.parts.host;
        let records = records.into_iter().map(|fed| match fed.identity {
            Some((origin, seq)) => record(&origin, seq, fed.measured),
            None => record(host, 0, fed.measured),
        });
        self.push(Entry::new(records.collect(), Some(answer)));
    }

    fn take_forwarded(&mut self, records: Vec<Record>, answer: oneshot::Sender<Result<usize, FeedError>>) {
        // The other half is left to what is measured here.
        let is_full = self.parts.spool_records_max / 2 < self.forwarded + records.len();
        let full = is_full.then(|| FeedError::Unavailable("too much of other stations is waiting".into()));
        if let Some(error) = self.no_room_for(records.len()).or(full) {
            // Whoever asked may be gone.
            let _ = answer.send(Err(error));
            return;
        }
        self.push(Entry { is_forwarded: true, ..Entry::new(records, Some(answer)) });
    }

    fn no_room_for(&self, records: usize) -> Option<FeedError> {
        if let Some(error) = self.parts.health.archive_error() {
            return Some(FeedError::Unavailable(error));
        }
        let is_full = self.parts.spool_records_max < self.spooled + records;
        is_full.then(|| FeedError::Unavailable("too much is waiting".into()))
    }

    fn push(&mut self, entry: Entry) {
        self.spooled += entry.records.len();
        if entry.is_forwarded {
            self.forwarded += entry.records.len();
        }
        self.spool.push_back(entry);
    }

    /// An entry waits no more.
    fn release(&mut self, entry: &Entry) {
        self.spooled -= entry.records.len();
        if entry.is_forwarded {
            self.forwarded -= entry.records.len();
        }
    }

    /// Drops the oldest entry for which nobody waits.
    fn drop_oldest_own(&mut self) -> bool {
        let Some(at) = self.spool.iter().position(|entry| entry.answer.is_none()) else { return false };
        let Some(entry) = self.spool.remove(at) else { return false };
        self.release(&entry);
        let dropped = entry.records.len();
        self.parts.health.dropped(dropped as u64);
        true
    }

    /// Takes the oldest entries and begins to append them, after the delay that failures earned.
    fn begin_append(&mut self) -> Append {
        let mut entries = Vec::new();
        let mut count = 0;
        while let Some(entry) = self.spool.front() {
            let full = BATCH_RECORDS < count + entry.records.len() || 0 < self.singly;
            let differs =
                entries.first().is_some_and(|first: &Entry| first.is_forwarded != entry.is_forwarded);
            if !entries.is_empty() && (full || differs) {
                break;
            }
            count += entry.records.len();
            entries.extend(self.spool.pop_front());
        }
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
        let mut append = Appended {
            entries,
            next_seq: self.next_seq,
            asks_again: self.asks_again,
            refused: Vec::new(),
            origins,
            result: Ok(()),
        };
        let host = self.parts.host.clone();
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            let forwarded = entries_are_forwarded(&append.entries);
            append.result = match archive.filter(|_| forwarded) {
                Some(archive) => absorb(engine.as_ref(), &archive, &mut append).await,
                None => store(engine.as_ref(), &host, &mut append).await,
            };
            append
        })
    }

    fn finish_append(&mut self, done: Appended) {
        let Appended { mut entries, next_seq, asks_again, refused, origins, result } = done;
        (self.next_seq, self.asks_again) = (next_seq, asks_again);
        for (origin, highest) in origins {
            if let Some(highest) = highest {
                self.highest.insert(origin, highest);
            }
        }
        self.singly = self.singly.saturating_sub(1);
        match result {
            Ok(()) => {
                self.delay = Duration::ZERO;
                self.parts.health.appended();
                self.turn_away(&mut entries, &refused);
                self.acknowledge(entries);
            }
            Err(Error::Invalid(_)) if entries.len() == 1 && self.renumber(&mut entries[0]) => {
                self.singly += 1;
                if let Some(entry) = entries.pop() {
                    self.spool.push_front(entry);
                }
            }
            Err(Error::Invalid(message)) if entries.len() == 1 => {
                tracing::error!("a record breaks a limit of the archive and is dropped: {message}");
                self.parts.health.appended();
                for entry in entries {
                    self.release(&entry);
                    self.contents.forget(&entry.records);
                    if let Some(answer) = entry.answer {
                        let _ = answer.send(Err(FeedError::Invalid(message.clone())));
                    }
                }
            }
            Err(error) => {
                if let Error::Invalid(_) = error {
                    self.singly = entries.len();
                } else {
                    self.fail(&error);
                }
                for entry in entries.into_iter().rev() {
                    self.spool.push_front(entry);
                }
            }
        }
    }

    /// Takes the numbers of an entry back, once: the archive may have given them up since it was asked.
    /// What it had stored under them, it would not have refused.
    fn renumber(&mut self, entry: &mut Entry) -> bool {
        let host = &self.parts.host;
        let is_ours = !entry.is_forwarded && self.next_seq.is_some();
        if !is_ours || entry.is_renumbered || !entry.records.iter().all(|record| record.origin == *host) {
            return false;
        }
        for record in &mut entry.records {
            record.seq = 0;
        }
        (entry.is_renumbered, self.asks_again) = (true, true);
        true
    }

    /// Answers those of which the archive has not counted every record.
    fn turn_away(&mut self, entries: &mut Vec<Entry>, refused: &[usize]) {
        for &at in refused.iter().rev() {
            let entry = entries.remove(at);
            self.release(&entry);
            if let Some(answer) = entry.answer {
                let why = "no further origin, or no further gap in a sequence";
                // Whoever asked may be gone.
                let _ = answer.send(Err(FeedError::Unavailable(why.into())));
            }
        }
    }

    fn fail(&mut self, error: &Error) {
        let message = error.to_string();
        if self.parts.health.archive_error().as_ref() != Some(&message) {
            tracing::error!("{message}; measuring goes on, records wait in memory");
        }
        self.parts.health.append_failed(&message);
        self.delay = (self.delay * 2).clamp(DELAY_MIN, DELAY_MAX);
    }

    /// Answers those who wait, and learns what they handed in.
    fn acknowledge(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.release(&entry);
            let Some(answer) = entry.answer else { continue };
            for record in &entry.records {
                let is_shown = !entry.is_forwarded || self.has_share_for(record);
                if self.is_new(record) && is_shown {
                    self.learn(&measured(record), true);
                }
            }
            // Whoever asked may be gone.
            let _ = answer.send(Ok(entry.records.len()));
        }
    }

    /// Whether a stored record was not seen before; remembers its sequence.
    fn is_new(&mut self, record: &Record) -> bool {
        if record.origin == self.parts.host {
            return true;
        }
        let highest = self.highest.entry(record.origin.clone()).or_insert(0);
        let is_new = *highest < record.seq;
        *highest = u64::max(*highest, record.seq);
        is_new
    }

    /// Whether a member's record is one to learn: its own, and of no more series than one member's share.
    fn has_share_for(&self, record: &Record) -> bool {
        let bank = lock(&self.parts.bank);
        let is_known = bank.account(&record.series).is_some();
        record.is_own() && (is_known || bank.count_of(&record.origin) < bank.series_max() / MEMBER_SHARE)
    }

    fn learn(&self, measured: &Measured, in_order: bool) -> Learnt {
        let mut bank = lock(&self.parts.bank);
        let observed = if in_order { bank.observe_in_order(measured) } else { bank.observe(measured) };
        match observed {
            Observed::Refused => return Learnt::Refused,
            Observed::Late => {}
            Observed::New(point) => {
                if self.parts.hub.is_watched() {
                    let account = bank.account(&measured.series).expect("the bank has just taken it");
                    self.parts.hub.publish(account.event(&measured.series, point));
                }
            }
        }
        Learnt::Kept
    }
}

/// Digests of the newest [`CONTENTS_MAX`] records that were handed in with an identity.
///
/// The archive stores an identity once and says nothing of a second content for it; whoever hands that
/// in must not be told that it is stored.
#[derive(Default)]
struct Contents {
    hasher: RandomState,
    /// From the hash of an identity to that of its content.
    digests: HashMap<u64, u64>,
    /// Keys of `digests`, oldest first.
    order: VecDeque<u64>,
}

impl Contents {
    /// The first identity that stands for another content already.
    fn conflict(&self, records: &[Fed]) -> Option<(Name, u64)> {
        let differs = |fed: &&Fed| {
            let key = fed.identity.as_ref().map(|(origin, seq)| self.key(origin, *seq));
            key.and_then(|key| self.digests.get(&key)).is_some_and(|known| *known != self.digest(fed))
        };
        records.iter().find(differs).and_then(|fed| fed.identity.clone())
    }

    fn remember(&mut self, records: &[Fed]) {
        for fed in records {
            let Some((origin, seq)) = &fed.identity else { continue };
            let key = self.key(origin, *seq);
            if self.digests.insert(key, self.digest(fed)).is_none() {
                self.order.push_back(key);
            }
            while CONTENTS_MAX < self.order.len() {
                if let Some(oldest) = self.order.pop_front() {
                    self.digests.remove(&oldest);
                }
            }
        }
    }

    /// Forgets records that were not stored after all.
    fn forget(&mut self, records: &[Record]) {
        for record in records {
            let key = self.key(&record.origin, record.seq);
            if self.digests.remove(&key).is_some() {
                self.order.retain(|known| *known != key);
            }
        }
    }

    fn key(&self, origin: &Name, seq: u64) -> u64 {
        self.hasher.hash_one((origin.as_str(), seq))
    }

    fn digest(&self, fed: &Fed) -> u64 {
        let Measured { series, time_unix_ns, outcome, .. } = &fed.measured;
        let value = match outcome {
            Outcome::Value(value) => value.to_bits(),
            Outcome::Failed { .. } => 0,
        };
        let names = (series.source.as_str(), series.target.as_str(), series.quantity.as_str());
        self.hasher.hash_one((names, fed.time_given.then_some(*time_unix_ns), value))
    }
}

#[derive(PartialEq, Eq)]
enum Learnt {
    Kept,
    Refused,
}

/// Entries of one append are all forwarded, or none is.
fn entries_are_forwarded(entries: &[Entry]) -> bool {
    entries.first().is_some_and(|entry| entry.is_forwarded)
}

/// Gives members' records to the archive, each by itself.
async fn absorb(engine: &dyn Engine, archive: &Local, append: &mut Appended) -> Result<(), Error> {
    ask_highest(engine, append).await?;
    // Together in one commit, and each with its own answer.
    let absorbed = append.entries.iter().map(|entry| archive.absorb(&entry.records));
    let absorbed = within_limit(futures_util::future::try_join_all(absorbed)).await?;
    let refused = absorbed.iter().enumerate().filter(|(_, absorbed)| 0 < absorbed.refused);
    append.refused = refused.map(|(at, _)| at).collect();
    Ok(())
}

async fn ask_highest(engine: &dyn Engine, append: &mut Appended) -> Result<(), Error> {
    for (origin, highest) in &mut append.origins {
        *highest = Some(match within_limit(engine.next_seq(origin)).await {
            Ok(next) => next.saturating_sub(1),
            // It has used its highest; nobody else goes without for it.
            Err(Error::Invalid(_)) => Record::SEQ_MAX,
            Err(error) => return Err(error),
        });
    }
    Ok(())
}

/// Numbers what has no number yet, and appends.
async fn store(engine: &dyn Engine, host: &Name, append: &mut Appended) -> Result<(), Error> {
    ask_highest(engine, append).await?;
    for record in append.entries.iter_mut().flat_map(|entry| &mut entry.records) {
        if record.seq == 0 && record.origin == *host {
            let next = match append.next_seq {
                Some(next) if !append.asks_again => next,
                // What was given and not appended yet is not given again.
                known => within_limit(engine.next_seq(host)).await?.max(known.unwrap_or(1)),
            };
            append.asks_again = false;
            record.seq = next;
            append.next_seq = Some(next + 1);
        }
    }
    let batch: Vec<Record> = append.entries.iter().flat_map(|entry| entry.records.iter().cloned()).collect();
    within_limit(engine.append(&batch)).await
}

async fn within_limit<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(APPEND_TIMEOUT, future).await {
        Ok(result) => result,
        Err(_) => Err(Error::Unknown(format!("no answer for {} s", APPEND_TIMEOUT.as_secs()))),
    }
}

fn record(origin: &Name, seq: u64, measured: Measured) -> Record {
    let Measured { series, time_unix_ns, outcome, detail } = measured;
    Record { origin: origin.clone(), seq, series, time_unix_ns, outcome, detail }
}

fn measured(record: &Record) -> Measured {
    Measured {
        series: record.series.clone(),
        time_unix_ns: record.time_unix_ns,
        outcome: record.outcome,
        detail: record.detail.clone(),
    }
}

/// Messages that wait for the recorder; it handles one in microseconds, so this is seconds of a flood.
const INBOX_MESSAGES: usize = 4096;
/// Records in one append: small enough that one commit stays well under a second.
const BATCH_RECORDS: usize = 2000;
/// First and longest wait after a failed append.
const DELAY_MIN: Duration = Duration::from_millis(200);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// An archive that does not answer for so long is taken as not working; longer than its own deadline.
const APPEND_TIMEOUT: Duration = Duration::from_secs(40);
/// Whoever hands records in is told after this long that their fate is not known.
const FEED_TIMEOUT: Duration = Duration::from_secs(10);
/// Records whose contents are remembered to tell a repetition from a contradiction: about 3 MB.
const CONTENTS_MAX: usize = 65_536;
/// One member gets a quarter of all series: enough for hundreds of peers, and no other goes without.
const MEMBER_SHARE: usize = 4;
/// Other origins whose sequences are remembered; each costs about 300 bytes.
const ORIGINS_MAX: usize = 10_000;

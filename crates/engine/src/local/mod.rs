//! The engine of a single machine: SQLite in the state directory, no server.
//!
//! ```text
//! append ─► queue (bounded) ─► storage thread: group ─► one transaction, fsync ─► acknowledged
//!                                   │ between commits: retention, a step at a time
//!                                   ▼
//! history, latest, subscribe ─► a second connection; WAL lets it read while the thread writes
//! ```

mod absorb;
mod backup;
mod clock;
mod clocks;
mod directory;
mod files;
mod held;
mod read;
mod repair;
mod spool;
mod store;
mod subscribe;
mod sweep;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barograph_forecast::Series;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use self::absorb::Admission;
pub use self::absorb::{Absorbed, NotKept};
use self::clocks::ClocksAhead;
use self::directory::Directory;
use self::files::Files;
pub use self::files::with_remedy;
use self::read::{HeldOf, Reader};
#[cfg(feature = "joined")]
pub(crate) use self::spool::Yielded;
use self::store::{Store, wall_unix_ns};
use self::subscribe::Subscription;
use self::sweep::Retention;
use self::writer::{Append, Command, Shared, Writer};
use crate::{
    BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Page, Range, Record,
    Selector, TaskStatus,
};

/// How a [`Local`] engine keeps its archive.
#[derive(Clone, Debug)]
pub struct Config {
    /// The state directory; made with mode 0700 when it is not there.
    pub directory: PathBuf,
    /// The shortest time between two transactions of a trickle of records; 0 = commit as soon as
    /// the queue is drained. A thousand waiting records are committed at once.
    ///
    /// Default 1 s: an append waits no longer for its acknowledgement, and an idle disk is not
    /// woken for every measurement. At most an hour.
    pub commit_interval: Duration,
    /// Records whose time label is older are removed, and refused when they are appended.
    ///
    /// Age is counted from the newest label stored, or from the wall clock where that is earlier;
    /// a clock that jumps ahead by more than a day is believed after a day.
    ///
    /// Default 400 days: a year and the month after it, so that today can be compared with the
    /// same week of last year.
    pub keep: Duration,
    /// When the archive holds more bytes than this, the records stored first are removed.
    ///
    /// Default 1 GiB: at 66 bytes a record three months of 20 series measured every 10 s (records
    /// with details take several times that), and a size that no disk minds. The file does not
    /// shrink; what is removed makes room for what comes.
    pub keep_bytes: u64,
    /// The most series. Records of further ones are refused when they are appended, and counted as
    /// seen and not kept when members forward them ([`NotKept`]); all members together have seven
    /// eighths, and one of them has an eighth.
    ///
    /// Default 100 000: ten thousand targets with ten quantities; the index of so many takes about
    /// 25 MB.
    pub series_max: usize,
    /// The longest wait of an append beyond `commit_interval`, for room in the queue and for its
    /// commit. Default 30 s: a disk that takes longer is broken. At most an hour.
    pub deadline: Duration,
    /// A live subscriber this many records behind skips to the present and is told so. Default
    /// 10 000: an hour of a busy station.
    pub lag: u64,
}

impl Config {
    /// The defaults, with the archive in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            commit_interval: Duration::from_secs(1),
            keep: Duration::from_hours(400 * 24),
            keep_bytes: 1 << 30,
            series_max: 100_000,
            deadline: Duration::from_secs(30),
            lag: 10_000,
        }
    }

    /// How many series all members together may have in the archive.
    #[must_use]
    pub fn series_of_members(&self) -> usize {
        self.series_max - self.series_of_member()
    }

    /// How many series one member may have in the archive.
    #[must_use]
    pub fn series_of_member(&self) -> usize {
        self.series_max / absorb::SHARE
    }

    fn check(&self) -> Result<(), Error> {
        for (what, duration) in [("commit interval", self.commit_interval), ("deadline", self.deadline)] {
            if WAIT_MAX < duration {
                return Err(Error::Invalid(format!("the {what} of {duration:?} is above {WAIT_MAX:?}")));
            }
        }
        Ok(())
    }
}

/// What `/metrics` and `/healthz` say of the archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Records kept.
    pub records: u64,
    /// Series kept.
    pub series: u64,
    /// Bytes in use in the archive file (its free pages and the write-ahead log not counted).
    pub bytes: u64,
    /// Bytes of records that wait for their commit.
    pub queued_bytes: u64,
    /// Forwarded records that were counted as seen and not kept since the start; see
    /// [`Local::absorb`].
    pub discarded: u64,
    /// Forwarded records that were neither kept nor counted as seen since the start, repetitions counted
    /// again; see [`Absorbed::refused`].
    pub refused: u64,
    /// Of both, why, since the start. Numbers that a station passed over are no loss and not in it.
    pub not_kept: NotKept,
    /// Own records that the mesh has not confirmed yet; 0 when the station is in none.
    pub spooled: u64,
    /// Of them such as a mesh had confirmed and lost.
    pub spooled_again: u64,
    /// Appends refused since the start because as many records as may wait for the mesh.
    pub turned_away: u64,
    /// Transactions of appends since the start.
    pub commits: u64,
    /// How long the last commit took, fsync included; `None` = none yet.
    pub last_commit: Option<Duration>,
    /// Why the last commit failed; `None` = it did not.
    pub last_error: Option<Error>,
}

/// The engine of a single machine.
///
/// ```
/// use barograph_engine::{Config, Engine, Local, Range, Record};
/// use barograph_forecast::{Name, Outcome, Quantity, Series};
/// # use std::time::SystemTime;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let state = tempfile::tempdir()?;
/// # let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
///
/// let engine = Local::open(Config::new(state.path()))?;
/// let origin = Name::new("north.example.net")?;
/// let series = Series { source: origin.clone(), target: Name::new("south")?, quantity: Quantity::RTT };
/// let record = Record {
///     seq: engine.next_seq(&origin).await?,
///     origin,
///     series: series.clone(),
///     time_unix_ns: now.as_nanos().try_into()?,
///     outcome: Outcome::Value(0.012),
///     detail: String::new(),
/// };
/// engine.append(&[record.clone()]).await?; // It is durable now.
/// assert_eq!(engine.history(&series, &Range::newest(10)).await?.items, [record]);
/// # Ok(())
/// # })
/// # }
/// ```
pub struct Local {
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
    task: Arc<TaskStatus>,
    queue: Arc<Semaphore>,
    deadline: Duration,
    lag: u64,
    reader: Reader,
    head: watch::Receiver<u64>,
    statistics: Shared,
    directory: Directory,
    clocks: Mutex<ClocksAhead>,
}

impl Local {
    /// The archive's file name in the state directory.
    pub const FILE: &'static str = "archive.db";

    /// Opens the archive in `config.directory`, or makes a new one.
    ///
    /// Blocks for the disk; call it before the work begins.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a duration of `config` is out of range; [`Error::Unavailable`] when
    /// another station uses the directory or it cannot be written; [`Error::TooNew`]; [`Error::Corrupt`] naming the file and what to do. Nothing is deleted.
    pub fn open(config: Config) -> Result<Self, Error> {
        config.check()?;
        let files = Arc::new(Files::lock(&config.directory)?);
        let retention = Retention { keep: config.keep, keep_bytes: config.keep_bytes };
        let store = Store::open(Arc::clone(&files), retention, config.series_max)?;
        let reader = Reader::open(files)?;
        let (commands, receiver) = mpsc::channel();
        let (head, watcher) = watch::channel(store.index().map_or(0, |index| index.cursor));
        let statistics = Shared::default();
        let writer = Writer {
            store,
            commands: receiver,
            interval: config.commit_interval,
            head,
            statistics: statistics.clone(),
        };
        writer.publish();
        let task = TaskStatus::new("archive");
        let ours = Arc::clone(&task);
        let thread = thread::Builder::new()
            .name("archive".into())
            .spawn(move || {
                ours.run(|| writer.run(&ours));
            })
            .map_err(|error| Error::Unavailable(format!("no thread for the archive: {error}")))?;
        Ok(Self {
            commands,
            thread: Some(thread),
            task,
            queue: Arc::new(Semaphore::new(QUEUE_BYTES)),
            deadline: config.commit_interval.saturating_add(config.deadline),
            lag: config.lag,
            reader,
            head: watcher,
            statistics,
            directory: Directory::new(),
            clocks: Mutex::default(),
        })
    }

    /// Reports stations that were removed in an earlier run, oldest first, to watches that begin from now
    /// on: the directory itself is in memory.
    pub fn restore_removed(&self, hosts: &[HostId]) {
        self.directory.restore_removed(hosts);
    }

    /// Figures about the archive; does not wait for the disk.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let queued_bytes = (QUEUE_BYTES - self.queue.available_permits()) as u64;
        Statistics { queued_bytes, ..self.statistics.lock().clone() }
    }

    /// Writes a consistent copy of the archive to `path` while appends go on.
    ///
    /// The copy appears under its name when it is whole and durable.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `path` exists; [`Error::Unavailable`] when it cannot be written.
    pub async fn backup(&self, path: &Path) -> Result<(), Error> {
        let (files, path) = (Arc::clone(&self.reader.files), path.to_path_buf());
        tokio::task::spawn_blocking(move || backup::backup(&files, &path))
            .await
            .map_err(|error| Error::Unavailable(format!("the backup was cut short: {error}")))?
    }

    /// Every record kept at the time of the call, in the order in which they were stored; then the
    /// stream ends.
    #[must_use]
    pub fn export(&self, selector: &Selector) -> BoxStream<(Cursor, Record)> {
        self.subscription(selector, From::Oldest).until_now().into_stream()
    }

    /// [`Engine::history`] with a page of at most about `bytes_max` bytes.
    #[cfg(feature = "nats")]
    pub(crate) async fn history_within(
        &self,
        series: &Series,
        range: &Range,
        bytes_max: usize,
    ) -> Result<Page<Record>, Error> {
        self.reader.history(series, range, bytes_max).await
    }

    /// [`Engine::latest`] with a page of at most about `bytes_max` bytes.
    #[cfg(feature = "nats")]
    pub(crate) async fn latest_within(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page<Record>, Error> {
        self.reader.latest(selector, after, limit, bytes_max).await
    }

    /// What the archive holds of each of these series.
    pub(crate) async fn held_of(&self, series: Vec<Series>) -> Result<Vec<HeldOf>, Error> {
        self.reader.held_of(series).await
    }

    /// Runs retention now, to its end, and returns how many records it removed.
    ///
    /// It runs by itself after appends, every minute at most and a step of milliseconds at a time.
    ///
    /// # Errors
    /// As an append; what was removed before the error stays removed.
    pub async fn sweep(&self) -> Result<u64, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Sweep(reply))?;
        answer.await.map_err(|_| closed())?
    }

    /// Commits what waits and closes the archive; later appends are refused.
    ///
    /// Dropping the engine does the same, and blocks for that commit. The state directory is free
    /// for another station when the engine and its streams are dropped.
    pub async fn close(&self) {
        self.task.stop();
        let (reply, answer) = oneshot::channel();
        if self.send(Command::Close(reply)).is_ok() {
            // An error means that it was closed already.
            let _ = answer.await;
        }
    }

    /// Bounds the labels of records that other stations wrote and that arrive now ([`Record::bound_label`]), and
    /// keeps account of the origins with a clock ahead. For what is then given to [`Local::absorb`].
    pub fn bound_labels(&self, records: &mut [Record]) {
        let (now_unix_ns, now) = (wall_unix_ns(), std::time::Instant::now());
        let mut clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        // What passes over numbers was not measured, and has no time of its own.
        for record in records.iter_mut().filter(|record| record.passes_over().is_none()) {
            let ahead = record.bound_label(now_unix_ns);
            if clocks.note(&record.origin, ahead, now) {
                let (host, ahead_s) = (&record.origin, ahead.unwrap_or_default().as_secs());
                tracing::warn!(%host, ahead_s, "the clock of a station is ahead: what it measures counts as of its arrival");
            }
        }
    }

    /// Stations whose newest record had a label too far ahead, by name, and how far.
    #[must_use]
    pub fn clocks_ahead(&self) -> Vec<(HostId, Duration)> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner).at(std::time::Instant::now())
    }

    /// Takes records that their writers forward to a mesh's archive: each by itself, durable when
    /// this returns, and idempotent on (origin, seq) like an append.
    ///
    /// A record that is older than what is kept, that is not its writer's own
    /// ([`Record::is_own`]), or whose series finds no room, is counted as seen and not kept, so that
    /// the watermark passes it: its writer has done its part. A writer fills gaps in its own sequence
    /// with [`Record::passing_over`]. Whoever calls this has made sure that each record comes from
    /// the station that it names as its origin.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a record or the batch breaks a limit ([`Record::check`],
    /// [`Record::BATCH_MAX`]), then nothing is taken; otherwise as an append.
    pub async fn absorb(&self, batch: &[Record]) -> Result<Absorbed, Error> {
        self.store(batch, Admission::Forwarded).await
    }

    async fn store(&self, batch: &[Record], admission: Admission) -> Result<Absorbed, Error> {
        let bytes = check_batch(batch)?;
        if batch.is_empty() {
            return Ok(Absorbed::default());
        }
        let deadline = Instant::now() + self.deadline;
        let permit = timeout_at(deadline, Arc::clone(&self.queue).acquire_many_owned(bytes))
            .await
            .map_err(|_| Error::Unavailable(format!("no room in the queue within {:?}", self.deadline)))?
            .map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        self.send(Command::Append(Append { batch: batch.to_vec(), admission, permit, reply }))?;
        timeout_at(deadline, answer)
            .await
            .map_err(|_| Error::Unknown(format!("no answer within {:?}", self.deadline)))?
            .map_err(|_| Error::Unknown("the archive was closed".into()))?
    }

    fn subscription(&self, selector: &Selector, from: From) -> Subscription {
        Subscription::new(self.reader.clone(), self.head.clone(), selector, from, self.lag)
    }

    fn send(&self, command: Command) -> Result<(), Error> {
        self.commands.send(command).map_err(|_| closed())
    }
}

#[async_trait::async_trait]
impl Engine for Local {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        self.directory.register(entry, ttl)
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.directory.watch(group)
    }

    async fn remove(&self, host: &HostId) -> Result<(), Error> {
        self.directory.remove(host);
        Ok(())
    }

    async fn append(&self, batch: &[Record]) -> Result<(), Error> {
        self.store(batch, Admission::Whole).await.map(drop)
    }

    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)> {
        self.subscription(selector, from).into_stream()
    }

    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error> {
        self.reader.history(series, range, Range::BYTES_MAX).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, Error> {
        self.reader.latest(selector, after, limit, Range::BYTES_MAX).await
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, Error> {
        self.reader.sequences(origin).await.map(|(watermark, _)| watermark)
    }

    async fn next_seq(&self, origin: &HostId) -> Result<u64, Error> {
        let (_, highest) = self.reader.sequences(origin).await?;
        if Record::SEQ_MAX <= highest {
            return Err(Error::Invalid(format!(
                "{origin} has used the highest sequence, {}; it can only go on under another name",
                Record::SEQ_MAX
            )));
        }
        Ok(highest + 1)
    }

    fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        vec![Arc::clone(&self.task)]
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // The thread ends by itself when the last sender is gone; here it is told, and waited for,
        // so that the archive is closed when the drop is over.
        self.task.stop();
        let (reply, _) = oneshot::channel();
        let _ = self.commands.send(Command::Close(reply));
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Checks a batch, and says what it takes of the queue, in bytes.
fn check_batch(batch: &[Record]) -> Result<u32, Error> {
    if Record::BATCH_MAX < batch.len() {
        return Err(Error::Invalid(format!(
            "a batch holds {} records at most, not {}",
            Record::BATCH_MAX,
            batch.len()
        )));
    }
    let mut bytes = 0;
    for record in batch {
        record.check()?;
        bytes += RECORD_BYTES + record.detail.len();
    }
    Ok(u32::try_from(bytes).expect("the largest batch has less than QUEUE_BYTES"))
}

fn closed() -> Error {
    Error::Unavailable("the archive is closed".into())
}

/// Whoever waits longer than this does not wait for a disk.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// What a record without detail is taken to occupy in memory.
const RECORD_BYTES: usize = 256;

/// Room for the largest batch there may be: 43.5 MB, of ordinary records 170 000.
const QUEUE_BYTES: usize = Record::BATCH_MAX * (RECORD_BYTES + Record::DETAIL_BYTES_MAX);

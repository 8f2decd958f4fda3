//! The engine of a single machine: SQLite in the state directory, without a server.
//!
//! ```text
//! append ─► queue (bounded) ─► storage thread: group ─► one transaction, fsync ─► acknowledged
//!                                   │ between commits: retention, a step at a time
//!                                   ▼
//! history, latest, subscribe ─► a second connection; WAL lets it read while the thread writes
//! ```

mod backup;
mod clock;
mod clocks;
mod directory;
mod files;
mod forwarded;
mod read;
mod repair;
mod seq_set;
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

use barograph_forecast::SeriesId;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use self::clocks::ClocksAhead;
use self::directory::Directory;
use self::files::Files;
pub use self::files::describe_io_error;
use self::forwarded::AppendMode;
pub use self::forwarded::{DropCounts, ForwardedCounts};
use self::read::{Reader, SeriesPresence};
#[cfg(feature = "joined")]
pub(crate) use self::spool::ExcludedNumbers;
use self::store::{Store, wall_unix_ns};
use self::subscribe::Subscription;
use self::sweep::Retention;
use self::writer::{Append, Command, Shared, Writer};
use crate::{
    BoxStream, Cursor, Engine, EngineError, Entry, Event, Group, HostId, Lease, Page, Range, Record,
    Selector, StartAt, TaskStatus,
};

/// Configuration of a [`Local`] engine.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The state directory. If the directory does not exist, it is created with mode 0700.
    pub directory: PathBuf,
    /// Shortest time between two transactions; 0 commits as soon as the queue is empty. When a
    /// thousand records wait, they are committed without further delay.
    ///
    /// Default: 1 s. An append then waits at most this time before its commit begins, and an idle
    /// disk does not wake up for every measurement. The value is at most an hour.
    pub commit_interval: Duration,
    /// Age beyond which records are removed, and refused when they are appended.
    ///
    /// The age is counted back from the newest stored label, or from the wall clock if the wall
    /// clock is earlier. A clock that jumps ahead by more than a day is trusted after a day.
    ///
    /// Default: 400 days, a year and a month, so that today can be compared with the same week of
    /// last year.
    pub keep: Duration,
    /// Largest size of the archive in bytes. If the archive is larger, retention removes records of
    /// the origins that take the most space, starting with the records that were stored first.
    ///
    /// Default: 1 GiB. At 66 bytes a record, that is three months of 20 series measured every 10 s.
    /// Records with details take several times as much. The file does not shrink; new records use
    /// the space of removed records.
    pub keep_bytes: u64,
    /// Largest number of series in the archive. Appends of records of further series are refused;
    /// records that members forward are counted as seen and discarded ([`DropCounts`]). One member
    /// gets an eighth of the series, and all members together get seven eighths.
    ///
    /// Default: 100 000, or ten thousand targets with ten quantities. With 100 000 series, the
    /// index takes about 25 MB.
    pub series_max: usize,
    /// Longest wait of an append beyond `commit_interval`, for space in the queue and for its
    /// commit. Default: 30 s. A disk that needs more time is broken. The value is at most an hour.
    pub deadline: Duration,
    /// Number of records by which a live subscriber may be behind. Beyond this number the
    /// subscriber gets [`EngineError::Lagged`] and continues with the newest records. Default: 10
    /// 000, an hour of a busy station.
    pub lag: u64,
    /// Stations that may have forwarded records to an archive of an earlier version. Earlier
    /// versions did not mark the origins of forwarded records.
    ///
    /// When this version opens such an archive for the first time, it marks each origin of the
    /// archive that is in this list and is the source of a series; see [`Local::has_forwarded`].
    /// Later opens ignore the list. Default: empty.
    pub forwarders: Vec<HostId>,
}

impl LocalConfig {
    /// Default configuration, with the archive in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            commit_interval: Duration::from_secs(1),
            keep: Duration::from_hours(400 * 24),
            keep_bytes: 1 << 30,
            series_max: 100_000,
            deadline: Duration::from_secs(30),
            lag: 10_000,
            forwarders: Vec::new(),
        }
    }

    /// Largest number of series in the archive that all members together may have.
    #[must_use]
    pub fn series_of_members(&self) -> usize {
        self.series_max - self.series_of_member()
    }

    /// Largest number of series in the archive that one member may have.
    #[must_use]
    pub fn series_of_member(&self) -> usize {
        self.series_max / forwarded::MEMBER_DIVISOR
    }

    /// Bytes that a full archive still has after the oldest records were removed. Each origin
    /// keeps an equal share of these bytes, or less if it needs less.
    #[must_use]
    pub fn kept_bytes_min(&self) -> u64 {
        self.keep_bytes - (self.keep_bytes as f64 * sweep::PART_MIN) as u64
    }

    fn check(&self) -> Result<(), EngineError> {
        for (what, duration) in [("commit interval", self.commit_interval), ("deadline", self.deadline)] {
            if duration > WAIT_MAX {
                return Err(EngineError::Invalid(format!(
                    "the {what} is {duration:?}; at most {WAIT_MAX:?}"
                )));
            }
        }
        Ok(())
    }
}

/// State of the archive for `/metrics` and `/healthz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalStatistics {
    /// Number of stored records.
    pub records: u64,
    /// Number of stored series.
    pub series: u64,
    /// Bytes in use in the archive file, without its free pages and the write-ahead log.
    pub bytes: u64,
    /// Bytes of records that wait for their commit.
    pub queued_bytes: u64,
    /// Forwarded records that were counted as seen and discarded since the start; see
    /// [`Local::append_forwarded`].
    pub discarded: u64,
    /// Forwarded records that were neither stored nor counted as seen since the start. Repetitions
    /// count again; see [`ForwardedCounts::refused`].
    pub refused: u64,
    /// Discarded and refused records by cause, since the start. Markers of skipped numbers do not
    /// count.
    pub dropped_by_cause: DropCounts,
    /// Own records that the mesh has not confirmed yet; 0 if the station is in no mesh.
    pub spooled: u64,
    /// Spooled records that a mesh had confirmed and lost.
    pub spooled_resend: u64,
    /// Appends that were refused since the start because the spool was full.
    pub spool_rejections: u64,
    /// Transactions of appends since the start.
    pub commits: u64,
    /// Duration of the last commit, fsync included; `None` before the first commit.
    pub last_commit: Option<Duration>,
    /// Error of the newest commit or retention run that failed; `None` after a later commit
    /// succeeded.
    pub last_error: Option<EngineError>,
}

/// The engine of a single machine.
///
/// ```
/// use barograph_engine::{LocalConfig, Engine, Local, Range, Record};
/// use barograph_forecast::{Name, Outcome, Quantity, SeriesId};
/// # use std::time::SystemTime;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let state = tempfile::tempdir()?;
/// # let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
///
/// let engine = Local::open(LocalConfig::new(state.path()))?;
/// let origin = Name::new("north.example.net")?;
/// let series =
///     SeriesId { source: origin.clone(), target: Name::new("south")?, quantity: Quantity::RTT };
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
    /// File name of the archive in the state directory.
    pub const FILE: &'static str = "archive.db";

    /// Opens the archive in `config.directory`, or creates a new one.
    ///
    /// Blocks while the disk is read. Call this function before asynchronous work begins.
    ///
    /// # Errors
    /// Nothing is deleted.
    /// - [`EngineError::Invalid`]: a duration of `config` is out of range.
    /// - [`EngineError::Unavailable`]: another station uses the directory, or the directory cannot
    ///   be written.
    /// - [`EngineError::TooNew`]: a newer version wrote the archive.
    /// - [`EngineError::Corrupt`]: the archive is damaged. The message names the file and the
    ///   remedy.
    pub fn open(config: LocalConfig) -> Result<Self, EngineError> {
        config.check()?;
        let files = Arc::new(Files::lock(&config.directory)?);
        let retention = Retention { keep: config.keep, keep_bytes: config.keep_bytes };
        let store = Store::open(Arc::clone(&files), retention, config.series_max, &config.forwarders)?;
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
            .map_err(|error| EngineError::Unavailable(format!("no thread for the archive: {error}")))?;
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

    /// Restores the list of stations that were removed in an earlier run. In `hosts`, the oldest
    /// removal is first. Watches that begin after this call report these stations. The list must be
    /// restored, because the directory is only in memory.
    pub fn restore_removed(&self, hosts: &[HostId]) {
        self.directory.restore_removed(hosts);
    }

    /// State of the archive. Does not wait for the disk.
    #[must_use]
    pub fn statistics(&self) -> LocalStatistics {
        let queued_bytes = (QUEUE_BYTES - self.queue.available_permits()) as u64;
        LocalStatistics { queued_bytes, ..self.statistics.lock().clone() }
    }

    /// Writes a consistent copy of the archive to `path` while appends continue.
    ///
    /// The copy gets its name when it is complete and durable.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if `path` exists; [`EngineError::Unavailable`] if `path` cannot be
    /// written.
    pub async fn backup(&self, path: &Path) -> Result<(), EngineError> {
        let (files, path) = (Arc::clone(&self.reader.files), path.to_path_buf());
        tokio::task::spawn_blocking(move || backup::backup(&files, &path))
            .await
            .map_err(|error| EngineError::Unavailable(format!("the backup was interrupted: {error}")))?
    }

    /// Streams every record stored at the time of the call, in the order of storing. Then the
    /// stream ends.
    #[must_use]
    pub fn export(&self, selector: &Selector) -> BoxStream<(Cursor, Record)> {
        self.subscription(selector, StartAt::Oldest).until_now().into_stream()
    }

    /// [`Engine::history`] with a page of at most about `bytes_max` bytes.
    #[cfg(feature = "nats")]
    pub(crate) async fn history_within(
        &self,
        series: &SeriesId,
        range: &Range,
        bytes_max: usize,
    ) -> Result<Page<Record>, EngineError> {
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
    ) -> Result<Page<Record>, EngineError> {
        self.reader.latest(selector, after, limit, bytes_max).await
    }

    /// Returns for each of these series whether the archive has it and which station wrote its
    /// newest record.
    pub(crate) async fn series_presence(
        &self,
        series: Vec<SeriesId>,
    ) -> Result<Vec<SeriesPresence>, EngineError> {
        self.reader.series_presence(series).await
    }

    /// Runs retention now, to its end. Returns the number of removed records.
    ///
    /// Retention also runs after appends, in steps of milliseconds: each minute, and after a second
    /// if the archive is a sixteenth above its limit.
    ///
    /// # Errors
    /// Those of an append. Records removed before the error stay removed.
    pub async fn sweep(&self) -> Result<u64, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Sweep(reply))?;
        answer.await.map_err(|_| closed())?
    }

    /// Commits waiting records and closes the archive. Later appends are refused.
    ///
    /// Dropping the engine does the same, and blocks until the commit is complete. Another station
    /// can use the state directory when the engine and its streams are dropped.
    pub async fn close(&self) {
        self.task.stop();
        let (reply, answer) = oneshot::channel();
        if self.send(Command::Close(reply)).is_ok() {
            // `send` fails if the archive was closed already; that is no error.
            let _ = answer.await;
        }
    }

    /// Bounds the labels of records that other stations wrote ([`Record::bound_label`]), and
    /// records the origins that have a clock ahead of this station's clock. Call this function
    /// before [`Local::append_forwarded`].
    ///
    /// Each record comes with the time at which it arrived in the mesh, `None` = now. When a stream
    /// is read again, a label that was ahead may not be ahead of now any more; the label is still
    /// bounded by the time of arrival. Only records that arrived within the last minute show
    /// whether the clock of their origin is ahead now.
    pub fn bound_labels<'a>(&self, records: impl Iterator<Item = (&'a mut Record, Option<i64>)>) {
        let (now_unix_ns, now) = (wall_unix_ns(), std::time::Instant::now());
        let mut clocks = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        // A marker of skipped numbers is no measurement, so the label of the marker means nothing.
        for (record, arrival_unix_ns) in records.filter(|(record, _)| record.skipped_range().is_none()) {
            let arrival_unix_ns = arrival_unix_ns.map_or(now_unix_ns, |time| time.min(now_unix_ns));
            let ahead = record.bound_label(arrival_unix_ns);
            let age = Duration::from_nanos(now_unix_ns.saturating_sub(arrival_unix_ns).unsigned_abs());
            if age > Record::LABEL_AHEAD_MAX {
                continue;
            }
            if clocks.record(&record.origin, ahead, now) {
                let (host, ahead_s) = (&record.origin, ahead.unwrap_or_default().as_secs());
                tracing::warn!(
                    %host, ahead_s,
                    "a station's clock is ahead; its records get the time of their arrival. Set its clock"
                );
            }
        }
    }

    /// Stations with a label on their newest record that was too far ahead, ordered by name, and
    /// the time by which the label was ahead.
    #[must_use]
    pub fn clocks_ahead(&self) -> Vec<(HostId, Duration)> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner).at(std::time::Instant::now())
    }

    /// Stores records that their writers forward to a mesh's archive. Each record is stored,
    /// discarded or refused by itself. Stored records are durable when this function returns. A
    /// repeated (origin, seq) has no effect, as in an append.
    ///
    /// A record is counted as seen and discarded if it is older than retention keeps, is not its
    /// writer's own ([`Record::is_own`]), or belongs to a series for which the archive has no room.
    /// So the watermark passes the discarded record, and the writer need not send the record again.
    /// A writer fills gaps in its own sequence with [`Record::skip_marker`]. The caller must have
    /// verified that each record comes from the station that it names as its origin.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if a record or the batch breaks a limit ([`Record::check`],
    /// [`Record::BATCH_MAX`]); then nothing is stored. Otherwise the errors of [`Engine::append`].
    pub async fn append_forwarded(&self, batch: &[Record]) -> Result<ForwardedCounts, EngineError> {
        self.store(batch, AppendMode::Forwarded).await
    }

    /// Appends records that a caller numbers: a batch with an origin that ever forwarded a record
    /// to this archive ([`append_forwarded`](Self::append_forwarded)) is refused. That origin
    /// numbers its records itself. If the caller used the same numbers, an append would take the
    /// caller's records for repetitions, and would not store them.
    ///
    /// # Errors
    /// [`EngineError::Denied`] if an origin of the batch forwarded records; then nothing is stored.
    /// Otherwise those of an append.
    pub async fn append_numbered(&self, batch: &[Record]) -> Result<(), EngineError> {
        self.store(batch, AppendMode::Numbered).await.map(drop)
    }

    /// Returns whether `origin` ever forwarded a record to this archive
    /// ([`append_forwarded`](Self::append_forwarded)). A refused record does not count.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if the archive cannot be read; [`EngineError::Corrupt`] if it
    /// is damaged.
    pub async fn has_forwarded(&self, origin: &HostId) -> Result<bool, EngineError> {
        self.reader.has_forwarded(origin).await
    }

    async fn store(&self, batch: &[Record], mode: AppendMode) -> Result<ForwardedCounts, EngineError> {
        let bytes = check_batch(batch)?;
        if batch.is_empty() {
            return Ok(ForwardedCounts::default());
        }
        let deadline = Instant::now() + self.deadline;
        let permit = timeout_at(deadline, Arc::clone(&self.queue).acquire_many_owned(bytes))
            .await
            .map_err(|_| {
                EngineError::Unavailable(format!("no space in the queue within {:?}", self.deadline))
            })?
            .map_err(|_| closed())?;
        let (reply, answer) = oneshot::channel();
        self.send(Command::Append(Append { batch: batch.to_vec(), mode, permit, reply }))?;
        timeout_at(deadline, answer)
            .await
            .map_err(|_| EngineError::Unknown(format!("no response within {:?}", self.deadline)))?
            .map_err(|_| EngineError::Unknown("the archive was closed".into()))?
    }

    fn subscription(&self, selector: &Selector, from: StartAt) -> Subscription {
        Subscription::new(self.reader.clone(), self.head.clone(), selector, from, self.lag)
    }

    fn send(&self, command: Command) -> Result<(), EngineError> {
        self.commands.send(command).map_err(|_| closed())
    }
}

#[async_trait::async_trait]
impl Engine for Local {
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, EngineError> {
        self.directory.register(entry, ttl)
    }

    fn watch(&self, group: &Group) -> BoxStream<Event> {
        self.directory.watch(group)
    }

    async fn remove(&self, host: &HostId) -> Result<(), EngineError> {
        self.directory.remove(host);
        Ok(())
    }

    /// Does not check whether a different station numbers the records of an origin. For records
    /// that a caller numbers, use [`Local::append_numbered`]: if an origin forwards records with
    /// the same numbers to this archive, these records count as repetitions and are not stored.
    async fn append(&self, batch: &[Record]) -> Result<(), EngineError> {
        self.store(batch, AppendMode::AllOrNothing).await.map(drop)
    }

    fn subscribe(&self, selector: &Selector, from: StartAt) -> BoxStream<(Cursor, Record)> {
        self.subscription(selector, from).into_stream()
    }

    async fn history(&self, series: &SeriesId, range: &Range) -> Result<Page<Record>, EngineError> {
        self.reader.history(series, range, Range::BYTES_MAX).await
    }

    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, EngineError> {
        self.reader.latest(selector, after, limit, Range::BYTES_MAX).await
    }

    async fn watermark(&self, origin: &HostId) -> Result<u64, EngineError> {
        self.reader.sequences(origin).await.map(|(watermark, _)| watermark)
    }

    async fn next_seq(&self, origin: &HostId) -> Result<u64, EngineError> {
        let (_, highest) = self.reader.sequences(origin).await?;
        if highest >= Record::SEQ_MAX {
            return Err(EngineError::Invalid(format!(
                "{origin} has used the highest sequence number, {}; give the station another name",
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
        // The thread also ends when the last sender is dropped. Stop and join it here, so that the
        // archive is closed when `drop` returns.
        self.task.stop();
        let (reply, _) = oneshot::channel();
        let _ = self.commands.send(Command::Close(reply));
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic hook has reported it already.
            let _ = thread.join();
        }
    }
}

/// Checks that the batch is within the limits. Returns the number of bytes that the batch takes of
/// the queue.
fn check_batch(batch: &[Record]) -> Result<u32, EngineError> {
    if batch.len() > Record::BATCH_MAX {
        return Err(EngineError::Invalid(format!(
            "a batch has at most {} records, not {}",
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

fn closed() -> EngineError {
    EngineError::Unavailable("the archive is closed".into())
}

/// Largest value of a configured time. No disk needs a longer time.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// Assumed memory of a record without detail, in bytes.
const RECORD_BYTES: usize = 256;

/// Size of the queue of appends, in bytes: 43.5 MB, enough for the largest batch or for 170 000
/// ordinary records.
const QUEUE_BYTES: usize = Record::BATCH_MAX * (RECORD_BYTES + Record::DETAIL_BYTES_MAX);

//! The archive beside NATS: reads the stream into a [`Local`], and answers requests of the mesh.

mod answering;
mod nonces;
mod reading;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::nonces::Nonces;
use super::Nats;
use super::archive_request::{ArchiveResponseJson, archive_number};
use super::connection::NatsConnection;
use super::progress::Progress;
use super::request_limits::RequestLimits;
use super::stream_position::StreamPosition;
use super::write_limits::WriteLimits;
use crate::{EngineError, Local, TaskStatus};

/// Counters of an archiver since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiverStatistics {
    /// Messages read from the stream.
    pub consumed: u64,
    /// Number of messages that were read and were not a valid record of the station that published
    /// the message.
    pub discarded: u64,
    /// Number of messages that left the stream before this archive had read them. The stations that
    /// published these messages send them again.
    pub missed: u64,
    /// Unread messages in the stream at the last read.
    pub lag: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Reason why the archiver cannot read the stream now; `None` if the archiver can read the
    /// stream.
    pub last_error: Option<String>,
}

/// The archive of a mesh on NATS.
///
/// The archiver reads each record of the stream into a [`Local`]. After the commit, the archiver
/// writes its position to a file. The archiver may read some records twice; the archive stores each
/// record once. A mesh may have several archives: each reads all records, and any of them responds.
///
/// To receive new records, subscribe to the [`Local`].
pub struct Archiver {
    shared: Arc<Shared>,
    tasks: [(Arc<TaskStatus>, JoinHandle<()>); 2],
    /// The connection; the tasks of the archiver run on the connection's thread.
    _nats: Arc<Nats>,
}

struct Shared {
    connection: Arc<NatsConnection>,
    local: Arc<Local>,
    number: u16,
    file: PathBuf,
    progress: watch::Sender<Progress>,
    /// When the bucket of registrations was created; `None` until the servers have reported it.
    bucket: Mutex<Option<String>>,
    /// Whether reading and answering have begun.
    begun: watch::Sender<bool>,
    /// Signals that a request needs records that are not read yet.
    wanted: Notify,
    request_limits: RequestLimits,
    write_limits: WriteLimits,
    nonces: Nonces,
    /// Highest number of a registration in the bucket that this archive has written or read, or a
    /// lower number.
    newest: AtomicU64,
    /// Held while a write for a station creates the streams. After an outage, many writes of
    /// stations find that the streams are missing.
    ensuring: Arc<tokio::sync::Mutex<()>>,
    /// When the servers last denied this archive records of a station.
    denied_at: Mutex<Option<Instant>>,
    answered: AtomicU64,
    statistics: Mutex<ArchiverStatistics>,
}

impl Archiver {
    /// File beside the archive with the position up to which the stream was read. Remove this file
    /// when you restore an older copy of the archive; the stream is then read from its beginning.
    pub const FILE: &'static str = "nats.place";

    /// Starts to read the stream into `local`, which has its files in `directory`, and to answer
    /// requests. Does not wait for a server.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if the file in `directory` exists and cannot be read.
    pub fn start(nats: &Arc<Nats>, local: Arc<Local>, directory: &Path) -> Result<Self, EngineError> {
        let archiver = Self::prepare(nats, local, directory)?;
        archiver.begin();
        Ok(archiver)
    }

    /// Like [`Archiver::start`], but reads and answers nothing before [`Archiver::begin`].
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if the file in `directory` exists and cannot be read.
    pub fn prepare(nats: &Arc<Nats>, local: Arc<Local>, directory: &Path) -> Result<Self, EngineError> {
        let connection = Arc::clone(&nats.connection);
        let file = directory.join(Self::FILE);
        let mut position = StreamPosition::read(&file)?;
        if local.statistics().records == 0 {
            // The archive is empty, so the file with the position belongs to an older archive.
            position = StreamPosition::default();
        }
        let shared = Arc::new(Shared {
            number: archive_number(&connection.config.host),
            connection: Arc::clone(&connection),
            local,
            file,
            progress: watch::Sender::default(),
            bucket: Mutex::default(),
            begun: watch::Sender::new(false),
            wanted: Notify::new(),
            request_limits: RequestLimits::new(),
            write_limits: WriteLimits::new(),
            nonces: Nonces::new(connection.config.deadline.min(NONCE_PERIOD_MAX)),
            newest: AtomicU64::new(0),
            ensuring: Arc::default(),
            denied_at: Mutex::default(),
            answered: AtomicU64::new(0),
            statistics: Mutex::default(),
        });
        let (reader, answerer) = (TaskStatus::new("archive_reader"), TaskStatus::new("archive_answerer"));
        let (reads, answers) = (Arc::clone(&reader), Arc::clone(&answerer));
        let (reading, answering) = (reading::read(Arc::clone(&shared), position), Arc::clone(&shared));
        let waiting = Arc::clone(&shared);
        let read = connection.spawn(async move {
            waiting.has_begun().await;
            reads.watch(reading).await;
        });
        let answer = connection.spawn(async move {
            answering.has_begun().await;
            answers.restart(|| answering::answer(Arc::clone(&answering))).await;
        });
        let tasks = [(reader, read), (answerer, answer)];
        Ok(Self { shared, tasks, _nats: Arc::clone(nats) })
    }

    /// Starts to read the stream and to answer requests, unless both have begun already.
    pub fn begin(&self) {
        self.shared.begun.send_replace(true);
    }

    /// Counters since the start.
    #[must_use]
    pub fn statistics(&self) -> ArchiverStatistics {
        let answered = self.shared.answered.load(Ordering::Relaxed);
        ArchiverStatistics { answered, ..self.shared.lock().clone() }
    }

    /// Status of each task of the archiver.
    #[must_use]
    pub fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        self.tasks.iter().map(|(status, _)| Arc::clone(status)).collect()
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        for (_, task) in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    async fn has_begun(&self) {
        // `wait_for` cannot fail, because `self` holds the sender.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// An empty response with the number of this archive and its stream.
    fn answer(&self) -> ArchiveResponseJson<'static> {
        let stream = Some(self.progress.borrow().stream.clone()).filter(|stream| !stream.is_empty());
        ArchiveResponseJson {
            archive: self.number,
            stream,
            nonce: Some(self.nonces.current()),
            ..ArchiveResponseJson::default()
        }
    }

    fn bucket(&self) -> Option<String> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ArchiverStatistics> {
        // The values do not depend on each other, so they are valid even after a panic of a
        // different lock holder.
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest time for which a nonce is issued. An archive executes no write that is older than twice
/// this time (docs/spec/mesh.md §7).
const NONCE_PERIOD_MAX: Duration = Duration::from_secs(5);

/// First and longest wait after an error. The wait doubles with each further error.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

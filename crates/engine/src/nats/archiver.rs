//! The archive beside NATS: reads the stream into a [`Local`], and answers for the mesh.

mod answering;
mod reading;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::Nats;
use super::askers::Askers;
use super::link::Link;
use super::place::Place;
use super::progress::Progress;
use super::question::{AnswerJson, archive_number};
use crate::{Error, Local, TaskStatus};

/// What an archiver has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiverStatistics {
    /// Messages read from the stream.
    pub consumed: u64,
    /// Of these, those that were no record of the station that published them.
    pub discarded: u64,
    /// Messages that left the stream before this archive had read them; their stations send them again.
    pub missed: u64,
    /// Messages in the stream that are not read yet, when it was last looked.
    pub lag: u64,
    /// Questions answered.
    pub answered: u64,
    /// Why it does not get on now; `None` = it does.
    pub last_error: Option<String>,
}

/// The archive of a mesh on NATS.
///
/// It reads every record of the stream into its [`Local`] and remembers how far it came in a file beside it,
/// written after the commit; it may read some records twice, which changes nothing. A mesh may have several:
/// each reads all by itself, and any of them answers.
///
/// Whoever wants to hear of new records subscribes to the [`Local`].
pub struct Archiver {
    shared: Arc<Shared>,
    tasks: [(Arc<TaskStatus>, JoinHandle<()>); 2],
    /// The tasks run on its thread.
    _nats: Arc<Nats>,
}

struct Shared {
    link: Arc<Link>,
    local: Arc<Local>,
    number: u16,
    file: PathBuf,
    progress: watch::Sender<Progress>,
    /// When the bucket of registrations was made; `None` = the servers have not answered yet.
    bucket: Mutex<Option<String>>,
    /// Whether it has begun to read and to answer.
    begun: watch::Sender<bool>,
    /// A question came for what is not read yet.
    wanted: Notify,
    askers: Askers,
    answered: AtomicU64,
    statistics: Mutex<ArchiverStatistics>,
}

impl Archiver {
    /// The file beside the archive that says how far it has read. Who brings back an older copy of an
    /// archive removes it; then the stream is read from its beginning.
    pub const FILE: &'static str = "nats.place";

    /// Begins to read the stream into `local`, whose files are in `directory`, and to answer. Does not wait
    /// for a server.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file in `directory` is there but cannot be read.
    pub fn start(nats: &Arc<Nats>, local: Arc<Local>, directory: &Path) -> Result<Self, Error> {
        let archiver = Self::prepare(nats, local, directory)?;
        archiver.begin();
        Ok(archiver)
    }

    /// As [`Archiver::start`], but nothing is read or answered before [`Archiver::begin`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the file in `directory` is there but cannot be read.
    pub fn prepare(nats: &Arc<Nats>, local: Arc<Local>, directory: &Path) -> Result<Self, Error> {
        let link = Arc::clone(&nats.link);
        let file = directory.join(Self::FILE);
        let mut place = Place::read(&file)?;
        if local.statistics().records == 0 {
            // A new archive, whatever an older one had read.
            place = Place::default();
        }
        let shared = Arc::new(Shared {
            number: archive_number(&link.config.host),
            link: Arc::clone(&link),
            local,
            file,
            progress: watch::Sender::default(),
            bucket: Mutex::default(),
            begun: watch::Sender::new(false),
            wanted: Notify::new(),
            askers: Askers::new(),
            answered: AtomicU64::new(0),
            statistics: Mutex::default(),
        });
        let (reader, answerer) = (TaskStatus::new("archive_reader"), TaskStatus::new("archive_answerer"));
        let (reads, answers) = (Arc::clone(&reader), Arc::clone(&answerer));
        let (reading, answering) = (reading::read(Arc::clone(&shared), place), Arc::clone(&shared));
        let waiting = Arc::clone(&shared);
        let read = link.spawn(async move {
            waiting.has_begun().await;
            reads.watch(reading).await;
        });
        let answer = link.spawn(async move {
            answering.has_begun().await;
            answers.restart(|| answering::answer(Arc::clone(&answering))).await;
        });
        let tasks = [(reader, read), (answerer, answer)];
        Ok(Self { shared, tasks, _nats: Arc::clone(nats) })
    }

    /// Begins to read the stream and to answer, if that has not begun.
    pub fn begin(&self) {
        self.shared.begun.send_replace(true);
    }

    /// What it has done since it started.
    #[must_use]
    pub fn statistics(&self) -> ArchiverStatistics {
        let answered = self.shared.answered.load(Ordering::Relaxed);
        ArchiverStatistics { answered, ..self.shared.lock().clone() }
    }

    /// The status of each of its tasks.
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
        // The sender is in here.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// An answer that says nothing yet but who gives it.
    fn answer(&self) -> AnswerJson<'static> {
        let stream = Some(self.progress.borrow().stream.clone()).filter(|stream| !stream.is_empty());
        AnswerJson { archive: self.number, stream, ..AnswerJson::default() }
    }

    /// When the bucket was made, as far as is known.
    fn bucket(&self) -> Option<String> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ArchiverStatistics> {
        // Each figure stands for itself, so a panic elsewhere does not spoil them.
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After something went wrong, twice as long each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

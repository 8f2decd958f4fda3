//! The engine of a single machine: SQLite in the state directory, no server.
//!
//! ```text
//! append ─► queue (bounded) ─► storage thread: group ─► one transaction, fsync ─► acknowledged
//!                                   │ between commits: retention, a step at a time
//!                                   ▼
//! history, latest, subscribe ─► a second connection; WAL lets it read while the thread writes
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_forecast::Series;

use crate::{
    BoxStream, Cursor, Engine, Entry, Error, Event, From, Group, HostId, Lease, Page, Range, Record, Selector,
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
    /// woken for every measurement.
    pub commit_interval: Duration,
    /// Records whose time label is older are removed.
    ///
    /// Default 400 days: a year and the month after it, so that today can be compared with the
    /// same week of last year.
    pub keep: Duration,
    /// When the archive holds more bytes than this, the records stored first are removed.
    ///
    /// Default 1 GiB: a month and more of 20 series measured every 10 s, and a size that no disk minds.
    pub keep_bytes: u64,
    /// The longest wait of an append, for room in the queue and for its commit. Default 30 s: a disk
    /// that takes longer is broken.
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
            deadline: Duration::from_secs(30),
            lag: 10_000,
        }
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
    /// Transactions of appends since the start.
    pub commits: u64,
    /// How long the last commit took, fsync included; `None` = none yet.
    pub last_commit: Option<Duration>,
    /// Why the last commit failed; `None` = it did not.
    pub last_error: Option<Error>,
}

/// The engine of a single machine.
pub struct Local {}

impl Local {
    /// The archive's file name in the state directory.
    pub const FILE: &'static str = "archive.db";

    /// Opens the archive in `config.directory`, or makes a new one.
    ///
    /// Blocks for the disk; call it before the work begins.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when another station uses the directory or it cannot be written;
    /// [`Error::TooNew`]; [`Error::Corrupt`] naming the file and what to do. Nothing is deleted.
    pub fn open(config: Config) -> Result<Self, Error> {
        let _ = config;
        Err(Error::Unavailable("the archive is not built yet".into()))
    }

    /// Figures about the archive; does not wait for the disk.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// Writes a consistent copy of the archive to `path` while appends go on.
    ///
    /// The copy appears under its name when it is whole and durable.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `path` exists; [`Error::Unavailable`] when it cannot be written.
    pub async fn backup(&self, path: &Path) -> Result<(), Error> {
        let _ = path;
        Err(Error::Unavailable("the archive is not built yet".into()))
    }

    /// Every record kept at the time of the call, in the order in which they were stored; then the
    /// stream ends.
    #[must_use]
    pub fn export(&self, selector: &Selector) -> BoxStream<(Cursor, Record)> {
        self.subscribe(selector, From::Oldest)
    }

    /// Runs retention now, to its end, and returns how many records it removed. It runs by itself
    /// while records are appended.
    pub async fn sweep(&self) -> Result<u64, Error> {
        Ok(0)
    }

    /// Commits what waits and closes the archive; later appends are refused. Dropping the engine
    /// does the same, and blocks for that commit.
    pub async fn close(&self) {}
}

#[async_trait::async_trait]
impl Engine for Local {
    async fn register(&self, _entry: &Entry, _ttl: Duration) -> Result<Box<dyn Lease>, Error> {
        Err(Error::Unavailable("the archive is not built yet".into()))
    }

    fn watch(&self, _group: &Group) -> BoxStream<Event> {
        Box::pin(futures_util::stream::empty())
    }

    async fn append(&self, _batch: &[Record]) -> Result<(), Error> {
        Err(Error::Unavailable("the archive is not built yet".into()))
    }

    fn subscribe(&self, _selector: &Selector, _from: From) -> BoxStream<(Cursor, Record)> {
        Box::pin(futures_util::stream::empty())
    }

    async fn history(&self, _series: &Series, _range: &Range) -> Result<Page<Record>, Error> {
        Err(Error::Unavailable("the archive is not built yet".into()))
    }

    async fn latest(&self, _: &Selector, _: Option<Cursor>, _: usize) -> Result<Page<Record>, Error> {
        Err(Error::Unavailable("the archive is not built yet".into()))
    }

    async fn watermark(&self, _origin: &HostId) -> Result<u64, Error> {
        Err(Error::Unavailable("the archive is not built yet".into()))
    }

    async fn next_seq(&self, _origin: &HostId) -> Result<u64, Error> {
        Err(Error::Unavailable("the archive is not built yet".into()))
    }
}

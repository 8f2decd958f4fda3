//! The trait [`Engine`], and the types of registrations in the directory.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_forecast::SeriesId;
use futures_core::Stream;

use crate::{
    Cursor, EngineError, Entry, Event, Group, HostId, Page, Range, Record, Selector, StartAt, TaskStatus,
};

/// A stream of results, boxed so that the trait can be a trait object.
pub type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, EngineError>> + Send>>;

/// A registration in the directory. The engine renews the registration until this value is dropped.
pub trait Lease: Send + Sync {
    /// Longest time for which peers see the entry after its holder died.
    fn ttl(&self) -> Duration;

    /// State of the registration. An engine that cannot detect the state returns
    /// [`LeaseState::Held`].
    fn state(&self) -> LeaseState {
        LeaseState::Held
    }
}

/// State of a registration in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// The registration is valid.
    Held,
    /// The registration expired, or the directory has lost the registration. The engine registers
    /// again.
    Lapsed,
    /// Another registration has the name. The engine does not register again.
    Displaced,
}

/// A directory that can be read but takes no writes. Stations cannot register or renew, and no
/// station counts as lost for that reason.
#[derive(Clone, Debug)]
pub struct ReadOnly {
    /// When the first failed write began.
    pub since: Instant,
    /// Error of the newest write that failed.
    pub error: String,
}

/// Directory, bus and archive of a mesh.
///
/// The module `conformance` (feature) tests what these comments promise.
#[async_trait::async_trait]
pub trait Engine: Send + Sync {
    /// Registers `entry`. Peers see the entry when this function has returned.
    ///
    /// The entry disappears at most `ttl` + 1 s after its holder died, unless the directory took no
    /// writes meanwhile. When the lease is dropped, the entry disappears at once. Registering a
    /// host again replaces its entry, and the older lease has no effect any more.
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, EngineError>;

    /// Watches a group: a snapshot ([`Event::Up`] for each station), then [`Event::Synced`], then
    /// an [`Event::Removed`] for each station removed earlier, then changes as they occur. The
    /// stream ends after an error.
    fn watch(&self, group: &Group) -> BoxStream<Event>;

    /// Removes a station from the mesh: ends its registration and sends [`Event::Removed`] to the
    /// watches of every group.
    ///
    /// Watches that begin later also report the removal, until the station registers again or the
    /// directory forgets the removal. The directory keeps the removal for at least an hour. The
    /// station keeps its right to register.
    ///
    /// # Errors
    /// [`EngineError::Denied`] if this station may not remove others, which is the default.
    async fn remove(&self, host: &HostId) -> Result<(), EngineError> {
        Err(EngineError::Denied(format!(
            "this station cannot remove {host}; remove it at the station that hosts the mesh"
        )))
    }

    /// Appends records. `Ok` means that every record is durable. Appends are idempotent on (origin,
    /// sequence number): a repeated record is stored once.
    ///
    /// # Errors
    /// - [`EngineError::Invalid`]: a record or the batch breaks a limit ([`Record::check`],
    ///   [`Record::BATCH_MAX`]), or a new record is so old that retention would remove it. No
    ///   record was stored.
    /// - [`EngineError::Unavailable`]: no record was stored.
    /// - [`EngineError::Throttled`]: no record was stored; try again later.
    /// - [`EngineError::Unknown`]: the records may be stored or not. Append the same batch again.
    async fn append(&self, batch: &[Record]) -> Result<(), EngineError>;

    /// Streams records as they are stored: at least once, in order within each series. A slow
    /// subscriber gets [`EngineError::Lagged`] with the number of missed records, and the stream
    /// continues. Any other error ends the stream.
    fn subscribe(&self, selector: &Selector, from: StartAt) -> BoxStream<(Cursor, Record)>;

    /// Records of one series in a time range, newest first, in pages. Records of equal time are
    /// ordered by their position in the store, newest first.
    ///
    /// # Errors
    /// [`EngineError::TooOld`] if the record at `range.after` is no longer stored.
    async fn history(&self, series: &SeriesId, range: &Range) -> Result<Page<Record>, EngineError>;

    /// The newest record of each selected series, in pages and in a stable order of series.
    ///
    /// A record with a label more than [`Record::LABEL_AHEAD_MAX`] in the future is returned only
    /// if its series has no record with an earlier label. A page has at most `limit` records (1 to
    /// [`Range::LIMIT_MAX`]) and may be shorter ([`Range::BYTES_MAX`]). To continue, pass
    /// [`Page::next`] as `after`.
    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, EngineError>;

    /// Highest sequence number of `origin` up to which no record is missing; 0 if nothing was
    /// stored. A record counts even after retention has removed it.
    async fn watermark(&self, origin: &HostId) -> Result<u64, EngineError>;

    /// Sequence number for the next record of `origin`: the highest number ever stored, plus one.
    /// So a station that lost its data never uses a number twice.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if the origin has used the highest number, [`Record::SEQ_MAX`].
    async fn next_seq(&self, origin: &HostId) -> Result<u64, EngineError>;

    /// Returns the start of the time in which the directory can be read but accepts no writes of
    /// this engine. `None` = the directory accepts writes, or the engine cannot detect whether the
    /// directory accepts writes.
    fn read_only(&self) -> Option<ReadOnly> {
        None
    }

    /// The status of each long-lived task and thread of this engine.
    fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        Vec::new()
    }
}

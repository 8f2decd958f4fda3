//! The trait.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use barograph_forecast::Series;
use futures_core::Stream;

use crate::{Cursor, Entry, Error, Event, From, Group, HostId, Page, Range, Record, Selector, TaskStatus};

/// A stream of results, boxed so that the trait can be a trait object.
pub type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Error>> + Send>>;

/// A registration, renewed until it is dropped.
pub trait Lease: Send + Sync {
    /// How long peers may see the entry after its holder died.
    fn ttl(&self) -> Duration;

    /// How it stands now, as far as the engine has heard. One that does not hear of it says
    /// [`LeaseState::Held`].
    fn state(&self) -> LeaseState {
        LeaseState::Held
    }
}

/// What has become of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// It is there.
    Held,
    /// It ran out, or the directory does not know it any more; it is tried again.
    Lapsed,
    /// Another registration has the name. It is not tried again.
    Displaced,
}

/// A directory that can be read and takes no writes: no station can register or renew, and none is
/// lost for it.
#[derive(Clone, Debug)]
pub struct ReadOnly {
    /// When the first write that failed began.
    pub since: Instant,
    /// The error of the newest one.
    pub why: String,
}

/// Directory, bus and archive.
///
/// The module `conformance` (feature) holds what these lines promise as tests.
#[async_trait::async_trait]
pub trait Engine: Send + Sync {
    /// Makes `entry` visible to peers when this returns; gone at most `ttl` + 1 s after the holder
    /// dies, unless the directory took no writes meanwhile, and at once when the lease is dropped.
    /// Registering a host again replaces its entry; the older lease then holds nothing.
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error>;

    /// A snapshot of the group ([`Event::Up`] each), then [`Event::Synced`], then the stations that were
    /// removed before ([`Event::Removed`] each) and live changes; ends after an error.
    fn watch(&self, group: &Group) -> BoxStream<Event>;

    /// Removes a station from the mesh: ends its registration, and reports [`Event::Removed`] to the
    /// watches of every group. Watches that begin later report it too, until the station registers
    /// again or the directory forgets it, after an hour at the earliest. Does not revoke the station's
    /// right to register.
    ///
    /// # Errors
    /// [`Error::Denied`] when this station may not remove others, as by default.
    async fn remove(&self, host: &HostId) -> Result<(), Error> {
        Err(Error::Denied(format!("{host} cannot be removed from here")))
    }

    /// Ok = every record is durable. Idempotent on (origin, seq): a repeated record is stored once.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a record or the batch breaks a limit ([`Record::check`],
    /// [`Record::BATCH_MAX`]), or when a record not yet stored has a time older than what retention
    /// keeps, which the next pass would remove; then none is stored. [`Error::Unavailable`] when
    /// none was stored, [`Error::Throttled`] when it is to come later; [`Error::Unknown`] when the same
    /// batch must be appended again.
    async fn append(&self, batch: &[Record]) -> Result<(), Error>;

    /// Records as they are stored, in order per series, at least once; what a slow subscriber
    /// missed is reported as [`Error::Lagged`], after which the stream goes on. Any other error
    /// ends it.
    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)>;

    /// One series' records in a time range, newest first, paged; equal times are ordered by their
    /// place in the store, newest first.
    ///
    /// # Errors
    /// [`Error::TooOld`] when the record at `range.after` is no longer kept.
    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error>;

    /// The newest record of every series matched – one whose label is more than [`Record::LABEL_AHEAD_MAX`] ahead
    /// of now only where no other is – at most `limit` (1 to [`Range::LIMIT_MAX`]) a
    /// page, which may end earlier ([`Range::BYTES_MAX`]), in a stable order of series; continue with
    /// `after` taken from [`Page::next`].
    async fn latest(
        &self,
        selector: &Selector,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Record>, Error>;

    /// The highest sequence of `origin` up to which nothing is missing; 0 = nothing stored. It
    /// stands for what was stored once, also after retention removed it.
    async fn watermark(&self, origin: &HostId) -> Result<u64, Error>;

    /// The sequence that `origin` gives its next record: one above the highest ever stored, so
    /// that a station that lost its memory never uses a number twice.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the origin has used the highest sequence there is,
    /// [`Record::SEQ_MAX`], and so has no next one.
    async fn next_seq(&self, origin: &HostId) -> Result<u64, Error>;

    /// The directory can be read, and takes no writes of this engine; `None` also where the engine
    /// cannot tell.
    fn read_only(&self) -> Option<ReadOnly> {
        None
    }

    /// The status of each long-lived task and thread of this engine.
    fn tasks(&self) -> Vec<Arc<TaskStatus>> {
        Vec::new()
    }
}

//! The trait and the values that cross it.

use std::pin::Pin;
use std::time::Duration;

use barograph_forecast::{Name, Outcome, Quantity, Series};
use futures_core::Stream;

/// A station's name; it is the source of its own measurements.
pub type HostId = Name;

/// A stream of results, boxed so that the trait can be a trait object.
pub type BoxStream<T> = Pin<Box<dyn Stream<Item = Result<T, Error>> + Send>>;

/// One measurement as stored: who says so, in which order, of what, when, and what came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The station that wrote it.
    pub origin: HostId,
    /// Its place in that station's own sequence, from 1; (origin, seq) is the record's identity.
    pub seq: u64,
    /// What was measured.
    pub series: Series,
    /// Wall-clock label, nanoseconds since 1970-01-01 UTC.
    pub time_unix_ns: i64,
    /// The value or the typed failure.
    pub outcome: Outcome,
    /// Further facts beside the value (TCP_INFO, raw goodput) as a JSON text of at most 4 KiB; empty = none.
    pub detail: String,
}

/// What a station tells the directory about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub host: HostId,
    /// Where it listens.
    pub addresses: Vec<std::net::SocketAddr>,
    /// Its version, as `barograph version` prints it.
    pub version: String,
    /// The groups it belongs to.
    pub groups: Vec<Group>,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// What a station can do for its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// It answers probes.
    pub responder: bool,
    /// It consents to bulk tests.
    pub bulk: bool,
}

/// A named set of stations: `local` to a site, `global`, or any name.
pub type Group = Name;

/// A change in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A station is there, or changed what it says of itself.
    Up(Entry),
    /// The snapshot is complete; what follows is live.
    Synced,
    /// A station is gone: it left, or its lease ran out.
    Down(HostId),
}

/// Which series, by any of source, target and quantity; `None` matches all.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Selector {
    /// The source to match.
    pub source: Option<Name>,
    /// The target to match.
    pub target: Option<Name>,
    /// The quantity to match.
    pub quantity: Option<Quantity>,
}

/// A place in the order in which an engine stored its records; opaque outside its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub u64);

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With the next record to arrive.
    Now,
    /// After this place.
    After(Cursor),
}

/// Which part of a series' history, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Earliest time, inclusive, Unix nanoseconds.
    pub from_unix_ns: i64,
    /// Latest time, exclusive, Unix nanoseconds.
    pub until_unix_ns: i64,
    /// At most so many records a page, 1 to 10 000.
    pub limit: usize,
    /// Continue after this place, taken from [`Page::next`].
    pub after: Option<Cursor>,
}

/// A page of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Where the next page begins; `None` = there is no more.
    pub next: Option<Cursor>,
}

/// A registration, renewed until it is dropped.
pub trait Lease: Send + Sync {
    /// How long peers see the entry after its holder died.
    fn ttl(&self) -> Duration;
}

/// Directory, bus and archive.
#[async_trait::async_trait]
pub trait Engine: Send + Sync {
    /// Makes `entry` visible to peers when this returns; gone at most `ttl` + 1 s after the holder
    /// dies, and at once when the lease is dropped.
    async fn register(&self, entry: &Entry, ttl: Duration) -> Result<Box<dyn Lease>, Error>;

    /// A snapshot of the group ([`Event::Up`] each), then [`Event::Synced`], then live changes.
    fn watch(&self, group: &Group) -> BoxStream<Event>;

    /// Ok = every record is durable. Idempotent on (origin, seq): a repeated record is stored once.
    async fn append(&self, batch: &[Record]) -> Result<(), Error>;

    /// Records as they are stored, in order per series, at least once; lag is reported as
    /// [`Error::Lagged`], never silent.
    fn subscribe(&self, selector: &Selector, from: From) -> BoxStream<(Cursor, Record)>;

    /// One series' records in a time range, newest first, paged.
    async fn history(&self, series: &Series, range: &Range) -> Result<Page<Record>, Error>;

    /// The newest record of every series matched, paged in a stable order of series.
    async fn latest(&self, selector: &Selector, after: Option<Cursor>) -> Result<Page<Record>, Error>;

    /// The highest sequence of `origin` below which nothing is missing; 0 = nothing stored.
    async fn watermark(&self, origin: &HostId) -> Result<u64, Error>;
}

/// Why an engine could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may or may not have been stored: append the same batch again.
    #[error("it is not known whether the records were stored ({0}); append the same batch again")]
    Unknown(String),
    /// Not allowed.
    #[error("denied: {0}")]
    Denied(String),
    /// The engine cannot be reached or has stopped, or its disk is full.
    #[error("the engine is not available: {0}")]
    Unavailable(String),
    /// The stored data cannot be read.
    #[error("the stored data are damaged: {0}")]
    Corrupt(String),
    /// What was asked for is no longer kept.
    #[error("too old: {0}")]
    TooOld(String),
    /// The archive was written by a newer Barograph.
    #[error("the archive was written by a newer version (format {found}; this version knows {known})")]
    TooNew {
        /// The format found.
        found: u32,
        /// The newest format known.
        known: u32,
    },
    /// The request breaks a stated limit.
    #[error("{0}")]
    Invalid(String),
    /// A slow subscriber missed records.
    #[error("{missed} records were missed by a slow subscriber")]
    Lagged {
        /// How many.
        missed: u64,
    },
}

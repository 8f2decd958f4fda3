//! Directory, bus and archive behind one trait, [`Engine`].
//!
//! A station registers itself, watches its peers, appends what it measured and reads history
//! through the trait alone, so that the mesh can outgrow one implementation without the station
//! noticing. This crate makes no measurement and no forecast.
//!
//! - `local` (feature): SQLite on a thread of its own; no server. See [`Local`].
//! - `joined` (feature): a station's own archive as the spool of a mesh's engine. See [`Joined`].
//! - `wire` (feature): records, entries and events as JSON, for engines that send them. See [`wire`].
//! - `remote` (feature): another station's engine over its HTTP API. See [`Remote`].
//! - `nats` (feature): NATS JetStream, and the archive beside it. See [`Nats`] and [`Archiver`].
//! - `testkit` (feature): a switch that kills a supervised task, for tests. See [`TaskStatus`].
//! - `conformance` (feature): the suite that every implementation passes.
#![forbid(unsafe_code)]

#[cfg(feature = "local")]
mod complaints;
mod engine;
mod entry;
mod error;
mod label;
mod record;
pub mod tasks;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "joined")]
mod joined;
#[cfg(feature = "local")]
mod local;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "wire")]
pub mod wire;

#[cfg(feature = "local")]
pub use complaints::Complaints;
pub use engine::{BoxStream, Engine, Lease, LeaseState, ReadOnly};
pub use entry::{Capabilities, Entry, Event, Group, HostId};
pub use error::Error;
#[cfg(feature = "joined")]
pub use joined::{Joined, JoinedConfig, JoinedStatistics};
pub use label::{is_late, labelled_unix_ns};
#[cfg(feature = "local")]
pub use local::{Absorbed, Config, Local, NotKept, Statistics, with_remedy};
#[cfg(all(feature = "nats", feature = "testkit"))]
#[doc(hidden)]
pub use nats::fuzz_relay;
#[cfg(feature = "nats")]
pub use nats::{Archiver, ArchiverStatistics, Nats, NatsConfig, NatsTls, token};
pub use record::{Cursor, From, Page, Range, Record, Selector};
#[cfg(feature = "remote")]
pub use remote::{Remote, RemoteConfig};
pub use tasks::TaskStatus;

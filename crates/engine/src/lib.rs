//! Directory, bus and archive of a mesh behind one trait, [`Engine`].
//!
//! A station registers itself, watches its peers, appends records and reads history through the
//! trait alone. So a mesh can use a different engine without a change in the code of the station.
//!
//! Three types matter:
//!
//! - [`Engine`] is the trait. Each implementation is a feature.
//! - [`Record`] is a stored measurement. (origin, sequence number) identifies it.
//! - [`Entry`] is a station in the directory. A [`Lease`] keeps the entry there.
//!
//! ```
//! use barograph_engine::{Engine, EngineError, Range, Record};
//!
//! /// Stores a record, and returns the newest records of its series.
//! async fn store(engine: &dyn Engine, record: &Record) -> Result<Vec<Record>, EngineError> {
//!     engine.append(std::slice::from_ref(record)).await?; // The record is durable now.
//!     let page = engine.history(&record.series, &Range::newest(100)).await?;
//!     Ok(page.items)
//! }
//! ```
//!
//! | feature | adds |
//! |---|---|
//! | `local` | `Local`: SQLite on a thread of its own, without a server |
//! | `joined` | `Joined`: a station's own archive as the spool of a mesh's engine |
//! | `wire` | module `wire`: records, entries and events as JSON |
//! | `remote` | `Remote`: another station's engine over its HTTP API |
//! | `nats` | `Nats`: NATS JetStream; `Archiver`: the archive beside it |
//! | `testkit` | a switch that kills a supervised task ([`TaskStatus`]), for tests |
//! | `conformance` | the test suite that every implementation passes |
//!
//! The crate makes no measurement and no forecast. It carries no API tokens, and no consent to bulk
//! tests.
#![forbid(unsafe_code)]

mod engine;
mod entry;
mod error;
mod label;
#[cfg(feature = "local")]
mod log_limiter;
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

pub use engine::{BoxStream, Engine, Lease, LeaseState, ReadOnly};
pub use entry::{Capabilities, Entry, Event, Group, HostId};
pub use error::EngineError;
#[cfg(feature = "joined")]
pub use joined::{Joined, JoinedConfig, JoinedStatistics};
pub use label::{is_late, original_label_unix_ns};
#[cfg(feature = "local")]
pub use local::{DropCounts, ForwardedCounts, Local, LocalConfig, LocalStatistics, describe_io_error};
#[cfg(feature = "local")]
pub use log_limiter::LogLimiter;
#[cfg(all(feature = "nats", feature = "testkit"))]
#[doc(hidden)]
pub use nats::fuzz_relay;
#[cfg(feature = "nats")]
pub use nats::{Archiver, ArchiverStatistics, Nats, NatsConfig, NatsTls, token};
pub use record::{Cursor, Page, Range, Record, Selector, StartAt};
#[cfg(feature = "remote")]
pub use remote::{Remote, RemoteConfig};
pub use tasks::TaskStatus;

// The examples of README.md are doctests.
#[cfg(all(doctest, feature = "local"))]
#[doc = include_str!("../README.md")]
mod readme {}

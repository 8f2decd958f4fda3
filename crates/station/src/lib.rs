//! The daemon: sensors, probing, storage, HTTP API, page and metrics.
//!
//! ```text
//! sensors, probes ─► recorder ─► batteries ─► API, stream, metrics
//!  (prober)              └─────► spool ─► archive
//! ```
//!
//! Each arrow crosses a bounded queue or a short lock; measuring never waits for HTTP or storage.
#![forbid(unsafe_code)]

pub mod bank;
pub mod config;
mod connections;
mod credentials;
pub mod detail;
pub mod fuzzing;
pub mod identity;
pub mod sensor;
pub mod signals;
pub mod state;
pub mod surroundings;
pub mod target;
pub mod timetable;
pub mod tls;
mod transfer;

pub mod hub;

mod admission;
mod allowance;
mod api;
mod best;
mod desk;
mod echo;
mod health;
mod heavy;
mod limits;
mod members;
mod mesh;
mod metrics;
mod prober;
mod proved;
mod recorder;
mod replay;
mod server;
mod sites;
mod station;
mod targets;
#[cfg(test)]
mod testing;
mod unread;

pub(crate) use api::unit;
pub use config::{Config, ConfigError, EchoConfig, MeshConfig, Sources, TransferConfig};
pub use mesh::{Engines, Kind, Spool};
pub use signals::Signal;
pub use station::{StartError, Station, open_archive};

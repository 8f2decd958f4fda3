//! The daemon: sensors, probing, storage, HTTP API, page and metrics.
//!
//! ```text
//! sensors, probes ─► recorder ─► batteries ─► API, stream, metrics
//!  (prober)              └─────► spool ─► archive
//! ```
//!
//! Each arrow crosses a bounded queue or a short lock; measuring never waits for HTTP or storage.
#![forbid(unsafe_code)]

mod api;
pub mod config;
pub mod detail;
mod echo;
mod forecast;
pub mod fuzzing;
mod health;
mod http;
mod limits;
mod measure;
mod mesh;
mod metrics;
mod quantity;
mod record;
pub mod signals;
pub mod state;
mod station;
mod sync;
pub mod target;
mod time;
mod transfer;

pub use config::{Config, ConfigError, EchoConfig, MeshConfig, Sources, TransferConfig, tls};
pub use forecast::{bank, hub};
pub use measure::{sensor, surroundings, timetable};
pub use mesh::{Engines, JoinError, Kind, Spool, identity};
pub(crate) use quantity::unit;
pub use signals::Signal;
pub use station::{StartError, Station, open_archive};

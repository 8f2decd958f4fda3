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
mod record;
pub mod signals;
pub mod state;
mod station;
mod sync;
mod time;
mod transfer;

pub(crate) use api::unit;
pub use config::{Config, ConfigError, EchoConfig, MeshConfig, Sources, TransferConfig};
pub use forecast::{bank, hub};
pub use http::tls;
pub use measure::{sensor, surroundings, target, timetable};
pub use mesh::{Engines, Kind, Spool, identity};
pub use signals::Signal;
pub use station::{StartError, Station, open_archive};

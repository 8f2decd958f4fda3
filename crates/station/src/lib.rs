//! The daemon of Barograph. It measures its targets, stores the values, forecasts the next ones,
//! and serves them as HTTP API, page and metrics.
//!
//! ```text
//! sensors, probes ─► recorder ─► batteries ─► API, stream, metrics
//!  (prober)              └─────► spool ─► archive
//! ```
//!
//! Each arrow crosses a bounded queue or a short lock; measuring never waits for HTTP or storage.
//!
//! Three types matter:
//!
//! - [`Config`]: the settings, from defaults, a file, environment variables and flags.
//!   [`ConfigSources`] names the file, the variables and the flags.
//! - [`Station`]: a running station. [`Station::up`] starts it, [`Station::reload`] applies a new
//!   configuration, and [`Station::stop`] stores the remaining records.
//! - [`Engines`]: where a station stores records and registers. It is the station's own archive, or
//!   the engine of a mesh.
//!
//! ```
//! use std::time::Duration;
//!
//! use barograph_station::{Config, Station};
//!
//! let state = tempfile::tempdir()?;
//! let station = Station::up(Config {
//!     listen: ([127, 0, 0, 1], 0).into(),
//!     state: state.path().to_path_buf(),
//!     default_targets: false,
//!     ..Config::default()
//! })?;
//! assert!(station.url().starts_with("http://127.0.0.1:"));
//! station.stop(Duration::from_secs(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate parses no command line; `barograph` does. It has no forecasting methods, no wire
//! format of probes and no rules of a mesh; they come from `barograph-forecast`, `barograph-probe`
//! and `barograph-mesh`. The feature `nats` (on by default) adds meshes on NATS servers.
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

pub use config::{Config, ConfigError, ConfigSources, EchoConfig, MeshConfig, TransferConfig, tls};
pub use forecast::{hub, series};
pub use measure::{default_targets, sensor, timetable};
pub use mesh::{EngineLocation, Engines, JoinError, Spool, identity};
pub(crate) use quantity::unit;
pub use signals::Signal;
pub use station::{StartError, Station, open_archive};

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

//! A whole station on loopback: real sockets, a real archive, ports chosen by the system, no
//! sleeps.
#![allow(clippy::unwrap_used, missing_docs)]

mod api;
mod archive;
mod best;
mod bulk;
mod clocks;
mod crowd;
mod disk;
mod echo;
mod engine;
mod guard;
mod iperf3;
mod limits;
mod live;
mod load;
mod mesh;
mod nats;
mod page;
mod removal;
mod sites;
mod tasks;
mod tls;
mod transfers;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use barograph_engine::Engine;
use barograph_station::{Config, Station, open_archive};
use barograph_testkit::{LIMIT, http, name};
use tempfile::TempDir;

/// A configuration with which the station measures only its host, and rarely.
fn quiet(state: &Path) -> Config {
    let mut config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        state: state.to_path_buf(),
        host: Some(name("here")),
        default_targets: false,
        commit: Duration::ZERO,
        ..Config::default()
    };
    // A change of delay on a busy machine must start no bulk test.
    config.mesh.bulk_early_tests = false;
    config
}

/// A running station, stopped when dropped.
struct Running {
    station: Option<Station>,
    /// Temporary state directory; `None` if the test has its own state directory.
    _state: Option<TempDir>,
}

impl Running {
    /// Stops the station; returns the number of records that could not be stored.
    fn stop(mut self, limit: Duration) -> usize {
        self.station.take().map_or(0, |station| station.stop(limit))
    }
}

impl From<Station> for Running {
    fn from(station: Station) -> Self {
        Self { station: Some(station), _state: None }
    }
}

impl Deref for Running {
    type Target = Station;

    fn deref(&self) -> &Station {
        self.station.as_ref().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If the test has failed, do not wait for the end of the station.
        if let Some(station) = self.station.take()
            && !std::thread::panicking()
        {
            station.stop(LIMIT);
        }
    }
}

/// A station that serves its engine to the stations that it invites.
fn serve(config: Config) -> Running {
    // A station starts runtimes of its own, which is not possible within the runtime of a test.
    let start = move || Station::serve(config.clone(), Arc::new(open_archive(&config).unwrap())).unwrap();
    std::thread::spawn(start).join().unwrap().into()
}

fn start(config: Config) -> Running {
    let archive = open_archive(&config).unwrap();
    start_over(config, Arc::new(archive))
}

/// Starts a station that uses this engine for everything.
fn start_over(config: Config, engine: Arc<dyn Engine>) -> Running {
    Station::start(config, engine).unwrap().into()
}

/// A station as the command `up` starts it, on the engine of its configuration.
fn up(config: Config) -> Running {
    std::thread::spawn(move || Station::up(config).unwrap()).join().unwrap().into()
}

/// Starts a station like [`serve`], with a new state directory.
fn serve_new(config: impl FnOnce(&Path) -> Config) -> Running {
    let state = tempfile::tempdir().unwrap();
    let mut station = serve(config(state.path()));
    station._state = Some(state);
    station
}

/// Starts a station like [`start`], with a new state directory.
fn start_new(config: impl FnOnce(&Path) -> Config) -> Running {
    let state = tempfile::tempdir().unwrap();
    let mut station = start(config(state.path()));
    station._state = Some(state);
    station
}

//! A whole station on loopback: real sockets, a real archive, ports from the system, no sleeps.
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
mod http;
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

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use barograph_station::{Config, Station, open_archive};

/// Every wait of these tests ends after this: what measures takes long to settle on a busy computer.
const LIMIT: Duration = Duration::from_secs(60);

/// A quiet configuration: nothing is measured but the host itself, and that seldom.
fn quiet(state: &Path) -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        state: state.to_path_buf(),
        host: Some(barograph_forecast::Name::new("here").unwrap()),
        default_targets: false,
        commit: Duration::ZERO,
        ..Config::default()
    }
}

/// A station that serves its engine to those it invites.
fn serve(config: Config) -> Station {
    // A station starts with runtimes of its own, which it cannot from within a test's.
    let start = move || Station::serve(config.clone(), Arc::new(open_archive(&config).unwrap())).unwrap();
    std::thread::spawn(start).join().unwrap()
}

fn start(config: Config) -> Station {
    let archive = open_archive(&config).unwrap();
    Station::start(config, Arc::new(archive)).unwrap()
}

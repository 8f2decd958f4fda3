//! Membership of this station in a mesh: its registration in the directory, and the peers that the
//! station measures.
//!
//! ```text
//! directory ─► roster ─► peers ─┬─► targets ─► prober (on its own thread)
//!     ▲                         ├─► /v1/peers, /v1/peers/events, command, webhook
//!     └── own entry, leased     ├─► peers.json: peers to measure while the directory is away
//!                               └─► removed.json: stations with hidden series
//! ```
//!
//! The thread `directory` does all of this except bulk tests, which run on the thread `tester`.
//! Measurements wait neither for these threads nor for an unreachable directory.

use std::path::Path;

use barograph_forecast::Name;

mod addresses;
mod bulk;
mod check;
mod check_backoff;
mod directory;
mod engine;
mod event_queue;
mod events;
mod hook;
pub mod identity;
mod latency;
pub(crate) mod members;
mod mesh_state;
mod peers;
mod peers_file;
mod registrar;
mod removals;
mod removed;
pub(crate) mod sites;
pub(crate) mod snapshot;
mod watches;

pub(crate) use bulk::iperf3_usable;
pub(crate) use bulk::{
    Bulk, BulkDependencies, BulkSlot, BulkSlotGuard, BulkTestMetrics, BulkUse, ROLES, STATES, TestAttempt,
    TestConsent, Tester,
};
pub(crate) use engine::{Archiver, engine, one_line};
pub use engine::{EngineLocation, Engines, JoinError, Spool};
#[cfg(test)]
pub(crate) use latency::Latencies;
pub(crate) use latency::{BOUNDS_S, EXCHANGE_PERIOD, LatencyDistribution, excess_delay};
pub(crate) use mesh_state::{MeshMetrics, MeshState};
pub(crate) use peers::{Peer, PeerState};
pub(crate) use peers_file::groups_known;
pub(crate) use registrar::{Registrar, RegistrarDependencies};
pub(crate) use removed::{Removed, RemovedStations};

/// Names of the stations that the files of an earlier run contain: members, removed stations and
/// peers.
pub(crate) fn stations_known(state: &Path) -> Vec<Name> {
    let names = members::names_known(state).into_iter().chain(removed::names_known(state));
    names.chain(groups_known(state).into_keys()).collect()
}

/// Maximum number of peers, including lost peers. A station measures each of its peers, so more
/// would be too much load; divide larger meshes into groups.
pub(crate) const PEERS_MAX: usize = 1000;

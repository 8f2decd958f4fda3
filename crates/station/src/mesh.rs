//! The station's part in a mesh: it says in the directory where it is, and measures whom it finds there.
//!
//! ```text
//! directory ─► roster ─► peers ─┬─► targets ─► prober (on its own thread, as ever)
//!     ▲                         ├─► /v1/peers, /v1/peers/events, command, webhook
//!     └── own entry, leased     ├─► peers.json: whom to measure while there is no directory
//!                               └─► removed.json: whose series are not shown
//! ```
//!
//! All of it runs on one thread, `directory`, but bulk tests, which have their own, `tester`; measuring never waits for it, nor for a directory that is away.

mod addresses;
mod board;
mod bulk;
mod check;
pub(crate) mod desk;
mod directory;
mod engine;
mod events;
mod hook;
pub mod identity;
mod keeper;
mod kept;
mod latency;
pub(crate) mod members;
mod peers;
mod removed;
mod rests;
pub(crate) mod sites;
mod waiting;
mod watches;

pub(crate) use board::{Board, Figures};
pub(crate) use bulk::iperf3_usable;
pub(crate) use bulk::{
    Bulk, Door, Figures as TestFigures, Held, Parts as BulkParts, Place, ROLES, STATES, Tester, Use, Verdict,
};
pub(crate) use engine::{Archiver, engine, one_line};
pub use engine::{Engines, JoinError, Kind, Spool};
pub(crate) use keeper::{Keeper, Parts};
pub(crate) use kept::groups_known;
#[cfg(test)]
pub(crate) use latency::Latencies;
pub(crate) use latency::{BOUNDS_S, EVERY, Spread, delay};
pub(crate) use peers::{Peer as Known, Standing};
pub(crate) use removed::{Removed, RemovedStations};

/// Peers at most, the lost ones among them: a station measures each of its peers, and more than so many
/// would be a load. Larger meshes are divided into groups.
pub(crate) const PEERS_MAX: usize = 1000;

//! What the directory holds: stations and the groups they belong to.

use std::net::SocketAddr;

use barograph_forecast::Name;

/// A station's name; it is the source of its own measurements.
pub type HostId = Name;

/// A named set of stations: `local` to a site, `global`, or any name.
pub type Group = Name;

/// What a station tells the directory about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub host: HostId,
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// Its version, as `barograph version` prints it.
    pub version: String,
    /// The groups it belongs to.
    pub groups: Vec<Group>,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// What a station can do for its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// It answers probes.
    pub responder: bool,
    /// It consents to bulk tests.
    pub bulk: bool,
}

/// A change in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A station is there, or changed what it says of itself.
    Up(Entry),
    /// The snapshot is complete; what follows is live.
    Synced,
    /// A station is gone: it left the group, or its lease ran out.
    Down(HostId),
}

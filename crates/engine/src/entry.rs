//! What the directory holds: stations and the groups they belong to.

use std::net::SocketAddr;

use barograph_forecast::Name;

use crate::Error;

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
    /// Its public key (Ed25519), by which its peers know that it is the one that asks; `None` = it has none.
    ///
    /// Only the station itself can write its entry (on NATS an archive can, too), so the key is as good as the
    /// directory.
    pub key: Option<[u8; 32]>,
}

impl Entry {
    /// The most addresses of a station.
    pub const ADDRESSES_MAX: usize = 16;

    /// The most groups of a station.
    pub const GROUPS_MAX: usize = 64;

    /// The longest version, in bytes.
    pub const VERSION_BYTES_MAX: usize = 64;

    /// Whether the entry keeps the limits of a directory, which keep a peer from filling it.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the limit.
    pub fn check(&self) -> Result<(), Error> {
        let counts = [
            ("addresses", self.addresses.len(), Self::ADDRESSES_MAX),
            ("groups", self.groups.len(), Self::GROUPS_MAX),
            ("bytes of version", self.version.len(), Self::VERSION_BYTES_MAX),
        ];
        match counts.into_iter().find(|(_, count, max)| max < count) {
            Some((what, count, max)) => {
                Err(Error::Invalid(format!("{} has {count} {what} (at most {max})", self.host)))
            }
            None => Ok(()),
        }
    }
}

/// What a station can do for its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// It answers probes.
    pub responder: bool,
    /// It consents to bulk tests.
    pub bulk: bool,
    /// It keeps the history of the mesh and answers questions about all pairs.
    pub archive: bool,
    /// It serves bulk tests by iperf3.
    pub iperf3: bool,
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
    /// An administrator removed a station from the mesh: it is in no group and is not expected back.
    Removed(HostId),
}

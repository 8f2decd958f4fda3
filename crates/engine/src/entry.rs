//! Entries of the directory: stations and their groups.

use std::net::SocketAddr;

use barograph_forecast::Name;

use crate::EngineError;

/// Name of a station. The station's own measurements have this name as their source.
pub type HostId = Name;

/// A named set of stations: `local:SITE` for the stations of a site, `global`, or any other name.
pub type Group = Name;

/// Entry of the directory: what a station publishes about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the station.
    pub host: HostId,
    /// Socket addresses on which the station listens.
    pub addresses: Vec<SocketAddr>,
    /// Version of the station, as `barograph version` prints it.
    pub version: String,
    /// Groups of which the station is a member.
    pub groups: Vec<Group>,
    /// Services that the station offers to its peers.
    pub capabilities: Capabilities,
    /// Public key (Ed25519) with which peers verify requests of this station; `None` if it has no
    /// key.
    ///
    /// Only the station itself can write its entry; on NATS an archive can write the entry, too. So
    /// the key is as trustworthy as the directory.
    pub key: Option<[u8; 32]>,
}

impl Entry {
    /// Largest number of addresses of a station.
    pub const ADDRESSES_MAX: usize = 16;

    /// Largest number of groups of a station.
    pub const GROUPS_MAX: usize = 64;

    /// Longest version, in bytes.
    pub const VERSION_BYTES_MAX: usize = 64;

    /// Checks that the entry is within the limits of a directory, so that no peer can fill the
    /// directory.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the limit that is exceeded.
    pub fn check(&self) -> Result<(), EngineError> {
        let counts = [
            ("addresses", self.addresses.len(), Self::ADDRESSES_MAX),
            ("groups", self.groups.len(), Self::GROUPS_MAX),
            ("bytes of version", self.version.len(), Self::VERSION_BYTES_MAX),
        ];
        match counts.into_iter().find(|(_, count, max)| max < count) {
            Some((what, count, max)) => {
                Err(EngineError::Invalid(format!("{} has {count} {what} (at most {max})", self.host)))
            }
            None => Ok(()),
        }
    }
}

/// Services of a station for its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// The station answers probes.
    pub responder: bool,
    /// The station consents to bulk tests.
    pub bulk: bool,
    /// The station keeps the history of the mesh, and answers requests about all pairs.
    pub archive: bool,
    /// The station serves bulk tests by iperf3.
    pub iperf3: bool,
    /// The station answers packet trains and wants them.
    pub trains: bool,
}

/// A change in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A station registered, or changed its entry.
    Up(Entry),
    /// The snapshot is complete. The following events are changes.
    Synced,
    /// A station left the group, or its lease ended.
    Down(HostId),
    /// An administrator removed a station from the mesh. The station is in no group, and is not
    /// expected to register again.
    Removed(HostId),
}

//! `/v1/mesh`, `/v1/peers` and `/v1/peers/events` (docs/spec/mesh.md).

use serde::{Deserialize, Serialize};

use crate::Word;

/// A station's own part in its mesh.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mesh {
    pub host: String,
    /// `host`, `member` or `archive`.
    pub role: Word,
    /// `local`, `remote` or `nats`.
    pub engine: Word,
    /// URL of the station whose mesh was joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<String>,
    pub site: String,
    pub groups: Vec<String>,
    /// How long a peer may be silent before it is lost, seconds.
    pub lease_s: f64,
    pub directory: Directory,
    pub peers: PeerCounts,
    /// Records that wait for the mesh; `None` = there is nothing to wait for.
    pub spool: Option<Spool>,
    /// Events that no hook was given.
    pub hooks_dropped: u64,
}

/// How a station reaches its directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Directory {
    pub connected: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it has been away, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_s: Option<f64>,
    /// How long it could be read and took no writes, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_s: Option<f64>,
    /// Set if another station has this one's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
}

/// Peers by state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerCounts {
    /// Registered and measured.
    pub up: usize,
    pub lost: usize,
    /// Registered and not measured.
    pub ignored: usize,
}

/// Records on their way to the mesh's archive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spool {
    /// Records that wait.
    pub records: u64,
    /// Most records that may wait.
    pub records_max: u64,
    /// Whether new records are turned away.
    pub is_full: bool,
    /// Records turned away.
    pub turned_away: u64,
    /// Records that the archive has taken.
    pub forwarded: u64,
    /// Records that the archive has refused.
    pub refused: u64,
    /// Records whose numbers the archive had passed.
    pub overtaken: u64,
    /// Whether the archive has asked to wait.
    pub is_paced: bool,
    /// Sequence number up to which the archive misses nothing.
    pub watermark: Option<u64>,
    pub error: Option<String>,
}

/// All peers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerList {
    pub peers: Vec<Peer>,
}

/// One other station of the mesh.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    pub host: String,
    /// `up`, `lost` or `ignored`.
    pub state: Word,
    /// Why it is ignored, or what is wrong although it is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When its state began, seconds since 1970-01-01 UTC.
    pub since_s: f64,
    /// Addresses that it registered.
    pub addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<DroppedAddress>,
    /// Address that answered; `None` = none yet.
    pub address: Option<String>,
    pub version: String,
    pub groups: Vec<String>,
    /// `responder`, `bulk`, `archive`, `iperf3`.
    pub capabilities: Vec<Word>,
    /// How long it may be silent before this station calls it lost, seconds.
    pub lease_s: f64,
}

/// An address that cannot be used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DroppedAddress {
    pub address: String,
    pub reason: Word,
}

/// One change of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerEvent {
    /// Number of the event; numbers rise, also over a restart of the station.
    pub id: u64,
    pub event: PeerChange,
    /// Time of the change, seconds since 1970-01-01 UTC.
    pub time_s: f64,
    pub host: String,
    /// Addresses that it registered.
    pub addresses: Vec<String>,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub groups: Vec<String>,
}

/// What became of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerChange {
    /// It is registered for the first time.
    Joined,
    /// Its lease is over, or it left.
    Lost,
    /// It is registered again.
    Returned,
    /// An administrator removed it from the mesh.
    Removed,
    /// A change that this version does not have.
    #[serde(other)]
    Unknown,
}

impl PeerChange {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Lost => "lost",
            Self::Returned => "returned",
            Self::Removed => "removed",
            Self::Unknown => "unknown",
        }
    }
}

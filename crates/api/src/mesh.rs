//! `/v1/mesh`, `/v1/peers` and `/v1/peers/events`: the mesh of a station (docs/spec/mesh.md).

use serde::{Deserialize, Serialize};

use crate::Keyword;

/// State of a station's membership in its mesh.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mesh {
    /// Name of this station.
    pub host: String,
    /// Role of the station: `host` (serves the mesh), `member` or `archive`.
    pub role: Keyword,
    /// Engine of the mesh: `local`, `remote` or `nats`.
    pub engine: Keyword,
    /// URL of the station through which this station joined the mesh; `None` = this station did not
    /// join through another station.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<String>,
    /// Name of this station's site.
    pub site: String,
    /// Names of this station's groups.
    pub groups: Vec<String>,
    /// Time that a peer may be silent before the peer counts as lost, in seconds.
    pub lease_s: f64,
    /// Connection of the station to the directory.
    pub directory: Directory,
    /// Number of peers in each state.
    pub peers: PeerCounts,
    /// The records that wait for the mesh's archive; `None` = this station needs no spool.
    pub spool: Option<Spool>,
    /// Number of events dropped because the hooks were too slow.
    pub hooks_dropped: u64,
}

/// Connection of a station to the directory of its mesh.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Directory {
    /// Whether the station is registered and receives all its groups.
    pub connected: bool,
    /// Why the station is not connected, or cannot write, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time for which the directory has been unreachable, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_s: Option<f64>,
    /// Time for which the directory has been readable without accepting writes, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_s: Option<f64>,
    /// A sentence, if a different station uses the name of this station; else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict: Option<String>,
}

/// Number of peers in each state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerCounts {
    /// Peers that are registered and measured.
    pub up: usize,
    /// Peers with a lease that ended.
    pub lost: usize,
    /// Stations that are registered but not measured.
    pub ignored: usize,
}

/// Records on their way to the mesh's archive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spool {
    /// Number of records that wait.
    pub records: u64,
    /// Maximum number of records that may wait.
    pub records_max: u64,
    /// Whether the station rejects new records because the spool is full.
    pub is_full: bool,
    /// Number of appends that were rejected because the spool was full.
    pub turned_away: u64,
    /// Number of records that the archive acknowledged; a repeated record counts again.
    pub forwarded: u64,
    /// Number of the station's own records that the mesh's archive refused.
    pub refused: u64,
    /// Number of records that the archive may never get, because the archive already has different
    /// records with the same sequence numbers.
    pub overtaken: u64,
    /// Whether the archive limits the rate at which the records are sent.
    pub is_paced: bool,
    /// Sequence number up to which the archive misses nothing; `None` = not known yet.
    pub watermark: Option<u64>,
    /// Why records are not forwarded, as a sentence; `None` = records are forwarded.
    pub error: Option<String>,
}

/// All peers of a station.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerList {
    /// Peers, ordered by name.
    pub peers: Vec<Peer>,
}

/// One other station of the mesh.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Peer {
    /// Name of the peer.
    pub host: String,
    /// State of the peer: `up`, `lost` or `ignored`.
    pub state: Keyword,
    /// Why the peer is ignored, or which problem an `up` peer has, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time at which the peer's state began, in seconds since 1970-01-01 UTC.
    pub since_s: f64,
    /// Addresses that the peer registered.
    pub addresses: Vec<String>,
    /// Registered addresses that cannot be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<DroppedAddress>,
    /// Address in use, at which the peer answered; `None` = the peer has not answered at any
    /// address yet.
    pub address: Option<String>,
    /// Version of Barograph that the peer runs.
    pub version: String,
    /// Names of the peer's groups.
    pub groups: Vec<String>,
    /// Capabilities that the peer offers: `responder`, `bulk`, `trains`, `archive`, `iperf3`.
    pub capabilities: Vec<Keyword>,
    /// Time that the peer may be silent before it counts as lost at this station, in seconds.
    pub lease_s: f64,
}

/// A registered address that cannot be used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DroppedAddress {
    /// IP address and port.
    pub address: String,
    /// Why the address cannot be used.
    pub reason: Keyword,
}

/// One change of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerEvent {
    /// Number of the event. Numbers increase, also after a restart of the station.
    pub id: u64,
    /// What happened to the peer.
    pub event: PeerChange,
    /// Time of the change, in seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// Name of the peer.
    pub host: String,
    /// Addresses that the peer registered.
    pub addresses: Vec<String>,
    /// Version of Barograph that the peer runs.
    #[serde(default)]
    pub version: String,
    /// Names of the peer's groups.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// What happened to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerChange {
    /// The peer registered for the first time.
    Joined,
    /// The peer's lease ended, or the peer left.
    Lost,
    /// The peer registered again after it was lost.
    Returned,
    /// An administrator removed the peer from the mesh.
    Removed,
    /// A change that this version does not have.
    #[serde(other)]
    Unknown,
}

impl PeerChange {
    /// The string that represents the change in JSON.
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

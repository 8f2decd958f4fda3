//! `/v1/transfers`: files that a station sends or receives for a third party.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Word;

/// The newest transfers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferList {
    /// Transfers, the newest first.
    pub transfers: Vec<Transfer>,
}

/// One transfer, at this end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Transfer {
    /// Names it in requests.
    pub id: String,
    /// `sender` or `receiver`.
    pub role: Word,
    /// What it does, or what became of it.
    pub state: TransferState,
    /// When it was asked for, seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// The other end: a station of the mesh by its name, else an address.
    pub peer: Option<String>,
    pub files: Option<u64>,
    pub bytes: Option<u64>,
    /// Bytes that were there from before.
    pub held_bytes: Option<u64>,
    /// Bytes that are there now.
    pub there_bytes: u64,
    /// From the first datagram to the last acknowledgement, seconds.
    pub duration_s: Option<f64>,
    /// Bytes of files that came in this session, in that time; bit/s.
    pub goodput_bit_s: Option<f64>,
    /// Packets lost, at a sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostPackets>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Packets lost, by where they were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostPackets {
    pub sent_packets: u64,
    /// Lost in the receiving host.
    pub host: u64,
    /// Lost in the network.
    pub network: u64,
    /// Lost at an unknown place.
    pub unknown: u64,
}

/// What a transfer does, or what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferState {
    /// For its sender, or for the receiver's answer.
    Waiting,
    Running,
    /// All came; it is verified and files get their names.
    Verifying,
    Done,
    /// It ended too early; what came is kept, and the same transfer resumes there.
    Failed,
    /// A request ended it.
    Cancelled,
    Expired,
    /// A state that this version does not have.
    #[default]
    #[serde(other)]
    Unknown,
}

impl TransferState {
    /// Whether nothing more happens.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running | Self::Verifying)
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Verifying => "verifying",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }
}

/// A request to wait for one sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTransferLine {
    /// The station's directory, a whole path.
    pub directory: PathBuf,
    /// Name or address by which the sender reaches the station; `None` = the station's first address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// A transfer that waits, and the line for its sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferLine {
    pub line: String,
    pub transfer: Transfer,
}

/// A request to send.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTransfer {
    /// The station's files and directories, whole paths.
    pub paths: Vec<PathBuf>,
    /// The line that the receiver printed.
    pub line: String,
}

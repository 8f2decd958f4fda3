//! `/v1/transfers`: files that a station sends or receives for a third party.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Keyword;

/// The newest transfers of a station.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferList {
    /// Transfers, the newest first.
    pub transfers: Vec<Transfer>,
}

/// One transfer, as this end sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Transfer {
    /// ID of the transfer in requests.
    pub id: String,
    /// Role of this station: `sender` or `receiver`.
    pub role: Keyword,
    /// Progress or result of the transfer.
    pub state: TransferState,
    /// Time at which the transfer was requested, in seconds since 1970-01-01 UTC.
    pub time_s: f64,
    /// The other end: the name of a station of the mesh, else an address; `None` = not known yet.
    pub peer: Option<String>,
    /// Number of files; `None` = not known yet.
    pub files: Option<u64>,
    /// Size of all files, in bytes; `None` = not known yet.
    pub bytes: Option<u64>,
    /// Bytes that the receiver had from an earlier attempt; `None` = not known yet.
    #[serde(rename = "held_bytes")]
    pub resumed_bytes: Option<u64>,
    /// Bytes that the receiver has now.
    #[serde(rename = "there_bytes")]
    pub received_bytes: u64,
    /// Time from the first datagram to the last acknowledgement, in seconds.
    pub duration_s: Option<f64>,
    /// Goodput in bit/s: bits of files that arrived in this attempt, divided by `duration_s`.
    pub goodput_bit_s: Option<f64>,
    /// Lost packets of the transfer; present only if this station is the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostPackets>,
    /// Why the transfer failed or was refused, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Lost packets of a transfer, by the cause of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostPackets {
    /// Number of packets sent.
    pub sent_packets: u64,
    /// Packets lost in the receiving host.
    pub host: u64,
    /// Packets lost in the network.
    pub network: u64,
    /// Packets lost without a known cause.
    pub unknown: u64,
}

/// Progress or result of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferState {
    /// The transfer waits for its sender, or for the receiver's response.
    Waiting,
    /// Data is on its way.
    Running,
    /// All data has arrived. The receiver is now verifying the data and gives the files their final
    /// names.
    Verifying,
    /// All files arrived and have their names.
    Done,
    /// The transfer ended before all files arrived. The received bytes are kept, and the same
    /// transfer can resume after them.
    Failed,
    /// A request cancelled the transfer.
    Cancelled,
    /// No sender connected in time.
    Expired,
    /// A state that this version does not have.
    #[default]
    #[serde(other)]
    Unknown,
}

impl TransferState {
    /// Whether the transfer has ended.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running | Self::Verifying)
    }

    /// The string that represents the state in JSON.
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
pub struct NewReceiver {
    /// Absolute path of the station's directory for the files.
    pub directory: PathBuf,
    /// Name or address by which the sender reaches the station; `None` = the first address at which
    /// other hosts reach the station.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// A transfer that waits, and the receiver address for its sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitingTransfer {
    /// Receiver address, `brg://…`; it is valid for one sender.
    #[serde(rename = "line")]
    pub receiver_address: String,
    /// The transfer that waits.
    pub transfer: Transfer,
}

/// A request to send files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTransfer {
    /// Absolute paths of the files and directories to send, on the host of the station.
    pub paths: Vec<PathBuf>,
    /// Receiver address, `brg://…`, that the receiver gave.
    #[serde(rename = "line")]
    pub receiver_address: String,
}

//! Encoding of datagrams, byte for byte as in `docs/spec/transfer.md`.
//!
//! A datagram is a [`Header`] and a body. The body is sealed if the transfer is encrypted. The body
//! is a [`DataHead`] and bytes of the object, or a [`Feedback`]. Each value has one encoding;
//! readers refuse any other.
//!
//! ```
//! use barograph_transfer::testkit::wire::{DataHead, Header, PacketKind};
//!
//! let header = Header { kind: PacketKind::Data, transfer: 9, number: 0 };
//! let head = DataHead { sent_us: 17, offset: 4096, note: None };
//! let mut datagram = header.encode().to_vec();
//! head.encode(&mut datagram);
//! datagram.extend(b"bytes of the object");
//!
//! let (header, body) = Header::decode(&datagram)?;
//! assert_eq!((header.kind, header.number), (PacketKind::Data, 0));
//! let (head, payload) = DataHead::decode(body)?;
//! assert_eq!((head.offset, payload), (4096, &b"bytes of the object"[..]));
//! # Ok::<(), barograph_transfer::testkit::wire::WireError>(())
//! ```

mod data;
mod feedback;
#[cfg(test)]
mod tests;
pub(crate) mod varint;

use thiserror::Error;

/// Version of the protocol: the first four bits of each datagram.
pub const VERSION: u8 = 1;

/// Bytes of a datagram header.
pub const HEADER_BYTES: usize = 16;

/// Length in bytes of the seal, which follows a body. The seal is the tag of AES-128-GCM or
/// ChaCha20-Poly1305 (RFC 5116 §5.1, RFC 8439 §2.8).
pub const SEAL_BYTES: usize = 16;

/// Bytes of a data packet's head without a note.
pub const DATA_HEAD_BYTES: usize = 12;

/// Bytes that a note adds to the head.
pub const NOTE_BYTES: usize = 12;

/// Highest packet number, and highest offset in an object: 2^62 − 1, the maximum of a
/// variable-length integer (RFC 9000 §16). At a million packets a second, the numbers last for 146
/// 000 years.
pub const NUMBER_MAX: u64 = varint::MAX;

/// Reason why some bytes are not a datagram of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum WireError {
    #[error("the data ends within {0}")]
    Truncated(&'static str),
    /// The datagram is of another version or of another protocol.
    #[error("the datagram has version {0} of the transfer protocol, not {VERSION}: update the older end")]
    Version(u8),
    #[error("the datagram has the unknown kind {0}")]
    Kind(u8),
    /// Reserved bits are not 0.
    #[error("reserved bits of {0} are set")]
    Reserved(&'static str),
    /// A number is larger than is allowed.
    #[error("{0} is too large: {1}")]
    TooLarge(&'static str, u64),
    /// An integer takes more bytes than it needs.
    #[error("{0} is not encoded in its shortest form")]
    NotShortest(&'static str),
    /// A run other than the first has no received packets, or a run other than the last has no
    /// missing packets.
    #[error("run {0} of the feedback is empty")]
    EmptyRun(usize),
}

/// Start of every datagram: not encrypted, but authenticated if datagrams are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: PacketKind,
    /// Identifier of the transfer; the receiver chose it.
    pub transfer: u32,
    /// Number of the datagram. Numbers are counted from 0 in each direction, and a number is never
    /// used twice, because it is the nonce.
    pub number: u64,
}

/// Kind of content of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Bytes of the object, from the sender.
    Data = 1,
    /// The receiver's report about packets that arrived.
    Feedback = 2,
}

impl Header {
    /// Encodes the header.
    ///
    /// Numbers above [`NUMBER_MAX`] must not be sent: readers refuse them.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[4..8].copy_from_slice(&self.transfer.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Decodes a datagram's header. The rest is the body, sealed or not.
    /// Errors: the bytes are not a datagram of this version.
    pub fn decode(datagram: &[u8]) -> Result<(Self, &[u8]), WireError> {
        // The version is checked first, even if the bytes are too short for a header of this
        // version.
        let first = *datagram.first().ok_or(WireError::Truncated(HEADER))?;
        if first >> 4 != VERSION {
            return Err(WireError::Version(first >> 4));
        }
        let ([_, reserved @ .., a, b, c, d], rest) =
            datagram.split_first_chunk::<8>().ok_or(WireError::Truncated(HEADER))?;
        let (number, body) = rest.split_first_chunk().ok_or(WireError::Truncated(HEADER))?;
        let kind = match first & 0xF {
            1 => PacketKind::Data,
            2 => PacketKind::Feedback,
            other => return Err(WireError::Kind(other)),
        };
        if *reserved != [0; 3] {
            return Err(WireError::Reserved(HEADER));
        }
        let number = u64::from_be_bytes(*number);
        if number > NUMBER_MAX {
            return Err(WireError::TooLarge("the packet number", number));
        }
        Ok((Self { kind, transfer: u32::from_be_bytes([*a, *b, *c, *d]), number }, body))
    }
}

const HEADER: &str = "the header";

/// Head of a data packet. The packet's bytes of the object follow the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// Time when the packet was sent (µs of the sender's clock, wrapping).
    pub sent_us: u32,
    /// Offset of the packet's bytes in the object.
    pub offset: u64,
    /// The sender's note, if the packet has one. At least one packet in each round trip has a note.
    pub note: Option<SenderReport>,
}

/// What a sender reports to its receiver, in some data packets (the *note* of the specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderReport {
    /// Packets below this number need no further report.
    pub floor: u64,
    /// Smoothed round-trip time (µs), from which the receiver computes when feedback is due; 0
    /// while the time is not known.
    pub rtt_us: u32,
}

/// Report of the receiver: which packets arrived, and what is known about the gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// The first packet number that the runs cover.
    pub start: u64,
    /// Runs of packets without a gap between them; the first run begins at `start`.
    pub runs: Vec<AckRange>,
    /// The packet that arrived last; the sender measures the round-trip time with this echo.
    pub echo: Option<TimestampEcho>,
    /// Counts since the start of the transfer.
    pub totals: Totals,
}

/// A run: packets that arrived, followed by packets that are missing. Only the first run may have
/// no received packets, and only the last run may have no missing packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckRange {
    pub received: u32,
    /// Number of packets that have not arrived so far.
    pub missing: u32,
    /// Evidence of the receiver about the missing packets.
    pub evidence: GapReport,
}

/// Evidence of a receiver about one gap: drops, marks and delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GapReport {
    /// Whether the kernel's counter of packets dropped by the socket rose over the gap; `None` if
    /// there is no such counter.
    pub host_drops: Option<bool>,
    /// Whether the packet before or after the gap was marked with congestion; `None` if marks are
    /// not visible.
    pub is_marked: Option<bool>,
    /// One-way delay of the packet before the gap, above the path's minimum (µs); `None` if the
    /// delay is not known.
    pub delay_us: Option<u32>,
}

/// The data packet that arrived last, as the receiver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampEcho {
    pub number: u64,
    /// Sending time in the packet's head (µs, wrapping).
    pub sent_us: u32,
    /// Time since the packet arrived (µs).
    pub held_us: u32,
}

/// Counts of a receiver since the start of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of packets that were read, including duplicates.
    pub packets: u64,
    /// Bytes of the object in these packets.
    pub bytes: u64,
    /// Number of packets with a congestion mark, without duplicates.
    pub marked: u64,
    /// Drain rate (bytes of the object a second), measured while the receiver limited the transfer;
    /// 0 if the rate is not known.
    pub drain_bytes_s: u64,
}

//! What travels: datagrams, byte for byte, as `docs/spec/transfer.md` has them.
//!
//! A datagram is a [`Header`], and a body which is sealed where the transfer is: a [`DataHead`] and bytes of the object, or a [`Feedback`].
//! There is one way to write each value, and a reader refuses any other.
//!
//! ```
//! use barograph_transfer::testkit::wire::{DataHead, Header, Kind};
//!
//! let header = Header { kind: Kind::Data, transfer: 9, number: 0 };
//! let head = DataHead { sent_us: 17, offset: 4096, note: None };
//! let mut datagram = header.encode().to_vec();
//! head.encode(&mut datagram);
//! datagram.extend(b"bytes of the object");
//!
//! let (header, body) = Header::decode(&datagram)?;
//! assert_eq!((header.kind, header.number), (Kind::Data, 0));
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

/// Version of the protocol: the first nibble of each datagram.
pub const VERSION: u8 = 1;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;

/// Bytes of the seal behind a body: the tag of AES-128-GCM or ChaCha20-Poly1305 (RFC 5116 §5.1, RFC 8439 §2.8).
pub const SEAL_BYTES: usize = 16;

/// Bytes of a data packet's head without a note.
pub const DATA_HEAD_BYTES: usize = 12;

/// Bytes that a note adds to it.
pub const NOTE_BYTES: usize = 12;

/// The greatest number of a packet and the greatest place in an object: 2^62 − 1, what a variable-length integer holds (RFC 9000 §16).
/// A million packets a second last 146 000 years.
pub const NUMBER_MAX: u64 = varint::MAX;

/// What is no datagram of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum WireError {
    #[error("it ends within {0}")]
    Truncated(&'static str),
    /// It is of another version, or of another protocol.
    #[error("version {0} of the transfer protocol, where {VERSION} is spoken")]
    Version(u8),
    #[error("datagrams of kind {0} are unknown")]
    Kind(u8),
    /// What must be 0 is not.
    #[error("reserved bits of {0} are set")]
    Reserved(&'static str),
    /// It says a number that cannot be.
    #[error("{0} is {1}, which is too large")]
    TooLarge(&'static str, u64),
    /// An integer takes more bytes than it needs.
    #[error("{0} is not written in its shortest form")]
    NotShortest(&'static str),
    /// A run without received packets that is not the first, or without missing ones that is not the last.
    #[error("run {0} is empty")]
    EmptyRun(usize),
}

/// What every datagram begins with, in clear, authenticated where datagrams are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Which transfer it belongs to, as its receiver chose.
    pub transfer: u32,
    /// Its number: counted from 0 in each direction, never used twice; it is the nonce.
    pub number: u64,
}

/// What a datagram carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of the object, from the sender.
    Data = 1,
    /// What came, from the receiver.
    Feedback = 2,
}

impl Header {
    /// The bytes that a datagram begins with.
    ///
    /// Numbers above [`NUMBER_MAX`] are for nobody to send: no reader takes them.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = VERSION << 4 | self.kind as u8;
        bytes[4..8].copy_from_slice(&self.transfer.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads a datagram's header; what follows it is the body, sealed or not.
    /// Errors: what is no datagram of this version.
    pub fn decode(datagram: &[u8]) -> Result<(Self, &[u8]), WireError> {
        // The version comes first, also of what is too short for a header of this one.
        let first = *datagram.first().ok_or(WireError::Truncated(HEADER))?;
        if first >> 4 != VERSION {
            return Err(WireError::Version(first >> 4));
        }
        let ([_, reserved @ .., a, b, c, d], rest) =
            datagram.split_first_chunk::<8>().ok_or(WireError::Truncated(HEADER))?;
        let (number, body) = rest.split_first_chunk().ok_or(WireError::Truncated(HEADER))?;
        let kind = match first & 0xF {
            1 => Kind::Data,
            2 => Kind::Feedback,
            other => return Err(WireError::Kind(other)),
        };
        if *reserved != [0; 3] {
            return Err(WireError::Reserved(HEADER));
        }
        let number = u64::from_be_bytes(*number);
        if NUMBER_MAX < number {
            return Err(WireError::TooLarge("the packet's number", number));
        }
        Ok((Self { kind, transfer: u32::from_be_bytes([*a, *b, *c, *d]), number }, body))
    }
}

const HEADER: &str = "the header";

/// What a data packet says before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// When it was sent (µs of the sender's clock, wrapping).
    pub sent_us: u32,
    /// Where its bytes belong in the object.
    pub offset: u64,
    /// What the sender tells from time to time, at least once a round trip.
    pub note: Option<Note>,
}

/// What a sender tells its receiver beside data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Packets below this number need no report any more.
    pub floor: u64,
    /// The round trip (µs), which paces the feedback; 0 while it is not known.
    pub rtt_us: u32,
}

/// Which packets came, and what is known of the gaps between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// The first packet that the runs speak of.
    pub start: u64,
    /// From `start` on, in turns.
    pub runs: Vec<Run>,
    /// The packet that came last, and what a round trip is computed from.
    pub echo: Option<Echo>,
    /// So far, in all.
    pub totals: Totals,
}

/// Packets that came, and those missing behind them. Only the first may have none received, only the last none missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    pub received: u32,
    /// Packets that did not, or not yet.
    pub missing: u32,
    /// What is known of the missing.
    pub evidence: Evidence,
}

/// What a receiver knows of one gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Whether the kernel's counter of the socket's drops rose over it; `None` where there is no such counter.
    pub host_drops: Option<bool>,
    /// Whether the packet before or after it was marked as congested; `None` where marks are not seen.
    pub is_marked: Option<bool>,
    /// One-way delay of the packet before it, above the path's minimum (µs); `None` where it is not known.
    pub delay_us: Option<u32>,
}

/// The packet that came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    pub number: u64,
    /// What it said of when it was sent (µs, wrapping).
    pub sent_us: u32,
    /// How long ago it came (µs).
    pub held_us: u32,
}

/// What a receiver counted since the start of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets read, duplicates among them.
    pub packets: u64,
    /// Their bytes of the object.
    pub bytes: u64,
    /// Packets marked as congested.
    pub marked: u64,
    /// Rate at which it can take packets (bytes of the object a second), as measured where it was the limit; 0 while it never was.
    pub drain_bytes_s: u64,
}

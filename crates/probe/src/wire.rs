//! Wire format, version 1: the frames of a probe session and the probe datagram
//! (`docs/spec/probe.md`).
//!
//! Every frame has a fixed size and every field has bounds, so a decoder reads a known number of
//! bytes and never allocates. All integers are big-endian.

use crate::plan::Direction;
use crate::tcp_info::{SenderLimit, TcpInfo};

/// Name of the protocol in the `Upgrade` header; the number is its version.
pub const UPGRADE: &str = "barograph-probe/1";
/// The request target of the Upgrade.
pub const PATH: &str = "/v1/probe";
/// Response header in which an `https` station gives the single-use token for a plain connection.
pub const TOKEN_HEADER: &str = "barograph-probe-token";
/// Authentication scheme with which a plain connection presents that token.
pub const TOKEN_SCHEME: &str = "Probe";

/// Size of a [`Request`] on the wire, in bytes.
pub const REQUEST_BYTES: usize = 16;
/// Size of a [`Reply`] on the wire, in bytes.
pub const REPLY_BYTES: usize = 16;
/// Size of a [`BulkSummary`] on the wire, in bytes.
pub const DONE_BYTES: usize = 48;
/// Number of bytes of one exchange in each direction (JavaNws §2.1.1: "a two-byte packet is
/// exchanged").
pub const EXCHANGE_BYTES: usize = 2;
/// Size of a [`Datagram`], in bytes. A question may have padding after these bytes; an answer has
/// none, so it is never longer than the question.
pub const DATAGRAM_BYTES: usize = 24;
/// Maximum number of exchanges or datagrams in one request.
pub const COUNT_MAX: u32 = 100_000;

/// Maximum length of a stream in one request, in milliseconds: ten minutes.
pub const STREAM_MS_MAX: u32 = 600_000;

/// The client's request; the first frame of every experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `n` exchanges, each written in one write.
    Rtt {
        /// Number of exchanges, 1 to [`COUNT_MAX`].
        n: u32,
    },
    /// `n` exchanges, each written as two single bytes, with Nagle's algorithm on.
    RttNagle {
        /// Number of exchanges, 1 to [`COUNT_MAX`].
        n: u32,
    },
    /// One transfer of a fixed number of bytes.
    Goodput {
        /// Direction as seen from the client.
        direction: Direction,
        /// Bytes to transfer, at least 1; the responder's limit sets the maximum.
        bytes: u64,
    },
    /// Permission to send `n` datagrams to the UDP port that has the same number as the TCP port.
    Datagrams {
        /// Number of datagrams, 1 to [`COUNT_MAX`].
        n: u32,
    },
    /// A transfer to the responder that ends when the client closes its side of the connection.
    Stream {
        /// Time for which the client will send, in milliseconds: 1 to [`STREAM_MS_MAX`].
        ms: u32,
        /// Maximum number of bytes that the client will send, at least 1.
        bytes_max: u64,
    },
    /// Request for permission to run an iperf3 test. The responder returns the port of the test.
    Iperf3 {
        /// Time for which the client will send, in milliseconds: 1 to [`STREAM_MS_MAX`].
        ms: u32,
        /// Maximum number of bytes that the client will send, at least 1.
        bytes_max: u64,
    },
}

/// The responder's reply to a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request is accepted.
    Ready {
        /// Number that depends on the request. [`Request::Datagrams`]: the nonce of the datagrams.
        /// [`Request::Rtt`]: 1 while a bulk transfer runs at the responder, else 0.
        /// [`Request::Iperf3`]: the port. Other requests: 0.
        nonce: u64,
    },
    /// The request is declined, and the session ends.
    Declined(DeclineReason),
}

/// Why a responder declines a request or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum DeclineReason {
    /// A different bulk test is running at the responder.
    #[error("another bulk test is running there")]
    Busy,
    /// A different bulk test is running at the responder. The responder also gives the time after
    /// which this test is over at the latest.
    #[error("another bulk test is running there; retry in {retry_ms} ms")]
    BusyFor {
        /// Milliseconds to wait, at least 1.
        retry_ms: u64,
    },
    /// The request exceeds the number of bytes, exchanges or datagrams, or the time, that the
    /// responder allows.
    #[error("it allows at most {limit} in one test; request less")]
    TooLarge { limit: u64 },
    /// The bytes that the responder allows to the session are used up.
    #[error("the bytes that it allows to this session are used up; open a new session")]
    Spent,
    /// The responder's budget for bulk tests, or the caller's share of it, is used up; a retry is
    /// possible after `retry_ms`.
    #[error("its budget for bulk tests is used up; retry in {retry_ms} ms")]
    SpentFor {
        /// Milliseconds to wait, at least 1.
        retry_ms: u64,
    },
    /// The responder does not serve the experiment: the responder has no UDP port, or does not
    /// serve this experiment over TLS.
    #[error("it does not serve this experiment")]
    NotServed,
    /// Too many sessions are open, in all or from this peer.
    #[error("too many probe sessions are open there; retry later")]
    Full,
    /// The request is not of this version of the protocol.
    #[error("it does not support this request; its version may be older")]
    Malformed,
    #[error("it is shutting down")]
    Stopping,
}

/// The last frame of a transfer (*Done*): the responder's byte count, and the responder's
/// `TCP_INFO` if the responder was the sender.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkSummary {
    /// Bytes that the responder received or sent.
    pub bytes: u64,
    /// `TCP_INFO` of the responder's kernel, if the responder sent the bytes and its system
    /// provides `TCP_INFO`.
    pub tcp_info: Option<TcpInfo>,
}

/// A probe datagram; question and answer differ only in [`kind`](Self::kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Whether the datagram is a question or an answer.
    pub kind: DatagramKind,
    /// Nonce from [`Reply::Ready`]; the responder drops datagrams with any other nonce.
    pub nonce: u64,
    /// Number of the datagram, from 0.
    pub sequence: u32,
}

/// Direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramKind {
    /// From the client to the responder.
    Question,
    /// From the responder to the client.
    Answer,
}

/// Why bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum WireError {
    /// The number of bytes is not the length of the frame.
    #[error("received {bytes} bytes, expected a frame of {expected} bytes")]
    Length {
        bytes: usize,
        /// Length of the frame in bytes.
        expected: usize,
    },
    /// The first bytes are not the protocol's mark, or the version is not supported.
    #[error("the bytes are not {UPGRADE}")]
    Mark,
    /// A field has an undefined value.
    #[error("field `{field}` has the undefined value {value}")]
    Undefined { field: &'static str, value: u64 },
}

impl Request {
    /// Encodes the frame: mark, kind, 2 reserved bytes, count, number of bytes.
    #[must_use]
    pub fn encode(self) -> [u8; REQUEST_BYTES] {
        let (kind, count, bytes) = match self {
            Self::Rtt { n } => (1, n, 0),
            Self::RttNagle { n } => (2, n, 0),
            Self::Goodput { direction: Direction::Up, bytes } => (3, 0, bytes),
            Self::Goodput { direction: Direction::Down, bytes } => (4, 0, bytes),
            Self::Datagrams { n } => (5, n, 0),
            Self::Stream { ms, bytes_max } => (6, ms, bytes_max),
            Self::Iperf3 { ms, bytes_max } => (7, ms, bytes_max),
        };
        let mut frame = [0; REQUEST_BYTES];
        frame[0] = MARK_REQUEST;
        frame[1] = kind;
        frame[4..8].copy_from_slice(&u32::to_be_bytes(count));
        frame[8..16].copy_from_slice(&u64::to_be_bytes(bytes));
        frame
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a request, or a field is outside its bounds.
    pub fn decode(frame: &[u8]) -> Result<Self, WireError> {
        let frame: &[u8; REQUEST_BYTES] = exactly(frame)?;
        if frame[0] != MARK_REQUEST {
            return Err(WireError::Mark);
        }
        reserved(&frame[2..4])?;
        let count = u32_at(frame, 4);
        let bytes = u64_at(frame, 8);
        let kind = frame[1];
        match kind {
            1 | 2 | 5 => {
                if !(1..=COUNT_MAX).contains(&count) {
                    return Err(WireError::Undefined { field: "count", value: count.into() });
                }
                zero("bytes", bytes)?;
            }
            3 | 4 => {
                zero("count", count.into())?;
                if bytes == 0 {
                    return Err(WireError::Undefined { field: "bytes", value: 0 });
                }
            }
            6 | 7 => {
                if !(1..=STREAM_MS_MAX).contains(&count) {
                    return Err(WireError::Undefined { field: "count", value: count.into() });
                }
                if bytes == 0 {
                    return Err(WireError::Undefined { field: "bytes", value: 0 });
                }
            }
            _ => return Err(WireError::Undefined { field: "kind", value: kind.into() }),
        }
        Ok(match kind {
            1 => Self::Rtt { n: count },
            2 => Self::RttNagle { n: count },
            3 => Self::Goodput { direction: Direction::Up, bytes },
            4 => Self::Goodput { direction: Direction::Down, bytes },
            5 => Self::Datagrams { n: count },
            6 => Self::Stream { ms: count, bytes_max: bytes },
            _ => Self::Iperf3 { ms: count, bytes_max: bytes },
        })
    }
}

impl Reply {
    /// Encodes the frame: mark, status, 6 reserved bytes, number (nonce, load, port, limit, or
    /// milliseconds to wait).
    #[must_use]
    pub fn encode(self) -> [u8; REPLY_BYTES] {
        let (status, number) = match self {
            Self::Ready { nonce } => (0, nonce),
            Self::Declined(declined) => match declined {
                DeclineReason::Busy => (1, 0),
                DeclineReason::BusyFor { retry_ms } => (1, retry_ms),
                DeclineReason::TooLarge { limit } => (2, limit),
                DeclineReason::Spent => (3, 0),
                DeclineReason::SpentFor { retry_ms } => (3, retry_ms),
                DeclineReason::NotServed => (4, 0),
                DeclineReason::Full => (5, 0),
                DeclineReason::Malformed => (6, 0),
                DeclineReason::Stopping => (7, 0),
            },
        };
        let mut frame = [0; REPLY_BYTES];
        frame[0] = MARK_REPLY;
        frame[1] = status;
        frame[8..16].copy_from_slice(&u64::to_be_bytes(number));
        frame
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a reply.
    pub fn decode(frame: &[u8]) -> Result<Self, WireError> {
        let frame: &[u8; REPLY_BYTES] = exactly(frame)?;
        if frame[0] != MARK_REPLY {
            return Err(WireError::Mark);
        }
        reserved(&frame[2..8])?;
        let number = u64_at(frame, 8);
        let declined = match frame[1] {
            0 => return Ok(Self::Ready { nonce: number }),
            2 => return Ok(Self::Declined(DeclineReason::TooLarge { limit: number })),
            1 if number != 0 => return Ok(Self::Declined(DeclineReason::BusyFor { retry_ms: number })),
            3 if number != 0 => return Ok(Self::Declined(DeclineReason::SpentFor { retry_ms: number })),
            1 => DeclineReason::Busy,
            3 => DeclineReason::Spent,
            4 => DeclineReason::NotServed,
            5 => DeclineReason::Full,
            6 => DeclineReason::Malformed,
            7 => DeclineReason::Stopping,
            status => return Err(WireError::Undefined { field: "status", value: status.into() }),
        };
        zero("number", number)?;
        Ok(Self::Declined(declined))
    }
}

impl BulkSummary {
    /// Encodes the frame. Times are rounded to whole microseconds and rates to whole bit/s; the
    /// name of the congestion control is cut at 16 bytes, the kernel's own limit.
    #[must_use]
    pub fn encode(&self) -> [u8; DONE_BYTES] {
        let mut frame = [0; DONE_BYTES];
        frame[0] = MARK_DONE;
        frame[8..16].copy_from_slice(&self.bytes.to_be_bytes());
        let Some(info) = &self.tcp_info else { return frame };
        frame[1] = 1;
        frame[2] = match info.limited_by {
            None => 0,
            Some(SenderLimit::ReceiveWindow) => 1,
            Some(SenderLimit::SendBuffer) => 2,
            Some(SenderLimit::Network) => 3,
            Some(SenderLimit::Application) => 4,
        };
        // `as` saturates: a time or rate beyond the field's range becomes its largest value.
        let min_rtt_us = info.min_rtt_s.map_or(UNKNOWN, |s| (s * 1e6).round() as u32);
        frame[16..20].copy_from_slice(&min_rtt_us.to_be_bytes());
        frame[20..24].copy_from_slice(&info.total_retrans.to_be_bytes());
        let rate = info.delivery_rate_bit_s.map_or(0, |rate| rate.round() as u64);
        frame[24..32].copy_from_slice(&rate.to_be_bytes());
        for (byte, letter) in frame[32..].iter_mut().zip(info.congestion.iter().flat_map(|name| name.bytes()))
        {
            *byte = letter;
        }
        frame
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not this frame, or the name is not an ASCII word padded with
    /// zeros.
    pub fn decode(frame: &[u8]) -> Result<Self, WireError> {
        let frame: &[u8; DONE_BYTES] = exactly(frame)?;
        if frame[0] != MARK_DONE {
            return Err(WireError::Mark);
        }
        reserved(&frame[3..8])?;
        let bytes = u64_at(frame, 8);
        let tcp_info = match frame[1] {
            0 => {
                reserved(&frame[2..3])?;
                reserved(&frame[16..])?;
                None
            }
            1 => Some(decode_tcp_info(frame)?),
            flags => return Err(WireError::Undefined { field: "flags", value: flags.into() }),
        };
        Ok(Self { bytes, tcp_info })
    }
}

impl Datagram {
    /// Encodes the datagram: mark `BGP`, version, kind, 3 reserved bytes, nonce, sequence number, 4
    /// reserved bytes.
    #[must_use]
    pub fn encode(self) -> [u8; DATAGRAM_BYTES] {
        let mut bytes = [0; DATAGRAM_BYTES];
        bytes[..4].copy_from_slice(&DATAGRAM_MARK);
        bytes[4] = match self.kind {
            DatagramKind::Question => 1,
            DatagramKind::Answer => 2,
        };
        bytes[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// Decodes a datagram.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a probe datagram.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let bytes: &[u8; DATAGRAM_BYTES] = exactly(bytes)?;
        if bytes[..4] != DATAGRAM_MARK {
            return Err(WireError::Mark);
        }
        let kind = match bytes[4] {
            1 => DatagramKind::Question,
            2 => DatagramKind::Answer,
            kind => return Err(WireError::Undefined { field: "kind", value: kind.into() }),
        };
        reserved(&bytes[5..8])?;
        reserved(&bytes[20..])?;
        let sequence = u32_at(bytes, 16);
        if sequence >= COUNT_MAX {
            return Err(WireError::Undefined { field: "sequence", value: sequence.into() });
        }
        Ok(Self { kind, nonce: u64_at(bytes, 8), sequence })
    }
}

fn decode_tcp_info(frame: &[u8; DONE_BYTES]) -> Result<TcpInfo, WireError> {
    let limited_by = match frame[2] {
        0 => None,
        1 => Some(SenderLimit::ReceiveWindow),
        2 => Some(SenderLimit::SendBuffer),
        3 => Some(SenderLimit::Network),
        4 => Some(SenderLimit::Application),
        limit => return Err(WireError::Undefined { field: "limited_by", value: limit.into() }),
    };
    let name = &frame[32..];
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let (letters, padding) = name.split_at(length);
    reserved(padding)?;
    if let Some(bad) = letters.iter().find(|byte| !(byte.is_ascii_alphanumeric() || b"_-.".contains(byte))) {
        return Err(WireError::Undefined { field: "congestion", value: u64::from(*bad) });
    }
    let min_rtt_us = u32_at(frame, 16);
    let rate = u64_at(frame, 24);
    Ok(TcpInfo {
        min_rtt_s: (min_rtt_us != UNKNOWN).then(|| f64::from(min_rtt_us) / 1e6),
        total_retrans: u32_at(frame, 20),
        congestion: (!letters.is_empty()).then(|| letters.iter().copied().map(char::from).collect()),
        limited_by,
        delivery_rate_bit_s: (rate != 0).then_some(rate as f64),
    })
}

fn exactly<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], WireError> {
    bytes.try_into().map_err(|_| WireError::Length { bytes: bytes.len(), expected: N })
}

/// Checks that reserved bytes are zero in version 1, so that a later version can define them.
fn reserved(bytes: &[u8]) -> Result<(), WireError> {
    match bytes.iter().find(|byte| **byte != 0) {
        None => Ok(()),
        Some(byte) => Err(WireError::Undefined { field: "reserved", value: u64::from(*byte) }),
    }
}

fn zero(field: &'static str, value: u64) -> Result<(), WireError> {
    if value == 0 { Ok(()) } else { Err(WireError::Undefined { field, value }) }
}

fn u32_at<const N: usize>(frame: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("a range of four is four bytes"))
}

fn u64_at<const N: usize>(frame: &[u8; N], at: usize) -> u64 {
    u64::from_be_bytes(frame[at..at + 8].try_into().expect("a range of eight is eight bytes"))
}

/// First byte of each frame: it identifies the frame, and no ASCII text begins with it.
const MARK_REQUEST: u8 = 0xB1;
const MARK_REPLY: u8 = 0xB2;
const MARK_DONE: u8 = 0xB3;
/// First bytes of a datagram; the fourth byte is the version.
const DATAGRAM_MARK: [u8; 4] = *b"BGP\x01";
/// Value of `min_rtt_us` if the time is unknown; as a time, this value would be 71 minutes.
const UNKNOWN: u32 = u32::MAX;

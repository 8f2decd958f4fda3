//! Wire format of the link protocol (`docs/spec/link.md`). This module does no I/O. The number of
//! bytes that have arrived limits the memory that the module uses.

use std::array;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::mem;
use std::process;
use std::time::SystemTime;
use std::vec::Vec;

/// First bytes of the first frame in each direction.
pub const MAGIC: [u8; 4] = *b"BGLK";
/// Version of the protocol that this code implements.
pub const VERSION: u8 = 1;
/// Size of a [`Hello`], in bytes.
pub const HELLO_BYTES: usize = 24;
/// Size of a [`Welcome`], in bytes.
pub const WELCOME_BYTES: usize = 16;
/// Size of a message's [`Header`], in bytes.
pub const HEADER_BYTES: usize = 16;
/// Size of an [`Acknowledgement`], in bytes.
pub const ACKNOWLEDGEMENT_BYTES: usize = 16;
/// Maximum number of bytes of a message that are read at a time. At most this number of bytes is
/// allocated for bytes that the peer has not sent yet.
pub const CHUNK_BYTES: usize = 16 * 1024;

const MESSAGE_MARK: u8 = 0xC1;
const ACKNOWLEDGEMENT_MARK: u8 = 0xC2;

/// Identity of a sender: 128 bits drawn once for each link. Each identity has its own sequence of
/// message identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SenderId(pub [u8; 16]);

impl SenderId {
    /// Draws a new identity from the system. A forked process or a cloned virtual machine must not
    /// draw the same identity. Otherwise, messages of one sender would be dropped as duplicates of
    /// messages of the other sender.
    ///
    /// ```
    /// use barograph_timeout::link::SenderId;
    ///
    /// assert_ne!(SenderId::random(), SenderId::random());
    /// ```
    #[must_use]
    pub fn random() -> Self {
        Self(drawn().unwrap_or_else(mixed))
    }
}

/// Draws 16 bytes from `/dev/urandom`; `None` if the system does not have this file.
fn drawn() -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").ok()?.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// Without `/dev/urandom`, mixes the randomness that seeds hash maps with the process identifier
/// and the time. The randomness is drawn once for each thread. The process identifier and the time
/// differ between forked processes and cloned machines.
#[expect(
    clippy::disallowed_methods,
    reason = "each link draws an identity once; no decision depends on the time"
)]
fn mixed() -> [u8; 16] {
    let half = || RandomState::new().hash_one((process::id(), SystemTime::now())).to_be_bytes();
    let halves = [half(), half()];
    array::from_fn(|i| halves[i / 8][i % 8])
}

/// First frame of the sender.
///
/// ```
/// use barograph_timeout::link::SenderId;
/// use barograph_timeout::link::wire::{Hello, MAGIC};
///
/// let hello = Hello { sender: SenderId(*b"0123456789abcdef") };
/// let frame = hello.encode();
/// assert!(frame.starts_with(&MAGIC) && frame.ends_with(b"0123456789abcdef"));
/// assert_eq!(Hello::decode(&frame), Ok(hello));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Identity of the sender on this connection.
    pub sender: SenderId,
}

/// The receiver's reply to a [`Hello`].
///
/// ```
/// use barograph_timeout::link::wire::Welcome;
///
/// let welcome = Welcome::Ready { message_bytes_max: 1024 };
/// assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Welcome {
    /// The receiver is ready for messages.
    Ready {
        /// Length of the longest message that the receiver accepts, in bytes.
        message_bytes_max: u32,
    },
    /// The receiver does not support the sender's version; the frame has the receiver's version.
    OtherVersion,
    /// The receiver has no room for another connection.
    Full,
    /// The receiver is shutting down.
    Stopping,
}

/// Header in front of each message.
///
/// ```
/// use barograph_timeout::link::wire::{Header, WireError};
///
/// let header = Header { id: 9, length: 100 };
/// let frame = header.encode();
/// assert_eq!(Header::decode(&frame, 100), Ok(header));
/// assert_eq!(Header::decode(&frame, 99), Err(WireError::TooLong { length: 100, max: 99 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identifier of the message: at least 1, and greater than all earlier identifiers of the same
    /// sender.
    pub id: u64,
    /// Length of the message that follows, in bytes.
    pub length: u32,
}

/// How the receiver treated a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckStatus {
    /// The message was handled now.
    Handled,
    /// An earlier copy had been handled before this copy arrived. This copy was not handled.
    Duplicate,
    /// An earlier copy was being handled when this copy arrived. This copy waited for the outcome
    /// and was not handled.
    Waited,
    /// A later message of the same sender was handled already. This message was not handled and
    /// never will be.
    Stale,
}

impl AckStatus {
    /// Whether an earlier copy was handled and this copy was not.
    ///
    /// ```
    /// use barograph_timeout::link::wire::AckStatus;
    ///
    /// assert!(AckStatus::Waited.is_duplicate());
    /// assert!(!AckStatus::Stale.is_duplicate());
    /// ```
    #[must_use]
    pub fn is_duplicate(self) -> bool {
        matches!(self, Self::Duplicate | Self::Waited)
    }
}

/// The receiver's reply to a message.
///
/// ```
/// use barograph_timeout::link::wire::{AckStatus, Acknowledgement};
///
/// let acknowledgement = Acknowledgement { id: 9, status: AckStatus::Duplicate };
/// assert_eq!(Acknowledgement::decode(&acknowledgement.encode()), Ok(acknowledgement));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Identifier of the message.
    pub id: u64,
    /// How the message was treated.
    pub status: AckStatus,
}

/// Reason why bytes are not a frame of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The peer does not use this protocol.
    #[error("the peer does not use the link protocol: its first bytes are {0:02x?}")]
    Magic([u8; 4]),
    /// The peer has a different version of the protocol.
    #[error("the peer uses version {0} of the link protocol, this program version {VERSION}")]
    Version(u8),
    /// The first byte or the status of the frame has a value that is not defined.
    #[error("unexpected mark or status {0:#04x} in a frame of the link protocol")]
    Undefined(u8),
    /// A reserved byte is not zero.
    #[error("a reserved byte is not zero")]
    Reserved,
    /// A message has the identifier 0. Identifiers begin at 1.
    #[error("a message has the identifier 0")]
    NoId,
    /// A message exceeds the limit. No memory was allocated for it.
    #[error("a message of {length} bytes exceeds the limit of {max}")]
    TooLong {
        /// Length in the header of the message, in bytes.
        length: u32,
        /// Largest length that is allowed, in bytes.
        max: u32,
    },
}

impl Hello {
    /// Returns the frame as bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut frame = [0; HELLO_BYTES];
        frame[..4].copy_from_slice(&MAGIC);
        frame[4] = VERSION;
        frame[8..].copy_from_slice(&self.sender.0);
        frame
    }

    /// Reads a hello from its bytes.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a hello of this version.
    pub fn decode(frame: &[u8; HELLO_BYTES]) -> Result<Self, WireError> {
        opening(frame[..5].try_into().expect("five bytes"))?;
        zero(&frame[5..8])?;
        Ok(Self { sender: SenderId(frame[8..].try_into().expect("sixteen bytes")) })
    }
}

impl Welcome {
    /// Returns the frame as bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; WELCOME_BYTES] {
        let (status, number) = match *self {
            Self::Ready { message_bytes_max } => (0, message_bytes_max),
            Self::OtherVersion => (1, 0),
            Self::Full => (2, 0),
            Self::Stopping => (3, 0),
        };
        let mut frame = [0; WELCOME_BYTES];
        frame[..4].copy_from_slice(&MAGIC);
        frame[4] = VERSION;
        frame[5] = status;
        frame[8..12].copy_from_slice(&number.to_be_bytes());
        frame
    }

    /// Reads a welcome from its bytes.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a welcome of this version.
    pub fn decode(frame: &[u8; WELCOME_BYTES]) -> Result<Self, WireError> {
        opening(frame[..5].try_into().expect("five bytes"))?;
        zero(&frame[6..8])?;
        zero(&frame[12..])?;
        let number = u32::from_be_bytes(frame[8..12].try_into().expect("four bytes"));
        match (frame[5], number) {
            (0, message_bytes_max) => Ok(Self::Ready { message_bytes_max }),
            (1, 0) => Ok(Self::OtherVersion),
            (2, 0) => Ok(Self::Full),
            (3, 0) => Ok(Self::Stopping),
            (1..=3, _) => Err(WireError::Reserved),
            (status, _) => Err(WireError::Undefined(status)),
        }
    }
}

impl Header {
    /// Returns the frame as bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut frame = [0; HEADER_BYTES];
        frame[0] = MESSAGE_MARK;
        frame[4..8].copy_from_slice(&self.length.to_be_bytes());
        frame[8..].copy_from_slice(&self.id.to_be_bytes());
        frame
    }

    /// Reads a message header from its bytes.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a header, or announce more than `max` bytes.
    pub fn decode(frame: &[u8; HEADER_BYTES], max: u32) -> Result<Self, WireError> {
        if frame[0] != MESSAGE_MARK {
            return Err(WireError::Undefined(frame[0]));
        }
        zero(&frame[1..4])?;
        let length = u32::from_be_bytes(frame[4..8].try_into().expect("four bytes"));
        if max < length {
            return Err(WireError::TooLong { length, max });
        }
        Ok(Self { id: id(frame[8..].try_into().expect("eight bytes"))?, length })
    }
}

impl Acknowledgement {
    /// Returns the frame as bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; ACKNOWLEDGEMENT_BYTES] {
        let mut frame = [0; ACKNOWLEDGEMENT_BYTES];
        frame[0] = ACKNOWLEDGEMENT_MARK;
        frame[1] = match self.status {
            AckStatus::Handled => 0,
            AckStatus::Duplicate => 1,
            AckStatus::Stale => 2,
            AckStatus::Waited => 3,
        };
        frame[8..].copy_from_slice(&self.id.to_be_bytes());
        frame
    }

    /// Reads an acknowledgement from its bytes.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not an acknowledgement.
    pub fn decode(frame: &[u8; ACKNOWLEDGEMENT_BYTES]) -> Result<Self, WireError> {
        if frame[0] != ACKNOWLEDGEMENT_MARK {
            return Err(WireError::Undefined(frame[0]));
        }
        let status = match frame[1] {
            0 => AckStatus::Handled,
            1 => AckStatus::Duplicate,
            2 => AckStatus::Stale,
            3 => AckStatus::Waited,
            status => return Err(WireError::Undefined(status)),
        };
        zero(&frame[2..8])?;
        Ok(Self { id: id(frame[8..].try_into().expect("eight bytes"))?, status })
    }
}

/// Assembles messages from pieces of any size. The assembler uses little more memory than the bytes
/// that have arrived, even if a header announces a longer message.
///
/// ```
/// use barograph_timeout::link::wire::{Assembler, Header};
///
/// let header = Header { id: 1, length: 5 };
/// let stream = [&header.encode()[..], &b"hello"[..]].concat();
/// let (mut first, mut rest) = stream.split_at(10);
/// let mut assembler = Assembler::new(1024);
/// assert_eq!(assembler.push(&mut first), Ok(None));
/// assert!(assembler.is_partial());
/// assert_eq!(assembler.push(&mut rest), Ok(Some((header, b"hello".to_vec()))));
/// ```
#[derive(Debug)]
pub struct Assembler {
    max: u32,
    head: [u8; HEADER_BYTES],
    head_have: usize,
    body: Option<(Header, Vec<u8>)>,
}

impl Assembler {
    /// Creates an assembler for messages of at most `max` bytes.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { max, head: [0; HEADER_BYTES], head_have: 0, body: None }
    }

    /// Number of bytes to read next: at least 1, at most [`CHUNK_BYTES`], and not more than this
    /// message still needs.
    #[must_use]
    pub fn bytes_wanted(&self) -> usize {
        match &self.body {
            None => HEADER_BYTES - self.head_have,
            Some((header, bytes)) => (header.length as usize - bytes.len()).min(CHUNK_BYTES),
        }
    }

    /// Whether a message has begun and is incomplete.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.head_have != 0
    }

    /// Removes bytes from the front of `input`, up to the end of a message, and returns the
    /// message.
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a message. The connection is then unusable.
    pub fn push(&mut self, input: &mut &[u8]) -> Result<Option<(Header, Vec<u8>)>, WireError> {
        if self.body.is_none() {
            let taken = take(input, HEADER_BYTES - self.head_have);
            self.head[self.head_have..][..taken.len()].copy_from_slice(taken);
            self.head_have += taken.len();
            if self.head_have < HEADER_BYTES {
                return Ok(None);
            }
            self.body = Some((Header::decode(&self.head, self.max)?, Vec::new()));
        }
        let Some((header, bytes)) = &mut self.body else { return Ok(None) };
        bytes.extend_from_slice(take(input, header.length as usize - bytes.len()));
        if bytes.len() < header.length as usize {
            return Ok(None);
        }
        self.head_have = 0;
        Ok(mem::take(&mut self.body))
    }
}

fn take<'a>(input: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}

/// Checks the first five bytes of a direction: the magic number and the version. Their layout is
/// the same in every version.
fn opening(bytes: [u8; 5]) -> Result<(), WireError> {
    let [magic @ .., version] = bytes;
    match (magic == MAGIC, version == VERSION) {
        (true, true) => Ok(()),
        (true, false) => Err(WireError::Version(version)),
        (false, _) => Err(WireError::Magic(magic)),
    }
}

fn zero(reserved: &[u8]) -> Result<(), WireError> {
    if reserved.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(WireError::Reserved) }
}

fn id(bytes: [u8; 8]) -> Result<u64, WireError> {
    match u64::from_be_bytes(bytes) {
        0 => Err(WireError::NoId),
        id => Ok(id),
    }
}

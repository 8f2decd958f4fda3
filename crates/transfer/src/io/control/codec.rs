//! Encoding of messages: length, kind and body. Each message has exactly one encoding.

mod fields;

use thiserror::Error;

use self::fields::{
    check, checked_port, plain, put_software, reason_code, reason_of, suite_code, take, take_datagram_bytes,
    take_ranges, take_software, take_suite, take_suites, take_version, text_of,
};
use super::{AuthToken, Message};
use crate::proto::wire::{WireError, varint};

/// Version of the control protocol and of everything that is negotiated with it.
pub const VERSION: u64 = 1;

/// Maximum size of a manifest, in bytes (`docs/spec/transfer.md` §7); a receiver may set a lower
/// limit.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 27;

/// Number of bytes before a body: 4 for the length of the body and 1 for the kind.
pub(super) const HEAD_BYTES: usize = 5;

/// Maximum size of a program's name and version, in bytes. This maximum limits the memory for a
/// peer that is not authenticated.
const SOFTWARE_BYTES_MAX: usize = 64;

/// Maximum size of a text, in bytes: one or two sentences.
const TEXT_BYTES_MAX: usize = 512;

/// Maximum number of ranges: as many as a receiver keeps (`docs/spec/transfer.md` §5.1).
const RANGES_MAX: usize = 1 << 17;

/// Maximum number of digests: as many as a manifest can have entries (`docs/spec/transfer.md` §7).
const DIGESTS_MAX: usize = 1 << 20;

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum FrameError {
    /// An integer is cut off or too long.
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the message ends within {0}")]
    Truncated(&'static str),
    #[error("the message has {0} bytes too many")]
    Excess(usize),
    /// The kind is unknown. The message is probably of a different version or protocol.
    #[error("the message has the unknown kind {0}")]
    Kind(u8),
    #[error(
        "the other end uses version {0} of the control connection, this end {VERSION}: use the same version at both ends"
    )]
    Version(u64),
    /// A field has a value without a meaning in the protocol.
    #[error("{0} cannot be {1}")]
    Value(&'static str, u64),
    /// Text that is not UTF-8, or contains characters that control a terminal.
    #[error("{0} is not plain text")]
    Text(&'static str),
    #[error("a {kind} message of {bytes} bytes, but at most {bytes_max} are read")]
    TooLong { kind: MessageKind, bytes: u64, bytes_max: u64 },
}

/// Kind of a message, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Hello = 1,
    Welcome = 2,
    Offer = 3,
    Accept = 4,
    Durable = 5,
    Ping = 6,
    Digests = 7,
    Done = 8,
    Refuse = 9,
}

impl std::fmt::Display for MessageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl MessageKind {
    fn of(code: u8) -> Result<Self, FrameError> {
        Ok(match code {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Offer,
            4 => Self::Accept,
            5 => Self::Durable,
            6 => Self::Ping,
            7 => Self::Digests,
            8 => Self::Done,
            9 => Self::Refuse,
            _ => return Err(FrameError::Kind(code)),
        })
    }

    /// Maximum size of a body of this kind, in bytes.
    fn body_bytes_max(self, manifest_bytes_max: u64) -> u64 {
        match self {
            // Version, flags, token, length of a text, text.
            Self::Hello => 8 + 1 + 16 + 2 + SOFTWARE_BYTES_MAX as u64,
            Self::Welcome => 8 + 2 + SOFTWARE_BYTES_MAX as u64 + 8,
            // Identifier, largest datagram, number of suites, three suites, manifest.
            Self::Offer => 16 + 4 + 1 + 3 + manifest_bytes_max.min(MANIFEST_BYTES_MAX),
            Self::Accept => 4 + 2 + 1 + 4 + 16 * RANGES_MAX as u64,
            Self::Durable => 8,
            Self::Ping | Self::Done => 0,
            Self::Digests => 32 * DIGESTS_MAX as u64,
            Self::Refuse => 1 + TEXT_BYTES_MAX as u64,
        }
    }
}

impl Message {
    pub(super) fn kind(&self) -> MessageKind {
        match self {
            Self::Hello { .. } => MessageKind::Hello,
            Self::Welcome { .. } => MessageKind::Welcome,
            Self::Offer { .. } => MessageKind::Offer,
            Self::Accept { .. } => MessageKind::Accept,
            Self::Durable(_) => MessageKind::Durable,
            Self::Ping => MessageKind::Ping,
            Self::Digests(_) => MessageKind::Digests,
            Self::Done => MessageKind::Done,
            Self::Refuse { .. } => MessageKind::Refuse,
        }
    }
}

/// Reads the head of a frame: the kind of its body and the length; `None` if there are too few
/// bytes for a head. Errors: an unknown kind, or a body that is too long.
pub(super) fn head(
    bytes: &[u8],
    manifest_bytes_max: u64,
) -> Result<Option<(MessageKind, usize)>, FrameError> {
    let [a, b, c, d, code, ..] = *bytes else { return Ok(None) };
    let kind = MessageKind::of(code)?;
    let length = u64::from(u32::from_be_bytes([a, b, c, d]));
    let bytes_max = kind.body_bytes_max(manifest_bytes_max);
    if length > bytes_max {
        return Err(FrameError::TooLong { kind, bytes: length, bytes_max });
    }
    Ok(Some((kind, length as usize)))
}

/// Encodes a message. Texts that are too long are cut, and unsafe characters in texts are replaced.
/// Errors: a manifest, ranges, digests or suites that no reader accepts.
pub(super) fn encode(message: &Message) -> Result<Vec<u8>, FrameError> {
    check(message)?;
    let kind = message.kind();
    let mut out = vec![0, 0, 0, 0, kind as u8];
    match message {
        Message::Hello { token, software } => {
            varint::put(&mut out, VERSION);
            out.push(u8::from(token.is_some()));
            out.extend(token.iter().flat_map(|token| token.0));
            put_software(&mut out, software);
        }
        Message::Welcome { software, manifest_bytes_max } => {
            varint::put(&mut out, VERSION);
            put_software(&mut out, software);
            varint::put(&mut out, *manifest_bytes_max);
        }
        Message::Offer { id, manifest, suites, datagram_bytes_max } => {
            out.extend(id);
            varint::put(&mut out, u64::from(*datagram_bytes_max));
            out.push(suites.len().min(255) as u8);
            out.extend(suites.iter().map(|suite| suite_code(*suite)));
            out.extend(manifest);
        }
        Message::Accept { transfer, port, suite, datagram_bytes_max, held } => {
            out.extend(transfer.to_be_bytes());
            out.extend(port.to_be_bytes());
            out.push(suite_code(*suite));
            varint::put(&mut out, u64::from(*datagram_bytes_max));
            let mut end = 0;
            for range in held {
                varint::put(&mut out, range.start.wrapping_sub(end));
                varint::put(&mut out, range.end.wrapping_sub(range.start));
                end = range.end;
            }
        }
        Message::Durable(bytes) => varint::put(&mut out, *bytes),
        Message::Ping | Message::Done => {}
        Message::Digests(digests) => out.extend(digests.as_flattened()),
        Message::Refuse { reason, text } => {
            out.push(reason_code(*reason));
            out.extend(plain(text, TEXT_BYTES_MAX).as_bytes());
        }
    }
    let length = out.len() - HEAD_BYTES;
    let bytes_max = kind.body_bytes_max(MANIFEST_BYTES_MAX);
    if length as u64 > bytes_max {
        return Err(FrameError::TooLong { kind, bytes: length as u64, bytes_max });
    }
    if let Some(place) = out.first_chunk_mut() {
        *place = (length as u32).to_be_bytes();
    }
    Ok(out)
}

/// Decodes the body of a message.
/// Errors: any difference from what [`encode`] writes.
pub(super) fn decode(kind: MessageKind, mut body: &[u8]) -> Result<Message, FrameError> {
    let bytes = &mut body;
    let message = match kind {
        MessageKind::Hello => {
            take_version(bytes)?;
            let token = match take::<1>(bytes, "the flags")? {
                [0] => None,
                [1] => Some(AuthToken(take(bytes, "the token")?)),
                [flags] => return Err(FrameError::Value("the flags", u64::from(flags))),
            };
            Message::Hello { token, software: take_software(bytes)? }
        }
        MessageKind::Welcome => {
            take_version(bytes)?;
            let software = take_software(bytes)?;
            Message::Welcome { software, manifest_bytes_max: varint::take(bytes, "the manifest's limit")? }
        }
        MessageKind::Offer => {
            let id = take(bytes, "the transfer identifier")?;
            let datagram_bytes_max = take_datagram_bytes(bytes)?;
            let suites = take_suites(bytes)?;
            Message::Offer { id, manifest: std::mem::take(bytes).to_vec(), suites, datagram_bytes_max }
        }
        MessageKind::Accept => {
            let transfer = u32::from_be_bytes(take(bytes, "the transfer")?);
            let port = checked_port(u16::from_be_bytes(take(bytes, "the port")?))?;
            let suite = take_suite(bytes)?;
            let datagram_bytes_max = take_datagram_bytes(bytes)?;
            Message::Accept { transfer, port, suite, datagram_bytes_max, held: take_ranges(bytes)? }
        }
        MessageKind::Durable => Message::Durable(varint::take(bytes, "the number of bytes")?),
        MessageKind::Ping => Message::Ping,
        MessageKind::Done => Message::Done,
        MessageKind::Digests => {
            let (digests, rest) = std::mem::take(bytes).as_chunks::<32>();
            if !rest.is_empty() {
                return Err(FrameError::Truncated("a digest"));
            }
            Message::Digests(digests.to_vec())
        }
        MessageKind::Refuse => {
            let reason = reason_of(take::<1>(bytes, "the reason")?[0])?;
            Message::Refuse {
                reason,
                text: text_of(std::mem::take(bytes), TEXT_BYTES_MAX, "the reason's text")?,
            }
        }
    };
    if body.is_empty() { Ok(message) } else { Err(FrameError::Excess(body.len())) }
}

/// Decodes `data` as a frame. If the frame is accepted, the encoding of its message must have the
/// same bytes.
pub(crate) fn fuzz(data: &[u8]) {
    let Ok(Some((kind, length))) = head(data, MANIFEST_BYTES_MAX) else { return };
    let Some(frame) = data.get(..HEAD_BYTES + length) else { return };
    if let Ok(message) = decode(kind, frame.get(HEAD_BYTES..).unwrap_or_default()) {
        assert_eq!(message.kind(), kind);
        assert_eq!(encode(&message).as_deref(), Ok(frame), "{message:?}");
    }
}

//! Encoding of data packets.

use super::{DATA_HEAD_BYTES, DataHead, NOTE_BYTES, NUMBER_MAX, SenderReport, WireError};

impl DataHead {
    /// Length of the longest head, in bytes.
    pub const BYTES_MAX: usize = DATA_HEAD_BYTES + NOTE_BYTES;

    /// Length of this head when encoded, in bytes.
    pub const fn encoded_len(&self) -> usize {
        DATA_HEAD_BYTES + if self.note.is_some() { NOTE_BYTES } else { 0 }
    }

    /// Appends the head; the packet's bytes of the object follow it.
    ///
    /// Offsets and floors above [`NUMBER_MAX`] must not be sent. Such numbers are encoded as
    /// [`NUMBER_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flag = if self.note.is_some() { HAS_NOTE } else { 0 };
        out.extend(self.sent_us.to_be_bytes());
        out.extend((flag | self.offset.min(NUMBER_MAX)).to_be_bytes());
        if let Some(SenderReport { floor, rtt_us }) = self.note {
            out.extend(floor.min(NUMBER_MAX).to_be_bytes());
            out.extend(rtt_us.to_be_bytes());
        }
    }

    /// Decodes the body of a data packet: its head, and its bytes of the object, which may be
    /// empty.
    /// Errors: the encoder does not write such a head, or the bytes end beyond [`NUMBER_MAX`].
    pub fn decode(body: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (sent_us, rest) = body.split_first_chunk().ok_or(WireError::Truncated(HEAD))?;
        let (place, rest) = rest.split_first_chunk().ok_or(WireError::Truncated(HEAD))?;
        let place = u64::from_be_bytes(*place);
        if place & RESERVED != 0 {
            return Err(WireError::Reserved("the offset"));
        }
        let (note, payload) = if place & HAS_NOTE == 0 {
            (None, rest)
        } else {
            let (floor, rest) = rest.split_first_chunk().ok_or(WireError::Truncated(NOTE))?;
            let (rtt_us, rest) = rest.split_first_chunk().ok_or(WireError::Truncated(NOTE))?;
            let floor = u64::from_be_bytes(*floor);
            if floor > NUMBER_MAX {
                return Err(WireError::TooLarge("the note's floor", floor));
            }
            (Some(SenderReport { floor, rtt_us: u32::from_be_bytes(*rtt_us) }), rest)
        };
        let offset = place & NUMBER_MAX;
        // The sum cannot saturate, because the offset and the length are far below 2^63.
        let end = offset.saturating_add(payload.len() as u64);
        if end > NUMBER_MAX {
            return Err(WireError::TooLarge("the end of the packet's bytes", end));
        }
        Ok((Self { sent_us: u32::from_be_bytes(*sent_us), offset, note }, payload))
    }
}

const HEAD: &str = "the head of the data packet";
const NOTE: &str = "the note";

/// Flag in the highest bit of the offset: if set, a note follows.
const HAS_NOTE: u64 = 1 << 63;
/// Second highest bit of the offset, which must be 0.
const RESERVED: u64 = 1 << 62;

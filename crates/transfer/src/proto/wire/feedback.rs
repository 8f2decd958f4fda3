//! Encoding of feedback in packets (docs/spec/transfer.md).

use super::varint::{self, put, take, take_u32};
use super::{AckRange, Feedback, GapReport, NUMBER_MAX, TimestampEcho, Totals, WireError};

impl Feedback {
    /// Number of bytes that is enough for any feedback with one run, without header and seal. The
    /// number is the sum of flags, start, echo, totals and the longest run.
    pub const BYTES_MIN: usize = 1 + 8 + (8 + 4 + 8) + 4 * 8 + AckRange::BYTES_MAX;

    /// Appends the feedback with as many of the runs as fit `bytes_max` bytes. Returns the number
    /// of these runs. Further datagrams carry the other runs; each datagram begins where the
    /// datagram before ended. If the part before the runs does not fit, returns `None` and writes
    /// nothing.
    ///
    /// Totals above [`NUMBER_MAX`] are encoded as [`NUMBER_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>, bytes_max: usize) -> Option<usize> {
        let mut room = bytes_max.checked_sub(self.head_len())?;
        out.push(if self.echo.is_some() { HAS_ECHO } else { 0 });
        put(out, self.start);
        if let Some(TimestampEcho { number, sent_us, held_us }) = self.echo {
            put(out, number);
            out.extend(sent_us.to_be_bytes());
            put(out, u64::from(held_us));
        }
        for total in self.totals.fields() {
            put(out, total);
        }
        let mut fitted = 0;
        for run in &self.runs {
            let Some(left) = room.checked_sub(run.encoded_len()) else { break };
            room = left;
            run.encode(out);
            fitted += 1;
        }
        Some(fitted)
    }

    /// Returns the feedback without its first `runs` runs. The result is the content of the next
    /// datagram if `runs` runs fitted into this one.
    #[cfg(test)]
    pub(super) fn after(&self, runs: usize) -> Self {
        let (told, rest) = self.runs.split_at(runs.min(self.runs.len()));
        let packets = told.iter().map(AckRange::packets).sum::<u64>();
        Self { start: self.start.saturating_add(packets), runs: rest.to_vec(), ..*self }
    }

    /// Number of the last packet that the runs cover, plus one.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.runs.iter().map(AckRange::packets).sum())
    }

    /// Decodes the body of a feedback. Errors: the bytes have a form that [`encode`](Self::encode)
    /// never writes, or runs reach beyond [`NUMBER_MAX`].
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let (flags, mut rest) = body.split_first().ok_or(WireError::Truncated("the flags"))?;
        if flags & !HAS_ECHO != 0 {
            return Err(WireError::Reserved("the flags"));
        }
        let start = take(&mut rest, "the start")?;
        let echo = if flags & HAS_ECHO == 0 { None } else { Some(TimestampEcho::decode(&mut rest)?) };
        let totals = Totals {
            packets: take(&mut rest, "the count of packets")?,
            bytes: take(&mut rest, "the count of bytes")?,
            marked: take(&mut rest, "the count of marks")?,
            drain_bytes_s: take(&mut rest, "the drain rate")?,
        };
        // A run takes at least two bytes when encoded, and 20 bytes in memory.
        let (mut runs, mut end) = (Vec::new(), start);
        while !rest.is_empty() {
            let run = AckRange::decode(&mut rest)?;
            if (run.received == 0 && !runs.is_empty()) || (run.missing == 0 && !rest.is_empty()) {
                return Err(WireError::EmptyRun(runs.len()));
            }
            end += run.packets();
            // `end` is the last number plus one, so `end` may be `NUMBER_MAX` plus one. The sum
            // cannot wrap, because each run adds less than 2^33.
            if end.saturating_sub(1) > NUMBER_MAX {
                return Err(WireError::TooLarge("the end of the runs", end));
            }
            runs.push(run);
        }
        if let [only] = &runs[..]
            && only.packets() == 0
        {
            return Err(WireError::EmptyRun(0));
        }
        Ok(Self { start, runs, echo, totals })
    }

    /// Length of the whole feedback when encoded, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.head_len() + self.runs.iter().map(AckRange::encoded_len).sum::<usize>()
    }

    /// Length of the part before the runs when encoded, in bytes.
    pub(crate) fn head_len(&self) -> usize {
        let echo =
            self.echo.map_or(0, |echo| varint::len(echo.number) + 4 + varint::len(u64::from(echo.held_us)));
        1 + varint::len(self.start) + echo + self.totals.fields().map(varint::len).iter().sum::<usize>()
    }
}

impl AckRange {
    /// Length of the longest encoded run, in bytes: two counts and a delay above 2^30, and the
    /// evidence flags.
    pub(crate) const BYTES_MAX: usize = 8 + 8 + 1 + 8;

    /// Number of packets that the run covers.
    pub fn packets(&self) -> u64 {
        u64::from(self.received) + u64::from(self.missing)
    }

    /// Length of the run when encoded, in bytes.
    pub(crate) fn encoded_len(&self) -> usize {
        let counts = varint::len(u64::from(self.received)) + varint::len(u64::from(self.missing));
        let delay = self.evidence.delay_us.map_or(0, |delay_us| varint::len(u64::from(delay_us)));
        counts + if self.missing == 0 { 0 } else { 1 + delay }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put(out, u64::from(self.received));
        put(out, u64::from(self.missing));
        if self.missing != 0 {
            let GapReport { host_drops, is_marked, delay_us } = self.evidence;
            let delay = if delay_us.is_some() { HAS_DELAY } else { 0 };
            out.push(bits(host_drops) | bits(is_marked) << 2 | delay);
            if let Some(delay_us) = delay_us {
                put(out, u64::from(delay_us));
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, WireError> {
        let received = take_u32(bytes, "a count of received packets")?;
        let missing = take_u32(bytes, "a count of missing packets")?;
        if missing == 0 {
            return Ok(Self { received, missing, evidence: GapReport::default() });
        }
        let (known, rest) = bytes.split_first().ok_or(WireError::Truncated(EVIDENCE))?;
        *bytes = rest;
        if known & !(0b1111 | HAS_DELAY) != 0 {
            return Err(WireError::Reserved(EVIDENCE));
        }
        let (host_drops, is_marked) = (known_bit(known & 3)?, known_bit(known >> 2 & 3)?);
        let delay_us =
            if known & HAS_DELAY == 0 { None } else { Some(take_u32(bytes, "the delay before a gap")?) };
        Ok(Self { received, missing, evidence: GapReport { host_drops, is_marked, delay_us } })
    }
}

impl TimestampEcho {
    fn decode(bytes: &mut &[u8]) -> Result<Self, WireError> {
        let number = take(bytes, "the echo's number")?;
        let (sent_us, rest) = bytes.split_first_chunk().ok_or(WireError::Truncated("the echo"))?;
        *bytes = rest;
        let held_us = take_u32(bytes, "the hold time of the echo")?;
        Ok(Self { number, sent_us: u32::from_be_bytes(*sent_us), held_us })
    }
}

impl Totals {
    fn fields(&self) -> [u64; 4] {
        [self.packets, self.bytes, self.marked, self.drain_bytes_s]
    }
}

/// Encodes a value in two bits. Bit 0 is whether the value is known; bit 1 is the value.
fn bits(known: Option<bool>) -> u8 {
    known.map_or(0, |value| 1 | u8::from(value) << 1)
}

fn known_bit(bits: u8) -> Result<Option<bool>, WireError> {
    match bits {
        0 => Ok(None),
        0b01 => Ok(Some(false)),
        0b11 => Ok(Some(true)),
        _ => Err(WireError::Reserved(EVIDENCE)),
    }
}

const EVIDENCE: &str = "the evidence of a gap";

/// Flag: an echo follows the start.
const HAS_ECHO: u8 = 1;
/// Evidence flag: the delay before the gap follows.
const HAS_DELAY: u8 = 1 << 4;

//! Checks and encoding of the fields of messages.

use std::ops::Range;

use super::{FrameError, RANGES_MAX, SOFTWARE_BYTES_MAX, VERSION};
use crate::io::control::{Message, RefuseReason};
use crate::io::seal::Suite;
use crate::proto::wire::{NUMBER_MAX, varint};

/// Checks, before a message is written, that its reader will accept it.
pub(super) fn check(message: &Message) -> Result<(), FrameError> {
    match message {
        Message::Offer { suites, datagram_bytes_max, .. } => {
            checked_datagram(u64::from(*datagram_bytes_max))?;
            let codes: Vec<_> = suites.iter().map(|suite| suite_code(*suite)).collect();
            take_suites(&mut &[&[codes.len().min(255) as u8], &codes[..]].concat()[..]).map(drop)
        }
        Message::Accept { port, datagram_bytes_max, held, .. } => {
            checked_port(*port)?;
            checked_datagram(u64::from(*datagram_bytes_max))?;
            let mut last = None;
            for (place, range) in held.iter().enumerate() {
                checked_range(last, range, place)?;
                last = Some(range.end);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(super) fn checked_port(port: u16) -> Result<u16, FrameError> {
    if port == 0 { Err(FrameError::Value("the port", 0)) } else { Ok(port) }
}

/// Checks the size of the largest datagram: the length field of UDP has 16 bits.
fn checked_datagram(bytes: u64) -> Result<u32, FrameError> {
    match u32::try_from(bytes) {
        Ok(fit @ 1..=65_535) => Ok(fit),
        _ => Err(FrameError::Value("the largest datagram", bytes)),
    }
}

/// Checks that ranges are in ascending order, do not touch, are not empty, and do not exceed the
/// maximum number.
fn checked_range(last: Option<u64>, range: &Range<u64>, place: usize) -> Result<(), FrameError> {
    if place >= RANGES_MAX {
        return Err(FrameError::Value("the index of a range", place as u64));
    }
    let is_apart = last.is_none_or(|last| last < range.start);
    if is_apart && range.start < range.end && range.end <= NUMBER_MAX {
        return Ok(());
    }
    Err(FrameError::Value("the start of a range", range.start))
}

pub(super) fn take<const N: usize>(bytes: &mut &[u8], what: &'static str) -> Result<[u8; N], FrameError> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(FrameError::Truncated(what))?;
    *bytes = rest;
    Ok(*taken)
}

/// Reads the version, with which Hello and Welcome begin in every version of the protocol.
pub(super) fn take_version(bytes: &mut &[u8]) -> Result<(), FrameError> {
    match varint::take(bytes, "the version")? {
        VERSION => Ok(()),
        other => Err(FrameError::Version(other)),
    }
}

pub(super) fn take_datagram_bytes(bytes: &mut &[u8]) -> Result<u32, FrameError> {
    checked_datagram(varint::take(bytes, "the largest datagram")?)
}

pub(super) fn take_suites(bytes: &mut &[u8]) -> Result<Vec<Suite>, FrameError> {
    let [count] = take(bytes, "the number of cipher suites")?;
    if !(1..=3).contains(&count) {
        return Err(FrameError::Value("the number of cipher suites", u64::from(count)));
    }
    let mut suites = vec![];
    for _ in 0..count {
        let suite = take_suite(bytes)?;
        if suites.contains(&suite) {
            return Err(FrameError::Value("a repeated cipher suite", u64::from(suite_code(suite))));
        }
        suites.push(suite);
    }
    Ok(suites)
}

pub(super) fn take_suite(bytes: &mut &[u8]) -> Result<Suite, FrameError> {
    match take(bytes, "the cipher suite")? {
        [0] => Ok(Suite::Clear),
        [1] => Ok(Suite::Aes128Gcm),
        [2] => Ok(Suite::ChaCha20Poly1305),
        [code] => Err(FrameError::Value("the cipher suite", u64::from(code))),
    }
}

pub(super) const fn suite_code(suite: Suite) -> u8 {
    match suite {
        Suite::Clear => 0,
        Suite::Aes128Gcm => 1,
        Suite::ChaCha20Poly1305 => 2,
    }
}

pub(super) fn take_ranges(bytes: &mut &[u8]) -> Result<Vec<Range<u64>>, FrameError> {
    let mut ranges: Vec<Range<u64>> = vec![];
    while !bytes.is_empty() {
        let last = ranges.last().map(|range| range.end);
        // No overflow: all numbers are below 2^62.
        let start = last.unwrap_or(0) + varint::take(bytes, "a gap")?;
        let range = start..start + varint::take(bytes, "a range")?;
        checked_range(last, &range, ranges.len())?;
        ranges.push(range);
    }
    Ok(ranges)
}

pub(super) fn put_software(out: &mut Vec<u8>, software: &str) {
    let software = plain(software, SOFTWARE_BYTES_MAX);
    varint::put(out, software.len() as u64);
    out.extend(software.as_bytes());
}

pub(super) fn take_software(bytes: &mut &[u8]) -> Result<String, FrameError> {
    let what = "the program's name";
    let length = varint::take_u32(bytes, what)? as usize;
    let (text, rest) = bytes.split_at_checked(length).ok_or(FrameError::Truncated(what))?;
    *bytes = rest;
    text_of(text, SOFTWARE_BYTES_MAX, what)
}

/// Whether a character may be printed on a terminal: text from the other end must not move the
/// cursor, nor change the reading direction (Unicode UAX #9 §2).
fn is_plain(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

pub(super) fn text_of(bytes: &[u8], bytes_max: usize, what: &'static str) -> Result<String, FrameError> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() <= bytes_max && text.chars().all(is_plain) => Ok(text.into()),
        _ => Err(FrameError::Text(what)),
    }
}

pub(super) fn plain(text: &str, bytes_max: usize) -> String {
    let mut out = String::new();
    for letter in text.chars().map(|letter| if is_plain(letter) { letter } else { ' ' }) {
        if out.len() + letter.len_utf8() > bytes_max {
            break;
        }
        out.push(letter);
    }
    out
}

const REASONS: [RefuseReason; 10] = [
    RefuseReason::NotAllowed,
    RefuseReason::Protocol,
    RefuseReason::Quota,
    RefuseReason::Exists,
    RefuseReason::Full,
    RefuseReason::Changed,
    RefuseReason::Digest,
    RefuseReason::Busy,
    RefuseReason::Stopped,
    RefuseReason::Failed,
];

pub(super) fn reason_code(reason: RefuseReason) -> u8 {
    REASONS.iter().position(|other| *other == reason).map_or(0, |place| place as u8 + 1)
}

pub(super) fn reason_of(code: u8) -> Result<RefuseReason, FrameError> {
    let place = usize::from(code).checked_sub(1);
    place
        .and_then(|place| REASONS.get(place))
        .copied()
        .ok_or(FrameError::Value("the reason", u64::from(code)))
}

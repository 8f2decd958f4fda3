//! Variable-length integers (RFC 9000 §16), in their shortest form only.

use super::WireError;

/// Highest value: 2^62 − 1.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Length of `value` when encoded, in bytes. A value above [`MAX`] is encoded as [`MAX`].
pub(crate) const fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends `value`. A value above [`MAX`] is encoded as [`MAX`].
pub(crate) fn put(out: &mut Vec<u8>, value: u64) {
    let value = value.min(MAX);
    // The two highest bits are the logarithm of the length.
    match len(value) {
        1 => out.push(value as u8),
        2 => out.extend((1 << 14 | value as u16).to_be_bytes()),
        4 => out.extend((2 << 30 | value as u32).to_be_bytes()),
        _ => out.extend((3 << 62 | value).to_be_bytes()),
    }
}

/// Removes an integer from the front of `bytes`; `what` is the name of the integer in errors.
pub(crate) fn take(bytes: &mut &[u8], what: &'static str) -> Result<u64, WireError> {
    let first = *bytes.first().ok_or(WireError::Truncated(what))?;
    let length = 1 << (first >> 6);
    let (taken, rest) = bytes.split_at_checked(length).ok_or(WireError::Truncated(what))?;
    let all = taken.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let value = all & (u64::MAX >> (66 - 8 * length as u32));
    if len(value) != length {
        return Err(WireError::NotShortest(what));
    }
    *bytes = rest;
    Ok(value)
}

/// Like [`take`], for values of 32 bits.
pub(crate) fn take_u32(bytes: &mut &[u8], what: &'static str) -> Result<u32, WireError> {
    let value = take(bytes, what)?;
    u32::try_from(value).map_err(|_| WireError::TooLarge(what, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_match_the_examples_of_rfc_9000() {
        // RFC 9000 §A.1.
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut written = vec![];
            put(&mut written, value);
            assert_eq!((&written[..], len(value)), (bytes, bytes.len()));
            let mut rest = bytes;
            assert_eq!((take(&mut rest, "it"), rest), (Ok(value), &[][..]));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1], "it"), Err(WireError::Truncated("it")));
        }
        // In RFC 9000 these bytes are also valid and mean 37. Here each value has only one
        // encoding.
        assert_eq!(take(&mut &[0x40, 0x25][..], "it"), Err(WireError::NotShortest("it")));
    }

    #[test]
    fn values_outside_the_bounds_are_refused() {
        for value in [0, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, MAX] {
            let mut written = vec![];
            put(&mut written, value);
            assert_eq!(take(&mut &written[..], "it"), Ok(value));
        }
        let mut written = vec![];
        put(&mut written, u64::MAX);
        assert_eq!(take(&mut &written[..], "it"), Ok(MAX));
        assert_eq!(take_u32(&mut &written[..], "it"), Err(WireError::TooLarge("it", MAX)));
    }
}

//! Bytes of a transfer: pseudo-random, so that no device on the path compresses them.

/// Number of bytes in one write or read. A system call costs little compared with copying 128 KiB,
/// and a block of this size fits into a second-level cache.
pub(super) const BLOCK_BYTES: usize = 128 * 1024;

/// One block of 128 KiB of pseudo-random bytes, the same in every call; transfers repeat it.
pub fn block() -> Vec<u8> {
    bytes(BLOCK_BYTES)
}

/// `length` pseudo-random bytes, the same in every call.
pub(super) fn bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(1).fill(&mut bytes);
    bytes
}

/// The next bytes to write, if `left` bytes of the transfer are not written yet.
pub(super) fn next(block: &[u8], left: u64) -> &[u8] {
    &block[..at_most(block.len(), left)]
}

pub(super) fn at_most(length: usize, left: u64) -> usize {
    usize::try_from(left).map_or(length, |left| length.min(left))
}

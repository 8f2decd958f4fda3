//! The bytes of a transfer: noise, so that nothing on the way compresses them.

/// Bytes written or read at once: a system call for each 128 KiB costs little beside copying them,
/// and the block stays within a second-level cache.
pub(super) const BLOCK_BYTES: usize = 128 * 1024;

/// One block of 128 KiB of noise, the same every time: what a transfer is made of.
pub fn block() -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    fastrand::Rng::with_seed(1).fill(&mut block);
    block
}

/// The next bytes to write when `left` are left.
pub(super) fn next(block: &[u8], left: u64) -> &[u8] {
    &block[..at_most(block.len(), left)]
}

/// `length`, or `left` if that is less.
pub(super) fn at_most(length: usize, left: u64) -> usize {
    usize::try_from(left).map_or(length, |left| length.min(left))
}

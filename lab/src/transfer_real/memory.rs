//! Where objects without a file come from and go to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barograph_transfer::testkit::io::flow::{FlowError, Origin, Sink};

/// A part of memory that stands for all of the object, read or written over and over.
pub(crate) struct Memory {
    block: Vec<u8>,
    bytes: Arc<AtomicU64>,
    hasher: Option<blake3::Hasher>,
}

impl Memory {
    /// Of so many bytes.
    pub(crate) fn new(block_bytes: usize, is_hashed: bool) -> Self {
        Self {
            block: vec![7; block_bytes.max(1)],
            bytes: Arc::default(),
            hasher: is_hashed.then(blake3::Hasher::new),
        }
    }

    /// Bytes written so far.
    pub(crate) fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    /// Calls for each piece of the block that a range comes to, with its place in the range.
    fn pieces(
        block: usize,
        offset: u64,
        len: usize,
        mut each: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < len {
            let from = ((offset + done as u64) % block as u64) as usize;
            let part = (len - done).min(block - from);
            each(from..from + part, done..done + part);
            done += part;
        }
    }
}

impl Origin for Memory {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError> {
        let block = &self.block;
        Self::pieces(block.len(), offset, out.len(), |from, to| {
            if let (Some(from), Some(to)) = (block.get(from), out.get_mut(to)) {
                to.copy_from_slice(from);
            }
        });
        if let Some(hasher) = &mut self.hasher {
            hasher.update(out);
        }
        Ok(())
    }

    /// It is memory; but a hash beside is work for a thread of its own.
    fn is_immediate(&self) -> bool {
        self.hasher.is_none()
    }
}

impl Sink for Memory {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError> {
        let block = &mut self.block;
        Self::pieces(block.len(), offset, bytes.len(), |to, from| {
            if let (Some(to), Some(from)) = (block.get_mut(to), bytes.get(from)) {
                to.copy_from_slice(from);
            }
        });
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlowError> {
        Ok(())
    }

    /// It is memory; but a hash beside is work for a thread of its own.
    fn is_immediate(&self) -> bool {
        self.hasher.is_none()
    }
}

/// What iperf3 sends over and over: it stays in a processor's cache, as the train of the raw limit does, so that all move the same memory.
pub(crate) const HOT_BYTES: usize = 128 << 10;
/// More than caches hold: each byte comes from memory, and goes there.
pub(crate) const COLD_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_the_block_again_and_again() {
        let mut memory = Memory::new(HOT_BYTES, false);
        Sink::write(&mut memory, HOT_BYTES as u64 - 2, &[1, 2, 3, 4])
            .unwrap_or_else(|error| panic!("{error}"));
        let mut out = [0; 4];
        memory.read(3 * HOT_BYTES as u64 - 2, &mut out).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(out, [1, 2, 3, 4]);
        assert_eq!(memory.count().load(Ordering::Relaxed), 4);
    }
}

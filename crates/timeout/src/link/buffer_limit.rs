//! Limit for the bytes of all messages of a listener: one number, without a lock.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of bytes that are not reserved.
#[derive(Debug)]
pub(super) struct BufferLimit(AtomicUsize);

impl BufferLimit {
    pub(super) fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    /// Starts a reservation of 0 bytes.
    pub(super) fn reserve(&self) -> BufferReservation<'_> {
        BufferReservation { limit: self, bytes: 0 }
    }
}

/// Bytes reserved for one message. The bytes are released when this value is dropped.
#[derive(Debug)]
pub(super) struct BufferReservation<'a> {
    limit: &'a BufferLimit,
    bytes: usize,
}

impl BufferReservation<'_> {
    /// Reserves `bytes` more bytes; returns `false` if these bytes are not available. The function
    /// never waits, because connections that wait for more bytes could wait for each other for
    /// ever.
    #[must_use]
    pub(super) fn more(&mut self, bytes: usize) -> bool {
        // Only this number is shared. No other memory depends on the order of its changes, so
        // `Relaxed` suffices.
        let taken = self
            .limit
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes))
            .is_ok();
        self.bytes += if taken { bytes } else { 0 };
        taken
    }
}

impl Drop for BufferReservation<'_> {
    fn drop(&mut self) {
        self.limit.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bytes_are_released_on_drop() {
        let limit = BufferLimit::new(10);
        let (mut a, mut b) = (limit.reserve(), limit.reserve());
        assert!(a.more(6) && a.more(1) && b.more(3));
        assert!(!b.more(1) && b.more(0));
        drop(a);
        assert!(!b.more(8) && b.more(7));
        drop(b);
        assert!(!limit.reserve().more(11));
        assert!(limit.reserve().more(10));
    }

    #[test]
    fn no_reservation_size_causes_a_panic() {
        let limit = BufferLimit::new(usize::MAX);
        let mut all = limit.reserve();
        assert!(all.more(usize::MAX) && !all.more(usize::MAX));
    }
}

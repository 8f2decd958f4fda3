//! Drain rate: how fast the receiver reads when the receiver is the limit.

use std::time::Duration;

/// Measures the rate of reading while the socket overflows.
///
/// A packet is dropped when the socket's buffer is full. The buffer is full again at the next drop.
/// So between two drops, the receiver read as many bytes as arrived in the buffer. These bytes
/// divided by the time are the drain rate, stalls included.
#[derive(Debug, Default)]
pub(super) struct Drain {
    last: Option<(u32, Duration)>,
    overflow: Option<Overflow>,
    bytes_s: u64,
    measured: Option<Duration>,
}

#[derive(Debug)]
struct Overflow {
    since: Duration,
    bytes: u64,
}

impl Drain {
    /// Records that a packet with `bytes` was read. The packet arrived at `at`, when the socket had
    /// dropped `drops` packets.
    #[inline]
    pub(super) fn on_read(&mut self, at: Duration, bytes: u64, drops: Option<u32>) {
        if let Some(overflow) = &mut self.overflow {
            overflow.bytes = overflow.bytes.saturating_add(bytes);
        }
        if self.measured.is_some_and(|measured| at.saturating_sub(measured) > AGE_MAX) {
            (self.bytes_s, self.measured) = (0, None);
        }
        let Some(drops) = drops else { return };
        if let Some((before, since)) = self.last.replace((drops, at))
            && rose(before, drops)
        {
            self.on_drop(since, at, bytes);
        }
    }

    /// Last drain rate (bytes a second); 0 if none was measured within [`AGE_MAX`].
    pub(super) fn bytes_s(&self) -> u64 {
        self.bytes_s
    }

    /// Records that the socket dropped packets between `since` and `at`, the arrival times of two
    /// packets that were read.
    fn on_drop(&mut self, since: Duration, at: Duration, bytes: u64) {
        if let Some(overflow) = &self.overflow {
            let lasted = at.saturating_sub(overflow.since);
            if lasted < OVERFLOW_MIN {
                return;
            }
            if lasted <= OVERFLOW_MAX {
                // The measurement begins after a packet was read and ends with a packet, so the
                // number of bytes matches the time.
                let us = u64::try_from(lasted.as_micros()).unwrap_or(u64::MAX);
                self.bytes_s = (overflow.bytes.saturating_mul(1_000_000) / us).max(1);
                self.measured = Some(at);
            } else if self.measured.is_some() {
                // The receiver kept up for a while, so the old rate does not apply to this
                // overflow.
                (self.bytes_s, self.measured) = (0, None);
            }
        }
        self.overflow = Some(Overflow { since, bytes });
    }
}

/// Age at which a rate is forgotten. If a socket did not overflow for this time, the receiver reads
/// faster or packets arrive more slowly than before. So a new drop does not confirm the old rate.
/// The age is several times the longest measurement, so that the rate is kept if packets are
/// dropped once a second.
const AGE_MAX: Duration = Duration::from_secs(5);

/// Whether a wrapping counter rose from `before` to `after`.
pub(super) fn rose(before: u32, after: u32) -> bool {
    after.wrapping_sub(before) as i32 > 0
}

/// Minimum duration of a measurement from drop to drop. This duration is the period of a CPU quota
/// (Linux's `cpu.max`), and is as long as many time slices of a scheduler. A shorter measurement
/// could consist of one stall.
const OVERFLOW_MIN: Duration = Duration::from_millis(100);

/// Longest duration of a measurement. If the time between drops is longer, the receiver does not
/// limit the transfer.
const OVERFLOW_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_drain_rate_is_measured_between_drops() {
        let mut drain = Drain::default();
        // 1000 bytes arrive each millisecond. Every 20 ms the reader stalls for 5 ms. After each
        // stall the counter, which wraps, has risen.
        let mut drops = u32::MAX - 6;
        for ms in 0..=100 {
            match ms % 20 {
                0 => drops = drops.wrapping_add(3),
                16..20 => continue,
                _ => {}
            }
            assert_eq!(drain.bytes_s(), 0);
            drain.on_read(at(ms), 1_000, Some(drops));
        }
        assert_eq!(drain.bytes_s(), 0, "the first drops came between 15 and 20 ms: 85 ms");
        for ms in 101..=120 {
            match ms % 20 {
                0 => drops = drops.wrapping_add(3),
                16..20 => continue,
                _ => {}
            }
            drain.on_read(at(ms), 1_000, Some(drops));
        }
        // From 15 to 120 ms: packets at 20..=35, 40..=55, .. 100..=115, 120.
        assert_eq!(drain.bytes_s(), (5 * 16 + 1) * 1_000 * 1_000 / 105);
    }

    #[test]
    fn rare_drops_give_no_drain_rate() {
        let mut drain = Drain::default();
        for (ms, drops) in [(0, 0), (1, 1), (1_500, 2), (3_000, 3)] {
            drain.on_read(at(ms), 1_000, Some(drops));
        }
        drain.on_read(at(3_100), 1_000, None);
        assert_eq!(drain.bytes_s(), 0);
    }

    #[test]
    fn an_old_drain_rate_is_not_reported() {
        let mut drain = Drain::default();
        for (ms, drops) in [(0, 0), (1, 1), (201, 2), (5_000, 2)] {
            drain.on_read(at(ms), 1_000, Some(drops));
        }
        assert!(drain.bytes_s() > 0, "some seconds it stands");
        let mut again = Drain { last: drain.last, overflow: drain.overflow.take(), ..Drain::default() };
        (again.bytes_s, again.measured) = (drain.bytes_s, drain.measured);
        again.on_read(at(3_000), 1_000, Some(3));
        assert_eq!(again.bytes_s(), 0, "but not for the next overflow");
        drain.on_read(at(5_300), 1_000, Some(2));
        assert_eq!(drain.bytes_s(), 0);
        drain.on_read(at(5_301), 1_000, Some(3));
        assert_eq!(drain.bytes_s(), 0, "one drop does not bring it back");
    }

    #[test]
    fn a_drop_count_that_wraps_has_risen() {
        assert!(rose(u32::MAX, 0) && rose(4, 5));
        assert!(!rose(5, 5) && !rose(0, u32::MAX));
    }
}

//! One-way delay above the path's minimum, between clocks that are not synchronised.

use std::time::Duration;

/// Least one-way delay of the last ten seconds.
///
/// A delay here is the arrival time by the receiver's clock minus the sending time by the sender's
/// clock, modulo 2^32 µs. This delay has an unknown constant offset, which cancels out in
/// differences. Clock drift adds an error, which the window limits.
#[derive(Debug, Default)]
pub(super) struct LeastDelay {
    /// Ring buffer of least delays, one for each second of the window.
    parts: [Option<u32>; PARTS],
    /// The part that is filled now, and its end.
    part: usize,
    part_end: Duration,
    least: Option<u32>,
}

impl LeastDelay {
    /// Adds the times of a packet; returns its delay (µs, with the constant offset).
    #[inline]
    pub(super) fn learn(&mut self, sent_us: u32, at: Duration) -> u32 {
        if self.part_end <= at {
            self.turn(at);
        }
        let delay_us = wrapping_us(at).wrapping_sub(sent_us);
        if self.least.is_none_or(|least| is_less(delay_us, least)) {
            self.least = Some(delay_us);
        }
        if let Some(part) = self.parts.get_mut(self.part)
            && part.is_none_or(|least| is_less(delay_us, least))
        {
            *part = Some(delay_us);
        }
        delay_us
    }

    /// Returns `delay_us` minus the least delay (µs), at least 0; `None` before the first packet.
    pub(super) fn above(&self, delay_us: u32) -> Option<u32> {
        self.least.map(|least| if is_less(delay_us, least) { 0 } else { delay_us.wrapping_sub(least) })
    }

    fn turn(&mut self, at: Duration) {
        let behind = at - self.part_end;
        // `turns` is also correct at the first packet, when all parts are empty.
        let turns = (behind.as_secs() / PART_S).saturating_add(1);
        for _ in 0..turns.min(PARTS as u64) {
            self.part = (self.part + 1) % PARTS;
            if let Some(part) = self.parts.get_mut(self.part) {
                *part = None;
            }
        }
        // All parts have the same length. If each part began at a packet, the parts and the window
        // would be longer when packets are rare.
        self.part_end = self.part_end.saturating_add(Duration::from_secs(turns.saturating_mul(PART_S)));
        let less = |a: u32, b: u32| if is_less(b, a) { b } else { a };
        self.least = self.parts.iter().flatten().copied().reduce(less);
    }
}

/// Returns a time in microseconds modulo 2^32, which is 71 minutes.
fn wrapping_us(at: Duration) -> u32 {
    // The cast drops multiples of 2^32 s, which are multiples of 2^32 µs.
    (at.as_secs() as u32).wrapping_mul(1_000_000).wrapping_add(at.subsec_micros())
}

/// Whether `a` is less than `b` modulo 2^32 (RFC 1982). The result is correct for delays that
/// differ by less than 35 minutes.
fn is_less(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Number of parts of the window. The window covers ten seconds, like BBR's window for the least
/// round-trip time (draft-cardwell-iccrg-bbr-congestion-control, MinRTTFilterLen): in this time a
/// path shows its least delay. Clocks without synchronisation drift apart by 50 ppm, which is an
/// error of 0.5 ms at the end of the window. With the ten minutes of RFC 6817, the error would be
/// 30 ms, which is more than the delay of a queue.
const PARTS: usize = 10;
const PART_S: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn delays_do_not_depend_on_the_offset_between_the_clocks() {
        for (sender_us, receiver_us) in
            [(0, 0), (u32::MAX - 5, 7), (12, u64::from(u32::MAX) - 20), (3, 9 << 40)]
        {
            let mut least = LeastDelay::default();
            let mut learn = |sent: u32, came: u64| {
                let delay_us = least.learn(sender_us.wrapping_add(sent), at(receiver_us + came));
                least.above(delay_us)
            };
            assert_eq!(learn(0, 500), Some(0));
            assert_eq!(learn(10, 530), Some(20));
            assert_eq!(learn(20, 480), Some(0), "40 less than the first");
            assert_eq!(learn(30, 530), Some(40));
            assert_eq!(learn(40, 2_000), Some(1_500));
        }
    }

    #[test]
    fn sparse_packets_do_not_lengthen_the_window() {
        let mut least = LeastDelay::default();
        least.learn(0, at(100));
        let mut last = None;
        for turn in 1..=6 {
            let us = turn * 1_900_000;
            let delay_us = least.learn(us as u32, at(us + 1_100));
            last = least.above(delay_us);
        }
        assert_eq!(last, Some(0), "the first is 11.4 s old");
    }

    #[test]
    fn delays_older_than_the_window_are_forgotten() {
        let mut least = LeastDelay::default();
        let base = least.learn(0, at(100));
        // From now on the path is 1 ms longer.
        for second in 1..10 {
            let us = second * 1_000_000;
            let delay_us = least.learn(us as u32, at(us + 1_100));
            assert_eq!((delay_us, least.above(delay_us)), (base + 1_000, Some(1_000)), "second {second}");
        }
        for second in [11_u64, 60, 100_000] {
            let us = second * 1_000_000;
            let delay_us = least.learn(us as u32, at(us + 1_100));
            assert_eq!(least.above(delay_us), Some(0), "second {second}");
        }
    }
}

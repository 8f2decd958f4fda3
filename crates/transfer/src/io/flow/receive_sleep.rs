//! How long a receiver sleeps between reads of its socket.

use std::time::Duration;

/// Decides whether to sleep before the next read of the socket, or to wait for the next datagram. A
/// receiver sleeps only if the socket's buffer has space for the datagrams that arrive meanwhile,
/// and if the kernel reports arrival times.
#[derive(Debug)]
pub(super) struct ReceiveSleep {
    /// Size of the socket's buffer in bytes, as the kernel counts them.
    buffer_bytes: usize,
    /// Whether the kernel reports arrival times. Without them, a sleep would count as delay.
    has_times: bool,
    /// `bytes_read`: number of bytes that were read since the last sleep or wait. `buffer_used`:
    /// maximum number of bytes of the socket's buffer that these datagrams can have used.
    bytes_read: usize,
    buffer_used: usize,
    /// Whether the socket was not read because there was no memory for its packets. In this case, a
    /// long wait of the packets does not show that the host has too little processor time.
    is_held: bool,
    /// When packets last waited in the socket for at least [`KEPT`], which shows that the host is
    /// busy with other work.
    busy_since: Option<Duration>,
    /// `length`: time of one sleep on a busy host, zero if even the shortest sleep is too long.
    /// `has_slept`: whether the last call of [`ReceiveSleep::next`] returned a sleep.
    /// `last_decision`: time of that call.
    length: Duration,
    has_slept: bool,
    last_decision: Duration,
}

impl ReceiveSleep {
    pub(super) fn new(buffer_bytes: usize, has_times: bool) -> Self {
        Self {
            buffer_bytes,
            has_times,
            bytes_read: 0,
            buffer_used: 0,
            is_held: false,
            busy_since: None,
            length: SLEEP_MIN,
            has_slept: false,
            last_decision: Duration::ZERO,
        }
    }

    /// Records a read of `bytes` bytes at `now`, in datagrams of `segment` bytes. The last datagram
    /// arrived at `at`.
    pub(super) fn on_read(&mut self, now: Duration, at: Duration, bytes: usize, segment: usize) {
        self.bytes_read += bytes;
        self.buffer_used += bytes.div_ceil(segment.max(1)) * segment.max(PLACE_BYTES);
        if now.saturating_sub(at) >= KEPT && !self.is_held {
            self.busy_since = Some(now);
        }
    }

    /// Returns how long to sleep when all datagrams were read. Returns `None` if the receiver
    /// should wait for the next datagram. If `has_room` is false, the receiver has no memory for
    /// packets and does not sleep here.
    pub(super) fn next(&mut self, now: Duration, has_room: bool) -> Option<Duration> {
        let (bytes_read, buffer_used) =
            (std::mem::take(&mut self.bytes_read), std::mem::take(&mut self.buffer_used));
        let has_slept = std::mem::take(&mut self.has_slept);
        let passed = now.saturating_sub(std::mem::replace(&mut self.last_decision, now));
        self.is_held = !has_room;
        if !has_room || !self.has_times {
            return None;
        }
        if self.busy_since.is_none_or(|since| now.saturating_sub(since) > KEPT_FOR) {
            self.length = SLEEP_MIN;
            return (bytes_read >= SLEEP_BYTES && self.buffer_bytes >= SLEEP_BUFFER_BYTES)
                .then_some(SLEEP_MIN);
        }
        if 2 * SLEEP_MAX < passed {
            // After a long pause, earlier traffic does not predict the present rate.
            self.length = SLEEP_MIN;
        } else if has_slept && buffer_used < self.buffer_bytes / 4 {
            self.length = (2 * self.length).min(SLEEP_MAX);
        } else if has_slept && self.buffer_bytes / 2 < buffer_used {
            // The buffer may be too small for the shortest sleep.
            self.length =
                if self.length > SLEEP_MIN { (self.length / 2).max(SLEEP_MIN) } else { Duration::ZERO };
        }
        // Do not sleep without traffic: otherwise sleeps would continue for ever.
        self.has_slept = bytes_read > 0 && !self.length.is_zero();
        self.has_slept.then_some(self.length)
    }
}

/// Minimum number of bytes read since the last sleep or wait: after fewer bytes, a receiver on a
/// host that is not busy does not sleep. A flow of some Gbit/s sends this number of bytes in one
/// burst. The next burst of such a flow arrives within about [`SLEEP_MIN`]. Waking the receiver for
/// each train would cost some microseconds of processor time.
const SLEEP_BYTES: usize = 65_536;
/// Time of a sleep on a host that is not busy. This sleep delays feedback by at most half of the
/// shortest feedback interval. The sleep does not change measured delays, because the kernel
/// reports arrival times.
const SLEEP_MIN: Duration = Duration::from_micros(50);
/// Minimum size of the buffer for a sleep on a fast flow, in bytes. At 100 Gbit/s, 625 KB arrive
/// during [`SLEEP_MIN`], and the kernel counts them as 1.25 MB. The minimum is twice this size,
/// because a sleep may end late.
const SLEEP_BUFFER_BYTES: usize = 4 * 625_000;
/// Minimum wait of a packet in the socket that shows a busy host. A packet waits for so long only
/// if other processes run for a few time slices before its reader (Linux: some milliseconds each),
/// or if the reader has used up its CPU quota. On such a host, waking the reader for each packet
/// costs too much.
const KEPT: Duration = Duration::from_millis(10);
/// Time for which a host counts as busy: some periods of a CPU quota, which are 0.1 s each.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Longest sleep: a tenth of [`KEPT`]. A sleep delays feedback by at most this time, plus the
/// scheduling delay of the host.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// Minimum number of bytes of the buffer that a packet is assumed to use: a page (4096 bytes on
/// most processors), because some drivers give each packet a page, however short it is. If a packet
/// takes less, sleeps are shorter than they could be.
const PLACE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 212_992;
    /// Number of packets that fit into a buffer of `SMALL` bytes.
    const FIT: usize = SMALL / PLACE_BYTES;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Simulates a flow of packets to a small socket until `until`, with a reader that reads after
    /// each sleep, or when the next packet arrives if there is no sleep. Returns the last sleep,
    /// and the number of packets that were dropped for lack of space.
    fn flow(
        sleep: &mut ReceiveSleep,
        bytes: usize,
        each_ns: u64,
        from: Duration,
        until: Duration,
    ) -> (Option<Duration>, usize) {
        let each = Duration::from_nanos(each_ns);
        let (mut now, mut next, mut slept, mut dropped) = (from, from, None, 0);
        while now < until {
            let mut waiting = 0;
            while next <= now {
                (waiting, next) = (waiting + 1, next + each);
            }
            dropped += waiting.max(FIT) - FIT;
            sleep.on_read(now, now, bytes * waiting.min(FIT), bytes);
            slept = sleep.next(now, true);
            now = slept.map_or(next.max(now), |slept| now + slept);
        }
        (slept, dropped)
    }

    fn kept(buffer_bytes: usize) -> ReceiveSleep {
        let mut sleep = ReceiveSleep::new(buffer_bytes, true);
        sleep.on_read(ms(100), ms(90), 1_000, 1_000);
        sleep
    }

    #[test]
    fn a_receiver_on_a_busy_host_sleeps_until_half_of_the_buffer_may_be_full() {
        let mut sleep = ReceiveSleep::new(SMALL, true);
        sleep.on_read(ms(100), ms(91), 1_000, 1_000);
        assert_eq!(sleep.next(ms(100), true), None, "for less than a few time slices");
        let mut sleep = kept(SMALL);
        // The rate is 1 Gbit/s, then a fifth of this rate, and then suddenly 1.1 Gbit/s in short
        // packets.
        assert_eq!(flow(&mut sleep, 1_433, 12_000, ms(100), ms(150)), (Some(us(200)), 0));
        assert_eq!(flow(&mut sleep, 1_433, 60_000, ms(150), ms(200)), (Some(us(800)), 0));
        let (slept, dropped) = flow(&mut sleep, 548, 4_000, ms(200), ms(250));
        assert!(
            slept.is_some_and(|slept| slept <= us(100)) && dropped < 6 * FIT,
            "{slept:?}, {dropped} until it was so short"
        );
        assert_eq!(flow(&mut sleep, 1_433, 500_000, ms(250), ms(300)), (Some(SLEEP_MAX), 0), "a slow one");
        assert_eq!(sleep.next(ms(301), true), None, "nothing came: what comes wakes it");
        sleep.on_read(ms(1_200), ms(1_200), 1_000, 1_000);
        assert_eq!(sleep.next(ms(1_200), true), None, "it was not kept for a second");
    }

    #[test]
    fn the_first_sleep_after_a_pause_is_short() {
        let mut sleep = kept(SMALL);
        assert_eq!(flow(&mut sleep, 1_433, 500_000, ms(100), ms(150)).0, Some(SLEEP_MAX));
        assert_eq!(flow(&mut sleep, 1_433, 3_000, ms(160), ms(200)), (Some(us(50)), 0), "4 Gbit/s");
    }

    #[test]
    fn the_receiver_does_not_sleep_if_the_shortest_sleep_fills_the_buffer() {
        let mut sleep = kept(SMALL);
        let (slept, dropped) = flow(&mut sleep, 1_000, 800, ms(100), ms(150));
        assert!(slept.is_none() && dropped < 2 * FIT, "10 Gbit/s: {slept:?}, {dropped}");
    }

    #[test]
    fn waiting_for_a_disk_does_not_count_as_a_busy_host() {
        let mut sleep = ReceiveSleep::new(4 << 20, true);
        assert_eq!(sleep.next(ms(100), false), None);
        sleep.on_read(ms(150), ms(100), 40_000, 1_000);
        assert_eq!(sleep.next(ms(150), true), None);
        sleep.on_read(ms(151), ms(131), 40_000, 1_000);
        assert_eq!(sleep.next(ms(151), true), Some(SLEEP_MIN), "but from then on");
    }

    #[test]
    fn the_receiver_of_a_fast_flow_sleeps_only_with_a_large_buffer() {
        for (buffer_bytes, has_times, given) in
            [(4 << 20, true, Some(SLEEP_MIN)), (4 << 20, false, None), (SMALL, true, None)]
        {
            let mut sleep = ReceiveSleep::new(buffer_bytes, has_times);
            sleep.on_read(ms(1), ms(1), 40_000, 1_000);
            sleep.on_read(ms(1), ms(1), 40_000, 1_000);
            assert_eq!(sleep.next(ms(1), true), given);
            sleep.on_read(ms(2), ms(2), 40_000, 1_000);
            assert_eq!(sleep.next(ms(2), true), None, "a slow one is woken");
        }
    }

    #[test]
    fn without_arrival_times_the_receiver_does_not_sleep() {
        let mut sleep = ReceiveSleep { has_times: false, ..kept(SMALL) };
        assert_eq!(sleep.next(ms(100), true), None);
    }
}

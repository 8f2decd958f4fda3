//! How long a receiver leaves its socket alone.

use std::time::Duration;

/// Whether to sleep for a while before the next look at the socket, where what comes meanwhile has room in its buffer and the kernel says when
/// it came, or to be woken by what comes.
#[derive(Debug)]
pub(super) struct Naps {
    /// The socket's buffer, as the kernel counts it.
    buffer_bytes: usize,
    /// Without the kernel's times a nap would be taken for delay.
    has_times: bool,
    /// Bytes that came since the last nap or wait.
    came: usize,
    /// When it was kept waiting last, as long as a host that has other work keeps it.
    kept: Option<Duration>,
    /// The last nap on such a host.
    nap: Duration,
}

impl Naps {
    pub(super) fn new(buffer_bytes: usize, has_times: bool) -> Self {
        Self { buffer_bytes, has_times, came: 0, kept: None, nap: NAP }
    }

    /// So many bytes were read at `now`, of which the first came at `at`.
    pub(super) fn on_read(&mut self, now: Duration, at: Duration, bytes: usize) {
        self.came += bytes;
        if self.has_times && KEPT <= now.saturating_sub(at) {
            self.kept = Some(now);
        }
    }

    /// There is nothing more to read: how long to sleep, or to wait for what comes.
    pub(super) fn next(&mut self, now: Duration) -> Option<Duration> {
        let came = std::mem::take(&mut self.came);
        if !self.has_times {
            return None;
        }
        if self.kept.is_some_and(|kept| now.saturating_sub(kept) <= KEPT_FOR) {
            // From an eighth to a quarter of the buffer at once: it takes more than they are, for each packet has a place of 2 KiB or 4 KiB.
            let nap = match came {
                _ if self.buffer_bytes / 4 < came => self.nap / 2,
                _ if came < self.buffer_bytes / 8 => self.nap * 2,
                _ => self.nap,
            };
            self.nap = nap.clamp(NAP, NAP_MAX);
            // Who naps while nothing comes would do it for ever.
            return (0 < came).then_some(self.nap);
        }
        (NAP_BYTES <= came && NAP_BUFFER_BYTES <= self.buffer_bytes).then_some(NAP)
    }
}

/// Who came for so much at once comes again after [`NAP`], and is not woken before: that would cost the sender's processor, or whichever takes
/// packets in, microseconds for each train. It is what a flow of some Gbit/s sends in one go.
const NAP_BYTES: usize = 65_536;
/// Feedback is later by no more than that, which is half of the least that it rests; when packets came is told by the kernel.
const NAP: Duration = Duration::from_micros(50);
/// 100 Gbit/s bring 625 KB in that time, which the kernel counts as twice as much; and as much again, for a nap may end late.
const NAP_BUFFER_BYTES: usize = 4 * 625_000;
/// A packet waits so long in a socket only while its reader is not scheduled, for a few time slices of others (Linux: 2.8 ms each and more), or
/// while a quota of processor time is used up. Such a reader has no time to be woken for each packet.
const KEPT: Duration = Duration::from_millis(10);
/// Some periods of a quota (0.1 s).
const KEPT_FOR: Duration = Duration::from_secs(1);
/// A tenth of what it was kept waiting: feedback is later by no more than that.
const NAP_MAX: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 212_992;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// What a flow of so many bytes a second is given, one look after the other from `now` on, for so many looks.
    fn looks(naps: &mut Naps, mut now: Duration, bytes_s: f64, looks: usize) -> Vec<Option<Duration>> {
        let mut came = 2_000;
        let mut given = Vec::new();
        for _ in 0..looks {
            naps.on_read(now, now, came);
            let nap = naps.next(now);
            let passed = nap.unwrap_or(Duration::from_micros(20));
            came = (bytes_s * passed.as_secs_f64()) as usize;
            now += passed;
            given.push(nap);
        }
        given
    }

    #[test]
    fn who_is_kept_waiting_naps_until_the_buffer_is_an_eighth_full() {
        let mut naps = Naps::new(SMALL, true);
        naps.on_read(ms(100), ms(91), 1_000);
        assert_eq!(naps.next(ms(100)), None, "for less than a few time slices");
        naps.on_read(ms(200), ms(190), 1_000);
        let given = looks(&mut naps, ms(200), 125e6, 20);
        // 0.2 ms bring 25 000 bytes, an eighth is 26 624.
        assert_eq!(given.last(), Some(&Some(Duration::from_micros(400))));
        let given = looks(&mut naps, ms(210), 500e6, 20);
        assert_eq!(given.last(), Some(&Some(Duration::from_micros(100))), "a faster flow");
        let given = looks(&mut naps, ms(220), 10e6, 20);
        assert_eq!(given.last(), Some(&Some(NAP_MAX)), "a slower one");
        assert_eq!(naps.next(ms(250)), None, "nothing came: what comes wakes it");
        naps.on_read(ms(1_300), ms(1_300), 1_000);
        assert_eq!(naps.next(ms(1_300)), None, "it was not kept for a second");
    }

    #[test]
    fn a_fast_flow_naps_where_the_buffer_holds_what_comes() {
        for (buffer_bytes, has_times, given) in
            [(4 << 20, true, Some(NAP)), (4 << 20, false, None), (SMALL, true, None)]
        {
            let mut naps = Naps::new(buffer_bytes, has_times);
            naps.on_read(ms(1), ms(1), 40_000);
            naps.on_read(ms(1), ms(1), 40_000);
            assert_eq!(naps.next(ms(1)), given);
            naps.on_read(ms(2), ms(2), 40_000);
            assert_eq!(naps.next(ms(2)), None, "a slow one is woken");
        }
    }

    #[test]
    fn without_times_of_the_kernel_nobody_is_kept() {
        let mut naps = Naps::new(SMALL, false);
        naps.on_read(ms(100), ms(50), 1_000);
        assert_eq!(naps.next(ms(100)), None);
    }
}

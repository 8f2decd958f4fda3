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
    /// Bytes that came since the last nap or wait, and what they took of the buffer at the most.
    came: usize,
    places: usize,
    /// The socket was left alone for want of room behind it: what waited in it did not wait for a processor.
    is_held: bool,
    /// When it was kept waiting last, as long as a host that has other work keeps it.
    kept: Option<Duration>,
    /// The last nap on such a host, zero where none is short enough; whether it was taken; and when that was.
    nap: Duration,
    has_napped: bool,
    looked: Duration,
}

impl Naps {
    pub(super) fn new(buffer_bytes: usize, has_times: bool) -> Self {
        Self {
            buffer_bytes,
            has_times,
            came: 0,
            places: 0,
            is_held: false,
            kept: None,
            nap: NAP,
            has_napped: false,
            looked: Duration::ZERO,
        }
    }

    /// So many bytes were read at `now`, in datagrams of `segment`; the last came at `at`.
    pub(super) fn on_read(&mut self, now: Duration, at: Duration, bytes: usize, segment: usize) {
        self.came += bytes;
        self.places += bytes.div_ceil(segment.max(1)) * segment.max(PLACE_BYTES);
        if KEPT <= now.saturating_sub(at) && !self.is_held {
            self.kept = Some(now);
        }
    }

    /// There is nothing more to read: how long to sleep, or to wait for what comes. Or there is no room for what would be read.
    pub(super) fn next(&mut self, now: Duration, has_room: bool) -> Option<Duration> {
        let (came, places) = (std::mem::take(&mut self.came), std::mem::take(&mut self.places));
        let has_napped = std::mem::take(&mut self.has_napped);
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked, now));
        self.is_held = !has_room;
        if !has_room || !self.has_times {
            return None;
        }
        if self.kept.is_none_or(|kept| KEPT_FOR < now.saturating_sub(kept)) {
            self.nap = NAP;
            return (NAP_BYTES <= came && NAP_BUFFER_BYTES <= self.buffer_bytes).then_some(NAP);
        }
        if 2 * NAP_MAX < passed {
            // What came before says nothing of what comes now.
            self.nap = NAP;
        } else if has_napped && places < self.buffer_bytes / 4 {
            self.nap = (2 * self.nap).min(NAP_MAX);
        } else if has_napped && self.buffer_bytes / 2 < places {
            // A buffer may be too small for the shortest.
            self.nap = if NAP < self.nap { (self.nap / 2).max(NAP) } else { Duration::ZERO };
        }
        // Who naps while nothing comes would do it for ever.
        self.has_napped = 0 < came && !self.nap.is_zero();
        self.has_napped.then_some(self.nap)
    }
}

/// Who came for so much at once comes again after [`NAP`], and is not woken before: that would cost the sender's processor, or whichever takes
/// packets in, microseconds for each train. It is what a flow of some Gbit/s sends in one go.
const NAP_BYTES: usize = 65_536;
/// Feedback is later by no more than that, which is half of the least that it rests; when packets came is told by the kernel.
const NAP: Duration = Duration::from_micros(50);
/// 100 Gbit/s bring 625 KB in that time, which the kernel counts as twice as much; and as much again, for a nap may end late.
const NAP_BUFFER_BYTES: usize = 4 * 625_000;
/// A packet that could be read waits so long only while its reader is not scheduled, for a few time slices of others (Linux: some milliseconds
/// each), or while a quota of processor time is used up. Such a reader has no time to be woken for each packet.
const KEPT: Duration = Duration::from_millis(10);
/// Some periods of a quota (0.1 s).
const KEPT_FOR: Duration = Duration::from_secs(1);
/// A tenth of what it was kept waiting; feedback is later by no more than that, and by what the host adds.
const NAP_MAX: Duration = Duration::from_millis(1);
/// A page, which a packet has for itself with drivers that share none (4096 bytes on most processors), however short it is. Where it takes less, naps
/// are shorter than they could be.
const PLACE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 212_992;
    /// Packets that it has places for.
    const FIT: usize = SMALL / PLACE_BYTES;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A flow of packets to a small socket, of whose reader it is looked what it does: until `until` it comes after each nap, or with the first
    /// packet. The last nap, and how many packets had no place.
    fn flow(
        naps: &mut Naps,
        bytes: usize,
        each_ns: u64,
        from: Duration,
        until: Duration,
    ) -> (Option<Duration>, usize) {
        let each = Duration::from_nanos(each_ns);
        let (mut now, mut next, mut nap, mut dropped) = (from, from, None, 0);
        while now < until {
            let mut waiting = 0;
            while next <= now {
                (waiting, next) = (waiting + 1, next + each);
            }
            dropped += waiting.max(FIT) - FIT;
            naps.on_read(now, now, bytes * waiting.min(FIT), bytes);
            nap = naps.next(now, true);
            now = nap.map_or(next.max(now), |nap| now + nap);
        }
        (nap, dropped)
    }

    fn kept(buffer_bytes: usize) -> Naps {
        let mut naps = Naps::new(buffer_bytes, true);
        naps.on_read(ms(100), ms(90), 1_000, 1_000);
        naps
    }

    #[test]
    fn who_is_kept_waiting_naps_until_half_of_the_buffer_may_be_full() {
        let mut naps = Naps::new(SMALL, true);
        naps.on_read(ms(100), ms(91), 1_000, 1_000);
        assert_eq!(naps.next(ms(100), true), None, "for less than a few time slices");
        let mut naps = kept(SMALL);
        // 1 Gbit/s, and a fifth of it; then four times that in short packets, at once.
        assert_eq!(flow(&mut naps, 1_433, 12_000, ms(100), ms(150)), (Some(us(200)), 0));
        assert_eq!(flow(&mut naps, 1_433, 60_000, ms(150), ms(200)), (Some(us(800)), 0));
        let (nap, dropped) = flow(&mut naps, 548, 4_000, ms(200), ms(250));
        assert!(
            nap.is_some_and(|nap| nap <= us(100)) && dropped < 6 * FIT,
            "{nap:?}, {dropped} until it was so short"
        );
        assert_eq!(flow(&mut naps, 1_433, 500_000, ms(250), ms(300)), (Some(NAP_MAX), 0), "a slow one");
        assert_eq!(naps.next(ms(301), true), None, "nothing came: what comes wakes it");
        naps.on_read(ms(1_200), ms(1_200), 1_000, 1_000);
        assert_eq!(naps.next(ms(1_200), true), None, "it was not kept for a second");
    }

    #[test]
    fn a_nap_begins_short_behind_a_pause() {
        let mut naps = kept(SMALL);
        assert_eq!(flow(&mut naps, 1_433, 500_000, ms(100), ms(150)).0, Some(NAP_MAX));
        assert_eq!(flow(&mut naps, 1_433, 3_000, ms(160), ms(200)), (Some(us(50)), 0), "4 Gbit/s");
    }

    #[test]
    fn a_buffer_that_the_shortest_would_fill_has_none() {
        let mut naps = kept(SMALL);
        let (nap, dropped) = flow(&mut naps, 1_000, 800, ms(100), ms(150));
        assert!(nap.is_none() && dropped < 2 * FIT, "10 Gbit/s: {nap:?}, {dropped}");
    }

    #[test]
    fn what_a_disk_keeps_waiting_is_no_busy_host() {
        let mut naps = Naps::new(4 << 20, true);
        assert_eq!(naps.next(ms(100), false), None);
        naps.on_read(ms(150), ms(100), 40_000, 1_000);
        assert_eq!(naps.next(ms(150), true), None);
        naps.on_read(ms(151), ms(131), 40_000, 1_000);
        assert_eq!(naps.next(ms(151), true), Some(NAP), "but from then on");
    }

    #[test]
    fn a_fast_flow_naps_where_the_buffer_holds_what_comes() {
        for (buffer_bytes, has_times, given) in
            [(4 << 20, true, Some(NAP)), (4 << 20, false, None), (SMALL, true, None)]
        {
            let mut naps = Naps::new(buffer_bytes, has_times);
            naps.on_read(ms(1), ms(1), 40_000, 1_000);
            naps.on_read(ms(1), ms(1), 40_000, 1_000);
            assert_eq!(naps.next(ms(1), true), given);
            naps.on_read(ms(2), ms(2), 40_000, 1_000);
            assert_eq!(naps.next(ms(2), true), None, "a slow one is woken");
        }
    }

    #[test]
    fn without_times_of_the_kernel_nobody_is_kept() {
        let mut naps = Naps { has_times: false, ..kept(SMALL) };
        assert_eq!(naps.next(ms(100), true), None);
    }
}

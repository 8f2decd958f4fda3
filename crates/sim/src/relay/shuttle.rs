//! Main loop of the relay: reads packets, passes them through queues and models, and writes them
//! when they are due.

use super::ledger::Ledger;
use crate::sync::lock;
use crate::{Fate, Line, Model, report::Counts};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
    time::{ClockId, clock_gettime},
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    fs::File,
    io::{ErrorKind, PipeReader, Read, Write},
    ops::ControlFlow,
    os::fd::AsFd,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// State of the relay's thread.
pub(super) struct Shuttle {
    tuns: [File; 2],
    models: [Model; 2],
    /// Queues from A to B before the link; may be empty.
    line: Line<Vec<u8>>,
    has_line: bool,
    under_way: BinaryHeap<Reverse<Packet>>,
    under_way_bytes: usize,
    next_number: u64,
    spin: Duration,
    /// Epoch of the models' clock.
    epoch: Instant,
    ledger: Arc<Mutex<Ledger>>,
}

/// A packet in flight, ordered by departure and then by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Packet {
    pub(super) at: Duration,
    pub(super) number: u64,
    pub(super) direction: usize,
    pub(super) bytes: Vec<u8>,
}

impl Shuttle {
    pub(super) fn new(
        tuns: [File; 2],
        models: [Model; 2],
        line: Line<Vec<u8>>,
        ledger: Arc<Mutex<Ledger>>,
        spin: Duration,
    ) -> Self {
        Self {
            tuns,
            models,
            has_line: !line.is_empty(),
            line,
            under_way: BinaryHeap::new(),
            under_way_bytes: 0,
            next_number: 0,
            spin,
            epoch: Instant::now(),
            ledger,
        }
    }

    /// Moves packets until the other end of `stopped` closes, or a device is gone.
    pub(super) fn run(mut self, stopped: &PipeReader) {
        let mut spun = Duration::ZERO;
        let mut readable = [false; 2];
        loop {
            {
                let ledger = Arc::clone(&self.ledger);
                let mut ledger = lock(&ledger);
                for direction in [0, 1] {
                    if readable[direction] && self.take_in(direction, &mut ledger).is_break() {
                        return;
                    }
                }
                self.put_out(&mut ledger);
                ledger.note_cpu(thread_cpu().saturating_sub(spun));
            }
            let until_due = self.until_due();
            let nap = until_due.map(|due| due.saturating_sub(self.spin));
            let before = Instant::now();
            match self.wait(stopped, nap) {
                Ready::Stop => return,
                Ready::Readable(which) => readable = which,
            }
            let spinning = nap == Some(Duration::ZERO) && until_due != nap;
            if spinning && readable == [false; 2] {
                spun += before.elapsed();
            }
        }
    }

    /// Reads up to a batch of packets and passes them to the queues or the model. Breaks if the
    /// device is gone, because it would stay readable and fail forever.
    fn take_in(&mut self, direction: usize, ledger: &mut Ledger) -> ControlFlow<()> {
        let mut buffer = [0; BUFFER_BYTES];
        for _ in 0..BATCH {
            let length = match self.tuns[direction].read(&mut buffer) {
                Ok(length) => length,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    ledger.counts[direction].read_errors += 1;
                    return ControlFlow::Break(());
                }
            };
            let bytes = &buffer[..length];
            if is_multicast(bytes) {
                ledger.counts[direction].ignored += 1;
                continue;
            }
            let now = self.epoch.elapsed();
            if direction == 0 && self.has_line {
                self.line.push(now, length, bytes.to_vec());
            } else {
                self.send_off(direction, now, bytes.to_vec(), &mut ledger.counts[direction]);
            }
        }
        ControlFlow::Continue(())
    }

    /// Passes a packet that reaches the link at `at` through the model.
    fn send_off(&mut self, direction: usize, at: Duration, bytes: Vec<u8>, counts: &mut Counts) {
        match self.models[direction].carry(at, bytes.len()) {
            Fate::Lost => counts.lost += 1,
            Fate::QueueFull => counts.queue_full += 1,
            Fate::Delivered { .. } if self.under_way_bytes + bytes.len() > UNDER_WAY_LIMIT_BYTES => {
                counts.overflow += 1;
            }
            Fate::Delivered { at } => {
                self.under_way_bytes += bytes.len();
                let packet = Packet { at, number: self.next_number, direction, bytes };
                self.next_number += 1;
                self.under_way.push(Reverse(packet));
            }
        }
    }

    /// Writes all packets that are due.
    fn put_out(&mut self, ledger: &mut Ledger) {
        while let Some((at, bytes)) = self.line.pop(self.epoch.elapsed()) {
            self.send_off(0, at, bytes, &mut ledger.counts[0]);
        }
        ledger.counts[0].queue_full += self.line.take_dropped();
        let mut now = self.epoch.elapsed();
        while let Some(packet) = pop_due(&mut self.under_way, now) {
            self.under_way_bytes -= packet.bytes.len();
            match (&self.tuns[1 - packet.direction]).write(&packet.bytes) {
                Ok(_) => {
                    let late = now.saturating_sub(packet.at);
                    ledger.note_departure(packet.direction, packet.bytes.len(), late);
                }
                Err(_) => ledger.counts[packet.direction].write_errors += 1,
            }
            now = self.epoch.elapsed();
        }
    }

    fn until_due(&self) -> Option<Duration> {
        let departs = self.under_way.peek().map(|Reverse(packet)| packet.at);
        let due = departs.into_iter().chain(self.line.next_at()).min()?;
        Some(due.saturating_sub(self.epoch.elapsed()))
    }

    /// Sleeps until a device is readable, `nap` is over, or the relay must stop.
    fn wait(&self, stopped: &PipeReader, nap: Option<Duration>) -> Ready {
        let fds = [self.tuns[0].as_fd(), self.tuns[1].as_fd(), stopped.as_fd()];
        let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match ppoll(&mut polled, nap.map(TimeSpec::from), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ready::Readable([false; 2]),
            Err(_) => return Ready::Stop,
        }
        match polled.map(|fd| fd.any().unwrap_or(false)) {
            [_, _, true] => Ready::Stop,
            [a, b, false] => Ready::Readable([a, b]),
        }
    }
}

enum Ready {
    Stop,
    Readable([bool; 2]),
}

/// Removes and returns the next packet that is due at `now`.
fn pop_due(under_way: &mut BinaryHeap<Reverse<Packet>>, now: Duration) -> Option<Packet> {
    let first = under_way.peek_mut()?;
    if first.0.at > now { None } else { Some(PeekMut::pop(first).0) }
}

/// Whether the destination of an IP packet is a multicast address: 224.0.0.0/4 (RFC 5771) or
/// ff00::/8 (RFC 4291 §2.7). Hosts send multicast at arbitrary times, which would shift the random
/// draws of all later packets.
fn is_multicast(packet: &[u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(16).is_some_and(|byte| byte >> 4 == 0xe),
        Some(6) => packet.get(24) == Some(&0xff),
        _ => false,
    }
}

/// CPU time of the calling thread; zero if the clock is missing.
fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Maximum number of packets read from a device in one batch, so that a flood in one direction does
/// not delay departures for long.
const BATCH: usize = 32;

/// Size of the largest IP packet at the device's MTU, rounded up.
const BUFFER_BYTES: usize = 2048;

/// Memory for packets in flight: a second at 500 Mbit/s.
const UNDER_WAY_LIMIT_BYTES: usize = 64_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(at_us: u64, number: u64) -> Packet {
        Packet { at: Duration::from_micros(at_us), number, direction: 0, bytes: vec![0; 10] }
    }

    #[test]
    fn packets_leave_by_time_then_by_arrival() {
        let mut under_way: BinaryHeap<_> =
            [packet(5, 2), packet(5, 1), packet(3, 3)].into_iter().map(Reverse).collect();
        let due = |heap: &mut _, at| pop_due(heap, Duration::from_micros(at)).map(|packet| packet.number);
        assert_eq!(due(&mut under_way, 2), None);
        assert_eq!(due(&mut under_way, 5), Some(3));
        assert_eq!(due(&mut under_way, 5), Some(1));
        assert_eq!(due(&mut under_way, 5), Some(2));
        assert_eq!(due(&mut under_way, 5), None);
    }

    #[test]
    fn groups_are_told_from_hosts() {
        let mut v4 = [0; 20];
        (v4[0], v4[16]) = (0x45, 192);
        assert!(!is_multicast(&v4));
        v4[16] = 224;
        assert!(is_multicast(&v4));
        let mut v6 = [0; 40];
        (v6[0], v6[24]) = (0x60, 0x20);
        assert!(!is_multicast(&v6));
        v6[24] = 0xff;
        assert!(is_multicast(&v6));
        assert!(!is_multicast(&[]));
    }
}

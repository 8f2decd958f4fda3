//! Main loop of the relay: reads packets, passes them through queues and models, and writes them
//! when they are due.

use super::{Changes, stats::RelayStats};
use crate::sync::lock;
use crate::tun::OFFLOAD_HEADER_BYTES;
use crate::{LinkDirection, PacketFate, QueueChain, report::DirectionCounts};
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
pub(super) struct RelayLoop {
    tuns: [File; 2],
    models: [LinkDirection; 2],
    /// Queues from A to B before the link; may be empty.
    queues: QueueChain<Vec<u8>>,
    has_queues: bool,
    in_flight: BinaryHeap<Reverse<Packet>>,
    in_flight_bytes: usize,
    next_number: u64,
    /// Each packet is read into this buffer.
    buffer: Vec<u8>,
    /// Size of the header that precedes each IP packet; 0 without offload.
    header_bytes: usize,
    changes: Arc<Changes>,
    spin: Duration,
    /// Epoch of the models' clock.
    epoch: Instant,
    stats: Arc<Mutex<RelayStats>>,
}

/// A packet in flight, ordered by departure and then by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Packet {
    pub(super) at: Duration,
    pub(super) number: u64,
    pub(super) direction: usize,
    pub(super) bytes: Vec<u8>,
}

impl RelayLoop {
    pub(super) fn new(
        tuns: [File; 2],
        models: [LinkDirection; 2],
        queues: QueueChain<Vec<u8>>,
        stats: Arc<Mutex<RelayStats>>,
        changes: Arc<Changes>,
        spin: Duration,
        offload: bool,
    ) -> Self {
        let header_bytes = if offload { OFFLOAD_HEADER_BYTES } else { 0 };
        Self {
            tuns,
            models,
            has_queues: !queues.is_empty(),
            queues,
            in_flight: BinaryHeap::new(),
            in_flight_bytes: 0,
            next_number: 0,
            buffer: vec![0; if offload { SEGMENT_BUFFER_BYTES } else { BUFFER_BYTES }],
            header_bytes,
            changes,
            spin,
            epoch: Instant::now(),
            stats,
        }
    }

    /// Moves packets until the other end of `stopped` closes, or a device is gone.
    pub(super) fn run(mut self, stopped: &PipeReader) {
        let mut spun = Duration::ZERO;
        let mut readable = [false; 2];
        loop {
            {
                let stats = Arc::clone(&self.stats);
                let mut stats = lock(&stats);
                for direction in [0, 1] {
                    if readable[direction] && self.read_packets(direction, &mut stats).is_break() {
                        return;
                    }
                }
                self.write_due(&mut stats);
                stats.record_cpu(thread_cpu().saturating_sub(spun));
            }
            let until_due = self.until_due();
            let sleep = until_due.map(|due| due.saturating_sub(self.spin));
            let before = Instant::now();
            match self.wait(stopped, sleep) {
                Ready::Stop => return,
                Ready::Readable(which) => readable = which,
            }
            let spinning = sleep == Some(Duration::ZERO) && until_due != sleep;
            if spinning && readable == [false; 2] {
                spun += before.elapsed();
            }
        }
    }

    /// Reads up to a batch of packets and passes them to the queues or the model. Ends the loop if
    /// the device is gone, because such a device stays readable and every read fails.
    fn read_packets(&mut self, direction: usize, stats: &mut RelayStats) -> ControlFlow<()> {
        self.make_change(direction);
        for _ in 0..BATCH {
            let length = match self.tuns[direction].read(&mut self.buffer) {
                Ok(length) => length,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    stats.counts[direction].read_errors += 1;
                    return ControlFlow::Break(());
                }
            };
            let bytes = &self.buffer[..length];
            if is_multicast(bytes.get(self.header_bytes..).unwrap_or_default()) {
                stats.counts[direction].ignored += 1;
                continue;
            }
            let (now, bytes) = (self.epoch.elapsed(), bytes.to_vec());
            if direction == 0 && self.has_queues {
                let packet_bytes = self.packet_bytes(&bytes);
                self.queues.push(now, packet_bytes, bytes);
            } else {
                self.enqueue(direction, now, bytes, &mut stats.counts[direction]);
            }
        }
        ControlFlow::Continue(())
    }

    fn make_change(&mut self, direction: usize) {
        let change = lock(&self.changes)[direction].take();
        if let Some(change) = change {
            self.models[direction].change(change).expect("the network has checked the change");
        }
    }

    /// Size of the IP packet in `bytes`, which may begin with a header.
    fn packet_bytes(&self, bytes: &[u8]) -> usize {
        bytes.len().saturating_sub(self.header_bytes)
    }

    /// Applies the model of the link to a packet. The packet reaches the link at the time `at`.
    fn enqueue(&mut self, direction: usize, at: Duration, bytes: Vec<u8>, counts: &mut DirectionCounts) {
        let packet_bytes = self.packet_bytes(&bytes);
        match self.models[direction].send(at, packet_bytes) {
            PacketFate::Lost => counts.lost += 1,
            PacketFate::QueueFull => counts.queue_full += 1,
            PacketFate::Delivered { .. } if self.in_flight_bytes + bytes.len() > IN_FLIGHT_LIMIT_BYTES => {
                counts.overflow += 1;
            }
            PacketFate::Delivered { at } => {
                self.in_flight_bytes += bytes.len();
                let packet = Packet { at, number: self.next_number, direction, bytes };
                self.next_number += 1;
                self.in_flight.push(Reverse(packet));
            }
        }
    }

    fn write_due(&mut self, stats: &mut RelayStats) {
        while let Some((at, bytes)) = self.queues.pop(self.epoch.elapsed()) {
            self.enqueue(0, at, bytes, &mut stats.counts[0]);
        }
        stats.counts[0].queue_full += self.queues.take_dropped();
        let mut now = self.epoch.elapsed();
        while let Some(packet) = pop_due(&mut self.in_flight, now) {
            self.in_flight_bytes -= packet.bytes.len();
            match (&self.tuns[1 - packet.direction]).write(&packet.bytes) {
                Ok(_) => {
                    let late = now.saturating_sub(packet.at);
                    stats.record_departure(packet.direction, self.packet_bytes(&packet.bytes), late);
                }
                Err(_) => stats.counts[packet.direction].write_errors += 1,
            }
            now = self.epoch.elapsed();
        }
    }

    fn until_due(&self) -> Option<Duration> {
        let departs = self.in_flight.peek().map(|Reverse(packet)| packet.at);
        let due = departs.into_iter().chain(self.queues.next_at()).min()?;
        Some(due.saturating_sub(self.epoch.elapsed()))
    }

    /// Sleeps until a device is readable, `sleep` is over, or the relay must stop.
    fn wait(&self, stopped: &PipeReader, sleep: Option<Duration>) -> Ready {
        let fds = [self.tuns[0].as_fd(), self.tuns[1].as_fd(), stopped.as_fd()];
        let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match ppoll(&mut polled, sleep.map(TimeSpec::from), None) {
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
fn pop_due(in_flight: &mut BinaryHeap<Reverse<Packet>>, now: Duration) -> Option<Packet> {
    let first = in_flight.peek_mut()?;
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

/// Size of the largest segment (an IP packet of 65 535 bytes) with its header, rounded up.
const SEGMENT_BUFFER_BYTES: usize = 66_000;

/// Maximum memory for packets in flight, in bytes: the packets of one second at 500 Mbit/s.
const IN_FLIGHT_LIMIT_BYTES: usize = 64_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(at_us: u64, number: u64) -> Packet {
        Packet { at: Duration::from_micros(at_us), number, direction: 0, bytes: vec![0; 10] }
    }

    #[test]
    fn packets_leave_in_order_of_due_time_then_arrival() {
        let mut in_flight: BinaryHeap<_> =
            [packet(5, 2), packet(5, 1), packet(3, 3)].into_iter().map(Reverse).collect();
        let due = |heap: &mut _, at| pop_due(heap, Duration::from_micros(at)).map(|packet| packet.number);
        assert_eq!(due(&mut in_flight, 2), None);
        assert_eq!(due(&mut in_flight, 5), Some(3));
        assert_eq!(due(&mut in_flight, 5), Some(1));
        assert_eq!(due(&mut in_flight, 5), Some(2));
        assert_eq!(due(&mut in_flight, 5), None);
    }

    #[test]
    fn multicast_addresses_are_detected() {
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

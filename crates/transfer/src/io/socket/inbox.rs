//! Buffers for received trains, each with the kernel's report about it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::SystemTime;

use nix::errno::Errno;

use super::{SocketCounters, passes};

/// Buffers that trains are received into.
#[derive(Debug)]
pub struct Inbox {
    slots: Vec<Slot>,
    filled: usize,
}

/// A train that was received.
#[derive(Debug)]
pub struct Received<'a> {
    /// The train's datagrams, one after the other.
    pub bytes: &'a mut [u8],
    /// Length of each datagram in bytes, never 0. The last datagram may be shorter.
    pub segment: usize,
    pub from: SocketAddr,
    /// When the kernel received the datagram, or the last packet of the train. The time is by the
    /// wall clock, which can be set.
    pub at: Option<SystemTime>,
    /// Whether the train was marked with congestion: either all of its datagrams are marked, or
    /// none is.
    pub is_marked: Option<bool>,
    /// Number of datagrams that the socket dropped before it queued this train. The number wraps
    /// around. `Some(0)` if the kernel counts drops but reported none; `None` if the kernel does
    /// not count drops. A train that was dropped counts once, however many datagrams it had.
    pub drops: Option<u32>,
}

impl Inbox {
    /// Creates buffers for `trains` trains of 64 KiB each, at least one.
    pub fn new(trains: usize) -> Self {
        let slots = (0..trains.max(1)).map(|_| Slot::new()).collect();
        Self { slots, filled: 0 }
    }

    /// Trains of the last receive call.
    pub fn received(&mut self) -> impl Iterator<Item = Received<'_>> {
        self.slots.iter_mut().take(self.filled).map(Slot::received)
    }

    /// Size of a train's buffer, in bytes. If the buffer were smaller than the largest IP packet,
    /// joined trains would be cut without an error.
    pub const TRAIN_BYTES: usize = 1 << 16;

    /// Fills the slots by calls of `fill`. Each call fills one slot, or returns `false` if the
    /// received bytes cannot be used.
    pub(super) fn receive(
        &mut self,
        counters: &mut SocketCounters,
        mut fill: impl FnMut(&mut Slot, &mut SocketCounters) -> nix::Result<bool>,
    ) -> io::Result<usize> {
        self.filled = 0;
        // Limit the number of calls, so that a flood of errors ends too.
        for _ in 0..self.slots.len() {
            let Some(slot) = self.slots.get_mut(self.filled) else { break };
            match fill(slot, counters) {
                Ok(true) => self.filled += 1,
                Ok(false) => {}
                Err(Errno::EAGAIN) if self.filled == 0 => return Err(io::ErrorKind::WouldBlock.into()),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                // An ICMP message about an earlier sent datagram caused this error. Only count the
                // error: if the next datagram has the same length, the send call returns the error
                // again.
                Err(error) if passes(error) || error == Errno::EMSGSIZE => counters.passing(error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.filled)
    }
}

/// Buffer of a train, and what was received into it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) buffer: Box<[u8]>,
    pub(super) length: usize,
    pub(super) segment: usize,
    pub(super) from: SocketAddr,
    pub(super) at: Option<SystemTime>,
    pub(super) is_marked: Option<bool>,
    pub(super) drops: Option<u32>,
}

impl Slot {
    fn new() -> Self {
        let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into();
        Self {
            buffer: vec![0; Inbox::TRAIN_BYTES].into(),
            length: 0,
            segment: 1,
            from,
            at: None,
            is_marked: None,
            drops: None,
        }
    }

    fn received(&mut self) -> Received<'_> {
        let length = self.length.min(self.buffer.len());
        let (bytes, _) = self.buffer.split_at_mut(length);
        Received {
            bytes,
            segment: self.segment,
            from: self.from,
            at: self.at,
            is_marked: self.is_marked,
            drops: self.drops,
        }
    }
}

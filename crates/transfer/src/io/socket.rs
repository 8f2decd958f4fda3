//! Datagrams in trains, and what the kernel knows of each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

/// How a socket is made.
#[derive(Clone, Copy, Debug)]
pub struct SocketConfig {
    /// Bytes of its buffers that are asked for; the system may give fewer.
    pub buffer_bytes: usize,
    /// Whether trains may be sent in one call (UDP_SEGMENT), and received so (UDP_GRO).
    pub trains: bool,
    /// Whether packets say that they can be marked as congested: ECT(0), RFC 3168.
    pub ecn: bool,
}

/// What the socket can do here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Datagrams that one train may have; 1 where they are sent one by one.
    pub train_max: usize,
    /// Whether trains come as trains.
    pub receives_trains: bool,
    /// Whether the kernel counts what the socket drops (SO_RXQ_OVFL).
    pub has_drops: bool,
    /// Whether marks are seen.
    pub has_marks: bool,
    /// Whether the kernel tells when packets came.
    pub has_times: bool,
    /// Bytes of the receive buffer as it is (as the kernel counts, which is twice what fits).
    pub receive_buffer_bytes: usize,
}

/// A UDP socket that never blocks.
#[derive(Debug)]
pub struct Socket {}

/// Datagrams of equal length, of which the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    /// One after the other.
    pub bytes: &'a [u8],
    /// Bytes of each.
    pub segment: usize,
}

/// Where trains are received into.
#[derive(Debug)]
pub struct Inbox {}

/// A train that came.
#[derive(Debug)]
pub struct Received<'a> {
    /// One datagram after the other.
    pub bytes: &'a mut [u8],
    /// Bytes of each; the last may be shorter.
    pub segment: usize,
    /// From whom.
    pub from: SocketAddr,
    /// When its last packet came, by the kernel.
    pub at: Option<SystemTime>,
    /// Whether it was marked as congested (the trains of a kernel are all marked or all not).
    pub is_marked: Option<bool>,
    /// What the socket dropped so far, wrapping; `Some(0)` where the kernel is silent because it is none.
    pub drops: Option<u32>,
}

impl Socket {
    /// Bound to an address; port 0 is any.
    pub fn bind(at: SocketAddr, config: SocketConfig) -> io::Result<Self> {
        todo!()
    }

    /// Sends to this peer alone, and takes only what it sends.
    pub fn connect(&mut self, to: SocketAddr) -> io::Result<()> {
        todo!()
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        todo!()
    }

    /// What it can do here.
    pub fn abilities(&self) -> Abilities {
        todo!()
    }

    /// The largest datagram's bytes (UDP's payload) that the route to the peer takes, as far as the system knows. Connected sockets.
    pub fn datagram_bytes_max(&self) -> io::Result<usize> {
        todo!()
    }

    /// Sends as many trains as there is room for; how many were. `to` is `None` for a connected socket.
    ///
    /// # Errors
    /// `WouldBlock` where there is no room for any. Trains that the path dislikes are sent one by one from then on.
    pub fn send(&mut self, trains: &[Train<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        todo!()
    }

    /// Receives what there is, as much as the inbox holds; how many trains.
    ///
    /// # Errors
    /// `WouldBlock` where there is none.
    pub fn receive(&mut self, inbox: &mut Inbox) -> io::Result<usize> {
        todo!()
    }

    /// Waits until there is something to receive, or, if asked, room to send, or `for_at_most` has passed (with a resolution of microseconds).
    pub fn wait(&self, also_room: bool, for_at_most: Duration) -> io::Result<()> {
        todo!()
    }

    /// To wait for it along with others.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        todo!()
    }
}

impl Inbox {
    /// For so many trains, of 64 KiB each.
    pub fn new(trains: usize) -> Self {
        todo!()
    }

    /// What was received last.
    pub fn received(&mut self) -> impl Iterator<Item = Received<'_>> {
        std::iter::empty()
    }
}

//! Datagrams in trains, and what the kernel knows of each.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
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
pub struct Socket {
    socket: UdpSocket,
    connected: bool,
}

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
pub struct Inbox {
    trains: Vec<(Vec<u8>, usize, Option<SocketAddr>)>,
}

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
        let _ = config;
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, connected: false })
    }

    /// Sends to this peer alone, and takes only what it sends.
    pub fn connect(&mut self, to: SocketAddr) -> io::Result<()> {
        self.connected = true;
        self.socket.connect(to)
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What it can do here.
    pub fn abilities(&self) -> Abilities {
        Abilities {
            train_max: 1,
            receives_trains: false,
            has_drops: false,
            has_marks: false,
            has_times: false,
            receive_buffer_bytes: 0,
        }
    }

    /// The largest datagram's bytes (UDP's payload) that the route to the peer takes, as far as the system knows. Connected sockets.
    pub fn datagram_bytes_max(&self) -> io::Result<usize> {
        Ok(1472)
    }

    /// Sends as many trains as there is room for; how many were. `to` is `None` for a connected socket.
    ///
    /// # Errors
    /// `WouldBlock` where there is no room for any. Trains that the path dislikes are sent one by one from then on.
    pub fn send(&mut self, trains: &[Train<'_>], to: Option<SocketAddr>) -> io::Result<usize> {
        for (sent, train) in trains.iter().enumerate() {
            for datagram in train.bytes.chunks(train.segment) {
                let done = match to {
                    Some(to) => self.socket.send_to(datagram, to),
                    None => self.socket.send(datagram),
                };
                match done {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent > 0 => return Ok(sent),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(trains.len())
    }

    /// Receives what there is, as much as the inbox holds; how many trains.
    ///
    /// # Errors
    /// `WouldBlock` where there is none.
    pub fn receive(&mut self, inbox: &mut Inbox) -> io::Result<usize> {
        let mut taken = 0;
        for (bytes, len, from) in &mut inbox.trains {
            *from = None;
            if taken < usize::MAX {
                match self.socket.recv_from(bytes) {
                    Ok((got, whence)) => (*len, *from, taken) = (got, Some(whence), taken + 1),
                    Err(error) if taken == 0 => return Err(error),
                    Err(_) => break,
                }
            }
        }
        Ok(taken)
    }

    /// Waits until there is something to receive, or, if asked, room to send, or `for_at_most` has passed (with a resolution of microseconds).
    pub fn wait(&self, also_room: bool, for_at_most: Duration) -> io::Result<()> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let flags = if also_room { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        let mut fds = [PollFd::new(self.socket.as_fd(), flags)];
        let ms = u16::try_from(for_at_most.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        poll(&mut fds, PollTimeout::from(ms))?;
        Ok(())
    }

    /// To wait for it along with others.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Inbox {
    /// For so many trains, of 64 KiB each.
    pub fn new(trains: usize) -> Self {
        Self { trains: (0..trains).map(|_| (vec![0; 65_536], 0, None)).collect() }
    }

    /// What was received last.
    pub fn received(&mut self) -> impl Iterator<Item = Received<'_>> {
        self.trains.iter_mut().filter_map(|(bytes, len, from)| {
            let (bytes, from) = (bytes.get_mut(..*len)?, (*from)?);
            Some(Received { segment: bytes.len(), bytes, from, at: None, is_marked: None, drops: None })
        })
    }
}

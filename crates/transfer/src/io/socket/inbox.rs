//! Receiving: trains as they come, each with what the kernel knows of it.
//!
//! By one `recvmsg` for each: `recvmmsg` of nix 0.31 does not restore the room for control messages that a call before it used up
//! (nix-rust/nix#2813), and without the length of its segments a train cannot be parted.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, RecvMsg, SockaddrLike, SockaddrStorage, recvmsg};

use super::{Abilities, Counts, options, passes};

/// Where trains are received into.
#[derive(Debug)]
pub struct Inbox {
    slots: Vec<Slot>,
    filled: usize,
    control: Box<Control>,
}

/// A train that came.
#[derive(Debug)]
pub struct Received<'a> {
    /// One datagram after the other.
    pub bytes: &'a mut [u8],
    /// Bytes of each; the last may be shorter. Never 0.
    pub segment: usize,
    /// From whom.
    pub from: SocketAddr,
    /// When the kernel took it in, which for a train is after its last packet. The wall clock: it can be set.
    pub at: Option<SystemTime>,
    /// Whether it was marked as congested (the trains of a kernel are all marked or all not).
    pub is_marked: Option<bool>,
    /// What the socket dropped before this one was queued, wrapping; `Some(0)` where the kernel is silent because it is none.
    /// A train that was dropped counts once, however many datagrams it had.
    pub drops: Option<u32>,
}

impl Inbox {
    /// For so many trains, of 64 KiB each; at least one.
    pub fn new(trains: usize) -> Self {
        let slots = (0..trains.max(1)).map(|_| Slot::new()).collect();
        Self { slots, filled: 0, control: Box::new(Control([0; CONTROL_BYTES])) }
    }

    /// What was received last.
    pub fn received(&mut self) -> impl Iterator<Item = Received<'_>> {
        self.slots.iter_mut().take(self.filled).map(Slot::received)
    }

    /// Swaps the buffer of one train that was received for another of [`Self::TRAIN_BYTES`], so that somebody else can own its bytes.
    /// A buffer of another length, or a train that is not there, changes nothing; whether it was swapped.
    pub fn swap(&mut self, train: usize, buffer: &mut Box<[u8]>) -> bool {
        let slot =
            self.slots.get_mut(train).filter(|_| train < self.filled && buffer.len() == Self::TRAIN_BYTES);
        slot.is_some_and(|slot| {
            std::mem::swap(&mut slot.buffer, buffer);
            true
        })
    }

    /// Bytes of a train's buffer. Below the largest datagram of IP, coalesced trains would be cut without an error.
    pub const TRAIN_BYTES: usize = 1 << 16;

    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        abilities: Abilities,
        counts: &mut Counts,
    ) -> io::Result<usize> {
        self.filled = 0;
        // Every call fills a slot or counts what it does not fill it with, so that a flood of errors ends too.
        for _ in 0..self.slots.len() {
            let Some(slot) = self.slots.get_mut(self.filled) else { break };
            match slot.fill(socket, &mut self.control, abilities) {
                Ok(true) => self.filled += 1,
                Ok(false) => counts.cut += 1,
                Err(Errno::EAGAIN) if self.filled == 0 => return Err(io::ErrorKind::WouldBlock.into()),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                // By ICMP, of a datagram that was sent: the next one that is as large meets it as well.
                Err(error) if passes(error) || error == Errno::EMSGSIZE => counts.passing(error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.filled)
    }
}

/// A train's buffer, and what came into it.
#[derive(Debug)]
struct Slot {
    buffer: Box<[u8]>,
    length: usize,
    segment: usize,
    from: SocketAddr,
    at: Option<SystemTime>,
    is_marked: Option<bool>,
    drops: Option<u32>,
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

    /// One train; false where it came in a state in which it cannot be used.
    fn fill(
        &mut self,
        socket: BorrowedFd<'_>,
        control: &mut Control,
        abilities: Abilities,
    ) -> nix::Result<bool> {
        let mut into = [IoSliceMut::new(&mut self.buffer)];
        let message = recvmsg::<SockaddrStorage>(
            socket.as_raw_fd(),
            &mut into,
            Some(&mut control.0),
            MsgFlags::empty(),
        )?;
        let Some(known) = Known::of(&message, abilities) else { return Ok(false) };
        self.length = message.bytes;
        self.segment = known.segment.unwrap_or(message.bytes).max(1);
        self.from = known.from;
        self.at = known.at;
        self.is_marked = known.is_marked;
        self.drops = known.drops;
        Ok(true)
    }
}

/// What the kernel tells beside the bytes.
struct Known {
    from: SocketAddr,
    segment: Option<usize>,
    at: Option<SystemTime>,
    is_marked: Option<bool>,
    drops: Option<u32>,
}

impl Known {
    /// `None` where bytes are missing, or what parts a train into datagrams.
    fn of(message: &RecvMsg<'_, '_, SockaddrStorage>, abilities: Abilities) -> Option<Self> {
        if message.flags.contains(MsgFlags::MSG_TRUNC) {
            return None;
        }
        let from = address(message.address.as_ref()?)?;
        let drops = abilities.has_drops.then_some(0);
        let mut known = Self { from, segment: None, at: None, is_marked: None, drops };
        for said in message.cmsgs().ok()? {
            match said {
                ControlMessageOwned::UdpGroSegments(bytes) => {
                    known.segment = usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
                }
                ControlMessageOwned::RxqOvfl(drops) => known.drops = Some(drops),
                ControlMessageOwned::ScmTimestampns(at) => {
                    known.at = SystemTime::UNIX_EPOCH.checked_add(Duration::from(at))
                }
                ControlMessageOwned::Ipv4Tos(tos) => known.is_marked = Some(tos & ECN == CE),
                ControlMessageOwned::Ipv6TClass(class) => {
                    known.is_marked = Some(class & i32::from(ECN) == i32::from(CE))
                }
                _ => {}
            }
        }
        Some(known)
    }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    debug_assert!(storage.family().is_some());
    let v4 = storage.as_sockaddr_in().map(|&v4| SocketAddrV4::from(v4).into());
    v4.or_else(|| storage.as_sockaddr_in6().map(|&v6| options::plain(v6.into())))
}

/// Room for what the kernel tells, aligned as its headers are (`cmsghdr` of a 64-bit system: 8 bytes).
#[derive(Debug)]
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Four messages come with a train: a time of 16 bytes, a count, a segment and a mark of at most 8, each after a header of 16: 104.
/// Twice that is room for what other options would add.
const CONTROL_BYTES: usize = 256;

/// The two bits of the mark in IPv4's TOS and IPv6's traffic class, and "congestion experienced": RFC 3168 §5.
const ECN: u8 = 0b11;
const CE: u8 = 0b11;

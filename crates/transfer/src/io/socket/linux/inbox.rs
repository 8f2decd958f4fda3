//! Receives each train with one `recvmsg`. `recvmmsg` of nix 0.31 is not used: it does not restore
//! the space for control messages that an earlier call used up (nix-rust/nix#2813), so a later call
//! can lose control messages. The segment length arrives in a control message, and a train cannot
//! be split without it.

use std::io::IoSliceMut;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, SystemTime};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, RecvMsg, SockaddrLike, SockaddrStorage, recvmsg};

use super::super::address::plain;
use super::super::inbox::Slot;
use super::super::{SocketCapabilities, SocketCounters};

/// Receives one train. Returns `false` if the train cannot be used.
pub(in super::super) fn fill(
    slot: &mut Slot,
    socket: BorrowedFd<'_>,
    capabilities: SocketCapabilities,
    counters: &mut SocketCounters,
) -> nix::Result<bool> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut into = [IoSliceMut::new(&mut slot.buffer)];
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut into, Some(&mut control.0), MsgFlags::empty())?;
    let Some(data) = ControlData::of(&message, capabilities) else {
        counters.cut += 1;
        return Ok(false);
    };
    slot.length = message.bytes;
    slot.segment = data.segment.unwrap_or(message.bytes).max(1);
    slot.from = data.from;
    slot.at = data.at;
    slot.is_marked = data.is_marked;
    slot.drops = data.drops;
    Ok(true)
}

/// What the kernel reports beside the bytes.
struct ControlData {
    from: SocketAddr,
    segment: Option<usize>,
    at: Option<SystemTime>,
    is_marked: Option<bool>,
    drops: Option<u32>,
}

impl ControlData {
    /// Reads the kernel's report; `None` if the datagram was truncated, or if the length that
    /// splits a train is missing.
    fn of(message: &RecvMsg<'_, '_, SockaddrStorage>, capabilities: SocketCapabilities) -> Option<Self> {
        if message.flags.contains(MsgFlags::MSG_TRUNC) {
            return None;
        }
        let from = address(message.address.as_ref()?)?;
        let drops = capabilities.has_drops.then_some(0);
        let mut data = Self { from, segment: None, at: None, is_marked: None, drops };
        for said in message.cmsgs().ok()? {
            match said {
                ControlMessageOwned::UdpGroSegments(bytes) => {
                    data.segment = usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
                }
                ControlMessageOwned::RxqOvfl(drops) => data.drops = Some(drops),
                ControlMessageOwned::ScmTimestampns(at) => {
                    data.at = SystemTime::UNIX_EPOCH.checked_add(Duration::from(at))
                }
                ControlMessageOwned::Ipv4Tos(tos) => data.is_marked = Some(tos & ECN == CE),
                ControlMessageOwned::Ipv6TClass(class) => {
                    data.is_marked = Some(class & i32::from(ECN) == i32::from(CE))
                }
                _ => {}
            }
        }
        Some(data)
    }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    debug_assert!(storage.family().is_some());
    let v4 = storage.as_sockaddr_in().map(|&v4| SocketAddrV4::from(v4).into());
    v4.or_else(|| storage.as_sockaddr_in6().map(|&v6| plain(v6.into())))
}

/// Space for control messages, aligned like their headers (`cmsghdr` of a 64-bit system: 8 bytes).
#[derive(Debug)]
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Size of the space for control messages, in bytes. A train has four control messages: a time of
/// 16 bytes, and a count, a segment length and a mark of at most 8 bytes each. Each control message
/// has a header of 16 bytes, so all four take 104 bytes. The rest of the space is for other
/// options.
const CONTROL_BYTES: usize = 256;

/// The two bits of the mark in IPv4's TOS and IPv6's traffic class, and their value "congestion
/// experienced" (RFC 3168 §5).
const ECN: u8 = 0b11;
const CE: u8 = 0b11;

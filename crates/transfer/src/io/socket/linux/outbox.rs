//! Sends with `sendmmsg` if the socket is connected, and with `sendmsg` to an address.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use nix::sys::socket::{ControlMessage, MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg, sendmsg};

use super::super::outbox::{Batch, MESSAGES};

/// Sends messages of a batch. Returns the number of messages that were sent, at least one.
pub(in super::super) fn send(
    batch: &Batch<'_>,
    socket: BorrowedFd<'_>,
    to: Option<&SockaddrStorage>,
) -> nix::Result<usize> {
    let segment = batch.segment.unwrap_or_default();
    let control = [ControlMessage::UdpGsoSegments(&segment)];
    let control = if batch.segment.is_some() { &control[..] } else { &[] };
    let Some(to) = to else { return send_connected(batch, socket.as_raw_fd(), control) };
    let [first, ..] = &batch.messages;
    sendmsg(socket.as_raw_fd(), first, control, MsgFlags::MSG_NOSIGNAL, Some(to)).map(|_| 1)
}

fn send_connected(batch: &Batch<'_>, socket: RawFd, control: &[ControlMessage<'_>]) -> nix::Result<usize> {
    HEADERS.with_borrow_mut(|headers| {
        let headers = if control.is_empty() { &mut headers.plain } else { &mut headers.cut };
        sendmmsg(socket, headers, batch.messages(), NOWHERE, control, MsgFlags::MSG_NOSIGNAL)
            .map(Iterator::count)
    })
}

/// Memory for the headers of the messages of `sendmmsg`. The headers contain pointers, so they
/// cannot be moved to a different thread with the socket. Each sending thread has its own headers,
/// 10 KiB, and allocates them once.
struct Headers {
    /// Headers without control messages, because the kernel would refuse an empty control message.
    plain: MultiHeaders<()>,
    /// Headers with the control message that contains the length of segments.
    cut: MultiHeaders<()>,
}

thread_local! {
    static HEADERS: RefCell<Headers> = RefCell::new(Headers {
        plain: MultiHeaders::preallocate(MESSAGES, None),
        cut: MultiHeaders::preallocate(MESSAGES, Some(nix::cmsg_space!(u16))),
    });
}

/// Give no addresses, because each message goes to the connected peer.
const NOWHERE: [Option<()>; MESSAGES] = [None; MESSAGES];

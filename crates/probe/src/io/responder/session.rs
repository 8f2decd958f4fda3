//! The responder's end of a session, and of the datagrams.

use std::io::{self, Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::super::clock::TICK;
use super::super::connection::Wire;
use super::super::{kernel, payload};
use super::consent::{Agreement, Wish};
use super::grants::SessionLeave;
use super::{Bulk, Limits, Shared, datagrams as mail, iperf3};
use crate::plan::Direction;
use crate::wire::{
    DATAGRAM_BYTES, Datagram, DatagramKind, Declined, Done, EXCHANGE_BYTES, REQUEST_BYTES, Reply, Request,
};

/// Serves the requests of `peer` until the client closes, something is declined, or a limit is reached.
pub(super) fn session(
    wire: &mut Wire,
    peer: IpAddr,
    caller: Option<&str>,
    shared: &Shared,
) -> io::Result<()> {
    let leave = SessionLeave::new(peer, shared);
    let mut bytes_left = shared.limits.session_bytes_max;
    loop {
        let frame = wire.read_frame::<REQUEST_BYTES>()?;
        let request = Request::decode(&frame).map_err(|_| Declined::Malformed);
        let served =
            request.and_then(|request| check(request, wire.is_tls(), bytes_left, shared).map(|()| request));
        let request = match served {
            Ok(request) => request,
            Err(declined) => return decline(wire, declined, shared),
        };
        match request {
            Request::Rtt { n } => {
                ready(wire, shared.is_loaded().into())?;
                echo(wire, n, &shared.limits)?;
            }
            Request::RttNagle { n } => {
                ready(wire, 0)?;
                echo_late(wire, n, &shared.limits)?;
            }
            Request::Goodput { direction, bytes } => {
                let place = match Place::take(&Wish { caller, request }, shared) {
                    Ok(place) => place,
                    Err(declined) => return decline(wire, declined, shared),
                };
                ready(wire, 0)?;
                bytes_left -= bytes;
                let done = transfer(wire, direction, bytes, &shared.limits)?;
                // Given back first: the client may begin its next transfer as soon as it has read this.
                place.give_back(bytes);
                wire.write_all(&done.encode())?;
            }
            Request::Datagrams { n } => {
                ready(wire, leave.give(n))?;
            }
            Request::Iperf3 { ms, .. } => {
                let place = match Place::take(&Wish { caller, request }, shared) {
                    Ok(place) => place,
                    Err(declined) => return decline(wire, declined, shared),
                };
                return iperf3::serve(wire, ms, place, shared);
            }
            Request::Stream { ms, bytes_max } => {
                let mut place = match Place::take(&Wish { caller, request }, shared) {
                    Ok(place) => place,
                    Err(declined) => return decline(wire, declined, shared),
                };
                ready(wire, 0)?;
                // A peer that has the place and is silent keeps all others out.
                wire.set_idle(shared.limits.idle.min(place.agreement.grace));
                let bytes = receive_to_end(wire, ms, bytes_max, &shared.limits, &mut place.agreement)?;
                place.give_back(bytes);
                // The client has closed its side: there will be no further request.
                return wire.write_all(&Done { bytes, tcp_info: None }.encode());
            }
        }
    }
}

/// Declines a request, which ends the session.
fn decline(wire: &mut Wire, declined: Declined, shared: &Shared) -> io::Result<()> {
    shared.note_declined(declined);
    wire.write_all(&Reply::Declined(declined).encode())
}

/// The one place for a transfer, and the agreement to it; what is given back by neither word nor end is so when dropped.
pub(super) struct Place<'a> {
    // In this order they are dropped: whoever finds the place free finds the transfer settled.
    pub(super) agreement: Agreement,
    _bulk: Bulk<'a>,
}

impl<'a> Place<'a> {
    fn take(wish: &Wish<'_>, shared: &'a Shared) -> Result<Self, Declined> {
        let bulk = shared.bulk().ok_or(Declined::Busy)?;
        Ok(Self { agreement: shared.agree(wish)?, _bulk: bulk })
    }

    pub(super) fn give_back(mut self, bytes: u64) {
        self.agreement.moved(bytes);
    }
}

/// Whether a request is within the limits.
fn check(request: Request, tls: bool, bytes_left: u64, shared: &Shared) -> Result<(), Declined> {
    let limits = &shared.limits;
    match request {
        _ if shared.stop.is_cancelled() => Err(Declined::Stopping),
        // Through TLS only the round trip is a quantity.
        Request::RttNagle { .. }
        | Request::Goodput { .. }
        | Request::Datagrams { .. }
        | Request::Stream { .. }
        | Request::Iperf3 { .. }
            if tls =>
        {
            Err(Declined::NotServed)
        }
        Request::Rtt { n } | Request::RttNagle { n } | Request::Datagrams { n } if limits.count_max < n => {
            Err(Declined::TooLarge { limit: limits.count_max.into() })
        }
        Request::Goodput { bytes, .. }
        | Request::Stream { bytes_max: bytes, .. }
        | Request::Iperf3 { bytes_max: bytes, .. }
            if limits.transfer_bytes_max < bytes =>
        {
            Err(Declined::TooLarge { limit: limits.transfer_bytes_max })
        }
        Request::Stream { ms, .. } | Request::Iperf3 { ms, .. } if limits.stream.as_millis() < ms.into() => {
            Err(Declined::TooLarge { limit: u64::try_from(limits.stream.as_millis()).unwrap_or(u64::MAX) })
        }
        Request::Goodput { bytes, .. }
        | Request::Stream { bytes_max: bytes, .. }
        | Request::Iperf3 { bytes_max: bytes, .. }
            if bytes_left < bytes =>
        {
            Err(Declined::Spent)
        }
        Request::Datagrams { .. } if !shared.serves_datagrams => Err(Declined::NotServed),
        _ => Ok(()),
    }
}

pub(super) fn ready(wire: &mut Wire, nonce: u64) -> io::Result<()> {
    wire.write_all(&Reply::Ready { nonce }.encode())
}

fn echo(wire: &mut Wire, n: u32, limits: &Limits) -> io::Result<()> {
    let hurry = Hurry::of_exchanges(limits);
    for made in 0..n {
        let exchange = wire.read_frame::<EXCHANGE_BYTES>()?;
        wire.write_all(&exchange)?;
        hurry.check(made.into())?;
    }
    Ok(())
}

/// Answers only when both bytes are there, and lets acknowledgements wait for that answer, as the
/// kernel does on its own once it takes a connection for an interactive one.
fn echo_late(wire: &mut Wire, n: u32, limits: &Limits) -> io::Result<()> {
    let hurry = Hurry::of_exchanges(limits);
    for made in 0..n {
        delay_acknowledgements(wire)?;
        let exchange = wire.read_frame::<EXCHANGE_BYTES>()?;
        wire.write_all(&exchange)?;
        hurry.check(made.into())?;
    }
    Ok(())
}

/// Linux leaves that mode by itself after each acknowledgement that had to go alone (tcp(7), `TCP_QUICKACK`).
#[cfg(target_os = "linux")]
fn delay_acknowledgements(wire: &Wire) -> io::Result<()> {
    socket2::SockRef::from(wire.tcp()).set_tcp_quickack(false)
}

#[cfg(not(target_os = "linux"))]
fn delay_acknowledgements(_wire: &Wire) -> io::Result<()> {
    Ok(())
}

/// Bytes are counted where they arrive; the sender's kernel says what held it back.
fn transfer(wire: &mut Wire, direction: Direction, bytes: u64, limits: &Limits) -> io::Result<Done> {
    let hurry = &Hurry::of_bytes(limits);
    match direction {
        Direction::Up => {
            receive(wire, bytes, limits.receive_block_bytes, hurry)?;
            Ok(Done { bytes, tcp_info: None })
        }
        Direction::Down => {
            let _begin = wire.read_frame::<EXCHANGE_BYTES>()?;
            let began = Instant::now();
            send(wire, bytes, hurry)?;
            Ok(Done { bytes, tcp_info: kernel::bulk_tcp_info(wire.tcp(), began.elapsed().as_secs_f64()) })
        }
    }
}

fn receive(wire: &mut Wire, bytes: u64, block_bytes: usize, hurry: &Hurry) -> io::Result<()> {
    let mut buffer = vec![0; block_bytes.clamp(1, payload::BLOCK_BYTES)];
    let mut left = bytes;
    while 0 < left {
        let most = payload::at_most(buffer.len(), left);
        match wire.read(&mut buffer[..most])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left -= read as u64,
        }
        hurry.check(bytes - left)?;
    }
    Ok(())
}

/// Takes what comes until the client closes its side; how many bytes it was.
///
/// # Errors
/// `TimedOut` when it does not end within the time asked for and the grace of a transfer, and
/// `InvalidData` when more comes than was asked for.
fn receive_to_end(
    wire: &mut Wire,
    ms: u32,
    bytes_max: u64,
    limits: &Limits,
    agreement: &mut Agreement,
) -> io::Result<u64> {
    let mut buffer = vec![0; limits.receive_block_bytes.clamp(1, payload::BLOCK_BYTES)];
    let grace = limits.transfer_grace.min(agreement.grace);
    let ends = Instant::now() + Duration::from_millis(ms.into()) + grace;
    let mut received = 0;
    loop {
        match wire.read(&mut buffer)? {
            0 => return Ok(received),
            read => received += read as u64,
        }
        agreement.moved(received);
        if bytes_max < received {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if ends < Instant::now() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn send(wire: &mut Wire, bytes: u64, hurry: &Hurry) -> io::Result<()> {
    let block = payload::block();
    let mut left = bytes;
    while 0 < left {
        left -= wire.write(payload::next(&block, left))? as u64;
        hurry.check(bytes - left)?;
    }
    Ok(())
}

/// How slow a peer may be: there is one place for transfers and there are few for sessions, which a
/// slow peer would keep.
struct Hurry {
    began: Instant,
    grace_s: f64,
    /// Time that each byte or exchange may take beyond the grace.
    each_s: f64,
}

impl Hurry {
    fn of_bytes(limits: &Limits) -> Self {
        Self::begin(limits, 8.0 / limits.transfer_bit_s_min as f64)
    }

    fn of_exchanges(limits: &Limits) -> Self {
        Self::begin(limits, limits.exchange.as_secs_f64())
    }

    fn begin(limits: &Limits, each_s: f64) -> Self {
        Self { began: Instant::now(), grace_s: limits.transfer_grace.as_secs_f64(), each_s }
    }

    /// # Errors
    /// `TimedOut` when `moved` bytes or exchanges are too few by now.
    fn check(&self, moved: u64) -> io::Result<()> {
        let allowed_s = self.grace_s + moved as f64 * self.each_s;
        if allowed_s < self.began.elapsed().as_secs_f64() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

/// Makes the socket's calls end now and then, so that a stop is noticed.
pub(super) fn prepare_datagrams(udp: &UdpSocket) -> io::Result<()> {
    mail::prepare(udp)?;
    udp.set_nonblocking(false)?;
    udp.set_read_timeout(Some(TICK))?;
    udp.set_write_timeout(Some(TICK))
}

/// Answers the datagrams of those who have leave, with the same number of bytes, and nobody else; `turn` is called
/// in each turn, a few times a second at least.
pub(super) fn datagrams(udp: &UdpSocket, shared: &Shared, turn: &dyn Fn()) {
    let mut bytes = [0; DATAGRAM_BYTES + 1];
    while !shared.stop.is_cancelled() {
        turn();
        let (read, envelope) = match mail::receive(udp, &mut bytes) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            // An error that comes at once and stays (an interface gone) must not spin.
            Err(_) => {
                thread::sleep(TICK);
                continue;
            }
        };
        let Ok(question) = Datagram::decode(&bytes[..read]) else { continue };
        if question.kind == DatagramKind::Question && shared.leaves().take(question.nonce, envelope.from.ip())
        {
            let answer = Datagram { kind: DatagramKind::Answer, ..question };
            // An answer that cannot be sent is a lost datagram, which is what is measured.
            let _ = mail::answer(udp, &answer.encode(), &envelope);
        }
    }
}

//! From a host name to a connection: resolving and the TCP handshake, both within the deadline.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use barograph_forecast::Failure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::clock::Clock;
use crate::{ProbeError, Target};

/// An open connection and how long its handshake took.
pub(super) struct Dialled {
    pub(super) tcp: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) handshake_s: f64,
}

/// Resolves the target and connects to the first of its addresses that answers.
pub(super) fn dial(target: &Target, clock: &Clock) -> Result<Dialled, ProbeError> {
    connect_any(&resolve(target, clock)?, clock)
}

/// The addresses of the target, in the system's order.
///
/// The system's resolver cannot be interrupted, so it runs on a thread of its own that is left
/// behind when the deadline comes first.
pub(super) fn resolve(target: &Target, clock: &Clock) -> Result<Vec<SocketAddr>, ProbeError> {
    let (host, port) = (target.host().to_string(), target.port());
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let doing = format!("resolving {host}");
    let place = ResolverPlace::take().ok_or_else(|| {
        clock.fail(Failure::Local, format!("{doing}: {RESOLVERS_MAX} earlier questions are still unanswered"))
    })?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("resolve".to_string())
        .spawn(move || {
            let _place = place;
            let answer = (host.as_str(), port).to_socket_addrs();
            // Nobody listens any more after the deadline; that is no error here.
            let _ = sender.send(answer.map(Iterator::collect::<Vec<_>>));
        })
        .map_err(|error| clock.io(&doing, &error))?;
    loop {
        let tick = clock.tick().map_err(|error| clock.io(&doing, &error))?;
        match receiver.recv_timeout(tick) {
            Ok(Ok(addresses)) if !addresses.is_empty() => return Ok(addresses),
            Ok(Ok(_)) => return Err(clock.fail(Failure::Unresolved, format!("{doing}: it has no address"))),
            Ok(Err(error)) => return Err(clock.fail(Failure::Unresolved, format!("{doing}: {error}"))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(clock.fail(Failure::Local, format!("{doing}: the resolver's thread ended")));
            }
        }
    }
}

/// Tries the addresses in turn; each gets its share of the time that is left.
pub(super) fn connect_any(addresses: &[SocketAddr], clock: &Clock) -> Result<Dialled, ProbeError> {
    let mut last = None;
    for (address, still) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let doing = format!("connecting to {address}");
        let left = clock.left().map_err(|error| clock.io(&doing, &error))?;
        let share = clock.within(left / u32::try_from(still).unwrap_or(u32::MAX));
        match connect(*address, &share) {
            Ok(dialled) => return Ok(dialled),
            Err(error) => last = Some(share.io(&doing, &error)),
        }
    }
    Err(last.unwrap_or_else(|| clock.fail(Failure::Unresolved, "the target has no address")))
}

/// One TCP handshake, timed from the SYN to the kernel's word that it is done.
pub(super) fn connect(address: SocketAddr, clock: &Clock) -> io::Result<Dialled> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let peer = address.into();
    let began = Instant::now();
    match socket.connect(&peer) {
        Err(error) if in_progress(&error) => until_writable(&socket, clock)?,
        done => done?,
    }
    let handshake_s = began.elapsed().as_secs_f64();
    match socket.take_error()? {
        // Refused during the handshake is `ConnectionRefused`; a reset comes after it is complete
        // (RFC 9293 §3.10.7), and what is done next on the connection will meet it.
        Some(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    socket.set_nonblocking(false)?;
    Ok(Dialled { tcp: socket.into(), address, handshake_s })
}

fn in_progress(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(nix::libc::EINPROGRESS)
}

fn until_writable(socket: &Socket, clock: &Clock) -> io::Result<()> {
    loop {
        let tick = PollTimeout::try_from(clock.tick()?).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], tick) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Questions to the system's resolver that may be open at once: one that hangs holds a thread for
/// as long as the resolver's own patience (30 s and more).
const RESOLVERS_MAX: usize = 32;
static RESOLVERS: AtomicUsize = AtomicUsize::new(0);

/// A place among the open questions, given back when dropped.
struct ResolverPlace;

impl ResolverPlace {
    fn take() -> Option<Self> {
        let more = |open| (open < RESOLVERS_MAX).then_some(open + 1);
        RESOLVERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for ResolverPlace {
    fn drop(&mut self) {
        RESOLVERS.fetch_sub(1, Ordering::Relaxed);
    }
}

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

use super::super::clock::Clock;
use crate::{ProbeError, Target};

/// An open connection and the address that it goes to.
pub(super) struct Dialled {
    pub(super) tcp: TcpStream,
    pub(super) address: SocketAddr,
}

/// The answer of an address to a SYN, and how long it took.
pub(super) struct Answered {
    pub(super) address: SocketAddr,
    /// Seconds from the SYN to its answer.
    pub(super) after_s: f64,
    /// The open connection; `None` if the connection was refused.
    ///
    /// A refusal is a RST of the target, or an ICMP "port unreachable" of the target or of a firewall before it:
    /// Linux reports both as `ECONNREFUSED`. Other ICMP errors (no route, no such host) are errors.
    pub(super) open: Option<TcpStream>,
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

/// Connects to the first of the addresses that takes the connection.
///
/// # Errors
/// When none does; a refusal is a failure here.
pub(super) fn connect_any(addresses: &[SocketAddr], clock: &Clock) -> Result<Dialled, ProbeError> {
    let Answered { address, open, .. } = answer_of_any(addresses, clock)?;
    let refused = || io::Error::from_raw_os_error(nix::libc::ECONNREFUSED);
    let tcp = open.ok_or_else(|| clock.io(&connecting(address), &refused()))?;
    Ok(Dialled { tcp, address })
}

/// Tries the addresses in turn, each with its share of the time that is left: the answer of the first that takes
/// the connection, else of the first that refuses it.
///
/// # Errors
/// When no address answers.
pub(super) fn answer_of_any(addresses: &[SocketAddr], clock: &Clock) -> Result<Answered, ProbeError> {
    let (mut refused, mut last) = (None, None);
    for (address, still) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let doing = connecting(*address);
        let left = clock.left().map_err(|error| clock.io(&doing, &error))?;
        let share = clock.within(left / u32::try_from(still).unwrap_or(u32::MAX));
        match answer_of(*address, &share) {
            Ok(answered) if answered.open.is_some() => return Ok(answered),
            Ok(answered) => refused = refused.or(Some(answered)),
            Err(error) => last = Some(share.io(&doing, &error)),
        }
    }
    let none = || last.unwrap_or_else(|| clock.fail(Failure::Unresolved, "the target has no address"));
    refused.ok_or_else(none)
}

/// Sends a SYN and waits for its answer, timed from the SYN to the kernel's word that the answer is there.
///
/// # Errors
/// When no answer came, or an error that is none (no route to the host).
pub(super) fn answer_of(address: SocketAddr, clock: &Clock) -> io::Result<Answered> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let peer = address.into();
    let began = Instant::now();
    // On loopback a refusal comes from the call itself.
    let at_once = match socket.connect(&peer) {
        Err(error) if in_progress(&error) => until_writable(&socket, clock).map(|()| None)?,
        done => done.err(),
    };
    let after_s = began.elapsed().as_secs_f64();
    let error = match at_once {
        Some(error) => Some(error),
        None => socket.take_error()?,
    };
    match error {
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Ok(Answered { address, after_s, open: None });
        }
        // Refused during the handshake is `ConnectionRefused`; a reset comes after it is complete
        // (RFC 9293 §3.10.7), and what is done next on the connection will meet it.
        Some(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    socket.set_nonblocking(false)?;
    Ok(Answered { address, after_s, open: Some(socket.into()) })
}

fn connecting(address: SocketAddr) -> String {
    format!("connecting to {address}")
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

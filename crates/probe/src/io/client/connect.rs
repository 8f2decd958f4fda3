//! Connection setup: resolve the name, connect, TLS, Upgrade; each step within the deadline.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use barograph_forecast::Failure;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, Socket, Type};

use super::context::Context;
use super::trust;
use crate::io::clock::Clock;
use crate::io::connection::Connection;
use crate::io::http;
use crate::signed::{self, Challenge};
use crate::target::Scheme;
use crate::wire::{self, Declined, Reply, Request};
use crate::{ProbeError, Target, token};

/// An upgraded connection to a station.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) address: SocketAddr,
}

impl Session {
    /// Sends a request and waits for the station's reply; returns the number in it.
    pub(super) fn request(&mut self, request: Request, clock: &Clock) -> Result<u64, ProbeError> {
        let sent = self.connection.write_all(&request.encode());
        let reply = sent.and_then(|()| self.connection.read_frame::<{ wire::REPLY_BYTES }>());
        let reply = reply.map_err(|error| clock.io("asking for the experiment", &error))?;
        match Reply::decode(&reply) {
            Ok(Reply::Ready { nonce }) => Ok(nonce),
            Ok(Reply::Declined(declined)) => Err(clock.declined(declined)),
            Err(error) => Err(clock.fail(Failure::Garbage, error.to_string())),
        }
    }
}

/// A server's response to the Upgrade.
pub(super) enum Answer {
    /// A station with an open session and, over TLS, a token for a plain connection.
    Upgraded(Session, Option<String>),
    /// A station over TLS that only gives a token.
    Token(SocketAddr, String),
    /// A station that refuses, with the HTTP status and the challenge to sign.
    Refused(u16, Option<Challenge>),
    /// A server without the probe protocol, with the HTTP status.
    Plain(u16),
}

/// Opens a session over plain TCP, whatever the target's scheme is.
///
/// For `https`, the Upgrade over TLS only authorises: its token opens a second, plain connection to
/// the same address, so that the experiment measures the network and not the cipher.
pub(super) fn open_plain(target: &Target, context: &Context, clock: &Clock) -> Result<Session, ProbeError> {
    match ask(context.deadline, target, context, clock)? {
        Answer::Upgraded(session, None) if !session.connection.is_tls() => Ok(session),
        Answer::Upgraded(Session { address, .. }, Some(token)) | Answer::Token(address, token) => {
            let dialled = connect_any(&[address], clock)?;
            let connection = plain(dialled.tcp, clock)?;
            let authorization = format!("{} {token}", wire::TOKEN_SCHEME);
            session(upgrade(connection, address, target, Some(&authorization), clock)?, clock)
        }
        Answer::Upgraded(..) => {
            Err(clock.fail(Failure::Garbage, "the station gave no token for a plain connection"))
        }
        other => session(other, clock),
    }
}

/// Opens a session over the TLS connection itself.
pub(super) fn open_tls(target: &Target, context: &Context, clock: &Clock) -> Result<Session, ProbeError> {
    if target.scheme() != Scheme::Https {
        return Err(clock.fail(Failure::Local, format!("{target} is no https:// target")));
    }
    match ask(context.deadline, target, context, clock)? {
        Answer::Token(..) => Err(clock.declined(Declined::NotServed)),
        other => session(other, clock),
    }
}

/// Returns the session, or an error for every other answer.
fn session(answer: Answer, clock: &Clock) -> Result<Session, ProbeError> {
    match answer {
        Answer::Upgraded(session, _) => Ok(session),
        Answer::Refused(status, _) => Err(refused(status, clock)),
        Answer::Plain(status) => {
            Err(clock.fail(Failure::Garbage, format!("the target is no Barograph station (HTTP {status})")))
        }
        Answer::Token(..) => Err(clock.fail(Failure::Garbage, "the station gave a second token")),
    }
}

/// The failure for a station's refusal with this HTTP status.
pub(super) fn refused(status: u16, clock: &Clock) -> ProbeError {
    let why = match status {
        401 | 403 => "a token (barograph probe --token) or a signature is needed, or the one given is wrong",
        429 | 503 => "it has no place for another probe session",
        _ => "it does not answer probes",
    };
    clock.fail(Failure::Declined, format!("the station declines (HTTP {status}): {why}"))
}

/// Connects with the target's scheme and requests the Upgrade. The server must answer within
/// `patience` after the connection is open.
///
/// The first request carries no token, because a server that is not a station must not receive it.
/// Only a server that answers `401` or `403` with the protocol's `Upgrade` header receives the
/// token, or the signature that it requires, in a second request.
pub(super) fn ask(
    patience: Duration,
    target: &Target,
    context: &Context,
    clock: &Clock,
) -> Result<Answer, ProbeError> {
    let authorization = match &context.token {
        Some(token) if http::is_header_word(token) => Some(format!("Bearer {token}")),
        Some(_) => {
            return Err(clock.fail(Failure::Local, "the token has characters that no header can carry"));
        }
        None => None,
    };
    let dialled = dial(target, clock)?;
    let clock = clock.within(patience);
    let address = dialled.address;
    // The scheme without a challenge is not a valid credential (a server answers 401, RFC 9110
    // §11.6.2) and reveals nothing.
    let first = (context.signs_first && context.sign.is_some()).then_some(signed::SCHEME);
    let connection = secure(dialled.tcp, target, context, &clock)?;
    let answer = upgrade(connection, address, target, first, &clock)?;
    let Answer::Refused(401 | 403, challenge) = &answer else { return Ok(answer) };
    let signed = context.sign.as_ref().zip(challenge.as_ref()).and_then(|(sign, challenge)| {
        sign.answer(challenge, "GET", wire::PATH).map(|credentials| credentials.header())
    });
    let Some(authorization) = signed.or(authorization) else { return Ok(answer) };
    let again = connect_any(&[address], &clock)?;
    let connection = secure(again.tcp, target, context, &clock)?;
    upgrade(connection, address, target, Some(&authorization), &clock)
}

/// Requests the Upgrade on an open connection.
fn upgrade(
    mut connection: Connection,
    address: SocketAddr,
    target: &Target,
    authorization: Option<&str>,
    clock: &Clock,
) -> Result<Answer, ProbeError> {
    let authorization = authorization.map_or_else(String::new, |value| format!("Authorization: {value}\r\n"));
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {}\r\n{authorization}\r\n",
        wire::PATH,
        target.authority(),
        wire::UPGRADE,
    );
    let answer = connection
        .write_all(request.as_bytes())
        .and_then(|()| http::read_head(&mut connection, http::parse_response, || ()));
    let (head, rest) =
        answer.map_err(|error| clock.io("asking for an Upgrade to the probe protocol", &error))?;
    let token = head.probe_token.clone().filter(|token| token::from_hex(token).is_some());
    match (head.status, token) {
        // The client sends first, so bytes after the head violate the protocol.
        (101, token) if head.is_station() && rest.is_empty() => Ok(Answer::Upgraded(
            Session { connection, address },
            token.filter(|_| target.scheme() == Scheme::Https),
        )),
        (101, _) if head.is_station() => {
            Err(clock.fail(Failure::Garbage, "the server speaks before it is asked"))
        }
        (101, _) => Err(clock.fail(Failure::Garbage, "the server upgrades to another protocol")),
        (200..=299, Some(token)) if head.is_station() && connection.is_tls() => {
            Ok(Answer::Token(address, token))
        }
        (status, _) if head.is_station() => Ok(Answer::Refused(status, head.challenge)),
        (status, _) => Ok(Answer::Plain(status)),
    }
}

/// Connects to a server with the target's scheme: TCP, or TLS over TCP.
pub(super) fn open_web(target: &Target, context: &Context, clock: &Clock) -> Result<Connection, ProbeError> {
    secure(dial(target, clock)?.tcp, target, context, clock)
}

/// Wraps the TCP stream for the target's scheme; with TLS, after the handshake.
fn secure(
    tcp: TcpStream,
    target: &Target,
    context: &Context,
    clock: &Clock,
) -> Result<Connection, ProbeError> {
    match target.scheme() {
        Scheme::Https => tls(tcp, target, context, clock),
        Scheme::Http | Scheme::Address => plain(tcp, clock),
    }
}

fn plain(tcp: TcpStream, clock: &Clock) -> Result<Connection, ProbeError> {
    Connection::plain(tcp, clock).map_err(|error| clock.io("setting the connection up", &error))
}

fn tls(tcp: TcpStream, target: &Target, context: &Context, clock: &Clock) -> Result<Connection, ProbeError> {
    let doing = format!("TLS with {}", target.host());
    let untrusted = |message: String| clock.fail(Failure::Untrusted, format!("{doing}: {message}"));
    let config = match &context.tls {
        Some(config) => Arc::clone(config),
        None => trust::system().map_err(|message| clock.fail(Failure::Local, message))?,
    };
    let name = ServerName::try_from(target.host().to_string())
        .map_err(|_| untrusted("the host is no name that a certificate can have".to_string()))?;
    let state = ClientConnection::new(config, name).map_err(|error| untrusted(error.to_string()))?;
    Connection::client(tcp, state, clock).map_err(|error| {
        // rustls wraps its own errors in an I/O error.
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(
                cause @ (rustls::Error::InvalidMessage(_)
                | rustls::Error::InappropriateMessage { .. }
                | rustls::Error::InappropriateHandshakeMessage { .. }),
            ) => clock.fail(Failure::Garbage, format!("{doing}: the server does not speak it ({cause})")),
            Some(cause) => untrusted(cause.to_string()),
            None => clock.io(&doing, &error),
        }
    })
}

/// An open connection and its remote address.
pub(super) struct Dialled {
    pub(super) tcp: TcpStream,
    pub(super) address: SocketAddr,
}

/// Response of an address to a SYN, with the time it took.
pub(super) struct Answered {
    pub(super) address: SocketAddr,
    /// Seconds from the SYN to its response.
    pub(super) after_s: f64,
    /// The open connection; `None` if the connection was refused.
    ///
    /// A refusal is a RST from the target, or an ICMP "port unreachable" from the target or a
    /// firewall before it: Linux reports both as `ECONNREFUSED`. Other ICMP errors (no route, no
    /// such host) are errors.
    pub(super) open: Option<TcpStream>,
}

/// Resolves the target and connects to the first of its addresses that accepts.
pub(super) fn dial(target: &Target, clock: &Clock) -> Result<Dialled, ProbeError> {
    connect_any(&resolve(target, clock)?, clock)
}

/// Addresses of the target, in the system's order.
///
/// The system's resolver cannot be interrupted, so it runs on its own thread. After the deadline
/// the caller leaves that thread behind.
pub(super) fn resolve(target: &Target, clock: &Clock) -> Result<Vec<SocketAddr>, ProbeError> {
    let (host, port) = (target.host().to_string(), target.port());
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let doing = format!("resolving {host}");
    let slot = ResolverSlot::take().ok_or_else(|| {
        clock.fail(Failure::Local, format!("{doing}: {RESOLVERS_MAX} earlier questions are still unanswered"))
    })?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("resolve".to_string())
        .spawn(move || {
            let _slot = slot;
            let answer = (host.as_str(), port).to_socket_addrs();
            // After the deadline the receiver is gone, which is not an error.
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

/// Connects to the first of the addresses that accepts the connection.
///
/// # Errors
/// If none accepts; a refusal is a failure here.
pub(super) fn connect_any(addresses: &[SocketAddr], clock: &Clock) -> Result<Dialled, ProbeError> {
    let Answered { address, open, .. } = answer_of_any(addresses, clock)?;
    let refused = || io::Error::from_raw_os_error(nix::libc::ECONNREFUSED);
    let tcp = open.ok_or_else(|| clock.io(&connecting(address), &refused()))?;
    Ok(Dialled { tcp, address })
}

/// Tries the addresses one after the other, each with an equal share of the remaining time. Returns
/// the first that accepts the connection, or else the first that refuses it.
///
/// # Errors
/// If no address responds.
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

/// Sends a SYN and waits for the response, timed from the SYN until the kernel reports the
/// response.
///
/// # Errors
/// If no response came, or the system reports another error (no route to the host).
pub(super) fn answer_of(address: SocketAddr, clock: &Clock) -> io::Result<Answered> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let peer = address.into();
    let began = Instant::now();
    // On loopback `connect` itself may return the refusal.
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
        // A refusal during the handshake is `ConnectionRefused`. A reset comes after the handshake
        // (RFC 9293 §3.10.7), and the next operation on the connection reports it.
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

/// Maximum number of open queries to the system's resolver. A hanging query occupies a thread until
/// the resolver's own timeout (30 s and more).
const RESOLVERS_MAX: usize = 32;
static RESOLVERS: AtomicUsize = AtomicUsize::new(0);

/// Counts one open query until it is dropped.
struct ResolverSlot;

impl ResolverSlot {
    fn take() -> Option<Self> {
        let more = |open| (open < RESOLVERS_MAX).then_some(open + 1);
        RESOLVERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for ResolverSlot {
    fn drop(&mut self) {
        RESOLVERS.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Sets up a connection: resolves the name, connects, does the TLS handshake and requests the
//! Upgrade. Each step ends at the deadline at the latest.

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

use super::context::ProbeContext;
use super::trust;
use crate::io::connection::Connection;
use crate::io::deadline::Deadline;
use crate::io::http;
use crate::signed::{self, Challenge};
use crate::target::Scheme;
use crate::wire::{self, DeclineReason, Reply, Request};
use crate::{ProbeError, Target, token};

/// An upgraded connection to a station.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) address: SocketAddr,
}

impl Session {
    /// Sends a request and waits for the station's reply; returns the number in the reply.
    pub(super) fn request(&mut self, request: Request, deadline: &Deadline) -> Result<u64, ProbeError> {
        let sent = self.connection.write_all(&request.encode());
        let reply = sent.and_then(|()| self.connection.read_frame::<{ wire::REPLY_BYTES }>());
        let reply = reply.map_err(|error| deadline.io("requesting the experiment", &error))?;
        match Reply::decode(&reply) {
            Ok(Reply::Ready { nonce }) => Ok(nonce),
            Ok(Reply::Declined(declined)) => Err(deadline.declined(declined)),
            Err(error) => Err(deadline.fail(Failure::InvalidResponse, error.to_string())),
        }
    }
}

/// A server's response to the Upgrade.
pub(super) enum UpgradeResponse {
    /// A station accepted the Upgrade: the open session and, over TLS, a token for a plain
    /// connection.
    Upgraded(Session, Option<String>),
    /// A station gave a token over TLS, but no session: the station's address and the token.
    Token(SocketAddr, String),
    /// A station refused the Upgrade: the HTTP status and the challenge to sign.
    Refused(u16, Option<Challenge>),
    /// The server does not have the probe protocol: the HTTP status.
    Plain(u16),
}

/// Opens a session over plain TCP, whatever the target's scheme is.
///
/// For `https`, the Upgrade over TLS only authorises this client. The token from the station opens
/// a separate connection without TLS to the same address. So the experiment measures the network
/// and not the cipher.
pub(super) fn open_plain(
    target: &Target,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<Session, ProbeError> {
    match request_upgrade(context.deadline, target, context, deadline)? {
        UpgradeResponse::Upgraded(session, None) if !session.connection.is_tls() => Ok(session),
        UpgradeResponse::Upgraded(Session { address, .. }, Some(token))
        | UpgradeResponse::Token(address, token) => {
            let connected = connect_any(&[address], deadline)?;
            let connection = plain(connected.tcp, deadline)?;
            let authorization = format!("{} {token}", wire::TOKEN_SCHEME);
            session(upgrade(connection, address, target, Some(&authorization), deadline)?, deadline)
        }
        UpgradeResponse::Upgraded(..) => {
            Err(deadline.fail(Failure::InvalidResponse, "the station gave no token for a plain connection"))
        }
        other => session(other, deadline),
    }
}

/// Opens a session over the TLS connection itself.
pub(super) fn open_tls(
    target: &Target,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<Session, ProbeError> {
    if target.scheme() != Scheme::Https {
        return Err(deadline
            .fail(Failure::Local, format!("{target} is not an https:// target, which `rtt_tls` needs")));
    }
    match request_upgrade(context.deadline, target, context, deadline)? {
        UpgradeResponse::Token(..) => Err(deadline.declined(DeclineReason::NotServed)),
        other => session(other, deadline),
    }
}

/// Returns the session of [`UpgradeResponse::Upgraded`], or an error for every other response.
fn session(answer: UpgradeResponse, deadline: &Deadline) -> Result<Session, ProbeError> {
    match answer {
        UpgradeResponse::Upgraded(session, _) => Ok(session),
        UpgradeResponse::Refused(status, _) => Err(refused(status, deadline)),
        UpgradeResponse::Plain(status) => Err(deadline.fail(
            Failure::InvalidResponse,
            format!("the target is not a Barograph station (HTTP {status})"),
        )),
        UpgradeResponse::Token(..) => {
            Err(deadline.fail(Failure::InvalidResponse, "the station gave a second token"))
        }
    }
}

/// The failure for a station's refusal with this HTTP status.
pub(super) fn refused(status: u16, deadline: &Deadline) -> ProbeError {
    let why = match status {
        401 | 403 => "it needs a valid token (`barograph probe --token TOKEN`) or a valid signature",
        429 | 503 => "too many probe sessions are open there; retry later",
        _ => "it does not answer probes; check that its responder is enabled",
    };
    deadline.fail(Failure::Declined, format!("the station declined (HTTP {status}): {why}"))
}

/// Connects with the target's scheme and requests the Upgrade. The server must answer within
/// `response_max` after the connection is open.
///
/// The first request carries no token, because a server that is not a station must not receive it.
/// Only a server that answers `401` or `403` with the protocol's `Upgrade` header receives the
/// token, or the signature that it requires, in a second request.
pub(super) fn request_upgrade(
    response_max: Duration,
    target: &Target,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<UpgradeResponse, ProbeError> {
    let authorization = match &context.token {
        Some(token) if http::is_header_word(token) => Some(format!("Bearer {token}")),
        Some(_) => {
            let message = "the token contains characters that are not allowed in an HTTP header; \
                           use visible ASCII without spaces";
            return Err(deadline.fail(Failure::Local, message));
        }
        None => None,
    };
    let connected = dial(target, deadline)?;
    let deadline = deadline.within(response_max);
    let address = connected.address;
    // The header of the first request contains only the name of the authentication scheme. This
    // name is not a valid credential (a server answers 401, RFC 9110 §11.6.2) and reveals nothing.
    let first = (context.signs_first && context.sign.is_some()).then_some(signed::SCHEME);
    let connection = secure(connected.tcp, target, context, &deadline)?;
    let answer = upgrade(connection, address, target, first, &deadline)?;
    let UpgradeResponse::Refused(401 | 403, challenge) = &answer else { return Ok(answer) };
    let signed = context.sign.as_ref().zip(challenge.as_ref()).and_then(|(signer, challenge)| {
        signer.sign(challenge, "GET", wire::PATH).map(|credentials| credentials.header())
    });
    let Some(authorization) = signed.or(authorization) else { return Ok(answer) };
    let again = connect_any(&[address], &deadline)?;
    let connection = secure(again.tcp, target, context, &deadline)?;
    upgrade(connection, address, target, Some(&authorization), &deadline)
}

/// Requests the Upgrade on an open connection.
fn upgrade(
    mut connection: Connection,
    address: SocketAddr,
    target: &Target,
    authorization: Option<&str>,
    deadline: &Deadline,
) -> Result<UpgradeResponse, ProbeError> {
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
        answer.map_err(|error| deadline.io("requesting the Upgrade to the probe protocol", &error))?;
    let token = head.probe_token.clone().filter(|token| token::from_hex(token).is_some());
    match (head.status, token) {
        // The client sends first, so bytes after the head violate the protocol.
        (101, token) if head.is_station() && rest.is_empty() => Ok(UpgradeResponse::Upgraded(
            Session { connection, address },
            token.filter(|_| target.scheme() == Scheme::Https),
        )),
        (101, _) if head.is_station() => {
            Err(deadline.fail(Failure::InvalidResponse, "the server sent data before the first request"))
        }
        (101, _) => Err(deadline.fail(Failure::InvalidResponse, "the server upgraded to another protocol")),
        (200..=299, Some(token)) if head.is_station() && connection.is_tls() => {
            Ok(UpgradeResponse::Token(address, token))
        }
        (status, _) if head.is_station() => Ok(UpgradeResponse::Refused(status, head.challenge)),
        (status, _) => Ok(UpgradeResponse::Plain(status)),
    }
}

/// Connects to a server with the target's scheme: TCP, or TLS over TCP.
pub(super) fn open_web(
    target: &Target,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<Connection, ProbeError> {
    secure(dial(target, deadline)?.tcp, target, context, deadline)
}

/// Wraps the TCP stream for the target's scheme. With TLS, the handshake is complete when this
/// function returns.
fn secure(
    tcp: TcpStream,
    target: &Target,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<Connection, ProbeError> {
    match target.scheme() {
        Scheme::Https => tls(tcp, target, context, deadline),
        Scheme::Http | Scheme::Address => plain(tcp, deadline),
    }
}

fn plain(tcp: TcpStream, deadline: &Deadline) -> Result<Connection, ProbeError> {
    Connection::plain(tcp, deadline).map_err(|error| deadline.io("setting up the connection", &error))
}

fn tls(
    tcp: TcpStream,
    target: &Target,
    context: &ProbeContext,
    deadline: &Deadline,
) -> Result<Connection, ProbeError> {
    let doing = format!("TLS with {}", target.host());
    let untrusted = |message: String| deadline.fail(Failure::TlsFailed, format!("{doing}: {message}"));
    let config = match &context.tls {
        Some(config) => Arc::clone(config),
        None => trust::system().map_err(|message| deadline.fail(Failure::Local, message))?,
    };
    let name = ServerName::try_from(target.host().to_string())
        .map_err(|_| untrusted("the host is not a valid name in a certificate".to_string()))?;
    let state = ClientConnection::new(config, name).map_err(|error| untrusted(error.to_string()))?;
    Connection::client(tcp, state, deadline).map_err(|error| {
        // rustls wraps its own errors in an I/O error.
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(
                cause @ (rustls::Error::InvalidMessage(_)
                | rustls::Error::InappropriateMessage { .. }
                | rustls::Error::InappropriateHandshakeMessage { .. }),
            ) => deadline.fail(
                Failure::InvalidResponse,
                format!("{doing}: the server does not support TLS ({cause}); try http://"),
            ),
            Some(cause) => untrusted(cause.to_string()),
            None => deadline.io(&doing, &error),
        }
    })
}

/// An open connection and its remote address.
pub(super) struct TcpConnection {
    pub(super) tcp: TcpStream,
    pub(super) address: SocketAddr,
}

/// Response of an address to a SYN, with the time until the response.
pub(super) struct SynResponse {
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
pub(super) fn dial(target: &Target, deadline: &Deadline) -> Result<TcpConnection, ProbeError> {
    connect_any(&resolve(target, deadline)?, deadline)
}

/// Addresses of the target, in the system's order.
///
/// The system's resolver cannot be interrupted, so it runs on its own thread. After the deadline
/// the caller leaves that thread behind.
pub(super) fn resolve(target: &Target, deadline: &Deadline) -> Result<Vec<SocketAddr>, ProbeError> {
    let (host, port) = (target.host().to_string(), target.port());
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let doing = format!("resolving {host}");
    let slot = ResolverSlot::take().ok_or_else(|| {
        deadline.fail(
            Failure::Local,
            format!("{doing}: {RESOLVERS_MAX} earlier DNS queries are still open; check the resolver"),
        )
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
        .map_err(|error| deadline.io(&doing, &error))?;
    loop {
        let timeout = deadline.poll_timeout().map_err(|error| deadline.io(&doing, &error))?;
        match receiver.recv_timeout(timeout) {
            Ok(Ok(addresses)) if !addresses.is_empty() => return Ok(addresses),
            Ok(Ok(_)) => {
                return Err(deadline.fail(Failure::Unresolved, format!("{doing}: the name has no address")));
            }
            Ok(Err(error)) => return Err(deadline.fail(Failure::Unresolved, format!("{doing}: {error}"))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(deadline.fail(Failure::Local, format!("{doing}: the resolver's thread ended")));
            }
        }
    }
}

/// Connects to the first of the addresses that accepts the connection.
///
/// # Errors
/// If no address accepts the connection; a refused connection is an error too.
pub(super) fn connect_any(
    addresses: &[SocketAddr],
    deadline: &Deadline,
) -> Result<TcpConnection, ProbeError> {
    let SynResponse { address, open, .. } = syn_any(addresses, deadline)?;
    let refused = || io::Error::from_raw_os_error(nix::libc::ECONNREFUSED);
    let tcp = open.ok_or_else(|| deadline.io(&connecting(address), &refused()))?;
    Ok(TcpConnection { tcp, address })
}

/// Tries the addresses one after the other, each with an equal share of the remaining time. Returns
/// the response of the first address that accepts the connection. If no address accepts, returns
/// the response of the first address that refuses the connection.
///
/// # Errors
/// If no address responds.
pub(super) fn syn_any(addresses: &[SocketAddr], deadline: &Deadline) -> Result<SynResponse, ProbeError> {
    let (mut refused, mut last) = (None, None);
    for (address, still) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let doing = connecting(*address);
        let left = deadline.left().map_err(|error| deadline.io(&doing, &error))?;
        let share = deadline.within(left / u32::try_from(still).unwrap_or(u32::MAX));
        match syn(*address, &share) {
            Ok(response) if response.open.is_some() => return Ok(response),
            Ok(response) => refused = refused.or(Some(response)),
            Err(error) => last = Some(share.io(&doing, &error)),
        }
    }
    let none = || last.unwrap_or_else(|| deadline.fail(Failure::Unresolved, "the target has no address"));
    refused.ok_or_else(none)
}

/// Sends a SYN and waits for the response, timed from the SYN until the kernel reports the
/// response.
///
/// # Errors
/// If no response came, or the system reports another error (no route to the host).
pub(super) fn syn(address: SocketAddr, deadline: &Deadline) -> io::Result<SynResponse> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    let peer = address.into();
    let began = Instant::now();
    // On loopback `connect` itself may return the refusal.
    let at_once = match socket.connect(&peer) {
        Err(error) if in_progress(&error) => until_writable(&socket, deadline).map(|()| None)?,
        done => done.err(),
    };
    let after_s = began.elapsed().as_secs_f64();
    let error = match at_once {
        Some(error) => Some(error),
        None => socket.take_error()?,
    };
    match error {
        Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Ok(SynResponse { address, after_s, open: None });
        }
        // A refusal during the handshake is `ConnectionRefused`. A reset comes after the handshake
        // (RFC 9293 §3.10.7), and the next operation on the connection reports it.
        Some(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    socket.set_nonblocking(false)?;
    Ok(SynResponse { address, after_s, open: Some(socket.into()) })
}

fn connecting(address: SocketAddr) -> String {
    format!("connecting to {address}")
}

fn in_progress(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(nix::libc::EINPROGRESS)
}

fn until_writable(socket: &Socket, deadline: &Deadline) -> io::Result<()> {
    loop {
        let timeout = PollTimeout::try_from(deadline.poll_timeout()?).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Maximum number of unanswered queries to the system's resolver. A hanging query occupies a thread
/// until the resolver's own timeout (30 s and more).
const RESOLVERS_MAX: usize = 32;
static RESOLVERS: AtomicUsize = AtomicUsize::new(0);

/// Counts one unanswered query until this value is dropped.
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

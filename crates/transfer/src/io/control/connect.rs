//! The end that connects to a listener.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::channel::{Channel, POLL_INTERVAL, Times};
use super::error::ControlError;
use super::order::ControlEnd;
use super::{AuthToken, Message};
use crate::io::identity::{Identity, ReceiverAddress, Trust, client};

/// How a sender connects to a receiver.
#[derive(Clone, Debug)]
pub struct Connector {
    /// Which certificates the receiver may have.
    pub trust: Trust,
    /// Certificate for a receiver that requests one.
    pub identity: Option<Identity>,
    /// Token of the receiver address; `None` if the connector has no receiver address.
    pub token: Option<AuthToken>,
    /// Name and version of the program.
    pub software: String,
}

/// A connection to a receiver that accepted the sender (it sent Welcome).
#[derive(Debug)]
pub struct Connected {
    pub channel: Channel,
    pub software: String,
    /// Maximum size of a manifest that the receiver reads, in bytes.
    pub manifest_bytes_max: u64,
}

impl Connector {
    /// Creates a connector to the receiver with this receiver address. The sender needs no
    /// certificate, because the address contains a token.
    pub fn to_address(line: &ReceiverAddress, software: &str) -> Self {
        Self {
            trust: Trust::Pinned(vec![line.fingerprint]),
            identity: None,
            token: Some(line.token),
            software: software.into(),
        }
    }

    /// Connects to a name or address (without brackets), and waits for Welcome. Errors: no host
    /// answers; the host is not the expected receiver; the host refuses the sender. An error is
    /// returned within a minute, or 0.1 s after `stop` is set.
    // One try takes up to 40 s: the name (10 s), four addresses (5 s each), TLS and Hello (10 s). A
    // further try begins only if all earlier tries together took less than 5 s; see `RETRY_MAX`.
    pub fn connect(&self, host: &str, port: u16, stop: &AtomicBool) -> Result<Connected, ControlError> {
        let config = Arc::new(client(&self.trust, self.identity.as_ref())?);
        let name = match &self.trust {
            // A pinned certificate is not checked for names.
            Trust::Pinned(_) => ServerName::IpAddress(IpAddr::from([0, 0, 0, 0]).into()),
            Trust::Authorities(_) => ServerName::try_from(host.to_owned())
                .map_err(|error| ControlError::Name(host.into(), error.to_string()))?,
        };
        let until = Instant::now() + RETRY_MAX;
        loop {
            let stream = dial(host, port, stop)?;
            let tls = ClientConnection::new(Arc::clone(&config), name.clone())?;
            let mut channel = Channel::new(stream, tls.into(), ControlEnd::Sender, 0, Times::default())?;
            match self.greet(&mut channel, stop) {
                Ok((software, manifest_bytes_max)) => {
                    return Ok(Connected { channel, software, manifest_bytes_max });
                }
                // Retry: a host with too many handshakes closes the connection at once.
                Err(ControlError::CutOff) if channel.is_handshaking() && Instant::now() < until => {}
                Err(error) => return Err(error),
            }
            let again = Instant::now() + RETRY_AFTER;
            while Instant::now() < again && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    fn greet(&self, channel: &mut Channel, stop: &AtomicBool) -> Result<(String, u64), ControlError> {
        channel.send(&Message::Hello { token: self.token, software: self.software.clone() })?;
        match channel.wait(stop)? {
            Message::Welcome { software, manifest_bytes_max } => Ok((software, manifest_bytes_max)),
            other => Err(ControlError::Order(other.kind())),
        }
    }
}

/// Connects to the first address that answers.
fn dial(host: &str, port: u16, stop: &AtomicBool) -> Result<TcpStream, ControlError> {
    let mut last = None;
    for address in resolve(host, port, stop)? {
        match dial_one(address, stop) {
            Ok(stream) => return Ok(stream),
            Err(ControlError::Stopped) => return Err(ControlError::Stopped),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| ControlError::Name(host.into(), "it has no address".into())))
}

/// Resolves a name in a thread, because the system's resolver cannot be interrupted. The thread
/// ends when the resolver gives up.
fn resolve(host: &str, port: u16, stop: &AtomicBool) -> Result<Vec<SocketAddr>, ControlError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (answer, answers) = sync_channel(1);
    let name = host.to_owned();
    std::thread::Builder::new().name("resolver".into()).spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs().map(|found| found.take(ADDRESSES_MAX).collect());
        // Ignore a failure: it only means that the caller no longer waits.
        let _ = answer.send(found);
    })?;
    let until = Instant::now() + Times::default().entry_max;
    loop {
        match answers.recv_timeout(POLL_INTERVAL) {
            Ok(found) => return found.map_err(|error| ControlError::Name(host.into(), error.to_string())),
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                return Err(ControlError::Stopped);
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
            Err(_) => return Err(ControlError::Name(host.into(), "the resolver does not respond".into())),
        }
    }
}

fn dial_one(address: SocketAddr, stop: &AtomicBool) -> Result<TcpStream, ControlError> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use socket2::{Domain, Protocol, Socket, Type};
    use std::os::fd::AsFd;

    let failed = |error| ControlError::Connect(address, error);
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    match socket.connect(&address.into()) {
        Ok(()) => return Ok(socket.into()),
        Err(error) if error.raw_os_error() == Some(nix::libc::EINPROGRESS) => {}
        Err(error) => return Err(failed(error)),
    }
    let until = Instant::now() + DIAL_MAX;
    while Instant::now() < until {
        if stop.load(Ordering::Relaxed) {
            return Err(ControlError::Stopped);
        }
        let slice = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO);
        let ready = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], slice);
        if ready.is_ok_and(|ready| ready > 0) {
            return match socket.take_error().map_err(failed)? {
                None => Ok(socket.into()),
                Some(error) => Err(failed(error)),
            };
        }
    }
    Err(failed(std::io::ErrorKind::TimedOut.into()))
}

/// Maximum number of addresses of one name that are tried. This maximum limits the time for a name
/// with many dead addresses.
const ADDRESSES_MAX: usize = 4;

/// Longest time for one address: TCP sends three connection requests (RFC 6298 §2: after 1 and 3
/// s).
const DIAL_MAX: Duration = Duration::from_secs(5);

/// Longest time for which to retry a host that closes the connection before the handshake is
/// complete. A slot for handshakes is usually free again after one second.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Time to wait before a retry; see [`RETRY_MAX`].
const RETRY_AFTER: Duration = Duration::from_millis(300);

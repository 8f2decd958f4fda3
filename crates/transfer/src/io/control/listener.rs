//! The end that listens, and authenticates senders.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::{ServerConfig, ServerConnection};

use super::channel::{Channel, DAY, POLL_INTERVAL, Times};
use super::codec::FrameError;
use super::error::ControlError;
use super::handshake::{HANDSHAKES_MAX, HandshakeSlot, HandshakeSlots};
use super::order::ControlEnd;
use super::{Message, RefuseReason};
use crate::io::identity::{AuthToken, Identity, ReceiverAddress, Trust, server};

/// How a receiver listens for senders.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    pub identity: Identity,
    /// A sender with this token is accepted.
    pub token: AuthToken,
    /// Certificates of senders that are accepted without the token.
    pub trust: Option<Trust>,
    /// Name and version of the program.
    pub software: String,
    /// Maximum size of a manifest that the receiver reads, in bytes; at most 2^27.
    pub manifest_bytes_max: u64,
}

/// A sender that was authenticated and accepted.
#[derive(Debug)]
pub struct AcceptedSender {
    /// Connection to the sender; an Offer comes next.
    pub channel: Channel,
    pub software: String,
    /// Whether the sender sent the token. Otherwise the sender has a trusted certificate.
    pub has_token: bool,
}

/// Numbers of connections that were rejected so far, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectedConnections {
    /// Connections that were rejected because there were too many handshakes.
    pub overload: u64,
    /// Connections that sent no TLS or no Hello, used a different protocol, or were too slow.
    pub protocol: u64,
    /// Connections of senders with neither the right token nor a trusted certificate.
    pub unauthorised: u64,
}

#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    local: SocketAddr,
    context: Arc<HandshakeContext>,
    accepted: Mutex<Receiver<AcceptedSender>>,
    accepted_sender: Sender<AcceptedSender>,
    /// Readable when a sender was accepted.
    wake_pipe: UnixStream,
}

/// State that the handshake threads share.
#[derive(Debug)]
struct HandshakeContext {
    tls: Arc<ServerConfig>,
    config: ListenerConfig,
    times: Times,
    slots: Arc<HandshakeSlots>,
    wake_pipe: UnixStream,
    overload: AtomicU64,
    protocol: AtomicU64,
    unauthorised: AtomicU64,
    /// Set when the listener is dropped.
    is_shut: AtomicBool,
}

/// Delay before a wrong token is refused. With [`HANDSHAKES_MAX`] simultaneous handshakes, an
/// attacker can try 64 tokens a second: 2^31 in a year, out of 2^128.
const WRONG_DELAY: Duration = Duration::from_secs(1);

impl Listener {
    /// Starts to listen at an address; port 0 means any free port.
    /// Errors: the address cannot be used; TLS cannot use the identity or the trust.
    pub fn bind(at: SocketAddr, config: ListenerConfig) -> Result<Self, ControlError> {
        Self::bind_with(at, config, Times::default())
    }

    pub(super) fn bind_with(
        at: SocketAddr,
        config: ListenerConfig,
        times: Times,
    ) -> Result<Self, ControlError> {
        let tls = Arc::new(server(&config.identity, config.trust.as_ref())?);
        let failed = |error| ControlError::Listen(at, error);
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let (accepted_sender, accepted) = channel();
        let (wake_pipe, wake_end) = UnixStream::pair().map_err(failed)?;
        wake_pipe.set_nonblocking(true).map_err(failed)?;
        wake_end.set_nonblocking(true).map_err(failed)?;
        let context = HandshakeContext {
            tls,
            config,
            times,
            slots: Arc::default(),
            wake_pipe,
            overload: AtomicU64::new(0),
            protocol: AtomicU64::new(0),
            unauthorised: AtomicU64::new(0),
            is_shut: AtomicBool::new(false),
        };
        let (context, accepted) = (Arc::new(context), Mutex::new(accepted));
        Ok(Self { listener, local, context, accepted, accepted_sender, wake_pipe: wake_end })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The receiver address for senders that reach this host by the name or address `host`.
    pub fn receiver_address(&self, host: &str) -> ReceiverAddress {
        let ListenerConfig { identity, token, .. } = &self.context.config;
        let fingerprint = identity.fingerprint();
        ReceiverAddress { host: host.into(), port: self.local.port(), fingerprint, token: *token }
    }

    /// Numbers of connections that were rejected so far.
    pub fn rejected(&self) -> RejectedConnections {
        RejectedConnections {
            overload: self.context.overload.load(Ordering::Relaxed),
            protocol: self.context.protocol.load(Ordering::Relaxed),
            unauthorised: self.context.unauthorised.load(Ordering::Relaxed),
        }
    }

    /// Returns the next accepted sender; `None` if no sender was accepted within `within`. If
    /// `within` is longer than a day, it counts as a day. Connections are accepted only during this
    /// call, so the caller must call this function repeatedly. Errors: the socket fails. No action
    /// of a sender causes an error.
    pub fn accept(&self, within: Duration) -> Result<Option<AcceptedSender>, ControlError> {
        let until = Instant::now() + within.min(DAY);
        loop {
            if let Ok(accepted_sender) =
                self.accepted.lock().unwrap_or_else(PoisonError::into_inner).try_recv()
            {
                return Ok(Some(accepted_sender));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.poll_once(left)?;
        }
    }

    /// Waits for connections, `within` at most, and starts their handshakes; returns early when a
    /// sender was accepted.
    fn poll_once(&self, within: Duration) -> Result<(), ControlError> {
        let wait = PollTimeout::try_from(within + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        match poll(&mut [readable(self.listener.as_fd()), readable(self.wake_pipe.as_fd())], wait) {
            Ok(0) | Err(nix::Error::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        // Empty the pipe, which has one byte for each accepted sender. The caller then receives all
        // accepted senders.
        let _ = (&self.wake_pipe).read(&mut [0; HANDSHAKES_MAX]);
        for _ in 0..HANDSHAKES_MAX {
            match self.listener.accept() {
                Ok((stream, from)) => self.start_handshake(stream, from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // This error affects one connection only (accept(2)).
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Usually the process has no free descriptors: wait before the next try.
                    std::thread::sleep(within.min(POLL_INTERVAL));
                    break;
                }
            }
        }
        Ok(())
    }

    fn start_handshake(&self, stream: TcpStream, from: SocketAddr) {
        let (context, accepted_sender) = (Arc::clone(&self.context), self.accepted_sender.clone());
        let handshake = context.slots.acquire(&stream, from.ip(), Instant::now()).and_then(|slot| {
            let thread = std::thread::Builder::new().name("handshake".into()).stack_size(STACK_BYTES);
            thread.spawn(move || context.run_handshake(stream, slot, &accepted_sender)).ok()
        });
        if handshake.is_none() {
            self.context.overload.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Size of a thread's stack, in bytes. A handshake needs a tenth of this size.
const STACK_BYTES: usize = 1 << 19;

impl Drop for Listener {
    fn drop(&mut self) {
        self.context.is_shut.store(true, Ordering::Relaxed);
    }
}

impl HandshakeContext {
    /// Runs one handshake, and passes on an accepted sender.
    fn run_handshake(&self, stream: TcpStream, slot: HandshakeSlot, accepted: &Sender<AcceptedSender>) {
        match self.authenticate(stream, slot) {
            Ok(Some(accepted_sender)) => {
                // If the listener was dropped meanwhile, the send fails and the connection is
                // dropped.
                if accepted.send(accepted_sender).is_ok() {
                    // Ignore an error: the pipe is full then, so the listener wakes up anyway.
                    let _ = (&self.wake_pipe).write(&[1]);
                }
            }
            Ok(None) => {}
            Err(_) => drop(self.protocol.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Performs the handshake: TLS, Hello and Welcome. Returns `None` if the sender has neither the
    /// token nor a trusted certificate.
    fn authenticate(
        &self,
        stream: TcpStream,
        slot: HandshakeSlot,
    ) -> Result<Option<AcceptedSender>, ControlError> {
        let tls = ServerConnection::new(Arc::clone(&self.tls))?;
        let mut channel = Channel::new(
            stream,
            tls.into(),
            ControlEnd::Receiver,
            self.config.manifest_bytes_max,
            self.times,
        )?;
        let (token, software) = match channel.wait(&self.is_shut) {
            Ok(Message::Hello { token, software }) => (token, software),
            Ok(other) => return Err(ControlError::Order(other.kind())),
            Err(ControlError::Frame(error @ FrameError::Version(_))) => {
                channel.refuse(RefuseReason::Protocol, &error.to_string());
                return Err(error.into());
            }
            Err(error) => return Err(error),
        };
        let has_token = token == Some(self.config.token);
        // TLS refuses certificates that are not trusted, so a certificate here is a trusted one.
        if !has_token && channel.peer_fingerprint().is_none() {
            self.unauthorised.fetch_add(1, Ordering::Relaxed);
            let until = Instant::now() + WRONG_DELAY;
            while Instant::now() < until && !self.is_shut.load(Ordering::Relaxed) {
                if channel.receive(POLL_INTERVAL).is_err() {
                    return Ok(None);
                }
            }
            channel.refuse(
                RefuseReason::NotAllowed,
                "the sender has neither the token of this receiver address nor a trusted certificate",
            );
            return Ok(None);
        }
        if !slot.release() {
            return Err(ControlError::CutOff);
        }
        let manifest_bytes_max = self.config.manifest_bytes_max;
        channel.send(&Message::Welcome { software: self.config.software.clone(), manifest_bytes_max })?;
        channel.flush(&self.is_shut)?;
        Ok(Some(AcceptedSender { channel, software, has_token }))
    }
}

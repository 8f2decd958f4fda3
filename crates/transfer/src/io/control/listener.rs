//! The end that listens, and whom it lets in.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustls::{ServerConfig, ServerConnection};

use super::channel::{Channel, LOOK_EVERY};
use super::codec::FrameError;
use super::error::ControlError;
use super::order::End;
use super::{Message, Reason, Token};
use crate::io::identity::{Fingerprint, Identity, Line, Trust, server};

/// How the receiving end listens.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Its certificate.
    pub identity: Identity,
    /// Who has it is let in.
    pub token: Option<Token>,
    /// Whose certificate lets in.
    pub trust: Option<Trust>,
    /// Name and version of the program.
    pub software: String,
    /// The greatest manifest that is read (bytes), 2^27 at most.
    pub manifest_bytes_max: u64,
}

/// A sender that was let in.
#[derive(Debug)]
pub struct Guest {
    /// To it; an Offer comes next.
    pub channel: Channel,
    /// Its program.
    pub software: String,
    /// Whether it has the token; else it has a certificate that is trusted.
    pub has_token: bool,
}

/// Who was not let in so far, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// There were too many at the door.
    pub crowd: u64,
    /// No TLS, no Hello, another protocol, or too slow.
    pub strange: u64,
    /// A wrong token, or none.
    pub wrong: u64,
}

/// Waits for senders.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    local: SocketAddr,
    fingerprint: Fingerprint,
    token: Option<Token>,
    door: Arc<Door>,
    guests: Mutex<Receiver<Guest>>,
    guest: Sender<Guest>,
}

/// What threads of the door share.
#[derive(Debug)]
struct Door {
    tls: Arc<ServerConfig>,
    config: ListenerConfig,
    waiting: Mutex<HashMap<IpAddr, usize>>,
    crowd: AtomicU64,
    strange: AtomicU64,
    wrong: AtomicU64,
    /// The listener is gone.
    is_shut: AtomicBool,
}

/// At the door at once: a thread and about 100 KiB each.
pub(super) const WAITING_MAX: usize = 64;

/// Of them from one address, or one /64 of IPv6 (what one host usually has, RFC 4291 §2.5.4).
pub(super) const WAITING_OF_ONE_MAX: usize = 16;

/// Before a wrong token is answered. With [`WAITING_MAX`] at once, 64 guesses a second are 2^31 a year, of 2^128.
const WRONG_DELAY: Duration = Duration::from_secs(1);

impl Listener {
    /// Listens; port 0 is any.
    ///
    /// # Errors
    /// The address is not to be had, or TLS cannot use the identity or the trust.
    pub fn bind(at: SocketAddr, config: ListenerConfig) -> Result<Self, ControlError> {
        let tls = Arc::new(server(&config.identity, config.trust.as_ref())?);
        let failed = |error| ControlError::Listen(at, error);
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let (guest, guests) = channel();
        let (fingerprint, token) = (config.identity.fingerprint(), config.token);
        let door = Door {
            tls,
            config,
            waiting: Mutex::default(),
            crowd: AtomicU64::new(0),
            strange: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            is_shut: AtomicBool::new(false),
        };
        Ok(Self {
            listener,
            local,
            fingerprint,
            token,
            door: Arc::new(door),
            guests: Mutex::new(guests),
            guest,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The line for senders that reach it by the name or address `host`; `None` where it has no token.
    pub fn line(&self, host: &str) -> Option<Line> {
        let (fingerprint, port) = (self.fingerprint, self.local.port());
        self.token.map(|token| Line { host: host.into(), port, fingerprint, token })
    }

    /// Who was not let in so far.
    pub fn turned(&self) -> Turned {
        Turned {
            crowd: self.door.crowd.load(Ordering::Relaxed),
            strange: self.door.strange.load(Ordering::Relaxed),
            wrong: self.door.wrong.load(Ordering::Relaxed),
        }
    }

    /// The next sender that is let in; `None` if none was within `within`. Connections are taken only while this is called, so call it
    /// again and again.
    ///
    /// # Errors
    /// The socket fails; whatever senders do is none.
    pub fn accept(&self, within: Duration) -> Result<Option<Guest>, ControlError> {
        let until = Instant::now() + within;
        loop {
            if let Ok(guest) = self.guests.lock().unwrap_or_else(PoisonError::into_inner).try_recv() {
                return Ok(Some(guest));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.take(left.min(GUEST_LOOK_EVERY))?;
        }
    }

    /// Takes connections in, for a moment.
    fn take(&self, within: Duration) -> Result<(), ControlError> {
        let wait = PollTimeout::try_from(within + Duration::from_micros(999)).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)], wait) {
            Ok(0) | Err(nix::Error::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
        for _ in 0..WAITING_MAX {
            match self.listener.accept() {
                Ok((stream, from)) => self.admit(stream, from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Of that connection (accept(2)), or for want of descriptors: it may get better.
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn admit(&self, stream: TcpStream, from: SocketAddr) {
        let Some(place) = Place::take(&self.door, from.ip()) else {
            self.door.crowd.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let guest = self.guest.clone();
        let greeting = std::thread::Builder::new().name("door".into()).spawn(move || {
            match place.door.greet(stream) {
                // Nobody waits for guests any more, then.
                Ok(Some(one)) => drop(guest.send(one)),
                Ok(None) => {}
                Err(_) => drop(place.door.strange.fetch_add(1, Ordering::Relaxed)),
            }
        });
        if greeting.is_err() {
            self.door.crowd.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How soon a guest is noticed.
const GUEST_LOOK_EVERY: Duration = Duration::from_millis(10);

impl Drop for Listener {
    fn drop(&mut self) {
        self.door.is_shut.store(true, Ordering::Relaxed);
    }
}

impl Door {
    /// TLS, Hello and Welcome; `None` for who may not come in.
    fn greet(&self, stream: TcpStream) -> Result<Option<Guest>, ControlError> {
        let tls = ServerConnection::new(Arc::clone(&self.tls))?;
        let mut channel = Channel::new(stream, tls.into(), End::Receiver, self.config.manifest_bytes_max)?;
        let (token, software) = match channel.wait(&self.is_shut) {
            Ok(Message::Hello { token, software }) => (token, software),
            Ok(other) => return Err(ControlError::Order(other.kind())),
            Err(error @ ControlError::Frame(FrameError::Version(_))) => {
                channel.refuse(Reason::Protocol, &error.to_string());
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let has_token = token.is_some_and(|token| self.config.token.is_some_and(|own| own == token));
        // TLS took no certificate that is not trusted.
        if !has_token && channel.peer_fingerprint().is_none() {
            self.wrong.fetch_add(1, Ordering::Relaxed);
            let until = Instant::now() + WRONG_DELAY;
            while Instant::now() < until && !self.is_shut.load(Ordering::Relaxed) {
                channel.receive(LOOK_EVERY)?;
            }
            channel
                .refuse(Reason::NotAllowed, "neither the line's token nor a trusted certificate was shown");
            return Ok(None);
        }
        let manifest_bytes_max = self.config.manifest_bytes_max;
        channel.send(&Message::Welcome { software: self.config.software.clone(), manifest_bytes_max })?;
        channel.flush(&self.is_shut)?;
        Ok(Some(Guest { channel, software, has_token }))
    }
}

/// A place at the door, for as long as this is kept.
struct Place {
    door: Arc<Door>,
    of: IpAddr,
}

impl Place {
    fn take(door: &Arc<Door>, from: IpAddr) -> Option<Self> {
        let of = neighbourhood(from);
        let mut waiting = door.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = waiting.values().sum();
        let count = waiting.entry(of).or_default();
        if WAITING_OF_ONE_MAX <= *count || WAITING_MAX <= all {
            return None;
        }
        *count += 1;
        Some(Self { door: Arc::clone(door), of })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.door.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = waiting.get_mut(&self.of) {
            *count = count.saturating_sub(1);
        }
        waiting.retain(|_, count| 0 < *count);
    }
}

/// What one host can easily have all of: an address, or a /64.
pub(super) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

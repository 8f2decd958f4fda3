//! Transfers of files from end to end.
//!
//! Each end has one thread for the control connection, which always listens, and others for the flow and the files, so that neither
//! a slow disk nor a slow peer keeps the other end from hearing what happens.
//!
//! A transfer that ended early goes on when it is started again, at either end: the sender names it by what it sends, the receiver
//! keeps it by that name and the sender's certificate.

mod contended;
mod disk;
mod elsewhere;
mod error;
mod guest;
mod host;
mod outgoing;
mod receivers;
mod talk;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use self::error::SessionError;
pub use self::host::{Host, HostConfig, HostEvent};
use super::flow::Seen;
use super::identity::{Identity, Line, Trust};
use super::socket::{Socket, SocketConfig};
use crate::files::{Notice, WalkConfig};
use crate::proto::controller;

/// What to send, to whom and how.
#[derive(Debug)]
pub struct SendConfig {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// How to find them.
    pub walk: WalkConfig,
    /// To whom.
    pub to: To,
    /// Receivers that have the same directory, on storage that they share with the first: the rest goes to the next of all these when one
    /// cannot be reached, dies, is stopped, or its host loses packets for ten seconds. All are known in the same way, by lines or otherwise.
    pub others: Vec<To>,
    /// Shown to receivers that want a certificate.
    pub identity: Option<Identity>,
    /// How fast.
    pub controller: controller::Kind,
    /// The rate of [`controller::Kind::Fixed`], and where others begin (bytes a second).
    pub rate_bytes_s: Option<f64>,
    /// Whether losses are told apart.
    pub has_ear: bool,
    /// Datagrams are not sealed, if the receiver agrees.
    pub clear: bool,
    /// Bytes of IP packets at most; else what the route takes, up to 9000.
    pub mtu: Option<usize>,
    /// A directory of the sender's own where hashes are kept while a transfer is unfinished, so that the next try reads no file twice.
    pub memory: Option<PathBuf>,
    /// By the sockets that all systems have ([`Socket::bind_portable`]).
    #[doc(hidden)]
    pub portable: bool,
}

impl SendConfig {
    /// Sealed, at the default controller's rate, losses told apart, without links.
    pub fn new(paths: Vec<PathBuf>, to: To) -> Self {
        Self {
            paths,
            walk: WalkConfig::default(),
            to,
            others: vec![],
            identity: None,
            controller: controller::Kind::DEFAULT,
            rate_bytes_s: None,
            has_ear: true,
            clear: false,
            mtu: None,
            memory: None,
            portable: false,
        }
    }
}

/// To whom.
#[derive(Clone, Debug)]
pub enum To {
    /// Who printed this line.
    Line(Line),
    /// Who is at this address and is trusted.
    Host {
        /// Name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// How it is known.
        trust: Trust,
    },
}

impl To {
    /// Name or address, and TCP port.
    pub fn place(&self) -> (&str, u16) {
        match self {
            Self::Line(line) => (&line.host, line.port),
            Self::Host { host, port, .. } => (host, *port),
        }
    }
}

/// What happens on the way.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Something was left out.
    Notice(Notice),
    /// The other end is who it should be.
    Connected {
        /// Where it is.
        peer: SocketAddr,
        /// Its program.
        software: String,
    },
    /// Both agreed; data begins.
    Begun {
        /// Files.
        files: u64,
        /// Bytes of the object.
        bytes: u64,
        /// Of which the receiver has so many from before.
        held_bytes: u64,
    },
    /// About ten times a second.
    Progress(Seen),
    /// The rest goes to another of the [receivers](SendConfig::others), which is connected to and begins anew.
    Elsewhere {
        /// What ended it with the one before.
        why: SessionError,
        /// Where the next one is.
        host: String,
        /// Its TCP port.
        port: u16,
    },
    /// All came. What was there from before is hashed, digests are compared, and files get their names.
    Verifying,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The other end; of several, the last.
    pub peer: SocketAddr,
    /// Files.
    pub files: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// Of which so many were there before.
    pub held_bytes: u64,
    /// From the first datagram to the last acknowledgement, without what is between two receivers.
    pub lasted: Duration,
    /// From the call to its end; at a host, from when the sender was let in.
    pub lasted_all: Duration,
    /// What the flow saw last: of a sender, losses by cause, those of all its receivers together.
    pub seen: Seen,
}

/// Sends; returns when the receiver has verified all. `on_event` is called from this thread.
///
/// # Errors
/// Why it did not: the receiver keeps what came, and the same call goes on there.
///
/// `stop` ends it with [`FlowError::Stopped`](super::flow::FlowError::Stopped), within a second but for what a disk is busy with.
pub fn send(
    config: SendConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Summary, SessionError> {
    elsewhere::send(&config, stop, on_event)
}

/// Name and version, for people at the other end.
const SOFTWARE: &str = concat!("barograph ", env!("CARGO_PKG_VERSION"));

/// What every path takes that QUIC goes over (RFC 9000 §14.1): for feedback, whose path is not asked.
const FEEDBACK_DATAGRAM_BYTES: u32 = 1200;

/// Bytes of IPv4 or IPv6 and of UDP before a datagram (RFC 791, RFC 8200, RFC 768).
fn headers_bytes(peer: SocketAddr) -> u32 {
    if peer.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

/// 8 MiB hold what comes at 10 Gbit/s while a thread is not scheduled for 6 ms; systems usually give less.
const SOCKET: SocketConfig = SocketConfig { buffer_bytes: 8 << 20, trains: true, ecn: true };

fn bind(at: SocketAddr, config: SocketConfig, portable: bool) -> io::Result<Socket> {
    if portable { Socket::bind_portable(at, config) } else { Socket::bind(at, config) }
}

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

fn ranges_bytes<'a>(ranges: impl IntoIterator<Item = &'a std::ops::Range<u64>>) -> u64 {
    ranges.into_iter().map(|range| range.end - range.start).sum()
}

//! Transfers of files from end to end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::flow::Seen;
use super::identity::{Identity, Line, Trust};
use crate::controller;
use crate::files::{DestinationConfig, Notice, WalkConfig};

/// What to send, to whom and how.
#[derive(Debug)]
pub struct SendConfig {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// How to find them.
    pub walk: WalkConfig,
    /// To whom.
    pub to: To,
    /// Shown to receivers that want a certificate.
    pub identity: Option<Identity>,
    /// How fast.
    pub controller: controller::Kind,
    /// The rate of [`controller::Kind::Fixed`], and where others begin (bytes a second).
    pub rate_bytes_s: Option<f64>,
    /// Whether losses are told apart.
    pub has_ear: bool,
    /// Datagrams are not sealed.
    pub clear: bool,
    /// Bytes of IP packets at most; else what the route takes.
    pub mtu: Option<usize>,
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

/// What happens on the way.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Something was left out.
    Notice(Notice),
    /// The receiver is who it should be.
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
    /// All came; digests are compared and files get their names.
    Verifying,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The other end.
    pub peer: SocketAddr,
    /// Files.
    pub files: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// Of which so many were there before.
    pub held_bytes: u64,
    /// From the first datagram to the last acknowledgement.
    pub lasted: Duration,
    /// From the call to its end.
    pub lasted_all: Duration,
    /// What the flow saw last.
    pub seen: Seen,
}

/// Sends; returns when the receiver has verified all.
pub fn send(
    config: SendConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(Event),
) -> Result<Summary, SessionError> {
    todo!()
}

/// What a receiver takes, and from whom.
#[derive(Debug)]
pub struct HostConfig {
    /// TCP.
    pub at: SocketAddr,
    /// UDP ports, one for each transfer at once, to be let through a firewall; else any.
    pub udp_ports: Option<std::ops::RangeInclusive<u16>>,
    /// Where files go.
    pub directory: PathBuf,
    /// What is taken.
    pub destination: DestinationConfig,
    /// Its certificate; else one is made.
    pub identity: Option<Identity>,
    /// Senders without a token, by certificate.
    pub trust: Option<Trust>,
    /// Datagrams may be sent unsealed.
    pub clear: bool,
    /// Transfers at once.
    pub transfers_max: usize,
}

/// The receiving end: waits for senders.
#[derive(Debug)]
pub struct Host {}

impl Host {
    /// Listens.
    pub fn bind(config: HostConfig) -> Result<Self, SessionError> {
        todo!()
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        todo!()
    }

    /// A line for a sender that reaches this host by the name or address `host`.
    pub fn line(&self, host: &str) -> Line {
        todo!()
    }

    /// Serves until `stop` is set, or, if `once`, until one transfer ended well.
    ///
    /// `on_event` is called from threads of transfers, each with a number of its own.
    pub fn run(
        &self,
        once: bool,
        stop: &AtomicBool,
        on_event: &(dyn Fn(u64, HostEvent) + Sync),
    ) -> Result<(), SessionError> {
        todo!()
    }
}

/// What happens at a host.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostEvent {
    /// As a sender sees it.
    Transfer(Event),
    /// It ended well.
    Done(Summary),
    /// It did not; what came is kept for the next try.
    Failed(SessionError),
}

/// Why a transfer did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The flow.
    #[error(transparent)]
    Flow(#[from] super::flow::FlowError),
    /// Files.
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    /// The other end ended it.
    #[error("the other end says: {text}")]
    Refused {
        /// For programs.
        reason: super::control::Reason,
        /// For people.
        text: String,
    },
}

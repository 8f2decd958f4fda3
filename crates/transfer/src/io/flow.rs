//! One object on its way: loops that read, seal, send, and back. No files and no agreement here.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::seal::{Opener, Sealer};
use super::socket::Socket;
use crate::{Receiver, Sender, Stats, Violation};

/// What an object is read from; from a thread of its own, ahead of the sender.
pub trait Origin: Send {
    /// Reads the object from `offset` on, as much as `out` holds.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError>;
}

/// What an object is written to; from a thread of its own.
pub trait Sink: Send {
    /// Writes what belongs there; ranges come in any order, neighbours gathered to up to 1 MiB.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError>;
    /// From time to time, and at the end: what was written is to be durable.
    fn sync(&mut self) -> Result<(), FlowError>;
}

/// What ends a flow too early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// Somebody asked for it.
    #[error("stopped")]
    Stopped,
    /// The other end breaks the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// Nothing was heard for so long.
    #[error("no answer for {0:?}: does a firewall let UDP through to port {1}?")]
    Silent(Duration, u16),
    /// Files.
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    /// Sockets.
    #[error("the socket fails: {0}")]
    Socket(#[from] std::io::Error),
}

/// What others see of a flow while it goes on, and how they stop it.
#[derive(Debug, Default)]
pub struct Watch {
    /// Set by others: the flow ends with [`FlowError::Stopped`] within 100 ms.
    pub stop: AtomicBool,
    /// Set by the flow, ten times a second.
    pub seen: Mutex<Seen>,
}

/// How a flow fares.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Counts, of a sender.
    pub stats: Stats,
    /// Bytes of the object that are there, those of earlier sessions among them.
    pub held_bytes: u64,
    /// Bytes a second that the controller allows (headers included).
    pub rate_bytes_s: f64,
    /// The smoothed round trip, once there is one.
    pub rtt: Option<Duration>,
    /// What the receiver can take, where it is the limit (bytes a second of the object).
    pub drain_bytes_s: u64,
    /// CPU time of the thread of the loop, and the part of it that the classifier took.
    pub cpu: Duration,
    /// See `cpu`.
    pub cpu_classifier: Duration,
    /// Datagrams that did not open or were of nobody.
    pub refused_datagrams: u64,
}

/// The sending end.
pub struct Outflow {
    /// Connected to the receiver.
    pub socket: Socket,
    /// Of data.
    pub sealer: Sealer,
    /// Of feedback.
    pub opener: Opener,
    /// As the receiver chose.
    pub transfer: u32,
    /// What decides.
    pub sender: Sender,
    /// Whence.
    pub origin: Box<dyn Origin>,
    /// Gives up when nothing was heard for so long.
    pub silence_max: Duration,
}

impl Outflow {
    /// Sends until all is acknowledged; the origin comes back to be asked for digests.
    pub fn run(self, watch: &Watch) -> Result<(Stats, Box<dyn Origin>), FlowError> {
        todo!()
    }
}

/// The receiving end.
pub struct Inflow {
    /// Bound.
    pub socket: Socket,
    /// Of data.
    pub opener: Opener,
    /// Of feedback.
    pub sealer: Sealer,
    /// As the receiver chose.
    pub transfer: u32,
    /// What decides.
    pub receiver: Receiver,
    /// Whither.
    pub sink: Box<dyn Sink>,
    /// Datagrams come from this address, which the control connection validated (RFC 9000 §8.1); the port may be any, and change.
    pub from: IpAddr,
    /// Gives up when nothing was heard for so long.
    pub silence_max: Duration,
}

impl Inflow {
    /// Receives until all is there and written, answers for as long as the sender may still ask, and gives the sink back.
    pub fn run(self, watch: &Watch) -> Result<Box<dyn Sink>, FlowError> {
        todo!()
    }
}

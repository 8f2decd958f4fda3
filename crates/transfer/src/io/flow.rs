//! One object on its way: loops that read, seal, send, and back. No files and no agreement here.

mod ahead;
mod behind;
mod busy;
mod course;
mod inflow;
mod nap;
mod outbox;
mod outflow;

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use self::inflow::Inflow;
pub use self::outflow::Outflow;
use crate::proto::{Limit, Stats, Violation};

/// What an object is read from; from a thread of its own, ahead of the sender.
pub trait Origin: Send {
    /// Reads the object from `offset` on, as much as `out` holds.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError>;

    /// Whether a read never waits, as of memory: the sending thread reads into packets then, and spares a copy.
    fn is_immediate(&self) -> bool {
        false
    }
}

/// What an object is written to; from a thread of its own.
pub trait Sink: Send {
    /// Writes what belongs there; ranges come in any order, neighbours gathered to up to 1 MiB.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError>;
    /// From time to time, and at the end: what was written is to be durable.
    fn sync(&mut self) -> Result<(), FlowError>;

    /// Whether a write never waits, as to memory: the receiving thread writes from packets then, and spares a copy.
    fn is_immediate(&self) -> bool {
        false
    }
}

/// What ends a flow too early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum FlowError {
    #[error("stopped")]
    Stopped,
    /// The other end breaks the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// Nothing was heard for so long.
    #[error("no answer for {0:?}: does a firewall let UDP through to port {1}?")]
    Silent(Duration, u16),
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    #[error("the socket fails: {0}")]
    Socket(#[from] std::io::Error),
}

/// What others see of a flow while it goes on, and how they stop it.
#[derive(Debug, Default)]
pub struct Watch {
    /// Set by others: the flow ends with [`FlowError::Stopped`] within 100 ms, but a receiver makes what came durable before (10 s at most).
    pub stop: AtomicBool,
    /// Set by the flow, ten times a second.
    pub seen: Mutex<Seen>,
}

impl Watch {
    /// How the flow fares.
    pub fn seen(&self) -> Seen {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a flow fares.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Counts, of a sender.
    pub stats: Stats,
    /// Bytes of the object that are there, those of earlier sessions among them.
    pub held_bytes: u64,
    /// Bytes of the object that are durable, of a receiver.
    pub durable_bytes: u64,
    /// Bytes a second that the controller allows (headers included).
    pub rate_bytes_s: f64,
    /// The smoothed round trip, once there is one.
    pub rtt: Option<Duration>,
    /// What keeps a sender from sending more just now.
    pub limit: Option<Limit>,
    /// What the receiver can take, where it is the limit (bytes a second of the object).
    pub drain_bytes_s: u64,
    /// CPU time of the thread of the loop, and the part of it that the classifier took.
    pub cpu: Duration,
    /// See `cpu`.
    pub cpu_classifier: Duration,
    /// What the thread of the loop computed and waited for a processor; CPU time alone where the kernel does not count that.
    pub busy: Duration,
    /// The same of the thread that reads what is sent, and hashes it; 0 where there is none, or the kernel does not count.
    pub busy_reader: Duration,
    /// For how long the loop waited for that thread, as it might send what was not read yet.
    pub lacked: Duration,
    /// Datagrams that did not open or were of nobody.
    pub refused_datagrams: u64,
}

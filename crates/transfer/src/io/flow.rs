//! Transfers one object. One loop reads, seals and sends bytes; a different loop receives, opens
//! and writes them. The code for files and for the negotiation is in other modules.

mod busy;
mod datagram_queue;
mod loop_context;
mod origin_reader;
mod receive_flow;
mod receive_sleep;
mod send_flow;
mod sink_writer;

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use barograph_loss::LabelledWindow;

pub use self::receive_flow::ReceiveFlow;
pub use self::send_flow::SendFlow;
use crate::proto::{ProtocolViolation, SendLimit, SenderStats};

/// Source of an object's bytes. A separate thread reads bytes from the source before the sender
/// needs them.
pub trait Origin: Send {
    /// Fills `out` with the bytes of the object from `offset` on.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), FlowError>;

    /// Whether a read never waits, for example because it reads from memory. If so, the sending
    /// thread reads directly into packets, which saves a copy.
    fn is_immediate(&self) -> bool {
        false
    }
}

/// Destination of an object's bytes. A separate thread writes to the destination.
pub trait Sink: Send {
    /// Writes bytes at an offset of the object. Ranges arrive in any order, with neighbours joined
    /// to up to 1 MiB.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlowError>;
    /// Makes what was written durable; called from time to time, and at the end.
    fn sync(&mut self) -> Result<(), FlowError>;

    /// Whether a write never waits, for example because it writes to memory. If so, the receiving
    /// thread writes directly from packets, which saves a copy.
    fn is_immediate(&self) -> bool {
        false
    }
}

/// Reason why a flow ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum FlowError {
    #[error("stopped")]
    Stopped,
    /// The other end breaks the protocol.
    #[error(transparent)]
    Violation(#[from] ProtocolViolation),
    /// No datagram arrived for the time in the first field. The second field is the UDP port.
    #[error("no feedback for {0:?}: check that firewalls let UDP through to port {1}")]
    NoFeedback(Duration, u16),
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    #[error("the socket failed: {0}")]
    Socket(#[from] std::io::Error),
    #[error("a thread of the transfer panicked: this is a defect")]
    ThreadPanicked,
}

/// Shared state of a running flow: other threads read its progress here, and can stop it.
#[derive(Debug, Default)]
pub struct FlowMonitor {
    /// Set by other threads: the flow ends with [`FlowError::Stopped`] within 100 ms. A receiver
    /// first makes received bytes durable (10 s at most).
    pub stop: AtomicBool,
    /// Progress, which the flow sets ten times a second.
    pub progress: Mutex<FlowProgress>,
    /// Labelled windows of a sender that other threads did not take yet; at most
    /// [`FlowMonitor::WINDOWS_MAX`].
    windows: Mutex<Vec<LabelledWindow>>,
}

impl FlowMonitor {
    /// Largest number of labelled windows that wait to be taken. A disk that is busy for a second
    /// causes no loss of windows at 10 Gbit/s, about 40 windows a second.
    const WINDOWS_MAX: usize = 64;

    /// Adds labelled windows. Further windows are dropped if too many wait already.
    pub(super) fn add_windows(&self, windows: impl Iterator<Item = LabelledWindow>) {
        let mut waiting = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let room = Self::WINDOWS_MAX.saturating_sub(waiting.len());
        waiting.extend(windows.take(room));
    }

    /// Returns the labelled windows that were added since the last call.
    pub(super) fn take_windows(&self) -> Vec<LabelledWindow> {
        std::mem::take(&mut *self.windows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Latest progress of the flow.
    pub fn progress(&self) -> FlowProgress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Progress and counters of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowProgress {
    /// Counters of a sender; 0 at a receiver.
    pub stats: SenderStats,
    /// Number of bytes of the object that the receiver has, including bytes of earlier sessions.
    pub held_bytes: u64,
    /// At a receiver, the number of bytes of the object that are durable.
    pub durable_bytes: u64,
    /// Bytes a second that the controller allows (headers included).
    pub rate_bytes_s: f64,
    /// The smoothed round-trip time, once there is one.
    pub rtt: Option<Duration>,
    /// What limits the sender at present.
    pub limit: Option<SendLimit>,
    /// Rate at which the receiver can read, in bytes of the object a second, if this rate limits
    /// the sender.
    pub drain_bytes_s: u64,
    /// CPU time of the loop's thread, including the loss classifier.
    pub cpu: Duration,
    /// CPU time of the loss classifier in that thread.
    pub cpu_classifier: Duration,
    /// Time for which the loop's thread computed or waited for a processor; if the kernel does not
    /// count the waiting, the CPU time of the thread.
    pub busy_time: Duration,
    /// Time for which the thread that reads and hashes the sent bytes computed or waited for a
    /// processor. 0 if there is no such thread, or if the kernel does not count these times.
    pub busy_reader: Duration,
    /// Time for which the loop waited for the reading thread: it could have sent bytes, but they
    /// were not read yet.
    pub read_wait: Duration,
    /// Number of datagrams that could not be decrypted, or did not belong to the transfer.
    pub refused_datagrams: u64,
}

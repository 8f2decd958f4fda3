//! A station's consent to the bulk tests of other hosts, and the report about each test after its
//! end.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::wire::{DeclineReason, Request};

/// Decides on every transfer before a [`Responder`](super::Responder) serves it.
pub trait Consent: Send + Sync {
    /// Agrees to a transfer or declines it. Runs on the session's own thread and must not wait for
    /// the network.
    ///
    /// # Errors
    /// The reason, which the responder sends to the caller.
    fn agree(&self, transfer: &BulkRequest<'_>) -> Result<BulkPermit, DeclineReason>;

    /// Whether the session of a station that signed as `caller` may continue. After `signed_at`,
    /// the caller may have been removed from the mesh, and a different station may have registered
    /// with the same name.
    fn still_serves(&self, _caller: &str, _signed_at: Instant) -> bool {
        true
    }

    /// Whether this host runs a bulk transfer that the responder does not serve.
    fn is_loaded(&self) -> bool {
        false
    }
}

/// A transfer that a caller requests.
#[derive(Clone, Copy, Debug)]
pub struct BulkRequest<'a> {
    /// Name of the station that signed for its session; `None` if the caller was admitted without a
    /// signature.
    pub caller: Option<&'a str>,
    /// The request: [`Request::Goodput`], [`Request::Stream`] or [`Request::Iperf3`].
    pub request: Request,
}

/// Another program that receives a transfer instead of the responder; dropping the value ends the
/// program.
pub trait ExternalReceiver: Send {
    /// Starts the program for one test at `address`, an address of this host, and returns the port
    /// of the program.
    ///
    /// # Errors
    /// If the program cannot be started.
    fn start(&mut self, address: IpAddr) -> io::Result<u16>;

    /// Result of the program after its end: the number of received bytes, or why the run was not a
    /// valid test. `None` while the program runs. Must not block.
    fn poll_result(&mut self) -> Option<Result<u64, InvalidTest>>;

    /// Maximum number of bytes that the program may have moved so far. This number is charged if
    /// the program is stopped before its end.
    fn bytes_max(&self) -> u64;
}

/// Error: an external program ended, but its run was not the agreed test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTest {
    /// Bytes to charge to the caller.
    pub bytes: u64,
    /// Reason in one sentence.
    pub why: String,
}

/// Result of an agreed transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkOutcome {
    /// Time since the permit was given.
    pub duration: Duration,
    /// Bytes that the transfer moved.
    pub bytes: u64,
    /// Reason in one sentence if the transfer failed at this end and the reason is known.
    pub failed: Option<String>,
}

/// Permit for one transfer. Dropping the permit reports the result of the transfer, whether the
/// transfer succeeded or failed.
pub struct BulkPermit {
    /// Maximum time that a stream may take beyond its requested length, if this time is shorter
    /// than the responder's own grace.
    pub grace: Duration,
    began: Instant,
    bytes: u64,
    failed: Option<String>,
    on_end: Option<OnEnd>,
    pub(super) receiver: Option<Box<dyn ExternalReceiver>>,
}

type OnEnd = Box<dyn FnOnce(BulkOutcome) + Send>;

impl BulkPermit {
    /// Creates a permit; `on_end` is called once, with the result of the transfer.
    pub fn new(grace: Duration, on_end: impl FnOnce(BulkOutcome) + Send + 'static) -> Self {
        let on_end: OnEnd = Box::new(on_end);
        Self { grace, began: Instant::now(), bytes: 0, failed: None, on_end: Some(on_end), receiver: None }
    }

    /// Returns this permit for a transfer that the program `receiver` receives.
    #[must_use]
    pub fn with_receiver(mut self, receiver: impl ExternalReceiver + 'static) -> Self {
        self.receiver = Some(Box::new(receiver));
        self
    }

    pub(super) fn set_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    pub(super) fn set_failure(&mut self, why: String) {
        self.failed = Some(why);
    }
}

impl Drop for BulkPermit {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            let duration = self.began.elapsed();
            on_end(BulkOutcome { duration, bytes: self.bytes, failed: self.failed.take() });
        }
    }
}

impl fmt::Debug for BulkPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkPermit")
            .field("grace", &self.grace)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

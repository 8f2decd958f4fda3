//! A station's consent to the bulk tests of other hosts, and the report about each test after its
//! end.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::wire::{Declined, Request};

/// Decides on every transfer before a [`Responder`](super::Responder) serves it.
pub trait Consent: Send + Sync {
    /// Agrees to a transfer or declines it. Runs on the session's own thread and must not wait for
    /// the network.
    ///
    /// # Errors
    /// The reason, which the responder sends to the caller.
    fn agree(&self, wish: &Wish<'_>) -> Result<Agreement, Declined>;

    /// Whether a session that began at `since` may continue; its caller signed as `caller`. After
    /// `since`, that station may have been removed from the mesh, and another station may have
    /// taken its name.
    fn still_serves(&self, _caller: &str, _since: Instant) -> bool {
        true
    }

    /// Whether a bulk transfer runs on this host that the responder does not serve.
    fn is_loaded(&self) -> bool {
        false
    }
}

/// A transfer that a caller requests.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Name of the station that signed for its session; `None` if the caller was admitted without a
    /// signature.
    pub caller: Option<&'a str>,
    /// The request: [`Request::Goodput`], [`Request::Stream`] or [`Request::Iperf3`].
    pub request: Request,
}

/// Another program that receives a transfer instead of the responder; dropping it ends the program.
pub trait Program: Send {
    /// Starts the program for one test at this address of this host and returns its port.
    ///
    /// # Errors
    /// If the program cannot be started.
    fn start(&mut self, address: IpAddr) -> io::Result<u16>;

    /// Number of bytes received after the program has ended, or why it was not a valid test; `None`
    /// while it runs. Must not block.
    fn received(&mut self) -> Option<Result<u64, NoTest>>;

    /// Maximum number of bytes that the program may have moved so far. It is charged if the program
    /// is stopped before its end.
    fn most(&self) -> u64;
}

/// A program ended, but not after the agreed test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTest {
    /// Bytes to charge to the caller.
    pub bytes: u64,
    /// Reason in one sentence.
    pub why: String,
}

/// Result of an agreed transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Time since the agreement.
    pub duration: Duration,
    /// Bytes that the transfer moved.
    pub bytes: u64,
    /// Reason in one sentence if the transfer failed at this end and the reason is known.
    pub failed: Option<String>,
}

/// Agreement to one transfer. When it is dropped, it reports the result of the transfer, however it
/// ended.
pub struct Agreement {
    /// Maximum time that a stream may take beyond its requested length, if less than the
    /// responder's own grace.
    pub grace: Duration,
    began: Instant,
    bytes: u64,
    failed: Option<String>,
    settle: Option<Settle>,
    pub(super) program: Option<Box<dyn Program>>,
}

type Settle = Box<dyn FnOnce(Settled) + Send>;

impl Agreement {
    /// Creates an agreement; `settle` is called once, with the result of the transfer.
    pub fn new(grace: Duration, settle: impl FnOnce(Settled) + Send + 'static) -> Self {
        let settle: Settle = Box::new(settle);
        Self { grace, began: Instant::now(), bytes: 0, failed: None, settle: Some(settle), program: None }
    }

    /// The same agreement for a transfer that `program` receives.
    #[must_use]
    pub fn by(mut self, program: impl Program + 'static) -> Self {
        self.program = Some(Box::new(program));
        self
    }

    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    pub(super) fn failed(&mut self, why: String) {
        self.failed = Some(why);
    }
}

impl Drop for Agreement {
    fn drop(&mut self) {
        if let Some(settle) = self.settle.take() {
            let duration = self.began.elapsed();
            settle(Settled { duration, bytes: self.bytes, failed: self.failed.take() });
        }
    }
}

impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agreement")
            .field("grace", &self.grace)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

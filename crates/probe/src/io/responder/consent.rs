//! Whether a station agrees to a transfer that it is asked for, and what it is told of it afterwards.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::wire::{Declined, Request};

/// Asked before every transfer that a [`Responder`](super::Responder) serves.
pub trait Consent: Send + Sync {
    /// Agrees to a transfer, or says why not. Called on the session's own thread; must not wait for the network.
    ///
    /// # Errors
    /// What the caller is told.
    fn agree(&self, wish: &Wish<'_>) -> Result<Agreement, Declined>;

    /// Whether the session of a caller that signed may go on: it may have lost its right since.
    fn still_serves(&self, _caller: &str) -> bool {
        true
    }

    /// Whether a bulk transfer is under way on this host that the responder does not serve.
    fn is_loaded(&self) -> bool {
        false
    }
}

/// A transfer that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// The station that signed for its session; `None` = whoever was let in otherwise.
    pub caller: Option<&'a str>,
    /// [`Request::Goodput`], [`Request::Stream`] or [`Request::Iperf3`].
    pub request: Request,
}

/// Another program that receives a transfer in the responder's stead; dropping it ends it.
pub trait Program: Send {
    /// Starts it for one test at this address of this host, and gives its port.
    ///
    /// # Errors
    /// When it cannot be started.
    fn start(&mut self, address: IpAddr) -> io::Result<u16>;

    /// How many bytes it received, once it has ended, or why that was no test; `None` = it runs. Must not wait.
    fn received(&mut self) -> Option<Result<u64, NoTest>>;

    /// The most bytes that it may have moved so far: charged when it is ended before it has.
    fn most(&self) -> u64;
}

/// A program ended, and what it did was not the test agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTest {
    /// What it is charged.
    pub bytes: u64,
    /// A sentence.
    pub why: String,
}

/// What became of a transfer that was agreed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Since it was agreed to.
    pub duration: Duration,
    /// What it moved.
    pub bytes: u64,
    /// Why it failed at this end, in a sentence, where that is known.
    pub failed: Option<String>,
}

/// Agreement to one transfer: tells what it took when it is dropped, however it ended.
pub struct Agreement {
    /// How much later than it said a stream may end, where that is less than the responder's own grace.
    pub grace: Duration,
    began: Instant,
    bytes: u64,
    failed: Option<String>,
    settle: Option<Settle>,
    pub(super) program: Option<Box<dyn Program>>,
}

type Settle = Box<dyn FnOnce(Settled) + Send>;

impl Agreement {
    /// `settle` is called once, with what became of the transfer.
    pub fn new(grace: Duration, settle: impl FnOnce(Settled) + Send + 'static) -> Self {
        let settle: Settle = Box::new(settle);
        Self { grace, began: Instant::now(), bytes: 0, failed: None, settle: Some(settle), program: None }
    }

    /// The same for a transfer that `program` receives.
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

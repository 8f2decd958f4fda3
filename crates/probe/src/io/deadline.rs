//! Deadline and cancellation of an experiment or session, and the mapping from I/O errors to
//! failures.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use barograph_forecast::Failure;

use crate::ProbeError;
use crate::wire::DeclineReason;

/// Maximum time between two checks of deadline and cancellation while a call blocks.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Cancels experiments from another thread; clones share the state.
///
/// A blocked experiment ends within a tenth of a second.
#[derive(Clone, Debug, Default)]
pub struct CancellationToken(Arc<AtomicBool>);

impl CancellationToken {
    /// Cancels the running experiments of this token, and all experiments that start later.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Start, deadline and cancellation of an experiment.
#[derive(Clone, Debug)]
pub(super) struct Deadline {
    began: Instant,
    ends: Instant,
    cancel: CancellationToken,
}

impl Deadline {
    pub(super) fn start(deadline: Duration, cancel: &CancellationToken) -> Self {
        let began = Instant::now();
        // The deadline is at most a year, so that an `Instant` can represent it.
        let ends = began + deadline.min(Duration::from_secs(365 * 24 * 3600));
        Self { began, ends, cancel: cancel.clone() }
    }

    /// A copy with the deadline `within` from now, or with the deadline of `self` if that deadline
    /// is earlier.
    pub(super) fn within(&self, within: Duration) -> Self {
        let earlier = Instant::now().checked_add(within).map_or(self.ends, |ends| ends.min(self.ends));
        Self { ends: earlier, ..self.clone() }
    }

    /// Time until the deadline.
    ///
    /// # Errors
    /// `TimedOut` after the deadline; an error that contains [`Stopped`] after cancellation.
    pub(super) fn left(&self) -> io::Result<Duration> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other(Stopped));
        }
        match self.ends.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// How long a call may block: until the deadline, at most [`POLL_INTERVAL`], at least 1 ms.
    pub(super) fn poll_timeout(&self) -> io::Result<Duration> {
        Ok(self.left()?.clamp(Duration::from_millis(1), POLL_INTERVAL))
    }

    /// Creates an error. `after_s` of the error is the time since the start of the experiment.
    pub(super) fn fail(&self, failure: Failure, message: impl Into<String>) -> ProbeError {
        let after_s = self.began.elapsed().as_secs_f64();
        ProbeError { failure, after_s, message: message.into(), stopped: false, declined: None }
    }

    /// The failure for an I/O error that occurred while `doing` something.
    pub(super) fn io(&self, doing: &str, error: &io::Error) -> ProbeError {
        if error.get_ref().is_some_and(|inner| inner.is::<Stopped>()) {
            return ProbeError { stopped: true, ..self.fail(Failure::Local, format!("{doing}: {Stopped}")) };
        }
        match failure(error) {
            Failure::TimedOut => {
                let limit_s = (self.ends - self.began).as_secs_f64();
                self.fail(Failure::TimedOut, format!("{doing}: no answer within {limit_s:.3} s"))
            }
            Failure::Reset => {
                self.fail(Failure::Reset, format!("{doing}: the connection was closed before the end"))
            }
            kind => self.fail(kind, format!("{doing}: {error}")),
        }
    }

    pub(super) fn declined(&self, declined: DeclineReason) -> ProbeError {
        let error = self.fail(Failure::Declined, format!("the station declined: {declined}"));
        ProbeError { declined: Some(declined), ..error }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cancelled before its end")]
struct Stopped;

/// Maps an I/O error to a kind of failure.
fn failure(error: &io::Error) -> Failure {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused => Failure::Refused,
        Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::NetworkDown => Failure::Unreachable,
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::NotConnected
        | Kind::WriteZero
        | Kind::UnexpectedEof => Failure::Reset,
        Kind::TimedOut | Kind::WouldBlock => Failure::TimedOut,
        // rustls and our decoders return `InvalidData` for bytes that violate the protocol.
        Kind::InvalidData => Failure::InvalidResponse,
        _ => Failure::Local,
    }
}

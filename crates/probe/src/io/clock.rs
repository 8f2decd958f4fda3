//! The deadline of one experiment or session, the switch that stops it, and the failure that an error means.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use barograph_forecast::Failure;

use crate::ProbeError;
use crate::wire::Declined;

/// How long a blocked call may go without looking at the deadline and the switch.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// A switch that stops experiments from another thread; clones share it.
///
/// A blocked experiment notices within a tenth of a second.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Stops what runs, and what would start, under this switch.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was thrown.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// When an experiment began and when it must end, and the switch that ends it earlier.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    began: Instant,
    ends: Instant,
    cancel: Cancel,
}

impl Clock {
    pub(super) fn start(deadline: Duration, cancel: &Cancel) -> Self {
        let began = Instant::now();
        // Cut to a year, so that no deadline is beyond what the clock can express.
        let ends = began + deadline.min(Duration::from_secs(365 * 24 * 3600));
        Self { began, ends, cancel: cancel.clone() }
    }

    /// The same experiment with an earlier end: `within` from now, but not later than before.
    pub(super) fn within(&self, within: Duration) -> Self {
        let earlier = Instant::now().checked_add(within).map_or(self.ends, |ends| ends.min(self.ends));
        Self { ends: earlier, ..self.clone() }
    }

    /// Time until the end.
    ///
    /// # Errors
    /// `TimedOut` when there is none, and a marked error when stopped from outside.
    pub(super) fn left(&self) -> io::Result<Duration> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other(Stopped));
        }
        match self.ends.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// How long to block now: until the end, but no longer than a tick, and never zero.
    pub(super) fn tick(&self) -> io::Result<Duration> {
        Ok(self.left()?.clamp(Duration::from_millis(1), TICK))
    }

    /// The failure of this experiment, now.
    pub(super) fn fail(&self, failure: Failure, message: impl Into<String>) -> ProbeError {
        let after_s = self.began.elapsed().as_secs_f64();
        ProbeError { failure, after_s, message: message.into(), stopped: false, declined: None }
    }

    /// The failure that an error of the system means while `doing` something.
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
                self.fail(Failure::Reset, format!("{doing}: the connection was closed too early"))
            }
            kind => self.fail(kind, format!("{doing}: {error}")),
        }
    }

    pub(super) fn declined(&self, declined: Declined) -> ProbeError {
        let error = self.fail(Failure::Declined, format!("the station declines: {declined}"));
        ProbeError { declined: Some(declined), ..error }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("stopped before it ended")]
struct Stopped;

/// The failure that an error of the system stands for.
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
        // What rustls and our decoders say of bytes that do not belong.
        Kind::InvalidData => Failure::Garbage,
        _ => Failure::Local,
    }
}

//! A call that took too long.

use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::{Decision, Reason};

/// The error of a call that had no answer in time: how long it might take, and on what grounds.
///
/// Calls fail with a boxed error, as tower's own middleware does; [`Elapsed::find`] finds this one in it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elapsed {
    /// How long the last attempt was allowed.
    pub timeout: Duration,
    /// The forecast of the response time when that was decided, if there was one.
    pub forecast: Option<Duration>,
    /// Why the timeout was what it was.
    pub reason: Reason,
    /// Attempts made, at least 1.
    pub attempts: u32,
    /// From the start of the first attempt to the end.
    pub elapsed: Duration,
    /// What ended the call.
    pub by: Cause,
}

/// What ended a call that had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The timeout of its last attempt.
    Timeout,
    /// The deadline that was set by hand.
    Deadline,
    /// The service had not become ready for the next attempt within the limit of a last try.
    NotReady,
}

impl Elapsed {
    /// Finds it in an error or in what caused that error, where a client has wrapped it in its own.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        // A chain of causes that is longer, or a circle, is somebody's mistake.
        for _ in 0..DEPTH {
            let error = next?;
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    pub(super) fn new(decision: &Decision, attempts: u32, elapsed: Duration, by: Cause) -> Self {
        let Decision { timeout, forecast, reason, .. } = *decision;
        Self { timeout, forecast, reason, attempts, elapsed, by }
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer within {:?}", self.elapsed)?;
        if self.attempts > 1 {
            write!(f, " in {} attempts", self.attempts)?;
        }
        match self.by {
            Cause::Timeout => write!(f, " (timeout {:?}: {}", self.timeout, self.reason)?,
            Cause::Deadline => f.write_str(" (the deadline")?,
            Cause::NotReady => f.write_str(" (not ready for another attempt")?,
        }
        match self.forecast {
            Some(forecast) => write!(f, "; forecast {forecast:?})"),
            None => f.write_str("; no forecast)"),
        }
    }
}

impl Error for Elapsed {}

/// Clients nest their errors three or four deep.
const DEPTH: usize = 32;

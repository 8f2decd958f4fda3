//! Error of a call that took too long.

use core::error::Error;
use core::fmt;
use core::time::Duration;

use crate::{TimeoutDecision, TimeoutReason};

/// Error of a call without a response in time, with the timeout and its reason.
///
/// Calls fail with a boxed error, as tower's own middleware does; [`Elapsed::find`] finds this
/// error in the boxed error.
///
/// ```
/// use barograph_timeout::tower::{AdaptiveTimeoutLayer, Elapsed, ElapsedCause};
/// use std::time::Duration;
/// # use std::future::pending;
/// # use tower::{Layer, ServiceExt, service_fn};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), barograph_timeout::tower::BoxError> {
/// # let silent = service_fn(|_: u32| pending::<Result<u32, std::io::Error>>());
///
/// let layer = AdaptiveTimeoutLayer::new(|_: &u32| "target").deadline(Duration::from_secs(2));
/// let client = layer.layer(silent); // This service never responds.
/// let error = client.oneshot(7).await.expect_err("no response arrives");
/// let elapsed = Elapsed::find(&*error).expect("the deadline has passed");
/// assert_eq!((elapsed.cause, elapsed.attempts), (ElapsedCause::Deadline, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elapsed {
    /// Timeout of the last attempt.
    pub timeout: Duration,
    /// Forecast of the response time when the timeout was decided, if there was one.
    pub forecast: Option<Duration>,
    /// Reason for the timeout.
    pub reason: TimeoutReason,
    /// Number of attempts, at least 1.
    pub attempts: u32,
    /// Time from the start of the first attempt to the end of the call.
    pub elapsed: Duration,
    /// Reason why the call ended.
    pub cause: ElapsedCause,
}

/// Reason why a call ended without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElapsedCause {
    /// The timeout of the last attempt.
    Timeout,
    /// The deadline that the caller set.
    Deadline,
    /// The service did not become ready for the next attempt within the longest time that a last
    /// attempt may take (`max_timeout`).
    NotReady,
}

impl Elapsed {
    /// Finds this error in `error` or in its chain of sources, for clients that wrap this error in
    /// their own errors.
    #[must_use]
    pub fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        // Limit the search, because an error from a different crate may have a cyclic chain of
        // sources.
        for _ in 0..DEPTH {
            let error = next?;
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }

    pub(super) fn new(
        decision: &TimeoutDecision,
        attempts: u32,
        elapsed: Duration,
        cause: ElapsedCause,
    ) -> Self {
        let TimeoutDecision { timeout, forecast, reason, .. } = *decision;
        Self { timeout, forecast, reason, attempts, elapsed, cause }
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no response within {:?}", self.elapsed)?;
        if self.attempts > 1 {
            write!(f, " in {} attempts", self.attempts)?;
        }
        match self.cause {
            ElapsedCause::Timeout => write!(f, " (timeout {:?}: {}", self.timeout, self.reason)?,
            ElapsedCause::Deadline => f.write_str(" (the deadline of the call")?,
            ElapsedCause::NotReady => f.write_str(" (the service was not ready for another attempt")?,
        }
        match self.forecast {
            Some(forecast) => write!(f, "; forecast {forecast:?})"),
            None => f.write_str("; no forecast)"),
        }
    }
}

impl Error for Elapsed {}

/// Maximum number of sources that are searched. Clients nest errors three or four deep.
const DEPTH: usize = 32;

//! Learned timeouts: the timeout of each attempt follows from the forecast of its response time and
//! the error of this forecast.
//!
//! An estimator gives a timeout before each attempt and learns how attempts ended. The caller
//! measures the times and passes them in: the core has no networking, clock, thread or I/O, and it
//! neither sends nor cancels anything.
//!
//! - [`TimeoutEstimator`] is the trait of all estimators: [`TimeoutEstimator::decide`] before an
//!   attempt, [`TimeoutEstimator::record`] after it.
//! - [`Adaptive`] is the default estimator. It also learns from attempts that were cut off,
//!   measures whether retries help, takes the size of a message into account and keeps a retry
//!   budget.
//! - [`MessageAttempts`] numbers the attempts of one message.
//!
//! [`QuantileTimeout`] takes a quantile of the forecast response time, for programs that plan how
//! many attempts are cut off. The other estimators are for comparison: [`FixedTimeout`]; [`Nws`]
//! and [`NwsEscalating`], the estimators of Allen, Wolski and Plank, *Adaptive timeout discovery
//! using the Network Weather Service* (2002); and [`Rfc6298`], the retransmission timer of TCP.
//!
//! The feature `link` adds module `link`: messages over TCP that are cut off, sent again and
//! handled once. The feature `tower` adds module `tower`: middleware for services.
//!
//! ```
//! use barograph_timeout::{Adaptive, AttemptOutcome, MessageAttempts, TimeoutEstimator};
//! use std::time::Duration;
//!
//! let mut link = Adaptive::default();
//! for _ in 0..100 {
//!     let message = MessageAttempts::new(1024, 3);
//!     let attempt = message.attempt(Duration::ZERO);
//!     let _wait_at_most = link.timeout(&attempt);
//!     link.record(&attempt, AttemptOutcome::Completed(Duration::from_millis(20)));
//! }
//! let decision = link.decide(&MessageAttempts::new(1024, 3).attempt(Duration::ZERO));
//! assert!(decision.timeout < Duration::from_millis(400), "{decision:?}");
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "link", feature = "tower"))]
extern crate std;

mod adaptive;
mod attempt;
mod decision;
mod fixed;
pub mod fuzzing;
#[cfg(feature = "link")]
pub mod link;
mod nws;
mod quantile;
mod rfc6298;
#[cfg(any(feature = "link", feature = "tower"))]
mod sync;
mod time;
#[cfg(feature = "tower")]
pub mod tower;

pub use adaptive::{Adaptive, AdaptiveConfig, HostStatistics, StateError};
pub use attempt::{Attempt, AttemptOutcome, MessageAttempts};
pub use decision::{TimeoutDecision, TimeoutReason};
pub use fixed::FixedTimeout;
pub use nws::{Nws, NwsEscalating};
pub use quantile::QuantileTimeout;
pub use rfc6298::Rfc6298;

use core::time::Duration;

/// Gives the timeout of each attempt, and learns how attempts ended.
///
/// There is one estimator for each link, that is for each ordered pair of this program and a
/// target.
///
/// ```
/// use barograph_timeout::{
///     AttemptOutcome, FixedTimeout, MessageAttempts, Rfc6298, TimeoutEstimator,
/// };
/// use std::time::Duration;
///
/// let mut estimators: Vec<Box<dyn TimeoutEstimator>> =
///     vec![Box::new(FixedTimeout(Duration::from_secs(2))), Box::new(Rfc6298::default())];
/// let attempt = MessageAttempts::new(1024, 3).attempt(Duration::ZERO);
/// for estimator in &mut estimators {
///     estimator.record(&attempt, AttemptOutcome::Completed(Duration::from_millis(250)));
/// }
/// assert_eq!(estimators[0].timeout(&attempt), Duration::from_secs(2));
/// assert_eq!(estimators[1].timeout(&attempt), Duration::from_millis(750));
/// ```
pub trait TimeoutEstimator {
    /// Returns how long `attempt` may take, the forecast behind it, and the reason.
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision;

    /// Returns [`TimeoutDecision::timeout`] alone.
    fn timeout(&self, attempt: &Attempt) -> Duration {
        self.decide(attempt).timeout
    }

    /// Records how `attempt` ended. Attempts may end in any order, and the ends of some attempts
    /// may never be recorded.
    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome);

    /// Records the time to set up a connection. This time is not part of the time of any attempt.
    /// Estimators that compute the cost of a retry use this time.
    fn record_connect(&mut self, _took: Duration) {}
}

impl<T: TimeoutEstimator + ?Sized> TimeoutEstimator for alloc::boxed::Box<T> {
    fn decide(&self, attempt: &Attempt) -> TimeoutDecision {
        (**self).decide(attempt)
    }

    fn timeout(&self, attempt: &Attempt) -> Duration {
        (**self).timeout(attempt)
    }

    fn record(&mut self, attempt: &Attempt, ended: AttemptOutcome) {
        (**self).record(attempt, ended);
    }

    fn record_connect(&mut self, took: Duration) {
        (**self).record_connect(took);
    }
}

/// Timeout of a first attempt before anything was learned: the generous timeout of the paper's
/// experiment (Allen, Wolski, Plank 2002, §4.2: 45 s is "a very conservative estimate").
pub const INITIAL_TIMEOUT: Duration = Duration::from_secs(45);

/// Timeout of the last attempt: two hours, the idle time after which TCP keepalive by default
/// begins to probe the connection (RFC 9293 §3.8.4). Waiting longer gains nothing.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

// So are those of the project's README, and of the guide.
#[cfg(all(doctest, feature = "tower"))]
#[doc = include_str!("../../../README.md")]
mod project_readme {}

#[cfg(all(doctest, feature = "link", feature = "tower"))]
#[doc = include_str!("../../../docs/guide/timeouts-rust.md")]
mod guide {}

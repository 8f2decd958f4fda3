//! Timeouts that set themselves, from the forecast of the response time and its error.
//!
//! This crate's core contains no networking, no clock, no thread and no I/O: how long attempts took comes
//! in, how long the next may take goes out. Everything is behind one small trait, [`Timeout`], with the
//! estimators
//!
//! - [`Static`], what every program has today;
//! - [`Nws`] and [`NwsEscalating`], those of Allen, Wolski and Plank, *Adaptive timeout discovery using the
//!   Network Weather Service* (2002);
//! - [`Rfc6298`], the retransmission timer of TCP;
//! - [`Adaptive`], the default: it learns from what it cut off as well, asks whether a retry helps at all,
//!   knows sizes, and keeps a budget.
//!
//! The feature `link` adds `link`: messages over TCP that are cut off, sent again and handled once.
//!
//! ```
//! use barograph_timeout::{Adaptive, Ended, Exchange, Timeout};
//! use std::time::Duration;
//!
//! let mut link = Adaptive::default();
//! for _ in 0..100 {
//!     let exchange = Exchange::new(1024, 3);
//!     let attempt = exchange.attempt(Duration::ZERO);
//!     let _wait_at_most = link.timeout(&attempt);
//!     link.record(&attempt, Ended::Answered(Duration::from_millis(20)));
//! }
//! let decision = link.decide(&Exchange::new(1024, 3).attempt(Duration::ZERO));
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
mod rfc6298;
#[cfg(any(feature = "link", feature = "tower"))]
mod sync;
mod time;
#[cfg(feature = "tower")]
pub mod tower;

pub use adaptive::{Adaptive, Config, Host, StateError};
pub use attempt::{Attempt, Ended, Exchange};
pub use decision::{Decision, Reason};
pub use fixed::Static;
pub use nws::{Nws, NwsEscalating};
pub use rfc6298::Rfc6298;

use core::time::Duration;

/// Decides how long an attempt may take, and learns how attempts ended. One for each link (an ordered pair
/// of this program and a target).
pub trait Timeout {
    /// How long `attempt` may take, what that is based on, and why.
    fn decide(&self, attempt: &Attempt) -> Decision;

    /// How long `attempt` may take: [`Decision::timeout`] without the rest.
    fn timeout(&self, attempt: &Attempt) -> Duration {
        self.decide(attempt).timeout
    }

    /// `attempt` ended so. Attempts may end in any order, and some may never be recorded.
    fn record(&mut self, attempt: &Attempt, ended: Ended);

    /// Setting up a connection took so long, which is no part of any attempt's time. Estimators that weigh
    /// what a retry costs want to know.
    fn connected(&mut self, _took: Duration) {}
}

impl<T: Timeout + ?Sized> Timeout for alloc::boxed::Box<T> {
    fn decide(&self, attempt: &Attempt) -> Decision {
        (**self).decide(attempt)
    }

    fn timeout(&self, attempt: &Attempt) -> Duration {
        (**self).timeout(attempt)
    }

    fn record(&mut self, attempt: &Attempt, ended: Ended) {
        (**self).record(attempt, ended);
    }

    fn connected(&mut self, took: Duration) {
        (**self).connected(took);
    }
}

/// How long a first attempt may take while nothing is known: the generous timeout of the paper's experiment
/// (Allen, Wolski, Plank 2002, §4.2: 45 s is "a very conservative estimate").
pub const START: Duration = Duration::from_secs(45);

/// How long the last try of an exchange may run: after so long TCP's keepalive, at its default, starts to
/// doubt the connection (RFC 9293 §3.8.4: two hours), so waiting longer waits for nothing.
pub const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

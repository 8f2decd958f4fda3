//! The parts that the tests of several crates share. A failure panics, as in the tests themselves.
//!
//! Three types matter:
//!
//! - [`HookedEngine`] is an engine that delegates to others; a test redirects, rejects or replaces
//!   its calls.
//! - [`ChildProcess`] is a process that is killed when it is dropped.
//! - [`nats::NatsServer`] is a `nats-server`, killed in the same way.
//!
//! [`http`] is a small HTTP client, and [`wait_until`] waits with a limit. [`name`], [`series`],
//! [`record`] and [`entry`] create valid values.
//!
//! ```
//! let series = barograph_testkit::series("north", "south");
//! assert_eq!(series.to_string(), "rtt north → south");
//! ```
//!
//! The crate is not published, and nothing but tests may depend on it. Emulated links and failing
//! disks are in `barograph-sim`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod child_process;
mod fenced;
mod hooked_engine;
pub mod http;
pub mod nats;
mod values;
mod wait;

pub use child_process::ChildProcess;
pub use fenced::{code_blocks, fenced};
pub use hooked_engine::{EngineCall, EngineHooks, HookedEngine};
pub use values::{entry, name, record, series};
pub use wait::{LIMIT, next_item, wait_for, wait_until};

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

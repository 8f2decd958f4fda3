//! The parts that the tests of several crates share. A failure panics, as in the tests themselves.
//!
//! Three types matter:
//!
//! - [`Hooked`] is an engine that delegates to others; a test redirects, rejects or replaces its
//!   calls.
//! - [`Program`] is a process that is killed when it is dropped.
//! - [`nats::Server`] is a `nats-server`, killed in the same way.
//!
//! [`http`] is a small HTTP client, and [`until`] waits with a limit. [`name`], [`series`],
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

mod engine;
mod fenced;
pub mod http;
pub mod nats;
mod program;
mod values;
mod wait;

pub use engine::{Call, Hooked, Hooks};
pub use fenced::fenced;
pub use program::Program;
pub use values::{entry, name, record, series};
pub use wait::{LIMIT, next, until, until_some};

//! What the tests of several crates share. A failure panics, as in the tests themselves.
//!
//! [`Hooked`] is an engine over others whose calls a test redirects, refuses or replaces; [`http`] a client of a
//! few lines; [`Program`] a process that is killed when dropped; [`nats::Server`] a `nats-server`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod engine;
pub mod http;
pub mod nats;
mod program;
mod values;
mod wait;

pub use engine::{Call, Hooked, Hooks};
pub use program::Program;
pub use values::{entry, name, record, series};
pub use wait::{LIMIT, next, until, until_some};

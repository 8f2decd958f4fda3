//! The experiments over real sockets on loopback.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic and read the clock")]

mod bad_peers;
mod common;
mod program;
mod station;
mod timed;
mod web;

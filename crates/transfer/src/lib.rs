//! Bulk data by datagrams (Dickens §2, FOBS).
//!
//! With the feature `io` (Unix), [`io::send`] sends files and an [`io::Host`] receives them, over UDP beside a TLS connection; `files`
//! (Unix) says what is sent and what may be written. All of it rests on a protocol of pure state machines, which builds without either.
//! `examples/send.rs` sends in twenty lines.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "testkit"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "`testkit` shows them")
)]

#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "io")]
#[expect(clippy::disallowed_methods, reason = "the io shell is where the clock is read")]
pub mod io;
#[allow(missing_docs, reason = "only `testkit` shows most of it")]
mod proto;
#[cfg(any(test, feature = "testkit"))]
#[allow(missing_docs, reason = "its names say what they are")]
pub mod testkit;

pub use proto::{Limit, Rtt, Stats, Violation};

/// How fast to send.
pub mod controller {
    pub use crate::proto::controller::{Controller, Delivery, Kind, Loss, Seen, UnknownKind};
}

//! Bulk data by datagrams (Dickens §2, FOBS): the pure protocol, files, and transfers over sockets.
//!
//! - [`proto`] is the protocol: state machines without a clock or a socket.
//! - With the feature `files` (Unix), `files` makes one object of many files, and files of an object again.
//! - With the feature `io` (Unix), `io` sends them from end to end, over UDP beside a TLS connection.
#![forbid(unsafe_code)]

#[cfg(feature = "files")]
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "io")]
#[expect(clippy::disallowed_methods, reason = "the io shell is where the clock is read")]
pub mod io;
#[doc(hidden)]
pub mod pair;
pub mod proto;

pub use proto::controller::Controller;
pub use proto::{
    Arrival, Ear, Feedback, Fresh, Heard, Limit, Missing, Moment, Packet, Receiver, ReceiverConfig, Refusal,
    Rtt, Sender, SenderConfig, Stats, TooLong, Violation, controller, wire,
};

//! The protocol as pure state machines: events and the time come in, datagrams and deadlines go out; no clock, no socket, no file.
//!
//! - A [`Sender`] says which range of the object the next packet carries and when, and learns from [`Feedback`].
//! - A [`Receiver`] says which part of a packet is new, and what to report: which packets came, and what is known of each gap.
//! - A [`Controller`] sets the rate; an [`Ear`] tells it which losses were the network's.
//! - [`wire`] is what travels, byte for byte (`docs/spec/transfer.md`).
//!
//! Times are [`Duration`](std::time::Duration)s since an epoch that the caller chooses, the same for all calls of one value; they never
//! decrease from call to call. Packet numbers are never used twice: a range that is sent again travels under a new one, so that numbers
//! are nonces and what is missing between them is a loss signature.

pub mod controller;
mod ear;
mod pacer;
mod receiver;
mod rtt;
mod sender;
pub mod wire;

pub use controller::Controller;
pub use ear::{Ear, Heard, Missing, Moment};
pub use receiver::{Arrival, Fresh, Receiver, ReceiverConfig, Refusal};
pub use rtt::Rtt;
pub use sender::{Limit, Packet, Sender, SenderConfig, Stats, Violation};
pub use wire::Feedback;

/// An object is longer than places in it can say ([`wire::NUMBER_MAX`] bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an object of {0} bytes, where 2^62 - 1 is the most")]
pub struct TooLong(pub u64);

impl TooLong {
    fn check(object_bytes: u64) -> Result<(), Self> {
        if wire::NUMBER_MAX < object_bytes { Err(Self(object_bytes)) } else { Ok(()) }
    }
}

/// Nanoseconds of a time, saturating after 584 years.
pub(crate) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

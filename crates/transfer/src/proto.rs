//! The transfer protocol as pure state machines: no clock, no socket, no file.
//!
//! Callers pass in events and the time, and poll for packets, feedback and deadlines.
//!
//! - A [`Sender`] decides which range of the object the next packet carries, and when it is sent.
//! - A [`Receiver`] decides which part of a packet is new, and what to report: which packets
//!   arrived, and what is known about each gap.
//! - A [`Controller`] sets the rate. A [`LossAttributor`] classifies losses, so that only network
//!   losses reach the controller.
//! - [`wire`] encodes and decodes datagrams (`docs/spec/transfer.md`).
//!
//! Times are [`Duration`](std::time::Duration)s since an epoch that the caller chooses. All calls
//! on one value use the same epoch, and times never decrease from call to call.
//!
//! A packet number is never used twice: a range that is sent again gets a new number. So numbers
//! can be nonces, and missing numbers form a loss signature.

mod classification;
pub mod controller;
mod loss_attributor;
mod pacer;
mod receiver;
mod rtt;
mod sender;
mod window_recorder;
pub mod wire;

pub use classification::{LossClassification, LossesByEvidence};
pub use controller::Controller;
pub use loss_attributor::{AttributedLoss, LossAttributor, PathContext, SettledBy, UnattributedLoss};
pub use receiver::{Arrival, NewBytes, Receiver, ReceiverConfig, Refusal};
pub use rtt::Rtt;
pub use sender::{Packet, ProtocolViolation, SendLimit, Sender, SenderConfig, SenderStats};
pub use wire::Feedback;

/// The object has more than [`wire::NUMBER_MAX`] bytes, so offsets in it cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object has {0} bytes, and at most 2^62 - 1 can be sent: send the files in several transfers")]
pub struct TooLong(pub u64);

impl TooLong {
    fn check(object_bytes: u64) -> Result<(), Self> {
        if object_bytes > wire::NUMBER_MAX { Err(Self(object_bytes)) } else { Ok(()) }
    }
}

/// Nanoseconds of a time, saturating after 584 years.
pub(crate) fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

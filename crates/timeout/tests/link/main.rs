//! The link: both ends in virtual time, bad peers, and real TCP.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod lossy;
mod peers;
mod senders;
mod slow;
mod tcp;
mod timing;

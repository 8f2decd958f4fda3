//! Moves files between two hosts over UDP, and reports why packets were lost (FOBS, Dickens §2).
//!
//! The receiver reports which packets came and what is known of each gap. The sender classifies the
//! losses. Losses by the receiving host limit the rate to what this host can read. Losses by the
//! network are congestion. Both ends agree over TLS. Data is sealed and verified, and an
//! interrupted transfer resumes.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! # #[cfg(feature = "io")]
//! use barograph_transfer::io::{ReceiverEndpoint, SendConfig, send};
//!
//! # #[cfg(not(feature = "io"))]
//! # fn main() {}
//! # #[cfg(feature = "io")]
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // The receiver address, as `barograph recv` prints it.
//!     let address = std::env::args().nth(1).ok_or("a receiver address is missing")?.parse()?;
//!     let config = SendConfig::new(vec!["data".into()], ReceiverEndpoint::Address(address));
//!     let summary = send(config, &AtomicBool::new(false), &mut |_| {})?;
//!     println!("{} bytes in {:?}", summary.bytes, summary.lasted);
//!     println!("losses: {:?}", summary.progress.stats);
//!     Ok(())
//! }
//! ```
//!
//! # The three types that matter
//!
//! - [`io::SendConfig`]: what to send, to which receiver and how; [`io::send`] sends the files.
//! - [`io::ReceiveServer`]: receives into one directory, from one sender or several.
//! - [`controller::ControllerKind`]: the congestion controller; the default models the path.
//!
//! # Features
//!
//! Without features the crate has only the protocol, as pure state machines that the feature
//! `testkit` makes public for tests and the lab. The feature `files` (Unix) adds manifests,
//! directories and journals; `io` (Unix) adds sockets, encryption and sessions.
//!
//! # What it does not do
//!
//! - It offers no stream of bytes: packets are written in the order in which they arrive.
//! - It sends whole files, not the differences between two versions of a file.
//! - It does not find receivers, and does not open ports: the receiver must be reachable.
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

pub use proto::{LossClassification, LossesByEvidence, ProtocolViolation, Rtt, SendLimit, SenderStats};

/// Congestion controllers: how fast a sender sends.
pub mod controller {
    pub use crate::proto::controller::{
        Controller, ControllerKind, Delivery, DetectedLossRun, DrainLimiter, FeedbackSample, UnknownKind,
    };
}

// The examples of README.md are doctests.
#[cfg(all(doctest, feature = "io"))]
#[doc = include_str!("../README.md")]
mod readme {}

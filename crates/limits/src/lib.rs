//! Limits for each caller of a server, so that one caller cannot block the others.
//!
//! Three types matter:
//!
//! - [`token_bucket::TokenBucket`]: a budget that refills with time.
//! - [`accounts::Accounts`]: a budget for each address, and one for the server.
//! - [`admission::Admission`]: decides which connections are admitted, and which one is closed to
//!   make room.
//!
//! Beside them, [`caller_group`] defines which addresses count as one caller, [`authenticated`]
//! records the addresses that a token or a signature authorised lately, [`credentials`] delays the
//! responses to wrong tokens, and [`pace`] bounds the time of a transfer.
//!
//! ```
//! use std::time::Duration;
//!
//! use barograph_limits::token_bucket::{TokenBucket, Rate};
//!
//! // Two a second; a full bucket holds what five seconds give.
//! let mut bucket = TokenBucket::new(Rate::per_s(2), Duration::from_secs(5));
//! let now = Duration::from_secs(100);
//! assert_eq!(bucket.take(10, now), Ok(()));
//! assert_eq!(bucket.take(1, now), Err(Duration::from_millis(500)));
//! ```
//!
//! The crate is pure: the caller passes addresses and times in, and acts on the decisions. The
//! crate opens no socket, reads no clock and starts no thread.

pub mod accounts;
pub mod admission;
pub mod authenticated;
pub mod caller_group;
pub mod credentials;
pub mod pace;
pub mod token_bucket;

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

//! Transfers of files over loopback, end to end.
#![cfg(feature = "io")]
#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod common;
mod whole;

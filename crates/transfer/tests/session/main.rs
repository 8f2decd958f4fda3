//! Transfers of files over loopback, end to end.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail by panicking")]

mod abusive;
mod changed;
mod common;
mod crowd;
mod failover;
mod full;
mod interrupted;
mod refused;
mod whole;

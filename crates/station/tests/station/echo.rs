//! Probes over WebSocket: measurements of a page, and attacks that must fail.

mod abuse;
pub(crate) mod client;
mod kinds;
mod origins;
mod reports;

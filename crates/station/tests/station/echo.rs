//! Probes over WebSocket: what a page measures, and what a hostile one can not do.

mod abuse;
pub(crate) mod client;
mod kinds;
mod origins;
mod reports;

//! Probes over WebSocket: what a page measures, and what a hostile one can not do.

mod client;
mod kinds;

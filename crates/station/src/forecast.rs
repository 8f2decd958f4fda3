//! Series with their forecasts, and the ranking of hosts by them.

pub mod bank;
pub(crate) mod best;
pub mod hub;

//! Series with their forecasts, and the ranking of hosts by them.

pub(crate) mod best;
pub mod hub;
pub mod series;

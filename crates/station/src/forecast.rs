//! Series with their forecasts, and the ranking of hosts by these forecasts.

pub(crate) mod best;
pub mod hub;
pub mod series;
pub(crate) mod series_reader;

//! The series with their forecasts, and what is decided by them.

pub mod bank;
pub(crate) mod best;
pub mod hub;

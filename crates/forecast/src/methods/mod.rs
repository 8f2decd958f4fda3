//! The forecasting methods, one family a file; each takes a value and gives a prediction.

pub(crate) mod adaptive;
pub(crate) mod autoregressive;
pub(crate) mod cascade;
pub(crate) mod level;
pub(crate) mod lms;
pub(crate) mod reversion;
pub(crate) mod smoothing;
pub(crate) mod window;

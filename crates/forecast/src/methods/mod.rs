//! The forecasting methods, one family in each file; each method learns values and predicts the
//! next value.

pub(crate) mod adaptive;
pub(crate) mod analogues;
pub(crate) mod autoregressive;
pub(crate) mod cascade;
pub(crate) mod lane_window;
pub(crate) mod lattice;
pub(crate) mod level_shift;
pub(crate) mod lms;
pub(crate) mod reversion;
pub(crate) mod smoothing;
pub(crate) mod window;

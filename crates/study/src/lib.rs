//! Series in files and what they tell: [`input`] reads them, [`compare`] compares two series,
//! [`tradeoff`] computes what measuring less often or for less long costs in error, and [`plot`]
//! draws measured and forecast values as SVG.
//!
//! This crate measures nothing, prints nothing and opens no file.

pub mod compare;
#[doc(hidden)]
pub mod fuzzing;
pub mod input;
pub mod plot;
pub mod tradeoff;
pub mod units;

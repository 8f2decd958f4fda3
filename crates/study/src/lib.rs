//! Series of measurements in files: reads, compares and draws them, and computes how much the
//! forecast error grows when measurements are less frequent.
//!
//! Three types matter:
//!
//! - [`input::SeriesReader`] reads the measurements of a series line by line, from CSV, JSON lines,
//!   bare numbers or the output of `ping`.
//! - [`compare::SeriesComparison`] compares two series of one quantity.
//! - [`tradeoff::TradeoffScores`] scores predictors on a series that is thinned out to longer
//!   periods.
//!
//! [`plot`] draws measured and forecast values as SVG, and [`units`] formats and parses numbers
//! with units. A [`ForecastTarget`] is a horizon at which series are compared or scored.
//!
//! ```
//! use barograph_forecast::BatteryConfig;
//! use barograph_study::compare::{Preference, TimedSeries, SeriesComparison};
//!
//! let a = TimedSeries::read("time_s,goodput\n0,20e6\n10,40e6\n".as_bytes())?;
//! let b = TimedSeries::read("time_s,goodput\n1,10e6\n11,20e6\n".as_bytes())?;
//! let study = SeriesComparison::of(a, b, Preference::Larger, &BatteryConfig::default())?;
//! assert_eq!(study.coefficient, Some(0.5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate does not measure, print, or open files: the caller passes a reader and gets values and
//! strings.

mod ahead;
pub mod compare;
#[doc(hidden)]
pub mod fuzzing;
pub mod input;
pub mod plot;
pub mod tradeoff;
pub mod units;

pub use ahead::ForecastTarget;

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

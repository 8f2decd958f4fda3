//! Forecasts of network measurements, each with its error and a prediction interval.
//!
//! A battery runs many forecasting methods over one series and combines their forecasts into one by
//! a rule. The methods and rules are those of the Network Weather Service (NWS) and newer ones. A
//! reported error is the error of the forecasts that were issued, each before its value was known.
//!
//! Five types matter:
//!
//! - [`Battery`]: learns the values of one series and forecasts the next one.
//! - [`Forecaster`]: a battery, with forecasts further ahead ([`Horizon`]), of the mean of the next
//!   values or of one value, with quantiles, and with the probability that the next probe answers.
//! - [`Forecast`]: the value expected next, its errors, and the method that made it.
//! - [`Interval`]: the range that holds the next value with a given probability.
//! - [`TransferForecast`]: the time that a transfer of so many bytes takes, from forecasts of
//!   goodput and round-trip time.
//!
//! ```
//! use barograph_forecast::{Battery, BatteryConfig, Objective};
//!
//! let mut battery = Battery::new(&BatteryConfig::default());
//! for rtt_ms in [20.1, 20.4, 19.8, 20.0, 35.2, 20.3, 20.1, 19.9, 20.2, 20.5, 20.0] {
//!     battery.update(rtt_ms)?;
//! }
//! let next = battery.forecast(Objective::Absolute).expect("there are values");
//! let interval = battery.interval(0.9).expect("ten forecasts were scored");
//! assert_eq!(next.count, 11);
//! assert!(interval.lower <= next.value && next.value <= interval.upper);
//! # Ok::<(), barograph_forecast::InvalidValue>(())
//! ```
//!
//! The crate measures, stores and draws nothing: it has no networking, clock, thread or I/O, and
//! the caller passes values in. The crate does not model the time of day. The crate is `no_std`
//! with `alloc`. All transcendental functions come from `libm` on every target, so a forecast has
//! the same bits on a server, in a browser and in Python.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod availability;
mod battery;
mod forecast;
mod forecaster;
mod gap;
mod gap_lengths;
mod horizon;
mod interval;
mod method_sets;
mod methods;
mod quantiles;
mod rules;
mod scored_methods;
mod series;
mod transfer_time;

pub use availability::{Availability, BrierScore};
pub use battery::{Battery, BatteryConfig, Preset, Rule};
pub use forecast::{Forecast, Interval, InvalidValue, Method, Objective};
pub use forecaster::{Forecaster, ForecasterConfig};
pub use horizon::{
    Horizon, HorizonBasis, HorizonConfig, HorizonError, HorizonForecast, HorizonOf, ParseHorizonError,
};
pub use interval::{IntervalCalibration, LEVEL_RANGE, SCORED_MIN_FOR_INTERVAL};
pub use quantiles::{QUANTILE_RANGE, QUANTILE_SHARES, QuantileForecaster, QuantileMethod};
pub use series::{Failure, Name, NameError, Outcome, Quantity, SeriesId};
pub use transfer_time::{
    GoodputForecast, INITIAL_WINDOW_BYTES, SettledRate, TransferForecast, TransferModel, TransferPath,
    transfer_interval_shares,
};

// The examples of README.md are doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

//! Forecasts of network measurements, each with its own honest error.
//!
//! This crate contains no networking, no clock, no thread and no I/O: values come in, forecasts
//! come out. It is `no_std` with `alloc`, and all transcendental functions come from `libm` on
//! every target, so that a forecast is equal to the bit on a server, in a browser and in Python.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod banks;
mod battery;
mod gap;
mod interval;
mod lifetime;
mod methods;
mod pipeline;
mod rules;
mod series;

pub use battery::{Battery, Config, Forecast, Interval, Loss, Method, NotFinite, Preset, Rule};
pub use interval::{Calibration, LEVELS, SCORED_MIN};
pub use lifetime::{Lifetime, LifetimeError};
pub use series::{Failure, Name, NameError, Outcome, Quantity, Series};

//! Forecasts of a mean over the next seconds instead of the next value.

use core::fmt;

use crate::{Battery, Config, Forecast, Interval, Loss, NotFinite};

/// A battery over epochs of fixed length: values are averaged per epoch, and what is forecast, from
/// the epochs that are over, is the average of the one in progress (the "lifetime" variant of NWS 2.x).
///
/// Use it where the decision lasts: a transfer of ten minutes cares for the mean goodput of ten
/// minutes, not for the next probe's. Epochs begin with the first value; one is over when a value
/// of a later one arrives, and epochs without a value are left out.
#[derive(Clone, Debug)]
pub struct Lifetime {
    battery: Battery,
    epoch_s: f64,
    begun: Option<Epoch>,
}

/// The epoch in progress.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    first_time_s: f64,
    latest_time_s: f64,
    number: f64,
    sum: f64,
    count: f64,
}

impl Lifetime {
    /// A battery of epochs of `epoch_s` seconds.
    ///
    /// # Errors
    /// [`LifetimeError::Epoch`] unless `epoch_s` is finite and positive.
    pub fn new(config: &Config, epoch_s: f64) -> Result<Self, LifetimeError> {
        if epoch_s.is_finite() && 0.0 < epoch_s {
            Ok(Self { battery: Battery::new(config), epoch_s, begun: None })
        } else {
            Err(LifetimeError::Epoch(epoch_s))
        }
    }

    /// Takes in a value measured at `time_s` (seconds from any origin, never decreasing).
    ///
    /// # Errors
    /// [`LifetimeError`] for a value or time that is not finite, and for a time before the last;
    /// nothing is changed then.
    pub fn update(&mut self, time_s: f64, value: f64) -> Result<(), LifetimeError> {
        // An epoch's mean would tell of a refused value too late.
        let value = Battery::accept(value).map_err(LifetimeError::Value)?;
        if !time_s.is_finite() {
            return Err(LifetimeError::Time(time_s));
        }
        let Some(epoch) = &mut self.begun else {
            self.begun = Some(Epoch {
                first_time_s: time_s,
                latest_time_s: time_s,
                number: 0.0,
                sum: value,
                count: 1.0,
            });
            return Ok(());
        };
        if time_s < epoch.latest_time_s {
            return Err(LifetimeError::Time(time_s));
        }
        let number = libm::floor((time_s - epoch.first_time_s) / self.epoch_s);
        // Beyond 2^53 epochs their numbers run together.
        if EPOCHS_MAX <= number {
            return Err(LifetimeError::Time(time_s));
        }
        if number != epoch.number {
            self.battery.update_at(epoch.sum / epoch.count, epoch.number).map_err(LifetimeError::Value)?;
            (epoch.number, epoch.sum, epoch.count) = (number, 0.0, 0.0);
        }
        epoch.latest_time_s = time_s;
        epoch.sum += value;
        epoch.count += 1.0;
        Ok(())
    }

    /// The forecast of the mean of the epoch in progress, or `None` until one epoch is over.
    #[must_use]
    pub fn forecast(&self, loss: Loss) -> Option<Forecast> {
        match self.begun {
            Some(epoch) => self.battery.forecast_at(loss, epoch.number),
            None => self.battery.forecast(loss),
        }
    }

    /// As [`Battery::interval`], for the mean of the epoch in progress.
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<Interval> {
        match self.begun {
            Some(epoch) => self.battery.interval_at(level, epoch.number),
            None => self.battery.interval(level),
        }
    }
}

/// The largest number up to which every epoch has a number of its own.
const EPOCHS_MAX: f64 = 9_007_199_254_740_992.0;

/// Why a [`Lifetime`] refused its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LifetimeError {
    /// The epoch's length is not a positive number of seconds.
    Epoch(f64),
    /// The time is not finite, before the last, or more than 2^53 epochs after the first.
    Time(f64),
    /// The value is not one a battery takes.
    Value(NotFinite),
}

impl fmt::Display for LifetimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch(seconds) => write!(f, "an epoch of {seconds} s is not a positive number of seconds"),
            Self::Time(seconds) => {
                write!(f, "the time {seconds} s is not finite, before the last, or too far after the first")
            }
            Self::Value(refused) => refused.fmt(f),
        }
    }
}

impl core::error::Error for LifetimeError {}

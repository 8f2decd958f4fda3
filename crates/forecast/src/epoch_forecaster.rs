//! Forecasts of a mean over the next seconds, instead of the next value.

use core::fmt;

use crate::{Battery, BatteryConfig, Forecast, Interval, InvalidValue, Objective};

/// Forecasts the mean of the current epoch from the means of past epochs of the same length (the
/// "lifetime" variant of NWS 2.x).
///
/// Use it for a decision about a longer time: a transfer of ten minutes depends on the mean goodput
/// of ten minutes, not on the next probe. The first epoch begins with the first value. An epoch
/// ends when a value of a later epoch arrives. Epochs without a value are skipped.
///
/// ```
/// use barograph_forecast::{BatteryConfig, EpochForecaster, Objective};
///
/// let mut forecaster = EpochForecaster::new(&BatteryConfig::default(), 10.0)?;
/// for (time_s, value) in [(0.0, 1.0), (4.0, 3.0), (10.0, 5.0), (19.0, 7.0), (30.0, 100.0)] {
///     forecaster.update(time_s, value)?;
/// }
/// // Two epochs have ended, with the means 2 and 6.
/// let next = forecaster.forecast(Objective::Squared).expect("an epoch has ended");
/// assert_eq!(next.count, 2);
/// # Ok::<(), barograph_forecast::EpochError>(())
/// ```
#[derive(Clone, Debug)]
pub struct EpochForecaster {
    battery: Battery,
    epoch_s: f64,
    current_epoch: Option<Epoch>,
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

impl EpochForecaster {
    /// Creates a forecaster for epochs of `epoch_s` seconds.
    ///
    /// # Errors
    /// [`EpochError::Epoch`] unless `epoch_s` is finite and positive.
    pub fn new(config: &BatteryConfig, epoch_s: f64) -> Result<Self, EpochError> {
        if epoch_s.is_finite() && epoch_s > 0.0 {
            Ok(Self { battery: Battery::new(config), epoch_s, current_epoch: None })
        } else {
            Err(EpochError::Epoch(epoch_s))
        }
    }

    /// Learns a value measured at `time_s`, in seconds from any origin. Times must not decrease.
    ///
    /// # Errors
    /// [`EpochError`] if a battery rejects the value, or if the time is not finite, too large or
    /// before the last time. The state is then unchanged.
    pub fn update(&mut self, time_s: f64, value: f64) -> Result<(), EpochError> {
        // Reject a bad value now: the battery sees only the mean, at the end of the epoch.
        let value = Battery::check(value).map_err(EpochError::Value)?;
        if !time_s.is_finite() {
            return Err(EpochError::Time(time_s));
        }
        let Some(epoch) = &mut self.current_epoch else {
            self.current_epoch = Some(Epoch {
                first_time_s: time_s,
                latest_time_s: time_s,
                number: 0.0,
                sum: value,
                count: 1.0,
            });
            return Ok(());
        };
        if time_s < epoch.latest_time_s {
            return Err(EpochError::Time(time_s));
        }
        let number = libm::floor((time_s - epoch.first_time_s) / self.epoch_s);
        // From 2^53 on, an `f64` cannot represent every epoch number.
        if number >= EPOCHS_MAX {
            return Err(EpochError::Time(time_s));
        }
        if number != epoch.number {
            self.battery.update_at(epoch.sum / epoch.count, epoch.number).map_err(EpochError::Value)?;
            (epoch.number, epoch.sum, epoch.count) = (number, 0.0, 0.0);
        }
        epoch.latest_time_s = time_s;
        epoch.sum += value;
        epoch.count += 1.0;
        Ok(())
    }

    /// Returns the forecast of the current epoch's mean, or `None` until one epoch has ended.
    #[must_use]
    pub fn forecast(&self, objective: Objective) -> Option<Forecast> {
        match self.current_epoch {
            Some(epoch) => self.battery.forecast_at(objective, epoch.number),
            None => self.battery.forecast(objective),
        }
    }

    /// Like [`Battery::interval`], for the mean of the current epoch.
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<Interval> {
        match self.current_epoch {
            Some(epoch) => self.battery.interval_at(level, epoch.number),
            None => self.battery.interval(level),
        }
    }
}

/// 2^53: an `f64` represents every epoch number below 2^53.
const EPOCHS_MAX: f64 = 9_007_199_254_740_992.0;

/// Why an [`EpochForecaster`] rejected its input.
///
/// ```
/// use barograph_forecast::{BatteryConfig, EpochError, EpochForecaster};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let mut forecaster = EpochForecaster::new(&BatteryConfig::default(), 60.0)?;
/// forecaster.update(100.0, 1.0)?;
/// assert_eq!(forecaster.update(99.0, 1.0), Err(EpochError::Time(99.0)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EpochError {
    /// The length of an epoch, in seconds, is not finite and positive.
    Epoch(f64),
    /// The time, in seconds, is not finite, is before the last time, or is 2^53 epochs or more
    /// after the first time.
    Time(f64),
    /// A battery rejects the value.
    Value(InvalidValue),
}

impl fmt::Display for EpochError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoch(seconds) => {
                write!(f, "the epoch length {seconds} s is invalid: expected a finite number above 0")
            }
            Self::Time(seconds) => write!(
                f,
                "the time {seconds} s is invalid: it must be finite, not before the last time, and less than \
                 2^53 epochs after the first"
            ),
            Self::Value(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for EpochError {}

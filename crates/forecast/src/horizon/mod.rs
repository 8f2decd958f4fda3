//! Forecasts further ahead than the next value: of the mean of the values up to a horizon, and of
//! the value at the horizon.

mod calibration;
mod candidates;
mod combination;
mod direct;
mod kind;
mod ladder;
mod pending;
mod quantiles;
mod reading;
mod regression;
mod text;

use core::fmt;

use crate::forecast::MethodLabel;
use crate::{Forecast, Method};

pub(crate) use candidates::OneStep;
pub(crate) use kind::CalibrationConfig;
pub(crate) use ladder::{Ladder, UsableRungs};
pub(crate) use reading::HorizonReading;
pub use text::ParseHorizonError;

/// How far ahead a forecast looks: a number of values, or a time.
///
/// ```
/// use barograph_forecast::{Horizon, HorizonError};
///
/// assert_eq!(Horizon::Steps(30).checked(), Ok(Horizon::Steps(30)));
/// assert_eq!(Horizon::Steps(0).checked(), Err(HorizonError::Steps(0)));
/// assert!(Horizon::Seconds(f64::INFINITY).checked().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Horizon {
    /// The next values, 1 to [`Horizon::STEPS_MAX`]; 1 is the next value.
    Steps(u32),
    /// The next seconds, above 0 and at most [`Horizon::SECONDS_MAX`]; needs values with times.
    Seconds(f64),
}

impl Horizon {
    /// Largest number of values: a million, four months of values every 10 s.
    pub const STEPS_MAX: u32 = 1_000_000;
    /// Longest time: a year, in seconds.
    pub const SECONDS_MAX: f64 = 31_557_600.0;

    /// Returns the horizon if it is within its bounds.
    ///
    /// # Errors
    /// [`HorizonError`] with the number that is out of range.
    pub fn checked(self) -> Result<Self, HorizonError> {
        match self {
            Self::Steps(steps) if steps == 0 || Self::STEPS_MAX < steps => Err(HorizonError::Steps(steps)),
            // The comparisons are false for NaN, so NaN is rejected too.
            Self::Seconds(seconds) if !(0.0 < seconds && seconds <= Self::SECONDS_MAX) => {
                Err(HorizonError::Seconds(seconds))
            }
            horizon => Ok(horizon),
        }
    }
}

/// What is forecast at a horizon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HorizonOf {
    /// The mean of the values up to the horizon.
    #[default]
    Mean,
    /// The value at the horizon.
    Value,
}

/// Kinds of forecasts from which the errors and the interval at a horizon come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HorizonBasis {
    /// Forecasts for exactly this horizon.
    Own,
    /// Forecasts for two horizons, in values; the forecast and interval are interpolated.
    Between {
        /// The next shorter horizon that is kept, in values; 1 is the next value.
        shorter: f64,
        /// The next longer horizon that is kept, in values.
        longer: f64,
    },
    /// Forecasts for the longest horizon that is kept, in values. The requested horizon is longer,
    /// and the interval is extrapolated.
    Beyond {
        /// The longest horizon that is kept, in values.
        longest: f64,
    },
}

/// A forecast for a horizon, with the errors of the forecasts that were issued for that horizon.
///
/// The errors between two kept horizons are interpolated ([`HorizonBasis`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HorizonForecast {
    /// The forecast, in the series' unit.
    pub value: f64,
    /// Mean squared error of the scored forecasts of this horizon (unit²); 0 while `scored` is 0.
    pub mse: f64,
    /// Mean absolute error of the scored forecasts of this horizon (unit); 0 while `scored` is 0.
    pub mae: f64,
    /// As `mse`, but old errors fade; the half-life is 100 values or ten horizons, whichever is
    /// longer.
    pub recent_mse: f64,
    /// As `mae`, but old errors fade as in `recent_mse`.
    pub recent_mae: f64,
    /// The candidate with the largest weight.
    pub method: Method,
    /// Weight of `method`, 0 to 1; `None` if a rule selected one method.
    pub weight: Option<f64>,
    /// Number of values that were learned.
    pub count: u64,
    /// Number of forecasts of this horizon that were scored.
    pub scored: u64,
    /// Forecasts from which the errors come.
    pub basis: HorizonBasis,
}

impl From<Forecast> for HorizonForecast {
    /// The forecast of the next value, as a forecast for a horizon of one value.
    fn from(next: Forecast) -> Self {
        Self {
            value: next.value,
            mse: next.mse,
            mae: next.mae,
            recent_mse: next.recent_mse,
            recent_mae: next.recent_mae,
            method: next.method,
            weight: next.weight,
            count: next.count,
            scored: next.count.saturating_sub(1),
            basis: HorizonBasis::Own,
        }
    }
}

impl HorizonForecast {
    /// Returns a text for users, as [`Forecast::method_label`](crate::Forecast::method_label).
    pub fn method_label(&self) -> impl fmt::Display {
        MethodLabel { method: self.method, weight: self.weight }
    }
}

/// A horizon that a [`Forecaster`](crate::Forecaster) keeps, and the number of its forecasts that
/// wait for their values.
///
/// A forecast of the next hour is scored after an hour. Until then it waits, in about 400 bytes, or
/// 550 with quantiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HorizonConfig {
    /// How far ahead the forecasts look.
    pub horizon: Horizon,
    /// Largest number of forecasts that wait for their values, 1 to [`Self::PENDING_MAX`]. If the
    /// horizon has more values, not every forecast is scored.
    pub pending_max: u32,
    /// Least number of values from one such forecast to the next, 1 to [`Self::PENDING_MAX`].
    pub stride_min: u32,
}

impl HorizonConfig {
    /// Largest number of forecasts that wait for their values; they need 1.7 MB, or 2.3 MB with
    /// quantiles.
    pub const PENDING_MAX: u32 = 4096;

    /// Scores the forecast of every value, if the horizon has at most [`Self::PENDING_MAX`] values.
    #[must_use]
    pub fn exact(horizon: Horizon) -> Self {
        Self { horizon, pending_max: Self::PENDING_MAX, stride_min: 1 }
    }

    /// Scores at most eight forecasts in each horizon, and at most every fifth: enough for weights
    /// and intervals, in little time and memory.
    #[must_use]
    pub fn sampled(horizon: Horizon) -> Self {
        Self { horizon, pending_max: SAMPLED_PENDING, stride_min: SAMPLED_STRIDE }
    }

    /// Returns the configuration if all numbers are within their bounds.
    pub(crate) fn checked(self) -> Result<Self, HorizonError> {
        self.horizon.checked()?;
        for number in [self.pending_max, self.stride_min] {
            if !(1..=Self::PENDING_MAX).contains(&number) {
                return Err(HorizonError::Pending(number));
            }
        }
        Ok(self)
    }
}

/// Numbers of a sampled horizon. Forecasts of overlapping windows have similar errors, so that more
/// of them add little. With four in a horizon, the weights and intervals at 100 values learned too
/// slowly on the open traces.
const SAMPLED_PENDING: u32 = 8;
const SAMPLED_STRIDE: u32 = 5;

/// A horizon that cannot be forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HorizonError {
    /// The number of values is 0 or above [`Horizon::STEPS_MAX`].
    Steps(u32),
    /// The time, in seconds, is not above 0, or is above [`Horizon::SECONDS_MAX`].
    Seconds(f64),
    /// The number of waiting forecasts, or of values from one to the next, is 0 or above
    /// [`HorizonConfig::PENDING_MAX`].
    Pending(u32),
}

impl fmt::Display for HorizonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(steps) => {
                write!(f, "a horizon of {steps} values is invalid: expected 1 to {}", Horizon::STEPS_MAX)
            }
            Self::Seconds(seconds) => write!(
                f,
                "a horizon of {seconds} s is invalid: expected a number above 0, at most {}",
                Horizon::SECONDS_MAX
            ),
            Self::Pending(pending) => write!(
                f,
                "{pending} forecasts that wait, or values between them, are invalid: expected 1 to {}",
                HorizonConfig::PENDING_MAX
            ),
        }
    }
}

impl core::error::Error for HorizonError {}

//! Horizons of `barograph forecast` on the command line.

use barograph_forecast::{Horizon, HorizonOf, ParseHorizonError};
use barograph_study::ForecastTarget;
use clap::ValueEnum;
use serde::Serialize;

/// [`HorizonOf`] as a value of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OfName {
    /// The mean of the values up to the horizon
    Mean,
    /// The value at the horizon
    Value,
}

impl From<OfName> for HorizonOf {
    fn from(name: OfName) -> Self {
        match name {
            OfName::Mean => Self::Mean,
            OfName::Value => Self::Value,
        }
    }
}

/// What was forecast, in JSON: the length of the horizon under the name of its unit, and `of`.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct HorizonAnswer {
    #[serde(flatten)]
    pub(crate) length: Length,
    pub(crate) of: &'static str,
}

/// Length of a horizon, under the name of its unit.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Length {
    Steps(u32),
    Seconds(f64),
}

impl From<ForecastTarget> for HorizonAnswer {
    fn from(target: ForecastTarget) -> Self {
        let length = match target.horizon {
            Horizon::Steps(steps) => Length::Steps(steps),
            Horizon::Seconds(seconds) => Length::Seconds(seconds),
        };
        Self { length, of: target.of.name() }
    }
}

/// Parses a horizon: a number of values, or a time with its unit.
pub(crate) fn parse(text: &str) -> Result<Horizon, String> {
    text.parse().map_err(|error: ParseHorizonError| error.to_string())
}

/// Units of time in ascending order: the letter, the name, and the number of seconds.
pub(super) const UNITS: [(char, &str, f64); 4] =
    [('s', "second", 1.0), ('m', "minute", 60.0), ('h', "hour", 3600.0), ('d', "day", 86_400.0)];

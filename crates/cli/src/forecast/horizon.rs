//! Horizons of `barograph forecast` on the command line.

use barograph_forecast::{Horizon, HorizonOf};
use clap::ValueEnum;

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

/// A horizon to forecast, and what to forecast at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) horizon: Horizon,
    pub(crate) of: HorizonOf,
}

/// Parses a horizon: a number of values, or a time with its unit.
pub(super) fn parse(text: &str) -> Result<Horizon, String> {
    let expected = || {
        format!(
            "expected a number of values from 1 to {}, or a time such as 30s, 10m, 1h or 1d",
            Horizon::STEPS_MAX
        )
    };
    let unit = UNITS.iter().find_map(|(letter, _, seconds)| Some((text.strip_suffix(*letter)?, seconds)));
    let horizon = match unit {
        Some((number, seconds)) => Horizon::Seconds(number.parse::<f64>().map_err(|_| expected())? * seconds),
        None => Horizon::Steps(text.parse().map_err(|_| expected())?),
    };
    horizon.checked().map_err(|_| expected())
}

/// Units of time in ascending order: the letter, the name, and the number of seconds.
pub(super) const UNITS: [(char, &str, f64); 4] =
    [('s', "second", 1.0), ('m', "minute", 60.0), ('h', "hour", 3600.0), ('d', "day", 86_400.0)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn horizons_are_numbers_of_values_or_times() {
        assert_eq!(parse("30"), Ok(Horizon::Steps(30)));
        assert_eq!(parse("10m"), Ok(Horizon::Seconds(600.0)));
        assert_eq!(parse("1.5h"), Ok(Horizon::Seconds(5400.0)));
        for text in ["", "0", "-1", "1.5", "m", "0s", "-1s", "infs", "NaNs", "1000001", "1e9d", "10 minutes"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

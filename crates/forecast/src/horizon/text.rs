//! Horizons as text: a number of values, or a time with its unit.

use core::fmt;
use core::str::FromStr;

use super::{Horizon, HorizonBasis, HorizonOf};

/// A number of values, such as `30`, or a time in seconds, such as `600s`; the text parses to the
/// same horizon.
impl fmt::Display for Horizon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(steps) => write!(f, "{steps}"),
            Self::Seconds(seconds) => write!(f, "{seconds}s"),
        }
    }
}

/// A text is a number of values, or a time with the unit `s`, `m`, `h` or `d`.
///
/// ```
/// use barograph_forecast::Horizon;
///
/// assert_eq!("30".parse(), Ok(Horizon::Steps(30)));
/// assert_eq!("1.5h".parse(), Ok(Horizon::Seconds(5400.0)));
/// assert!("10 minutes".parse::<Horizon>().is_err());
/// ```
impl FromStr for Horizon {
    type Err = ParseHorizonError;

    fn from_str(text: &str) -> Result<Self, ParseHorizonError> {
        let unit = UNITS.iter().find_map(|(letter, seconds)| Some((text.strip_suffix(*letter)?, seconds)));
        let horizon = match unit {
            Some((number, seconds)) => {
                Self::Seconds(number.parse::<f64>().map_err(|_| ParseHorizonError)? * seconds)
            }
            None => Self::Steps(text.parse().map_err(|_| ParseHorizonError)?),
        };
        horizon.checked().map_err(|_| ParseHorizonError)
    }
}

impl HorizonOf {
    /// The word for this in requests, answers and arguments: `mean` or `value`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Value => "value",
        }
    }
}

impl HorizonBasis {
    /// The word for this in answers: `own`, `between` or `beyond`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Between { .. } => "between",
            Self::Beyond { .. } => "beyond",
        }
    }
}

/// A text that is no horizon, or a horizon that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseHorizonError;

impl fmt::Display for ParseHorizonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "expected a number of values from 1 to {}, or a time such as 30s, 10m, 1h or 1d, at most {} days",
            Horizon::STEPS_MAX,
            Horizon::SECONDS_MAX / 86_400.0
        )
    }
}

impl core::error::Error for ParseHorizonError {}

/// Units of time, and their lengths in seconds.
const UNITS: [(char, f64); 4] = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0)];

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn horizons_are_numbers_of_values_or_times() {
        assert_eq!("30".parse(), Ok(Horizon::Steps(30)));
        assert_eq!("10m".parse(), Ok(Horizon::Seconds(600.0)));
        assert_eq!("1.5h".parse(), Ok(Horizon::Seconds(5400.0)));
        for text in
            ["", "0", "-1", "1.5", "m", "0s", "-1s", "infs", "NaNs", "1000001", "1e9d", "10 minutes", "µ"]
        {
            assert_eq!(text.parse::<Horizon>(), Err(ParseHorizonError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_horizon_as_text_parses_to_the_same_horizon(steps in 1..=Horizon::STEPS_MAX, seconds in 1e-9..=3e7) {
            for horizon in [Horizon::Steps(steps), Horizon::Seconds(seconds)] {
                prop_assert_eq!(horizon.to_string().parse(), Ok(horizon));
            }
        }
    }
}

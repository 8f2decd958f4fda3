//! What a forecast consists of: its value and errors, its method, and the interval around it.

use core::fmt;

use crate::{Battery, SCORED_MIN_FOR_INTERVAL};

/// The kind of error that a forecast minimises.
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, Objective, Preset, Rule};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let (preset, rule) = (Preset::Nws, Rule::TwoSelectors);
/// let config = BatteryConfig { preset, rule, levels: Vec::new() };
/// let mut battery = Battery::new(&config);
/// for value in [0.0, 0.0, 0.0, 10.0].repeat(10) {
///     battery.update(value)?;
/// }
/// let value_for = |objective| battery.forecast(objective).map(|forecast| forecast.value);
/// assert_eq!(value_for(Objective::Squared), Some(2.5), "the mean");
/// assert_eq!(value_for(Objective::Absolute), Some(0.0), "the median");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Squared error: the forecast aims at the mean.
    Squared,
    /// Absolute error: the forecast aims at the median.
    Absolute,
}

/// The name of a method, as in the API and in the reference files of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method(pub &'static str);

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A range that holds the next value with a given probability.
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, Interval};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let mut battery = Battery::new(&BatteryConfig::default());
/// for value in [20.1, 20.4, 19.8].repeat(10) {
///     battery.update(value)?;
/// }
/// let interval = battery.interval(Interval::DEFAULT_LEVEL).expect("29 forecasts were scored");
/// assert_eq!(interval.level, 0.9);
/// assert!(interval.lower <= interval.upper);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The share of values that should be inside the interval, 0 to 1.
    pub level: f64,
    /// Lower end, in the series' unit.
    pub lower: f64,
    /// Upper end, in the series' unit.
    pub upper: f64,
}

impl Interval {
    /// The level that stations and commands use by default: one value in ten lies outside.
    pub const DEFAULT_LEVEL: f64 = 0.9;
}

/// The forecast of the next value of a series.
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, Objective, Preset, Rule};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let (preset, rule) = (Preset::Classic, Rule::TwoSelectors);
/// let config = BatteryConfig { preset, rule, levels: Vec::new() };
/// let mut battery = Battery::new(&config);
/// battery.update(1.0)?; // From now on the forecast is 1.
/// battery.update(3.0)?; // The error of this forecast is 2.
/// let next = battery.forecast(Objective::Squared).expect("there are values");
/// assert_eq!((next.value, next.mse, next.mae), (3.0, 4.0, 2.0));
/// assert_eq!(next.method_label().to_string(), "Last Value");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The forecast, in the series' unit.
    pub value: f64,
    /// Mean squared error of the forecasts issued so far under this objective (unit²); 0 before the
    /// first forecast is scored.
    pub mse: f64,
    /// Mean absolute error of the forecasts issued so far under this objective (unit); 0 before the
    /// first forecast is scored.
    pub mae: f64,
    /// As `mse`, but old errors fade (half-life 100 values), so that one outlier is forgotten.
    pub recent_mse: f64,
    /// As `mae`, but old errors fade (half-life 100 values).
    pub recent_mae: f64,
    /// The method that made the forecast; in a blend, the method with the largest weight.
    pub method: Method,
    /// Weight of `method` in the blend, 0 to 1; `None` if the rule selects one method.
    pub weight: Option<f64>,
    /// Number of values that the battery has learned.
    pub count: u64,
}

impl Forecast {
    /// Whether at least one forecast was scored. Before that, the errors are 0 and have no meaning.
    #[must_use]
    pub fn is_scored(&self) -> bool {
        self.count > 1
    }

    /// Number of scored forecasts while this number is too small for an interval; `None` if at
    /// least [`SCORED_MIN_FOR_INTERVAL`](crate::SCORED_MIN_FOR_INTERVAL) forecasts were scored.
    #[must_use]
    pub fn scored_until_interval(&self) -> Option<u64> {
        let scored = self.count.saturating_sub(1);
        (scored < SCORED_MIN_FOR_INTERVAL).then_some(scored)
    }

    /// Returns a text for users: the name of the method or, for a blend, a text such as `blend,
    /// mostly Running Mean 71 %`.
    pub fn method_label(&self) -> impl fmt::Display {
        MethodLabel { method: self.method, weight: self.weight }
    }
}

/// Text for a method or, if `weight` is given, for a blend in which the method has the largest
/// weight.
pub(crate) struct MethodLabel {
    pub(crate) method: Method,
    pub(crate) weight: Option<f64>,
}

impl fmt::Display for MethodLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weight {
            None => self.method.fmt(f),
            Some(weight) => {
                let share = if weight < 0.5 { "led by" } else { "mostly" };
                write!(f, "blend, {share} {} {:.0} %", self.method, 100.0 * weight)
            }
        }
    }
}

/// A value that every battery rejects: NaN, infinite, or beyond [`Battery::VALUE_MAX`].
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, InvalidValue};
///
/// let mut battery = Battery::new(&BatteryConfig::default());
/// let error = InvalidValue(f64::INFINITY);
/// assert_eq!(battery.update(f64::INFINITY), Err(error));
/// assert_eq!(error.to_string(), "inf is not a finite number");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvalidValue(pub f64);

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() {
            write!(f, "{:e} is out of range: its magnitude may be at most {:e}", self.0, Battery::VALUE_MAX)
        } else {
            write!(f, "{} is not a finite number", self.0)
        }
    }
}

impl core::error::Error for InvalidValue {}

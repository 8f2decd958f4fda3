//! Forecasts of one series at every horizon.

use alloc::vec::Vec;

use crate::horizon::Ladder;
use crate::{
    Battery, BatteryConfig, Horizon, HorizonConfig, HorizonError, HorizonForecast, HorizonOf, Interval,
    InvalidValue, Objective,
};

/// Parts of a [`Forecaster`].
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ForecasterConfig {
    /// Methods, rule and interval levels of the forecast of the next value. The levels also apply to
    /// the intervals of the horizons.
    pub battery: BatteryConfig,
    /// Horizons that are kept; forecasts for other horizons are interpolated.
    pub horizons: Vec<HorizonConfig>,
}

/// Forecasts one series: the next value, the mean of the values up to a horizon, and the value at a
/// horizon.
///
/// A kept horizon ([`ForecasterConfig::horizons`]) has its own candidates, weights, errors and
/// intervals, because the methods that forecast the next value best are seldom the best further
/// ahead. A forecast is scored when its values are known, one horizon later.
///
/// ```
/// use barograph_forecast::{
///     Forecaster, ForecasterConfig, Horizon, HorizonBasis, HorizonConfig, HorizonOf, Objective,
/// };
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let horizon = Horizon::Steps(30);
/// let config = ForecasterConfig {
///     horizons: vec![HorizonConfig::exact(horizon)],
///     ..ForecasterConfig::default()
/// };
/// let mut forecaster = Forecaster::new(&config)?;
/// for n in 0..200_u32 {
///     forecaster.update(f64::from(n * 7919 % 101))?;
/// }
/// let next_30 = forecaster
///     .forecast_over(horizon, HorizonOf::Mean, Objective::Absolute)
///     .expect("there are values");
/// assert_eq!((next_30.scored, next_30.basis), (170, HorizonBasis::Own));
/// let interval = forecaster.interval_over(horizon, HorizonOf::Mean, 0.9).expect("it is calibrated");
/// assert!(interval.lower <= next_30.value && next_30.value <= interval.upper);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Forecaster {
    battery: Battery,
    ladder: Ladder,
    count: u64,
}

impl Forecaster {
    /// Creates a forecaster without values.
    ///
    /// # Errors
    /// [`HorizonError`] if a horizon, or its number of waiting forecasts, is out of range.
    pub fn new(config: &ForecasterConfig) -> Result<Self, HorizonError> {
        for horizon in &config.horizons {
            horizon.checked()?;
        }
        let ladder = Ladder::new(&config.horizons, &config.battery.levels);
        Ok(Self { battery: Battery::new(&config.battery), ladder, count: 0 })
    }

    /// Scores the forecasts that end with `value`, then learns it.
    ///
    /// Horizons in seconds learn only from values with times ([`Self::update_at`]).
    ///
    /// # Errors
    /// [`InvalidValue`] as for [`Battery::update`]; the forecaster is then unchanged.
    pub fn update(&mut self, value: f64) -> Result<(), InvalidValue> {
        self.battery.update(value)?;
        self.learn(value, None);
        Ok(())
    }

    /// Like [`Self::update`], for a value measured at `time_s`, in seconds from any origin.
    ///
    /// If times go back, horizons in seconds drop the forecasts that wait.
    ///
    /// # Errors
    /// As for [`Self::update`].
    pub fn update_at(&mut self, value: f64, time_s: f64) -> Result<(), InvalidValue> {
        self.battery.update_at(value, time_s)?;
        self.learn(value, Some(time_s));
        Ok(())
    }

    fn learn(&mut self, value: f64, time_s: Option<f64>) {
        self.count += 1;
        self.ladder.update(value, time_s, self.count, self.battery.inner());
    }

    /// The battery of the next value.
    #[must_use]
    pub fn battery(&self) -> &Battery {
        &self.battery
    }

    /// Returns the forecast of `of` at `horizon` under `objective`.
    ///
    /// `None` before the first value. For a horizon in seconds, `None` until five times between
    /// values are known. A horizon of one value is the next value, with the forecast of the
    /// [`battery`](Self::battery). A horizon that is not kept is interpolated between kept ones that
    /// have an interval ([`HorizonForecast::basis`]).
    #[must_use]
    pub fn forecast_over(
        &self,
        horizon: Horizon,
        of: HorizonOf,
        objective: Objective,
    ) -> Option<HorizonForecast> {
        self.ladder.forecast(&self.battery, horizon.checked().ok()?, of, objective)
    }

    /// Returns the interval at `level` around the forecast for absolute error.
    ///
    /// `None` until enough forecasts of the horizon were scored, about two horizons after the first
    /// value, and for a level outside [`LEVEL_RANGE`](crate::LEVEL_RANGE). If no value so far was
    /// below 0, the lower end is not below 0 either.
    #[must_use]
    pub fn interval_over(&self, horizon: Horizon, of: HorizonOf, level: f64) -> Option<Interval> {
        self.ladder.interval(&self.battery, horizon.checked().ok()?, of, level)
    }

    /// Median time between the last values (s); `None` before five times between values are known.
    #[must_use]
    pub fn period_s(&self) -> Option<f64> {
        self.ladder.period_s()
    }

    /// Memory that this forecaster occupies, in bytes, heap included.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<Battery>() + self.battery.size_bytes() + self.ladder.heap_bytes()
    }
}

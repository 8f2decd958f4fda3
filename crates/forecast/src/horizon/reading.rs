//! Forecasts, intervals and quantiles at any horizon, interpolated between the kept horizons.

use libm::{exp, log, sqrt};

use super::ladder::{Ladder, Position, Rung, UsableRungs};
use super::{Horizon, HorizonBasis, HorizonForecast, HorizonOf};
use crate::gap;
use crate::interval::laplace;
use crate::quantiles::{SHARE_COUNT, in_order, interpolated};
use crate::{Battery, Interval, Objective, QuantileForecaster};

/// What is forecast of one kind of target at one horizon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HorizonReading<'a> {
    battery: &'a Battery,
    /// Quantiles of the next value; `None` without quantiles.
    next_quantiles: Option<&'a QuantileForecaster>,
    ladder: &'a Ladder,
    horizon: Horizon,
    of: HorizonOf,
    position: Position<'a>,
}

impl<'a> HorizonReading<'a> {
    /// Finds a valid `horizon` in `ladder`, which stands beside `battery`. `None` before the first
    /// value, and for a time without a known period.
    pub(crate) fn new(
        battery: &'a Battery,
        next_quantiles: Option<&'a QuantileForecaster>,
        ladder: &'a Ladder,
        (horizon, of): (Horizon, HorizonOf),
        usable: UsableRungs,
    ) -> Option<Self> {
        let position = ladder.position(horizon, of, usable)?;
        Some(Self { battery, next_quantiles, ladder, horizon, of, position })
    }

    /// The forecast under `objective`.
    pub(crate) fn forecast(&self, objective: Objective) -> Option<HorizonForecast> {
        match &self.position {
            Position::At(rung) => self.forecast_at(rung, objective),
            Position::Beyond { longest, .. } => {
                let basis = HorizonBasis::Beyond { longest: longest.steps };
                Some(HorizonForecast { basis, ..self.forecast_at(longest, objective)? })
            }
            Position::Between { shorter, longer, share } => {
                let basis = HorizonBasis::Between { shorter: shorter.steps, longer: longer.steps };
                let [shorter, longer] = [shorter, longer].map(|rung| self.forecast_at(rung, objective));
                Some(between(shorter?, longer?, *share, basis))
            }
        }
    }

    fn forecast_at(&self, rung: &Rung<'_>, objective: Objective) -> Option<HorizonForecast> {
        let Some((direct, current)) = &rung.kept else {
            return self.battery.forecast(objective).map(HorizonForecast::from);
        };
        let methods = self.battery.inner().horizon_methods();
        Some(direct.forecast(current, self.of, objective as usize, self.ladder.count(), &methods))
    }

    /// The forecast for absolute error, without its errors.
    fn median(&self) -> Option<f64> {
        match &self.position {
            Position::At(rung) | Position::Beyond { longest: rung, .. } => self.median_at(rung),
            Position::Between { shorter, longer, share } => {
                let (shorter, longer) = (self.median_at(shorter)?, self.median_at(longer)?);
                Some(linear_between(shorter, longer, *share))
            }
        }
    }

    fn median_at(&self, rung: &Rung<'_>) -> Option<f64> {
        match &rung.kept {
            Some((_, current)) => Some(current.median(self.of)),
            None => Some(self.battery.forecast(Objective::Absolute)?.value),
        }
    }

    /// The interval at `level`; `None` until it is calibrated.
    pub(crate) fn interval(&self, level: f64) -> Option<Interval> {
        if let Position::At(Rung { kept: None, .. }) = self.position {
            return self.battery.interval(level);
        }
        self.around(self.half(level)?, level)
    }

    /// The interval at `level` for a value of the horizon's age: not narrower than at shorter
    /// horizons, with a half-width of at least `half_min`.
    pub(crate) fn aged_interval(&self, level: f64, half_min: f64) -> Option<Interval> {
        self.around(self.aged_half(level, half_min)?, level)
    }

    /// The interval with a half-width around the median forecast, which is not below the floor.
    fn around(&self, half: f64, level: f64) -> Option<Interval> {
        let center = self.median()?;
        Some(Interval { level, lower: self.above_floor(center - half), upper: center + half })
    }

    fn above_floor(&self, number: f64) -> f64 {
        let floor = self.battery.inner().calibration().floor();
        if number < floor { floor } else { number }
    }

    fn aged_half(&self, level: f64, half_min: f64) -> Option<f64> {
        let next = self.half_at(&Rung { steps: 1.0, kept: None }, level)?;
        let half = self.half(level)?.max(next).max(half_min);
        let shorter = self.ladder.shorter(self.horizon);
        Some(shorter.filter_map(|rung| self.half_at(&rung, level)).fold(half, f64::max))
    }

    /// Half-width of the interval at `level`; `None` until it is calibrated.
    fn half(&self, level: f64) -> Option<f64> {
        Some(match &self.position {
            Position::At(rung) => self.half_at(rung, level)?,
            Position::Between { shorter, longer, share } => {
                log_between(self.half_at(shorter, level)?, self.half_at(longer, level)?, *share)
            }
            Position::Beyond { longest, steps } => {
                self.half_beyond(longest, self.half_at(longest, level)?, steps / longest.steps, level)
            }
        })
    }

    fn half_at(&self, rung: &Rung<'_>, level: f64) -> Option<f64> {
        match &rung.kept {
            Some((direct, current)) => direct.half(current, self.of, level),
            // The lower end may have been raised to 0, so the upper end gives the half-width.
            None => Some(self.battery.interval(level)?.upper - self.median_at(rung)?),
        }
    }

    /// Half-width at `ratio` times the `longest` horizon, which has the half-width `half`. That of
    /// a value grows as after a random walk, that of a mean as between the longest horizons; both
    /// at most up to the half-width of the first value after a gap.
    fn half_beyond(&self, longest: &Rung<'_>, half: f64, ratio: f64, level: f64) -> f64 {
        let widest = BEYOND * laplace(level) * self.battery.inner().calibration().spread();
        let grown = match self.of {
            HorizonOf::Mean => half * exp(self.growth(longest) * log(ratio)),
            HorizonOf::Value => half * sqrt(ratio),
        };
        if grown < widest {
            grown
        } else if half < widest {
            widest
        } else {
            half
        }
    }

    /// Exponent with which the half-width of a mean grows beyond the `longest` horizon, 0 to ½; the
    /// same for all levels, so that the intervals contain each other.
    ///
    /// Slower than between the last two horizons, noise averages out, and what lasts remains. So
    /// the exponent is a little larger than measured there. It is that of a random walk if only
    /// errors of the next value are known.
    fn growth(&self, longest: &Rung<'_>) -> f64 {
        self.slope(longest).map_or(WALK, |slope| (slope + SLOPE_RISE).clamp(0.0, WALK))
    }

    /// Slope of the half-width at 90 % over the horizon, both on logarithmic scales, between the
    /// `longest` horizon and one of at most half its length; `None` if it is unknown.
    fn slope(&self, longest: &Rung<'_>) -> Option<f64> {
        longest.kept.as_ref()?;
        let shorter = self.ladder.longest_within(0.5 * longest.steps, self.of)?;
        let [from, to] = [&shorter, longest].map(|rung| self.half_at(rung, Interval::DEFAULT_LEVEL));
        let (from, to) = from.zip(to).filter(|(from, to)| 0.0 < *from && 0.0 < *to)?;
        Some(log(to / from) / log(longest.steps / shorter.steps))
    }

    /// The quantiles of all calibrated shares, in ascending order; `None` until they are
    /// calibrated.
    pub(crate) fn quantiles(&self) -> Option<[f64; SHARE_COUNT]> {
        if let Position::At(Rung { kept: None, .. }) = self.position {
            return self.next_quantiles?.quantiles();
        }
        self.stretched_quantiles(1.0)
    }

    /// The quantile of `share`, which is in [`QUANTILE_RANGE`](crate::QUANTILE_RANGE).
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        Some(self.above_floor(interpolated(&self.quantiles()?, share)))
    }

    /// The quantile of `share` for a value of the horizon's age: as far from the forecast, in
    /// half-widths, as at the horizon. `half_min` is as for [`Self::aged_interval`].
    pub(crate) fn aged_quantile(&self, share: f64, half_min: f64) -> Option<f64> {
        let level = Interval::DEFAULT_LEVEL;
        let stretch = ratio(self.aged_half(level, half_min)?, self.half(level)?);
        Some(self.above_floor(interpolated(&self.stretched_quantiles(stretch)?, share)))
    }

    /// The quantiles, `stretch` times as far from the forecast as they are.
    fn stretched_quantiles(&self, stretch: f64) -> Option<[f64; SHARE_COUNT]> {
        let offsets = match &self.position {
            Position::At(rung) => self.offsets_at(rung)?,
            Position::Between { shorter, longer, share } => {
                let (shorter, longer) = (self.offsets_at(shorter)?, self.offsets_at(longer)?);
                core::array::from_fn(|i| linear_between(shorter[i], longer[i], *share))
            }
            Position::Beyond { longest, .. } => {
                // All quantiles move away from the forecast as the ends of the usual interval do.
                let level = Interval::DEFAULT_LEVEL;
                let further = ratio(self.half(level)?, self.half_at(longest, level)?);
                self.offsets_at(longest)?.map(|offset| offset * further)
            }
        };
        let center = self.median()?;
        // Interpolation between horizons may swap two quantiles by a rounding error.
        Some(in_order(offsets.map(|offset| self.above_floor(center + offset * stretch))))
    }

    /// Distances of the quantiles from the median forecast.
    fn offsets_at(&self, rung: &Rung<'_>) -> Option<[f64; SHARE_COUNT]> {
        match &rung.kept {
            Some((direct, current)) => direct.quantile_offsets(current, self.of),
            None => {
                let center = self.median_at(rung)?;
                self.next_quantiles?.quantiles().map(|quantiles| quantiles.map(|quantile| quantile - center))
            }
        }
    }
}

/// Interpolates between two horizons. `share` is the position between them.
fn between(
    shorter: HorizonForecast,
    longer: HorizonForecast,
    share: f64,
    basis: HorizonBasis,
) -> HorizonForecast {
    let nearer = if share < 0.5 { &shorter } else { &longer };
    HorizonForecast {
        value: linear_between(shorter.value, longer.value, share),
        mse: log_between(shorter.mse, longer.mse, share),
        mae: log_between(shorter.mae, longer.mae, share),
        recent_mse: log_between(shorter.recent_mse, longer.recent_mse, share),
        recent_mae: log_between(shorter.recent_mae, longer.recent_mae, share),
        method: nearer.method,
        weight: nearer.weight,
        count: shorter.count,
        scored: shorter.scored.min(longer.scored),
        basis,
    }
}

fn linear_between(shorter: f64, longer: f64, share: f64) -> f64 {
    shorter + (longer - shorter) * share
}

/// Interpolates on logarithmic scales; 0 if one of the two is 0.
fn log_between(shorter: f64, longer: f64, share: f64) -> f64 {
    if shorter <= 0.0 || longer <= 0.0 {
        return 0.0;
    }
    let (shorter, longer) = (log(shorter), log(longer));
    exp(shorter + (longer - shorter) * share)
}

/// `wide` ÷ `half`, at most [`STRETCH_MAX`]; 1 if `half` is 0.
fn ratio(wide: f64, half: f64) -> f64 {
    if half > 0.0 { (wide / half).min(STRETCH_MAX) } else { 1.0 }
}

/// Largest factor by which quantiles move away from the forecast. This limit keeps products finite.
const STRETCH_MAX: f64 = 1e6;
/// Growth of the half-width of a random walk.
const WALK: f64 = 0.5;
/// How much larger the growth beyond the longest horizon is than the slope before it. For the mean
/// of a random walk, the slope is 0.24 between 1 and 5 values and approaches ½.
const SLOPE_RISE: f64 = 0.25;
/// Half-width beyond the longest horizon in units of the spread, at 90 %: that of the first value
/// after a gap.
const BEYOND: f64 = gap::START;

//! The horizons that are kept for a series, and forecasts for any other horizon.

use alloc::boxed::Box;

use libm::{exp, log, sqrt};

use super::direct::{DirectForecaster, Present};
use super::kind::Calibration;
use super::{Horizon, HorizonBasis, HorizonConfig, HorizonForecast, HorizonOf};
use crate::interval::laplace;
use crate::method_sets::RecentValues;
use crate::methods::window::SortedWindow;
use crate::scored_methods::DynBattery;
use crate::{Battery, Interval, Objective, QuantileForecaster};

/// Horizons in ascending order, and the times between values.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    horizons: Box<[DirectForecaster]>,
    /// `None` before the first value.
    present: Option<Present>,
    latest_s: Option<f64>,
    recent_periods: RecentValues<32>,
    periods: SortedWindow<PERIODS>,
}

/// A kept horizon, or the next value.
#[derive(Clone, Copy, Debug)]
struct Rung<'a> {
    /// Length of the horizon, in values.
    steps: f64,
    /// `None` for the next value.
    direct: Option<&'a DirectForecaster>,
}

/// A horizon among the kept ones.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    At(Rung<'a>),
    Between { shorter: Rung<'a>, longer: Rung<'a>, share: f64 },
    Beyond { longest: Rung<'a>, steps: f64 },
}

impl Ladder {
    /// Creates a ladder of valid horizons. A horizon of one value is the forecast of the battery.
    pub(crate) fn new(configs: &[HorizonConfig], calibration: &Calibration<'_>) -> Self {
        let kept = configs.iter().filter(|config| config.horizon != Horizon::Steps(1));
        Self {
            horizons: kept.map(|config| DirectForecaster::new(*config, calibration)).collect(),
            present: None,
            latest_s: None,
            recent_periods: RecentValues::new(),
            periods: SortedWindow::new(),
        }
    }

    /// Learns a value that `battery` has learned before, as value number `count`.
    pub(crate) fn update(&mut self, value: f64, time_s: Option<f64>, count: u64, battery: &dyn DynBattery) {
        let time_s = time_s.filter(|time_s| time_s.is_finite());
        self.learn_period(time_s);
        let present = Present {
            value,
            one_step: battery.one_step(),
            floor: battery.calibration().floor(),
            count,
            time_s,
            period_s: self.period_s(),
        };
        for horizon in &mut self.horizons {
            horizon.update(&present);
        }
        self.present = Some(present);
    }

    /// The median of the last times between values (s); `None` before [`PERIODS_MIN`] are known.
    pub(crate) fn period_s(&self) -> Option<f64> {
        (PERIODS_MIN <= self.periods.len()).then(|| self.periods.median())
    }

    /// Time from the newest value to `time_s`, in seconds and in median periods; `None` if either
    /// time is unknown, or if few periods are known.
    pub(crate) fn elapsed(&self, time_s: f64) -> Option<(f64, f64)> {
        let elapsed_s = self.latest_s.map(|latest_s| time_s - latest_s).filter(|s| s.is_finite())?;
        self.period_s().map(|period_s| (elapsed_s, elapsed_s / period_s))
    }

    fn learn_period(&mut self, time_s: Option<f64>) {
        if let Some(elapsed) = time_s.zip(self.latest_s).map(|(time, latest)| time - latest)
            && elapsed > 0.0
            && elapsed.is_finite()
        {
            self.periods.push(elapsed, self.recent_periods.ago(PERIODS - 1));
            self.recent_periods.push(elapsed);
        }
        self.latest_s = time_s;
    }

    /// Forecast of `of` at `horizon`; `None` before the first value, or for a time without a known
    /// period.
    pub(crate) fn forecast(
        &self,
        battery: &Battery,
        horizon: Horizon,
        of: HorizonOf,
        objective: Objective,
    ) -> Option<HorizonForecast> {
        let present = self.present.as_ref()?;
        let at = |rung: Rung<'_>| rung.forecast(battery, present, of, objective);
        match self.place(horizon, |direct| direct.is_calibrated(of))? {
            Place::At(rung) => at(rung),
            Place::Beyond { longest, .. } => {
                let forecast = at(longest)?;
                Some(HorizonForecast { basis: HorizonBasis::Beyond { longest: longest.steps }, ..forecast })
            }
            Place::Between { shorter, longer, share } => {
                let basis = HorizonBasis::Between { shorter: shorter.steps, longer: longer.steps };
                Some(between(at(shorter)?, at(longer)?, share, basis))
            }
        }
    }

    /// Interval of `of` at `level`; `None` until it is calibrated.
    pub(crate) fn interval(
        &self,
        battery: &Battery,
        horizon: Horizon,
        of: HorizonOf,
        level: f64,
    ) -> Option<Interval> {
        let place = self.place(horizon, |direct| direct.is_calibrated(of))?;
        if let Place::At(Rung { direct: None, .. }) = place {
            return battery.interval(level);
        }
        let center = self.forecast(battery, horizon, of, Objective::Absolute)?.value;
        let half = self.half(battery, place, of, level)?;
        Some(around(battery, center, half, level))
    }

    /// Interval at `level` of the value at `horizon`, which is not narrower than at shorter
    /// horizons, and has a half-width of at least `half_min`.
    pub(crate) fn aged_interval(
        &self,
        battery: &Battery,
        horizon: Horizon,
        level: f64,
        half_min: f64,
    ) -> Option<Interval> {
        let of = HorizonOf::Value;
        let center = self.forecast(battery, horizon, of, Objective::Absolute)?.value;
        let place = self.place(horizon, |direct| direct.is_calibrated(of))?;
        let steps = self.steps(horizon)?;
        let present = self.present.as_ref()?;
        let next = Rung { steps: 1.0, direct: None }.half(battery, present, of, level)?;
        let mut half = self.half(battery, place, of, level)?.max(next).max(half_min);
        for direct in &self.horizons {
            if direct.steps(self.period_s()).is_some_and(|kept| kept < steps)
                && let Some(shorter) = direct.half(of, level, present)
            {
                half = half.max(shorter);
            }
        }
        Some(around(battery, center, half, level))
    }

    /// Half-width of the interval at `level` at `place`; `None` until it is calibrated.
    fn half(&self, battery: &Battery, place: Place<'_>, of: HorizonOf, level: f64) -> Option<f64> {
        let present = self.present.as_ref()?;
        let half = |rung: Rung<'_>| rung.half(battery, present, of, level);
        Some(match place {
            Place::At(rung) => half(rung)?,
            Place::Between { shorter, longer, share } => log_between(half(shorter)?, half(longer)?, share),
            Place::Beyond { longest, steps } => {
                beyond(half(longest)?, steps / longest.steps, of, widest(battery, level))
            }
        })
    }

    /// Quantile of `share` of `of`; `None` until it is calibrated. `next` are the quantiles of the
    /// next value.
    pub(crate) fn quantile(
        &self,
        battery: &Battery,
        next: &QuantileForecaster,
        horizon: Horizon,
        of: HorizonOf,
        share: f64,
    ) -> Option<f64> {
        let place = self.place(horizon, |direct| direct.is_calibrated(of))?;
        if let Place::At(Rung { direct: None, .. }) = place {
            return next.quantile(share);
        }
        let center = self.forecast(battery, horizon, of, Objective::Absolute)?.value;
        let present = self.present.as_ref()?;
        let offset = |rung: Rung<'_>| match rung.direct {
            Some(direct) => direct.quantile_offset(of, share, present),
            None => Some(next.quantile(share)? - battery.forecast(Objective::Absolute)?.value),
        };
        let offset = match place {
            Place::At(rung) => offset(rung)?,
            Place::Between { shorter, longer, share } => {
                let (shorter, longer) = (offset(shorter)?, offset(longer)?);
                shorter + (longer - shorter) * share
            }
            Place::Beyond { longest, steps } => {
                // All quantiles move away from the forecast as the ends of the usual interval do.
                let level = Interval::DEFAULT_LEVEL;
                let half = longest.half(battery, present, of, level)?;
                let far = self.half(battery, Place::Beyond { longest, steps }, of, level)?;
                offset(longest)? * if half > 0.0 { (far / half).min(STRETCH_MAX) } else { 1.0 }
            }
        };
        let (floor, quantile) = (battery.inner().calibration().floor(), center + offset);
        Some(if quantile < floor { floor } else { quantile })
    }

    /// Finds `horizon` among the kept horizons. Between two of them, and beyond the longest, only
    /// `known` horizons are used.
    fn place(&self, horizon: Horizon, known: impl Fn(&DirectForecaster) -> bool) -> Option<Place<'_>> {
        let (steps, period_s) = (self.steps(horizon)?, self.period_s());
        let mut shorter = Rung { steps: 1.0, direct: None };
        if steps <= 1.0 {
            return Some(Place::At(shorter));
        }
        let mut longer: Option<Rung<'_>> = None;
        for direct in &self.horizons {
            let Some(kept) = direct.steps(period_s) else { continue };
            let rung = Rung { steps: kept, direct: Some(direct) };
            if direct.horizon() == horizon || (kept - steps).abs() <= SAME * steps {
                return Some(Place::At(Rung { steps, ..rung }));
            }
            if !known(direct) {
                continue;
            }
            if kept < steps && shorter.steps < kept {
                shorter = rung;
            }
            if steps < kept && longer.is_none_or(|longer| kept < longer.steps) {
                longer = Some(rung);
            }
        }
        Some(match longer {
            Some(longer) => {
                let share = log(steps / shorter.steps) / log(longer.steps / shorter.steps);
                Place::Between { shorter, longer, share }
            }
            None => Place::Beyond { longest: shorter, steps },
        })
    }

    /// Length of `horizon` in values; `None` for a time without a known period.
    fn steps(&self, horizon: Horizon) -> Option<f64> {
        Some(match horizon {
            Horizon::Steps(steps) => f64::from(steps),
            // A time that holds the next value only is the next value.
            Horizon::Seconds(seconds) => match seconds / self.period_s()? {
                steps if steps < NEXT_VALUE_STEPS => 1.0,
                steps => steps,
            },
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.horizons) + self.horizons.iter().map(DirectForecaster::heap_bytes).sum::<usize>()
    }
}

impl Rung<'_> {
    fn forecast(
        &self,
        battery: &Battery,
        present: &Present,
        of: HorizonOf,
        objective: Objective,
    ) -> Option<HorizonForecast> {
        let next = battery.forecast(objective)?;
        match self.direct {
            Some(direct) => {
                let methods = battery.inner().horizon_methods();
                direct.forecast(of, objective as usize, present, &methods)
            }
            None => Some(next.into()),
        }
    }

    /// Half-width of the interval at `level`.
    fn half(&self, battery: &Battery, present: &Present, of: HorizonOf, level: f64) -> Option<f64> {
        match self.direct {
            Some(direct) => direct.half(of, level, present),
            None => {
                let center = battery.forecast(Objective::Absolute)?.value;
                // The lower end may have been raised to 0, so the upper end gives the half-width.
                battery.interval(level).map(|interval| interval.upper - center)
            }
        }
    }
}

/// Interpolates between two horizons. `share` is the position between them on a logarithmic scale.
fn between(
    shorter: HorizonForecast,
    longer: HorizonForecast,
    share: f64,
    basis: HorizonBasis,
) -> HorizonForecast {
    let nearer = if share < 0.5 { &shorter } else { &longer };
    HorizonForecast {
        value: shorter.value + (longer.value - shorter.value) * share,
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

/// Interpolates on logarithmic scales; 0 if one of the two is 0.
fn log_between(shorter: f64, longer: f64, share: f64) -> f64 {
    if shorter <= 0.0 || longer <= 0.0 {
        return 0.0;
    }
    let (shorter, longer) = (log(shorter), log(longer));
    exp(shorter + (longer - shorter) * share)
}

/// The interval with a half-width around `center`, which is not below the floor.
fn around(battery: &Battery, center: f64, half: f64, level: f64) -> Interval {
    let floor = battery.inner().calibration().floor();
    let lower = center - half;
    Interval { level, lower: if lower < floor { floor } else { lower }, upper: center + half }
}

/// Largest half-width beyond the longest known horizon.
fn widest(battery: &Battery, level: f64) -> f64 {
    BEYOND * laplace(level) * battery.inner().calibration().spread()
}

/// Half-width at `ratio` times the longest known horizon. A mean over a longer time varies less,
/// but no error shows by how much. A value further ahead differs as after a random walk, up to the
/// `widest` half-width.
fn beyond(half: f64, ratio: f64, of: HorizonOf, widest: f64) -> f64 {
    let walked = half * sqrt(ratio);
    match of {
        HorizonOf::Mean => half,
        HorizonOf::Value if walked < widest => walked,
        HorizonOf::Value if half < widest => widest,
        HorizonOf::Value => half,
    }
}

/// Largest factor by which quantiles move away from the forecast. This limit keeps products finite.
const STRETCH_MAX: f64 = 1e6;
/// Number of periods in the median; as for gaps.
const PERIODS: usize = 31;
const PERIODS_MIN: usize = 5;
/// A shorter time is the next value: the value after the next is nearer to 2 periods.
const NEXT_VALUE_STEPS: f64 = 1.5;
/// Horizons are the same if their lengths differ by less than this share.
const SAME: f64 = 1e-9;
/// Half-width beyond the longest horizon in units of the spread, at 90 %: that of the first value
/// after a gap.
const BEYOND: f64 = 3.5;

//! The horizons that are kept for a series, and the position of any other horizon among them.

use alloc::boxed::Box;

use libm::log;

use super::direct::{CurrentForecast, DirectForecaster, HorizonInputs};
use super::kind::CalibrationConfig;
use super::{Horizon, HorizonConfig, HorizonOf};
use crate::gap::{PERIODS, PERIODS_MIN};
use crate::method_sets::RecentValues;
use crate::methods::window::SortedWindow;
use crate::scored_methods::DynBattery;

/// Horizons in the order of the configuration, and the times between values.
#[derive(Clone, Debug)]
pub(crate) struct Ladder {
    horizons: Box<[DirectForecaster]>,
    /// `None` before the first value.
    inputs: Option<HorizonInputs>,
    latest_s: Option<f64>,
    recent_periods: RecentValues<32>,
    periods: SortedWindow<PERIODS>,
}

/// A kept horizon with its forecasts after the newest value, or the next value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rung<'a> {
    /// Length of the horizon, in values.
    pub(super) steps: f64,
    /// `None` for the next value.
    pub(super) kept: Option<(&'a DirectForecaster, CurrentForecast)>,
}

/// Position of a horizon among the kept ones.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a box would allocate memory at each reading")]
pub(super) enum Position<'a> {
    At(Rung<'a>),
    /// Between two rungs; `share` is 0 at the shorter one and 1 at the longer one, on a logarithmic
    /// scale.
    Between {
        shorter: Rung<'a>,
        longer: Rung<'a>,
        share: f64,
    },
    /// Beyond the longest rung, at `steps` values.
    Beyond {
        longest: Rung<'a>,
        steps: f64,
    },
}

/// Kept horizons from which a horizon may be forecast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UsableRungs {
    /// Those with an interval.
    Calibrated,
    /// Those with an interval, and the requested horizon itself if it is kept.
    CalibratedOrOwn,
}

impl Ladder {
    /// Creates a ladder of valid horizons. A horizon of one value is the forecast of the battery.
    pub(crate) fn new(configs: &[HorizonConfig], calibration: &CalibrationConfig<'_>) -> Self {
        let kept = configs.iter().filter(|config| config.horizon != Horizon::Steps(1));
        Self {
            horizons: kept.map(|config| DirectForecaster::new(*config, calibration)).collect(),
            inputs: None,
            latest_s: None,
            recent_periods: RecentValues::new(),
            periods: SortedWindow::new(),
        }
    }

    /// Learns a value that `battery` has learned before.
    pub(crate) fn update(&mut self, value: f64, time_s: Option<f64>, battery: &dyn DynBattery) {
        let time_s = time_s.filter(|time_s| time_s.is_finite());
        self.learn_period(time_s);
        let inputs = HorizonInputs {
            value,
            one_step: battery.one_step(),
            floor: battery.calibration().floor(),
            count: self.count() + 1,
            time_s,
            period_s: self.period_s(),
        };
        for horizon in &mut self.horizons {
            horizon.update(&inputs);
        }
        self.inputs = Some(inputs);
    }

    /// The kept horizons, in the order of the configuration.
    pub(crate) fn horizons(&self) -> impl Iterator<Item = Horizon> + '_ {
        self.horizons.iter().map(DirectForecaster::horizon)
    }

    /// The kept horizons that are longer than the next value, in seconds, and the mean up to each
    /// as it is forecast for absolute error, in the order of the configuration.
    pub(crate) fn means(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.horizons.iter().filter_map(|direct| {
            let period_s = self.period_s()?;
            let steps = direct.steps(Some(period_s)).filter(|steps| NEXT_VALUE_STEPS <= *steps)?;
            let current = direct.current(self.inputs.as_ref()?)?;
            Some((steps * period_s, current.median(HorizonOf::Mean)))
        })
    }

    /// The median of the last times between values (s); `None` before [`PERIODS_MIN`] are known.
    pub(crate) fn period_s(&self) -> Option<f64> {
        (PERIODS_MIN <= self.periods.len()).then(|| self.periods.median().max(PERIOD_MIN_S))
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

    /// Number of values learned.
    pub(super) fn count(&self) -> u64 {
        self.inputs.as_ref().map_or(0, |inputs| inputs.count)
    }

    /// Finds `horizon` among the kept horizons; `None` before the first value, and for a time
    /// without a known period. Intervals are those of `of`.
    pub(super) fn position(
        &self,
        horizon: Horizon,
        of: HorizonOf,
        usable: UsableRungs,
    ) -> Option<Position<'_>> {
        let inputs = self.inputs.as_ref()?;
        let steps = self.steps(horizon)?;
        let mut shorter: (f64, Option<&DirectForecaster>) = (1.0, None);
        let mut longer: Option<(f64, Option<&DirectForecaster>)> = None;
        if steps <= 1.0 {
            return Rung::new(shorter, inputs).map(Position::At);
        }
        for direct in &self.horizons {
            let Some(kept) = direct.steps(self.period_s()) else { continue };
            let is_own = direct.horizon() == horizon || (kept - steps).abs() <= SAME * steps;
            let is_usable = direct.is_calibrated(of) || (is_own && usable == UsableRungs::CalibratedOrOwn);
            if !is_usable {
                continue;
            }
            if is_own {
                return Rung::new((steps, Some(direct)), inputs).map(Position::At);
            }
            if kept < steps && shorter.0 < kept {
                shorter = (kept, Some(direct));
            }
            if steps < kept && longer.is_none_or(|(longer, _)| kept < longer) {
                longer = Some((kept, Some(direct)));
            }
        }
        let Some(longer) = longer else {
            return Some(Position::Beyond { longest: Rung::new(shorter, inputs)?, steps });
        };
        let share = log(steps / shorter.0) / log(longer.0 / shorter.0);
        let (shorter, longer) = (Rung::new(shorter, inputs)?, Rung::new(longer, inputs)?);
        Some(Position::Between { shorter, longer, share })
    }

    /// The kept horizons that are shorter than `horizon`.
    pub(super) fn shorter(&self, horizon: Horizon) -> impl Iterator<Item = Rung<'_>> {
        let limit = self.steps(horizon).unwrap_or(0.0);
        self.horizons.iter().filter_map(move |direct| {
            let steps = direct.steps(self.period_s()).filter(|steps| *steps < limit)?;
            Rung::new((steps, Some(direct)), self.inputs.as_ref()?)
        })
    }

    /// The longest kept horizon of at most `steps_max` values, at least 1, that has an interval for
    /// `of`; the next value if there is none.
    pub(super) fn longest_within(&self, steps_max: f64, of: HorizonOf) -> Option<Rung<'_>> {
        let mut longest: (f64, Option<&DirectForecaster>) = (1.0, None);
        for direct in self.horizons.iter().filter(|direct| direct.is_calibrated(of)) {
            let Some(steps) = direct.steps(self.period_s()) else { continue };
            if longest.0 < steps && steps <= steps_max {
                longest = (steps, Some(direct));
            }
        }
        Rung::new(longest, self.inputs.as_ref()?)
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

impl<'a> Rung<'a> {
    /// `None` if the horizon has learned no value yet.
    fn new((steps, direct): (f64, Option<&'a DirectForecaster>), inputs: &HorizonInputs) -> Option<Self> {
        let kept = match direct {
            Some(direct) => Some((direct, direct.current(inputs)?)),
            None => None,
        };
        Some(Self { steps, kept })
    }
}

/// Shortest median period (s): the resolution of clocks. It keeps numbers of values finite.
const PERIOD_MIN_S: f64 = 1e-9;
/// A shorter time is the next value: the value after the next is nearer to 2 periods.
const NEXT_VALUE_STEPS: f64 = 1.5;
/// Horizons are the same if their lengths differ by less than this share.
const SAME: f64 = 1e-9;

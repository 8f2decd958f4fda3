//! Four series with the preset `nws` and the rule `two-level`, updated at the same time.
//!
//! The state of four series is stored side by side, one series in each lane of a vector
//! instruction. Each lane does the operations of a battery in the same order, so the results are
//! equal to the bit.

mod calibration;
mod selection;
mod state;
mod windows;

use alloc::boxed::Box;

use barograph_lanes::Instructions;

use crate::method_sets::{NWS, Nws};
use crate::rules::TwoLevel;
use crate::scored_methods::{DynBattery, ScoredMethods};
use crate::{Battery, Forecast, Interval, InvalidValue, Objective};

use state::{LANES, State, Update};

/// One battery of preset `nws` and rule `two-level`.
type Series = ScoredMethods<Nws, TwoLevel<Nws, NWS>, NWS>;

/// Four series with [`Preset::Nws`](crate::Preset::Nws) and
/// [`Rule::TwoLevel`](crate::Rule::TwoLevel), with the results of four batteries, to the bit.
///
/// One update of four values costs much less than four updates of batteries. This needs 102 values
/// in each lane; until then, the lanes are four separate batteries. A lane without a value in an
/// update costs more than a lane with a value.
///
/// ```
/// use barograph_forecast::{NwsLanes, Objective};
///
/// let mut lanes = NwsLanes::new(&[]);
/// for n in 0..200_u32 {
///     let value = f64::from(n % 7);
///     lanes.update([Some(value), Some(10.0 + value), None, Some(20.0)])?;
/// }
/// let next = lanes.forecast(3, Objective::Absolute).expect("there are values");
/// assert_eq!((next.value, next.count), (20.0, 200));
/// assert_eq!(lanes.forecast(2, Objective::Absolute), None);
/// # Ok::<(), barograph_forecast::InvalidValue>(())
/// ```
#[derive(Clone, Debug)]
pub struct NwsLanes {
    inner: Inner,
    instructions: Instructions,
}

#[derive(Clone, Debug)]
enum Inner {
    /// Four batteries, while one of them has fewer than [`State::COUNT_MIN`] values.
    Apart(Box<[Series; LANES]>),
    Together(Box<State>),
}

impl NwsLanes {
    /// Number of series that are updated at the same time.
    pub const LANES: usize = LANES;

    /// Creates four series without values. `levels` are those of
    /// [`BatteryConfig::levels`](crate::BatteryConfig::levels).
    #[must_use]
    pub fn new(levels: &[f64]) -> Self {
        let series = || Series::new(TwoLevel::new(), levels, false);
        let inner = Inner::Apart(Box::new([series(), series(), series(), series()]));
        Self { inner, instructions: Instructions::detected() }
    }

    /// Scores the issued forecasts on the values and learns them; a series without a value does not
    /// change.
    ///
    /// # Errors
    /// The first of the values that a battery rejects ([`Battery::update`]). Then no series is
    /// changed.
    pub fn update(&mut self, values: [Option<f64>; LANES]) -> Result<(), InvalidValue> {
        for value in values.into_iter().flatten() {
            Battery::check(value)?;
        }
        match &mut self.inner {
            Inner::Apart(series) => {
                for (series, value) in series.iter_mut().zip(values) {
                    if let Some(value) = value {
                        series.update(value, None);
                    }
                }
                if series.iter().all(|series| State::COUNT_MIN <= series.count()) {
                    self.inner = Inner::Together(Box::new(State::of(series.each_ref())));
                }
            }
            Inner::Together(state) => match values {
                [Some(a), Some(b), Some(c), Some(d)] => {
                    self.instructions.run(Update { state, values: [a, b, c, d] });
                }
                [None, None, None, None] => {}
                _ => {
                    // Every lane learns a value; then the series without a value get their former
                    // state again.
                    let absent = values.map(|value| value.is_none());
                    let before = state.columns(absent);
                    let values = values.map(|value| value.unwrap_or(0.0));
                    self.instructions.run(Update { state, values });
                    state.restore(&before);
                }
            },
        }
        Ok(())
    }

    /// Returns the forecast of a series, as [`Battery::forecast`] does; `None` for a lane that does
    /// not exist.
    #[must_use]
    pub fn forecast(&self, lane: usize, objective: Objective) -> Option<Forecast> {
        match &self.inner {
            Inner::Apart(series) => series.get(lane)?.forecast(objective as usize, None),
            Inner::Together(state) => (lane < LANES).then(|| state.forecast(lane, objective as usize)),
        }
    }

    /// Returns the interval of a series, as [`Battery::interval`] does; `None` for a lane that does
    /// not exist.
    #[must_use]
    pub fn interval(&self, lane: usize, level: f64) -> Option<Interval> {
        match &self.inner {
            Inner::Apart(series) => series.get(lane)?.interval(level, None),
            Inner::Together(state) if lane < LANES => state.interval(lane, level),
            Inner::Together(_) => None,
        }
    }

    /// Memory that the four series occupy, in bytes, heap included.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.inner {
                Inner::Apart(series) => series.iter().map(DynBattery::size_bytes).sum(),
                Inner::Together(state) => state.size_bytes(),
            }
    }
}

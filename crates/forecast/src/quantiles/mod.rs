//! Quantiles of the next value, each calibrated on its own side.

mod aggregation;
mod blended;
mod regression;
mod tracked;

use core::ops::RangeInclusive;

use libm::log;

use crate::{Battery, Objective};
use blended::BlendedQuantiles;
pub(crate) use blended::sort;
use tracked::TrackedQuantiles;

/// How the quantiles of the next value are calibrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum QuantileMethod {
    /// One track a quantile on the scale of errors: a quarter of a kilobyte. For stations with
    /// thousands of series.
    Tracked,
    /// Five candidates, aggregated for each quantile: 9 KB. Closer to the values on skewed series.
    #[default]
    Blended,
}

/// Shares for which there are quantiles. Beyond them, values are so rare that the quantile would be
/// a guess.
pub const QUANTILE_RANGE: RangeInclusive<f64> = 0.005..=0.995;

/// Shares of the quantiles that are calibrated individually, in ascending order and symmetric
/// around the median.
pub const QUANTILE_SHARES: [f64; 9] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

/// Forecasts quantiles of the next value of a series, beside the [`Battery`] of the series.
///
/// A quantile of share 0.9 is the number below which nine values in ten should be. Each quantile is
/// calibrated on its own side of the forecast, so quantiles of a skewed series are not symmetric
/// around it; an [`Interval`](crate::Interval) is.
///
/// ```
/// use barograph_forecast::{Battery, BatteryConfig, QuantileForecaster, QuantileMethod};
///
/// let mut battery = Battery::new(&BatteryConfig::default());
/// let mut quantiles = QuantileForecaster::new(QuantileMethod::Blended);
/// let mut random = 1_u32;
/// for _ in 0..2000 {
///     // Most values are near 21, few are up to 40.
///     random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
///     let value = 20.0 + 1.0 / (0.05 + f64::from(random >> 8) / 16_777_216.0);
///     battery.update(value)?;
///     quantiles.update(&battery, value, false);
/// }
/// let [low, median, high] =
///     [0.1, 0.5, 0.9].map(|share| quantiles.quantile(share).expect("ten forecasts were scored"));
/// assert!(high - median > 2.0 * (median - low));
/// # Ok::<(), barograph_forecast::InvalidValue>(())
/// ```
#[derive(Clone, Debug)]
pub struct QuantileForecaster {
    method: Method,
    issued: Option<Issued>,
}

#[derive(Clone, Debug)]
enum Method {
    Tracked(TrackedQuantiles),
    Blended(alloc::boxed::Box<BlendedQuantiles>),
}

/// The quantiles that were issued for the next value, and what they were computed from.
#[derive(Clone, Copy, Debug)]
struct Issued {
    inputs: QuantileInputs,
    /// The quantiles of [`QUANTILE_SHARES`], in ascending order.
    quantiles: [f64; SHARE_COUNT],
}

/// What the quantiles of the next value are computed from, if that value does not come after a gap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantileInputs {
    /// The forecast under absolute error, and that under squared error.
    pub(crate) median: f64,
    pub(crate) mean: f64,
    /// The scale of errors.
    pub(crate) scale: f64,
    /// Half-widths of the intervals with the shares 0.01, 0.05, 0.1 and 0.25 of the values beyond
    /// each end.
    pub(crate) half_widths: [f64; 4],
    /// Lower bound of quantiles: 0 while no value was below 0, else −∞.
    pub(crate) floor: f64,
}

impl QuantileInputs {
    /// The distance of `value` from the median, in scales, within ±[`END_MAX`]; 0 if there is no
    /// scale.
    fn position(&self, value: f64) -> f64 {
        if self.has_scale() { ((value - self.median) / self.scale).clamp(-END_MAX, END_MAX) } else { 0.0 }
    }

    /// Whether the scale can be a divisor. On a plateau the scale is 0 or almost 0.
    fn has_scale(&self) -> bool {
        self.scale > SCALE_MIN
    }

    fn above_floor(&self, quantile: f64) -> f64 {
        if quantile < self.floor { self.floor } else { quantile }
    }

    /// Returns `quantiles` in ascending order and not below the floor.
    fn in_order(&self, quantiles: [f64; SHARE_COUNT]) -> [f64; SHARE_COUNT] {
        in_order(quantiles).map(|quantile| self.above_floor(quantile))
    }
}

/// Returns `quantiles` in ascending order: from the median outwards, a quantile that crosses its
/// neighbour takes the neighbour's place.
pub(crate) fn in_order(mut quantiles: [f64; SHARE_COUNT]) -> [f64; SHARE_COUNT] {
    for i in MEDIAN + 1..SHARE_COUNT {
        if quantiles[i] < quantiles[i - 1] {
            quantiles[i] = quantiles[i - 1];
        }
    }
    for i in (0..MEDIAN).rev() {
        if quantiles[i + 1] < quantiles[i] {
            quantiles[i] = quantiles[i + 1];
        }
    }
    quantiles
}

impl QuantileForecaster {
    /// Creates a forecaster without values.
    #[must_use]
    pub fn new(method: QuantileMethod) -> Self {
        let method = match method {
            QuantileMethod::Tracked => Method::Tracked(TrackedQuantiles::new()),
            QuantileMethod::Blended => Method::Blended(alloc::boxed::Box::new(BlendedQuantiles::new())),
        };
        Self { method, issued: None }
    }

    /// Scores the issued quantiles on `value`, then computes those of the value after it.
    ///
    /// `battery` has just learned `value`. `is_after_gap` is what
    /// [`Battery::is_after_gap`] returned before the battery learned it: quantiles after gaps are
    /// calibrated by the battery.
    pub fn update(&mut self, battery: &Battery, value: f64, is_after_gap: bool) {
        let issued = self.issued.as_ref().filter(|_| !is_after_gap);
        let inputs = battery.quantile_inputs();
        let quantiles = match &mut self.method {
            Method::Tracked(tracked) => {
                if let Some(issued) = issued {
                    tracked.learn(issued, value);
                }
                inputs.map(|inputs| inputs.in_order(tracked.issue(&inputs)))
            }
            Method::Blended(blended) => {
                if let Some(issued) = issued {
                    blended.learn(issued, value);
                }
                blended.push(value);
                inputs.map(|inputs| blended.issue(&inputs, value))
            }
        };
        self.issued = inputs.zip(quantiles).map(|(inputs, quantiles)| Issued { inputs, quantiles });
    }

    /// Quantiles of the next value at [`QUANTILE_SHARES`], in ascending order; `None` until
    /// [`SCORED_MIN_FOR_INTERVAL`](crate::SCORED_MIN_FOR_INTERVAL) forecasts were scored.
    pub(crate) fn quantiles(&self) -> Option<[f64; SHARE_COUNT]> {
        self.issued.as_ref().map(|issued| issued.quantiles)
    }

    /// Quantile of the next value: the number below which the share `share` of the values should
    /// be, in the series' unit.
    ///
    /// `None` until [`SCORED_MIN_FOR_INTERVAL`](crate::SCORED_MIN_FOR_INTERVAL) forecasts were
    /// scored, and for a share outside [`QUANTILE_RANGE`]. The [`QUANTILE_SHARES`] are calibrated
    /// individually; others are interpolated.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let issued = self.issued.as_ref().filter(|_| QUANTILE_RANGE.contains(&share))?;
        Some(issued.inputs.above_floor(interpolated(&issued.quantiles, share)))
    }

    /// Like [`Self::quantile`], for a value at `time_s` (s). After a gap, the quantile is the end
    /// of an interval of `battery`, which learns where values after gaps are.
    #[must_use]
    pub fn quantile_at(&self, battery: &Battery, share: f64, time_s: f64) -> Option<f64> {
        let usual = self.quantile(share)?;
        if !battery.is_after_gap(time_s) {
            return Some(usual);
        }
        let level = (2.0 * share - 1.0).abs();
        let Some(interval) = battery.interval_at(level, time_s) else {
            return battery.forecast_at(Objective::Absolute, time_s).map(|forecast| forecast.value);
        };
        Some(if share < 0.5 { interval.lower } else { interval.upper })
    }

    /// Memory that this forecaster occupies, in bytes, heap included.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.method {
                Method::Tracked(_) => 0,
                Method::Blended(blended) => size_of_val(&**blended),
            }
    }
}

/// The quantile of `share`, between the quantiles of [`QUANTILE_SHARES`] or beyond them: on a line
/// over the share in the middle, and over the logarithm of the share of rarer values outside,
/// because the quantiles of an exponential tail are linear in it.
pub(crate) fn interpolated(quantiles: &[f64; SHARE_COUNT], share: f64) -> f64 {
    let above = QUANTILE_SHARES.iter().position(|known| share <= *known).unwrap_or(SHARE_COUNT - 1).max(1);
    if share == QUANTILE_SHARES[above] {
        return quantiles[above];
    }
    let is_middle = (MEDIAN..=MEDIAN + 1).contains(&above);
    let coordinate = |share: f64| match is_middle {
        true => share,
        false if above < MEDIAN => log(share),
        false => -log(1.0 - share),
    };
    let [low, high] = [above - 1, above].map(|index| (coordinate(QUANTILE_SHARES[index]), quantiles[index]));
    let quantile = low.1 + (high.1 - low.1) * ((coordinate(share) - low.0) / (high.0 - low.0));
    // A rounding error must not put the quantile beyond its neighbours.
    match (QUANTILE_SHARES[above - 1] < share, share < QUANTILE_SHARES[above]) {
        (true, true) => quantile.max(low.1).min(high.1),
        _ => quantile,
    }
}

/// Quantile of the Laplace distribution with the median 0 and the mean absolute value 1.
pub(crate) fn laplace_quantile(share: f64) -> f64 {
    if share <= 0.5 { log(2.0 * share) } else { -log(2.0 * (1.0 - share)) }
}

pub(crate) const SHARE_COUNT: usize = QUANTILE_SHARES.len();
/// Index of the median in [`QUANTILE_SHARES`].
const MEDIAN: usize = 4;
/// Largest distance from the forecast, in scales. This limit keeps products finite.
pub(crate) const END_MAX: f64 = 1e6;
/// Scales up to this one are not divided by, as in `docs/spec/full.md`.
pub(crate) const SCALE_MIN: f64 = 1e-300;

//! Quantiles at a horizon, each calibrated on its own side by the errors of earlier forecasts.

use libm::sqrt;

use crate::quantiles::{END_MAX, QUANTILE_SHARES, SCALE_MIN, SHARE_COUNT, in_order, laplace_quantile};

/// Quantiles of one kind of target at one horizon: each is a track on the scale of errors.
///
/// An end is learned from the quantile that was issued, as a half-width of the intervals is.
#[derive(Clone, Debug)]
pub(crate) struct HorizonQuantiles {
    step: f64,
    /// Distance of the quantile of each share from the forecast, in scales.
    ends: [f64; SHARE_COUNT],
}

impl HorizonQuantiles {
    /// Creates tracks for a horizon of `length` values with one error every `stride` values.
    pub(crate) fn new(length: f64, stride: f64) -> Self {
        let step = (STEP / sqrt(length.min(STEP_LENGTH_MAX))).min(STABLE_STEP / length);
        Self { step: (step * stride).min(STEP_MAX), ends: QUANTILE_SHARES.map(laplace_quantile) }
    }

    /// The ends in ascending order, as they are issued.
    pub(crate) fn ends(&self) -> [f64; SHARE_COUNT] {
        in_order(self.ends)
    }

    /// Learns from the ends that were `issued` with a forecast. Its target is `distance` above it.
    /// `scale` is the scale that was issued.
    ///
    /// Each end moves up after a target above the issued end, and down after a target below it, so
    /// that it rests if its share of the targets is below.
    pub(crate) fn learn(&mut self, distance: f64, scale: f64, issued: &[f64]) {
        if scale <= SCALE_MIN {
            return;
        }
        let position = (distance / scale).clamp(-END_MAX, END_MAX);
        for ((end, share), issued) in self.ends.iter_mut().zip(QUANTILE_SHARES).zip(issued) {
            if position == *issued {
                continue;
            }
            let missed = if position < *issued { 1.0 } else { 0.0 };
            let moved = *end + self.step * (end.abs() + LENGTH_MIN) * (share - missed);
            *end = moved.clamp(-END_MAX, END_MAX);
        }
    }
}

/// Step for a horizon of one value, in units of the end's distance from the forecast plus
/// [`LENGTH_MIN`]. It decreases with the root of the horizon, as the step of the intervals does,
/// and for the same reasons.
const STEP: f64 = 0.07;
const STEP_LENGTH_MAX: f64 = 30.0;
/// Length of an end at the forecast itself, in scales. With half a scale, as at the next value, the
/// quantiles near the median oscillate: on the open traces, the pinball loss of the median of means
/// of 120 values was larger by a tenth.
const LENGTH_MIN: f64 = 0.15;
/// Largest step, where few forecasts are scored.
const STEP_MAX: f64 = 0.15;
/// Bound of the step times the horizon. Errors are known one horizon late, so an end would
/// oscillate with much larger steps.
const STABLE_STEP: f64 = 1.4;

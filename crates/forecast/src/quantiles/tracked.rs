//! Quantiles that are each one track on the scale of errors.

use super::{END_MAX, Issued, QUANTILE_SHARES, QuantileInputs, SHARE_COUNT, laplace_quantile};

/// The end of each of [`QUANTILE_SHARES`]: the distance of the quantile from the forecast, in
/// scales of the error.
#[derive(Clone, Debug)]
pub(super) struct TrackedQuantiles {
    count: u64,
    ends: [f64; SHARE_COUNT],
}

impl TrackedQuantiles {
    pub(super) fn new() -> Self {
        // The start is the Laplace distribution. Its mean absolute error is the scale.
        Self { count: 0, ends: QUANTILE_SHARES.map(laplace_quantile) }
    }

    /// The quantiles of the next value; they need not be in ascending order.
    pub(super) fn issue(&self, inputs: &QuantileInputs) -> [f64; SHARE_COUNT] {
        self.ends.map(|end| inputs.median + inputs.scale * end)
    }

    /// Learns `value`, for which quantiles were issued.
    ///
    /// Each end moves up after a value above it and down after a value below it, so that it rests
    /// if its share of the values is below. Far ends take longer steps.
    pub(super) fn learn(&mut self, issued: &Issued, value: f64) {
        if !issued.inputs.has_scale() {
            return;
        }
        self.count += 1;
        let position = issued.inputs.position(value);
        let step = STEP.max(1.0 / (self.count as f64 + 1.0));
        for (end, share) in self.ends.iter_mut().zip(QUANTILE_SHARES) {
            let missed = if position < *end { 1.0 } else { 0.0 };
            let moved = *end + step * (end.abs() + 0.5) * (share - missed);
            *end = moved.clamp(-END_MAX, END_MAX);
        }
    }
}

/// Step in units of the end's distance from the forecast, plus half a scale. With shorter steps the
/// coverage of rare quantiles is wrong after thousands of values; longer steps are noise.
const STEP: f64 = 0.05;

//! Quantiles that are blended from five candidates.

use libm::sqrt;

use super::aggregation::QuantileAggregation;
use super::regression::{FEATURES, QuantileRegression};
use super::{Issued, MEDIAN, QUANTILE_SHARES, QuantileInputs, SHARE_COUNT};
use crate::method_sets::RecentValues;
use crate::methods::limited;
use crate::methods::window::SortedWindow;

/// The candidates of each of the shares, their weights, and a correction of the blend.
#[derive(Clone, Debug)]
pub(super) struct BlendedQuantiles {
    recent: RecentValues<256>,
    newest: SortedWindow<NEWEST>,
    values: SortedWindow<LONG>,
    steps: SortedWindow<LONG>,
    five: SortedWindow<5>,
    regression: QuantileRegression,
    aggregation: QuantileAggregation<CANDIDATES>,
    /// Added to the blend, in scales.
    corrections: [f64; SHARE_COUNT],
    scored: u64,
    candidates: [[f64; CANDIDATES]; SHARE_COUNT],
    combined: [f64; SHARE_COUNT],
    features: [f64; FEATURES],
}

impl BlendedQuantiles {
    pub(super) fn new() -> Self {
        Self {
            recent: RecentValues::new(),
            newest: SortedWindow::new(),
            values: SortedWindow::new(),
            steps: SortedWindow::new(),
            five: SortedWindow::new(),
            regression: QuantileRegression::new(),
            aggregation: QuantileAggregation::new(),
            corrections: [0.0; SHARE_COUNT],
            scored: 0,
            candidates: [[0.0; CANDIDATES]; SHARE_COUNT],
            combined: [0.0; SHARE_COUNT],
            features: [0.0; FEATURES],
        }
    }

    /// Adds a value to the windows; also a value after a gap.
    pub(super) fn push(&mut self, value: f64) {
        if self.recent.count() != 0 {
            let step = value - self.recent.ago(0);
            self.steps.push(step, self.recent.ago(LONG - 1) - self.recent.ago(LONG));
        }
        self.newest.push(value, self.recent.ago(NEWEST - 1));
        self.values.push(value, self.recent.ago(LONG - 1));
        self.five.push(value, self.recent.ago(4));
        self.recent.push(value);
    }

    /// Computes the quantiles of the value after `last`.
    pub(super) fn issue(&mut self, inputs: &QuantileInputs, last: f64) -> [f64; SHARE_COUNT] {
        let from_median = inputs.position(last).clamp(-FEATURE_MAX, FEATURE_MAX);
        let from_five = if inputs.has_scale() { (last - self.five.median()) / inputs.scale } else { 0.0 };
        let skew = inputs.position(inputs.mean).clamp(-FEATURE_MAX, FEATURE_MAX);
        self.features =
            [1.0, from_median, from_five.abs().min(FEATURE_MAX), from_median.abs(), skew, skew.abs()];
        let regression = self.regression.predict(&self.features);
        let [least, greatest] = self.values.quantiles(&[0.0, 1.0]);
        let newest = self.newest.quantiles(&QUANTILE_SHARES);
        let values = self.values.quantiles(&QUANTILE_SHARES);
        let steps = self.steps.quantiles(&QUANTILE_SHARES);
        for i in 0..SHARE_COUNT {
            let interval_end = match i {
                _ if i < MEDIAN => inputs.median - inputs.half_widths[i],
                MEDIAN => inputs.median,
                _ => inputs.median + inputs.half_widths[SHARE_COUNT - 1 - i],
            };
            self.candidates[i] = [
                interval_end,
                newest[i],
                values[i],
                limited(inputs.median + inputs.scale * regression[i], least, greatest),
                last + steps[i],
            ]
            .map(|candidate| inputs.above_floor(candidate));
        }
        self.combined = self.aggregation.combine(&self.candidates);
        let mut quantiles = self.combined;
        sort(&mut quantiles);
        for (quantile, correction) in quantiles.iter_mut().zip(&self.corrections) {
            *quantile = inputs.above_floor(*quantile) + inputs.scale * correction;
        }
        inputs.in_order(quantiles)
    }

    /// Learns `value`, for which the last quantiles were issued.
    pub(super) fn learn(&mut self, issued: &Issued, value: f64) {
        self.scored += 1;
        if issued.inputs.has_scale() {
            self.regression.learn(&self.features, issued.inputs.position(value));
        }
        self.aggregation.learn(&self.candidates, &self.combined, value);
        let hurry = sqrt(HURRY_COUNT / self.scored as f64).clamp(1.0, HURRY_MAX);
        for i in 0..SHARE_COUNT {
            let quantile = issued.quantiles[i];
            // A value that equals the quantile says nothing about it. On a plateau, all do.
            if value != quantile {
                let missed = if value < quantile { 1.0 } else { 0.0 };
                let distance = issued.inputs.position(quantile).abs().min(DISTANCE_MAX);
                let step = hurry * STEPS[i] * (1.0 + GROWTH[i] * distance);
                let moved = self.corrections[i] + step * (QUANTILE_SHARES[i] - missed);
                self.corrections[i] = moved.clamp(-CORRECTION_MAX, CORRECTION_MAX);
            }
        }
    }
}

/// Sorts by insertion: the values are few or almost sorted, and the sort of the standard library
/// would be 4 KB of the page's WebAssembly.
pub(crate) fn sort(values: &mut [f64]) {
    for i in 1..values.len() {
        let mut at = i;
        while at != 0 && values[at] < values[at - 1] {
            values.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Number of candidates: end of the interval; quantiles of the newest values and of more values;
/// regression; the last value plus a quantile of the steps.
const CANDIDATES: usize = 5;
/// Lengths of the windows, in values. From 10 to 31 and from 100 to 500 values, the pinball loss on
/// the open traces is the same within 0.2 %; the memory is not.
const NEWEST: usize = 16;
const LONG: usize = 128;
/// Bound of features, in scales.
const FEATURE_MAX: f64 = 10.0;
/// Step of each correction, in scales: 0.007 √(0.5 / the rarer share), and 0.01 √ for the rarest,
/// times 1 + `GROWTH` times the distance of the quantile from the forecast. The coverage over n
/// values is off by the change of the correction ÷ (step · n), and the corrections of rare and far
/// quantiles change most.
const STEPS: [f64; SHARE_COUNT] = [0.071, 0.022, 0.016, 0.01, 0.007, 0.01, 0.016, 0.022, 0.071];
const GROWTH: [f64; SHARE_COUNT] = [0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.4];
/// Bound of the distance in the step, in scales: one outlier must not move a correction far.
const DISTANCE_MAX: f64 = 20.0;
/// The first corrections are larger: √(1000 / number of values) times, three times at most, so that
/// the coverage of a short series is right too.
const HURRY_COUNT: f64 = 1000.0;
const HURRY_MAX: f64 = 3.0;
/// Bound of corrections, in scales; a bound is needed only if scales and quantiles lose touch.
const CORRECTION_MAX: f64 = 100.0;

//! The rule that combines the candidates of one kind of target at one horizon.

use libm::{exp2, sqrt};

use super::candidates::{
    CANDIDATES, CandidateSet, LONG_MEDIAN, NEXT_MEAN, NEXT_MEDIAN, REGRESSIONS, RUNNING_MEAN, SMOOTH_1,
    SMOOTH_4, SMOOTH_16,
};
use super::pending::IssuedForecast;
use super::regression::{DirectRegression, RegressionLoss};
use crate::rules::{BernsteinAggregation, Gradient, PowerWeights, argmax, sorted_by_value, weighted_median};

/// Number of forecasts that the rule combines at its upper level: two combinations of all
/// candidates, by powers of losses and by aggregation, and the forecast of the next value.
pub(crate) const PARTS: usize = 3;

/// Weights of the candidates for squared and for absolute error, and the regressions.
#[derive(Clone, Debug)]
pub(crate) struct HorizonRule {
    powers: [PowerWeights<CANDIDATES>; 2],
    aggregations: [BernsteinAggregation<CANDIDATES>; 2],
    combiner: [PowerWeights<PARTS>; 2],
    mean_regression: DirectRegression<5>,
    median_regression: DirectRegression<6>,
    /// Number of forecasts that were learned, and number of forecasts in a horizon.
    count: u64,
    delay: f64,
}

impl HorizonRule {
    /// Creates a rule for a horizon of `length` values with a forecast every `stride` values.
    pub(crate) fn new(length: f64, stride: f64) -> Self {
        let fade = exp2(-stride / MEMORY_VALUES.max(MEMORY_HORIZONS * length));
        let prior = PRIOR * stride / (length * sqrt(length));
        let delay = (length / stride).max(1.0);
        let memory = REGRESSION_VALUES.max(REGRESSION_HORIZONS * length) / stride;
        Self {
            powers: [PowerWeights::new(fade), PowerWeights::new(fade)],
            aggregations: [
                BernsteinAggregation::delayed(Gradient::Error, SQUARED_CLIP, delay),
                BernsteinAggregation::delayed(Gradient::Sign, ABSOLUTE_CLIP, delay),
            ],
            combiner: [PowerWeights::new(1.0), PowerWeights::new(1.0)],
            mean_regression: DirectRegression::new(
                [0.5, 0.25, 0.25, 0.0, 0.0],
                prior,
                memory,
                RegressionLoss::Squared,
            ),
            median_regression: DirectRegression::new(
                [0.5, 0.0, 0.25, 0.25, 0.0, 0.0],
                prior,
                memory,
                RegressionLoss::Absolute,
            ),
            count: 0,
            delay,
        }
    }

    /// The regressions' forecasts as distances; they are within `bounds`.
    pub(crate) fn regressions(&self, set: &CandidateSet, bounds: (f64, f64)) -> [f32; REGRESSIONS] {
        [
            self.mean_regression.predict(&mean_features(set)),
            self.median_regression.predict(&median_features(set)),
        ]
        .map(|step| {
            let forecast = set.origin + set.unit * step;
            let raised = if forecast < bounds.0 { bounds.0 } else { forecast };
            set.offset(if bounds.1 < raised { bounds.1 } else { raised })
        })
    }

    /// Combines the candidates to the forecasts that are issued.
    pub(crate) fn combine(&self, forecasts: &[f64; CANDIDATES]) -> IssuedForecast {
        let order = sorted_by_value(forecasts);
        let parts = [
            [
                weighted_mean(forecasts, self.powers[0].weights()),
                self.aggregations[0].mean_of(forecasts),
                forecasts[NEXT_MEAN],
            ],
            [
                weighted_median(forecasts, self.powers[1].weights(), &order),
                self.aggregations[1].mean_of(forecasts),
                forecasts[NEXT_MEDIAN],
            ],
        ];
        let forecast = core::array::from_fn(|objective| {
            if self.count == 0 {
                0.5 * forecasts[NEXT[objective]] + 0.5 * forecasts[SMOOTH_1]
            } else {
                weighted_mean(&parts[objective], &self.part_weights(objective))
            }
        });
        IssuedForecast { parts, forecast, ..IssuedForecast::default() }
    }

    /// Weights of the parts. The forecast of the next value has the more weight, the fewer windows
    /// were learned.
    fn part_weights(&self, objective: usize) -> [f64; PARTS] {
        let mut weights = *self.combiner[objective].weights();
        let windows = self.count as f64 / self.delay;
        let left = if windows < START_WINDOWS { 1.0 - windows / START_WINDOWS } else { 0.0 };
        weights[PARTS - 1] *= NEXT_EMPHASIS * (1.0 + START_EMPHASIS * left * left);
        weights
    }

    /// Learns `target`, for which `forecasts` were combined to `issued`. Errors count as at most
    /// `bound`.
    pub(crate) fn learn(
        &mut self,
        set: &CandidateSet,
        forecasts: &[f64; CANDIDATES],
        issued: &IssuedForecast,
        target: f64,
        bound: f64,
    ) {
        let size = |forecast: f64| {
            let size = (forecast - target).abs();
            if size < bound { size } else { bound }
        };
        let absolute = forecasts.map(size);
        let squared = absolute.map(|size| size * size);
        self.combiner[0].observe::<COMBINER_POWER>(&issued.parts[0].map(|part| size(part) * size(part)));
        self.combiner[1].observe::<COMBINER_POWER>(&issued.parts[1].map(size));
        for (objective, losses) in [squared, absolute].iter().enumerate() {
            self.powers[objective].observe::<POWER>(losses);
            let combined = issued.parts[objective][AGGREGATED];
            self.aggregations[objective].learn(self.count + 1, combined, forecasts, target);
        }
        self.count += 1;
        let target = (target - set.origin) / set.unit;
        self.mean_regression.learn(&mean_features(set), target);
        self.median_regression.learn(&median_features(set), target);
    }

    /// The candidate with the largest weight, and its weight.
    pub(crate) fn largest_weight(&self, objective: usize) -> (usize, f64) {
        let parts = self.part_weights(objective);
        let all: f64 = parts.iter().sum();
        let mut weights = [0.0; CANDIDATES];
        let candidates = [self.powers[objective].weights(), self.aggregations[objective].weights()];
        for (part, candidates) in parts.iter().zip(candidates) {
            let sum: f64 = candidates.iter().sum();
            for (weight, candidate) in weights.iter_mut().zip(candidates) {
                *weight += part / all * (candidate / sum);
            }
        }
        weights[NEXT[objective]] += parts[PARTS - 1] / all;
        let best = argmax(&weights);
        (best, weights[best])
    }
}

/// Features of the regression for squared error, in units of the candidates.
fn mean_features(set: &CandidateSet) -> [f64; 5] {
    [NEXT_MEAN, SMOOTH_1, SMOOTH_4, SMOOTH_16, RUNNING_MEAN].map(|i| feature(set, i))
}

/// Features of the regression for absolute error; the last one is a constant, because the median of
/// means is not the mean of medians.
fn median_features(set: &CandidateSet) -> [f64; 6] {
    let [a, b, c, d, e] = [NEXT_MEDIAN, LONG_MEDIAN, SMOOTH_1, SMOOTH_4, SMOOTH_16].map(|i| feature(set, i));
    [a, b, c, d, e, 1.0]
}

fn feature(set: &CandidateSet, candidate: usize) -> f64 {
    f64::from(set.offsets[candidate])
}

fn weighted_mean<const N: usize>(values: &[f64; N], weights: &[f64; N]) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for (value, weight) in values.iter().zip(weights) {
        sum += weight * value;
        total += weight;
    }
    sum / total
}

/// The forecasts of the next value, for squared and for absolute error.
const NEXT: [usize; 2] = [NEXT_MEAN, NEXT_MEDIAN];
/// Index of the aggregation among the parts.
const AGGREGATED: usize = 1;

// The constants were chosen on the open traces, at horizons of 5, 10, 30 and 100 values. The errors
// are flat around them.

/// Exponent of the weights. Losses of overlapping windows are few independent losses, so the
/// weights must not follow small differences.
const POWER: u32 = 4;
/// Half-life of the losses in the weights.
const MEMORY_VALUES: f64 = 1000.0;
const MEMORY_HORIZONS: f64 = 50.0;
/// Bounds of regrets in scales of the error, as in the blend of the next value.
const SQUARED_CLIP: f64 = 50.0;
const ABSOLUTE_CLIP: f64 = 10.0;
/// Exponent of the weights of the parts.
const COMBINER_POWER: u32 = 32;
/// Factor of the weight of the forecast of the next value, for good and at the start. It keeps
/// forecasts from being worse than that forecast where no candidate is better, as on series of rare
/// level shifts.
const NEXT_EMPHASIS: f64 = 8.0;
const START_EMPHASIS: f64 = 30.0;
const START_WINDOWS: f64 = 50.0;
/// Variance of the regressions' first weights at a horizon of one value. The targets of n values
/// contain n ÷ horizon independent ones, with a noise that grows with the horizon.
const PRIOR: f64 = 0.1;
/// Memory of the regressions.
const REGRESSION_VALUES: f64 = 1000.0;
const REGRESSION_HORIZONS: f64 = 64.0;

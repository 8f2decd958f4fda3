//! A regression, and a filter that predicts what the regression gets wrong.

use super::autoregressive::{StepScale, TwoFeatureRegression};
use super::lms::LeastMeanSquares;

/// A robust two-feature regression whose last 32 residuals predict its next one.
#[derive(Clone, Debug)]
pub(crate) struct Cascade {
    base: TwoFeatureRegression,
    filter: LeastMeanSquares,
    scale: StepScale,
    /// The scale in which the filter's features in force are expressed.
    unit: f64,
    /// What the regression alone predicted, and how wrong it was.
    prediction: f64,
    residual: f64,
}

// `docs/spec/full.md`, method 12.
const STEP: f64 = 0.02;

impl Cascade {
    pub(crate) fn new() -> Self {
        Self {
            base: TwoFeatureRegression::new(true),
            filter: LeastMeanSquares::new(STEP),
            scale: StepScale::default(),
            unit: 1.0,
            prediction: 0.0,
            residual: 0.0,
        }
    }

    /// Sees the value that was predicted; the scale of residuals follows.
    pub(crate) fn see(&mut self, value: f64) {
        self.residual = value - self.prediction;
        self.scale.learn(self.residual);
    }

    /// Lets both parts learn the value seen last, which was a `step` away, in scales.
    pub(crate) fn learn(&mut self, step: f64) {
        self.base.learn(step);
        self.filter.learn(self.residual / self.unit);
    }

    /// Predicts the value after `value`, with features in units of `scale`, within `bounds`.
    pub(crate) fn predict(&mut self, value: f64, features: [f64; 2], scale: f64, bounds: (f64, f64)) -> f64 {
        self.prediction = (value + scale * self.base.predict(features)).clamp(bounds.0, bounds.1);
        self.unit = self.scale.get();
        let correction = self.unit * self.filter.predict(self.residual, self.unit);
        (self.prediction + correction).clamp(bounds.0, bounds.1)
    }
}

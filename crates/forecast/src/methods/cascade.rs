//! A regression, and a filter that predicts the regression's residual.

use super::autoregressive::{StepScale, TwoFeatureRegression};
use super::limited;
use super::lms::LeastMeanSquares;

/// A robust two-feature regression; the last 32 residuals of the regression predict the next
/// residual.
#[derive(Clone, Debug)]
pub(crate) struct ResidualFilter {
    base: TwoFeatureRegression,
    filter: LeastMeanSquares,
    scale: StepScale,
    /// Unit of the filter's current features.
    unit: f64,
    /// Prediction of the regression alone; `residual` is the last value minus this prediction.
    prediction: f64,
    residual: f64,
}

// Constant of method 10 in `docs/spec/full.md`.
const STEP: f64 = 0.02;

impl ResidualFilter {
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

    /// Computes the residual of `value`, and updates the scale of residuals.
    pub(crate) fn update_residual(&mut self, value: f64) {
        self.residual = value - self.prediction;
        self.scale.learn(self.residual);
    }

    /// Updates the regression and the filter after a new value. `step` is the new value minus the
    /// value before, in units of the step scale.
    pub(crate) fn learn(&mut self, step: f64) {
        self.base.learn(step);
        self.filter.learn(self.residual / self.unit);
    }

    /// Predicts the value after `value`, within `bounds`; `features` are in units of `scale`.
    pub(crate) fn predict(&mut self, value: f64, features: [f64; 2], scale: f64, bounds: (f64, f64)) -> f64 {
        self.prediction = limited(value + scale * self.base.predict(features), bounds.0, bounds.1);
        self.unit = self.scale.get();
        let correction = self.unit * self.filter.predict(self.residual, self.unit);
        limited(self.prediction + correction, bounds.0, bounds.1)
    }
}

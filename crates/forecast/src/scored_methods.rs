//! One method set with one rule, and the errors of the forecasts that the rule issued.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::interval::IntervalCalibration;
use crate::method_sets::MethodSet;
use crate::rules::{CombinationRule, CombinedForecast};
use crate::{Forecast, Interval, Method};

/// Interface between a battery and its method set and rule, independent of the types of the set and
/// the rule.
pub(crate) trait DynBattery: fmt::Debug + Send + Sync {
    fn update(&mut self, value: f64, time_s: Option<f64>);
    fn forecast(&self, objective: usize, time_s: Option<f64>) -> Option<Forecast>;
    fn interval(&self, level: f64, time_s: Option<f64>) -> Option<Interval>;
    fn is_after_gap(&self, time_s: f64) -> bool;
    fn weights(&self, objective: usize) -> Vec<(Method, f64)>;
    fn method_forecasts(&self) -> Vec<(Method, f64)>;
    fn size_bytes(&self) -> usize;
    fn boxed_clone(&self) -> Box<dyn DynBattery>;
}

/// A method set, a rule, and their current forecasts.
#[derive(Clone, Debug)]
pub(crate) struct ScoredMethods<B, R, const M: usize> {
    methods: B,
    rule: R,
    count: u64,
    /// The rule's forecasts of the next value, if that value does not come after a gap.
    ungapped: [CombinedForecast; 2],
    scores: [ForecastScore; 2],
    calibration: IntervalCalibration,
    /// Whether the times of values are used.
    is_timed: bool,
}

impl<B: MethodSet<M>, R: CombinationRule<M>, const M: usize> ScoredMethods<B, R, M> {
    pub(crate) fn new(rule: R, levels: &[f64], is_timed: bool) -> Self {
        Self {
            methods: B::new(),
            rule,
            count: 0,
            ungapped: [CombinedForecast::default(); 2],
            scores: [ForecastScore::default(); 2],
            calibration: IntervalCalibration::new(levels),
            is_timed,
        }
    }

    /// The forecast under `objective` for a value at `time_s`.
    fn issued_at(&self, objective: usize, time_s: Option<f64>) -> f64 {
        let usual = self.ungapped[ABSOLUTE].value;
        let median = self.calibration.forecast(usual, time_s);
        match objective {
            ABSOLUTE => median,
            _ if median == usual => self.ungapped[objective].value,
            // After a gap, the forecast of the mean is changed by the same amount as the forecast
            // of the median.
            _ => {
                let mean = self.ungapped[objective].value;
                (mean + (median - usual)).max(self.calibration.floor().min(mean))
            }
        }
    }
}

impl<B, R, const M: usize> DynBattery for ScoredMethods<B, R, M>
where
    B: MethodSet<M> + Clone + fmt::Debug + Send + Sync + 'static,
    R: CombinationRule<M> + Clone + fmt::Debug + Send + Sync + 'static,
{
    fn update(&mut self, value: f64, time_s: Option<f64>) {
        let time_s = time_s.filter(|_| self.is_timed);
        // Keep this order: score the issued forecasts, update the calibration, score the methods,
        // then update the methods.
        if self.count != 0 {
            for objective in [0, ABSOLUTE] {
                let issued = self.issued_at(objective, time_s);
                self.scores[objective].learn(issued - value);
            }
        }
        self.calibration.learn((self.count != 0).then_some(self.ungapped[ABSOLUTE].value), value, time_s);
        self.rule.observe(self.count, self.methods.predictions(), value);
        self.methods.learn(value);
        self.count += 1;
        self.ungapped = self.rule.combine(self.methods.predictions(), self.methods.classes());
    }

    fn forecast(&self, objective: usize, time_s: Option<f64>) -> Option<Forecast> {
        let time_s = time_s.filter(|_| self.is_timed);
        let (ungapped, score) = (self.ungapped[objective], &self.scores[objective]);
        (self.count != 0).then(|| Forecast {
            value: self.issued_at(objective, time_s),
            mse: score.mean(score.squared),
            mae: score.mean(score.absolute),
            recent_mse: score.recent_squared,
            recent_mae: score.recent_absolute,
            method: B::METHODS[ungapped.method % M],
            weight: ungapped.weight,
            count: self.count,
        })
    }

    fn interval(&self, level: f64, time_s: Option<f64>) -> Option<Interval> {
        let time_s = time_s.filter(|_| self.is_timed);
        self.calibration.interval(self.ungapped[ABSOLUTE].value, level, time_s)
    }

    fn is_after_gap(&self, time_s: f64) -> bool {
        self.is_timed && self.calibration.is_gap(Some(time_s))
    }

    fn weights(&self, objective: usize) -> Vec<(Method, f64)> {
        if self.count == 0 {
            Vec::new()
        } else {
            B::METHODS.into_iter().zip(self.rule.weights(objective)).collect()
        }
    }

    fn method_forecasts(&self) -> Vec<(Method, f64)> {
        let predictions = self.methods.predictions().iter().copied();
        if self.count == 0 { Vec::new() } else { B::METHODS.into_iter().zip(predictions).collect() }
    }

    fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.rule.heap_bytes() + self.calibration.heap_bytes()
    }

    fn boxed_clone(&self) -> Box<dyn DynBattery> {
        Box::new(self.clone())
    }
}

/// Index of the forecast for absolute error; the forecast for squared error has index 0.
const ABSOLUTE: usize = 1;

/// Errors of the forecasts that one rule issued.
#[derive(Clone, Copy, Debug, Default)]
struct ForecastScore {
    count: u64,
    squared: f64,
    absolute: f64,
    recent_squared: f64,
    recent_absolute: f64,
}

impl ForecastScore {
    fn learn(&mut self, error: f64) {
        let (squared, absolute) = (error * error, error.abs());
        self.count += 1;
        self.squared += squared;
        self.absolute += absolute;
        let gain = RECENT_GAIN.max(1.0 / self.count as f64);
        self.recent_squared += gain * (squared - self.recent_squared);
        self.recent_absolute += gain * (absolute - self.recent_absolute);
    }

    /// Divides a sum of errors by the number of errors; returns 0 before the first error.
    fn mean(&self, sum: f64) -> f64 {
        sum / self.count.max(1) as f64
    }
}

/// Gain of the recent errors: 1 − 2^(−1/100), a half-life of 100 values. This half-life is long
/// enough for a stable average. After one outlier of a thousand times the usual error, the mean
/// squared error needs some thousand values to decrease to twice its usual size.
const RECENT_GAIN: f64 = 0.006_907_504_562_964_2;

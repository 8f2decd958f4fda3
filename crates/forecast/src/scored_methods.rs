//! One method set with one rule, and the errors of the forecasts that the rule issued.

use alloc::boxed::Box;
use alloc::vec::Vec;

use barograph_lanes::{Instructions, Kernel, Lanes, OfTarget};

use crate::horizon::OneStep;
use crate::interval::IntervalCalibration;
use crate::method_sets::MethodSet;
use crate::quantiles::QuantileInputs;
use crate::rules::{CombinationRule, CombinedForecast};
use crate::{Forecast, Interval, Method};

/// Interface between a battery and its method set and rule, independent of the types of the set and
/// the rule.
pub(crate) trait DynBattery: Send + Sync {
    fn update(&mut self, value: f64, time_s: Option<f64>);
    fn forecast(&self, objective: usize, time_s: Option<f64>) -> Option<Forecast>;
    fn interval(&self, level: f64, time_s: Option<f64>) -> Option<Interval>;
    fn is_after_gap(&self, time_s: f64) -> bool;
    /// What the quantiles of the next value are computed from; `None` until there are intervals.
    fn quantile_inputs(&self) -> Option<QuantileInputs>;
    fn weights(&self, objective: usize) -> Vec<(Method, f64)>;
    fn method_forecasts(&self) -> Vec<(Method, f64)>;
    /// What forecasts further ahead use; valid after the first value.
    fn one_step(&self) -> OneStep;
    /// Names of [`OneStep::methods`].
    fn horizon_methods(&self) -> [Method; OneStep::METHODS];
    fn calibration(&self) -> &IntervalCalibration;
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
    /// Vector instructions of this processor; every kind gives the same bits.
    instructions: Instructions,
}

/// What the rule and the methods do with one value.
struct Step<'a, B, R, const M: usize> {
    methods: &'a mut B,
    rule: &'a mut R,
    number: u64,
    value: f64,
}

impl<B: MethodSet<M>, R: CombinationRule<M>, const M: usize> Kernel for Step<'_, B, R, M> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        self.rule.observe(lanes, self.number, self.methods.predictions(), self.value);
        self.methods.learn(lanes, self.value);
    }
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
            instructions: Instructions::detected(),
        }
    }

    /// Scores the issued forecasts on `value`, then learns it. `run` is what runs the step of the
    /// rule and the methods.
    fn learn(&mut self, value: f64, time_s: Option<f64>, run: impl FnOnce(Step<'_, B, R, M>)) {
        let time_s = time_s.filter(|_| self.is_timed);
        // Keep this order: score the issued forecasts, update the calibration, score the methods,
        // then update the methods.
        if self.count != 0 {
            for objective in [0, ABSOLUTE] {
                let issued = self.issued_at(objective, time_s);
                self.scores[objective].learn(issued - value, RECENT_GAIN);
            }
        }
        self.calibration.learn((self.count != 0).then_some(self.ungapped[ABSOLUTE].value), value, time_s);
        run(Step { methods: &mut self.methods, rule: &mut self.rule, number: self.count, value });
        self.count += 1;
        self.ungapped = self.rule.combine(self.methods.predictions(), self.methods.classes());
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
    B: MethodSet<M> + Clone + Send + Sync + 'static,
    R: CombinationRule<M> + Clone + Send + Sync + 'static,
{
    fn update(&mut self, value: f64, time_s: Option<f64>) {
        let instructions = self.instructions;
        self.learn(value, time_s, |step| {
            if R::IS_VECTORISED { instructions.run(step) } else { step.run(OfTarget::default()) }
        });
    }

    fn forecast(&self, objective: usize, time_s: Option<f64>) -> Option<Forecast> {
        let time_s = time_s.filter(|_| self.is_timed);
        let (ungapped, score) = (self.ungapped[objective], &self.scores[objective]);
        (self.count != 0).then(|| Forecast {
            value: self.issued_at(objective, time_s),
            mse: score.mse(),
            mae: score.mae(),
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

    fn quantile_inputs(&self) -> Option<QuantileInputs> {
        let (scale, half_widths) = self.calibration.half_widths()?;
        let [mean, median] = self.ungapped.map(|combined| combined.value);
        Some(QuantileInputs { median, mean, scale, half_widths, floor: self.calibration.floor() })
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

    fn one_step(&self) -> OneStep {
        let predictions = self.methods.predictions();
        OneStep {
            methods: B::HORIZON_METHODS.map(|method| predictions[method]),
            mean: self.ungapped[0].value,
            median: self.ungapped[ABSOLUTE].value,
        }
    }

    fn horizon_methods(&self) -> [Method; OneStep::METHODS] {
        B::HORIZON_METHODS.map(|method| B::METHODS[method])
    }

    fn calibration(&self) -> &IntervalCalibration {
        &self.calibration
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
pub(crate) struct ForecastScore {
    pub(crate) count: u64,
    squared: f64,
    absolute: f64,
    pub(crate) recent_squared: f64,
    pub(crate) recent_absolute: f64,
}

impl ForecastScore {
    /// Learns an error; `recent_gain` is the gain of the recent errors.
    pub(crate) fn learn(&mut self, error: f64, recent_gain: f64) {
        let (squared, absolute) = (error * error, error.abs());
        self.count += 1;
        self.squared += squared;
        self.absolute += absolute;
        let gain = recent_gain.max(1.0 / self.count as f64);
        self.recent_squared += gain * (squared - self.recent_squared);
        self.recent_absolute += gain * (absolute - self.recent_absolute);
    }

    /// The mean squared error; 0 before the first error.
    pub(crate) fn mse(&self) -> f64 {
        self.mean(self.squared)
    }

    /// The mean absolute error; 0 before the first error.
    pub(crate) fn mae(&self) -> f64 {
        self.mean(self.absolute)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method_sets::{CLASSIC, Classic, FULL, Full, NWS, Nws};
    use crate::rules::TwoLevel;
    use barograph_lanes::Portable;
    use proptest::prelude::*;

    /// Learns the values with plain arrays, with the instructions of the target, and with those of
    /// this processor.
    fn compare<B, const M: usize>(values: &[f64])
    where
        B: MethodSet<M> + Clone + Send + Sync + 'static,
        B::History: Clone + Send + Sync,
    {
        let new = || ScoredMethods::<B, _, M>::new(TwoLevel::<B, M>::new(), &[0.9], false);
        let [mut plain, mut of_target, mut detected] = [new(), new(), new()];
        of_target.instructions = Instructions::of_target();
        for value in values {
            plain.learn(*value, None, |step| step.run(Portable));
            of_target.update(*value, None);
            detected.update(*value, None);
            for other in [&of_target, &detected] {
                for objective in [0, ABSOLUTE] {
                    let bits = |battery: &ScoredMethods<_, _, M>| {
                        battery
                            .forecast(objective, None)
                            .map(|f| (f.value.to_bits(), f.mse.to_bits(), f.method))
                    };
                    assert_eq!(bits(&plain), bits(other), "value {}", plain.count);
                }
                assert_eq!(plain.methods.predictions(), other.methods.predictions());
                assert_eq!(plain.interval(0.9, None), other.interval(0.9, None));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_kind_of_instructions_gives_the_same_bits(
            values in prop::collection::vec(
                prop_oneof![0.0..100.0f64, (0u8..4).prop_map(f64::from), prop::sample::select(
                    alloc::vec![0.0, -0.0, 1e-300, -1e-9, 1e70, -1e70, f64::MIN_POSITIVE]
                )],
                1..300,
            )
        ) {
            compare::<Nws, NWS>(&values);
            compare::<Classic, CLASSIC>(&values);
            compare::<Full, FULL>(&values);
        }
    }
}

//! The default battery: what earns its place on real traces (`lab forecast` shows how much).

use super::Bank;
use super::nws::thirty_percent;
use super::recent::Recent;
use crate::Method;
use crate::methods::autoregressive::{StepScale, TwoFeatureRegression};
use crate::methods::level::{Plateaus, ShiftMean};
use crate::methods::lms::LeastMeanSquares;
use crate::methods::reversion::{StepTable, ThresholdReversion};
use crate::methods::smoothing::{RunningMean, Smoothers};
use crate::methods::window::{Extremes, Sorted};
use crate::rules::{ALL, Ring};

/// How many methods there are.
pub(crate) const FULL: usize = 16;

/// Gains of the smoothers; the first, second and fourth are methods, the third is a feature.
const GAINS: [f64; 4] = [0.05, 0.20, 0.50, 0.02];

/// Sixteen methods, seven of them of NWS.
#[derive(Clone, Debug)]
pub(crate) struct Full {
    predictions: [f64; FULL],
    recent: Recent<128>,
    mean: RunningMean,
    smoothers: Smoothers<4>,
    window3: Sorted<3>,
    window5: Sorted<5>,
    window31: Sorted<31>,
    window51: Sorted<51>,
    extremes: Extremes<101>,
    scale: StepScale,
    /// The scale in which the regressions' features in force are expressed.
    unit: f64,
    autoregression: TwoFeatureRegression,
    robust: TwoFeatureRegression,
    differences: LeastMeanSquares,
    residuals: LeastMeanSquares,
    residual_scale: StepScale,
    /// The scale in which the features of `residuals` are expressed.
    residual_unit: f64,
    /// What `robust` alone predicts.
    robust_prediction: f64,
    table: StepTable,
    threshold: ThresholdReversion,
    shift: ShiftMean,
    plateaus: Plateaus,
}

impl Bank<FULL> for Full {
    const METHODS: [Method; FULL] = [
        Method("Last Value"),
        Method("Running Mean"),
        Method("5% Exp Smooth"),
        Method("20% Exp Smooth"),
        Method("50% Exp Smooth"),
        Method("Median Window 31"),
        Method("Median Window 5"),
        Method("30% Trimmed Mean Window 51"),
        Method("Median Window 3"),
        Method("Autoregression 2"),
        Method("Least Mean Squares 32"),
        Method("Autoregression with Least Mean Squares"),
        Method("Step Table"),
        Method("Threshold Reversion"),
        Method("Mean since Level Shift"),
        Method("Plateau Memory"),
    ];

    const WINDOWS: &'static [usize] = &ALL;

    type History = Ring<FULL>;

    fn new() -> Self {
        Self {
            predictions: [0.0; FULL],
            recent: Recent::new(),
            mean: RunningMean::default(),
            smoothers: Smoothers::new(),
            window3: Sorted::new(),
            window5: Sorted::new(),
            window31: Sorted::new(),
            window51: Sorted::new(),
            extremes: Extremes::new(),
            scale: StepScale::default(),
            unit: 1.0,
            autoregression: TwoFeatureRegression::new(false),
            robust: TwoFeatureRegression::new(true),
            differences: LeastMeanSquares::new(DIFFERENCES_STEP),
            residuals: LeastMeanSquares::new(RESIDUALS_STEP),
            residual_scale: StepScale::default(),
            residual_unit: 1.0,
            robust_prediction: 0.0,
            table: StepTable::new(),
            threshold: ThresholdReversion::new(),
            shift: ShiftMean::new(),
            plateaus: Plateaus::new(),
        }
    }

    fn predictions(&self) -> &[f64; FULL] {
        &self.predictions
    }

    fn learn(&mut self, value: f64) {
        let first = self.recent.count() == 0;
        if first {
            self.smoothers.start(value);
        }
        let before = self.recent.ago(0);
        let difference = if first { 0.0 } else { value - before };
        if REGRESSION_FROM <= self.recent.count() {
            self.learn_steps(difference);
        }
        let residual = if first { 0.0 } else { value - self.robust_prediction };
        if !first {
            self.scale.learn(difference);
            self.residual_scale.learn(residual);
        }
        self.mean.learn(value);
        self.smoothers.learn(value, &GAINS);
        self.window3.push(value, self.recent.ago(2));
        self.window5.push(value, self.recent.ago(4));
        self.window31.push(value, self.recent.ago(30));
        self.window51.push(value, self.recent.ago(50));
        self.recent.push(value);
        self.extremes.push(value, &self.recent);
        self.predict(value, difference, residual);
    }
}

impl Full {
    /// Lets the methods that predict a step learn the one that was made.
    fn learn_steps(&mut self, difference: f64) {
        let step = difference / self.unit;
        self.autoregression.learn(step);
        self.robust.learn(step);
        self.differences.learn(step);
        self.table.learn(step);
        self.threshold.learn(step);
        let residual = difference - (self.robust_prediction - self.recent.ago(0));
        self.residuals.learn(residual / self.residual_unit);
    }

    fn predict(&mut self, value: f64, difference: f64, residual: f64) {
        let [smooth05, smooth20, smooth50, smooth02] = *self.smoothers.predict();
        let (median3, median5, median31) =
            (self.window3.median(), self.window5.median(), self.window31.median());
        self.unit = self.scale.get();
        self.residual_unit = self.residual_scale.get();
        let (unit, (low, high)) = (self.unit, self.extremes.widened());
        let stepped = |step: f64| (value + step).clamp(low, high);

        let features = [difference / unit, (smooth02 - value) / unit];
        let autoregression = stepped(unit * self.autoregression.predict(features));
        self.robust_prediction = stepped(unit * self.robust.predict(features));
        let residual = self.residual_unit * self.residuals.predict(residual, self.residual_unit);
        let (to_short, to_long) = ((value - median5) / unit, (value - median31) / unit);
        self.predictions = [
            value,
            self.mean.predict(self.recent.count()),
            smooth05,
            smooth20,
            smooth50,
            median31,
            median5,
            self.window51.trimmed_mean(thirty_percent(self.window51.len())),
            median3,
            autoregression,
            stepped(unit * self.differences.predict(difference, unit)),
            (self.robust_prediction + residual).clamp(low, high),
            stepped(unit * self.table.predict(to_short, to_long)),
            stepped(self.threshold.predict(-to_short) * (median5 - value)),
            self.shift.learn(value, median3),
            self.plateaus.learn(value, median3, unit),
        ];
    }
}

// `forecast_limit.md` §2: experts 14 and 15, and "not updated before 4 values".
const DIFFERENCES_STEP: f64 = 0.05;
const RESIDUALS_STEP: f64 = 0.02;
const REGRESSION_FROM: u64 = 4;

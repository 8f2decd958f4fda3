//! Eight cheap methods, for tens of thousands of series.

use barograph_lanes::Lanes;

use super::recent::RecentValues;
use super::{MethodSet, STEPS_FROM};
use crate::Method;
use crate::horizon::OneStep;
use crate::methods::autoregressive::{StepScale, TwoFeatureRegression};
use crate::methods::level_shift::LevelShiftMean;
use crate::methods::limited;
use crate::methods::smoothing::Smoothers;
use crate::methods::window::{SortedWindow, widened};
use crate::rules::{ErrorRing, WINDOW_LENGTHS};

/// Number of methods of this set.
pub(crate) const LEAN: usize = 8;

/// Gains of the smoothers. The last smoother is a feature of the regression.
const GAINS: [f64; 4] = [0.05, 0.20, 0.50, 0.02];

/// Eight methods that need the least memory and time for what they contribute (`lab forecast`). Six
/// of them are methods of the preset `full`.
#[derive(Clone, Debug)]
pub(crate) struct Lean {
    predictions: [f64; LEAN],
    recent: RecentValues<32>,
    smoothers: Smoothers<4>,
    window3: SortedWindow<3>,
    window5: SortedWindow<5>,
    window31: SortedWindow<31>,
    scale: StepScale,
    /// Unit of the regression's current features: the step scale at the time when these features
    /// were computed.
    unit: f64,
    autoregression: TwoFeatureRegression,
    shift: LevelShiftMean,
    /// Lower bound of forecasts: 0 while no value was below 0, else −∞.
    floor: f64,
}

impl MethodSet<LEAN> for Lean {
    const METHODS: [Method; LEAN] = [
        Method("Last Value"),
        Method("5% Exp Smooth"),
        Method("20% Exp Smooth"),
        Method("50% Exp Smooth"),
        Method("Median Window 31"),
        Method("Median Window 5"),
        Method("Autoregression 2"),
        Method("Mean since Level Shift"),
    ];

    // There is no running mean; the slowest smoother stands for it.
    const HORIZON_METHODS: [usize; OneStep::METHODS] = [0, 1, 2, 4, 7];

    const WINDOWS: &'static [usize] = &WINDOW_LENGTHS;

    type History = ErrorRing<LEAN>;

    fn new() -> Self {
        Self {
            predictions: [0.0; LEAN],
            recent: RecentValues::new(),
            smoothers: Smoothers::new(),
            window3: SortedWindow::new(),
            window5: SortedWindow::new(),
            window31: SortedWindow::new(),
            scale: StepScale::default(),
            unit: 1.0,
            autoregression: TwoFeatureRegression::new(false),
            shift: LevelShiftMean::new(),
            floor: 0.0,
        }
    }

    fn predictions(&self) -> &[f64; LEAN] {
        &self.predictions
    }

    fn learn<L: Lanes>(&mut self, _lanes: L, value: f64) {
        let count = self.recent.count();
        if count == 0 {
            self.smoothers.start(value);
        }
        let difference = if count == 0 { 0.0 } else { value - self.recent.ago(0) };
        if count >= STEPS_FROM {
            self.autoregression.learn(difference / self.unit);
        }
        if count != 0 {
            self.scale.learn(difference);
        }
        if value < 0.0 {
            self.floor = f64::NEG_INFINITY;
        }
        self.smoothers.learn(value, &GAINS);
        self.window3.push(value, self.recent.ago(2));
        self.window5.push(value, self.recent.ago(4));
        self.window31.push(value, self.recent.ago(30));
        self.recent.push(value);
        let [smooth05, smooth20, smooth50, smooth02] = *self.smoothers.predict();
        self.unit = self.scale.get();
        let step = self.autoregression.predict([difference / self.unit, (smooth02 - value) / self.unit]);
        // `full` has the range of the last 101 values, which needs 1 KB more.
        let (low, high) = widened(self.window31.range(), self.floor);
        self.predictions = [
            value,
            smooth05,
            smooth20,
            smooth50,
            self.window31.median(),
            self.window5.median(),
            limited(value + self.unit * step, low, high),
            self.shift.learn(value, self.window3.median()),
        ];
    }
}

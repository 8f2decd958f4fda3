//! The methods of the default preset, chosen on real traces (`lab forecast` measures them).

use barograph_lanes::Lanes;

use super::nws::thirty_percent;
use super::recent::RecentValues;
use super::{CONTEXTS, Classes, MethodSet, STEPS_FROM};
use crate::Method;
use crate::horizon::OneStep;
use crate::methods::analogues::Analogues;
use crate::methods::autoregressive::StepScale;
use crate::methods::cascade::ResidualFilter;
use crate::methods::lattice::LatticeFilter;
use crate::methods::level_shift::{LevelHistory, LevelShiftMean};
use crate::methods::limited;
use crate::methods::reversion::{StepTable, ThresholdReversion};
use crate::methods::smoothing::{RunningMean, Smoothers};
use crate::methods::window::{RollingRange, SortedWindow};
use crate::rules::{ErrorRing, WINDOW_LENGTHS};

/// Number of methods of this set, and this number rounded up to a multiple of four lanes.
pub(crate) const FULL: usize = 16;
pub(crate) const FULL_LANES: usize = FULL.next_multiple_of(4);

/// Gains of the smoothers. The first two smoothers are methods; the last smoother is a feature of
/// the regression.
const GAINS: [f64; 3] = [0.05, 0.20, 0.02];

/// Sixteen methods, of which seven are methods of NWS.
#[derive(Clone, Debug)]
pub(crate) struct Full {
    predictions: [f64; FULL],
    recent: RecentValues<128>,
    mean: RunningMean,
    smoothers: Smoothers<3>,
    window3: SortedWindow<3>,
    window5: SortedWindow<5>,
    window31: SortedWindow<31>,
    window51: SortedWindow<51>,
    extremes: RollingRange<101>,
    scale: StepScale,
    /// Unit of the regressions' current features: the step scale at the time when these features
    /// were computed.
    unit: f64,
    lattice: LatticeFilter,
    cascade: ResidualFilter,
    table: StepTable,
    threshold: ThresholdReversion,
    shift: LevelShiftMean,
    plateaus: LevelHistory,
    analogues: Analogues,
    classes: Classes,
}

impl MethodSet<FULL> for Full {
    const METHODS: [Method; FULL] = [
        Method("Last Value"),
        Method("Running Mean"),
        Method("5% Exp Smooth"),
        Method("20% Exp Smooth"),
        Method("Median Window 31"),
        Method("Median Window 5"),
        Method("30% Trimmed Mean Window 51"),
        Method("Median Window 3"),
        Method("Autoregression 32"),
        Method("Autoregression with Least Mean Squares"),
        Method("Step Table"),
        Method("Threshold Reversion"),
        Method("Mean since Level Shift"),
        Method("Plateau Memory"),
        Method("Analogues"),
        Method("Analogues of Steps"),
    ];

    const WINDOWS: &'static [usize] = &WINDOW_LENGTHS;

    const HORIZON_METHODS: [usize; OneStep::METHODS] = [0, 1, 3, 4, 12];

    type History = ErrorRing<FULL>;

    fn new() -> Self {
        Self {
            predictions: [0.0; FULL],
            recent: RecentValues::new(),
            mean: RunningMean::default(),
            smoothers: Smoothers::new(),
            window3: SortedWindow::new(),
            window5: SortedWindow::new(),
            window31: SortedWindow::new(),
            window51: SortedWindow::new(),
            extremes: RollingRange::new(),
            scale: StepScale::default(),
            unit: 1.0,
            lattice: LatticeFilter::new(),
            cascade: ResidualFilter::new(),
            table: StepTable::new(),
            threshold: ThresholdReversion::new(),
            shift: LevelShiftMean::new(),
            plateaus: LevelHistory::new(),
            analogues: Analogues::new(),
            classes: [0; CONTEXTS],
        }
    }

    fn predictions(&self) -> &[f64; FULL] {
        &self.predictions
    }

    fn classes(&self) -> Classes {
        self.classes
    }

    fn learn<L: Lanes>(&mut self, _lanes: L, value: f64) {
        let first = self.recent.count() == 0;
        if first {
            self.smoothers.start(value);
        }
        let difference = if first { 0.0 } else { value - self.recent.ago(0) };
        if !first {
            self.cascade.update_residual(value);
        }
        if self.recent.count() >= STEPS_FROM {
            self.learn_step(difference / self.unit);
        }
        if !first {
            self.scale.learn(difference);
        }
        self.mean.learn(value);
        self.smoothers.learn(value, &GAINS);
        self.window3.push(value, self.recent.ago(2));
        self.window5.push(value, self.recent.ago(4));
        self.window31.push(value, self.recent.ago(30));
        self.window51.push(value, self.recent.ago(50));
        self.recent.push(value);
        self.extremes.push(value, &self.recent);
        self.predict(value, difference);
    }
}

impl Full {
    /// Updates the methods that predict steps. `step` is the last step, in units of the scale.
    fn learn_step(&mut self, step: f64) {
        self.cascade.learn(step);
        self.table.learn(step);
        self.threshold.learn(step);
    }

    fn predict(&mut self, value: f64, difference: f64) {
        let [smooth05, smooth20, smooth02] = *self.smoothers.predict();
        let (median3, median5, median31) =
            (self.window3.median(), self.window5.median(), self.window31.median());
        self.unit = self.scale.get();
        let (unit, bounds) = (self.unit, self.extremes.widened());
        let stepped = |step: f64| limited(value + step, bounds.0, bounds.1);

        let features = [difference / unit, (smooth02 - value) / unit];
        let analogues = self.analogues.learn(value, unit);
        let (to_short, to_long) = ((value - median5) / unit, (value - median31) / unit);
        self.classes = [class(to_short, REVERSION_EDGE), class(features[0], STEP_EDGE)];
        self.predictions = [
            value,
            self.mean.predict(self.recent.count()),
            smooth05,
            smooth20,
            median31,
            median5,
            self.window51.trimmed_mean(thirty_percent(self.window51.len())),
            median3,
            stepped(unit * self.lattice.learn(difference / unit)),
            self.cascade.predict(value, features, unit, bounds),
            stepped(unit * self.table.predict(to_short, to_long)),
            stepped(self.threshold.predict(-to_short) * (median5 - value)),
            self.shift.learn(value, median3),
            self.plateaus.learn(value, median3, unit),
            stepped(analogues.to_values),
            stepped(analogues.of_steps),
        ];
    }
}

/// 0 below −`edge`, 2 above `edge`, else 1.
fn class(feature: f64, edge: f64) -> u8 {
    u8::from(-edge < feature) + u8::from(edge < feature)
}

// Edges of the two contexts in `docs/spec/full.md`, in step scales.
const REVERSION_EDGE: f64 = 1.5;
const STEP_EDGE: f64 = 0.7;

//! The 8 methods of the Network Weather Service 1.x (`predictor.c` 1.9, 1999; the bank of
//! Wolski 1998).

use barograph_lanes::Lanes;

use super::MethodSet;
use super::recent::RecentValues;
use crate::Method;
use crate::horizon::OneStep;
use crate::methods::adaptive::{AdaptiveMean, AdaptiveMedian, Bounds};
use crate::methods::lane_window::{AGED_LEN, AgedWindow};
use crate::methods::smoothing::{RunningMean, Smoothers};
use crate::methods::window::SortedWindow;
use crate::rules::ErrorRing;

/// Number of methods of this set.
pub(crate) const CLASSIC: usize = 8;

/// Gain of the smoother. NWS 1.x names this smoother after Van Jacobson.
const GAIN: [f64; 1] = [0.05];
/// Initial length of both adaptive windows, in values. The length changes in steps of 1, and stays
/// between 5 and 50.
const START: usize = 25;
const BOUNDS: Bounds = Bounds { min: 5, max: 50, step: 1 };

/// The methods of NWS 1.x, as NWS evidently intended them.
#[derive(Clone, Debug)]
pub(crate) struct Classic {
    predictions: [f64; CLASSIC],
    recent: RecentValues<64>,
    mean: RunningMean,
    smoother: Smoothers<1>,
    window21: SortedWindow<21>,
    window51: AgedWindow,
    adaptive_median: AdaptiveMedian,
    adaptive_mean: AdaptiveMean,
}

impl MethodSet<CLASSIC> for Classic {
    const METHODS: [Method; CLASSIC] = [
        Method("Last Value"),
        Method("Running Mean"),
        Method("5% Exp Smooth"),
        Method("Median Window 21"),
        Method("Trimmed Mean 21 alpha 0.1"),
        Method("Sliding Mean 21"),
        Method("Adaptive Median 5-50"),
        Method("Adaptive Mean 5-50"),
    ];

    const WINDOWS: &'static [usize] = &[0, 10];

    const HORIZON_METHODS: [usize; OneStep::METHODS] = [0, 1, 2, 3, 7];

    type History = ErrorRing<CLASSIC>;

    fn new() -> Self {
        Self {
            predictions: [0.0; CLASSIC],
            recent: RecentValues::new(),
            mean: RunningMean::default(),
            smoother: Smoothers::new(),
            window21: SortedWindow::new(),
            window51: AgedWindow::new(),
            adaptive_median: AdaptiveMedian::new(START, BOUNDS),
            adaptive_mean: AdaptiveMean::new(START, BOUNDS),
        }
    }

    fn predictions(&self) -> &[f64; CLASSIC] {
        &self.predictions
    }

    #[inline(always)]
    fn learn<L: Lanes>(&mut self, lanes: L, value: f64) {
        if self.recent.count() == 0 {
            self.smoother.start(value);
        }
        self.adaptive_median.adapt(lanes, value, &self.window51);
        self.adaptive_mean.adapt(value, &self.recent);
        self.mean.learn(value);
        self.smoother.learn(value, &GAIN);
        self.window21.push(value, self.recent.ago(20));
        self.window51.push(lanes, value, self.recent.ago(AGED_LEN - 1));
        self.recent.push(value);
        self.predictions = [
            value,
            self.mean.predict(self.recent.count()),
            self.smoother.predict()[0],
            self.window21.median(),
            self.window21.trimmed_mean(self.window21.len() / 10),
            self.window21.trimmed_mean(0),
            self.adaptive_median.read(lanes, &self.window51),
            self.adaptive_mean.read(&self.recent),
        ];
    }
}

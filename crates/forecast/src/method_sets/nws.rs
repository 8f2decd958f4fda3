//! The 18 methods of the Network Weather Service 2.x, in the order of NWS. Each method works as NWS
//! intended.

use alloc::boxed::Box;

use barograph_lanes::{Lanes, Mask, Numbers};

use super::MethodSet;
use super::recent::RecentValues;
use crate::Method;
use crate::horizon::OneStep;
use crate::methods::adaptive::{AdaptiveMedian, Bounds};
use crate::methods::lane_window::{AGED_LEN, AgedWindow, LaneWindow};
use crate::methods::smoothing::{RunningMean, Smoothers};
use crate::rules::{ErrorHistory, LAGS, LONG_WINDOWS, WINDOW_LENGTHS};

/// Number of methods of this set.
pub(crate) const NWS: usize = 18;

/// Gains of the exponential smoothers (NWS 2.0.5 `forecasters.c`).
const GAINS: [f64; 8] = [0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50, 0.75];

/// The methods of NWS 2.x (`forecasters.c`); JavaNws §2.1.2 describes the same family.
#[derive(Clone, Debug)]
pub(crate) struct Nws {
    predictions: [f64; NWS],
    recent: RecentValues<64>,
    mean: RunningMean,
    smoothers: Smoothers<8>,
    window5: LaneWindow<5, 16>,
    window31: LaneWindow<31, 40>,
    window51: AgedWindow,
    adaptive: [AdaptiveMedian; 2],
}

impl MethodSet<NWS> for Nws {
    const METHODS: [Method; NWS] = [
        Method("Last Value"),
        Method("Running Mean"),
        Method("5% Exp Smooth"),
        Method("10% Exp Smooth"),
        Method("15% Exp Smooth"),
        Method("20% Exp Smooth"),
        Method("30% Exp Smooth"),
        Method("40% Exp Smooth"),
        Method("50% Exp Smooth"),
        Method("75% Exp Smooth"),
        Method("Median Window 31"),
        Method("Median Window 5"),
        Method("Sliding Mean Window 31"),
        Method("Sliding Mean Window 5"),
        Method("30% Trimmed Mean Window 31"),
        Method("30% Trimmed Mean Window 51"),
        Method("Adaptive Median Window 5-21"),
        Method("Adaptive Median Window 21-51"),
    ];

    const WINDOWS: &'static [usize] = &WINDOW_LENGTHS;

    const HORIZON_METHODS: [usize; OneStep::METHODS] = [0, 1, 5, 10, 15];

    type History = NwsErrorHistory;

    fn new() -> Self {
        Self {
            predictions: [0.0; NWS],
            recent: RecentValues::new(),
            mean: RunningMean::default(),
            smoothers: Smoothers::new(),
            window5: LaneWindow::new(),
            window31: LaneWindow::new(),
            window51: AgedWindow::new(),
            adaptive: [
                AdaptiveMedian::new(10, Bounds { min: 5, max: 21, step: 1 }),
                AdaptiveMedian::new(30, Bounds { min: 21, max: 51, step: 5 }),
            ],
        }
    }

    fn predictions(&self) -> &[f64; NWS] {
        &self.predictions
    }

    #[inline(always)]
    fn learn<L: Lanes>(&mut self, lanes: L, value: f64) {
        if self.recent.count() == 0 {
            self.smoothers.start(value);
        }
        for adaptive in &mut self.adaptive {
            adaptive.adapt(lanes, value, &self.window51);
        }
        self.mean.learn(value);
        self.smoothers.learn(value, &GAINS);
        self.window5.push(lanes, value, self.recent.ago(4));
        self.window31.push(lanes, value, self.recent.ago(30));
        self.window51.push(lanes, value, self.recent.ago(AGED_LEN - 1));
        self.recent.push(value);

        let predictions = &mut self.predictions;
        predictions[0] = value;
        predictions[1] = self.mean.predict(self.recent.count());
        predictions[2..10].copy_from_slice(self.smoothers.predict());
        predictions[10] = self.window31.median();
        predictions[11] = self.window5.median();
        predictions[12] = self.window31.trimmed_mean(|_| 0);
        predictions[13] = self.window5.trimmed_mean(|_| 0);
        predictions[14] = self.window31.trimmed_mean(thirty_percent);
        predictions[15] = self.window51.sorted().trimmed_mean(thirty_percent);
        for (prediction, adaptive) in predictions[16..].iter_mut().zip(&mut self.adaptive) {
            *prediction = adaptive.read(lanes, &self.window51);
        }
    }
}

/// Number of values that a 30 % trimmed mean drops at each end: `int(0.3 n)`.
pub(super) fn thirty_percent(len: usize) -> usize {
    len * 3 / 10
}

/// Number of methods that need no window: methods 1–10 keep one number of state each. The other 8
/// methods need windows.
const RECURSIVE: usize = 10;
/// Number of values for which the ring stores the windowed methods' errors: the longest lag.
const RING: usize = LONG_WINDOWS[LAGS - 1];

/// Past errors of all methods. Only the errors of the windowed methods are stored.
///
/// The ten recursive methods are cheaper to run again. There is one copy of these methods for each
/// lag, in a lane of its own. The copy for a lag of `n` processes each value `n` values after its
/// arrival. The copy does the same operations in the same order, so its errors are equal to the
/// bit. With this design the state of a series takes about 15 KB.
#[derive(Clone, Debug)]
pub(crate) struct NwsErrorHistory {
    values: [f64; 128],
    errors: Box<[[f64; NWS - RECURSIVE]; RING]>,
    /// Of each copy, the sum of its values.
    totals: [f64; LAGS],
    /// Of each copy, the smoothers.
    levels: [[f64; LAGS]; GAINS.len()],
}

impl ErrorHistory<NWS> for NwsErrorHistory {
    fn new() -> Self {
        Self {
            values: [0.0; 128],
            errors: Box::new([[0.0; NWS - RECURSIVE]; RING]),
            totals: [0.0; LAGS],
            levels: [[0.0; LAGS]; GAINS.len()],
        }
    }

    #[inline(always)]
    fn record(&mut self, number: u64, value: f64, errors: &[f64; NWS]) {
        // Each copy starts from the methods' state after values 0 and 1.
        if number < 2 {
            self.totals = self.totals.map(|total| total + value);
            for (levels, gain) in self.levels.iter_mut().zip(GAINS) {
                let level = if number == 0 { value } else { levels[0] };
                *levels = [level + gain * (value - level); LAGS];
            }
        }
        self.values[number as usize & 127] = value;
        self.errors[(number % RING as u64) as usize].copy_from_slice(&errors[RECURSIVE..]);
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.errors)
    }

    #[inline(always)]
    fn errors_of<L: Lanes>(&mut self, lanes: L, numbers: [u64; LAGS]) -> [[f64; LAGS]; NWS] {
        let value = |number: u64| self.values[number as usize & 127];
        let values = lanes.load(&numbers.map(value));
        let counts = lanes.load(&numbers.map(|number| number as f64));
        let (zero, is_known) = (lanes.splat(0.0), lanes.splat(1.0).less(counts));
        let mut errors = [[0.0; LAGS]; NWS];
        let last = lanes.load(&numbers.map(|number| value(number.wrapping_sub(1))));
        errors[0] = is_known.select(last - values, zero).to_array();
        let totals = lanes.load(&self.totals);
        errors[1] = is_known.select(totals / counts - values, zero).to_array();
        self.totals = is_known.select(totals + values, totals).to_array();
        for (i, (levels, gain)) in self.levels.iter_mut().zip(GAINS).enumerate() {
            let level = lanes.load(levels);
            errors[2 + i] = is_known.select(level - values, zero).to_array();
            let next = level + lanes.splat(gain) * (values - level);
            *levels = is_known.select(next, level).to_array();
        }
        let rows = numbers.map(|number| &self.errors[(number % RING as u64) as usize]);
        for (i, error) in errors[RECURSIVE..].iter_mut().enumerate() {
            *error = is_known.select(lanes.load(&rows.map(|row| row[i])), zero).to_array();
        }
        errors
    }
}

//! Rules that pick one method: selectors each pick the method with the least error, and the
//! selector with the least error decides.

use core::marker::PhantomData;

use barograph_lanes::{Lanes, Mask, Numbers};

use super::{
    CombinationRule, CombinedForecast, ErrorHistory, LAGS, LONG_WINDOWS, argmin, indicator, picked_forecast,
};
use crate::method_sets::{Classes, MethodSet};

/// Sums of squared and of absolute errors for each of `N` forecasters, added in their order of
/// arrival. A squared sum is never compared with an absolute sum.
#[derive(Clone, Copy, Debug)]
struct ErrorSums<const N: usize> {
    squared: [f64; N],
    absolute: [f64; N],
}

impl<const N: usize> ErrorSums<N> {
    const ZERO: Self = Self { squared: [0.0; N], absolute: [0.0; N] };

    #[inline(always)]
    fn add(&mut self, errors: &[f64; N]) {
        for (sum, error) in self.squared.iter_mut().zip(errors) {
            *sum += error * error;
        }
        for (sum, error) in self.absolute.iter_mut().zip(errors) {
            *sum += error.abs();
        }
    }

    /// Returns the index of the forecaster with the least squared error, and the index of the
    /// forecaster with the least absolute error. On a tie, the lower index is returned.
    ///
    /// All forecasters are scored equally often, so the forecaster with the least sum also has the
    /// least mean.
    #[inline(always)]
    fn least(&self) -> [u8; 2] {
        [argmin(&self.squared) as u8, argmin(&self.absolute) as u8]
    }
}

/// For each of four windows, the least sum of errors so far, and the index of its forecaster.
#[derive(Clone, Copy)]
struct LeastSums<L: Lanes> {
    sums: L::Numbers,
    indices: L::Numbers,
}

impl<L: Lanes> LeastSums<L> {
    #[inline(always)]
    fn new(lanes: L) -> Self {
        Self { sums: lanes.splat(f64::INFINITY), indices: lanes.splat(0.0) }
    }

    /// Keeps the smaller of the least sums so far and `sums`, the sums of forecaster `index`. The
    /// code is branch-free, because the result of a comparison is unpredictable.
    #[inline(always)]
    fn update(&mut self, index: L::Numbers, sums: L::Numbers) {
        self.indices = sums.less(self.sums).select(index, self.indices);
        self.sums = self.sums.least(sums);
    }

    #[inline(always)]
    fn indices(&self) -> [u8; 4] {
        let [a, b, c, d] = self.indices.to_array();
        [low_bits(a), low_bits(b), low_bits(c), low_bits(d)]
    }
}

/// Converts an `f64` that holds a whole number below 256 to `u8`. The function adds 2^52; then the
/// lowest bits of the sum contain the number.
#[inline(always)]
fn low_bits(index: f64) -> u8 {
    (index + 4_503_599_627_370_496.0).to_bits() as u8
}

/// Selectors: the method that each selector picks, and the errors of the selector's picks so far.
#[derive(Clone, Debug)]
struct Selectors<const S: usize> {
    picks: [u8; S],
    costs: ErrorSums<S>,
}

impl<const S: usize> Selectors<S> {
    fn new() -> Self {
        Self { picks: [0; S], costs: ErrorSums::ZERO }
    }

    /// Adds, for each selector, the error of the method that the selector picked last.
    #[inline(always)]
    fn score<const M: usize>(&mut self, errors: &[f64; M]) {
        self.costs.add(&self.picks.map(|pick| errors[usize::from(pick) % M]));
    }

    /// Returns the pick of the selector with the least squared error, and the pick of the selector
    /// with the least absolute error.
    #[inline(always)]
    fn chosen(&self) -> [u8; 2] {
        self.costs.least().map(|selector| self.picks[usize::from(selector) % S])
    }
}

/// One selector picks the method with the least cumulative squared error, and the other selector
/// picks the method with the least cumulative absolute error. The selector with less error for the
/// requested objective decides. This is [`TwoLevel`] with the whole series as its only window.
#[derive(Clone, Debug)]
pub(crate) struct TwoSelectors<const M: usize> {
    total: ErrorSums<M>,
    selectors: Selectors<2>,
    chosen: [u8; 2],
}

impl<const M: usize> TwoSelectors<M> {
    pub(crate) fn new() -> Self {
        Self { total: ErrorSums::ZERO, selectors: Selectors::new(), chosen: [0; 2] }
    }
}

impl<const M: usize> CombinationRule<M> for TwoSelectors<M> {
    const IS_VECTORISED: bool = true;

    #[inline(always)]
    fn observe<L: Lanes>(&mut self, _lanes: L, number: u64, predictions: &[f64; M], value: f64) {
        if number == 0 {
            return;
        }
        let errors = predictions.map(|prediction| prediction - value);
        self.selectors.score(&errors);
        self.total.add(&errors);
        self.selectors.picks = self.total.least();
        self.chosen = self.selectors.chosen();
    }

    fn combine(&mut self, predictions: &[f64; M], _: Classes) -> [CombinedForecast; 2] {
        self.chosen.map(|pick| picked_forecast(predictions, usize::from(pick)))
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn weights(&self, objective: usize) -> [f64; M] {
        indicator(usize::from(self.chosen[objective]))
    }
}

/// Number of selectors: two for each window, one for each objective.
const SELECTORS: usize = 2 * WINDOWS;
const WINDOWS: usize = SHORT_WINDOWS.len() + LAGS;
/// Lengths of the short windows, in values; 0 is the whole series. The sums at the start of these
/// windows are stored. The errors of these windows need not be added a second time. But each value
/// of the longest window needs 16 bytes for each method.
const SHORT_WINDOWS: [usize; 4] = [0, 1, 5, 10];
const SHORT_WINDOW_MAX: usize = SHORT_WINDOWS[SHORT_WINDOWS.len() - 1];
/// Lengths of the windows of NWS 2.x, in values: the short windows, then [`LONG_WINDOWS`].
pub(crate) const WINDOW_LENGTHS: [usize; WINDOWS] = [
    SHORT_WINDOWS[0],
    SHORT_WINDOWS[1],
    SHORT_WINDOWS[2],
    SHORT_WINDOWS[3],
    LONG_WINDOWS[0],
    LONG_WINDOWS[1],
    LONG_WINDOWS[2],
    LONG_WINDOWS[3],
];

/// The two levels of NWS 2.x (`forc.c`): each of sixteen selectors picks the method with the least
/// squared or absolute error over its window, and the selector with the least error so far decides.
#[derive(Clone, Debug)]
pub(crate) struct TwoLevel<B: MethodSet<M>, const M: usize> {
    total: ErrorSums<M>,
    /// For each of the last [`SHORT_WINDOW_MAX`] values of the series: `total` after that value.
    recent: [ErrorSums<M>; SHORT_WINDOW_MAX],
    /// For each method and each window of [`LONG_WINDOWS`]: `total` at the start of the window,
    /// squared and absolute. With each new value, the errors on the value that leaves the window
    /// are added.
    lagged: [[[f64; LAGS]; M]; 2],
    history: B::History,
    /// Selectors. For window `w`, index `w` selects by squared error, and index `WINDOWS + w` by
    /// absolute error.
    selectors: Selectors<SELECTORS>,
    chosen: [u8; 2],
    methods: PhantomData<B>,
}

impl<B: MethodSet<M>, const M: usize> TwoLevel<B, M> {
    /// Whether the method set uses a long window.
    const HAS_LONG_WINDOWS: bool = {
        let mut longest = 0;
        let mut i = 0;
        while i < B::WINDOWS.len() {
            longest = if longest < B::WINDOWS[i] { B::WINDOWS[i] } else { longest };
            i += 1;
        }
        SHORT_WINDOW_MAX < longest
    };

    pub(crate) fn new() -> Self {
        // Selectors that the method set does not use have infinite costs, so that they never
        // decide.
        let start = |i: usize| {
            if B::WINDOWS.contains(&WINDOW_LENGTHS[i % WINDOWS]) { 0.0 } else { f64::INFINITY }
        };
        let costs = core::array::from_fn(start);
        Self {
            total: ErrorSums::ZERO,
            recent: [ErrorSums::ZERO; SHORT_WINDOW_MAX],
            lagged: [[[0.0; LAGS]; M]; 2],
            history: B::History::new(),
            selectors: Selectors {
                picks: [0; SELECTORS],
                costs: ErrorSums { squared: costs, absolute: costs },
            },
            chosen: [0; 2],
            methods: PhantomData,
        }
    }

    /// Adds the errors on the values that leave the long windows with value `number`.
    #[inline(always)]
    fn add_lagged<L: Lanes>(&mut self, lanes: L, number: u64) {
        let past = LONG_WINDOWS.map(|back| number.saturating_sub(back as u64));
        let errors = self.history.errors_of(lanes, past);
        let [squared, absolute] = &mut self.lagged;
        for ((squared, absolute), errors) in squared.iter_mut().zip(absolute).zip(&errors) {
            let errors = lanes.load(errors);
            *squared = (lanes.load(squared) + errors * errors).to_array();
            *absolute = (lanes.load(absolute) + errors.abs()).to_array();
        }
    }

    /// For each selector, the method with the least error over its window.
    #[inline(always)]
    fn least<L: Lanes>(&self, lanes: L, number: u64) -> [u8; SELECTORS] {
        let past =
            SHORT_WINDOWS.map(|back| &self.recent[recent_index(number + (SHORT_WINDOW_MAX - back) as u64)]);
        let new = LeastSums::new(lanes);
        let mut least = [new; 4];
        let [squared_short, squared_long, absolute_short, absolute_long] = &mut least;
        for method in 0..M {
            let index = lanes.splat(method as f64);
            let total = lanes.splat(self.total.squared[method]);
            let start = [0.0, past[1].squared[method], past[2].squared[method], past[3].squared[method]];
            squared_short.update(index, total - lanes.load(&start));
            if Self::HAS_LONG_WINDOWS {
                squared_long.update(index, total - lanes.load(&self.lagged[0][method]));
            }
            let total = lanes.splat(self.total.absolute[method]);
            let start = [0.0, past[1].absolute[method], past[2].absolute[method], past[3].absolute[method]];
            absolute_short.update(index, total - lanes.load(&start));
            if Self::HAS_LONG_WINDOWS {
                absolute_long.update(index, total - lanes.load(&self.lagged[1][method]));
            }
        }
        let mut picks = [0; SELECTORS];
        for (picks, least) in picks.as_chunks_mut::<4>().0.iter_mut().zip(&least) {
            *picks = least.indices();
        }
        picks
    }
}

impl<B: MethodSet<M>, const M: usize> CombinationRule<M> for TwoLevel<B, M> {
    const IS_VECTORISED: bool = true;

    #[inline(always)]
    fn observe<L: Lanes>(&mut self, lanes: L, number: u64, predictions: &[f64; M], value: f64) {
        let errors = predictions.map(|prediction| prediction - value);
        if number == 0 {
            self.history.record(number, value, &errors);
            return;
        }
        self.selectors.score(&errors);
        self.total.add(&errors);
        if Self::HAS_LONG_WINDOWS {
            self.add_lagged(lanes, number);
        }
        self.selectors.picks = self.least(lanes, number);
        if number == 1 {
            // From here on, every window excludes the errors of the first scored value, except the
            // window of all values.
            self.recent.fill(self.total);
            self.lagged = [&self.total.squared, &self.total.absolute].map(|sums| sums.map(|sum| [sum; LAGS]));
        }
        self.recent[recent_index(number)] = self.total;
        self.history.record(number, value, &errors);
        self.chosen = self.selectors.chosen();
    }

    fn combine(&mut self, predictions: &[f64; M], _: Classes) -> [CombinedForecast; 2] {
        self.chosen.map(|pick| picked_forecast(predictions, usize::from(pick)))
    }

    fn heap_bytes(&self) -> usize {
        self.history.heap_bytes()
    }

    fn weights(&self, objective: usize) -> [f64; M] {
        indicator(usize::from(self.chosen[objective]))
    }
}

/// Index in `recent` of the sums after value `number`.
fn recent_index(number: u64) -> usize {
    (number % SHORT_WINDOW_MAX as u64) as usize
}

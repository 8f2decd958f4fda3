//! Rules that pick one method: selectors each pick the method with the least error, and the
//! selector with the least error decides.

use super::{CombinationRule, CombinedForecast, ErrorHistory, LONG_WINDOWS};
use crate::method_sets::{Classes, MethodSet};
use core::marker::PhantomData;

/// Sums of squared and of absolute errors for each of `N` forecasters, added in their order of
/// arrival.
///
/// The two sums of a forecaster are stored side by side, so that one instruction works on both
/// sums. A squared sum is never compared with an absolute sum.
#[derive(Clone, Copy, Debug)]
struct ErrorSums<const N: usize>([[f64; 2]; N]);

impl<const N: usize> ErrorSums<N> {
    const ZERO: Self = Self([[0.0; 2]; N]);

    fn add(&mut self, errors: &[f64; N]) {
        for (sums, error) in self.0.iter_mut().zip(errors) {
            *sums = [sums[0] + error * error, sums[1] + error.abs()];
        }
    }

    /// Returns the index of the forecaster with the least squared error since `past`, and the index
    /// of the forecaster with the least absolute error. On a tie, the lower index is returned.
    ///
    /// All forecasters are scored equally often, so the forecaster with the least sum also has the
    /// least mean.
    fn least_since(&self, past: &Self) -> [u8; 2] {
        const { assert!(N.is_multiple_of(UNROLLED) && N <= 256) }
        let mut least = ArgMin { sums: [f64::INFINITY; 2], indices: [0.0; 2] };
        let mut index = 0.0;
        for (now, past) in self.0.chunks_exact(UNROLLED).zip(past.0.chunks_exact(UNROLLED)) {
            for (now, past) in now.iter().zip(past) {
                least.update(index, [now[0] - past[0], now[1] - past[1]]);
                index += 1.0;
            }
        }
        least.indices.map(low_bits)
    }

    fn least(&self) -> [u8; 2] {
        self.least_since(&Self::ZERO)
    }
}

/// Number of forecasters in one iteration of the search. With two forecasters, the search is a
/// third faster than with one forecaster. With more than two, the search is not faster still.
const UNROLLED: usize = 2;

/// The least squared sum and the least absolute sum so far, with the indices of their forecasters.
struct ArgMin {
    sums: [f64; 2],
    indices: [f64; 2],
}

impl ArgMin {
    /// Keeps the smaller of the least sums so far and `sums`, the sums of forecaster `index`. The
    /// code is branch-free, because the result of a comparison is unpredictable.
    #[inline(always)]
    fn update(&mut self, index: f64, sums: [f64; 2]) {
        for (objective, sum) in sums.into_iter().enumerate() {
            // `index` increases from call to call, so the greater of two indices belongs to the
            // newer minimum.
            let better = if sum < self.sums[objective] { index } else { 0.0 };
            self.indices[objective] =
                if self.indices[objective] < better { better } else { self.indices[objective] };
            self.sums[objective] = if sum < self.sums[objective] { sum } else { self.sums[objective] };
        }
    }
}

/// Converts an `f64` that holds a whole number below 256 to `u8`. The function adds 2^52; then the
/// lowest bits of the sum contain the number.
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
    fn score<const M: usize>(&mut self, errors: &[f64; M]) {
        self.costs.add(&self.picks.map(|pick| errors[usize::from(pick) % M]));
    }

    /// Returns the pick of the selector with the least squared error, and the pick of the selector
    /// with the least absolute error.
    fn chosen(&self) -> [u8; 2] {
        self.costs.least().map(|selector| self.picks[usize::from(selector) % S])
    }
}

/// The rule of the papers (JavaNws §2.1.2): one selector picks the method with the least cumulative
/// squared error, and the other selector picks the method with the least cumulative absolute error.
/// The selector with less error for the requested objective decides.
#[derive(Clone, Debug)]
pub(crate) struct Flat<const M: usize> {
    total: ErrorSums<M>,
    selectors: Selectors<2>,
    chosen: [u8; 2],
}

impl<const M: usize> CombinationRule<M> for Flat<M> {
    fn new() -> Self {
        Self { total: ErrorSums::ZERO, selectors: Selectors::new(), chosen: [0; 2] }
    }

    fn observe(&mut self, number: u64, predictions: &[f64; M], value: f64) {
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
        self.chosen.map(|pick| picked_forecast(predictions, pick))
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn weights(&self, objective: usize) -> [f64; M] {
        indicator(self.chosen[objective])
    }
}

/// Number of selectors: two for each window, one for each objective. The windows are the window of
/// all values, [`SHORT_WINDOWS`] and [`LONG_WINDOWS`].
const SELECTORS: usize = 2 * WINDOWS;
const WINDOWS: usize = 1 + SHORT_WINDOWS.len() + LONG_WINDOWS.len();
/// Lengths of the short windows, in values. The sums at the start of these windows are stored. The
/// errors of these windows need not be added a second time. But each value of the longest window
/// needs 16 bytes for each method.
const SHORT_WINDOWS: [usize; 3] = [1, 5, 10];
const SHORT_WINDOW_MAX: usize = SHORT_WINDOWS[SHORT_WINDOWS.len() - 1];
/// Lengths of the windows of NWS 2.x, in values; 0 is the whole series.
pub(crate) const WINDOW_LENGTHS: [usize; WINDOWS] = [
    0,
    SHORT_WINDOWS[0],
    SHORT_WINDOWS[1],
    SHORT_WINDOWS[2],
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
    /// For each window of [`LONG_WINDOWS`]: `total` at the start of the window. With each new
    /// value, the errors on the value that leaves the window are added.
    lagged: [ErrorSums<M>; LONG_WINDOWS.len()],
    history: B::History,
    /// Selectors. For window `w`, index `w` selects by squared error, and index `WINDOWS + w` by
    /// absolute error.
    selectors: Selectors<SELECTORS>,
    chosen: [u8; 2],
    methods: PhantomData<B>,
}

impl<B: MethodSet<M>, const M: usize> TwoLevel<B, M> {
    /// Sets the picks of a window's two selectors: the methods with the least error since `past`.
    fn set_picks(picks: &mut [u8; SELECTORS], window: usize, total: &ErrorSums<M>, past: &ErrorSums<M>) {
        [picks[window], picks[WINDOWS + window]] = total.least_since(past);
    }

    /// The windows in `kind` that the method set uses. Each item contains the index in
    /// [`WINDOW_LENGTHS`], the index in `kind`, and the length in values.
    fn windows(first: usize, kind: &'static [usize]) -> impl Iterator<Item = (usize, usize, u64)> {
        let all = kind.iter().enumerate().map(move |(i, back)| (first + i, i, *back as u64));
        all.filter(|(_, _, back)| B::WINDOWS.contains(&(*back as usize)))
    }
}

impl<B: MethodSet<M>, const M: usize> CombinationRule<M> for TwoLevel<B, M> {
    fn new() -> Self {
        // Selectors that the method set does not use have infinite costs, so that they never
        // decide.
        let start = |i: usize| {
            if B::WINDOWS.contains(&WINDOW_LENGTHS[i % WINDOWS]) { [0.0; 2] } else { [f64::INFINITY; 2] }
        };
        Self {
            total: ErrorSums::ZERO,
            recent: [ErrorSums::ZERO; SHORT_WINDOW_MAX],
            lagged: [ErrorSums::ZERO; LONG_WINDOWS.len()],
            history: B::History::new(),
            selectors: Selectors { picks: [0; SELECTORS], costs: ErrorSums(core::array::from_fn(start)) },
            chosen: [0; 2],
            methods: PhantomData,
        }
    }

    fn observe(&mut self, number: u64, predictions: &[f64; M], value: f64) {
        let errors = predictions.map(|prediction| prediction - value);
        if number == 0 {
            self.history.record(number, value, &errors);
            return;
        }
        self.selectors.score(&errors);
        self.total.add(&errors);
        let picks = &mut self.selectors.picks;
        Self::set_picks(picks, 0, &self.total, &ErrorSums::ZERO);
        for (window, _, back) in Self::windows(1, &SHORT_WINDOWS) {
            let past = &self.recent[recent_index(number + SHORT_WINDOW_MAX as u64 - back)];
            Self::set_picks(picks, window, &self.total, past);
        }
        for (window, lag, back) in Self::windows(1 + SHORT_WINDOWS.len(), &LONG_WINDOWS) {
            if let Some(past) = number.checked_sub(back).filter(|past| *past >= 2) {
                self.lagged[lag].add(&self.history.errors_of(past, lag));
            }
            Self::set_picks(picks, window, &self.total, &self.lagged[lag]);
        }
        if number == 1 {
            // From here on, every window excludes the errors of the first scored value, except the
            // window of all values.
            self.recent.fill(self.total);
            self.lagged.fill(self.total);
        }
        self.recent[recent_index(number)] = self.total;
        self.history.record(number, value, &errors);
        self.chosen = self.selectors.chosen();
    }

    fn combine(&mut self, predictions: &[f64; M], _: Classes) -> [CombinedForecast; 2] {
        self.chosen.map(|pick| picked_forecast(predictions, pick))
    }

    fn heap_bytes(&self) -> usize {
        self.history.heap_bytes()
    }

    fn weights(&self, objective: usize) -> [f64; M] {
        indicator(self.chosen[objective])
    }
}

/// Index in `recent` of the sums after value `number`.
fn recent_index(number: u64) -> usize {
    (number % SHORT_WINDOW_MAX as u64) as usize
}

fn picked_forecast<const M: usize>(predictions: &[f64; M], pick: u8) -> CombinedForecast {
    let method = usize::from(pick) % M;
    CombinedForecast { value: predictions[method], method, weight: None }
}

fn indicator<const M: usize>(pick: u8) -> [f64; M] {
    core::array::from_fn(|i| if i == usize::from(pick) { 1.0 } else { 0.0 })
}

//! Picking one method: selectors name the least wrong, and the least wrong selector speaks.

use super::{Choice, Choose, History, LAGS, least};
use crate::banks::Bank;
use core::marker::PhantomData;

/// Sums of errors in their order of arrival, per method.
#[derive(Clone, Copy, Debug)]
struct Cumulative<const M: usize> {
    squared: [f64; M],
    absolute: [f64; M],
}

impl<const M: usize> Cumulative<M> {
    const ZERO: Self = Self { squared: [0.0; M], absolute: [0.0; M] };

    fn add(&mut self, errors: &[f64; M]) {
        let sums = self.squared.iter_mut().zip(&mut self.absolute);
        for (error, (squared, absolute)) in errors.iter().zip(sums) {
            *squared += error * error;
            *absolute += error.abs();
        }
    }

    /// The methods with the least error since `past`, by squared and by absolute error.
    ///
    /// All methods are scored equally often, so sums decide as means would.
    fn least_since(&self, past: &Self) -> [u8; 2] {
        let mut squared = [0.0; M];
        let mut absolute = [0.0; M];
        for i in 0..M {
            squared[i] = self.squared[i] - past.squared[i];
            absolute[i] = self.absolute[i] - past.absolute[i];
        }
        [least(&squared) as u8, least(&absolute) as u8]
    }

    fn least(&self) -> [u8; 2] {
        [least(&self.squared) as u8, least(&self.absolute) as u8]
    }
}

/// Selectors, each naming a method, and what their forecasts have cost so far.
#[derive(Clone, Debug)]
struct Selectors<const S: usize> {
    picks: [u8; S],
    squared: [f64; S],
    absolute: [f64; S],
}

impl<const S: usize> Selectors<S> {
    fn new() -> Self {
        Self { picks: [0; S], squared: [0.0; S], absolute: [0.0; S] }
    }

    /// Scores what the methods named last have done.
    fn score<const M: usize>(&mut self, errors: &[f64; M]) {
        for (i, pick) in self.picks.iter().enumerate() {
            let error = errors[usize::from(*pick) % M];
            self.squared[i] += error * error;
            self.absolute[i] += error.abs();
        }
    }

    /// The methods named by the selectors that cost least, by squared and by absolute error.
    fn chosen(&self) -> [u8; 2] {
        [self.picks[least(&self.squared)], self.picks[least(&self.absolute)]]
    }
}

/// The papers' rule: the methods with the least cumulative squared and absolute error (JavaNws
/// §2.1.2), and of these two the one that has cost less under the loss asked for.
#[derive(Clone, Debug)]
pub(crate) struct Flat<const M: usize> {
    total: Cumulative<M>,
    selectors: Selectors<2>,
    chosen: [u8; 2],
}

impl<const M: usize> Choose<M> for Flat<M> {
    fn new() -> Self {
        Self { total: Cumulative::ZERO, selectors: Selectors::new(), chosen: [0; 2] }
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

    fn choose(&mut self, predictions: &[f64; M]) -> [Choice; 2] {
        self.chosen.map(|pick| choice(predictions, pick))
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn weights(&self, loss: usize) -> [f64; M] {
        indicator(self.chosen[loss])
    }
}

/// How many selectors there can be: two losses, and windows of everything, 1 and each of [`LAGS`].
const SELECTORS: usize = 2 * WINDOWS;
const WINDOWS: usize = 2 + LAGS.len();
/// The windows of NWS 2.x, in values; 0 is the whole series.
pub(crate) const ALL: [usize; WINDOWS] = [0, 1, LAGS[0], LAGS[1], LAGS[2], LAGS[3], LAGS[4], LAGS[5]];

/// The two levels of NWS 2.x (`forc.c`): sixteen selectors each name the method that was least
/// wrong by squared or absolute error over their window, and of the selectors the one that was
/// least wrong so far speaks.
#[derive(Clone, Debug)]
pub(crate) struct TwoLevel<B: Bank<M>, const M: usize> {
    total: Cumulative<M>,
    /// `total` as it was a lag ago, advanced by adding the errors of then.
    lagged: [Cumulative<M>; LAGS.len()],
    history: B::History,
    /// Of window `w`: place `w` by squared error, `WINDOWS + w` by absolute.
    selectors: Selectors<SELECTORS>,
    chosen: [u8; 2],
    bank: PhantomData<B>,
}

impl<B: Bank<M>, const M: usize> TwoLevel<B, M> {
    fn name(&mut self, window: usize, [squared, absolute]: [u8; 2]) {
        self.selectors.picks[window] = squared;
        self.selectors.picks[WINDOWS + window] = absolute;
    }
}

impl<B: Bank<M>, const M: usize> Choose<M> for TwoLevel<B, M> {
    fn new() -> Self {
        // Selectors that the bank has not are infinitely bad, so that they never speak.
        let start = |i: usize| if B::WINDOWS.contains(&ALL[i % WINDOWS]) { 0.0 } else { f64::INFINITY };
        let scores = core::array::from_fn(start);
        Self {
            total: Cumulative::ZERO,
            lagged: [Cumulative::ZERO; LAGS.len()],
            history: B::History::new(),
            selectors: Selectors { picks: [0; SELECTORS], squared: scores, absolute: scores },
            chosen: [0; 2],
            bank: PhantomData,
        }
    }

    fn observe(&mut self, number: u64, predictions: &[f64; M], value: f64) {
        let errors = predictions.map(|prediction| prediction - value);
        if number == 0 {
            self.history.record(number, value, &errors);
            return;
        }
        self.selectors.score(&errors);
        let before = self.total;
        self.total.add(&errors);
        let overall = self.total.least();
        self.name(0, overall);
        // A window needs two scored values; until then the whole series decides.
        let last = if number == 1 { overall } else { self.total.least_since(&before) };
        self.name(1, last);
        for (lag, back) in LAGS.iter().enumerate().filter(|(_, back)| B::WINDOWS.contains(back)) {
            if number == 1 {
                self.lagged[lag] = self.total;
                self.name(2 + lag, overall);
                continue;
            }
            if let Some(past) = number.checked_sub(*back as u64).filter(|past| 2 <= *past) {
                let errors = self.history.errors_of(past, lag);
                self.lagged[lag].add(&errors);
            }
            let picks = self.total.least_since(&self.lagged[lag]);
            self.name(2 + lag, picks);
        }
        self.history.record(number, value, &errors);
        self.chosen = self.selectors.chosen();
    }

    fn choose(&mut self, predictions: &[f64; M]) -> [Choice; 2] {
        self.chosen.map(|pick| choice(predictions, pick))
    }

    fn heap_bytes(&self) -> usize {
        self.history.heap_bytes()
    }

    fn weights(&self, loss: usize) -> [f64; M] {
        indicator(self.chosen[loss])
    }
}

fn choice<const M: usize>(predictions: &[f64; M], pick: u8) -> Choice {
    let method = usize::from(pick) % M;
    Choice { value: predictions[method], method }
}

fn indicator<const M: usize>(pick: u8) -> [f64; M] {
    core::array::from_fn(|i| if i == usize::from(pick) { 1.0 } else { 0.0 })
}

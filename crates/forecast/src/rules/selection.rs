//! Picking one method: the least wrong so far, or the two levels of NWS 2.x.

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

/// The papers' rule: the method with the least cumulative error (JavaNws §2.1.2).
#[derive(Clone, Debug)]
pub(crate) struct Flat<const M: usize> {
    total: Cumulative<M>,
    picks: [u8; 2],
}

impl<const M: usize> Choose<M> for Flat<M> {
    fn new() -> Self {
        Self { total: Cumulative::ZERO, picks: [0; 2] }
    }

    fn observe(&mut self, number: u64, predictions: &[f64; M], value: f64) {
        if number != 0 {
            self.total.add(&predictions.map(|prediction| prediction - value));
            self.picks = self.total.least();
        }
    }

    fn choose(&mut self, predictions: &[f64; M]) -> [Choice; 2] {
        self.picks.map(|pick| choice(predictions, pick))
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn weights(&self, loss: usize) -> [f64; M] {
        indicator(self.picks[loss])
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
    picks: [u8; SELECTORS],
    squared: [f64; SELECTORS],
    absolute: [f64; SELECTORS],
    chosen: [u8; 2],
    bank: PhantomData<B>,
}

impl<B: Bank<M>, const M: usize> TwoLevel<B, M> {
    fn score_selectors(&mut self, errors: &[f64; M]) {
        for (i, pick) in self.picks.iter().enumerate() {
            let error = errors[usize::from(*pick) % M];
            self.squared[i] += error * error;
            self.absolute[i] += error.abs();
        }
    }

    fn pick(&mut self, window: usize, [squared, absolute]: [u8; 2]) {
        self.picks[window] = squared;
        self.picks[WINDOWS + window] = absolute;
    }
}

impl<B: Bank<M>, const M: usize> Choose<M> for TwoLevel<B, M> {
    fn new() -> Self {
        Self {
            total: Cumulative::ZERO,
            lagged: [Cumulative::ZERO; LAGS.len()],
            history: B::History::new(),
            picks: [0; SELECTORS],
            squared: selector_scores::<B, M>(),
            absolute: selector_scores::<B, M>(),
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
        self.score_selectors(&errors);
        let before = self.total;
        self.total.add(&errors);
        let overall = self.total.least();
        self.pick(0, overall);
        // A window needs two scored values; until then the whole series decides.
        let last = if number == 1 { overall } else { self.total.least_since(&before) };
        self.pick(1, last);
        for (lag, back) in LAGS.iter().enumerate().filter(|(_, back)| B::WINDOWS.contains(back)) {
            if number == 1 {
                self.lagged[lag] = self.total;
                self.pick(2 + lag, overall);
                continue;
            }
            if let Some(past) = number.checked_sub(*back as u64).filter(|past| 2 <= *past) {
                let errors = self.history.errors_of(past, lag);
                self.lagged[lag].add(&errors);
            }
            let picks = self.total.least_since(&self.lagged[lag]);
            self.pick(2 + lag, picks);
        }
        self.history.record(number, value, &errors);
        self.chosen = [self.picks[least(&self.squared)], self.picks[least(&self.absolute)]];
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

/// 0 for the selectors a bank has, and infinity for those it has not, so that these never speak.
fn selector_scores<B: Bank<M>, const M: usize>() -> [f64; SELECTORS] {
    core::array::from_fn(|i| if B::WINDOWS.contains(&ALL[i % WINDOWS]) { 0.0 } else { f64::INFINITY })
}

fn choice<const M: usize>(predictions: &[f64; M], pick: u8) -> Choice {
    let method = usize::from(pick) % M;
    Choice { value: predictions[method], method }
}

fn indicator<const M: usize>(pick: u8) -> [f64; M] {
    core::array::from_fn(|i| if i == usize::from(pick) { 1.0 } else { 0.0 })
}

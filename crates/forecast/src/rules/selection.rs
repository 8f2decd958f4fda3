//! Picking one method: selectors name the least wrong, and the least wrong selector speaks.

use super::{Choice, Choose, History, LAGS};
use crate::banks::Bank;
use core::marker::PhantomData;

/// Sums of squared and of absolute errors in their order of arrival, for each of `N` forecasters.
///
/// The two stand side by side, so that one instruction works on both and nothing is ever compared
/// across its lanes.
#[derive(Clone, Copy, Debug)]
struct Sums<const N: usize>([[f64; 2]; N]);

impl<const N: usize> Sums<N> {
    const ZERO: Self = Self([[0.0; 2]; N]);

    fn add(&mut self, errors: &[f64; N]) {
        for (sums, error) in self.0.iter_mut().zip(errors) {
            *sums = [sums[0] + error * error, sums[1] + error.abs()];
        }
    }

    /// Who has the least error since `past`, by squared and by absolute error; ties go to the first.
    ///
    /// All are scored equally often, so sums decide as means would.
    fn least_since(&self, past: &Self) -> [u8; 2] {
        const { assert!(N.is_multiple_of(UNROLLED) && N <= 256) }
        let mut least = Least { sums: [f64::INFINITY; 2], places: [0.0; 2] };
        let mut place = 0.0;
        for (now, past) in self.0.chunks_exact(UNROLLED).zip(past.0.chunks_exact(UNROLLED)) {
            for (now, past) in now.iter().zip(past) {
                least.meet(place, [now[0] - past[0], now[1] - past[1]]);
                place += 1.0;
            }
        }
        least.places.map(place_of)
    }

    fn least(&self) -> [u8; 2] {
        self.least_since(&Self::ZERO)
    }
}

/// In steps of two the search runs a third faster than in steps of one, and more do not help.
const UNROLLED: usize = 2;

/// The least sums met, and where.
struct Least {
    sums: [f64; 2],
    places: [f64; 2],
}

impl Least {
    /// Compares with the sums at `place`; there is no branch in it, for none could be foretold.
    #[inline(always)]
    fn meet(&mut self, place: f64, sums: [f64; 2]) {
        for (loss, sum) in sums.into_iter().enumerate() {
            // Places rise, so the greater is the later.
            let better = if sum < self.sums[loss] { place } else { 0.0 };
            self.places[loss] = if self.places[loss] < better { better } else { self.places[loss] };
            self.sums[loss] = if sum < self.sums[loss] { sum } else { self.sums[loss] };
        }
    }
}

/// A small whole number as an integer: after adding 2^52 it stands in the lowest bits.
fn place_of(place: f64) -> u8 {
    (place + 4_503_599_627_370_496.0).to_bits() as u8
}

/// Selectors, each naming a method, and what their forecasts have cost so far.
#[derive(Clone, Debug)]
struct Selectors<const S: usize> {
    picks: [u8; S],
    costs: Sums<S>,
}

impl<const S: usize> Selectors<S> {
    fn new() -> Self {
        Self { picks: [0; S], costs: Sums::ZERO }
    }

    /// Scores what the methods named last have done.
    fn score<const M: usize>(&mut self, errors: &[f64; M]) {
        self.costs.add(&self.picks.map(|pick| errors[usize::from(pick) % M]));
    }

    /// The methods named by the selectors that cost least, by squared and by absolute error.
    fn chosen(&self) -> [u8; 2] {
        self.costs.least().map(|selector| self.picks[usize::from(selector) % S])
    }
}

/// The papers' rule: the methods with the least cumulative squared and absolute error (JavaNws
/// §2.1.2), and of these two the one that has cost less under the loss asked for.
#[derive(Clone, Debug)]
pub(crate) struct Flat<const M: usize> {
    total: Sums<M>,
    selectors: Selectors<2>,
    chosen: [u8; 2],
}

impl<const M: usize> Choose<M> for Flat<M> {
    fn new() -> Self {
        Self { total: Sums::ZERO, selectors: Selectors::new(), chosen: [0; 2] }
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

/// How many selectors there can be: two losses, and windows of everything, of [`RECENT`] and of
/// [`LAGS`].
const SELECTORS: usize = 2 * WINDOWS;
const WINDOWS: usize = 1 + RECENT.len() + LAGS.len();
/// Windows, in values, for which the sums of then are kept as they were: nothing has to be added
/// again, but every value of the longest takes 32 bytes a method.
const RECENT: [usize; 3] = [1, 5, 10];
const LONGEST_RECENT: usize = RECENT[RECENT.len() - 1];
/// The windows of NWS 2.x, in values; 0 is the whole series.
pub(crate) const ALL: [usize; WINDOWS] =
    [0, RECENT[0], RECENT[1], RECENT[2], LAGS[0], LAGS[1], LAGS[2], LAGS[3]];

/// The two levels of NWS 2.x (`forc.c`): sixteen selectors each name the method that was least
/// wrong by squared or absolute error over their window, and of the selectors the one that was
/// least wrong so far speaks.
#[derive(Clone, Debug)]
pub(crate) struct TwoLevel<B: Bank<M>, const M: usize> {
    total: Sums<M>,
    /// `total` as it was after each of the last values.
    recent: [Sums<M>; LONGEST_RECENT],
    /// `total` as it was a lag ago, advanced by adding the errors of then.
    lagged: [Sums<M>; LAGS.len()],
    history: B::History,
    /// Of window `w`: place `w` by squared error, `WINDOWS + w` by absolute.
    selectors: Selectors<SELECTORS>,
    chosen: [u8; 2],
    bank: PhantomData<B>,
}

impl<B: Bank<M>, const M: usize> TwoLevel<B, M> {
    /// Lets the selectors of a window name the methods that were least wrong since `past`.
    fn name(picks: &mut [u8; SELECTORS], window: usize, total: &Sums<M>, past: &Sums<M>) {
        [picks[window], picks[WINDOWS + window]] = total.least_since(past);
    }

    /// The windows of one kind that the bank has, by their places in [`ALL`] and in their kind.
    fn windows(first: usize, kind: &'static [usize]) -> impl Iterator<Item = (usize, usize, u64)> {
        let all = kind.iter().enumerate().map(move |(i, back)| (first + i, i, *back as u64));
        all.filter(|(_, _, back)| B::WINDOWS.contains(&(*back as usize)))
    }
}

impl<B: Bank<M>, const M: usize> Choose<M> for TwoLevel<B, M> {
    fn new() -> Self {
        // Selectors that the bank has not are infinitely bad, so that they never speak.
        let start =
            |i: usize| if B::WINDOWS.contains(&ALL[i % WINDOWS]) { [0.0; 2] } else { [f64::INFINITY; 2] };
        Self {
            total: Sums::ZERO,
            recent: [Sums::ZERO; LONGEST_RECENT],
            lagged: [Sums::ZERO; LAGS.len()],
            history: B::History::new(),
            selectors: Selectors { picks: [0; SELECTORS], costs: Sums(core::array::from_fn(start)) },
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
        self.total.add(&errors);
        let picks = &mut self.selectors.picks;
        Self::name(picks, 0, &self.total, &Sums::ZERO);
        for (window, _, back) in Self::windows(1, &RECENT) {
            let past = &self.recent[recent_place(number + LONGEST_RECENT as u64 - back)];
            Self::name(picks, window, &self.total, past);
        }
        for (window, lag, back) in Self::windows(1 + RECENT.len(), &LAGS) {
            if let Some(past) = number.checked_sub(back).filter(|past| 2 <= *past) {
                self.lagged[lag].add(&self.history.errors_of(past, lag));
            }
            Self::name(picks, window, &self.total, &self.lagged[lag]);
        }
        if number == 1 {
            // A window needs two scored values; until then the whole series decides.
            self.recent.fill(self.total);
            self.lagged.fill(self.total);
        }
        self.recent[recent_place(number)] = self.total;
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

/// Where the sums after value `number` are kept.
fn recent_place(number: u64) -> usize {
    (number % LONGEST_RECENT as u64) as usize
}

fn choice<const M: usize>(predictions: &[f64; M], pick: u8) -> Choice {
    let method = usize::from(pick) % M;
    Choice { value: predictions[method], method, weight: None }
}

fn indicator<const M: usize>(pick: u8) -> [f64; M] {
    core::array::from_fn(|i| if i == usize::from(pick) { 1.0 } else { 0.0 })
}

//! The rule of two levels for four series.

use alloc::boxed::Box;
use core::array::from_fn;

use barograph_lanes::{Lanes, Numbers};

use super::Series;
use super::state::{Cells, LANES};
use crate::method_sets::{GAINS, NWS, RECURSIVE, RING};
use crate::rules::{LAGS, LONG_WINDOWS, LeastSums, SELECTORS, SHORT_WINDOW_MAX, SHORT_WINDOWS, WINDOWS};

/// Sums of squared and of absolute errors of `N` forecasters of four series.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Sums<const N: usize>([[[f64; LANES]; N]; 2]);

impl<const N: usize> Sums<N> {
    #[inline(always)]
    fn add<L: Lanes>(&mut self, lanes: L, forecaster: usize, error: L::Numbers) {
        let [squared, absolute] = &mut self.0;
        let squared = &mut squared[forecaster];
        *squared = (lanes.load(squared) + error * error).to_array();
        let absolute = &mut absolute[forecaster];
        *absolute = (lanes.load(absolute) + error.abs()).to_array();
    }

    fn for_each(&mut self, visit: &mut Cells) {
        self.0.as_flattened_mut().iter_mut().for_each(visit);
    }
}

/// [`TwoLevel`](crate::rules::TwoLevel) for four series that have more values than the longest
/// window. The vectors come first, each at a multiple of its size ([`State`](super::state::State)).
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Selection {
    total: Sums<NWS>,
    /// Of the last values: `total` after the value.
    recent: [Sums<NWS>; SHORT_WINDOW_MAX],
    lagged: [Sums<NWS>; LAGS],
    /// For each lag, the sum of the values up to it, and the smoothers.
    totals: [[f64; LANES]; LAGS],
    levels: [[[f64; LANES]; GAINS.len()]; LAGS],
    costs: Sums<SELECTORS>,
    /// Errors of the windowed methods on the last values.
    errors: Box<WindowedErrors>,
    pub(super) picks: [[u8; LANES]; SELECTORS],
    pub(super) chosen: [[u8; LANES]; 2],
}

#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct WindowedErrors([[[f64; LANES]; NWS - RECURSIVE]; RING]);

/// Errors of all methods, in the order of a vector's alignment.
#[repr(C, align(64))]
struct Errors([[f64; LANES]; NWS]);

/// A value, and what is known at that time.
pub(super) struct Scored<'a, N> {
    /// Number of values of the lanes before this one; rings have their rows by this number.
    pub(super) position: usize,
    /// Number of values of each series before this one.
    pub(super) counts: [u64; LANES],
    pub(super) value: N,
    pub(super) predictions: &'a [[f64; LANES]; NWS],
    /// The last values, by position.
    pub(super) values: &'a [[f64; LANES]; 128],
}

impl Selection {
    pub(super) fn of(series: [&Series; LANES], position: usize) -> Self {
        let rules = series.map(Series::rule);
        let counts = series.map(|series| series.count() as usize);
        let cells = |number: &dyn Fn(usize) -> f64| -> [f64; LANES] { from_fn(number) };
        let row = |ring: usize, back: usize, lane: usize| (counts[lane] - 1 - back) % ring;
        let mut recent = from_fn(|_| Sums([[[0.0; LANES]; NWS]; 2]));
        for back in 0..SHORT_WINDOW_MAX {
            recent[(position - 1 - back) % SHORT_WINDOW_MAX] = Sums(from_fn(|measure| {
                from_fn(|method| {
                    cells(&|lane| {
                        rules[lane].recent[row(SHORT_WINDOW_MAX, back, lane)].measures()[measure][method]
                    })
                })
            }));
        }
        let mut errors = Box::new(WindowedErrors([[[0.0; LANES]; NWS - RECURSIVE]; RING]));
        for back in 0..RING {
            errors.0[(position - 1 - back) % RING] =
                from_fn(|method| cells(&|lane| rules[lane].history.errors[row(RING, back, lane)][method]));
        }
        Self {
            total: Sums(from_fn(|measure| {
                from_fn(|i| cells(&|lane| rules[lane].total.measures()[measure][i]))
            })),
            recent,
            lagged: from_fn(|lag| {
                Sums(from_fn(|measure| from_fn(|i| cells(&|lane| rules[lane].lagged[measure][i][lag]))))
            }),
            errors,
            totals: from_fn(|lag| cells(&|lane| rules[lane].history.totals[lag])),
            levels: from_fn(|lag| from_fn(|gain| cells(&|lane| rules[lane].history.levels[gain][lag]))),
            picks: from_fn(|i| rules.map(|rule| rule.selectors.picks[i])),
            costs: Sums(from_fn(|measure| {
                from_fn(|i| cells(&|lane| rules[lane].selectors.costs.measures()[measure][i]))
            })),
            chosen: from_fn(|i| rules.map(|rule| rule.chosen[i])),
        }
    }

    /// Does what the rule does for one series.
    #[inline(always)]
    pub(super) fn observe<L: Lanes>(&mut self, lanes: L, scored: &Scored<'_, L::Numbers>) {
        let position = scored.position;
        let mut errors = Errors([[0.0; LANES]; NWS]);
        let errors = &mut errors.0;
        for (method, error) in errors.iter_mut().enumerate() {
            let difference = lanes.load(&scored.predictions[method]) - scored.value;
            *error = difference.to_array();
            self.total.add(lanes, method, difference);
        }
        for (selector, picks) in self.picks.iter().enumerate() {
            let error = from_fn(|lane| errors[usize::from(picks[lane]).min(NWS - 1)][lane]);
            self.costs.add(lanes, selector, lanes.load(&error));
        }
        for lag in 0..LAGS {
            self.add_lagged(lanes, lag, scored);
        }
        for (i, back) in SHORT_WINDOWS.into_iter().enumerate() {
            let start = &self.recent[(position + SHORT_WINDOW_MAX - back) % SHORT_WINDOW_MAX];
            let picks = if back == 0 {
                least(lanes, &self.total, None)
            } else {
                least(lanes, &self.total, Some(start))
            };
            [self.picks[i], self.picks[WINDOWS + i]] = picks;
        }
        for lag in 0..LAGS {
            let window = SHORT_WINDOWS.len() + lag;
            [self.picks[window], self.picks[WINDOWS + window]] =
                least(lanes, &self.total, Some(&self.lagged[lag]));
        }
        self.recent[position % SHORT_WINDOW_MAX].0 = self.total.0;
        self.errors.0[position % RING].copy_from_slice(&errors[RECURSIVE..]);
        let selectors = least(lanes, &self.costs, None);
        self.chosen = selectors
            .map(|selector| from_fn(|lane| self.picks[usize::from(selector[lane]).min(SELECTORS - 1)][lane]));
    }

    /// Adds the errors on the values that leave a long window.
    #[inline(always)]
    fn add_lagged<L: Lanes>(&mut self, lanes: L, lag: usize, scored: &Scored<'_, L::Numbers>) {
        let back = LONG_WINDOWS[lag];
        let past = scored.position - back;
        let value = lanes.load(&scored.values[past & 127]);
        let counts = scored.counts.map(|count| (count - back as u64) as f64);
        let sums = &mut self.lagged[lag];
        sums.add(lanes, 0, lanes.load(&scored.values[(past - 1) & 127]) - value);
        let totals = lanes.load(&self.totals[lag]);
        sums.add(lanes, 1, totals / lanes.load(&counts) - value);
        self.totals[lag] = (totals + value).to_array();
        for (i, (levels, gain)) in self.levels[lag].iter_mut().zip(GAINS).enumerate() {
            let level = lanes.load(levels);
            sums.add(lanes, 2 + i, level - value);
            *levels = (level + lanes.splat(gain) * (value - level)).to_array();
        }
        for (i, error) in self.errors.0[past % RING].iter().enumerate() {
            sums.add(lanes, RECURSIVE + i, lanes.load(error));
        }
    }

    /// Visits all numbers, those of rings from the newest to the oldest.
    pub(super) fn for_each(&mut self, position: usize, visit: &mut Cells) {
        self.total.for_each(visit);
        for back in 0..SHORT_WINDOW_MAX {
            self.recent[(position - 1 - back) % SHORT_WINDOW_MAX].for_each(visit);
        }
        for sums in &mut self.lagged {
            sums.for_each(visit);
        }
        for back in 0..RING {
            self.errors.0[(position - 1 - back) % RING].iter_mut().for_each(&mut *visit);
        }
        self.totals.iter_mut().for_each(&mut *visit);
        self.levels.as_flattened_mut().iter_mut().for_each(&mut *visit);
        self.costs.for_each(visit);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.errors)
    }
}

/// For each series, the forecasters with the least squared and the least absolute error since
/// `start`; on a tie, the first.
#[inline(always)]
fn least<L: Lanes, const N: usize>(lanes: L, now: &Sums<N>, start: Option<&Sums<N>>) -> [[u8; LANES]; 2] {
    let [squared, absolute] = &now.0;
    [
        least_of(lanes, squared, start.map(|start| &start.0[0])),
        least_of(lanes, absolute, start.map(|start| &start.0[1])),
    ]
}

#[inline(always)]
fn least_of<L: Lanes, const N: usize>(
    lanes: L,
    now: &[[f64; LANES]; N],
    start: Option<&[[f64; LANES]; N]>,
) -> [u8; LANES] {
    let mut least = LeastSums::new(lanes);
    for i in 0..N {
        let sums = match start {
            Some(start) => lanes.load(&now[i]) - lanes.load(&start[i]),
            None => lanes.load(&now[i]),
        };
        least.update(lanes.splat(i as f64), sums);
    }
    least.indices()
}

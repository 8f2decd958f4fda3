//! The state of four series, and what one value of each changes.

use core::array::from_fn;
use core::hint::black_box;

use barograph_lanes::{Kernel, Lanes, Mask, Numbers};

use super::Series;
use super::calibration::{Calibrations, Scores};
use super::selection::{Scored, Selection};
use super::windows::{AgedWindows, Windows};
use crate::method_sets::{GAINS, MethodSet as _, NWS, Nws, thirty_percent};
use crate::methods::adaptive::Bounds;
use crate::methods::lane_window::{AGED_LEN, Ages};
use crate::rules::LONG_WINDOWS;
use crate::scored_methods::DynBattery as _;
use crate::{Forecast, Interval};

/// Number of series side by side: the lanes of a vector.
pub(super) const LANES: usize = 4;

/// Visitor of the numbers of a state, one for each series at a time.
pub(super) type Cells<'a> = dyn FnMut(&mut [f64; LANES]) + 'a;

/// Four series, each with at least [`State::COUNT_MIN`] values, so that all windows are full.
///
/// The vectors come first and in this order, so that each is at a multiple of its 32 bytes. A
/// vector in two cache lines would take twice the time.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct State {
    selection: Selection,
    predictions: [[f64; LANES]; NWS],
    /// The last values, by position.
    values: [[f64; LANES]; 128],
    total: [f64; LANES],
    smoothers: [[f64; LANES]; GAINS.len()],
    scores: [Scores; 2],
    window5: Windows<5>,
    window31: Windows<31>,
    window51: AgedWindows,
    adaptive: [AdaptiveMedians; 2],
    calibrations: Calibrations,
    /// Number of values of the lanes so far, modulo [`CYCLE`], plus [`CYCLE`]. Rings have the rows
    /// of all lanes at the same index.
    position: usize,
    counts: [u64; LANES],
}

/// [`AdaptiveMedian`](crate::methods::adaptive::AdaptiveMedian) for four series.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
struct AdaptiveMedians {
    predictions: [f64; LANES],
    windows: [usize; LANES],
    bounds: Bounds,
}

/// The common multiple of the lengths of all rings.
const CYCLE: usize = 3200;

/// One value of each series.
pub(super) struct Update<'a> {
    pub(super) state: &'a mut State,
    pub(super) values: [f64; LANES],
}

impl Kernel for Update<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        self.state.learn(lanes, self.values);
    }
}

/// What [`State::restore`] needs to undo an update for some series.
pub(super) struct Columns {
    absent: [bool; LANES],
    cells: [[f64; LANES]; CELLS_MAX],
    ages: [Ages; LANES],
    windows: [[usize; LANES]; 2],
    picks: [[u8; LANES]; crate::rules::SELECTORS],
    chosen: [[u8; LANES]; 2],
    counts: [u64; LANES],
}

/// Upper bound of the number of cells of a state without the calibrations; a test checks it.
const CELLS_MAX: usize = 1_680;

impl State {
    /// Number of values that each series must have: the longest window, and two values with
    /// errors that no window has.
    pub(super) const COUNT_MIN: u64 = LONG_WINDOWS[LONG_WINDOWS.len() - 1] as u64 + 2;

    pub(super) fn of(series: [&Series; LANES]) -> Self {
        let methods = series.map(Series::methods);
        let position = CYCLE;
        let mut values = [[0.0; LANES]; 128];
        for back in 0..128 {
            let counts = series.map(|series| series.count() as usize);
            values[(position - 1 - back) & 127] = from_fn(|lane| {
                let history = &series[lane].rule().history.values;
                history[(counts[lane].wrapping_sub(1 + back)) & 127]
            });
        }
        Self {
            position,
            counts: series.map(Series::count),
            predictions: from_fn(|i| methods.map(|methods| methods.predictions()[i])),
            values,
            total: methods.map(|methods| methods.mean.total()),
            smoothers: from_fn(|i| methods.map(|methods| methods.smoothers.predict()[i])),
            window5: Windows::of(methods.map(|methods| &methods.window5)),
            window31: Windows::of(methods.map(|methods| &methods.window31)),
            window51: AgedWindows::of(methods.map(|methods| &methods.window51)),
            adaptive: from_fn(|i| AdaptiveMedians {
                windows: methods.map(|methods| methods.adaptive[i].window()),
                predictions: methods.map(|methods| methods.adaptive[i].prediction()),
                bounds: methods[0].adaptive[i].bounds(),
            }),
            selection: Selection::of(series, position),
            scores: from_fn(|objective| Scores::of(series.map(|series| series.score(objective)))),
            calibrations: Calibrations::of(series.map(|series| series.calibration())),
        }
    }

    /// Scores the issued forecasts on the values, then learns the values, in the order of
    /// [`ScoredMethods`](crate::scored_methods::ScoredMethods).
    #[inline(always)]
    fn learn<L: Lanes>(&mut self, lanes: L, values: [f64; LANES]) {
        // The caller has just stored the values one by one. A load of all four would wait until
        // they are in the cache; single loads do not.
        let values = values.map(black_box);
        let value = lanes.load(&values);
        let [mean, median] = [self.issued(0), self.issued(1)];
        let [mean, median] = [lanes.load(&mean) - value, lanes.load(&median) - value];
        self.scores[0].learn(lanes, self.counts, mean);
        self.scores[1].learn(lanes, self.counts, median);
        self.calibrations.learn(lanes, self.counts, median, value);
        let scored = Scored {
            position: self.position,
            counts: self.counts,
            value,
            predictions: &self.predictions,
            values: &self.values,
        };
        self.selection.observe(lanes, &scored);
        self.learn_methods(lanes, values);
    }

    /// Does what [`Nws`] does for one series.
    #[inline(always)]
    fn learn_methods<L: Lanes>(&mut self, lanes: L, values: [f64; LANES]) {
        let value = lanes.load(&values);
        for adaptive in &mut self.adaptive {
            adaptive.adapt(lanes, value, &self.window51);
        }
        self.total = (lanes.load(&self.total) + value).to_array();
        self.counts = self.counts.map(|count| count + 1);
        let counts = lanes.load(&self.counts.map(|count| count as f64));
        let predictions = &mut self.predictions;
        predictions[0] = values;
        predictions[1] = (lanes.load(&self.total) / counts).to_array();
        for (i, (levels, gain)) in self.smoothers.iter_mut().zip(GAINS).enumerate() {
            let level = lanes.load(levels);
            *levels = (level + lanes.splat(gain) * (value - level)).to_array();
            predictions[2 + i] = *levels;
        }
        let [ago5, ago31, ago51] = [5, 31, AGED_LEN].map(|back| self.values[(self.position - back) & 127]);
        self.window5.push(lanes, value, lanes.load(&ago5));
        self.window31.push(lanes, value, lanes.load(&ago31));
        self.window51.push(lanes, value, lanes.load(&ago51));
        self.values[self.position & 127] = values;
        self.position = if self.position + 1 == 2 * CYCLE { CYCLE } else { self.position + 1 };
        predictions[10] = self.window31.medians();
        predictions[11] = self.window5.medians();
        predictions[12] = self.window31.trimmed_means(lanes, 0);
        predictions[13] = self.window5.trimmed_means(lanes, 0);
        predictions[14] = self.window31.trimmed_means(lanes, thirty_percent(31));
        predictions[15] = self.window51.sorted.trimmed_means(lanes, thirty_percent(AGED_LEN));
        for (prediction, adaptive) in predictions[16..].iter_mut().zip(&mut self.adaptive) {
            *prediction = adaptive.read(lanes, &self.window51);
        }
    }

    /// The forecasts of the next values for one objective.
    #[inline(always)]
    fn issued(&self, objective: usize) -> [f64; LANES] {
        let methods = self.selection.chosen[objective];
        from_fn(|lane| self.predictions[usize::from(methods[lane]).min(NWS - 1)][lane])
    }

    pub(super) fn forecast(&self, lane: usize, objective: usize) -> Forecast {
        let method = usize::from(self.selection.chosen[objective][lane]) % NWS;
        self.scores[objective].forecast(
            lane,
            self.counts[lane],
            self.predictions[method][lane],
            Nws::METHODS[method],
        )
    }

    pub(super) fn interval(&self, lane: usize, level: f64) -> Option<Interval> {
        self.calibrations.interval(lane, self.issued(1)[lane], level)
    }

    /// The present state of the series that are `absent`, before an update.
    pub(super) fn columns(&mut self, absent: [bool; LANES]) -> Columns {
        let mut cells = [[0.0; LANES]; CELLS_MAX];
        let mut slots = cells.iter_mut();
        self.for_each(&mut |cell| *slots.next().expect("CELLS_MAX cells") = *cell);
        self.calibrations.hold(absent);
        Columns {
            absent,
            cells,
            ages: self.window51.ages.clone(),
            windows: self.adaptive.each_ref().map(|adaptive| adaptive.windows),
            picks: self.selection.picks,
            chosen: self.selection.chosen,
            counts: self.counts,
        }
    }

    /// Undoes the last update for the series that were absent. Their rows move to the indices that
    /// the new position gives them.
    pub(super) fn restore(&mut self, before: &Columns) {
        let lanes = || (0..LANES).filter(|lane| before.absent[*lane]);
        let mut slots = before.cells.iter();
        self.for_each(&mut |cell| {
            let before = slots.next().expect("as many cells as before");
            lanes().for_each(|lane| cell[lane] = before[lane]);
        });
        self.calibrations.release();
        for lane in lanes() {
            self.window51.ages[lane] = before.ages[lane].clone();
            self.counts[lane] = before.counts[lane];
            for (adaptive, windows) in self.adaptive.iter_mut().zip(before.windows) {
                adaptive.windows[lane] = windows[lane];
            }
            for (picks, before) in self.selection.picks.iter_mut().zip(before.picks) {
                picks[lane] = before[lane];
            }
            for (chosen, before) in self.selection.chosen.iter_mut().zip(before.chosen) {
                chosen[lane] = before[lane];
            }
        }
    }

    /// Visits all numbers except those of the calibrations, those of rings from the newest to the
    /// oldest.
    fn for_each(&mut self, visit: &mut Cells) {
        self.predictions.iter_mut().for_each(&mut *visit);
        for back in 0..128 {
            visit(&mut self.values[(self.position - 1 - back) & 127]);
        }
        visit(&mut self.total);
        self.smoothers.iter_mut().for_each(&mut *visit);
        self.window5.for_each(visit);
        self.window31.for_each(visit);
        self.window51.sorted.for_each(visit);
        for adaptive in &mut self.adaptive {
            visit(&mut adaptive.predictions);
        }
        self.selection.for_each(self.position, visit);
        for scores in &mut self.scores {
            scores.for_each(visit);
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.selection.heap_bytes() + self.calibrations.heap_bytes()
    }
}

impl AdaptiveMedians {
    #[inline(always)]
    fn adapt<L: Lanes>(&mut self, lanes: L, value: L::Numbers, recent: &AgedWindows) {
        let neighbours = self.windows.map(|window| self.bounds.neighbours(window));
        let [shorter, longer] = [0, 1].map(|side| neighbours.map(|windows| windows[side]));
        let shorter = (value - recent.medians_of_last(lanes, shorter)).abs();
        let longer = (value - recent.medians_of_last(lanes, longer)).abs();
        let error = (value - lanes.load(&self.predictions)).abs();
        let is_shorter_better = shorter.less(error).bits();
        let is_longer_best = longer.less(error.least(shorter)).bits();
        for (lane, window) in self.windows.iter_mut().enumerate() {
            let is = |bits: u8| bits >> lane & 1 == 1;
            *window = self.bounds.choose(*window, is(is_shorter_better), is(is_longer_best));
        }
    }

    #[inline(always)]
    fn read<L: Lanes>(&mut self, lanes: L, recent: &AgedWindows) -> [f64; LANES] {
        let predictions = recent.medians_of_last(lanes, self.windows).to_array();
        self.predictions = predictions;
        predictions
    }
}

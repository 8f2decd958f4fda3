//! Medians and means over a window that adapts its length to the data.
//!
//! For each value, the error of the window is compared with the errors of the windows one step
//! shorter and one step longer. The method continues with the window of the least error; on a tie,
//! the window does not change. NWS 2.x `median.c` intends the same comparison, but compares with
//! windows of fixed size. This module implements the intent, as in the adaptive window of Wolski's
//! article of 1998 (docs/references.md).

use barograph_lanes::Lanes;

use super::lane_window::AgedWindow;
use crate::method_sets::RecentValues;

/// Minimum, maximum and step of the length of an adapting window, in values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) min: usize,
    pub(crate) max: usize,
    pub(crate) step: usize,
}

impl Bounds {
    /// The lengths of the windows one step shorter and one step longer.
    #[inline(always)]
    fn neighbours(self, window: usize) -> [usize; 2] {
        [window.saturating_sub(self.step).max(self.min), (window + self.step).min(self.max)]
    }

    /// Returns the window with the least error on a value, among `window` and its neighbours.
    /// `error` is the error of `window`, and `errors` are those of the neighbours. `held` is the
    /// number of stored values. If the longer window needs more values, the function returns
    /// `window`.
    #[inline(always)]
    fn best(self, window: usize, held: usize, error: f64, errors: [f64; 2]) -> usize {
        let [shorter, longer] = self.neighbours(window);
        if held.min(self.max) < longer {
            return window;
        }
        let (best, error) = if errors[0] < error { (shorter, errors[0]) } else { (window, error) };
        if errors[1] < error { longer } else { best }
    }
}

/// The median of an adapting window.
#[derive(Clone, Debug)]
pub(crate) struct AdaptiveMedian {
    window: usize,
    prediction: f64,
    bounds: Bounds,
}

impl AdaptiveMedian {
    pub(crate) fn new(start: usize, bounds: Bounds) -> Self {
        Self { window: start, prediction: 0.0, bounds }
    }

    /// Adapts the window to `value`, which `recent` does not contain yet.
    #[inline(always)]
    pub(crate) fn adapt<L: Lanes>(&mut self, lanes: L, value: f64, recent: &AgedWindow) {
        let error = (value - self.prediction).abs();
        let [shorter, longer] = self.bounds.neighbours(self.window);
        let shorter = (value - recent.median_of_last(lanes, shorter)).abs();
        let longer = (value - recent.median_of_last(lanes, longer)).abs();
        self.window = self.bounds.best(self.window, recent.sorted().len(), error, [shorter, longer]);
    }

    /// Computes the new prediction; `recent` contains the value now.
    #[inline(always)]
    pub(crate) fn read<L: Lanes>(&mut self, lanes: L, recent: &AgedWindow) -> f64 {
        self.prediction = recent.median_of_last(lanes, self.window);
        self.prediction
    }
}

/// The mean of an adapting window.
#[derive(Clone, Debug)]
pub(crate) struct AdaptiveMean {
    window: usize,
    prediction: f64,
    bounds: Bounds,
}

impl AdaptiveMean {
    pub(crate) fn new(start: usize, bounds: Bounds) -> Self {
        Self { window: start, prediction: 0.0, bounds }
    }

    /// Adapts the window to `value`, which `recent` does not contain yet.
    pub(crate) fn adapt(&mut self, value: f64, recent: &RecentValues<64>) {
        let error = (value - self.prediction).abs();
        let errors =
            self.bounds.neighbours(self.window).map(|length| (value - recent.mean_of_last(length)).abs());
        self.window = self.bounds.best(self.window, recent.count() as usize, error, errors);
    }

    /// Computes the new prediction; `recent` contains the value now.
    pub(crate) fn read(&mut self, recent: &RecentValues<64>) -> f64 {
        self.prediction = recent.mean_of_last(self.window);
        self.prediction
    }
}

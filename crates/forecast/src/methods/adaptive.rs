//! Medians and means over a window that adapts its length to the data.
//!
//! For each value, the error of the window is compared with the errors of the windows one step
//! shorter and one step longer. The method continues with the window of the least error; on a tie,
//! the window does not change. NWS 2.x `median.c` intends the same comparison, but compares with
//! windows of fixed size. This module implements the intent, as in the adaptive window of Wolski's
//! article of 1998 (docs/references.md).

use super::window::AgedSortedWindow;
use crate::method_sets::RecentValues;

/// Minimum, maximum and step of the length of an adapting window, in values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) min: usize,
    pub(crate) max: usize,
    pub(crate) step: usize,
}

impl Bounds {
    /// Returns the window with the least error on a value, among `window` and the windows one step
    /// shorter and longer. `error` is the error of `window`, and `error_of` returns the error of
    /// any window. `held` is the number of stored values. If the longer window needs more values,
    /// the function returns `window`.
    fn best(self, window: usize, held: usize, error: f64, error_of: impl Fn(usize) -> f64) -> usize {
        let held = held.min(self.max);
        if held < (window + self.step).min(self.max) {
            return window;
        }
        let mut best = (window, error);
        for other in [window.saturating_sub(self.step).max(self.min), (window + self.step).min(self.max)] {
            let error = error_of(other);
            if error < best.1 {
                best = (other, error);
            }
        }
        best.0
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
    pub(crate) fn adapt(&mut self, value: f64, recent: &AgedSortedWindow) {
        let error = (value - self.prediction).abs();
        let error_of = |window| (value - recent.median_of_last(window)).abs();
        self.window = self.bounds.best(self.window, recent.sorted().len(), error, error_of);
    }

    /// Computes the new prediction; `recent` contains the value now.
    pub(crate) fn read(&mut self, recent: &AgedSortedWindow) -> f64 {
        self.prediction = recent.median_of_last(self.window);
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
        let error_of = |window| (value - recent.mean_of_last(window)).abs();
        self.window = self.bounds.best(self.window, recent.count() as usize, error, error_of);
    }

    /// Computes the new prediction; `recent` contains the value now.
    pub(crate) fn read(&mut self, recent: &RecentValues<64>) -> f64 {
        self.prediction = recent.mean_of_last(self.window);
        self.prediction
    }
}

//! Medians and means over a window whose length follows the data.
//!
//! When a value arrives, the statistic of the window and those of windows shorter and longer by
//! a step are compared on it, and the window moves to the best; ties stay. NWS 2.x `median.c`
//! means this and compares with windows of fixed size instead; here the intent is built, as in
//! the 1998 article's adaptive window.

use super::window::Aged;
use crate::banks::Recent;

/// The limits within which a window adapts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) least: usize,
    pub(crate) most: usize,
    pub(crate) step: usize,
}

impl Bounds {
    /// The window in 1 of `held` values that does best on `value`, given what the window in force
    /// predicted and the statistic of any window.
    fn best(self, window: usize, held: usize, error: f64, error_of: impl Fn(usize) -> f64) -> usize {
        let held = held.min(self.most);
        if held < (window + self.step).min(self.most) {
            return window;
        }
        let mut best = (window, error);
        for other in [window.saturating_sub(self.step).max(self.least), (window + self.step).min(self.most)] {
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

    /// Compares windows on `value`, which `recent` does not yet hold.
    pub(crate) fn adapt(&mut self, value: f64, recent: &Aged) {
        let error = (value - self.prediction).abs();
        let error_of = |window| (value - recent.median_of_last(window)).abs();
        self.window = self.bounds.best(self.window, recent.sorted().len(), error, error_of);
    }

    /// Reads the new prediction once `recent` holds the value.
    pub(crate) fn read(&mut self, recent: &Aged) -> f64 {
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

    /// Compares windows on `value`, which `recent` does not yet hold.
    pub(crate) fn adapt(&mut self, value: f64, recent: &Recent<64>) {
        let error = (value - self.prediction).abs();
        let error_of = |window| (value - recent.mean_of_last(window)).abs();
        self.window = self.bounds.best(self.window, recent.count() as usize, error, error_of);
    }

    /// Reads the new prediction once `recent` holds the value.
    pub(crate) fn read(&mut self, recent: &Recent<64>) -> f64 {
        self.prediction = recent.mean_of_last(self.window);
        self.prediction
    }
}

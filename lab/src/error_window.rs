//! Quantiles of the errors of a forecaster that has no intervals of its own.

use std::collections::VecDeque;

use crate::stats::{Rank, quantile};

/// The newest errors, in order and sorted.
#[derive(Debug)]
pub(crate) struct ErrorWindow {
    max: usize,
    newest: VecDeque<f64>,
    sorted: Vec<f64>,
}

impl ErrorWindow {
    /// A window of at most `max` errors.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, newest: VecDeque::new(), sorted: Vec::new() }
    }

    pub(crate) fn push(&mut self, error: f64) {
        if self.newest.len() == self.max
            && let Some(oldest) = self.newest.pop_front()
        {
            self.sorted.remove(self.rank(oldest));
        }
        self.newest.push_back(error);
        self.sorted.insert(self.rank(error), error);
    }

    /// The quantile `share` of the errors; `None` until there are [`ERRORS_MIN`].
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let is_enough = self.sorted.len() >= ERRORS_MIN;
        if is_enough { quantile(&self.sorted, share, Rank::Linear) } else { None }
    }

    fn rank(&self, error: f64) -> usize {
        self.sorted.partition_point(|other| other.total_cmp(&error).is_lt())
    }
}

/// With fewer errors, the ends of an interval at 90 % would be the extreme errors.
pub(crate) const ERRORS_MIN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_newest_errors() {
        let mut window = ErrorWindow::new(21);
        (0..ERRORS_MIN - 1).for_each(|_| window.push(100.0));
        assert_eq!(window.quantile(0.5), None);
        (0..21).rev().for_each(|error| window.push(f64::from(error)));
        assert_eq!([0.0, 0.5, 1.0].map(|share| window.quantile(share)), [Some(0.0), Some(10.0), Some(20.0)]);
    }
}

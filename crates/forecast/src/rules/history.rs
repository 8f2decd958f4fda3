//! The errors of methods on past values.

use alloc::boxed::Box;
use alloc::vec::Vec;

use barograph_lanes::{Lanes, Mask, Numbers};

/// The four longest windows, in values, over which the selectors of NWS 2.x compare methods
/// (`forc.c`: 1, 5, 10, 20, 30, 50, 100). For a window of `n` values, the sum up to the start of
/// the window is computed by adding each error a second time, `n` values later.
pub(crate) const LONG_WINDOWS: [usize; LAGS] = [20, 30, 50, 100];
/// Number of long windows. Each has a lane of its own.
pub(crate) const LAGS: usize = 4;

/// Stores or recomputes the errors of the last values, up to the longest lag.
pub(crate) trait ErrorHistory<const M: usize> {
    fn new() -> Self;

    /// Records value `number` and the errors of the methods on this value. The errors on value 0
    /// have no meaning.
    fn record(&mut self, number: u64, value: f64, errors: &[f64; M]);

    fn heap_bytes(&self) -> usize;

    /// Returns the errors of each method on the values `numbers`, one value for each lag. The
    /// errors are 0 for a number below 2. For each lag, the caller must pass the numbers 2, 3, 4, …
    /// in this order, after any numbers below 2. For each call, the newest recorded value must be
    /// less than `LONG_WINDOWS[lag]` values after the number.
    fn errors_of<L: Lanes>(&mut self, lanes: L, numbers: [u64; LAGS]) -> [[f64; LAGS]; M];
}

/// Stores the errors of all methods.
#[derive(Clone, Debug)]
pub(crate) struct ErrorRing<const M: usize> {
    errors: Box<[[f64; M]]>,
}

impl<const M: usize> ErrorHistory<M> for ErrorRing<M> {
    fn new() -> Self {
        Self { errors: Vec::from([[0.0; M]; LONG_WINDOWS[LAGS - 1]]).into_boxed_slice() }
    }

    fn record(&mut self, number: u64, _value: f64, errors: &[f64; M]) {
        let index = (number % self.errors.len() as u64) as usize;
        self.errors[index] = *errors;
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.errors)
    }

    #[inline(always)]
    fn errors_of<L: Lanes>(&mut self, lanes: L, numbers: [u64; LAGS]) -> [[f64; LAGS]; M] {
        let rows = numbers.map(|number| &self.errors[(number % self.errors.len() as u64) as usize]);
        let counts = lanes.load(&numbers.map(|number| number as f64));
        let is_known = lanes.splat(1.0).less(counts);
        let mut errors = [[0.0; LAGS]; M];
        for (i, error) in errors.iter_mut().enumerate() {
            *error = is_known.select(lanes.load(&rows.map(|row| row[i])), lanes.splat(0.0)).to_array();
        }
        errors
    }
}

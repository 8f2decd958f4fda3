//! The errors that methods made some values ago.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// The longer of the windows, in values, over which the selectors of NWS 2.x compare methods
/// (`forc.c`: 1, 5, 10, 20, 30, 50, 100): where these begin is found by adding up the errors once
/// more, that many values later.
pub(crate) const LAGS: [usize; 4] = [20, 30, 50, 100];

/// Remembers errors for as long as the longest lag.
pub(crate) trait History<const M: usize> {
    fn new() -> Self;

    /// Takes value `number` and the errors made on it (for value 0 there are none).
    fn record(&mut self, number: u64, value: f64, errors: &[f64; M]);

    /// Heap memory in bytes.
    fn heap_bytes(&self) -> usize;

    /// The errors made on value `number`, called once per lag for 2, 3, 4, …, each time when the
    /// newest recorded is less than `LAGS[lag]` after it.
    fn errors_of(&mut self, number: u64, lag: usize) -> [f64; M];
}

/// Simply stores the errors.
#[derive(Clone, Debug)]
pub(crate) struct Ring<const M: usize> {
    errors: Box<[[f64; M]]>,
}

impl<const M: usize> History<M> for Ring<M> {
    fn new() -> Self {
        Self { errors: Vec::from([[0.0; M]; LAGS[LAGS.len() - 1]]).into_boxed_slice() }
    }

    fn record(&mut self, number: u64, _value: f64, errors: &[f64; M]) {
        let place = (number % self.errors.len() as u64) as usize;
        self.errors[place] = *errors;
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.errors)
    }

    fn errors_of(&mut self, number: u64, _lag: usize) -> [f64; M] {
        self.errors[(number % self.errors.len() as u64) as usize]
    }
}

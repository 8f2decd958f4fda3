//! The most recent values in their order of arrival.

/// A ring of the last `N` values; `N` is a power of two, so that a mask gives the index.
#[derive(Clone, Debug)]
pub(crate) struct RecentValues<const N: usize> {
    values: [f64; N],
    count: u64,
}

impl<const N: usize> RecentValues<N> {
    pub(crate) fn new() -> Self {
        const { assert!(N.is_power_of_two()) }
        Self { values: [0.0; N], count: 0 }
    }

    pub(crate) fn push(&mut self, value: f64) {
        self.values[self.count as usize & (N - 1)] = value;
        self.count += 1;
    }

    /// The value `back` positions before the newest value; `back` = 0 is the newest value, and
    /// `back` < `N`. Returns 0 if there is no such value.
    pub(crate) fn ago(&self, back: usize) -> f64 {
        self.values[(self.count as usize).wrapping_sub(1 + back) & (N - 1)]
    }

    /// The mean of the newest `length` values, or the mean of all values if there are fewer.
    /// Returns 0 before the first value. The sum starts with the oldest value.
    pub(crate) fn mean_of_last(&self, length: usize) -> f64 {
        let length = length.min(self.count.min(N as u64) as usize);
        if length == 0 {
            return 0.0;
        }
        (0..length).rev().map(|back| self.ago(back)).sum::<f64>() / length as f64
    }

    /// Number of values pushed since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

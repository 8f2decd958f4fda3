//! The last `N` values in sorted order, and statistics computed from them.

use crate::method_sets::RecentValues;

/// The last `N` values, sorted. The caller stores the order of arrival, and passes the value to
/// remove.
///
/// Equal values are in order of arrival, so the first of them is the oldest.
#[derive(Clone, Debug)]
pub(crate) struct SortedWindow<const N: usize> {
    values: [f64; N],
    len: usize,
}

impl<const N: usize> SortedWindow<N> {
    pub(crate) fn new() -> Self {
        Self { values: [0.0; N], len: 0 }
    }

    /// Inserts `value`; removes `oldest` if the window is full.
    pub(crate) fn push(&mut self, value: f64, oldest: f64) {
        if self.len < N {
            let mut at = self.len;
            while at != 0 && value < self.values[at - 1] {
                self.values[at] = self.values[at - 1];
                at -= 1;
            }
            self.values[at] = value;
            self.len += 1;
        } else {
            let (from, to) = indices(&self.values, oldest, value);
            shift_between(&mut self.values, from, to);
            self.values[to] = value;
        }
    }

    /// The median; for an even number of values, the mean of the two middle values. Returns 0 if
    /// the window is empty.
    pub(crate) fn median(&self) -> f64 {
        let sorted = self.as_slice();
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => 0.0,
            n if n % 2 == 1 => sorted[middle],
            _ => 0.5 * (sorted[middle - 1] + sorted[middle]),
        }
    }

    /// The mean without the `trim` lowest and the `trim` highest values. Returns 0 if no value
    /// remains.
    ///
    /// The sum starts with the least value. If methods have equal errors except for rounding, the
    /// rounding of the sum decides which method is selected. So the order of summation is part of
    /// the definition.
    pub(crate) fn trimmed_mean(&self, trim: usize) -> f64 {
        let kept = &self.as_slice()[trim..self.len.max(2 * trim) - trim];
        if kept.is_empty() { 0.0 } else { kept.iter().sum::<f64>() / kept.len() as f64 }
    }

    /// The quantiles of `shares` (0 to 1), each on a line between the two nearest values. Returns
    /// zeros if the window is empty.
    pub(crate) fn quantiles<const S: usize>(&self, shares: &[f64; S]) -> [f64; S] {
        let last = self.len.saturating_sub(1).min(N - 1);
        shares.map(|share| {
            let position = share * last as f64;
            // The position is not negative and small, so the conversion is exact.
            let below = (position as u32 as usize).min(last);
            let low = self.values[below];
            low + (self.values[(below + 1).min(last)] - low) * (position - below as f64)
        })
    }

    /// The least and the greatest value; both are 0 if the window is empty.
    pub(crate) fn range(&self) -> (f64, f64) {
        let sorted = self.as_slice();
        (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(0.0))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn as_slice(&self) -> &[f64] {
        // The window is usually full, and its size is then a constant.
        if self.len == N { &self.values } else { &self.values[..self.len] }
    }
}

/// Index of `oldest` in a full sorted window, and index of `value` after `oldest` has left.
///
/// Both searches are branch-free and independent of each other, so no misprediction delays the code
/// after them.
fn indices<const N: usize>(values: &[f64; N], oldest: f64, value: f64) -> (usize, usize) {
    let from = values.partition_point(|v| *v < oldest).min(N - 1);
    let to = values.partition_point(|v| *v <= value);
    (from, if from < to { to - 1 } else { to })
}

/// Moves the values between two indices by one, so that `from` is overwritten and `to` is free.
fn shift_between(values: &mut [f64], from: usize, to: usize) {
    if from < to {
        values.copy_within(from + 1..=to, from);
    } else {
        values.copy_within(to..from, to + 1);
    }
}

/// Minimum and maximum of the last `N` values.
#[derive(Clone, Debug)]
pub(crate) struct RollingRange<const N: usize> {
    low: f64,
    high: f64,
    /// Lower bound of forecasts: 0 while no value was below 0, else −∞.
    floor: f64,
}

impl<const N: usize> RollingRange<N> {
    pub(crate) fn new() -> Self {
        Self { low: f64::INFINITY, high: f64::NEG_INFINITY, floor: 0.0 }
    }

    /// Adds `value`, which `recent` contains already. Scans the window again only if the value that
    /// leaves the window was the minimum or the maximum.
    pub(crate) fn push(&mut self, value: f64, recent: &RecentValues<128>) {
        if value < 0.0 {
            self.floor = f64::NEG_INFINITY;
        }
        let gone = recent.ago(N);
        let full = (N as u64) < recent.count();
        if full && (gone <= self.low || self.high <= gone) {
            (self.low, self.high) = (0..N).fold((value, value), |(low, high), back| {
                let v = recent.ago(back);
                (if v < low { v } else { low }, if high < v { v } else { high })
            });
        } else {
            (self.low, self.high) = (self.low.min(value), self.high.max(value));
        }
    }

    /// Bounds for a forecast of the next value ([`widened`]).
    pub(crate) fn widened(&self) -> (f64, f64) {
        widened((self.low, self.high), self.floor)
    }
}

/// Bounds for a forecast of the next value: the range of recent values, widened by a quarter on
/// both sides, but not below `floor`. `floor` is 0 if no value so far was below 0, else −∞.
pub(crate) fn widened((low, high): (f64, f64), floor: f64) -> (f64, f64) {
    let quarter = 0.25 * (high - low);
    let low = low - quarter;
    (if low < floor { floor } else { low }, high + quarter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn median(values: &[f64]) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { 0.5 * (sorted[middle - 1] + sorted[middle]) }
    }

    proptest! {
        #[test]
        fn window_medians_equal_the_medians_of_the_sorted_last_values(
            values in prop::collection::vec((0u8..20).prop_map(f64::from), 1..200)
        ) {
            let mut sorted = SortedWindow::<31>::new();
            for (i, value) in values.iter().enumerate() {
                sorted.push(*value, if i < 31 { 0.0 } else { values[i - 31] });
                let tail = |n: usize| &values[(i + 1).saturating_sub(n)..=i];
                prop_assert_eq!(sorted.median(), median(tail(31)));
            }
        }
    }
}

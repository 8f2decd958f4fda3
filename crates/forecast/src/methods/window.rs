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
fn shift_between<T: Copy>(values: &mut [T], from: usize, to: usize) {
    if from < to {
        values.copy_within(from + 1..=to, from);
    } else {
        values.copy_within(to..from, to + 1);
    }
}

/// Maximum number of values in an [`AgedSortedWindow`].
pub(crate) const AGED_LEN: usize = 51;
/// Number of 64-bit words that contain the ages, eight ages in each word.
const WORDS: usize = AGED_LEN.div_ceil(8);
/// Age of an empty slot. This age is greater than the length of any window.
const NO_AGE: u8 = 127;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The last 51 values, sorted, each with its age. The age of a value is the number of newer values.
/// The median of any shorter window of the most recent values can be read without another sort.
///
/// Ages are bytes, eight in a word. A median is found by counting the ages below the window's
/// length, a word at a time, until half of them are counted.
#[derive(Clone, Debug)]
pub(crate) struct AgedSortedWindow {
    sorted: SortedWindow<AGED_LEN>,
    ages: [u8; WORDS * 8],
}

impl AgedSortedWindow {
    pub(crate) fn new() -> Self {
        Self { sorted: SortedWindow::new(), ages: [NO_AGE; WORDS * 8] }
    }

    pub(crate) fn push(&mut self, value: f64, oldest: f64) {
        let (from, to) = if self.sorted.len < AGED_LEN {
            let held = self.sorted.len;
            self.sorted.len += 1;
            (held, self.sorted.values[..held].partition_point(|v| *v <= value))
        } else {
            indices(&self.sorted.values, oldest, value)
        };
        self.increment_ages();
        shift_between(&mut self.sorted.values, from, to);
        shift_between(&mut self.ages, from, to);
        self.sorted.values[to] = value;
        self.ages[to] = 0;
    }

    pub(crate) fn sorted(&self) -> &SortedWindow<AGED_LEN> {
        &self.sorted
    }

    /// The median of the most recent `length` values. `length` is limited to the range from 1 to
    /// the number of stored values.
    pub(crate) fn median_of_last(&self, length: usize) -> f64 {
        let length = length.clamp(1, self.sorted.len.max(1));
        let bound = ONES * length as u64;
        // A value is young if its age is below `length`. `left` is the number of young values below
        // the middle value, or below the lower of the two middle values.
        let mut left = (length as u64 - 1) / 2;
        for word in 0..WORDS {
            let young = self.ages_below(word, bound);
            // Byte i of the product is the number of young bytes among 0..=i.
            let prefix = young.wrapping_mul(ONES);
            let count = prefix >> 56;
            if left < count {
                let reached = ((prefix | HIGH) - ONES * (left + 1)) & HIGH;
                let at = reached.trailing_zeros() as usize / 8;
                let first = self.sorted.values[(word * 8 + at).min(AGED_LEN - 1)];
                if length % 2 == 1 {
                    return first;
                }
                // Use two shifts in each direction, because a single shift by 64 bits overflows.
                let rest = young >> (at * 8) >> 8 << 8 << (at * 8);
                return 0.5 * (first + self.next_below(word, rest, bound));
            }
            left -= count;
        }
        0.0
    }

    fn next_below(&self, mut word: usize, mut young: u64, bound: u64) -> f64 {
        while young == 0 && word + 1 < WORDS {
            word += 1;
            young = self.ages_below(word, bound);
        }
        self.sorted.values[(word * 8 + young.trailing_zeros() as usize / 8).min(AGED_LEN - 1)]
    }

    /// Returns a word with a 1 in each byte with an age below the window's length, and a 0 in each
    /// other byte. `bound` contains the window's length in every byte.
    fn ages_below(&self, word: usize, bound: u64) -> u64 {
        !((self.word(word) | HIGH) - bound) >> 7 & ONES
    }

    fn word(&self, word: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.ages[word * 8..word * 8 + 8]);
        u64::from_le_bytes(bytes)
    }

    fn increment_ages(&mut self) {
        let len = self.sorted.len;
        for age in &mut self.ages {
            *age = age.wrapping_add(1);
        }
        for age in &mut self.ages[len..] {
            *age = NO_AGE;
        }
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

    /// Bounds for a forecast of the next value: the range, widened by a quarter on both sides, but
    /// not below 0 if no value so far was below 0.
    pub(crate) fn widened(&self) -> (f64, f64) {
        let quarter = 0.25 * (self.high - self.low);
        let low = self.low - quarter;
        (if low < self.floor { self.floor } else { low }, self.high + quarter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
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
            let mut aged = AgedSortedWindow::new();
            for (i, value) in values.iter().enumerate() {
                sorted.push(*value, if i < 31 { 0.0 } else { values[i - 31] });
                aged.push(*value, if i < AGED_LEN { 0.0 } else { values[i - AGED_LEN] });
                let tail = |n: usize| &values[(i + 1).saturating_sub(n)..=i];
                prop_assert_eq!(sorted.median(), median(tail(31)));
                for length in 1..=AGED_LEN.min(i + 1) {
                    prop_assert_eq!(aged.median_of_last(length), median(tail(length)));
                }
                let mut kept: Vec<f64> = tail(AGED_LEN).to_vec();
                kept.sort_by(f64::total_cmp);
                let trim = kept.len() * 3 / 10;
                let kept = &kept[trim..kept.len() - trim];
                prop_assert_eq!(aged.sorted().trimmed_mean(trim), kept.iter().sum::<f64>() / kept.len() as f64);
            }
        }
    }
}

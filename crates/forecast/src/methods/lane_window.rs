//! Sorted windows that are updated four values at a time, without branches.

use barograph_lanes::{Lanes, Mask, Numbers};

/// The last `N` values in sorted order, as [`super::window::SortedWindow`] has them.
///
/// `S` is the number of slots: four of −∞, then those of the values, then those of +∞. There are
/// `N` slots of values, rounded up to a multiple of four; those that hold no value yet are +∞. The
/// infinities spare the update every special case at the ends.
#[derive(Clone, Debug)]
pub(crate) struct LaneWindow<const N: usize, const S: usize> {
    slots: [f64; S],
    len: usize,
}

/// Number of slots before the first value.
const BEFORE: usize = 4;

impl<const N: usize, const S: usize> LaneWindow<N, S> {
    pub(crate) fn new() -> Self {
        const { assert!(S == BEFORE + N.next_multiple_of(4) + 4) }
        let mut slots = [f64::INFINITY; S];
        slots[..BEFORE].fill(f64::NEG_INFINITY);
        Self { slots, len: 0 }
    }

    /// Inserts `value`, after values that are equal; if the window is full, removes `oldest`, or
    /// the first of the values that are equal to it. Returns the index of the slot that became
    /// free, and the index of `value` after the slot had been removed.
    #[inline(always)]
    pub(crate) fn push<L: Lanes>(&mut self, lanes: L, value: f64, oldest: f64) -> [usize; 2] {
        // While the window is not full, the first empty slot is removed.
        let oldest = if self.len < N { f64::INFINITY } else { oldest };
        self.len = (self.len + 1).min(N);
        let (value, oldest) = (lanes.splat(value), lanes.splat(oldest));
        let (zero, one) = (lanes.splat(0.0), lanes.splat(1.0));
        let [mut from, mut to] = [zero; 2];
        let mut previous = self.load(lanes, BEFORE - 1);
        for at in (BEFORE..S - 4).step_by(4) {
            let (current, next) = (self.load(lanes, at), self.load(lanes, at + 1));
            // Loaded before its first value is overwritten.
            let previous_of_next = self.load(lanes, at + 3);
            let stays = current.less(oldest);
            let shifted = stays.select(current, next);
            let shifted_previous = previous.less(oldest).select(previous, current);
            let is_lower = shifted.less_or_equal(value);
            let inserted = shifted_previous.less_or_equal(value).select(value, shifted_previous);
            self.slots[at..at + 4].copy_from_slice(&is_lower.select(shifted, inserted).to_array());
            from = from + stays.select(one, zero);
            to = to + is_lower.select(one, zero);
            previous = previous_of_next;
        }
        [from, to].map(|counts| counts.to_array().iter().sum::<f64>() as usize)
    }

    #[inline(always)]
    fn load<L: Lanes>(&self, lanes: L, at: usize) -> L::Numbers {
        lanes.load(self.slots[at..].first_chunk().expect("there are four slots after the last value"))
    }

    /// The median; for an even number of values, the mean of the two middle values. Returns 0 if
    /// the window is empty.
    #[inline(always)]
    pub(crate) fn median(&self) -> f64 {
        match self.len {
            0 => 0.0,
            // For an odd number of values, both indices are that of the middle value, and half of
            // its double is the value itself.
            len => 0.5 * (self.slots[BEFORE + (len - 1) / 2] + self.slots[BEFORE + len / 2]),
        }
    }

    /// The mean without the lowest and the highest values, `trim(n)` each for `n` values. Returns 0
    /// if no value remains. The sum starts with the least value; the order of summation is part of
    /// the definition.
    #[inline(always)]
    pub(crate) fn trimmed_mean(&self, trim: impl Fn(usize) -> usize) -> f64 {
        let mean = |len: usize| {
            let trim = trim(len);
            let kept = &self.slots[BEFORE + trim..BEFORE + len.max(2 * trim) - trim];
            if kept.is_empty() { 0.0 } else { kept.iter().sum::<f64>() / kept.len() as f64 }
        };
        // The window is usually full, and the number of terms is then a constant.
        if self.len == N { mean(N) } else { mean(self.len) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Maximum number of values in an [`AgedWindow`].
pub(crate) const AGED_LEN: usize = 51;
/// Age of an empty slot, and the greatest age. It is greater than the length of any window.
const NO_AGE: u8 = 127;

/// The last 51 values, sorted, each with its age. The median of any shorter window of the most
/// recent values can be read without another sort.
#[derive(Clone, Debug)]
pub(crate) struct AgedWindow {
    sorted: LaneWindow<AGED_LEN, 60>,
    ages: Ages,
}

impl AgedWindow {
    pub(crate) fn new() -> Self {
        Self { sorted: LaneWindow::new(), ages: Ages([NO_AGE; 66]) }
    }

    #[inline(always)]
    pub(crate) fn push<L: Lanes>(&mut self, lanes: L, value: f64, oldest: f64) {
        let [from, to] = self.sorted.push(lanes, value, oldest);
        self.ages.push(lanes, from, to);
    }

    pub(crate) fn sorted(&self) -> &LaneWindow<AGED_LEN, 60> {
        &self.sorted
    }

    /// The median of the most recent `length` values. `length` is limited to the range from 1 to
    /// the number of stored values.
    #[inline(always)]
    pub(crate) fn median_of_last<L: Lanes>(&self, lanes: L, length: usize) -> f64 {
        if self.sorted.len == 0 {
            return 0.0;
        }
        let middle = self.ages.middle_of_last(lanes, length.clamp(1, self.sorted.len));
        let [lower, upper] = middle.map(|index| self.sorted.slots[(BEFORE + index).min(59)]);
        0.5 * (lower + upper)
    }
}

/// The ages of the values of a sorted window. The age of a value is the number of newer values. The
/// age of the value with index `i` is byte `i + 1`.
#[derive(Clone, Debug)]
struct Ages([u8; 66]);

impl Ages {
    /// Removes index `from`, then inserts the newest value at index `to`.
    #[inline(always)]
    fn push<L: Lanes>(&mut self, lanes: L, from: usize, to: usize) {
        lanes.age_bytes(&mut self.0, from as u8, to as u8);
    }

    /// Indices of the two middle values of the most recent `length` values; twice the same index
    /// for an odd length. `length` is from 1 to the number of values.
    #[inline(always)]
    fn middle_of_last<L: Lanes>(&self, lanes: L, length: usize) -> [usize; 2] {
        let ages = self.0[1..].first_chunk().expect("66 ages");
        // Bit i is 1 if the value with index i is in the window.
        let young = lanes.bytes_below(ages, length as u8);
        let lower = lanes.nth_bit(young, (length as u64 - 1) / 2);
        let above = (young >> lower >> 1 << 1 << lower).trailing_zeros();
        let upper = if length % 2 == 1 { lower } else { above };
        [lower as usize, upper as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::window::SortedWindow;
    use alloc::vec::Vec;
    use barograph_lanes::Portable;
    use proptest::prelude::*;

    fn median(values: &[f64]) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[middle] } else { 0.5 * (sorted[middle - 1] + sorted[middle]) }
    }

    proptest! {
        #[test]
        fn windows_equal_those_that_are_updated_value_by_value(
            values in prop::collection::vec(
                prop_oneof![(0u8..20).prop_map(f64::from), prop::sample::select(alloc::vec![0.0, -0.0, 1e70])],
                1..200,
            )
        ) {
            let mut by_one = SortedWindow::<31>::new();
            let mut by_four = LaneWindow::<31, 40>::new();
            let mut aged = AgedWindow::new();
            for (i, value) in values.iter().enumerate() {
                let ago = |n: usize| if i < n { 0.0 } else { values[i - n] };
                by_one.push(*value, ago(31));
                by_four.push(Portable, *value, ago(31));
                aged.push(Portable, *value, ago(AGED_LEN));
                prop_assert_eq!(by_four.median().to_bits(), by_one.median().to_bits());
                for tenths in [0, 3] {
                    let (ours, theirs) =
                        (by_four.trimmed_mean(|len| len * tenths / 10), by_one.trimmed_mean(by_one.len() * tenths / 10));
                    prop_assert_eq!(ours.to_bits(), theirs.to_bits());
                }
                let tail = |n: usize| &values[(i + 1).saturating_sub(n)..=i];
                for length in 1..=AGED_LEN.min(i + 1) {
                    prop_assert_eq!(aged.median_of_last(Portable, length), median(tail(length)));
                }
                let mut kept: Vec<f64> = tail(AGED_LEN).to_vec();
                kept.sort_by(f64::total_cmp);
                let trim = kept.len() * 3 / 10;
                let kept = &kept[trim..kept.len() - trim];
                prop_assert_eq!(aged.sorted().trimmed_mean(|_| trim), kept.iter().sum::<f64>() / kept.len() as f64);
            }
        }
    }
}

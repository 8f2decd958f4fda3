//! Sorted windows of four series.

use barograph_lanes::{Lanes, Mask, Numbers};

use super::state::{Cells, LANES};
use crate::methods::lane_window::{AGED_LEN, AgedWindow, Ages, LaneWindow};

/// The last `N` values of four series, each sorted; all windows are full.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
pub(super) struct Windows<const N: usize> {
    slots: [[f64; LANES]; N],
}

impl<const N: usize> Windows<N> {
    pub(super) fn of<const S: usize>(windows: [&LaneWindow<N, S>; LANES]) -> Self {
        let columns = windows.map(LaneWindow::full);
        Self { slots: core::array::from_fn(|i| columns.map(|column| column[i])) }
    }

    /// Does what [`LaneWindow::push`] does for one series.
    #[inline(always)]
    pub(super) fn push<L: Lanes>(
        &mut self,
        lanes: L,
        value: L::Numbers,
        oldest: L::Numbers,
    ) -> [L::Numbers; 2] {
        let (zero, one) = (lanes.splat(0.0), lanes.splat(1.0));
        let [mut from, mut to] = [zero; 2];
        let mut current = lanes.load(&self.slots[0]);
        // What the slot gets if the value's place is before it.
        let mut inserted = value;
        for i in 0..N {
            let next = if i + 1 < N { self.slots[i + 1] } else { [f64::INFINITY; LANES] };
            let next = lanes.load(&next);
            let stays = current.less(oldest);
            let shifted = stays.select(current, next);
            let is_lower = shifted.less_or_equal(value);
            self.slots[i] = is_lower.select(shifted, inserted).to_array();
            inserted = is_lower.select(value, shifted);
            from = from + stays.select(one, zero);
            to = to + is_lower.select(one, zero);
            current = next;
        }
        [from, to]
    }

    /// The medians; `N` is odd.
    #[inline(always)]
    pub(super) fn medians(&self) -> [f64; LANES] {
        const { assert!(N % 2 == 1) }
        self.slots[N / 2]
    }

    /// The means without the `trim` lowest and the `trim` highest values, summed in ascending
    /// order.
    #[inline(always)]
    pub(super) fn trimmed_means<L: Lanes>(&self, lanes: L, trim: usize) -> [f64; LANES] {
        let kept = &self.slots[trim..N - trim];
        let mut sum = lanes.splat(-0.0);
        for values in kept {
            sum = sum + lanes.load(values);
        }
        (sum / lanes.splat(kept.len() as f64)).to_array()
    }

    pub(super) fn for_each(&mut self, visit: &mut Cells) {
        self.slots.iter_mut().for_each(visit);
    }
}

/// The last 51 values of four series, each sorted, with their ages.
#[derive(Clone, Debug)]
#[repr(C, align(32))]
pub(super) struct AgedWindows {
    pub(super) sorted: Windows<AGED_LEN>,
    pub(super) ages: [Ages; LANES],
}

impl AgedWindows {
    pub(super) fn of(windows: [&AgedWindow; LANES]) -> Self {
        let sorted = Windows::of(windows.map(AgedWindow::sorted));
        Self { sorted, ages: windows.map(|window| window.ages().clone()) }
    }

    #[inline(always)]
    pub(super) fn push<L: Lanes>(&mut self, lanes: L, value: L::Numbers, oldest: L::Numbers) {
        let [from, to] = self.sorted.push(lanes, value, oldest);
        let (from, to) = (from.to_array(), to.to_array());
        for (lane, ages) in self.ages.iter_mut().enumerate() {
            ages.push(lanes, from[lane] as usize, to[lane] as usize);
        }
    }

    /// For each series, the median of as many recent values as `lengths` says.
    #[inline(always)]
    pub(super) fn medians_of_last<L: Lanes>(&self, lanes: L, lengths: [usize; LANES]) -> L::Numbers {
        let slots = &self.sorted.slots;
        let (mut lower, mut upper) = ([0.0; LANES], [0.0; LANES]);
        for (lane, (ages, length)) in self.ages.iter().zip(lengths).enumerate() {
            let [low, high] = ages.middle_of_last(lanes, length);
            lower[lane] = slots[low.min(AGED_LEN - 1)][lane];
            upper[lane] = slots[high.min(AGED_LEN - 1)][lane];
        }
        lanes.splat(0.5) * (lanes.load(&lower) + lanes.load(&upper))
    }
}

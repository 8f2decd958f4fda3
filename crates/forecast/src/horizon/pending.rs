//! Forecasts that wait for their values, oldest first.

use alloc::vec::Vec;
use core::ops::Range;

use super::candidates::OFFSETS;
use super::combination::PARTS;

/// What was forecast for one kind of target, kept until the values are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct IssuedForecast {
    /// For each objective: the forecasts of the parts of the rule.
    pub(crate) parts: [[f64; PARTS]; 2],
    /// The forecast for squared error, and the forecast for absolute error.
    pub(crate) forecast: [f64; 2],
    /// Mean distance of the waiting forecasts, in half-widths.
    pub(crate) distance: f64,
    /// Unit of the half-widths of the intervals.
    pub(crate) scale: f64,
}

/// One forecast that waits, or waited, for its values.
#[derive(Clone, Debug)]
pub(crate) struct PendingForecast {
    /// The value that ends the horizon has this key: the number of the value, or its time.
    pub(crate) due: f64,
    /// The newest value when the forecast was issued, and the unit of `offsets`.
    pub(crate) origin: f64,
    pub(crate) unit: f64,
    /// Distances of the candidates from `origin`, in units of `unit`.
    pub(crate) offsets: [f32; OFFSETS],
    /// For the mean and for the value at the horizon.
    pub(crate) issued: [IssuedForecast; 2],
}

/// A ring of waiting forecasts. A ring of a horizon in values never grows; a ring of a horizon in
/// seconds grows until a whole horizon fits.
#[derive(Clone, Debug)]
pub(crate) struct PendingForecasts {
    slots: Vec<PendingForecast>,
    /// For each slot: sum and number of the values since its forecast was issued.
    sums: Vec<f64>,
    counts: Vec<f64>,
    /// For each slot and kind of target: the median that was forecast, and 1 ÷ the half-width of
    /// its interval at 90 %, or 0 if the slot is free or has no interval.
    medians: Vec<[f64; 2]>,
    inverse_halves: Vec<[f64; 2]>,
    /// For each slot: half-widths of the intervals and ends of the quantiles that were issued, in
    /// units of the scale of the slot; first those of the mean.
    factors: Vec<f64>,
    factors_len: usize,
    first: usize,
    len: usize,
    len_max: usize,
}

impl PendingForecasts {
    /// Creates a ring for at most `len_max` forecasts, with `factors_len` factors each.
    pub(crate) fn new(len_max: usize, factors_len: usize) -> Self {
        Self {
            slots: Vec::new(),
            sums: Vec::new(),
            counts: Vec::new(),
            medians: Vec::new(),
            inverse_halves: Vec::new(),
            factors: Vec::new(),
            factors_len,
            first: 0,
            len: 0,
            len_max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn has_room(&self) -> bool {
        self.len < self.len_max
    }

    pub(crate) fn clear(&mut self) {
        (self.first, self.len) = (0, 0);
        self.inverse_halves.fill([0.0; 2]);
    }

    /// Adds `value` to the sum of every waiting forecast.
    ///
    /// Free slots are added to as well, so that the loop has no branch and is vectorised.
    pub(crate) fn add(&mut self, value: f64) {
        for sum in &mut self.sums {
            *sum += value;
        }
        for count in &mut self.counts {
            *count += 1.0;
        }
    }

    /// Adds a forecast; the caller has checked that there is room. `halves` are the half-widths of
    /// the intervals at 90 %, and `factors` those of all levels, and the ends of the quantiles, in
    /// units of the scale.
    pub(crate) fn push(
        &mut self,
        forecast: PendingForecast,
        halves: [Option<f64>; 2],
        factors: impl Iterator<Item = f64>,
    ) {
        let slot = self.free_slot();
        self.medians[slot] = [forecast.issued[0].forecast[1], forecast.issued[1].forecast[1]];
        self.inverse_halves[slot] =
            halves.map(|half| half.filter(|half| *half > 0.0).map_or(0.0, |half| 1.0 / half));
        self.slots[slot] = forecast;
        (self.sums[slot], self.counts[slot]) = (0.0, 0.0);
        let range = self.range(slot);
        for (kept, factor) in self.factors[range].iter_mut().zip(factors) {
            *kept = factor;
        }
        self.len += 1;
    }

    /// Slot of the oldest waiting forecast.
    pub(crate) fn oldest(&self) -> Option<usize> {
        (self.len != 0).then_some(self.first)
    }

    /// Removes the oldest forecast. Its slot can be read until the next [`Self::push`].
    pub(crate) fn pop(&mut self) {
        self.inverse_halves[self.first] = [0.0; 2];
        self.first = (self.first + 1) % self.slots.len().max(1);
        self.len -= 1;
    }

    /// How far the waiting forecasts of the means (0) or values (1) are from what is now expected
    /// of their targets: the mean distance in half-widths, each at most [`DISTANCE_MAX`]. `median`
    /// is the present forecast, and a window has `length` values. 0 if no waiting forecast has an
    /// interval.
    pub(crate) fn distance(&self, of: usize, median: f64, length: f64) -> f64 {
        // Four sums, so that an addition need not wait for the one before.
        let (mut sums, mut counts) = ([0.0; 4], [0.0; 4]);
        for (i, inverse_half) in self.inverse_halves.iter().enumerate() {
            let left = if self.counts[i] < length { length - self.counts[i] } else { 0.0 };
            let expected = match of {
                0 => (self.sums[i] + left * median) / (self.counts[i] + left),
                _ => median,
            };
            let distance = (expected - self.medians[i][of]).abs() * inverse_half[of];
            sums[i % 4] += if distance < DISTANCE_MAX { distance } else { DISTANCE_MAX };
            counts[i % 4] += if inverse_half[of] > 0.0 { 1.0 } else { 0.0 };
        }
        let count = (counts[0] + counts[1]) + (counts[2] + counts[3]);
        if count > 0.0 { ((sums[0] + sums[1]) + (sums[2] + sums[3])) / count } else { 0.0 }
    }

    pub(crate) fn slot(&self, slot: usize) -> &PendingForecast {
        &self.slots[slot]
    }

    /// Sum and number of the values since the forecast in `slot` was issued.
    pub(crate) fn window(&self, slot: usize) -> (f64, f64) {
        (self.sums[slot], self.counts[slot])
    }

    pub(crate) fn factors(&self, slot: usize) -> &[f64] {
        &self.factors[self.range(slot)]
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<PendingForecast>()
            + (self.medians.capacity() + self.inverse_halves.capacity()) * size_of::<[f64; 2]>()
            + (self.sums.capacity() + self.counts.capacity() + self.factors.capacity()) * size_of::<f64>()
    }

    fn range(&self, slot: usize) -> Range<usize> {
        slot * self.factors_len..(slot + 1) * self.factors_len
    }

    /// Slot for the next forecast. If all slots wait, a slot is inserted before the oldest one.
    fn free_slot(&mut self) -> usize {
        if self.len < self.slots.len() {
            return (self.first + self.len) % self.slots.len();
        }
        // The slots must be in order, so that the new slot is the last.
        self.slots.rotate_left(self.first);
        self.sums.rotate_left(self.first);
        self.counts.rotate_left(self.first);
        self.medians.rotate_left(self.first);
        self.inverse_halves.rotate_left(self.first);
        self.factors.rotate_left(self.first * self.factors_len);
        self.first = 0;
        self.slots.push(PendingForecast {
            due: 0.0,
            origin: 0.0,
            unit: 1.0,
            offsets: [0.0; OFFSETS],
            issued: [IssuedForecast::default(); 2],
        });
        self.sums.push(0.0);
        self.counts.push(0.0);
        self.medians.push([0.0; 2]);
        self.inverse_halves.push([0.0; 2]);
        self.factors.resize(self.slots.len() * self.factors_len, 0.0);
        self.slots.len() - 1
    }
}

/// Largest distance of a waiting forecast, in half-widths.
const DISTANCE_MAX: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(due: f64) -> PendingForecast {
        PendingForecast {
            due,
            origin: 0.0,
            unit: 1.0,
            offsets: [0.0; OFFSETS],
            issued: [IssuedForecast::default(); 2],
        }
    }

    #[test]
    fn forecasts_leave_in_order_with_the_sums_of_their_values() {
        let mut pending = PendingForecasts::new(8, 1);
        let mut waiting = alloc::collections::VecDeque::new();
        for value in 0..200_u32 {
            pending.add(f64::from(value));
            for (_, sum) in &mut waiting {
                *sum += f64::from(value);
            }
            // The number of waiting forecasts goes up and down.
            while pending.len() > (value as usize * 7) % 8 {
                let slot = pending.oldest().expect("one waits");
                let (due, sum) = waiting.pop_front().expect("one waits");
                assert_eq!((pending.slot(slot).due, pending.window(slot).0), (due, sum));
                assert_eq!(pending.factors(slot), [due]);
                pending.pop();
            }
            if pending.has_room() {
                let due = f64::from(value);
                pending.push(forecast(due), [None, Some(0.5)], core::iter::once(due));
                waiting.push_back((due, 0.0));
            }
        }
        // The medians are 0, and the half-widths of the values 0.5.
        assert_eq!((pending.distance(0, 1.5, 8.0), pending.distance(1, 1.5, 8.0)), (0.0, 3.0));
        assert_eq!(pending.distance(1, 0.25, 8.0), 0.5);
        assert_eq!(pending.len(), waiting.len());
        pending.clear();
        assert_eq!(pending.oldest(), None);
    }
}

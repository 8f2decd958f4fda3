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
    /// For each slot: half-widths of the intervals that were issued, in units of the scale of the
    /// slot; first those of the mean.
    factors: Vec<f64>,
    factors_len: usize,
    first: usize,
    len: usize,
    len_max: usize,
}

impl PendingForecasts {
    /// Creates a ring for at most `len_max` forecasts, with `factors_len` half-widths each.
    pub(crate) fn new(len_max: usize, factors_len: usize) -> Self {
        Self {
            slots: Vec::new(),
            sums: Vec::new(),
            counts: Vec::new(),
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

    /// Adds a forecast; the caller has checked that there is room. `factors` are the half-widths of
    /// the intervals.
    pub(crate) fn push(&mut self, forecast: PendingForecast, factors: impl Iterator<Item = f64>) {
        let slot = self.free_slot();
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
        self.first = (self.first + 1) % self.slots.len().max(1);
        self.len -= 1;
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
        self.factors.resize(self.slots.len() * self.factors_len, 0.0);
        self.slots.len() - 1
    }
}

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
                pending.push(forecast(due), core::iter::once(due));
                waiting.push_back((due, 0.0));
            }
        }
        assert_eq!(pending.len(), waiting.len());
        pending.clear();
        assert_eq!(pending.oldest(), None);
    }
}

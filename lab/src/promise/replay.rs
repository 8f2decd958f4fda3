//! A series of goodput that carries transfers.

use barograph_study::input::Sample;

/// What a series of goodput has moved at each of its values, if the values are Mbit/s.
pub(super) struct Replay {
    times_s: Vec<f64>,
    /// Bits moved since the first value.
    bits: Vec<f64>,
}

impl Replay {
    /// A value is the rate since the value before it; the first one moves nothing.
    pub(super) fn new(samples: &[Sample]) -> Self {
        let mut moved = 0.0;
        let bits = samples.iter().enumerate().map(|(index, sample)| {
            let before_s = samples[index.saturating_sub(1)].time_s;
            moved += 1e6 * sample.value.max(0.0) * (sample.time_s - before_s);
            moved
        });
        Self { bits: bits.collect(), times_s: samples.iter().map(|sample| sample.time_s).collect() }
    }

    /// Seconds that a transfer of `bits` takes if it begins at the value `from`; `None` if the
    /// series ends before it does.
    pub(super) fn transfer_s(&self, from: usize, bits: f64) -> Option<f64> {
        let goal = self.bits[from] + bits;
        let end = self.bits.partition_point(|moved| *moved < goal);
        let (before, after) = (*self.bits.get(end.checked_sub(1)?)?, *self.bits.get(end)?);
        let (start_s, end_s) = (self.times_s[end - 1], self.times_s[end]);
        Some(start_s + (end_s - start_s) * (goal - before) / (after - before) - self.times_s[from])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_ends_within_an_interval_between_values() {
        let samples = [(0.0, 99.0), (1.0, 2.0), (2.0, 0.0), (4.0, 4.0)];
        let replay = Replay::new(&samples.map(|(time_s, value)| Sample { time_s, value }));
        assert_eq!(replay.transfer_s(0, 1e6), Some(0.5));
        assert_eq!(replay.transfer_s(0, 6e6), Some(3.0));
        assert_eq!(replay.transfer_s(1, 2e6), Some(1.5));
        assert_eq!(replay.transfer_s(1, 8e6), Some(3.0));
        assert_eq!(replay.transfer_s(1, 9e6), None);
    }
}

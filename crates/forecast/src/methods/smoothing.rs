//! Means that need no window: the mean of all values, and means with exponentially fading weights.

/// Mean of all values (NWS 2.x `run_mean.c`; Wolski 1998 §3.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunningMean {
    total: f64,
}

impl RunningMean {
    pub(crate) fn learn(&mut self, value: f64) {
        self.total += value;
    }

    /// The mean of the `count` values learned so far; `count` ≥ 1.
    pub(crate) fn predict(&self, count: u64) -> f64 {
        self.total / count as f64
    }
}

/// `N` exponential smoothers: `s += g (v − s)`, started at the first value. NWS 2.x has the same
/// smoothers in `exp_smooth.c`, but starts them at 0, which is a defect.
///
/// The smoothers are stored side by side, so that the compiler vectorises their update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Smoothers<const N: usize> {
    levels: [f64; N],
}

impl<const N: usize> Smoothers<N> {
    pub(crate) fn new() -> Self {
        Self { levels: [0.0; N] }
    }

    pub(crate) fn start(&mut self, value: f64) {
        self.levels = [value; N];
    }

    pub(crate) fn learn(&mut self, value: f64, gains: &[f64; N]) {
        for (level, gain) in self.levels.iter_mut().zip(gains) {
            *level += gain * (value - *level);
        }
    }

    pub(crate) fn predict(&self) -> &[f64; N] {
        &self.levels
    }
}

//! Waits after failures. Each wait is about twice as long as the wait before, within limits. Jitter
//! from a seed changes each wait.

use std::time::Duration;

/// Waits of one link. Equal seeds give equal waits.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    state: u64,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration, seed: u64) -> Self {
        Self { min, max, state: seed }
    }

    /// Random wait after `failures` failures in a row; `failures` is at least 1. The longest wait
    /// is `min · 2^(failures − 1)`, but at most `max` and at most two hours. The shortest wait is
    /// half the longest wait. The jitter separates links that failed together.
    pub(super) fn wait(&mut self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let whole = self.min.saturating_mul(doubled).min(self.max).min(crate::MAX_TIMEOUT);
        let share = (self.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        whole.mul_f64(0.5 + 0.5 * share)
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014,
    /// §2).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_bounds_and_jitter() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut backoff = Backoff::new(min, max, 7);
        for failures in 1..200 {
            let whole = min.saturating_mul(2_u32.saturating_pow(failures - 1)).min(max);
            let wait = backoff.wait(failures);
            assert!((whole / 2..=whole).contains(&wait), "{wait:?} after {failures}");
        }
        assert_ne!(backoff.wait(1), backoff.wait(1));
    }

    #[test]
    fn no_bounds_cause_a_panic() {
        assert_eq!(Backoff::new(Duration::ZERO, Duration::ZERO, 1).wait(u32::MAX), Duration::ZERO);
        assert!(Backoff::new(Duration::MAX, Duration::MAX, 1).wait(9) <= crate::MAX_TIMEOUT);
    }
}

//! Seeded traffic of others, which shares the bottleneck with the tests.

use barograph_sim::Chance;

/// How the others' share of the bottleneck varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Around one mean (the paper's Los Nettos, figures 1 to 4).
    Stationary,
    /// Around a mean that jumps every two hours or so (the paper's vBNS, figures 5 to 9).
    Shifting,
}

impl Weather {
    /// The others' share of the bottleneck, 0 to 1, in each step; [`STEPS`] of them are a cycle of tests.
    pub(crate) fn shares(self, seed: u64, steps: usize) -> Vec<f64> {
        let (mut noise, mut shifts) = (Chance::new(seed, 11), Chance::new(seed, 12));
        let mut level = LEVEL;
        let mut until = match self {
            Self::Stationary => f64::INFINITY,
            Self::Shifting => 0.0,
        };
        let mut state = 0.0;
        let step = |step: usize| {
            if until <= step as f64 {
                level = LEVEL_MIN + (LEVEL_MAX - LEVEL_MIN) * shifts.uniform();
                until = step as f64 + shifts.exponential(SHIFT_EVERY);
            }
            state = MEMORY * state + (1.0 - MEMORY * MEMORY).sqrt() * noise.normal();
            (level + NOISE * state).clamp(0.0, SHARE_MAX)
        };
        (0..steps).map(step).collect()
    }
}

/// The share changes every half minute of the paper's time, so that a test of ten seconds sees one or two of them.
pub(crate) const STEPS: usize = 10;

/// A third of the path is others' on the stationary link, and deviates by a tenth; what there was half a minute ago
/// tells half of what is now, and nothing five minutes later, when the next test of that length comes.
const LEVEL: f64 = 0.35;
const NOISE: f64 = 0.1;
const MEMORY: f64 = 0.5;

/// On the other link the mean jumps anywhere between nearly idle and crowded, after two hours on average.
const LEVEL_MIN: f64 = 0.05;
const LEVEL_MAX: f64 = 0.8;
const SHIFT_EVERY: f64 = 24.0 * STEPS as f64;

/// Something is left over, or a test would not end in time.
const SHARE_MAX: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{mean, range};

    #[test]
    fn only_one_of_the_links_has_a_mean_that_moves() {
        let hours = |weather: Weather| {
            let shares = weather.shares(1, 96 * STEPS);
            assert!(shares.iter().all(|share| (0.0..=SHARE_MAX).contains(share)));
            assert_eq!(shares, weather.shares(1, 96 * STEPS));
            let (low, high) = range(shares.chunks(12 * STEPS).map(mean));
            high - low
        };
        assert!(hours(Weather::Stationary) < 0.1);
        assert!(0.2 < hours(Weather::Shifting));
    }
}

//! State of one peer in a plan.

use std::time::Duration;

use super::TestKind;
use super::gain::{GainPrior, PairGains};
use crate::budget::Cost;

/// Forecast of the goodput towards a peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairForecast {
    /// The rate (bit/s). A value that is not finite and above 0 counts as no forecast.
    pub goodput_bit_s: f64,
    /// Length of a test that stops once its rate has settled.
    pub settles_in: Duration,
}

#[derive(Debug)]
pub(super) struct Pair {
    /// Turn in which the peer joined the plan.
    pub(super) joined: u64,
    /// Order among pairs that are otherwise equal.
    pub(super) rank: u64,
    pub(super) last: Option<u64>,
    pub(super) forecast: Option<PairForecast>,
    pub(super) gains: PairGains,
    /// Number of failed tests since the last successful test.
    pub(super) failures: u32,
    pub(super) is_audit: bool,
    pub(super) not_before: Duration,
    /// Number of refusals and failures since the last successful test.
    pub(super) refusals: u32,
}

impl Pair {
    pub(super) fn new(joined: u64, rank: u64) -> Self {
        Self {
            joined,
            rank,
            last: None,
            failures: 0,
            forecast: None,
            gains: PairGains::default(),
            is_audit: false,
            not_before: Duration::ZERO,
            refusals: 0,
        }
    }

    pub(super) fn test_kind(&self) -> TestKind {
        if self.forecast.is_some() && !self.is_audit { TestKind::Settled } else { TestKind::Full }
    }

    /// How much the pair needs its next turn; `age` is at least 1. Pairs that failed twice come
    /// after all others and are ordered by age alone. Otherwise a dead peer would get many tests:
    /// its forecast is bad, too, and its tests cost most.
    pub(super) fn need(&self, prior: &GainPrior, age: u64) -> f64 {
        if self.failures > 1 { -1.0 / age as f64 } else { prior.sqrt_gain(&self.gains) * age as f64 }
    }

    /// Expected cost of a test: the cap, if there is no forecast.
    pub(super) fn expected(&self, kind: TestKind, cap: Cost) -> Cost {
        let Some(forecast) = self.forecast else { return cap };
        let duration = match kind {
            TestKind::Settled => forecast.settles_in.min(cap.duration),
            TestKind::Full => cap.duration,
        };
        // A cast saturates.
        let bytes = (forecast.goodput_bit_s / 8.0 * duration.as_secs_f64()) as u64;
        Cost { duration, bytes }.at_most(cap)
    }
}

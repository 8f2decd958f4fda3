//! Budget of copies of requests, shared by all targets.

use std::sync::atomic::{AtomicU64, Ordering};

/// Limit for the copies of all calls to a set of targets, retries and hedges together.
///
/// Over any sequence of calls, at most `burst + share × calls` copies are sent, plus less than one
/// copy for each target. The last term exists because a target adds its earnings to the budget one
/// whole copy at a time. A call that finds the budget empty is not cut off: its current attempt
/// continues as the last attempt.
///
/// ```
/// use barograph_timeout::tower::{RetryBudget, Targets, TargetsConfig};
///
/// let budget = RetryBudget { share: 0.1, burst: 5 };
/// let targets = Targets::<String>::new(TargetsConfig { budget, ..TargetsConfig::default() });
/// assert_eq!(targets.metrics().budget_left, 5.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// Number of copies that each call earns, 0 to 1. A value outside this range counts as the
    /// nearer limit, and NaN counts as 0.
    pub share: f64,
    /// Number of copies that may be sent at once. The budget starts with this number of copies, and
    /// never has more copies.
    pub burst: u32,
}

impl Default for RetryBudget {
    /// Allows copies of a fifth of the calls, as in the retry budgets of Finagle and Linkerd. Ten
    /// copies are allowed at once, for a client that starts with slow calls.
    fn default() -> Self {
        Self { share: 0.2, burst: 10 }
    }
}

/// Token bucket: calls add tokens, and copies take tokens. The unit is 1/[`COPY`] of a copy.
#[derive(Debug)]
pub(super) struct RetryTokens {
    left: AtomicU64,
    most: u64,
    /// Number of tokens that one call adds.
    pub(super) per_call: u64,
}

impl RetryTokens {
    pub(super) fn new(budget: RetryBudget) -> Self {
        let most = u64::from(budget.burst) * COPY;
        // A cast of NaN gives 0.
        let per_call = (budget.share.clamp(0.0, 1.0) * COPY as f64) as u64;
        Self { left: AtomicU64::new(most), most, per_call }
    }

    pub(super) fn put(&self, earned: u64) {
        // The ordering `Relaxed` suffices, here and below, because no other memory depends on the
        // order of changes to this number.
        let add = |left: u64| Some(left.saturating_add(earned).min(self.most));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Takes the cost of one copy, if the budget covers it.
    pub(super) fn take(&self) -> bool {
        let take = |left: u64| left.checked_sub(COPY);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Number of copies that could be sent now.
    pub(super) fn left(&self) -> f64 {
        self.left.load(Ordering::Relaxed) as f64 / COPY as f64
    }
}

/// One copy in the bucket's unit: shares are exact to a millionth.
pub(super) const COPY: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_copies_is_within_burst_and_share() {
        let tokens = RetryTokens::new(RetryBudget { share: 0.2, burst: 3 });
        let mut taken = (0..10).filter(|_| tokens.take()).count();
        assert_eq!(taken, 3);
        for _ in 0..100 {
            tokens.put(tokens.per_call);
            taken += usize::from(tokens.take());
        }
        assert_eq!(taken, 3 + 20);
    }

    #[test]
    fn the_budget_saves_at_most_its_burst() {
        let tokens = RetryTokens::new(RetryBudget { share: 1.0, burst: 2 });
        (0..100).for_each(|_| tokens.put(tokens.per_call));
        assert_eq!(tokens.left(), 2.0);
    }

    #[test]
    fn invalid_shares_are_clamped() {
        for (share, per_call) in [(f64::NAN, 0), (-1.0, 0), (f64::INFINITY, COPY), (7.0, COPY)] {
            assert_eq!(RetryTokens::new(RetryBudget { share, burst: 1 }).per_call, per_call, "{share}");
        }
    }
}

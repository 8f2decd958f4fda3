//! How many copies of requests may be sent, over all targets together.

use std::sync::atomic::{AtomicU64, Ordering};

/// What bounds the copies – retries and hedges together – of all calls to a set of targets.
///
/// Over any stretch of calls at most `burst + share × calls` copies are sent, and fewer than one more for
/// each target (what a target has earned is handed in one whole copy at a time). A call that finds the
/// budget empty is not cut off: it goes on as its last try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Copies that each call earns, 0 to 1; what lies outside is taken as the nearer bound, NaN as 0.
    pub share: f64,
    /// Copies that may be sent at once: what the budget starts with, and the most that it saves up.
    pub burst: u32,
}

impl Default for Budget {
    /// A fifth of the calls, as the retry budgets of Finagle and Linkerd; and ten at once, for a client
    /// whose first calls are slow.
    fn default() -> Self {
        Self { share: 0.2, burst: 10 }
    }
}

/// A token bucket: calls put in, copies take out. Counts in [`COPY`]ths.
#[derive(Debug)]
pub(super) struct Bucket {
    left: AtomicU64,
    most: u64,
    /// What one call earns.
    pub(super) per_call: u64,
}

impl Bucket {
    pub(super) fn new(budget: Budget) -> Self {
        let most = u64::from(budget.burst) * COPY;
        // A cast of NaN gives 0.
        let per_call = (budget.share.clamp(0.0, 1.0) * COPY as f64) as u64;
        Self { left: AtomicU64::new(most), most, per_call }
    }

    pub(super) fn put(&self, earned: u64) {
        // Nothing else is ordered by this number: relaxed is enough, here and below.
        let add = |left: u64| Some(left.saturating_add(earned).min(self.most));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Takes the cost of one copy, if it is there.
    pub(super) fn take(&self) -> bool {
        let take = |left: u64| left.checked_sub(COPY);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Copies that could be sent at once now.
    pub(super) fn left(&self) -> f64 {
        self.left.load(Ordering::Relaxed) as f64 / COPY as f64
    }
}

/// One copy, in the bucket's units: a share is kept to a millionth.
pub(super) const COPY: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_stay_within_burst_and_share() {
        let bucket = Bucket::new(Budget { share: 0.2, burst: 3 });
        let mut taken = (0..10).filter(|_| bucket.take()).count();
        assert_eq!(taken, 3);
        for _ in 0..100 {
            bucket.put(bucket.per_call);
            taken += usize::from(bucket.take());
        }
        assert_eq!(taken, 3 + 20);
    }

    #[test]
    fn it_saves_up_no_more_than_the_burst() {
        let bucket = Bucket::new(Budget { share: 1.0, burst: 2 });
        (0..100).for_each(|_| bucket.put(bucket.per_call));
        assert_eq!(bucket.left(), 2.0);
    }

    #[test]
    fn wild_shares_are_bounded() {
        for (share, per_call) in [(f64::NAN, 0), (-1.0, 0), (f64::INFINITY, COPY), (7.0, COPY)] {
            assert_eq!(Bucket::new(Budget { share, burst: 1 }).per_call, per_call, "{share}");
        }
    }
}

//! Counters of echo sessions, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use barograph_probe::wire::DeclineReason;

/// Counts since the start of the station.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sessions_open: AtomicU64,
    pub(crate) sessions_refused: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) reports_kept: AtomicU64,
    pub(crate) reports_dropped: AtomicU64,
    declined: [AtomicU64; REASONS.len()],
}

impl Counters {
    pub(super) fn declined(&self, declined: DeclineReason) {
        let at = match declined {
            DeclineReason::Busy | DeclineReason::BusyFor { .. } => 0,
            DeclineReason::TooLarge { .. } => 1,
            DeclineReason::Spent | DeclineReason::SpentFor { .. } => 2,
            DeclineReason::NotServed => 3,
            // `Full` and `Stopping` do not occur in an open session.
            DeclineReason::Malformed | DeclineReason::Full | DeclineReason::Stopping => 4,
        };
        self.declined[at].fetch_add(1, Ordering::Relaxed);
    }

    /// Numbers of declined requests, each with its reason.
    pub(crate) fn declined_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(self.declined.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Number of requests that were declined because of a limit: all declined requests except
    /// malformed requests and requests that are not served.
    pub(crate) fn declined_by_a_limit(&self) -> u64 {
        self.declined[..LIMITS].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Number of [`REASONS`] that are limits; these reasons come first in the list.
const LIMITS: usize = 3;

const REASONS: [&str; 5] = ["busy", "too_large", "spent", "not_served", "malformed"];

//! Times of removals, for the probe sessions that the removed stations had opened before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use barograph_forecast::Name;

#[derive(Debug, Default)]
pub(super) struct Removals(BTreeMap<Name, Instant>);

impl Removals {
    /// Records that a station was removed at `now`, or that a different station has its name since
    /// then.
    pub(super) fn insert(&mut self, host: &Name, now: Instant) {
        self.0.retain(|_, at| now.saturating_duration_since(*at) < SESSION_MAX);
        self.0.insert(host.clone(), now);
    }

    /// Whether the session that the station `host` signed for at `signed_at` must end, because
    /// the station was removed later.
    pub(super) fn ended(&self, host: &Name, signed_at: Instant) -> bool {
        self.0.get(host).is_some_and(|removed| signed_at <= *removed)
    }
}

/// Time after which a removal is forgotten. This time is longer than the longest session of the
/// responder, 120 s (docs/spec/probe.md).
const SESSION_MAX: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_sessions_that_began_before_a_removal_end() {
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut removals = Removals::default();
        removals.insert(&a, start + second);
        assert!(removals.ended(&a, start) && removals.ended(&a, start + second));
        assert!(!removals.ended(&a, start + 2 * second), "the station was invited again");
        assert!(!removals.ended(&b, start));
        removals.insert(&b, start + second + SESSION_MAX);
        assert_eq!(removals.0.len(), 1, "no session is that old");
    }
}

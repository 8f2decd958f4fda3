//! Detects whether the directory accepts writes, and so whether a missing renewal of a peer is a
//! loss. Pure: uses no clock and no connection.
//!
//! A server answers reads without a quorum, or with a full disk, while no station can renew its
//! lease. So the end of a lease is a loss only if the directory accepted a write of this station
//! after that end. After an outage, every other station first gets the time to renew.

use std::time::Duration;

use tokio::time::Instant;

use super::directory::RENEWED_AFTER;

/// What the writes of one engine show about the directory.
#[derive(Debug)]
pub(super) struct DirectoryWrites {
    state: State,
    /// Number of registrations that this engine renews. If the number is 0, the writes of other
    /// stations count.
    registrations: usize,
    /// Longest time that live stations need to renew after the directory accepts writes again.
    return_max: Duration,
}

#[derive(Debug)]
enum State {
    /// No write was observed yet.
    Unknown {
        /// When this engine's archive began to write for other stations; `None` without an archive.
        archive_began: Option<Instant>,
    },
    /// The directory takes writes.
    Taken {
        /// When the first write after an interruption, or this engine's archive, began; `None` if
        /// no interruption is known.
        since: Option<Instant>,
        /// When the newest write began.
        last: Instant,
    },
    Failing {
        /// When the first failed write began.
        since: Instant,
        /// Error of the newest failed write.
        reason: String,
    },
}

/// Meaning of the end of a peer's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseEnd {
    /// The peer could have renewed its lease, and did not.
    Lost,
    /// The directory has accepted writes again only recently. The end of the lease does not count
    /// as a loss before this time.
    UndecidedUntil(Instant),
    /// No write after the end of the lease is known to have succeeded.
    Undecided,
}

impl DirectoryWrites {
    /// `deadline` is the longest wait for one response of a server.
    pub(super) fn new(deadline: Duration) -> Self {
        // When the directory accepts writes again, a pending renewal ends within one deadline, and
        // the next renewal ends within one further deadline.
        Self { state: State::Unknown { archive_began: None }, registrations: 0, return_max: 2 * deadline }
    }

    /// Records that a registration of this engine with the lease `ttl` was stored. Its write began
    /// at `began`.
    pub(super) fn stored(&mut self, began: Instant, ttl: Duration) {
        self.taken(began, ttl);
    }

    /// Records that a registration of this engine was not stored. Its write began at `began`.
    pub(super) fn failed(&mut self, began: Instant, reason: String) {
        let since = match self.state {
            State::Failing { since, .. } => since,
            State::Unknown { .. } | State::Taken { .. } => began,
        };
        self.state = State::Failing { since, reason };
    }

    /// Records that this engine's archive begins at `now` to write for other stations. Perhaps they
    /// could not write before.
    pub(super) fn archive_began(&mut self, now: Instant) {
        match &mut self.state {
            State::Unknown { archive_began: since } | State::Taken { since, .. } => *since = Some(now),
            State::Failing { .. } => {}
        }
    }

    /// Records that a registration of this engine is renewed from now on.
    pub(super) fn begun(&mut self) {
        self.registrations += 1;
    }

    /// Records that a registration of this engine is not renewed any more.
    pub(super) fn ended(&mut self) {
        self.registrations -= 1;
    }

    /// Records that a registration of another station, with the lease `ttl`, was stored at `at` or
    /// later. Returns whether this write counts. It counts only while this engine has no
    /// registration.
    pub(super) fn seen(&mut self, at: Instant, ttl: Duration) -> bool {
        if self.registrations > 0 {
            return false;
        }
        self.taken(at, ttl);
        true
    }

    /// Returns the meaning at `now` of a lease of `ttl` that ended at `end` (invariant 17).
    pub(super) fn lease_end(&self, end: Instant, ttl: Duration, now: Instant) -> LeaseEnd {
        match self.state {
            State::Taken { since, last } if end <= last => {
                let returned = since.map(|since| since + ttl.min(RENEWED_WITHIN).max(self.return_max));
                returned.filter(|returned| now < *returned).map_or(LeaseEnd::Lost, LeaseEnd::UndecidedUntil)
            }
            State::Unknown { .. } | State::Taken { .. } | State::Failing { .. } => LeaseEnd::Undecided,
        }
    }

    /// Returns whether the newest write is too old at `now` to show an outage that would end a
    /// lease of `ttl`.
    pub(super) fn is_stale(&self, ttl: Duration, now: Instant) -> bool {
        matches!(self.state, State::Taken { last, .. } if last + ttl / 2 < now)
    }

    /// Returns the time at which the first failed write began, and the newest error; `None` if
    /// writes do not fail.
    pub(super) fn failing(&self) -> Option<(Instant, &str)> {
        match &self.state {
            State::Failing { since, reason } => Some((*since, reason)),
            State::Unknown { .. } | State::Taken { .. } => None,
        }
    }

    fn taken(&mut self, began: Instant, ttl: Duration) {
        self.state = match self.state {
            State::Unknown { archive_began } => State::Taken { since: archive_began, last: began },
            // A registration is renewed after a third of its lease, or of a shorter time. A pause
            // longer than this third may hide an outage.
            State::Taken { since, last } if began <= last + 2 * ttl.min(RENEWED_WITHIN) / 3 => {
                State::Taken { since, last: last.max(began) }
            }
            State::Taken { .. } | State::Failing { .. } => State::Taken { since: Some(began), last: began },
        };
    }
}

/// Time within which a live station renews a lease of any length after the directory accepts writes
/// again: three periods of renewal, as in the shortest leases.
pub(super) const RENEWED_WITHIN: Duration = Duration::from_secs(3 * RENEWED_AFTER.as_secs());

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const DEADLINE: Duration = Duration::from_secs(5);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_ended_lease_is_lost_only_after_a_write_of_the_watching_station() {
        let began = Instant::now();
        let at = |seconds: u32| began + seconds * SECOND;
        let mut writes = DirectoryWrites::new(DEADLINE);
        assert_eq!(writes.lease_end(at(1), TTL, at(2)), LeaseEnd::Undecided, "nothing was written yet");
        writes.begun();
        writes.stored(at(3), TTL);
        assert_eq!(writes.lease_end(at(3), TTL, at(3)), LeaseEnd::Lost);
        assert_eq!(writes.lease_end(at(4), TTL, at(5)), LeaseEnd::Undecided, "the write came before the end");
        assert!(!writes.seen(at(5), TTL), "others' writes are no proof for a station with a registration");
        assert_eq!(writes.lease_end(at(4), TTL, at(6)), LeaseEnd::Undecided);
        writes.stored(at(6), TTL);
        assert_eq!(writes.lease_end(at(4), TTL, at(6)), LeaseEnd::Lost);
    }

    #[test]
    fn stations_may_return_within_one_lease_after_an_outage() {
        let began = Instant::now();
        let at = |seconds: u32| began + seconds * SECOND;
        let mut writes = DirectoryWrites::new(DEADLINE);
        writes.stored(at(0), TTL);
        writes.failed(at(3), "no quorum".into());
        writes.failed(at(8), "no quorum still".into());
        assert_eq!(writes.failing(), Some((at(3), "no quorum still")));
        assert_eq!(writes.lease_end(at(7), TTL, at(60)), LeaseEnd::Undecided);
        writes.stored(at(60), TTL);
        assert_eq!(writes.failing(), None);
        assert_eq!(writes.lease_end(at(7), TTL, at(61)), LeaseEnd::UndecidedUntil(at(70)));
        assert_eq!(writes.lease_end(at(7), 30 * SECOND, at(70)), LeaseEnd::UndecidedUntil(at(90)));
        assert_eq!(writes.lease_end(at(7), 300 * SECOND, at(70)), LeaseEnd::UndecidedUntil(at(90)));
        assert_eq!(
            writes.lease_end(at(7), SECOND, at(69)),
            LeaseEnd::UndecidedUntil(at(70)),
            "requests may hang"
        );
        assert_eq!(writes.lease_end(at(7), TTL, at(70)), LeaseEnd::Lost);
    }

    #[test]
    fn stations_may_return_when_an_archive_begins() {
        let began = Instant::now();
        let at = |seconds: u32| began + seconds * SECOND;
        let mut writes = DirectoryWrites::new(DEADLINE);
        // The archive was restarted, so this engine has observed no write yet.
        writes.archive_began(at(0));
        writes.stored(at(1), TTL);
        writes.stored(at(4), TTL);
        assert_eq!(writes.lease_end(at(3), TTL, at(4)), LeaseEnd::UndecidedUntil(at(10)));
        assert_eq!(writes.lease_end(at(3), TTL, at(10)), LeaseEnd::Lost);
        writes.archive_began(at(9));
        writes.stored(at(10), TTL);
        assert_eq!(writes.lease_end(at(9), TTL, at(11)), LeaseEnd::UndecidedUntil(at(19)));
        assert_eq!(writes.lease_end(at(9), TTL, at(19)), LeaseEnd::Lost);
    }

    #[test]
    fn an_unregistered_station_detects_outages_by_writes_of_other_stations() {
        let began = Instant::now();
        let at = |seconds: u32| began + seconds * SECOND;
        let mut writes = DirectoryWrites::new(DEADLINE);
        assert!(writes.seen(at(3), TTL));
        assert_eq!(writes.lease_end(at(2), TTL, at(3)), LeaseEnd::Lost);
        // No station wrote for a minute, so perhaps no station could write.
        writes.seen(at(63), TTL);
        assert_eq!(writes.lease_end(at(7), TTL, at(64)), LeaseEnd::UndecidedUntil(at(73)));
        writes.begun();
        writes.stored(at(65), TTL);
        assert!(!writes.seen(at(90), TTL));
        writes.ended();
        assert!(writes.seen(at(90), TTL), "its registration was displaced");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// All stations have the same lease and renew like this station: after each third of the
        /// lease, and 250 ms after a failed renewal; a request ends within the deadline. For any
        /// outages, no live peer is reported as lost. A dead peer is reported as lost soon after
        /// the last outage, if it ever registered.
        #[test]
        fn only_dead_peers_are_reported_as_lost(
            outages in prop::collection::vec((2_u64..60, 1_u64..90), 0..4),
            phase_ms in 0_u64..3333,
            hang_ms in prop::sample::select(vec![10_u64, 250, 2000, 4900]),
            dies_s in 5_u64..150,
        ) {
            let mut at_ms = 0;
            let outages: Vec<(u64, u64)> = outages.into_iter().map(|(up_s, down_s)| {
                let begin = at_ms + 1000 * up_s;
                at_ms = begin + 1000 * down_s;
                (begin, at_ms)
            }).collect();
            let takes = |ms: u64| !outages.iter().any(|(begin, end)| (*begin..*end).contains(&ms));
            // Start of each write, time of its response, and whether it was stored.
            let renewals = |first_ms: u64, dies_ms: u64| {
                let (mut written, mut now) = (Vec::new(), first_ms);
                while now < dies_ms.min(END_MS) {
                    let is_stored = takes(now);
                    let answered = now + if is_stored { 5 } else { hang_ms };
                    written.push((now, answered, is_stored));
                    now = answered + if is_stored { 3333 } else { 250 };
                }
                written
            };
            let (own, live) = (renewals(0, END_MS), renewals(phase_ms, END_MS));
            let dead = renewals(phase_ms, 1000 * dies_s);
            let origin = Instant::now();
            let at = |ms: u64| origin + Duration::from_millis(ms);
            let mut writes = DirectoryWrites::new(DEADLINE);
            let mut answers = own.into_iter().peekable();
            let end = |written: &[(u64, u64, bool)], now: u64| {
                let last = written.iter().rfind(|(began, _, is_stored)| *is_stored && *began <= now);
                last.map(|(began, ..)| began + 10_500)
            };
            let mut lost_ms = None;
            for now in (0..END_MS).step_by(50) {
                while let Some((began, _, is_stored)) = answers.next_if(|(_, answered, _)| *answered <= now) {
                    match is_stored {
                        true => writes.stored(at(began), TTL),
                        false => writes.failed(at(began), String::new()),
                    }
                }
                let is_lost = |written| end(written, now).is_some_and(|end| {
                    end <= now && writes.lease_end(at(end), TTL, at(now)) == LeaseEnd::Lost
                });
                prop_assert!(!is_lost(&live), "a live peer was lost at {now} ms");
                lost_ms = lost_ms.or(is_lost(&dead).then_some(now));
            }
            if dead.iter().any(|(.., is_stored)| *is_stored) {
                let quiet_ms = outages.last().map_or(0, |(_, end)| *end).max(1000 * dies_s);
                prop_assert!(lost_ms.is_some_and(|lost| lost <= quiet_ms + 20_000), "{lost_ms:?}");
            } else {
                prop_assert_eq!(lost_ms, None);
            }
        }
    }

    const END_MS: u64 = 700_000;
}

//! Schedules the checks of peers that need a check. Limits the number of simultaneous checks, and
//! makes the pauses longer for peers that do not answer. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use barograph_forecast::Name;
use tokio::time::Instant;

/// Peers with a running check, or with a pause before the next check.
#[derive(Debug, Default)]
pub(super) struct CheckBackoff {
    all: BTreeMap<Name, PeerBackoff>,
    running: usize,
}

#[derive(Clone, Copy, Debug)]
struct PeerBackoff {
    runs: bool,
    /// Whether the peer needed a check at the last [`CheckBackoff::begin`].
    is_doubtful: bool,
    /// Earliest time of the next check.
    until: Instant,
    /// Pause after the next failed check.
    pause: Duration,
    /// When a change of the peer last ended a pause early.
    last_wake: Option<Instant>,
    /// Whether the peer changed during its check. The check may then have used outdated addresses.
    changed_during_check: bool,
}

impl CheckBackoff {
    /// Starts checks: returns the peers of `doubtful` to check now, and marks the checks of these
    /// peers as running. The peer that has waited longest comes first. A peer that needs no check
    /// any more is forgotten [`PAUSE_MAX`] after its pause, so that a peer that leaves and comes
    /// back keeps its pause.
    pub(super) fn begin(&mut self, doubtful: &BTreeSet<Name>, now: Instant) -> Vec<Name> {
        self.all.retain(|host, backoff| {
            backoff.is_doubtful = doubtful.contains(host);
            backoff.runs || backoff.is_doubtful || now < backoff.until + PAUSE_MAX
        });
        let mut waiting: Vec<(Option<Instant>, &Name)> = doubtful
            .iter()
            .filter_map(|host| match self.all.get(host) {
                Some(backoff) if backoff.runs || now < backoff.until => None,
                backoff => Some((backoff.map(|backoff| backoff.until), host)),
            })
            .collect();
        // Peers that were never checked come first.
        waiting.sort_unstable();
        waiting.truncate(CHECKS_MAX.saturating_sub(self.running));
        let begun: Vec<Name> = waiting.into_iter().map(|(_, host)| host.clone()).collect();
        for host in &begun {
            let (pause, last_wake) =
                self.all.get(host).map_or((PAUSE_MIN, None), |backoff| (backoff.pause, backoff.last_wake));
            let begun = PeerBackoff {
                runs: true,
                is_doubtful: true,
                until: now,
                pause,
                last_wake,
                changed_during_check: false,
            };
            self.all.insert(host.clone(), begun);
        }
        self.running += begun.len();
        begun
    }

    /// Time of the next check. `None` if no peer is in a pause. Also `None` if the maximum number
    /// of checks is running, because a check must end before the next check starts.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.running >= CHECKS_MAX {
            return None;
        }
        self.all
            .values()
            .filter(|backoff| backoff.is_doubtful && !backoff.runs)
            .map(|backoff| backoff.until)
            .min()
    }

    /// Records the end of a check. `chance` is a random number in [0, 1) that varies the pause. So
    /// if several peers stop answering at the same time, their next checks are at different times.
    pub(super) fn ended(&mut self, host: &Name, answered: bool, now: Instant, chance: f64) {
        self.running = self.running.saturating_sub(1);
        let Some(backoff) = self.all.get_mut(host) else { return };
        let (pause, next) = match answered {
            true => (PAUSE_FOUND, PAUSE_MIN),
            false => (spread(backoff.pause, chance), PAUSE_MAX.min(backoff.pause * 2)),
        };
        (backoff.runs, backoff.pause) = (false, next);
        backoff.until = if backoff.changed_during_check { now } else { now + pause };
    }

    /// Schedules an immediate check, because the peer changed. If a check is running, the new check
    /// starts when the running check ends. A call within [`WAKE_EVERY`] after the last effective
    /// call has no effect. The length of the next pause does not change.
    pub(super) fn wake(&mut self, host: &Name, now: Instant) {
        let Some(backoff) = self.all.get_mut(host) else { return };
        let may_wake =
            backoff.last_wake.is_none_or(|last_wake| now.saturating_duration_since(last_wake) >= WAKE_EVERY);
        if !may_wake {
            return;
        }
        if backoff.runs {
            (backoff.changed_during_check, backoff.last_wake) = (true, Some(now));
        } else if now < backoff.until {
            (backoff.until, backoff.last_wake) = (now, Some(now));
        }
    }
}

/// Returns `pause`, made up to a quarter shorter or longer by the random number `chance`.
pub(super) fn spread(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0)
}

/// Random number in [0, 1), from the system's randomness that seeds the hash maps of the standard
/// library.
pub(super) fn chance() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    // An `f64` holds 53 bits.
    (RandomState::new().hash_one(0_u8) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Maximum number of checks that run at once.
const CHECKS_MAX: usize = 16;
/// First and longest pause before a silent peer is checked again.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Pause after a check that found the peer: the usual time between two measurements of the peer.
const PAUSE_FOUND: Duration = Duration::from_secs(10);
/// Shortest time between two checks that are caused by changes of one peer. An entry may name
/// addresses of hosts outside the mesh, and every station tries these addresses. Without this
/// limit, a station that changes its entry could cause as many tries as it wants. This time is
/// several leases long. A real station rarely changes its addresses twice within this time.
const WAKE_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Simulates the station's loop for ten minutes. No peer answers; `peers` is the number of
    /// peers, and `look` the duration of each check. Returns the number of iterations of the loop,
    /// and the number of checks of each peer.
    fn turns(peers: usize, look: Duration) -> (usize, BTreeMap<Name, usize>) {
        let doubtful: BTreeSet<Name> = (0..peers).map(|i| Name::new(&format!("p{i}")).unwrap()).collect();
        let (mut backoff, start) = (CheckBackoff::default(), Instant::now());
        let (mut now, mut turns) = (start, 0);
        let mut running: BTreeSet<(Instant, Name)> = BTreeSet::new();
        let mut looks = BTreeMap::new();
        while now < start + Duration::from_secs(600) && turns < 1_000_000 {
            turns += 1;
            for host in backoff.begin(&doubtful, now) {
                *looks.entry(host.clone()).or_default() += 1;
                running.insert((now + look, host));
            }
            assert!(running.len() <= CHECKS_MAX);
            let ends = running.first().map(|(ends, _)| *ends);
            now = backoff.next_due().into_iter().chain(ends).min().unwrap();
            if let Some((_, host)) = running.first().cloned().filter(|(ends, _)| *ends <= now) {
                running.pop_first();
                backoff.ended(&host, false, now, 0.5);
            }
        }
        (turns, looks)
    }

    #[test]
    fn many_silent_peers_do_not_make_the_thread_spin() {
        let (turns, looks) = turns(20, Duration::from_secs(4));
        let total: usize = looks.values().sum();
        assert!(turns <= 2 * total + 20, "{turns} turns for {total} looks");
        assert_eq!(looks.len(), 20);
        // Pauses of 2, 4, … 32 s and then of a minute: about 14 checks in ten minutes.
        assert!(looks.values().all(|looks| (8..=15).contains(looks)), "{looks:?}");
    }

    #[test]
    fn many_silent_peers_are_checked_equally_often() {
        let (_, looks) = turns(300, Duration::from_secs(4));
        assert_eq!(looks.len(), 300);
        let (least, most) = (looks.values().min().unwrap(), looks.values().max().unwrap());
        assert!(most - least <= 2, "{least} to {most}");
    }

    #[test]
    fn a_peer_that_answers_has_no_pause_and_a_changed_peer_is_checked_at_once() {
        let (b, start) = (Name::new("b").unwrap(), Instant::now());
        let doubtful = BTreeSet::from([b.clone()]);
        let begun = std::slice::from_ref(&b);
        let mut backoff = CheckBackoff::default();
        assert_eq!(backoff.begin(&doubtful, start), begun);
        assert!(backoff.begin(&doubtful, start).is_empty(), "it runs already");
        backoff.ended(&b, false, start, 0.0);
        assert_eq!(backoff.next_due(), Some(start + PAUSE_MIN.mul_f64(0.75)));
        assert!(backoff.begin(&doubtful, start).is_empty());
        backoff.wake(&b, start);
        assert_eq!(backoff.begin(&doubtful, start), begun);
        backoff.ended(&b, true, start, 0.0);
        backoff.wake(&b, start + Duration::from_secs(1));
        assert!(
            backoff.begin(&doubtful, start + Duration::from_secs(9)).is_empty(),
            "a change ended its pause just now"
        );
        let later = start + PAUSE_FOUND;
        assert_eq!(backoff.begin(&doubtful, later), begun);
        backoff.ended(&b, false, later, 0.0);
        assert!(backoff.begin(&BTreeSet::new(), later + PAUSE_MIN).is_empty());
        assert_eq!(backoff.next_due(), None, "nothing is to be done for a peer that is not in doubt");
        assert!((0.0..1.0).contains(&chance()));
    }

    /// Number of checks of a peer in ten minutes if the entry of the peer changes every second.
    /// `answers` is whether the peer answers each check.
    fn checks_with_a_change_every_second(answers: bool) -> usize {
        let (b, start) = (Name::new("b").unwrap(), Instant::now());
        let doubtful = BTreeSet::from([b.clone()]);
        let (mut backoff, mut looks) = (CheckBackoff::default(), 0);
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            backoff.wake(&b, now);
            for host in backoff.begin(&doubtful, now) {
                looks += 1;
                backoff.ended(&host, answers, now, 0.5);
            }
        }
        looks
    }

    #[test]
    fn a_peer_that_leaves_and_returns_keeps_its_backoff() {
        let (b, start) = (Name::new("b").unwrap(), Instant::now());
        let (mut backoff, mut looks) = (CheckBackoff::default(), 0);
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            // Station `b` is a peer for four seconds, and ignored for the next four seconds.
            let doubtful: BTreeSet<Name> = (second % 8 < 4).then(|| b.clone()).into_iter().collect();
            for host in backoff.begin(&doubtful, now) {
                looks += 1;
                backoff.ended(&host, false, now, 0.5);
            }
            let is_settled = backoff.next_due().is_none_or(|due| now < due);
            assert!(is_settled, "nothing is to be done {second} s after the start");
        }
        assert!(looks <= 16, "{looks} looks");
        assert!(backoff.begin(&BTreeSet::new(), start + Duration::from_secs(600) + 2 * PAUSE_MAX).is_empty());
        assert!(backoff.all.is_empty(), "a peer that stays away is forgotten");
    }

    #[test]
    fn a_peer_that_changes_during_its_check_is_checked_again() {
        let (b, start) = (Name::new("b").unwrap(), Instant::now());
        let doubtful = BTreeSet::from([b.clone()]);
        for answered in [true, false] {
            let mut backoff = CheckBackoff::default();
            assert_eq!(backoff.begin(&doubtful, start), std::slice::from_ref(&b));
            backoff.wake(&b, start);
            assert!(backoff.begin(&doubtful, start).is_empty(), "it runs still");
            backoff.ended(&b, answered, start, 0.0);
            assert_eq!(backoff.begin(&doubtful, start), std::slice::from_ref(&b));
            backoff.wake(&b, start);
            backoff.ended(&b, answered, start, 0.0);
            assert!(backoff.begin(&doubtful, start).is_empty(), "once");
        }
    }

    #[test]
    fn changes_every_second_do_not_cause_checks_every_second() {
        let (silent, found) =
            (checks_with_a_change_every_second(false), checks_with_a_change_every_second(true));
        assert!(silent <= 40, "{silent} looks at a peer that is silent");
        assert!(found <= 80, "{found} looks at a peer that answers");
    }
}

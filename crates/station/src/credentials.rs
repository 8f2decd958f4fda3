//! Wrong tokens, invitations and signatures: how long the answer to one waits, and what the log says. Pure; times are
//! those since the station's start.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use crate::admission::network;
use crate::seats::holder;

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    Token,
    Invitation,
    Signature,
}

impl Credential {
    pub(crate) const ALL: [Self; 3] = [Self::Token, Self::Invitation, Self::Signature];

    /// Its name in `/metrics` and in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Invitation => "invitation",
            Self::Signature => "signature",
        }
    }
}

/// Wrong credentials by network and by address.
#[derive(Debug, Default)]
pub(crate) struct WrongCredentials {
    counts: [u64; Credential::ALL.len()],
    networks: HashMap<IpAddr, Failures>,
    addresses: HashMap<IpAddr, Logged>,
}

/// What becomes of a request with a wrong credential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// How long the answer waits.
    pub(crate) delay: Duration,
    /// So many of this address have to be logged, this one among them; 0 = it was logged less than a minute ago.
    pub(crate) to_log: u64,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    /// Halves every minute.
    score: f64,
    at: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Logged {
    /// Since the last line.
    count: u64,
    at: Duration,
}

impl WrongCredentials {
    /// A request from `ip` had a wrong credential.
    pub(crate) fn add(&mut self, credential: Credential, ip: IpAddr, now: Duration) -> Verdict {
        self.counts[credential as usize] += 1;
        let holder = holder(ip);
        Verdict { delay: self.delay(network(holder), now), to_log: self.lines_due(holder, now) }
    }

    /// How many there were since the start.
    pub(crate) fn count(&self, credential: Credential) -> u64 {
        self.counts[credential as usize]
    }

    fn delay(&mut self, network: IpAddr, now: Duration) -> Duration {
        make_room(&mut self.networks, &network, |failures| failures.at);
        let failures = self.networks.entry(network).or_insert(Failures { score: 0.0, at: now });
        let minutes = now.saturating_sub(failures.at).as_secs_f64() / 60.0;
        *failures =
            Failures { score: f64::min(failures.score * (-minutes).exp2() + 1.0, SCORE_MAX), at: now };
        if failures.score <= FREE {
            return Duration::ZERO;
        }
        DELAY_MIN.mul_f64((failures.score - FREE).min(DOUBLINGS_MAX).exp2()).min(DELAY_MAX)
    }

    fn lines_due(&mut self, holder: IpAddr, now: Duration) -> u64 {
        make_room(&mut self.addresses, &holder, |logged| logged.at);
        match self.addresses.get_mut(&holder) {
            Some(logged) if now.saturating_sub(logged.at) < LOG_EVERY => {
                logged.count += 1;
                0
            }
            Some(logged) => {
                let count = logged.count + 1;
                *logged = Logged { count: 0, at: now };
                count
            }
            None => {
                self.addresses.insert(holder, Logged { count: 0, at: now });
                1
            }
        }
    }
}

/// Forgets the one that was seen longest ago where there is no room for a new one.
fn make_room<K: Copy + Eq + Hash, V>(map: &mut HashMap<K, V>, new: &K, at: impl Fn(&V) -> Duration) {
    if map.len() < KEPT_MAX || map.contains_key(new) {
        return;
    }
    let oldest = map.iter().min_by_key(|(_, value)| at(value)).map(|(key, _)| *key);
    if let Some(oldest) = oldest {
        map.remove(&oldest);
    }
}

/// Somebody who tries the tokens of several stations is not slowed.
const FREE: f64 = 8.0;
/// Doubled with each further try; the first wait, 0.1 s, is not felt by a person who mistyped.
const DELAY_MIN: Duration = Duration::from_millis(50);
/// Beyond, the delay is the longest in any case.
const DOUBLINGS_MAX: f64 = 10.0;
/// The answer comes before a client gives up.
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Seven minutes after a flood the first tries are free again.
const SCORE_MAX: f64 = 1000.0;
/// One line for each address and minute.
const LOG_EVERY: Duration = Duration::from_mins(1);
/// Networks and addresses that are remembered; some 100 KB.
const KEPT_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(network: u8, host: u8) -> IpAddr {
        [198, 18, network, host].into()
    }

    fn delays(wrong: &mut WrongCredentials, network: u8, count: usize, now: Duration) -> Vec<Duration> {
        (0..count).map(|i| wrong.add(Credential::Token, ip(network, i as u8), now).delay).collect()
    }

    #[test]
    fn the_delay_of_a_network_grows_to_a_bound_and_is_forgiven() {
        let (mut wrong, now) = (WrongCredentials::default(), Duration::from_secs(100));
        let first = delays(&mut wrong, 1, 20, now);
        assert!(first[..8].iter().all(Duration::is_zero));
        assert_eq!(first[8..11], [100, 200, 400].map(Duration::from_millis));
        assert_eq!(first[19], DELAY_MAX);
        assert!(delays(&mut wrong, 2, 1, now)[0].is_zero(), "another network is not slowed");
        delays(&mut wrong, 1, 10_000, now);
        let later = now + Duration::from_mins(8);
        assert!(delays(&mut wrong, 1, 1, later)[0].is_zero());
        assert_eq!(wrong.count(Credential::Token), 10_022);
        assert_eq!(wrong.count(Credential::Invitation), 0);
    }

    #[test]
    fn an_address_is_logged_once_a_minute_with_a_count() {
        let mut wrong = WrongCredentials::default();
        let logged: Vec<u64> = [0, 1, 59, 60, 61, 200]
            .into_iter()
            .map(|second| wrong.add(Credential::Invitation, ip(1, 1), Duration::from_secs(second)).to_log)
            .collect();
        assert_eq!(logged, [1, 0, 0, 3, 0, 2]);
        assert_eq!(wrong.add(Credential::Invitation, ip(1, 2), Duration::from_secs(200)).to_log, 1);
    }

    proptest! {
        #[test]
        fn memory_and_delays_are_bounded(steps in prop::collection::vec((any::<u32>(), 0_u64..100), 1..3000)) {
            let (mut wrong, mut now) = (WrongCredentials::default(), Duration::ZERO);
            for (ip, wait_s) in steps {
                now += Duration::from_secs(wait_s);
                let verdict = wrong.add(Credential::Signature, IpAddr::V4(ip.into()), now);
                prop_assert!(verdict.delay <= DELAY_MAX);
            }
            prop_assert!(wrong.networks.len() <= KEPT_MAX && wrong.addresses.len() <= KEPT_MAX);
        }
    }
}

//! Wrong tokens, invitations and signatures: how long the response is delayed, and what is logged.
//! Pure; all times count from the start of the station.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::caller_group::{limit_address, network};

/// A kind of credential that can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The token of the station, or of a member.
    Token,
    /// An invitation to a mesh.
    Invitation,
    /// The signature of a probe session.
    Signature,
}

impl Credential {
    /// All kinds of credentials.
    pub const ALL: [Self; 3] = [Self::Token, Self::Invitation, Self::Signature];

    /// The name of this kind in `/metrics` and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Invitation => "invitation",
            Self::Signature => "signature",
        }
    }
}

/// Counts of wrong credentials, by kind and by network.
#[derive(Debug, Default)]
pub struct WrongCredentials {
    counts: [u64; Credential::ALL.len()],
    networks: HashMap<IpAddr, NetworkFailures>,
    lines: LogBudget,
}

/// The consequences of a wrong credential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CredentialResponse {
    /// How long the response is delayed.
    pub delay: Duration,
    /// The log line to write.
    pub line: LogDecision,
}

/// The log line for a wrong credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDecision {
    /// No line: the network was logged within the last minute, or the lines of this minute are used
    /// up.
    None,
    /// A line about one network. The value is the number of wrong credentials from this network
    /// since the last line about it, including the present wrong credential.
    Network(u64),
    /// A line that reports wrong credentials from too many networks. No further line is written in
    /// this minute.
    Flood,
}

#[derive(Clone, Copy, Debug)]
struct NetworkFailures {
    /// Number of failures with decay: the value halves every minute.
    score: f64,
    at: Duration,
    /// Time of the last log line about this network; `None` = there was no such line.
    logged: Option<Duration>,
    /// Number of failures since the last log line about this network.
    unlogged: u64,
}

/// Number of log lines about all networks in the current minute, and the start of that minute.
#[derive(Clone, Copy, Debug, Default)]
struct LogBudget {
    began: Duration,
    count: u64,
}

impl WrongCredentials {
    /// Records a request from `ip` with a wrong credential.
    pub fn add(&mut self, credential: Credential, ip: IpAddr, now: Duration) -> CredentialResponse {
        self.counts[credential as usize] += 1;
        let network = network(limit_address(ip));
        if self.networks.len() >= NETWORKS_MAX && !self.networks.contains_key(&network) {
            self.forget_oldest();
        }
        let new = NetworkFailures { score: 0.0, at: now, logged: None, unlogged: 0 };
        let failures = self.networks.entry(network).or_insert(new);
        CredentialResponse { delay: failures.delay(now), line: failures.line(&mut self.lines, now) }
    }

    /// Number of wrong credentials since the start.
    pub fn count(&self, credential: Credential) -> u64 {
        self.counts[credential as usize]
    }

    /// Removes the network with the longest time since its last failure.
    fn forget_oldest(&mut self) {
        let oldest = self.networks.iter().min_by_key(|(_, failures)| failures.at);
        if let Some(oldest) = oldest.map(|(network, _)| *network) {
            self.networks.remove(&oldest);
        }
    }
}

impl NetworkFailures {
    /// Counts a failure and returns the delay of its response.
    fn delay(&mut self, now: Duration) -> Duration {
        let minutes = now.saturating_sub(self.at).as_secs_f64() / 60.0;
        self.score = f64::min(self.score * (-minutes).exp2() + 1.0, SCORE_MAX);
        self.at = now;
        if self.score <= FREE_FAILURES {
            return Duration::ZERO;
        }
        DELAY_MIN.mul_f64((self.score - FREE_FAILURES).min(DOUBLINGS_MAX).exp2()).min(DELAY_MAX)
    }

    /// Counts a failure and returns what to log.
    fn line(&mut self, lines: &mut LogBudget, now: Duration) -> LogDecision {
        self.unlogged += 1;
        if self.logged.is_some_and(|at| now.saturating_sub(at) < LOG_EVERY) {
            return LogDecision::None;
        }
        let line = lines.take(now, self.unlogged);
        if let LogDecision::Network(_) = line {
            (self.logged, self.unlogged) = (Some(now), 0);
        }
        line
    }
}

impl LogBudget {
    /// Returns the log line for a network. After [`LINES_MAX`] lines in a minute, returns
    /// [`LogDecision::Flood`] once, then [`LogDecision::None`].
    fn take(&mut self, now: Duration, unlogged: u64) -> LogDecision {
        if now.saturating_sub(self.began) >= LOG_EVERY {
            *self = Self { began: now, count: 0 };
        }
        self.count += 1;
        match self.count {
            count if count <= LINES_MAX => LogDecision::Network(unlogged),
            count if count == LINES_MAX + 1 => LogDecision::Flood,
            _ => LogDecision::None,
        }
    }
}

/// Score up to which responses are not delayed. This score permits some errors to a person with the
/// tokens of several stations.
pub const FREE_FAILURES: f64 = 8.0;
/// Half of the first delay; the delay doubles with each further failure. The first delay is 0.1 s,
/// which a person does not notice after a typing error.
const DELAY_MIN: Duration = Duration::from_millis(50);
/// Largest number of doublings of the delay. With this number, the delay is always [`DELAY_MAX`].
const DOUBLINGS_MAX: f64 = 10.0;
/// The longest delay. Clients wait longer than this delay for a response.
pub const DELAY_MAX: Duration = Duration::from_secs(5);
/// Largest score. Eight minutes after a flood, the score has decayed below [`FREE_FAILURES`], so
/// the next failures have no delay.
const SCORE_MAX: f64 = 1000.0;
/// Shortest time between two log lines of one network.
const LOG_EVERY: Duration = Duration::from_mins(1);
/// Largest number of log lines about all networks in a minute. More lines do not help an operator,
/// and a provider's /32 has 65 536 networks (/48), which could fill a log.
const LINES_MAX: u64 = 20;
/// Largest number of networks with recorded failures; they take about 100 KB.
const NETWORKS_MAX: usize = 2048;

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
    fn the_delay_of_a_network_grows_to_its_maximum_and_ends_after_some_minutes() {
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
    fn a_network_is_logged_once_a_minute_with_a_count() {
        let mut wrong = WrongCredentials::default();
        let logged: Vec<LogDecision> = [0, 1, 59, 60, 61, 200]
            .into_iter()
            .map(|second| wrong.add(Credential::Invitation, ip(1, second as u8), Duration::from_secs(second)))
            .map(|verdict| verdict.line)
            .collect();
        use LogDecision::{Network, None};
        assert_eq!(logged, [Network(1), None, None, Network(3), None, Network(2)]);
        assert_eq!(wrong.add(Credential::Invitation, ip(2, 1), Duration::from_secs(200)).line, Network(1));
    }

    /// A provider's /32 has 65 536 networks (/48), and each of them counts as a separate caller.
    #[test]
    fn many_networks_do_not_fill_the_log() {
        let mut wrong = WrongCredentials::default();
        let lines = |wrong: &mut WrongCredentials, minute: u64| {
            let add = |i: u16| {
                let ip = IpAddr::from([0x2001, 0xdb8, i / 4, i, 0, 0, 0, 1]);
                wrong.add(Credential::Token, ip, Duration::from_secs(60 * minute + u64::from(i) / 2000)).line
            };
            (0..60_000).map(add).filter(|line| *line != LogDecision::None).collect::<Vec<_>>()
        };
        for minute in 1..4 {
            let lines = lines(&mut wrong, minute);
            assert_eq!(lines.len() as u64, LINES_MAX + 1, "{lines:?}");
            assert_eq!(lines.last(), Some(&LogDecision::Flood));
        }
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
            prop_assert!(wrong.networks.len() <= NETWORKS_MAX);
        }
    }
}

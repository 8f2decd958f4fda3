//! Hard budget of a host: limits the cost of its bulk tests in any hour, in both roles together.

use std::collections::VecDeque;
use std::time::Duration;

/// Cost of a bulk test for a host, in either role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Duration of the test.
    pub duration: Duration,
    /// Payload that the test transfers (bytes).
    pub bytes: u64,
}

/// Role of a host in a bulk test: sender or receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The host starts the test and sends.
    Source,
    /// The host granted the test and receives.
    Target,
}

/// What a host may spend on bulk tests. Both ends of a test count its cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetConfig {
    /// Share of time spent in tests, above 0 and at most 1.
    pub share: f64,
    /// Bytes transferred in any hour, at least 2.
    pub bytes_per_hour: u64,
    /// Length of a full test, which is the longest test allowed. One full test must fit into an
    /// hour's share.
    pub test_max: Duration,
}

impl Default for BudgetConfig {
    /// Returns a budget of 1 % of time and 1.25 GB an hour. One full test of 5 s takes 1 % of 500 s
    /// (Gloperf §4: longer tests showed the same mode). 1.25 GB are two full tests at 1 Gbit/s (625
    /// MB each), one sent and one received. This rate gives at most 0.9 TB a month, below the limit
    /// of 1.2 TB of home plans.
    fn default() -> Self {
        Self { share: 0.01, bytes_per_hour: 1_250_000_000, test_max: Duration::from_secs(5) }
    }
}

impl BudgetConfig {
    /// Returns the budget of Gloperf §3: one test of 5 s every 5 minutes, "1.6 % on a
    /// time-spent-testing basis" of the source.
    ///
    /// The paper does not count the tests that a host receives. Received tests take as much time as
    /// sent tests, so both together take 1/30 of the time. The hard budget is 1.5 times this share,
    /// 1/20, because peers ask at random times. Without this reserve, a host would refuse tests in
    /// every hour with more requests than the mean. The paper does not limit bytes; the limit here
    /// is what 1/20 of the time can carry at 1 Gbit/s.
    pub fn paper() -> Self {
        Self { share: 1.0 / 20.0, bytes_per_hour: 22_500_000_000, test_max: Duration::from_secs(5) }
    }

    /// Checks that each value is in its valid range.
    ///
    /// # Errors
    /// [`BudgetError`] names the invalid value.
    pub fn check(&self) -> Result<(), BudgetError> {
        if !(0.0 < self.share && self.share <= 1.0) {
            return Err(BudgetError::Share(self.share));
        }
        if self.bytes_per_hour < 2 {
            return Err(BudgetError::Bytes(self.bytes_per_hour));
        }
        let per_hour = self.per_hour().duration;
        if self.test_max.is_zero() || per_hour < self.test_max {
            return Err(BudgetError::Test { test_max: self.test_max, share: self.share, per_hour });
        }
        Ok(())
    }

    /// Largest cost of all tests in any hour.
    pub fn per_hour(&self) -> Cost {
        // A cast of NaN gives 0, and the product is at most an hour.
        let nanoseconds = (self.share.clamp(0.0, 1.0) * HOUR.as_nanos() as f64) as u64;
        Cost { duration: Duration::from_nanos(nanoseconds), bytes: self.bytes_per_hour }
    }

    /// Largest cost of one test. The station that runs the test must stop it at this cost. The
    /// limit of bytes is half of the hourly budget, so that one test can be sent and one received
    /// in each hour.
    pub fn test_cap(&self) -> Cost {
        Cost { duration: self.test_max, bytes: self.bytes_per_hour / 2 }
    }

    /// Largest expected cost of a *short* test; see [`Budget`].
    pub fn short_test_max(&self) -> Cost {
        let duration = self.test_max.mul_f64(SHORT_PART);
        Cost { duration, bytes: self.bytes_per_hour / SHORT_BYTES_DIVISOR }
    }
}

/// What is wrong with a [`BudgetConfig`] or a [`PlanConfig`](crate::PlanConfig).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what happened")]
pub enum BudgetError {
    #[error("the share of time is {0}; expected above 0 and at most 1")]
    Share(f64),
    /// The bytes do not allow one test in each direction.
    #[error("the limit is {0} bytes an hour; expected at least 2")]
    Bytes(u64),
    /// The interval between turns is too short or too long.
    #[error("the time between turns is {0:?}; the accepted range is 1 s to a day")]
    Every(Duration),
    #[error(
        "a test of {test_max:?} does not fit into an hour: a share of {share} is {per_hour:?}; use a larger share or a shorter test"
    )]
    Test {
        /// Length of a full test.
        test_max: Duration,
        share: f64,
        /// The time that the share allows in an hour.
        per_hour: Duration,
    },
}

/// Budget of one host: a log of the tests of the last hour.
///
/// **Promise.** The tests that run in any hour, counted whole, cost at most
/// [`BudgetConfig::per_hour`] plus the excess of the last test over its expected cost. That excess
/// is less than one test, in time and in bytes, if no test passes [`BudgetConfig::test_cap`].
///
/// The tests that the host starts get at most three quarters of the budget, plus less than one
/// test. The same limit applies to the tests that peers ask for. The tests that one peer asks for
/// get at most an eighth of the budget, plus less than one test. Its short tests (expected to cost
/// at most [`BudgetConfig::short_test_max`]) get another eighth of the time and a sixteenth of the
/// bytes on the same terms, so that a full test does not keep the peer from testing a change of the
/// path. With fewer than four peers, each gets an equal share of half the budget instead of an
/// eighth. Tests that cost nothing are limited by their number, with the same shares: 720 tests an
/// hour in each role, and 90 tests an hour for one peer that asks.
#[derive(Debug)]
pub struct Budget {
    config: BudgetConfig,
    /// Ended tests, in the order of their ends.
    log: VecDeque<Entry>,
    open: Option<Open>,
    peers: usize,
    /// Time of the caller's clock plus one hour. The offset gives tests of an earlier run a time
    /// that is not negative.
    now: Duration,
    reservations: u64,
}

/// Permission for one test. The caller ends the permission with [`Budget::settle`] or
/// [`Budget::cancel`].
#[derive(Debug, PartialEq, Eq)]
pub struct Reservation(u64);

/// Cost of bulk tests in the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUsage {
    /// Cost of tests that the host started.
    pub source: Cost,
    /// Cost of tests that peers asked for.
    pub target: Cost,
    /// Number of tests in both roles.
    pub tests: usize,
}

/// A test of an earlier run that still counts; [`Budget::import`] adds it to a new budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastTest {
    /// Remaining time for which the test counts.
    pub left: Duration,
    /// Role of this host in the test.
    pub role: Role,
    /// Host at the other end.
    pub peer: Box<str>,
    /// Cost of the test for this host.
    pub cost: Cost,
}

#[derive(Debug)]
struct Entry {
    /// Time on the scale of [`Budget::now`].
    end: Duration,
    role: Role,
    peer: Box<str>,
    cost: Cost,
    /// Whether the test was expected to be short. A test of an earlier run counts as short, too.
    is_short: bool,
}

#[derive(Debug)]
struct Open {
    id: u64,
    role: Role,
    peer: Box<str>,
    is_short: bool,
}

impl Budget {
    /// Creates a budget without any spent tests.
    pub fn new(config: BudgetConfig) -> Result<Self, BudgetError> {
        config.check()?;
        Ok(Self { config, log: VecDeque::new(), open: None, peers: usize::MAX, now: HOUR, reservations: 0 })
    }

    /// The configuration given to [`Budget::new`].
    pub fn config(&self) -> BudgetConfig {
        self.config
    }

    /// Sets the number of peers that may ask for tests. With fewer than four peers, each may use an
    /// equal share of half the budget.
    pub fn set_peers(&mut self, peers: usize) {
        self.peers = peers;
    }

    /// Reserves a test with this expected cost, starting now. Costs above the cap count as the cap.
    ///
    /// If `now` is before the latest time passed so far, the latest time is used.
    ///
    /// # Errors
    /// The time to wait until the test may fit into the budget: until the running test can be over,
    /// or until enough of the log is an hour old.
    pub fn reserve(
        &mut self,
        now: Duration,
        role: Role,
        peer: &str,
        expected: Cost,
    ) -> Result<Reservation, Duration> {
        let now = self.advance(now);
        if self.open.is_some() {
            return Err(self.config.test_max);
        }
        let expected = expected.at_most(self.config.test_cap());
        let wait = self.wait(now, role, peer, expected);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.reservations += 1;
        let is_short = self.is_short(expected);
        self.open = Some(Open { id: self.reservations, role, peer: peer.into(), is_short });
        Ok(Reservation(self.reservations))
    }

    /// Records that the test is over, with its cost. A reservation that was already returned
    /// changes nothing.
    // The reservation is passed by value, so that it cannot be settled twice.
    pub fn settle(&mut self, now: Duration, reservation: Reservation, actual: Cost) {
        let end = self.advance(now);
        if let Some(open) = self.open.take_if(|open| open.id == reservation.0) {
            let Open { role, peer, is_short, .. } = open;
            self.log.push_back(Entry { end, role, peer, cost: actual, is_short });
        }
    }

    /// Cancels the reservation of a test that did not take place; nothing is logged.
    pub fn cancel(&mut self, reservation: Reservation) {
        self.open.take_if(|open| open.id == reservation.0);
    }

    /// Cost of the last hour so far, without the test that runs.
    pub fn spent(&mut self, now: Duration) -> BudgetUsage {
        self.advance(now);
        self.log.iter().fold(
            BudgetUsage { tests: self.log.len(), ..BudgetUsage::default() },
            |mut spent, entry| {
                match entry.role {
                    Role::Source => spent.source = spent.source.plus(entry.cost),
                    Role::Target => spent.target = spent.target.plus(entry.cost),
                }
                spent
            },
        )
    }

    /// Returns the tests that count now and also count after a restart. A running test has the cost
    /// of a full test, for an hour after the latest time at which it can end.
    pub fn export(&mut self, now: Duration) -> Vec<PastTest> {
        let now = self.advance(now);
        let open = self.open.as_ref().map(|open| PastTest {
            left: HOUR.saturating_add(self.config.test_max),
            role: open.role,
            peer: open.peer.clone(),
            cost: self.config.test_cap(),
        });
        let ended = self.log.iter().map(|entry| PastTest {
            left: entry.end.saturating_add(HOUR).saturating_sub(now),
            role: entry.role,
            peer: entry.peer.clone(),
            cost: entry.cost,
        });
        ended.chain(open).collect()
    }

    /// Adds tests of an earlier run to the log, each for an hour at most.
    pub fn import(&mut self, now: Duration, past: Vec<PastTest>) {
        let now = self.advance(now);
        self.log.extend(past.into_iter().map(|PastTest { left, role, peer, cost }| {
            let end = now.saturating_add(left.min(HOUR)).saturating_sub(HOUR);
            Entry { end, role, peer, cost, is_short: true }
        }));
        self.log.make_contiguous().sort_by_key(|entry| entry.end);
    }

    /// Advances the clock to `now`, unless `now` is earlier than the clock, and removes entries
    /// that are an hour old. Returns the time of the clock.
    fn advance(&mut self, now: Duration) -> Duration {
        self.now = self.now.max(now.saturating_add(HOUR));
        while self.log.front().is_some_and(|entry| entry.end.saturating_add(HOUR) <= self.now) {
            self.log.pop_front();
        }
        self.now
    }

    fn is_short(&self, expected: Cost) -> bool {
        expected.fits(self.config.short_test_max())
    }

    /// Returns how long to wait until a test fits into the budget. The wait ends when enough of the
    /// oldest entries of the log are an hour old.
    fn wait(&self, now: Duration, role: Role, peer: &str, expected: Cost) -> Duration {
        let per_hour = self.config.per_hour();
        let role_most = per_hour.saturating_less(per_hour.of(ROLE_RESERVE_DIVISOR));
        let quota = per_hour.of(2).of(self.peers.clamp(1, PEER_SHARE_DIVISOR) as u32);
        let peer_max = TESTS_PER_HOUR_MAX / 2 / self.peers.clamp(1, PEER_SHARE_DIVISOR);
        let is_short = self.is_short(expected);
        let short_quota = Cost { bytes: quota.bytes / 2, ..quota };
        let is_room = |first: usize| {
            let (mut all, mut same_role) = (expected, Cost::default());
            let (mut same_peer, mut same_peer_short) = (Cost::default(), Cost::default());
            let (mut tests_of_role, mut tests_of_peer) = (0, 0);
            for entry in self.log.range(first..) {
                all = all.plus(entry.cost);
                if entry.role == role {
                    same_role = same_role.plus(entry.cost);
                    tests_of_role += 1;
                    if *entry.peer == *peer {
                        same_peer = same_peer.plus(entry.cost);
                        if entry.is_short {
                            same_peer_short = same_peer_short.plus(entry.cost);
                        }
                        tests_of_peer += 1;
                    }
                }
            }
            let is_in_quota = same_peer.is_below(quota) || is_short && same_peer_short.is_below(short_quota);
            all.fits(per_hour)
                && same_role.is_below(role_most)
                && (role == Role::Source || is_in_quota && tests_of_peer < peer_max)
                && tests_of_role < TESTS_PER_HOUR_MAX
        };
        // The more entries have left the log, the more budget is free. So a binary search can find
        // the last entry that must leave.
        let (mut none, mut room) = (0, self.log.len());
        while none < room {
            let middle = none.midpoint(room);
            if is_room(middle) { room = middle } else { none = middle + 1 }
        }
        match room.checked_sub(1).and_then(|last| self.log.get(last)) {
            None => Duration::ZERO,
            Some(entry) => entry.end.saturating_add(HOUR).saturating_sub(now),
        }
    }
}

impl Cost {
    /// The sum, saturating at the largest number.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            duration: self.duration.saturating_add(other.duration),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Limits duration and bytes to the duration and bytes of `cap`.
    pub(crate) fn at_most(self, cap: Self) -> Self {
        Self { duration: self.duration.min(cap.duration), bytes: self.bytes.min(cap.bytes) }
    }

    fn of(self, parts: u32) -> Self {
        Self { duration: self.duration / parts, bytes: self.bytes / u64::from(parts) }
    }

    fn saturating_less(self, other: Self) -> Self {
        Self {
            duration: self.duration.saturating_sub(other.duration),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn fits(self, limit: Self) -> bool {
        self.duration <= limit.duration && self.bytes <= limit.bytes
    }

    /// Whether duration and bytes are below the limit. The caller does not include the cost of the
    /// next test, so a limit may be exceeded by less than one test. If the cost were included, a
    /// limit that is smaller than a full test would allow no test.
    fn is_below(self, limit: Self) -> bool {
        self.duration < limit.duration && self.bytes < limit.bytes
    }
}

/// Time span for which the limits of a budget hold. Budgets are stated for an hour, as in the paper
/// (Gloperf §4).
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Divisor of the part of the budget that is reserved for the other role: one role may use at most
/// three quarters of the budget. The intended mean is a half. But peers ask at random times, so a
/// limit of one half would often be reached while the whole budget is not spent.
const ROLE_RESERVE_DIVISOR: u32 = 4;

/// Largest number of equal shares into which one half of the budget is divided. Tests that one peer
/// requests may cost at most one share, so that the other peers can also request tests. With fewer
/// than four peers there is one share for each peer, so that no share stays unused.
const PEER_SHARE_DIVISOR: usize = 4;

/// Longest short test, as a part of a full test: 2 s of the default 5 s, which is the longest early
/// test.
const SHORT_PART: f64 = 0.4;

/// Divisor of the hourly bytes; the quotient is the limit of a short test. One peer then takes less
/// than three quarters of the bytes: an eighth, a full test (a half), and two sixteenths of short
/// tests. Otherwise one fast peer could take what all peers may request.
const SHORT_BYTES_DIVISOR: u64 = 16;

/// Maximum number of tests an hour in each role: one test every 5 s. The limit bounds the log if
/// tests cost nothing, because they fail at once or are cancelled. Each role has its own count. One
/// peer that asks gets the same share of this count as of the budget. Otherwise a peer that asks
/// and cancels at once could keep this host from testing for an hour.
const TESTS_PER_HOUR_MAX: usize = 720;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

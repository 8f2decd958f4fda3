//! Admission of bulk tests: a host takes part in at most one test at a time, as source or as
//! target.

use std::time::Duration;

use crate::budget::{Budget, BudgetConfig, BudgetError, BudgetUsage, Cost, PastTest, Reservation, Role};
use crate::rng::SeededRng;

/// Configuration of a [`TestAdmission`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestAdmissionConfig {
    /// Limits of time and bytes for tests.
    pub budget: BudgetConfig,
    /// Longest time from a grant to the beginning of its test. After this time, the grant lapses.
    pub grant_max: Duration,
    /// Seed of the tokens. The seed should be random, so that tokens from before a restart are
    /// invalid after the restart.
    pub seed: u64,
}

impl Default for TestAdmissionConfig {
    /// Returns a configuration in which a test must begin within 3 s: enough for a handshake that
    /// sends its first packet again after 1 s (RFC 6298 §2).
    fn default() -> Self {
        Self { budget: BudgetConfig::default(), grant_max: Duration::from_secs(3), seed: 0 }
    }
}

/// Admits a host to bulk tests, one at a time and within the budget: idle → granted → running →
/// idle. Admission covers the tests that the host starts and the tests that peers ask for.
///
/// Whatever a peer does, it can occupy the host for at most [`TestAdmissionConfig::grant_max`]
/// before a test, and for at most [`BudgetConfig::test_max`] plus 5 s during a test. If a peer does
/// not use its grant, the time until the grant ends is charged to that peer's share of the budget.
/// So a peer that repeats requests but runs no test spends its own share of the budget, but not the
/// shares of other peers.
#[derive(Debug)]
pub struct TestAdmission {
    budget: Budget,
    grant_max: Duration,
    active_grant: Option<ActiveGrant>,
    tokens: SeededRng,
    now: Duration,
}

/// Permission for one test, with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Identifies the grant. The number is not secret: [`TestAdmission::begin`] also checks the
    /// peer.
    pub token: u64,
    /// The test must begin within this time.
    pub begins_within: Duration,
    /// The test must stop at the first of these limits.
    pub cap: Cost,
}

/// Why a test is refused. A peer that asks again before `retry_after` gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestRefusal {
    /// The host takes part in another test.
    #[error("busy with another test; retry in {retry_after:.1?}")]
    Busy {
        /// Longest time until the other test is over.
        retry_after: Duration,
    },
    /// The host's budget, or the part of it that this peer may use, is spent.
    #[error("the budget for tests is spent; retry in {retry_after:.1?}")]
    Spent {
        /// Time until the budget has room for the test.
        retry_after: Duration,
    },
    /// The peer is not in a group of the host.
    #[error("the two stations have no common group, so no test is allowed")]
    NotAMember,
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token lapsed, was given back, never existed, or is another peer's.
    #[error("the token {0:016x} is unknown, expired, or of another peer")]
    Unknown(u64),
    /// The test of this token is already running.
    #[error("the token {0:016x} is in use")]
    InUse(u64),
}

#[derive(Debug)]
struct ActiveGrant {
    token: u64,
    peer: Box<str>,
    role: Role,
    reservation: Reservation,
    since: Duration,
    until: Duration,
    is_running: bool,
}

impl TestAdmission {
    /// Creates the admission of an idle host with an unspent budget.
    pub fn new(config: TestAdmissionConfig) -> Result<Self, BudgetError> {
        Ok(Self {
            budget: Budget::new(config.budget)?,
            grant_max: config.grant_max,
            active_grant: None,
            tokens: SeededRng::new(config.seed, "tokens"),
            now: Duration::ZERO,
        })
    }

    /// Sets the number of peers that may ask for tests; see [`Budget::set_peers`].
    pub fn set_peers(&mut self, peers: usize) {
        self.budget.set_peers(peers);
    }

    /// Grants or refuses a test from a peer to this host.
    ///
    /// # Errors
    /// [`TestRefusal`]; a refused test takes nothing from the budget.
    pub fn request(
        &mut self,
        now: Duration,
        peer: &str,
        is_member: bool,
        expected: Cost,
    ) -> Result<Grant, TestRefusal> {
        if !is_member {
            return Err(TestRefusal::NotAMember);
        }
        self.grant(now, Role::Target, peer, expected)
    }

    /// Grants or refuses a test from this host to a peer. Call this method before the request to
    /// the peer, so that two hosts that ask each other both refuse instead of waiting for each
    /// other.
    ///
    /// # Errors
    /// [`TestRefusal::Busy`] or [`TestRefusal::Spent`].
    pub fn start(&mut self, now: Duration, peer: &str, expected: Cost) -> Result<Grant, TestRefusal> {
        self.grant(now, Role::Source, peer, expected)
    }

    /// Begins the test of a grant.
    ///
    /// # Errors
    /// [`TokenError`]; then no test may run.
    pub fn begin(&mut self, now: Duration, token: u64, peer: &str) -> Result<(), TokenError> {
        let now = self.advance(now);
        let test_max = self.budget.config().test_max;
        let grant = self
            .active_grant(token)
            .filter(|grant| *grant.peer == *peer)
            .ok_or(TokenError::Unknown(token))?;
        if grant.is_running {
            return Err(TokenError::InUse(token));
        }
        grant.is_running = true;
        grant.since = now;
        grant.until = now.saturating_add(test_max).saturating_add(GRACE);
        Ok(())
    }

    /// Ends a test, successful or not, with its cost.
    ///
    /// # Errors
    /// [`TokenError::Unknown`] if the test was late and was already counted as a test of full
    /// length.
    pub fn end(&mut self, now: Duration, token: u64, actual: Cost) -> Result<(), TokenError> {
        let now = self.advance(now);
        self.active_grant(token).ok_or(TokenError::Unknown(token))?;
        self.release(now, actual);
        Ok(())
    }

    /// Gives back the grant of a test that does not take place. If this host wanted to start the
    /// test, the grant costs nothing. Otherwise, the grant costs the time since it was given.
    pub fn return_grant(&mut self, now: Duration, token: u64) {
        let now = self.advance(now);
        if self.active_grant(token).is_some() {
            self.lapse(now);
        }
    }

    /// Whether the host takes part in a test, or holds a grant for a test that has not begun.
    pub fn is_held(&mut self, now: Duration) -> bool {
        self.advance(now);
        self.active_grant.is_some()
    }

    /// Cost of the tests of the last hour.
    pub fn spent(&mut self, now: Duration) -> BudgetUsage {
        let now = self.advance(now);
        self.budget.spent(now)
    }

    /// Returns the tests that still count against the budget after a restart; see
    /// [`Budget::export`].
    pub fn export_tests(&mut self, now: Duration) -> Vec<PastTest> {
        let now = self.advance(now);
        self.budget.export(now)
    }

    /// Adds tests of an earlier run; see [`Budget::import`].
    pub fn import_tests(&mut self, now: Duration, past: Vec<PastTest>) {
        let now = self.advance(now);
        self.budget.import(now, past);
    }

    fn grant(&mut self, now: Duration, role: Role, peer: &str, expected: Cost) -> Result<Grant, TestRefusal> {
        let now = self.advance(now);
        if let Some(grant) = &self.active_grant {
            return Err(TestRefusal::Busy { retry_after: grant.until.saturating_sub(now).max(RETRY_MIN) });
        }
        let reservation = self
            .budget
            .reserve(now, role, peer, expected)
            .map_err(|wait| TestRefusal::Spent { retry_after: wait.max(RETRY_MIN) })?;
        let token = self.tokens.bits();
        self.active_grant = Some(ActiveGrant {
            token,
            peer: peer.into(),
            role,
            reservation,
            since: now,
            until: now.saturating_add(self.grant_max),
            is_running: false,
        });
        let cap = self.budget.config().test_cap();
        Ok(Grant { token, begins_within: self.grant_max, cap })
    }

    fn active_grant(&mut self, token: u64) -> Option<&mut ActiveGrant> {
        self.active_grant.as_mut().filter(|grant| grant.token == token)
    }

    /// Ends the current grant if its time limit has passed, either before the test or during the
    /// test. Returns the time, which never decreases.
    fn advance(&mut self, now: Duration) -> Duration {
        self.now = self.now.max(now);
        if self.active_grant.as_ref().is_some_and(|grant| grant.until <= self.now) {
            self.lapse(self.now);
        }
        self.now
    }

    /// Ends the current grant without a reported cost. If its test has begun, the test counts as a
    /// test of full length.
    fn lapse(&mut self, now: Duration) {
        match &self.active_grant {
            Some(grant) if grant.is_running => self.release(now, self.budget.config().test_cap()),
            Some(grant) if grant.role == Role::Target => {
                let duration = now.min(grant.until).saturating_sub(grant.since);
                let cost = Cost { duration, bytes: 0 };
                self.release(now, cost.at_most(self.budget.config().test_cap()));
            }
            _ => {
                if let Some(grant) = self.active_grant.take() {
                    self.budget.cancel(grant.reservation);
                }
            }
        }
    }

    fn release(&mut self, now: Duration, actual: Cost) {
        if let Some(grant) = self.active_grant.take() {
            self.budget.settle(now, grant.reservation, actual);
        }
    }
}

/// Time that a test may take beyond its length to transfer its result: five round trips of 1 s
/// each.
const GRACE: Duration = Duration::from_secs(5);

/// Shortest retry time that a refusal contains, so that peers do not ask too often.
const RETRY_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

//! Configuration of a plan, and the pace that follows from its budget.

use std::time::Duration;

use super::JITTER;
use crate::budget::{BudgetConfig, BudgetError, Cost, HOUR};

/// Configuration of a station's bulk tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanConfig {
    /// Time between two turns for a bulk test, from 1 s to a day. This time is n in Gloperf §3. The
    /// default is 5 minutes, as in Gloperf.
    pub every: Duration,
    /// How the plan chooses the peer of a turn.
    pub policy: SelectionPolicy,
    /// Limits of time and bytes for the tests.
    pub budget: BudgetConfig,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(300),
            policy: SelectionPolicy::Gain,
            budget: BudgetConfig::default(),
            seed: 0,
        }
    }
}

impl PlanConfig {
    /// The plan of the paper (Gloperf §3).
    pub fn paper() -> Self {
        Self { policy: SelectionPolicy::Paper, budget: BudgetConfig::paper(), ..Self::default() }
    }

    /// Checks that each value of the plan is valid.
    ///
    /// # Errors
    /// [`BudgetError`] names the invalid value.
    pub fn check(&self) -> Result<(), BudgetError> {
        if !(EVERY_MIN..=EVERY_MAX).contains(&self.every) {
            return Err(BudgetError::Every(self.every));
        }
        self.budget.check()
    }

    /// The longest time from the start of one turn to the start of the next turn, if each test
    /// costs `each`. The result is for a host in one group.
    pub fn turn_max(&self, each: Cost) -> Duration {
        self.turn_max_in(each, 1)
    }

    /// The longest time from the start of one turn to the start of the next turn, as
    /// [`turn_max`](Self::turn_max) returns, but for a host with peers in `groups` groups (see
    /// [`Planner::set_groups`](super::Planner::set_groups)).
    pub fn turn_max_in(&self, each: Cost, groups: u32) -> Duration {
        let jittered = self.every.mul_f64(1.0 + JITTER);
        match self.policy {
            SelectionPolicy::Paper => jittered,
            SelectionPolicy::Gain => jittered.max(self.pace(each).saturating_mul(groups.max(1))),
        }
    }

    /// Time after which the budget covers a test of this cost. The tests that a station starts get
    /// half of the budget minus a reserve, because peers ask at random times.
    pub(crate) fn pace(&self, cost: Cost) -> Duration {
        self.pace_by_time(cost).max(self.pace_by_bytes(cost))
    }

    pub(crate) fn pace_by_time(&self, cost: Cost) -> Duration {
        bounded_seconds(cost.duration.as_secs_f64() / self.seconds_per_second())
    }

    pub(crate) fn pace_by_bytes(&self, cost: Cost) -> Duration {
        bounded_seconds(cost.bytes as f64 / self.bytes_per_second())
    }

    pub(super) fn seconds_per_second(&self) -> f64 {
        self.budget.share / 2.0 * USED
    }

    pub(super) fn bytes_per_second(&self) -> f64 {
        self.budget.bytes_per_hour as f64 / HOUR.as_secs_f64() / 2.0 * USED
    }
}

/// How a plan chooses the peer of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionPolicy {
    /// All peers in a random order; after the last peer, the directory is read again (Gloperf §3).
    Paper,
    /// The pair that is expected to reduce forecast errors most if it is tested, with a minimum for
    /// each pair. See [`Planner`](super::Planner), and docs/spec/plan.md, which describes how this
    /// reduction is learned.
    Gain,
}

impl SelectionPolicy {
    /// Number of consecutive turns in which each peer is selected at least once, if no peer
    /// refuses. [`Planner`](super::Planner) guarantees this number.
    pub(crate) fn turns_max(self, peers: u32) -> u32 {
        match self {
            Self::Paper => peers.saturating_mul(2).saturating_sub(1),
            Self::Gain => peers.saturating_mul(BOUND_CYCLES),
        }
    }
}

/// Converts any number to a time from 0 to a year.
pub(super) fn bounded_seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, YEAR_S))
}

/// Shortest interval between turns: a test and the transfer of its result take about this long.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// Longest interval between turns: Gloperf §4 measures the error for periods of up to a day.
const EVERY_MAX: Duration = Duration::from_secs(86_400);

/// Seconds in a year: longer than any plan.
const YEAR_S: f64 = 365.0 * 86_400.0;

/// Share of half the budget. A station uses this share for tests that it starts. Peers ask this
/// station for the same number of tests, at random times. If the station used the whole half, many
/// peers would ask while the budget is spent.
const USED: f64 = 0.7;

/// Number of turns for each peer within which every pair is tested again. After half of these
/// turns, a pair without a test is overdue. In the other half, all overdue pairs are tested,
/// alternating with new pairs.
const BOUND_CYCLES: u32 = 4;

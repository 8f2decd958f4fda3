//! What a plan is made with.

use std::time::Duration;

use super::JITTER;
use crate::budget::{BudgetConfig, BudgetError, Cost, HOUR};

/// How a station plans its tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanConfig {
    /// One turn for a bulk test every so often, 1 s to a day; Gloperf's n (§3), 5 minutes there and here.
    pub every: Duration,
    /// Whose turn it is.
    pub policy: Policy,
    /// What the tests may cost.
    pub budget: BudgetConfig,
    /// Of all that is drawn by lot.
    pub seed: u64,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(300),
            policy: Policy::Gain,
            budget: BudgetConfig::default(),
            seed: 0,
        }
    }
}

impl PlanConfig {
    /// As the paper plans (Gloperf §3).
    pub fn paper() -> Self {
        Self { policy: Policy::Paper, budget: BudgetConfig::paper(), ..Self::default() }
    }

    /// Whether the plan makes sense.
    ///
    /// # Errors
    /// [`BudgetError`] names what does not.
    pub fn check(&self) -> Result<(), BudgetError> {
        if !(EVERY_MIN..=EVERY_MAX).contains(&self.every) {
            return Err(BudgetError::Every(self.every));
        }
        self.budget.check()
    }

    /// The longest that one turn takes, from its start to the next, where each test costs this much, for a host of
    /// one group.
    pub fn turn_max(&self, each: Cost) -> Duration {
        self.turn_max_in(each, 1)
    }

    /// The same, for a host whose peers are in so many groups (see
    /// [`Planner::set_groups`](super::Planner::set_groups)).
    pub fn turn_max_in(&self, each: Cost, groups: u32) -> Duration {
        let jittered = self.every.mul_f64(1.0 + JITTER);
        match self.policy {
            Policy::Paper => jittered,
            Policy::Gain => jittered.max(self.pace(each).saturating_mul(groups.max(1))),
        }
    }

    /// How long it takes until a cost is earned: what a station starts gets half of the budget, less
    /// what is left for chance.
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

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A randomized list of all peers; when it is done, the directory is read again (Gloperf §3).
    Paper,
    /// The pair whose test is expected to lessen forecast errors most, with a floor for each pair:
    /// see [`Planner`](super::Planner), and docs/spec/plan.md for how it is learnt.
    Gain,
}

impl Policy {
    /// Turns among which each of so many peers has one at least, while none refuses: the promise of
    /// [`Planner`](super::Planner).
    pub(crate) fn turns_max(self, peers: u32) -> u32 {
        match self {
            Self::Paper => peers.saturating_mul(2).saturating_sub(1),
            Self::Gain => peers.saturating_mul(BOUND_CYCLES),
        }
    }
}

/// A time from a number that may be anything: none below 0, and at most a year.
pub(super) fn bounded_seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, YEAR_S))
}

/// No test is over sooner than this, with its hand-over.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// Gloperf §4 measures what a period of up to a day costs in error, and none beyond.
const EVERY_MAX: Duration = Duration::from_secs(86_400);

/// Seconds in a year: longer than any plan.
const YEAR_S: f64 = 365.0 * 86_400.0;

/// What a station spends on the tests that it starts, of half its budget. As much is asked of it by
/// others, at random times: were the budget used in full, many would come when it is spent.
const USED: f64 = 0.7;

/// What makes a pair overdue, and as many again to serve all that are overdue beside new ones.
const BOUND_CYCLES: u32 = 4;

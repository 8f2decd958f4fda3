//! What to do in a turn, and counts of past turns.

use std::sync::Arc;

use crate::budget::Cost;

/// How long a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestKind {
    /// The test may stop once its rate has settled.
    Settled,
    /// The test runs in full: for a pair without a forecast, and for one test in twenty at random,
    /// which checks whether the stopping rule is accurate.
    Full,
}

/// The next test to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTest {
    /// Name of the receiver.
    pub peer: Arc<str>,
    /// How long the test runs.
    pub kind: TestKind,
    /// Expected cost, for [`TestAdmission::start`](crate::TestAdmission::start) and the peer's
    /// [`TestAdmission::ask`](crate::TestAdmission::ask).
    pub expected: Cost,
}

/// Counts of a station's turns, by their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCounts {
    /// Turns with a test, successful or not.
    pub tests: u64,
    /// Turns without a test, because every peer asked refused.
    pub skipped: u64,
    /// Peers that refused, over all turns.
    pub refusals: u64,
    /// Turns that were postponed for this host's own token or budget.
    pub deferrals: u64,
}

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
    /// [`TestAdmission::request`](crate::TestAdmission::request).
    pub expected: Cost,
}

/// Counts of a station's turns, by their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnCounts {
    /// Number of turns with a test, successful or not.
    pub tests: u64,
    /// Number of turns without a test, because all peers that were asked refused.
    pub skipped: u64,
    /// Number of refusals by peers, over all turns.
    pub refusals: u64,
    /// Number of turns that were postponed, because this host was in another test or its budget was
    /// spent.
    pub deferrals: u64,
}

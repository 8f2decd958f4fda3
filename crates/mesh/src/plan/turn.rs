//! What a turn is to do, and what became of turns.

use std::sync::Arc;

use crate::budget::Cost;

/// How long a test is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// It may stop once its rate has settled.
    Settled,
    /// It runs in full: that of a pair without a forecast, and one in twenty at random, which keeps the rule of
    /// stopping honest.
    Full,
}

/// A test to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// Towards whom.
    pub peer: Arc<str>,
    /// How long it is to be.
    pub length: Length,
    /// What it is expected to cost, for [`Gate::start`](crate::Gate::start) and the peer's
    /// [`Gate::ask`](crate::Gate::ask).
    pub expected: Cost,
}

/// What became of a station's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Turns in which a test was made, well or not.
    pub tests: u64,
    /// Turns in which none could be: every peer asked refused.
    pub skipped: u64,
    /// Peers that refused.
    pub refusals: u64,
    /// Turns that waited for this host's own token or budget, and took place later.
    pub deferrals: u64,
}

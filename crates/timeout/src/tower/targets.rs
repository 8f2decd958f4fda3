//! The targets of one or more layers, and their settings.

use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use std::sync::Arc;
use std::vec::Vec;

use tokio::time::Instant;

use super::budget::{RetryBudget, RetryTokens};
use super::metrics::{LayerMetrics, TargetMetrics};
use super::table::TargetTable;
use super::target::TargetState;
use crate::{Adaptive, AdaptiveConfig, HostStatistics, StateError};

/// Settings of a set of targets.
#[derive(Clone, Debug)]
pub struct TargetsConfig {
    /// Configuration of each target's estimator.
    pub estimator: AdaptiveConfig,
    /// State that the targets share; other links of the same host may use this state, too.
    pub host: HostStatistics,
    /// Maximum number of targets at a time, at least 1. If there are more targets, the targets that
    /// have been idle longest are forgotten.
    pub max_targets: usize,
    /// Budget of copies of requests.
    pub budget: RetryBudget,
}

impl Default for TargetsConfig {
    fn default() -> Self {
        Self {
            estimator: AdaptiveConfig::default(),
            host: HostStatistics::default(),
            max_targets: MAX_TARGETS,
            budget: RetryBudget::default(),
        }
    }
}

/// What was learned about each target. A clone is another handle to the same state.
///
/// Layers that [share](super::AdaptiveTimeoutLayer::sharing) these targets learn together and share
/// one budget.
///
/// ```
/// use barograph_timeout::TimeoutReason;
/// use barograph_timeout::tower::Targets;
/// use std::time::Duration;
///
/// let targets = Targets::default();
/// targets.start_from("db", Duration::from_millis(20), Duration::from_millis(2));
/// let metrics = targets.metrics();
/// assert_eq!((metrics.targets.len(), metrics.targets[0].key), (1, "db"));
/// assert_eq!(metrics.targets[0].decision.reason, TimeoutReason::ForecastError);
/// assert_eq!(metrics.targets[0].false_timeout_share(), None, "there was no attempt");
/// ```
pub struct Targets<K>(Arc<Inner<K>>);

struct Inner<K> {
    config: AdaptiveConfig,
    host: HostStatistics,
    table: TargetTable<K>,
    retry_tokens: RetryTokens,
}

impl<K: Clone + Eq + Hash> Targets<K> {
    /// Creates an empty set of targets.
    #[must_use]
    pub fn new(config: TargetsConfig) -> Self {
        let TargetsConfig { estimator: config, host, max_targets, budget } = config;
        // An estimator that expects more copies than the budget allows would cut off too early.
        let config = AdaptiveConfig { retry_budget: config.retry_budget.min(budget.share), ..config };
        let table = TargetTable::new(max_targets);
        Self(Arc::new(Inner { config, host, table, retry_tokens: RetryTokens::new(budget) }))
    }

    /// Number of known targets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.table.length()
    }

    /// Whether no target is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a snapshot. Targets are locked one after another, so calls between the first and the
    /// last lock are included for some targets only.
    #[must_use]
    pub fn metrics(&self) -> LayerMetrics<K> {
        let targets = self.0.table.all().into_iter().map(|(key, target)| {
            let (counts, decision) = target.snapshot();
            TargetMetrics { key, decision, counts }
        });
        LayerMetrics {
            targets: targets.collect(),
            budget_left: self.0.retry_tokens.left(),
            forgotten: self.0.table.forgotten(),
        }
    }

    /// Records the time to set up a connection to the target `key`. This time is not part of any
    /// attempt. The time is ignored for a target that was never called.
    pub fn record_connect(&self, key: &K, took: Duration) {
        if let Some(target) = self.0.table.peek(key) {
            target.record_connect(took);
        }
    }

    /// Starts a target from `forecast`, a forecast of the response time, and `error`, the error of
    /// this forecast. Both come from outside, for example from a station that measures this pair.
    /// The forecast is ignored once the target has responses of its own.
    pub fn start_from(&self, key: K, forecast: Duration, error: Duration) {
        self.find(key, Instant::now()).start_from(forecast, error);
    }

    /// Saves each target as [`Adaptive::save`] does, for [`Targets::load_all`].
    #[must_use]
    pub fn save_all(&self) -> Vec<(K, Vec<u8>)> {
        self.0.table.all().into_iter().map(|(key, target)| (key, target.save())).collect()
    }

    /// Loads what [`Targets::save_all`] saved, and replaces the state of those targets. Returns the
    /// keys with damaged states; their targets stay as they were. If there are more than
    /// [`TargetsConfig::max_targets`], later targets replace earlier ones.
    ///
    /// ```
    /// use barograph_timeout::StateError;
    /// use barograph_timeout::tower::Targets;
    /// use std::time::Duration;
    ///
    /// let targets = Targets::default();
    /// targets.start_from("db", Duration::from_millis(20), Duration::from_millis(2));
    /// let restored = Targets::default();
    /// assert!(restored.load_all(targets.save_all()).is_empty());
    /// assert_eq!(restored.len(), 1);
    /// assert_eq!(restored.load_all([("db", "damaged")]), [("db", StateError::Unknown)]);
    /// ```
    #[must_use = "the targets in the result were not loaded"]
    pub fn load_all<B: AsRef<[u8]>>(&self, saved: impl IntoIterator<Item = (K, B)>) -> Vec<(K, StateError)> {
        let mut refused = Vec::new();
        for (key, bytes) in saved {
            match Adaptive::load(bytes.as_ref(), &self.0.config, &self.0.host) {
                Ok(estimator) => self.find(key, Instant::now()).replace(estimator),
                Err(error) => refused.push((key, error)),
            }
        }
        refused
    }

    pub(super) fn find(&self, key: K, now: Instant) -> Arc<TargetState> {
        let make = || TargetState::new(Adaptive::new(&self.0.config, &self.0.host), now);
        self.0.table.find(key, make)
    }
}

impl<K> Targets<K> {
    pub(super) fn retry_tokens(&self) -> &RetryTokens {
        &self.0.retry_tokens
    }

    /// Timeout of a last attempt.
    pub(super) fn limit(&self) -> Duration {
        self.0.config.max_timeout
    }
}

impl<K: Clone + Eq + Hash> Default for Targets<K> {
    fn default() -> Self {
        Self::new(TargetsConfig::default())
    }
}

impl<K> Clone for Targets<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Targets<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets").field("config", &self.0.config).finish_non_exhaustive()
    }
}

/// Default of [`TargetsConfig::max_targets`]. A target takes at most 4 KB, so 10 000 targets take
/// at most 40 MB.
const MAX_TARGETS: usize = 10_000;

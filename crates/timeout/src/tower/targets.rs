//! The targets of one or more layers, and their settings.

use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use std::sync::Arc;
use std::vec::Vec;

use tokio::time::Instant;

use super::budget::{Bucket, Budget};
use super::metrics::{Metrics, TargetMetrics};
use super::table::Directory;
use super::target::Target;
use crate::{Adaptive, Config, Host, StateError};

/// Settings of a set of targets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Configuration of each target's estimator.
    pub estimator: Config,
    /// State that the targets share; other links of the same host may be given it, too.
    pub host: Host,
    /// Maximum number of targets at a time, at least 1. If there are more, the targets that were
    /// idle longest are forgotten.
    pub max_targets: usize,
    /// Budget of copies of requests.
    pub budget: Budget,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            estimator: Config::default(),
            host: Host::default(),
            max_targets: MAX_TARGETS,
            budget: Budget::default(),
        }
    }
}

/// What was learned about each target. A clone is another handle to the same state.
///
/// Layers that [share](super::AdaptiveTimeoutLayer::sharing) it learn together and share one
/// budget.
pub struct Targets<K>(Arc<Inner<K>>);

struct Inner<K> {
    config: Config,
    host: Host,
    directory: Directory<K>,
    bucket: Bucket,
}

impl<K: Clone + Eq + Hash> Targets<K> {
    /// Creates an empty set of targets.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings { estimator: config, host, max_targets, budget } = settings;
        // An estimator that expects more copies than the budget allows would cut off too early.
        let config = Config { budget: config.budget.min(budget.share), ..config };
        let directory = Directory::new(max_targets);
        Self(Arc::new(Inner { config, host, directory, bucket: Bucket::new(budget) }))
    }

    /// Number of known targets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.directory.length()
    }

    /// Whether no target is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a snapshot. Targets are locked one after another, so calls between the first and the
    /// last lock are included for some targets only.
    #[must_use]
    pub fn metrics(&self) -> Metrics<K> {
        let targets = self.0.directory.all().into_iter().map(|(key, target)| {
            let (counts, decision) = target.snapshot();
            TargetMetrics { key, decision, counts }
        });
        Metrics {
            targets: targets.collect(),
            budget_left: self.0.bucket.left(),
            forgotten: self.0.directory.forgotten(),
        }
    }

    /// Records the time to set up a connection to `key`, which is not part of any attempt. Ignored
    /// for a target that was never called.
    pub fn connected(&self, key: &K, took: Duration) {
        if let Some(target) = self.0.directory.peek(key) {
            target.connected(took);
        }
    }

    /// Starts a target from a forecast made elsewhere, such as a station's for this pair, and its
    /// error. Ignored once the target has responses of its own.
    pub fn start_from(&self, key: K, forecast: Duration, error: Duration) {
        self.find(key, Instant::now()).start_from(forecast, error);
    }

    /// Saves each target as [`Adaptive::save`] does, for [`Targets::load_all`].
    #[must_use]
    pub fn save_all(&self) -> Vec<(K, Vec<u8>)> {
        self.0.directory.all().into_iter().map(|(key, target)| (key, target.save())).collect()
    }

    /// Loads what [`Targets::save_all`] saved, and replaces the state of those targets. Returns the
    /// keys with damaged states; their targets stay as they were. If there are more than
    /// [`Settings::max_targets`], later targets replace earlier ones.
    #[must_use = "it tells which targets were not loaded"]
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

    pub(super) fn find(&self, key: K, now: Instant) -> Arc<Target> {
        let make = || Target::new(Adaptive::new(&self.0.config, &self.0.host), now);
        self.0.directory.find(key, make)
    }
}

impl<K> Targets<K> {
    pub(super) fn bucket(&self) -> &Bucket {
        &self.0.bucket
    }

    /// Timeout of a last attempt.
    pub(super) fn limit(&self) -> Duration {
        self.0.config.limit
    }
}

impl<K: Clone + Eq + Hash> Default for Targets<K> {
    fn default() -> Self {
        Self::new(Settings::default())
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

/// Default of [`Settings::max_targets`]. A target takes at most 4 KB, so all take at most 40 MB.
const MAX_TARGETS: usize = 10_000;

//! The layer and its settings.

use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use std::sync::Arc;

use tower_layer::Layer;

use super::classify::{AnsweredIf, Successes};
use super::service::AdaptiveTimeout;
use super::targets::Targets;

/// Gives each call to a service a timeout that is learned for its target.
///
/// `K` identifies a target, `Req` is the request, and `C` decides which results are responses. Name
/// the request's type in the closure: `|request: &Request<_>| …`. The [module](super) describes the
/// behaviour.
///
/// ```
/// use barograph_timeout::tower::AdaptiveTimeoutLayer;
/// use tower::{Layer, ServiceExt, service_fn};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), barograph_timeout::tower::BoxError> {
///
/// let layer = AdaptiveTimeoutLayer::new(|_: &u32| "target");
/// let targets = layer.targets();
/// let service = service_fn(async |request: u32| Ok::<_, std::io::Error>(request + 1));
/// let client = layer.layer(service);
/// assert_eq!(client.oneshot(41).await?, 42);
/// assert_eq!(targets.metrics().targets[0].counts.answered, 1);
/// # Ok(())
/// # }
/// ```
pub struct AdaptiveTimeoutLayer<K, Req, C = Successes> {
    policy: Policy<K, Req>,
    classify: C,
}

/// Function from the caller that computes a value from a request.
type Rule<Req, T> = Arc<dyn Fn(&Req) -> T + Send + Sync>;

/// Settings of a layer, and its targets.
pub(super) struct Policy<K, Req> {
    pub(super) key: Rule<Req, K>,
    pub(super) bytes: Option<Rule<Req, u64>>,
    pub(super) resend: Option<Resend<Req>>,
    pub(super) deadline: Option<Duration>,
    pub(super) targets: Targets<K>,
}

/// How requests may be sent again, and which requests may be sent again.
pub(super) struct Resend<Req> {
    pub(super) mode: ResendMode,
    idempotent: Rule<Req, bool>,
    copy: Rule<Req, Option<Req>>,
}

/// Action on an overdue attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResendMode {
    /// Cancel the attempt and call again, with this many attempts in total.
    Retry { max_attempts: u32 },
    /// Send one copy beside the attempt.
    Hedge,
}

impl<K: Clone + Eq + Hash, Req> AdaptiveTimeoutLayer<K, Req> {
    /// Creates a layer with its own targets. `key` returns the target of a request, such as its
    /// authority, or host and route.
    ///
    /// The key is computed for each call, so it should be cheap. Parts of the key that a peer can
    /// choose should be short.
    pub fn new<F>(key: F) -> Self
    where
        F: Fn(&Req) -> K + Send + Sync + 'static,
    {
        Self::sharing(&Targets::default(), key)
    }

    /// Creates a layer over existing `targets`: to share them with other layers, or to use targets
    /// with settings of the caller.
    ///
    /// ```
    /// use barograph_timeout::tower::{AdaptiveTimeoutLayer, Targets, TargetsConfig};
    /// use std::time::Duration;
    ///
    /// let targets = Targets::new(TargetsConfig { max_targets: 100, ..TargetsConfig::default() });
    /// let reads = AdaptiveTimeoutLayer::sharing(&targets, |request: &String| request.clone());
    /// let writes = AdaptiveTimeoutLayer::sharing(&targets, |(to, _): &(String, u32)| to.clone());
    /// targets.start_from("db".to_string(), Duration::from_millis(20), Duration::from_millis(2));
    /// assert_eq!((reads.targets().len(), writes.targets().len()), (1, 1));
    /// ```
    pub fn sharing<F>(targets: &Targets<K>, key: F) -> Self
    where
        F: Fn(&Req) -> K + Send + Sync + 'static,
    {
        let targets = targets.clone();
        let policy = Policy { key: Arc::new(key), bytes: None, resend: None, deadline: None, targets };
        Self { policy, classify: Successes }
    }
}

impl<K, Req, C> AdaptiveTimeoutLayer<K, Req, C> {
    /// Sets the number of bytes that a request transfers in both directions together, as far as
    /// known beforehand. If this function is not set, all requests count as equally large.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Fn(&Req) -> u64 + Send + Sync + 'static) -> Self {
        self.policy.bytes = Some(Arc::new(bytes));
        self
    }

    /// Cancels an overdue call and calls again, with at most `max_attempts` attempts in total (0
    /// counts as 1). Replaces an earlier [`hedge`](Self::hedge).
    ///
    /// `idempotent` returns true for requests that the server may receive twice without harm. Such
    /// a request is sent again if `copy` returns a copy (`http::Request::clone`,
    /// `reqwest::Request::try_clone`). Other requests are cut off as early as without `retry`, and
    /// fail with an error.
    #[must_use]
    pub fn retry(
        self,
        max_attempts: u32,
        idempotent: impl Fn(&Req) -> bool + Send + Sync + 'static,
        copy: impl Fn(&Req) -> Option<Req> + Send + Sync + 'static,
    ) -> Self {
        self.resend(
            ResendMode::Retry { max_attempts: max_attempts.max(1) },
            Arc::new(idempotent),
            Arc::new(copy),
        )
    }

    /// Sends one copy beside an overdue call, and returns the first response. Replaces an earlier
    /// [`retry`](Self::retry).
    ///
    /// `idempotent` returns true for requests that the server may receive twice and at the same
    /// time without harm. Such a request is sent again if `copy` returns a copy. Other requests run
    /// to the limit.
    ///
    /// ```
    /// use barograph_timeout::tower::AdaptiveTimeoutLayer;
    /// # use std::sync::Arc;
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # use std::time::Duration;
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), barograph_timeout::tower::BoxError> {
    /// # let calls = Arc::new(AtomicU32::new(0));
    /// # let slow_at_first = service_fn(move |request: u32| {
    /// #     let slow = calls.fetch_add(1, Ordering::Relaxed) == 0;
    /// #     async move {
    /// #         if slow {
    /// #             tokio::time::sleep(Duration::from_secs(3600)).await;
    /// #         }
    /// #         Ok::<_, std::io::Error>(request)
    /// #     }
    /// # });
    ///
    /// let layer = AdaptiveTimeoutLayer::new(|_: &u32| "target")
    ///     .hedge(|_| true, |request| Some(*request));
    /// let targets = layer.targets();
    /// // The first call of this service takes an hour, the others take no time.
    /// let client = layer.layer(slow_at_first);
    /// assert_eq!(client.oneshot(7).await?, 7);
    /// assert_eq!(targets.metrics().targets[0].counts.hedges, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hedge(
        self,
        idempotent: impl Fn(&Req) -> bool + Send + Sync + 'static,
        copy: impl Fn(&Req) -> Option<Req> + Send + Sync + 'static,
    ) -> Self {
        self.resend(ResendMode::Hedge, Arc::new(idempotent), Arc::new(copy))
    }

    /// Limits the time of all attempts of a call together, from its first attempt on. The estimator
    /// does not count an attempt cut off by the deadline as a timeout; it learns only that the
    /// response would have taken longer.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = Some(deadline);
        self
    }

    /// Decides which results count as responses, instead of every `Ok` and no `Err`. For example, a
    /// status 503 may be a failure, and a refusal by the application may be a response. Results
    /// that are not responses are passed through, too.
    ///
    /// Under [`hedge`](Self::hedge), such a result is not returned while the other copy is still
    /// running.
    ///
    /// ```
    /// use barograph_timeout::tower::AdaptiveTimeoutLayer;
    /// use std::io;
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), barograph_timeout::tower::BoxError> {
    ///
    /// let layer = AdaptiveTimeoutLayer::new(|_: &u32| "target")
    ///     .answered_if(|result: Result<&u32, &io::Error>| result.is_ok_and(|code| *code != 503));
    /// let targets = layer.targets();
    /// # let service = service_fn(async |request: u32| Ok::<_, io::Error>(request));
    /// let client = layer.layer(service); // The service returns its request.
    /// assert_eq!(client.oneshot(503).await?, 503, "the result is passed through");
    /// assert_eq!(targets.metrics().targets[0].counts.failed, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn answered_if<Response, Error, F>(self, answered: F) -> AdaptiveTimeoutLayer<K, Req, AnsweredIf<F>>
    where
        F: Fn(Result<&Response, &Error>) -> bool + Clone,
    {
        AdaptiveTimeoutLayer { policy: self.policy, classify: AnsweredIf(answered) }
    }

    /// Returns a handle to the targets of this layer, for metrics, saving and loading.
    #[must_use]
    pub fn targets(&self) -> Targets<K> {
        self.policy.targets.clone()
    }

    fn resend(mut self, mode: ResendMode, idempotent: Rule<Req, bool>, copy: Rule<Req, Option<Req>>) -> Self {
        self.policy.resend = Some(Resend { mode, idempotent, copy });
        self
    }
}

impl<K, Req, C, S> Layer<S> for AdaptiveTimeoutLayer<K, Req, C>
where
    K: Clone + Eq + Hash,
    C: Clone,
{
    type Service = AdaptiveTimeout<S, K, Req, C>;

    fn layer(&self, inner: S) -> Self::Service {
        AdaptiveTimeout::new(inner, Arc::new(self.policy.clone()), self.classify.clone())
    }
}

impl<Req> Resend<Req> {
    /// Returns a copy of the request; `None` if the request may not be sent twice or cannot be
    /// copied.
    pub(super) fn copy(&self, request: &Req) -> Option<Req> {
        if (self.idempotent)(request) { (self.copy)(request) } else { None }
    }

    /// Maximum number of attempts of a request that may be sent again.
    pub(super) fn max_attempts(&self) -> u32 {
        match self.mode {
            ResendMode::Retry { max_attempts } => max_attempts,
            ResendMode::Hedge => 2,
        }
    }

    /// Number of attempts given to the estimator for a request that may not be sent again. If the
    /// layer retries, such a request is also cut off early, and the caller can make the second
    /// attempt. If the layer hedges, no call is cut off early.
    pub(super) fn max_attempts_alone(&self) -> u32 {
        match self.mode {
            ResendMode::Retry { .. } => PLAIN_ATTEMPTS,
            ResendMode::Hedge => 1,
        }
    }
}

impl<K, Req> Policy<K, Req> {
    pub(super) fn copy(&self, request: &Req) -> Option<Req> {
        self.resend.as_ref()?.copy(request)
    }
}

impl<K, Req> Clone for Policy<K, Req> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            bytes: self.bytes.clone(),
            resend: self.resend.clone(),
            deadline: self.deadline,
            targets: self.targets.clone(),
        }
    }
}

impl<Req> Clone for Resend<Req> {
    fn clone(&self) -> Self {
        Self { mode: self.mode, idempotent: self.idempotent.clone(), copy: self.copy.clone() }
    }
}

impl<K, Req, C: Clone> Clone for AdaptiveTimeoutLayer<K, Req, C> {
    fn clone(&self) -> Self {
        Self { policy: self.policy.clone(), classify: self.classify.clone() }
    }
}

impl<K, Req, C> fmt::Debug for AdaptiveTimeoutLayer<K, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.policy.resend.as_ref().map(|resend| resend.mode);
        f.debug_struct("AdaptiveTimeoutLayer")
            .field("resend", &mode)
            .field("deadline", &self.policy.deadline)
            .field("targets", &self.policy.targets)
            .finish_non_exhaustive()
    }
}

/// Number of attempts that the estimator assumes for a request that the layer does not retry: the
/// call fails early, and the caller can make the second attempt.
pub(super) const PLAIN_ATTEMPTS: u32 = 2;

//! The layer, and what can be set on it.

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
/// `K` tells targets apart, `Req` is the request, `C` says what counts as an answer. Name the request's type
/// in the closure: `|request: &Request<_>| …`. See the [module](super) for what happens when.
pub struct AdaptiveTimeoutLayer<K, Req, C = Successes> {
    policy: Policy<K, Req>,
    classify: C,
}

/// What a layer's user says of a request.
type Rule<Req, T> = Arc<dyn Fn(&Req) -> T + Send + Sync>;

/// What a layer was told, and its targets.
pub(super) struct Policy<K, Req> {
    pub(super) key: Rule<Req, K>,
    pub(super) bytes: Option<Rule<Req, u64>>,
    pub(super) resend: Option<Resend<Req>>,
    pub(super) deadline: Option<Duration>,
    pub(super) targets: Targets<K>,
}

/// How requests may be sent again, and which.
pub(super) struct Resend<Req> {
    pub(super) how: How,
    idempotent: Rule<Req, bool>,
    copy: Rule<Req, Option<Req>>,
}

/// What is done about an overdue attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Cancel it and call again, this many attempts in all.
    Retry { tries: u32 },
    /// Send one copy beside it.
    Hedge,
}

impl<K: Clone + Eq + Hash, Req> AdaptiveTimeoutLayer<K, Req> {
    /// A layer with targets of its own, told apart by `key`: an authority, a pair of host and route.
    ///
    /// The key is made for each call, so it should be cheap; what a peer can choose should be short.
    pub fn new<F>(key: F) -> Self
    where
        F: Fn(&Req) -> K + Send + Sync + 'static,
    {
        Self::sharing(&Targets::default(), key)
    }

    /// A layer that learns together with others, or whose targets were set up otherwise than by default.
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
    /// How many bytes a request moves, sent and answered together, as far as that is known beforehand.
    /// Unless set, all requests are taken to be of one size.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Fn(&Req) -> u64 + Send + Sync + 'static) -> Self {
        self.policy.bytes = Some(Arc::new(bytes));
        self
    }

    /// Cancels a call that is overdue and calls again, at most `tries` attempts in all (0 counts as 1); in
    /// place of a [`hedge`](Self::hedge) set before.
    ///
    /// Only requests that are `idempotent` – the server may receive them twice without harm – are sent
    /// again, and only if `copy` gives a copy (`http::Request::clone`, `reqwest::Request::try_clone`). Others
    /// are cut off as early as without `retry`, and their caller is told.
    #[must_use]
    pub fn retry(
        self,
        tries: u32,
        idempotent: impl Fn(&Req) -> bool + Send + Sync + 'static,
        copy: impl Fn(&Req) -> Option<Req> + Send + Sync + 'static,
    ) -> Self {
        self.resend(How::Retry { tries: tries.max(1) }, Arc::new(idempotent), Arc::new(copy))
    }

    /// Sends one copy of a call that is overdue, without cancelling it, and takes the first answer; in place
    /// of a [`retry`](Self::retry) set before.
    ///
    /// Only requests that are `idempotent` – the server may receive them twice, and at once, without harm –
    /// are sent again, and only if `copy` gives a copy. Others run to the limit.
    #[must_use]
    pub fn hedge(
        self,
        idempotent: impl Fn(&Req) -> bool + Send + Sync + 'static,
        copy: impl Fn(&Req) -> Option<Req> + Send + Sync + 'static,
    ) -> Self {
        self.resend(How::Hedge, Arc::new(idempotent), Arc::new(copy))
    }

    /// No call takes longer than this, all its attempts together, from its first attempt on. What the
    /// deadline cuts is no timeout to the estimator, which learns only "longer than so".
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.policy.deadline = Some(deadline);
        self
    }

    /// What counts as an answer, if not every response and no error: a status 503 may be a failure, a
    /// refusal by the application an answer. What is no answer is passed through all the same.
    ///
    /// Under [`hedge`](Self::hedge), what is no answer does not win while the other copy is under way.
    #[must_use]
    pub fn answered_if<Response, Error, F>(self, answered: F) -> AdaptiveTimeoutLayer<K, Req, AnsweredIf<F>>
    where
        F: Fn(Result<&Response, &Error>) -> bool + Clone,
    {
        AdaptiveTimeoutLayer { policy: self.policy, classify: AnsweredIf(answered) }
    }

    /// A handle to the targets of this layer: metrics, saving, loading.
    #[must_use]
    pub fn targets(&self) -> Targets<K> {
        self.policy.targets.clone()
    }

    fn resend(mut self, how: How, idempotent: Rule<Req, bool>, copy: Rule<Req, Option<Req>>) -> Self {
        self.policy.resend = Some(Resend { how, idempotent, copy });
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
    /// A copy of a request that may be sent twice.
    pub(super) fn copy(&self, request: &Req) -> Option<Req> {
        if (self.idempotent)(request) { (self.copy)(request) } else { None }
    }

    /// Attempts in all of a request that may be sent again.
    pub(super) fn tries(&self) -> u32 {
        match self.how {
            How::Retry { tries } => tries,
            How::Hedge => 2,
        }
    }

    /// Attempts, as the estimator is told, of a request that may not: where others are cut off, this is cut
    /// off early too, and the caller has the second try. Beside a hedge nothing is ever cut off early.
    pub(super) fn tries_alone(&self) -> u32 {
        match self.how {
            How::Retry { .. } => PLAIN_TRIES,
            How::Hedge => 1,
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
        Self { how: self.how, idempotent: self.idempotent.clone(), copy: self.copy.clone() }
    }
}

impl<K, Req, C: Clone> Clone for AdaptiveTimeoutLayer<K, Req, C> {
    fn clone(&self) -> Self {
        Self { policy: self.policy.clone(), classify: self.classify.clone() }
    }
}

impl<K, Req, C> fmt::Debug for AdaptiveTimeoutLayer<K, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = self.policy.resend.as_ref().map(|resend| resend.how);
        f.debug_struct("AdaptiveTimeoutLayer")
            .field("resend", &how)
            .field("deadline", &self.policy.deadline)
            .field("targets", &self.policy.targets)
            .finish_non_exhaustive()
    }
}

/// The caller is told early, and has the second try.
pub(super) const PLAIN_TRIES: u32 = 2;

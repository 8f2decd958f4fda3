//! The service: finds the target and starts the first attempt.

use core::fmt;
use core::hash::Hash;
use core::mem;
use core::task::{Context, Poll};
use std::sync::Arc;

use tokio::time::Instant;
use tower_service::Service;

use super::BoxError;
use super::call::{Call, NextAttempt};
use super::call_state::{CallParams, CallState};
use super::classify::{Classify, Successes};
use super::layer::{PLAIN_ATTEMPTS, Policy, ResendMode};

/// A service that gives each call a timeout learned for its target; see the [module](super).
///
/// Calls need a tokio runtime with time enabled. Later attempts need an inner service that can be
/// cloned; `tower::buffer::Buffer` makes any service cloneable.
pub struct AdaptiveTimeout<S, K, Req, C = Successes> {
    inner: S,
    policy: Arc<Policy<K, Req>>,
    classify: C,
}

impl<S, K, Req, C> AdaptiveTimeout<S, K, Req, C> {
    pub(super) fn new(inner: S, policy: Arc<Policy<K, Req>>, classify: C) -> Self {
        Self { inner, policy, classify }
    }
}

impl<S, K, Req, C> Service<Req> for AdaptiveTimeout<S, K, Req, C>
where
    S: Service<Req> + Clone,
    S::Error: Into<BoxError>,
    K: Clone + Eq + Hash,
    C: Classify<S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Call<S, K, Req, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let policy = &self.policy;
        let bytes = policy.bytes.as_ref().map_or(0, |bytes| bytes(&request));
        let copy = policy.copy(&request);
        let (max_attempts, earns) = match &policy.resend {
            None => (PLAIN_ATTEMPTS, 0),
            Some(resend) if copy.is_some() => (resend.max_attempts(), policy.targets.retry_tokens().per_call),
            Some(resend) => (resend.max_attempts_alone(), policy.targets.retry_tokens().per_call),
        };
        let now = Instant::now();
        let target = policy.targets.find((policy.key)(&request), now);
        let params = CallParams { bytes, max_attempts, deadline: policy.deadline };
        let (state, earned) = CallState::begin(target, &params, now, earns);
        if earned > 0 {
            policy.targets.retry_tokens().put(earned);
        }
        let Some(copy) = copy.filter(|_| max_attempts > 1) else {
            return Call::new(self.inner.call(request), state, None, self.classify.clone());
        };
        // Call the service that is ready. Keep its clone for later calls; the clone is not ready
        // yet.
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let first = ready.call(request);
        let hedge = policy.resend.as_ref().is_some_and(|resend| resend.mode == ResendMode::Hedge);
        let next = NextAttempt { service: ready, request: copy, policy: policy.clone(), hedge };
        Call::new(first, state, Some(next), self.classify.clone())
    }
}

impl<S: Clone, K, Req, C: Clone> Clone for AdaptiveTimeout<S, K, Req, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), policy: self.policy.clone(), classify: self.classify.clone() }
    }
}

impl<S: fmt::Debug, K, Req, C> fmt::Debug for AdaptiveTimeout<S, K, Req, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveTimeout")
            .field("inner", &self.inner)
            .field("targets", &self.policy.targets)
            .finish_non_exhaustive()
    }
}

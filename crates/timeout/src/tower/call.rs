//! The future of a call.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::sync::Arc;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use super::BoxError;
use super::budget::COPY;
use super::call_state::{AttemptSlot, CallState};
use super::classify::Classify;
use super::layer::Policy;

pin_project! {
    /// Future of a call to an [`AdaptiveTimeout`](super::AdaptiveTimeout). Dropping this future
    /// drops the attempts of the call.
    #[project = Parts]
    pub struct Call<S, K, Req, C>
    where
        S: Service<Req>,
    {
        // Future of the first attempt, or of its latest retry.
        #[pin]
        first: Option<S::Future>,
        // Future of the hedge, which runs beside the first attempt.
        #[pin]
        copy: Option<S::Future>,
        // Timer for the next timeout or deadline. The timer is created when the call has to wait;
        // most calls to a nearby service do not wait.
        #[pin]
        alarm: Option<Sleep>,
        state: CallState,
        next: Option<NextAttempt<S, K, Req>>,
        awaiting_service: bool,
        // Result of one attempt that is not a response, stored while the other attempt runs.
        fallback_result: Option<Result<S::Response, S::Error>>,
        classify: C,
    }
}

/// Parts that a further attempt needs.
pub(super) struct NextAttempt<S, K, Req> {
    pub(super) service: S,
    pub(super) request: Req,
    pub(super) policy: Arc<Policy<K, Req>>,
    pub(super) hedge: bool,
}

/// Outcome of a poll: the call's result, or a change after which the whole call is polled again.
enum Step<T> {
    Done(T),
    Changed,
}

impl<S: Service<Req>, K, Req, C> Call<S, K, Req, C> {
    pub(super) fn new(
        first: S::Future,
        state: CallState,
        next: Option<NextAttempt<S, K, Req>>,
        classify: C,
    ) -> Self {
        Self {
            first: Some(first),
            copy: None,
            alarm: None,
            state,
            next,
            awaiting_service: false,
            fallback_result: None,
            classify,
        }
    }
}

impl<S, K, Req, C> Future for Call<S, K, Req, C>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
    C: Classify<S::Response, S::Error>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut parts = self.project();
        loop {
            // A response that has arrived is returned, even if it is overdue.
            if let Poll::Ready(result) = parts.poll_attempts(context) {
                return Poll::Ready(result.map_err(Into::into));
            }
            if *parts.awaiting_service
                && let Poll::Ready(step) = parts.poll_ready(context)
            {
                match step {
                    Step::Done(error) => return Poll::Ready(Err(error.into())),
                    Step::Changed => continue,
                }
            }
            if parts.alarm.is_none() {
                parts.alarm.set(Some(sleep_until(parts.state.alarm())));
            }
            if let Some(alarm) = parts.alarm.as_mut().as_pin_mut() {
                ready!(alarm.poll(context));
            }
            parts.alarm.set(None);
            if let Step::Done(result) = parts.on_alarm() {
                return Poll::Ready(result);
            }
        }
    }
}

impl<S, K, Req, C> Parts<'_, S, K, Req, C>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
    C: Classify<S::Response, S::Error>,
{
    /// Returns the first result that ends the call, if there is one.
    fn poll_attempts(&mut self, context: &mut Context<'_>) -> Poll<Result<S::Response, S::Error>> {
        for which in [AttemptSlot::First, AttemptSlot::Copy] {
            let slot = match which {
                AttemptSlot::First => &mut self.first,
                AttemptSlot::Copy => &mut self.copy,
            };
            if let Some(attempt) = slot.as_mut().as_pin_mut()
                && let Poll::Ready(result) = attempt.poll(context)
            {
                slot.set(None);
                if let Some(result) = self.settle(which, result) {
                    return Poll::Ready(result);
                }
            }
        }
        Poll::Pending
    }

    /// Records the end of an attempt. Returns the call's result, unless another attempt may end
    /// with a better result.
    fn settle(
        &mut self,
        which: AttemptSlot,
        result: Result<S::Response, S::Error>,
    ) -> Option<Result<S::Response, S::Error>> {
        let now = Instant::now();
        if self.classify.is_answer(result.as_ref()) {
            self.state.answered(which, now);
            self.first.set(None);
            self.copy.set(None);
            return Some(result);
        }
        self.state.failed(which, now);
        if self.state.is_running() {
            *self.fallback_result = Some(result);
            return None;
        }
        Some(result)
    }

    /// Sends the next attempt when the service is ready for it. `Done` contains the service's
    /// error.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Step<S::Error>> {
        let Some(next) = self.next else { return Poll::Pending };
        let ready = ready!(next.service.poll_ready(context));
        self.alarm.set(None);
        if let Err(error) = ready {
            self.refund();
            *self.next = None;
            self.state.make_last();
            return Poll::Ready(if self.state.is_running() { Step::Changed } else { Step::Done(error) });
        }
        *self.awaiting_service = false;
        self.send();
        Poll::Ready(Step::Changed)
    }

    /// Gives the cost of a copy back to the budget, if the copy still waits for the service and
    /// will not be sent.
    fn refund(&mut self) {
        if let Some(next) = self.next
            && core::mem::take(self.awaiting_service)
        {
            next.policy.targets.retry_tokens().put(COPY);
        }
    }

    fn send(&mut self) {
        let Some(NextAttempt { mut service, request, policy, hedge }) = self.next.take() else { return };
        let copy = if self.state.is_next_last() { None } else { policy.copy(&request) };
        if copy.is_none() {
            self.state.make_next_last();
        }
        self.state.begin_again(hedge, Instant::now());
        let attempt = Some(service.call(request));
        if hedge {
            self.copy.set(attempt)
        } else {
            self.first.set(attempt)
        }
        *self.next = copy.map(|request| NextAttempt { service, request, policy, hedge });
    }

    /// Acts when the alarm fires: cuts the attempts off, begins a copy, or lets the attempt
    /// continue. `Done` contains the result of the call.
    fn on_alarm(&mut self) -> Step<Result<S::Response, BoxError>> {
        let now = Instant::now();
        let elapsed = match (self.state.deadline_passed(now), &self.next) {
            (Some(elapsed), _) => {
                self.refund();
                elapsed
            }
            (None, Some(_)) if *self.awaiting_service => {
                self.refund();
                self.state.give_up_awaiting_service(now)
            }
            (None, None) => self.state.time_out(now),
            (None, Some(next)) => {
                let tokens = next.policy.targets.retry_tokens();
                tokens.put(self.state.target().take_earned());
                if tokens.take() {
                    self.state.overdue(next.hedge, now, next.policy.targets.limit());
                    if !next.hedge {
                        self.first.set(None);
                    }
                    *self.awaiting_service = true;
                } else {
                    self.state.run_on(now);
                    *self.next = None;
                }
                return Step::Changed;
            }
        };
        self.first.set(None);
        self.copy.set(None);
        // A result that is not a response is more useful to the caller than [`Elapsed`].
        Step::Done(
            self.fallback_result.take().map_or(Err(elapsed.into()), |result| result.map_err(Into::into)),
        )
    }
}

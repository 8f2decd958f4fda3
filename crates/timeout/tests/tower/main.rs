//! The layer over services with scripted response times, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bad;
mod learning;
mod many;
mod readiness;
mod resend;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_timeout::tower::{AdaptiveTimeoutLayer, BoxError, TargetCounters, Targets};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

/// Usual response time of the server.
const USUAL: Duration = Duration::from_millis(20);
/// Response time that is longer than any timeout learned from usual responses, and shorter than the
/// limit of a last attempt.
const STUCK: Duration = Duration::from_secs(3600);
/// Upper limit of any timeout learned from usual responses: 1000 times the usual response time.
const LEARNED: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    to: &'static str,
    /// Whether the request may be sent twice.
    twice: bool,
}

pub(crate) const SAFE: Request = Request { to: "a", twice: true };
pub(crate) const UNSAFE: Request = Request { to: "a", twice: false };

/// Response time of a scripted response, and its result.
type Answer = (Duration, Result<u32, &'static str>);

/// Server that returns the scripted responses in order, then usual responses.
#[derive(Clone, Default)]
pub(crate) struct Server {
    script: Arc<Mutex<VecDeque<Answer>>>,
    calls: Arc<AtomicUsize>,
    under_way: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn next(&self, takes: Duration, answer: Result<u32, &'static str>) -> &Self {
        self.script.lock().unwrap().push_back((takes, answer));
        self
    }

    /// Removes the remaining scripted responses.
    pub(crate) fn forget(&self) {
        self.script.lock().unwrap().clear();
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Number of calls in progress: not completed and not dropped.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    pub(crate) async fn answer(self, _request: Request) -> Result<u32, std::io::Error> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let _leaving = Leaving(self.under_way.clone());
        let next = self.script.lock().unwrap().pop_front();
        let (takes, answer) = next.unwrap_or((USUAL, Ok(0)));
        tokio::time::sleep(takes).await;
        answer.map_err(std::io::Error::other)
    }
}

struct Leaving(Arc<AtomicUsize>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) type Layered = AdaptiveTimeoutLayer<&'static str, Request>;
pub(crate) type Client = BoxCloneService<Request, u32, BoxError>;

/// A layer with the given targets.
pub(crate) fn over(targets: &Targets<&'static str>) -> Layered {
    AdaptiveTimeoutLayer::sharing(targets, |request: &Request| request.to)
}

pub(crate) fn retrying(targets: &Targets<&'static str>, max_attempts: u32) -> Layered {
    over(targets).retry(max_attempts, |request| request.twice, |request| Some(request.clone()))
}

pub(crate) fn hedging(targets: &Targets<&'static str>) -> Layered {
    over(targets).hedge(|request| request.twice, |request| Some(request.clone()))
}

/// The layer around the server, after 100 usual calls.
pub(crate) async fn warm(layer: Layered, server: &Server) -> Client {
    let script = std::mem::take(&mut *server.script.lock().unwrap());
    let mut client = cold(layer, server);
    for _ in 0..100 {
        call(&mut client, SAFE).await.unwrap();
    }
    server.calls.store(0, Ordering::SeqCst);
    *server.script.lock().unwrap() = script;
    client
}

pub(crate) fn cold(layer: Layered, server: &Server) -> Client {
    let server = server.clone();
    BoxCloneService::new(layer.layer(service_fn(move |request| server.clone().answer(request))))
}

pub(crate) async fn call(client: &mut Client, request: Request) -> Result<u32, BoxError> {
    client.ready().await?.call(request).await
}

pub(crate) fn counts(targets: &Targets<&'static str>) -> TargetCounters {
    targets
        .metrics()
        .targets
        .iter()
        .find(|target| target.key == "a")
        .expect("a target that was called")
        .counts
}

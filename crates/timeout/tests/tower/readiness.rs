//! Waiting for a service to become ready is not part of an attempt, and errors during this wait are
//! returned.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use barograph_timeout::MAX_TIMEOUT;
use barograph_timeout::tower::{BoxError, Elapsed, ElapsedCause, Targets};
use tokio::time::{Instant, Sleep, sleep};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::{LEARNED, Request, SAFE, STUCK, Server, USUAL, call, counts, hedging, over, retrying};

/// A server that takes a while to become ready before each call, and may fail instead.
struct SlowServer {
    server: Server,
    opens: Duration,
    breaks: bool,
    opening: Option<Pin<Box<Sleep>>>,
    open: bool,
}

impl SlowServer {
    fn new(server: &Server, opens: Duration) -> Self {
        Self { server: server.clone(), opens, breaks: false, opening: None, open: false }
    }
}

impl Clone for SlowServer {
    fn clone(&self) -> Self {
        Self { breaks: self.breaks, ..Self::new(&self.server, self.opens) }
    }
}

impl Service<Request> for SlowServer {
    type Response = u32;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<u32, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if !self.open {
            let opens = self.opens;
            let opening = self.opening.get_or_insert_with(|| Box::pin(sleep(opens)));
            ready!(opening.as_mut().poll(context));
            self.opening = None;
            if self.breaks {
                return Poll::Ready(Err("the server is broken".into()));
            }
            self.open = true;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        assert!(std::mem::take(&mut self.open), "called without having been ready");
        // This call succeeds. After a call to "breaks", the service fails. After a call to "shuts",
        // the service does not become ready within the longest timeout.
        self.breaks |= request.to == "breaks";
        if request.to == "shuts" {
            self.opens = 100 * MAX_TIMEOUT;
        }
        let server = self.server.clone();
        Box::pin(async move { Ok(server.answer(request).await?) })
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_readiness_does_not_count_as_response_time() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = retrying(&targets, 2).layer(SlowServer::new(&server, Duration::from_secs(10)));
    for _ in 0..100 {
        client.ready().await.unwrap().call(SAFE).await.unwrap();
    }
    server.next(STUCK, Ok(1)).next(USUAL, Ok(2));
    assert_eq!(client.ready().await.unwrap().call(SAFE).await.unwrap(), 2, "the retry waited for the server");
    assert_eq!((counts(&targets).timed_out, counts(&targets).false_estimated), (1, 0));
    let decision = targets.metrics().targets[0].decision;
    assert!(decision.forecast.is_some_and(|forecast| forecast < 10 * USUAL), "{decision:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_ready_again_does_not_hold_a_call_beyond_the_limit() {
    let (targets, server) = (Targets::default(), Server::default());
    let request = Request { to: "shuts", twice: true };
    let layers = [retrying(&targets, 2).deadline(LEARNED), retrying(&targets, 2)];
    for (layer, by) in layers.into_iter().zip([ElapsedCause::Deadline, ElapsedCause::NotReady]) {
        let mut client = layer.layer(SlowServer::new(&server, USUAL));
        server.next(10 * MAX_TIMEOUT, Ok(1));
        let began = Instant::now();
        let error = client.ready().await.unwrap().call(request.clone()).await.unwrap_err();
        assert_eq!(Elapsed::find(&*error).map(|elapsed| elapsed.cause), Some(by), "{error}");
        assert!(began.elapsed() < 2 * MAX_TIMEOUT);
        assert_eq!(server.under_way(), 0);
        assert_eq!(targets.metrics().budget_left, 10.0, "no copy was sent");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_from_poll_ready_pass_through() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut broken = SlowServer::new(&server, USUAL);
    broken.breaks = true;
    let error = over(&targets).layer(broken).ready().await.err().expect("it breaks");
    assert_eq!(error.to_string(), "the server is broken");

    for hedge in [false, true] {
        let (targets, server) = (Targets::default(), Server::default());
        let layer = if hedge { hedging(&targets) } else { retrying(&targets, 2) };
        let mut client = layer.layer(SlowServer::new(&server, USUAL));
        server.next(Duration::from_secs(1000), Ok(1));
        let request = Request { to: "breaks", twice: true };
        let result = client.ready().await.unwrap().call(request).await;
        match hedge {
            false => assert_eq!(result.unwrap_err().to_string(), "the server is broken"),
            true => assert_eq!(result.unwrap(), 1, "the attempt under way is unharmed"),
        }
        assert_eq!(server.calls(), 1);
        assert_eq!(targets.metrics().budget_left, 10.0, "no copy was sent");
    }

    let (targets, server) = (Targets::default(), Server::default());
    let mut client = hedging(&targets).layer(SlowServer::new(&server, USUAL));
    server.next(10 * MAX_TIMEOUT, Ok(1));
    let (request, began) = (Request { to: "breaks", twice: true }, Instant::now());
    let error = client.ready().await.unwrap().call(request).await.unwrap_err();
    assert_eq!(Elapsed::find(&*error).map(|elapsed| elapsed.cause), Some(ElapsedCause::Timeout));
    assert!(began.elapsed() < 2 * MAX_TIMEOUT, "it was alone, and ran to the limit");
}

#[tokio::test(start_paused = true)]
async fn a_retry_uses_the_concurrency_slot_of_the_cancelled_attempt() {
    let (targets, server) = (Targets::default(), Server::default());
    let answering = server.clone();
    let inner = service_fn(move |request| answering.clone().answer(request));
    let mut client =
        tower::util::BoxCloneService::new(retrying(&targets, 2).layer(ConcurrencyLimit::new(inner, 1)));
    for _ in 0..100 {
        call(&mut client, SAFE).await.unwrap();
    }
    server.next(STUCK, Ok(1)).next(USUAL, Ok(2));
    assert_eq!(call(&mut client, SAFE).await.unwrap(), 2);
}

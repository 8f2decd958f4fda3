//! Tests of what the layer learns, and of how it treats calls without retry and hedge.

use std::time::Duration;

use barograph_timeout::tower::{AdaptiveTimeoutLayer, BoxError, Elapsed, ElapsedCause, Targets};
use barograph_timeout::{INITIAL_TIMEOUT, TimeoutReason};
use tokio::time::{Instant, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::{LEARNED, Request, SAFE, STUCK, Server, USUAL, call, cold, counts, over, retrying, warm};

#[tokio::test(start_paused = true)]
async fn a_call_to_a_new_target_has_the_initial_timeout() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = cold(over(&targets), &server);
    server.next(STUCK, Ok(0));
    let began = Instant::now();
    let error = call(&mut client, SAFE).await.unwrap_err();
    let elapsed = Elapsed::find(&*error).expect("it took too long");
    assert_eq!(
        (elapsed.reason, elapsed.forecast, elapsed.cause),
        (TimeoutReason::Initial, None, ElapsedCause::Timeout)
    );
    assert!(began.elapsed() >= INITIAL_TIMEOUT.min(elapsed.timeout), "{elapsed}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_is_cut_off_after_the_target_has_learned() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(over(&targets), &server).await;
    server.next(STUCK, Ok(0));
    let began = Instant::now();
    let error = call(&mut client, SAFE).await.unwrap_err();
    assert!(began.elapsed() < LEARNED, "{error}");
    let elapsed = Elapsed::find(&*error).expect("it took too long");
    assert!(elapsed.forecast.is_some_and(|forecast| forecast < 10 * USUAL), "{elapsed}");
    assert_eq!((elapsed.attempts, elapsed.cause), (1, ElapsedCause::Timeout));
    assert_eq!((counts(&targets).answered, counts(&targets).timed_out), (100, 1));
    assert_eq!((server.calls(), server.under_way()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn no_timeout_is_shorter_than_two_ticks_of_the_timer() {
    let targets = Targets::default();
    targets.start_from("a", Duration::from_micros(50), Duration::from_micros(1));
    let server = Server::default();
    let mut client = cold(over(&targets), &server);
    for _ in 0..200 {
        server.next(Duration::ZERO, Ok(0));
        call(&mut client, SAFE).await.unwrap();
    }
    server.next(STUCK, Ok(0));
    let error = call(&mut client, SAFE).await.unwrap_err();
    let elapsed = Elapsed::find(&*error).expect("it took too long");
    assert!(elapsed.timeout >= Duration::from_millis(2), "{elapsed}");
    assert!(targets.metrics().targets[0].decision.timeout >= Duration::from_millis(2));
}

#[tokio::test(start_paused = true)]
async fn targets_learn_separately() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(over(&targets), &server).await;
    let other = Request { to: "b", twice: true };
    server.next(Duration::from_secs(10), Ok(7));
    assert_eq!(call(&mut client, other).await.unwrap(), 7, "what is usual for a says little of b");
    assert_eq!(targets.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_ended_by_its_deadline_does_not_count_as_timed_out() {
    let (targets, server) = (Targets::default(), Server::default());
    for layer in [over(&targets), retrying(&targets, 3)] {
        let mut client = cold(layer.deadline(Duration::from_secs(2)), &server);
        server.next(STUCK, Ok(0));
        let began = Instant::now();
        let error = call(&mut client, SAFE).await.unwrap_err();
        assert_eq!(Elapsed::find(&*error).map(|elapsed| elapsed.cause), Some(ElapsedCause::Deadline));
        assert_eq!(began.elapsed().as_secs(), 2);
    }
    assert_eq!((counts(&targets).superseded, counts(&targets).timed_out), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_counts_as_superseded() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(over(&targets), &server).await;
    for _ in 0..2000 {
        server.next(STUCK, Ok(0));
        timeout(Duration::from_millis(1), call(&mut client, SAFE)).await.unwrap_err();
    }
    // Drop the future of a call before it was polled.
    drop(client.ready().await.unwrap().call(SAFE));
    assert_eq!((counts(&targets).superseded, counts(&targets).timed_out), (2001, 0));
    assert_eq!(server.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn errors_pass_through_and_do_not_change_the_forecast() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(retrying(&targets, 3), &server).await;
    let before = targets.metrics().targets[0].decision.forecast;
    server.next(USUAL / 4, Err("refused"));
    let error = call(&mut client, SAFE).await.unwrap_err();
    assert_eq!(error.to_string(), "refused");
    assert!(error.is::<std::io::Error>() && Elapsed::find(&*error).is_none());
    assert_eq!((server.calls(), counts(&targets).failed, counts(&targets).retries), (1, 1, 0));
    assert_eq!(targets.metrics().targets[0].decision.forecast, before);
}

#[tokio::test(start_paused = true)]
async fn a_function_decides_which_responses_count_as_answers() {
    let layer = AdaptiveTimeoutLayer::new(|_: &u32| "a")
        .answered_if(|result: Result<&u32, &std::io::Error>| result.is_ok_and(|status| *status != 503));
    let targets = layer.targets();
    let mut client = layer.layer(service_fn(async |request: u32| Ok::<_, std::io::Error>(request)));
    for status in [200, 503, 404] {
        assert_eq!(client.ready().await.unwrap().call(status).await.unwrap(), status, "passed through");
    }
    let counts = targets.metrics().targets[0].counts;
    assert_eq!((counts.answered, counts.failed), (2, 1));
}

/// Error of a client that wraps the layer's error.
#[derive(Debug)]
struct Wrapped(BoxError);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request failed")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn elapsed_is_found_inside_the_error_of_a_client() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(over(&targets), &server).await;
    server.next(STUCK, Ok(0));
    let error = Wrapped(call(&mut client, SAFE).await.unwrap_err());
    assert!(Elapsed::find(&error).is_some());
    assert!(Elapsed::find(&Wrapped("refused".into())).is_none());
}

#[tokio::test(start_paused = true)]
async fn learned_state_can_be_saved_and_loaded() {
    let (targets, server) = (Targets::default(), Server::default());
    warm(over(&targets), &server).await;
    let loaded = Targets::default();
    let mut saved = targets.save_all();
    saved.push(("damaged", vec![1, 2, 3]));
    let refused = loaded.load_all(saved);
    assert_eq!(refused.iter().map(|(key, _)| *key).collect::<Vec<_>>(), ["damaged"]);
    assert_eq!(loaded.len(), 1);
    let forecasts = [&targets, &loaded].map(|targets| targets.metrics().targets[0].decision.forecast);
    assert!(forecasts[0].is_some() && forecasts[0] == forecasts[1], "{forecasts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_target_can_start_from_a_forecast() {
    let targets = Targets::default();
    targets.start_from("a", USUAL, USUAL / 4);
    let decision = targets.metrics().targets[0].decision;
    assert!(decision.forecast.is_some() && decision.timeout < INITIAL_TIMEOUT, "{decision:?}");
}

#[tokio::test(start_paused = true)]
async fn metrics_are_written_as_openmetrics() {
    let layer = AdaptiveTimeoutLayer::new(|_: &()| "a \"quoted\\\n\" one");
    let targets = layer.targets();
    let mut client = layer.layer(service_fn(async |()| Ok::<_, std::io::Error>(())));
    client.ready().await.unwrap().call(()).await.unwrap();
    let mut text = String::new();
    targets.metrics().write_openmetrics(&mut text).unwrap();
    let target = r#"target="a \"quoted\\\n\" one""#;
    assert!(text.contains(&format!("barograph_timeout_attempts_total{{{target}}} 1\n")), "{text}");
    assert!(
        text.contains(&format!("barograph_timeout_ended_total{{{target},ended=\"answered\"}} 1\n")),
        "{text}"
    );
    assert!(
        text.contains("# TYPE barograph_timeout_seconds gauge\n# UNIT barograph_timeout_seconds seconds\n")
    );
    assert!(text.contains("\nbarograph_timeout_budget 10\n") && text.ends_with("\n# EOF\n"), "{text}");
    assert!(
        text.lines().all(|line| line.starts_with('#') || line.starts_with("barograph_timeout_")),
        "{text}"
    );
}

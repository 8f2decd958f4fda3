//! Tests of retries and hedges: which requests are sent again, how often, and within which budget.

use std::time::Duration;

use barograph_timeout::tower::{Elapsed, ElapsedCause, RetryBudget, Targets, TargetsConfig};
use barograph_timeout::{AdaptiveConfig, MAX_TIMEOUT};
use tokio::time::{Instant, timeout};

use crate::{
    LEARNED, Request, SAFE, STUCK, Server, UNSAFE, USUAL, call, cold, counts, hedging, over, retrying, warm,
};

fn budget(share: f64, burst: u32) -> Targets<&'static str> {
    Targets::new(TargetsConfig { budget: RetryBudget { share, burst }, ..TargetsConfig::default() })
}

#[tokio::test(start_paused = true)]
async fn an_overdue_call_is_cancelled_and_sent_again() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(retrying(&targets, 3), &server).await;
    server.next(STUCK, Ok(1)).next(STUCK, Ok(2)).next(Duration::ZERO, Ok(3));
    let began = Instant::now();
    assert_eq!(call(&mut client, SAFE).await.unwrap(), 3);
    assert!(began.elapsed() < 10 * LEARNED);
    let counts = counts(&targets);
    assert_eq!((server.calls(), counts.timed_out, counts.retries, counts.hedges), (3, 2, 2, 0));
    assert_eq!((counts.false_observed, server.under_way()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_runs_to_the_limit() {
    let settings = TargetsConfig {
        estimator: AdaptiveConfig { max_timeout: Duration::from_secs(900), ..AdaptiveConfig::default() },
        ..TargetsConfig::default()
    };
    let (targets, server) = (Targets::new(settings), Server::default());
    let mut client = warm(retrying(&targets, 2), &server).await;
    server.next(STUCK, Ok(1)).next(Duration::from_secs(800), Ok(2));
    assert_eq!(call(&mut client, SAFE).await.unwrap(), 2);
    assert_eq!(counts(&targets).false_estimated, 1, "the retry took longer than the timeout before it");
    server.next(STUCK, Ok(3)).next(STUCK, Ok(4));
    let began = Instant::now();
    let error = call(&mut client, SAFE).await.unwrap_err();
    let elapsed = Elapsed::find(&*error).expect("it took too long");
    assert_eq!((elapsed.attempts, elapsed.cause, elapsed.timeout.as_secs()), (2, ElapsedCause::Timeout, 900));
    assert!(began.elapsed().as_secs() >= 900 && server.under_way() == 0);
}

#[tokio::test(start_paused = true)]
async fn calls_that_must_not_be_repeated_are_sent_once_and_fail_early() {
    let (targets, server) = (budget(1.0, 1000), Server::default());
    let mut client = warm(retrying(&targets, 5), &server).await;
    server.next(STUCK, Ok(9));
    let began = Instant::now();
    let error = call(&mut client, UNSAFE).await.unwrap_err();
    assert!(began.elapsed() < LEARNED, "{error}");
    assert_eq!(
        Elapsed::find(&*error).map(|elapsed| (elapsed.attempts, elapsed.cause)),
        Some((1, ElapsedCause::Timeout))
    );
    assert_eq!((server.calls(), server.under_way()), (1, 0));
    assert_eq!((counts(&targets).retries, counts(&targets).timed_out), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn hedging_does_not_cut_off_calls_that_must_not_be_repeated() {
    let (targets, server) = (budget(1.0, 1000), Server::default());
    let mut client = warm(hedging(&targets), &server).await;
    for slow in 1..=5 {
        server.next(STUCK, Ok(9));
        assert_eq!(call(&mut client, UNSAFE).await.unwrap(), 9, "its only try is not cut off");
        assert_eq!(server.calls(), slow);
    }
    assert_eq!((counts(&targets).hedges, counts(&targets).timed_out), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn requests_that_cannot_be_cloned_are_sent_once() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(over(&targets).retry(5, |_| true, |_| None), &server).await;
    server.next(STUCK, Ok(9));
    let error = call(&mut client, SAFE).await.unwrap_err();
    assert_eq!(Elapsed::find(&*error).map(|elapsed| elapsed.attempts), Some(1));
    assert_eq!(server.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_is_one_copy_and_the_first_answer_wins() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(hedging(&targets), &server).await;
    server.next(STUCK, Ok(1)).next(Duration::ZERO, Ok(2));
    let began = Instant::now();
    assert_eq!(call(&mut client, SAFE).await.unwrap(), 2);
    assert!(began.elapsed() < LEARNED);
    let counts = counts(&targets);
    assert_eq!((server.calls(), counts.hedges, counts.retries), (2, 1, 0));
    assert_eq!((counts.superseded, counts.timed_out, counts.false_observed), (1, 0, 0));
    assert_eq!(server.under_way(), 0, "the other is dropped");
}

#[tokio::test(start_paused = true)]
async fn a_hedge_never_sends_a_second_copy() {
    let (targets, server) = (budget(1.0, 1000), Server::default());
    let mut client = warm(hedging(&targets), &server).await;
    server.next(2 * STUCK, Ok(1)).next(STUCK, Ok(2));
    assert_eq!(call(&mut client, SAFE).await.unwrap(), 2);
    assert_eq!(server.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_loses_to_the_first_attempt_is_a_false_timeout() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(hedging(&targets), &server).await;
    server.next(STUCK, Ok(1)).next(STUCK, Ok(2));
    assert_eq!(call(&mut client, SAFE).await.unwrap(), 1);
    assert_eq!((counts(&targets).false_observed, counts(&targets).superseded, server.calls()), (1, 1, 2));
    assert_eq!(targets.metrics().targets[0].false_timeout_share(), Some(1.0 / 102.0));
}

#[tokio::test(start_paused = true)]
async fn a_hedge_waits_for_the_other_copy_when_one_fails() {
    for first_fails in [false, true] {
        let (targets, server) = (Targets::default(), Server::default());
        let mut client = warm(hedging(&targets), &server).await;
        let fail = (STUCK / 2, Err("reset"));
        let answer = (STUCK, Ok(5));
        let (first, copy) = if first_fails { (fail, answer) } else { (answer, fail) };
        server.next(first.0, first.1).next(copy.0, copy.1);
        assert_eq!(call(&mut client, SAFE).await.unwrap(), 5);
        assert_eq!((counts(&targets).failed, server.calls()), (1, 2));

        server.next(STUCK, Err("reset")).next(STUCK, Err("refused"));
        assert_eq!(call(&mut client, SAFE).await.unwrap_err().to_string(), "refused", "the later of two");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_sends_no_copies_and_cuts_nothing_off() {
    for hedge in [false, true] {
        let (targets, server) = (budget(0.0, 2), Server::default());
        let layer = if hedge { hedging(&targets) } else { retrying(&targets, 2) };
        let mut client = warm(layer, &server).await;
        for _ in 0..2 {
            server.next(STUCK, Ok(1)).next(Duration::ZERO, Ok(2));
            assert_eq!(call(&mut client, SAFE).await.unwrap(), 2);
        }
        assert_eq!(targets.metrics().budget_left, 0.0);
        server.next(STUCK, Ok(3));
        assert_eq!(call(&mut client, SAFE).await.unwrap(), 3, "it runs on");
        let counts = counts(&targets);
        assert_eq!((counts.retries + counts.hedges, counts.withheld, server.calls()), (2, 1, 5));
    }
}

#[tokio::test(start_paused = true)]
async fn calls_earn_budget_for_copies() {
    for (share, earned) in [(0.05, 20), (0.025, 10)] {
        let (targets, server) = (budget(share, 1), Server::default());
        let mut client = warm(retrying(&targets, 2), &server).await;
        for _round in 0..20 {
            for _ in 0..19 {
                call(&mut client, SAFE).await.unwrap();
            }
            // This call gets the first response, and its copy gets the second response. If no copy
            // is sent, the next call gets the second response.
            server.next(STUCK, Ok(1)).next(USUAL, Ok(1));
            call(&mut client, SAFE).await.unwrap();
        }
        let counts = counts(&targets);
        assert!((earned - 1..=earned + 1).contains(&counts.retries), "{share}: {counts:?}");
        assert_eq!(counts.retries + counts.withheld, 20);
    }
}

#[tokio::test(start_paused = true)]
async fn budget_earned_by_all_targets_adds_up() {
    let (targets, server) = (budget(0.5, 1), Server::default());
    let mut client = cold(retrying(&targets, 2), &server);
    for (to, answer, calls) in
        [("spends the burst", 2, 2), ("earns a half", 1, 1), ("earns a half as well", 2, 2)]
    {
        let before = server.calls();
        server.next(STUCK, Ok(1)).next(USUAL, Ok(2));
        assert_eq!(call(&mut client, Request { to, twice: true }).await.unwrap(), answer, "{to}");
        assert_eq!(server.calls() - before, calls, "{to}");
        server.forget();
    }
}

#[tokio::test(start_paused = true)]
async fn retries_and_hedges_share_one_budget() {
    let (targets, server) = (budget(0.0, 1), Server::default());
    let mut client = warm(retrying(&targets, 2), &server).await;
    let mut hedger = cold(hedging(&targets), &server);
    server.next(STUCK, Ok(1)).next(Duration::ZERO, Ok(2)).next(STUCK, Ok(3));
    assert_eq!(call(&mut client, SAFE).await.unwrap(), 2);
    assert_eq!(call(&mut hedger, SAFE).await.unwrap(), 3);
    assert_eq!((counts(&targets).retries, counts(&targets).hedges), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_hedged_call_drops_both_attempts() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(hedging(&targets), &server).await;
    server.next(2 * STUCK, Ok(1)).next(2 * STUCK, Ok(2));
    let mut under_way = Box::pin(call(&mut client, SAFE));
    timeout(STUCK, &mut under_way).await.expect_err("nothing answers");
    assert_eq!(server.under_way(), 2);
    drop(under_way);
    assert_eq!((server.under_way(), counts(&targets).superseded, counts(&targets).timed_out), (0, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn both_attempts_of_a_hedged_call_end_at_the_limit() {
    let (targets, server) = (Targets::default(), Server::default());
    let mut client = warm(hedging(&targets), &server).await;
    server.next(10 * MAX_TIMEOUT, Ok(1)).next(10 * MAX_TIMEOUT, Ok(2));
    let error = call(&mut client, SAFE).await.unwrap_err();
    assert_eq!(Elapsed::find(&*error).map(|elapsed| elapsed.attempts), Some(2));
    assert_eq!((server.under_way(), counts(&targets).timed_out), (0, 2));
}

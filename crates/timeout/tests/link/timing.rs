//! Tests which attempts are cut off, which messages are sent again, and that each message is
//! handled once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_sim::stream::{Answer, AttemptFate};
use barograph_timeout::link::{AttemptError, Link, LinkConfig, ListenConfig, SendError, SenderId};
use barograph_timeout::{Adaptive, AttemptOutcome, FixedTimeout, Nws, NwsEscalating, TimeoutReason};
use tokio::time::{Instant, sleep, timeout};

use crate::common::{
    MS, SECOND, Tape, at_once, in_turn, link, linked, linked_to_worker, serve, serve_if, simulated,
};

#[tokio::test(start_paused = true)]
async fn a_hundred_messages_use_one_connection() {
    let (connector, listener) =
        simulated(in_turn(&[AttemptFate::after(20 * MS)]), at_once, ListenConfig::default());
    let serving = serve(listener);
    let mut link = Link::new(connector, LinkConfig::default(), Adaptive::default());
    assert_eq!((link.decide(9).reason, link.last_decision().is_none()), (TimeoutReason::Initial, true));
    for n in 1..=100 {
        let receipt = link.send(&[7; 1000]).await.unwrap();
        assert_eq!((receipt.id, receipt.attempts, receipt.duplicate), (n, 1, false));
        assert_eq!((receipt.response, receipt.timeouts), (20 * MS, 0));
    }
    assert!(link.decide(1000).timeout < 45 * SECOND, "{:?}", link.decide(1000));
    let counters = link.counters();
    assert_eq!((counters.acknowledged, counters.attempts, counters.connections), (100, 100, 1));
    assert_eq!(serving.stop().await, (1..=100).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_cut_off_and_the_message_is_sent_again() {
    let law = in_turn(&[AttemptFate::lost(), AttemptFate::after(20 * MS)]);
    let (connector, listener) = simulated(law, |_| Ok(300 * MS), ListenConfig::default());
    let serving = serve(listener);
    let mut link = link(connector, SECOND, 5);
    let receipt = link.send(b"gust").await.unwrap();
    assert_eq!((receipt.attempts, receipt.timeouts, receipt.duplicate), (2, 1, false));
    assert_eq!((receipt.response, receipt.took), (20 * MS, 1620 * MS));
    // The set-up of connections is timed apart from the attempts.
    assert_eq!(
        link.estimator().ended,
        [(0, AttemptOutcome::TimedOut(SECOND)), (1, AttemptOutcome::Completed(20 * MS))]
    );
    assert_eq!(link.estimator().connected, [300 * MS, 300 * MS]);
    assert_eq!((link.counters().timeouts, link.counters().failures), (1, 0));
    assert_eq!(*serving.handled.lock().unwrap(), [(1, b"gust".to_vec())]);
    assert_eq!(serving.stop().await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_is_not_handled_again() {
    let law = in_turn(&[AttemptFate::after(3 * SECOND), AttemptFate::after(20 * MS)]);
    let (mut link, serving) = linked(law, at_once, SECOND, 5);
    assert!(!link.send(b"a").await.unwrap().duplicate);
    sleep(9 * SECOND).await;
    let counters = serving.listener.counters();
    assert_eq!((counters.handled, counters.duplicates), (1, 1));
    assert_eq!(serving.stop().await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_that_arrives_first_makes_the_retry_a_duplicate() {
    let law = in_turn(&[AttemptFate::after(1100 * MS), AttemptFate::after(500 * MS)]);
    let (mut link, serving) = linked(law, at_once, SECOND, 5);
    let receipt = link.send(b"a").await.unwrap();
    assert!(receipt.duplicate && receipt.took == 1500 * MS, "{receipt:?}");
    assert_eq!(link.counters().duplicates, 1);
    assert_eq!(serving.stop().await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_copy_overtaken_by_a_later_message_is_stale() {
    let law = in_turn(&[AttemptFate::after(60 * SECOND), AttemptFate::lost(), AttemptFate::after(20 * MS)]);
    let (mut link, serving) = linked(law, at_once, SECOND, 2);
    assert!(matches!(link.send(b"a").await, Err(SendError::Unacknowledged { attempts: 2, .. })));
    assert_eq!(link.send(b"b").await.unwrap().id, 2);
    sleep(99 * SECOND).await;
    assert_eq!((serving.listener.counters().stale, serving.listener.counters().handled), (1, 1));
    assert_eq!(serving.stop().await, [2]);
}

#[tokio::test(start_paused = true)]
async fn a_copy_waits_while_the_first_is_being_handled() {
    let (mut link, serving) = linked_to_worker(ListenConfig::default(), 10 * SECOND, 4 * SECOND, 5);
    let receipt = link.send(b"a").await.unwrap();
    assert_eq!((receipt.attempts, receipt.timeouts, receipt.duplicate), (3, 2, true));
    let waited = 2 * SECOND + MS;
    let ended = [
        (0, AttemptOutcome::TimedOut(4 * SECOND)),
        (1, AttemptOutcome::TimedOut(4 * SECOND)),
        (2, AttemptOutcome::Cancelled(waited)),
        (0, AttemptOutcome::Completed(8 * SECOND + waited)),
    ];
    assert_eq!(link.estimator().ended, ended, "the answer is that of the first copy");
    assert_eq!(serving.listener.counters().handled, 1);
    assert_eq!(serving.stop().await, [1]);
}

/// All attempts have ended while the receiver still handles the first copy. The next message is
/// handled after this copy.
#[tokio::test(start_paused = true)]
async fn the_next_message_waits_for_a_message_that_was_abandoned() {
    let (mut link, serving) = linked_to_worker(ListenConfig::default(), 10 * SECOND, SECOND, 3);
    link.send(b"a").await.unwrap_err();
    link.estimator_mut().inner = FixedTimeout(60 * SECOND);
    let receipt = link.send(b"b").await.unwrap();
    assert_eq!((receipt.response, receipt.duplicate), (17 * SECOND + MS, false));
    assert_eq!(serving.stop().await, [1, 2]);
}

/// Connections that the sender closed after a timeout do not use up `connections_max` of the
/// receiver.
#[tokio::test(start_paused = true)]
async fn a_sender_with_many_timeouts_uses_at_most_two_connections() {
    let config = ListenConfig { connections_max: 3, ..ListenConfig::default() };
    let (mut link, serving) = linked_to_worker(config, 100 * SECOND, SECOND, 20);
    let error = link.send(b"a").await.unwrap_err();
    assert!(matches!(error, SendError::Unacknowledged { attempts: 20, timeouts: 20, .. }), "{error:?}");
    assert_eq!(serving.listener.counters().declined, 0);
    sleep(100 * SECOND).await;
    assert_eq!(serving.stop().await, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_handled_again_after_its_handler_failed() {
    let (connector, listener) =
        simulated(in_turn(&[AttemptFate::after(MS)]), at_once, ListenConfig::default());
    let (ready, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let asked = (ready.clone(), refused.clone());
    let serving = serve_if(listener, Duration::ZERO, move |message| match &message.bytes[..] {
        b"panic" => asked.1.swap(true, Ordering::SeqCst) || panic!("as this test wants"),
        _ => asked.0.swap(true, Ordering::SeqCst),
    });
    let mut link = link(connector, SECOND, 5);
    let receipt = link.send(b"a").await.unwrap();
    assert_eq!((receipt.attempts, receipt.timeouts, receipt.duplicate), (2, 0, false));
    assert!(matches!(
        link.estimator().ended[..],
        [(0, AttemptOutcome::Failed(_)), (1, AttemptOutcome::Completed(_))]
    ));
    assert_eq!(link.send(b"panic").await.unwrap().attempts, 2);
    assert_eq!((serving.listener.counters().rejected, serving.listener.counters().handled), (2, 2));
    assert_eq!(serving.stop().await, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_send_to_a_peer_that_never_acknowledges_ends_with_an_error() {
    let fate = AttemptFate { arrives: Some(MS), answer: Answer::Lost };
    let (connector, listener) = simulated(in_turn(&[fate]), at_once, ListenConfig::default());
    let serving = serve(listener);
    let mut link = link(connector, SECOND, 5);
    let began = Instant::now();
    let error = link.send(b"a").await.unwrap_err();
    assert!(
        matches!(
            error,
            SendError::Unacknowledged { attempts: 5, timeouts: 5, last: AttemptError::TimedOut(SECOND) }
        ),
        "{error:?}"
    );
    assert_eq!(began.elapsed(), 5 * SECOND);
    assert!(!link.is_connected());
    assert_eq!(serving.stop().await, [1], "it was handled, once");
}

/// With the paper's formula and escalation, the last attempt runs to the limit, so a slow response
/// is still received.
#[tokio::test(start_paused = true)]
async fn the_last_attempt_waits_for_a_peer_that_has_become_slow() {
    let mut n = 0;
    let law = move |_: &_| {
        n += 1;
        AttemptFate::after(if n <= 20 { 20 * MS } else { 300 * SECOND })
    };
    let (connector, listener) = simulated(law, at_once, ListenConfig::default());
    let serving = serve(listener);
    let estimator = Tape::new(NwsEscalating(Nws::new(2.0)));
    let mut link = Link::new(connector, LinkConfig::default(), estimator);
    for _ in 0..20 {
        link.send(b"quick").await.unwrap();
    }
    let receipt = link.send(b"slow").await.unwrap();
    assert!(receipt.timeouts > 0, "{receipt:?}");
    sleep(3600 * SECOND).await;
    assert_eq!(serving.stop().await, (1..=21).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_retried_with_growing_waits() {
    let (connector, listener) =
        simulated(in_turn(&[AttemptFate::lost()]), |_| Err(10 * MS), ListenConfig::default());
    let serving = serve(listener);
    let mut link = link(connector, SECOND, 5);
    let began = Instant::now();
    let error = link.send(b"a").await.unwrap_err();
    assert!(
        matches!(
            &error,
            SendError::Unacknowledged { attempts: 0, timeouts: 0, last: AttemptError::Connect(_) }
        ),
        "{error:?}"
    );
    // The sender gives up when the next wait, of at most 5 s, would exceed the limit of 30 s.
    assert!((25 * SECOND..=30 * SECOND).contains(&began.elapsed()), "{:?}", began.elapsed());
    // Each wait is between half and all of 50, 100, 200 ms and so on, up to 5 s. The first seven
    // waits take at most 6.35 s, and five to ten longer waits follow.
    let counters = link.counters();
    assert!((11..=18).contains(&counters.unreachable), "{counters:?}");
    assert_eq!((counters.attempts, counters.failures), (0, 0));
    assert!(link.estimator().ended.is_empty(), "it says nothing about how long an answer takes");
    assert_eq!(serving.stop().await, []);
}

/// While a receiver restarts, the sender waits, but no attempt fails and no message is lost.
#[tokio::test(start_paused = true)]
async fn no_message_is_lost_while_a_receiver_is_down() {
    for away in [SECOND, 10 * SECOND, 20 * SECOND] {
        let set_up = move |now| if now < away { Err(MS) } else { Ok(MS) };
        let (mut link, serving) = linked(in_turn(&[AttemptFate::after(MS)]), set_up, SECOND, 1);
        let receipt = link.send(b"a").await.unwrap();
        assert_eq!((receipt.attempts, receipt.timeouts), (1, 0));
        assert!((away..=away + 6 * SECOND).contains(&receipt.took), "{receipt:?}");
        assert_eq!(serving.stop().await, [1]);
    }
}

/// Even if all waits are 0, the sender pauses between set-ups, and it gives up in the end.
#[tokio::test(start_paused = true)]
async fn a_back_off_of_0_does_not_spin() {
    for (connect_timeout, set_ups) in [(SECOND, 100), (Duration::ZERO, 1)] {
        let (connector, _listener) =
            simulated(in_turn(&[AttemptFate::lost()]), |_| Err(Duration::ZERO), ListenConfig::default());
        let (backoff_min, backoff_max) = (Duration::ZERO, Duration::ZERO);
        let config = LinkConfig { backoff_min, backoff_max, connect_timeout, ..LinkConfig::default() };
        let mut link = Link::new(connector, config, FixedTimeout(SECOND));
        link.send(b"a").await.unwrap_err();
        assert!((1..=set_ups).contains(&link.counters().unreachable), "{:?}", link.counters());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_never_established_ends_at_the_connect_timeout() {
    let mut n = 0;
    let set_up = move |_| {
        n += 1;
        Ok(if n == 1 { 3600 * SECOND } else { 100 * MS })
    };
    let (mut link, serving) = linked(in_turn(&[AttemptFate::after(MS)]), set_up, 20 * MS, 5);
    let receipt = link.send(b"a").await.unwrap();
    assert_eq!((receipt.attempts, receipt.timeouts), (1, 0), "it was no attempt");
    assert_eq!((receipt.took, link.counters().unreachable), (3101 * MS, 1));
    assert_eq!(link.estimator().connected, [100 * MS]);
    assert_eq!(serving.stop().await, [1]);
}

#[tokio::test(start_paused = true)]
async fn resets_are_failures_and_not_timeouts() {
    let handled_then_reset = AttemptFate { arrives: Some(MS), answer: Answer::Reset(5 * MS) };
    let law = in_turn(&[AttemptFate::reset(10 * MS), handled_then_reset, AttemptFate::after(MS)]);
    let (mut link, serving) = linked(law, at_once, SECOND, 5);
    let receipt = link.send(b"a").await.unwrap();
    assert_eq!((receipt.attempts, receipt.timeouts, receipt.duplicate), (3, 0, true));
    let ended = [
        (0, AttemptOutcome::Failed(10 * MS)),
        (1, AttemptOutcome::Failed(5 * MS)),
        (2, AttemptOutcome::Completed(MS)),
    ];
    assert_eq!(link.estimator().ended, ended);
    assert_eq!(serving.stop().await, [1]);
}

/// A future that is dropped at any time leaves a usable link, and its attempt is recorded.
#[tokio::test(start_paused = true)]
async fn a_link_works_after_a_dropped_send() {
    let law = in_turn(&[AttemptFate::after(20 * MS)]);
    let (mut link, serving) = linked(law, |_| Ok(10 * MS), SECOND, 5);
    for after in 0..40 {
        let dropped = timeout(after * MS, link.send(b"dropped")).await.is_err();
        let id = link.next_id();
        assert_eq!(link.is_connected(), !dropped);
        assert_eq!(link.send(b"kept").await.unwrap().id, id);
    }
    let superseded = |(_, ended): &&(u32, AttemptOutcome)| matches!(ended, AttemptOutcome::Cancelled(_));
    assert!(link.estimator().ended.iter().filter(superseded).count() > 5);
    sleep(SECOND).await;
    let ids = serving.stop().await;
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    assert!(ids.len() > 40, "every message that was kept, and some that were dropped");
}

/// A slow receiver slows its sender down: one message at a time, and no queue.
#[tokio::test(start_paused = true)]
async fn a_sender_waits_for_a_slow_receiver() {
    let (mut link, serving) = linked_to_worker(ListenConfig::default(), 3 * SECOND, 60 * SECOND, 5);
    let began = Instant::now();
    for n in 1..=10 {
        link.send(&[0; 100_000]).await.unwrap();
        assert_eq!(began.elapsed(), n * (3 * SECOND + MS));
    }
    assert_eq!(serving.stop().await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_handler_and_acknowledges() {
    let (mut link, serving) = linked_to_worker(ListenConfig::default(), 5 * SECOND, 60 * SECOND, 2);
    let (handled, began) = (serving.handled.clone(), Instant::now());
    let (receipt, ()) = tokio::join!(link.send(b"a"), async {
        sleep(SECOND).await;
        serving.stop().await;
    });
    assert_eq!((receipt.unwrap().attempts, handled.lock().unwrap().len()), (1, 1));
    assert_eq!(began.elapsed(), 5 * SECOND + MS);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_never_ends_does_not_delay_the_shutdown() {
    let config = ListenConfig { grace: 7 * SECOND, ..ListenConfig::default() };
    let (mut link, serving) = linked_to_worker(config, 1_000_000 * SECOND, SECOND, 1);
    link.send(b"a").await.unwrap_err();
    let began = Instant::now();
    assert_eq!(serving.stop().await, []);
    assert_eq!(began.elapsed(), 7 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn timeouts_of_0_or_the_maximum_do_no_harm() {
    for (timeout, well) in [(Duration::ZERO, false), (Duration::from_nanos(1), false), (Duration::MAX, true)]
    {
        let law = in_turn(&[AttemptFate::after(20 * MS)]);
        let (mut link, serving) = linked(law, at_once, timeout, 0);
        let sent = link.send(b"").await;
        assert_eq!(sent.is_ok(), well, "{timeout:?}: {sent:?}");
        sleep(SECOND).await;
        assert_eq!(serving.stop().await, [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn using_a_sender_id_twice_is_an_error() {
    let (connector, listener) =
        simulated(in_turn(&[AttemptFate::after(MS)]), at_once, ListenConfig::default());
    let connector = Arc::new(connector);
    let serving = serve(listener);
    let again = |first_id| {
        let connector = connector.clone();
        let config = LinkConfig { sender: Some(SenderId([1; 16])), first_id, ..LinkConfig::default() };
        Link::new(ByReference(connector), config, FixedTimeout(SECOND))
    };
    let mut first = again(5);
    first.send(b"a").await.unwrap();
    first.send(b"b").await.unwrap();
    assert!(matches!(again(0).send(b"c").await, Err(SendError::Stale { id: 1 })));
    assert_eq!(again(7).send(b"d").await.unwrap().id, 7, "it goes on where the first ended");
    let mut last = again(u64::MAX);
    assert!(matches!(last.send(b"e").await, Err(SendError::IdsSpent)));
    assert_eq!(serving.stop().await, [5, 6, 7]);
}

struct ByReference<C>(Arc<C>);

impl<C: barograph_timeout::link::Connect> barograph_timeout::link::Connect for ByReference<C> {
    type Stream = C::Stream;

    async fn connect(&self) -> std::io::Result<C::Stream> {
        self.0.connect().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_above_the_size_limit_is_not_sent() {
    let config = ListenConfig { message_bytes_max: 100, ..ListenConfig::default() };
    let (connector, listener) = simulated(in_turn(&[AttemptFate::after(MS)]), at_once, config);
    let serving = serve(listener);
    let link_config = LinkConfig { message_bytes_max: 1000, ..LinkConfig::default() };
    let mut link = Link::new(connector, link_config, FixedTimeout(SECOND));
    let refused = link.send(&[0; 1001]).await;
    assert!(matches!(refused, Err(SendError::TooLarge { bytes: 1001, max: 1000 })), "{refused:?}");
    let refused = link.send(&[0; 101]).await;
    assert!(matches!(refused, Err(SendError::TooLarge { bytes: 101, max: 100 })), "{refused:?}");
    assert!(link.is_connected());
    assert_eq!(link.send(&[0; 100]).await.unwrap().attempts, 1);
    assert_eq!(serving.listener.counters().protocol_errors, 0);
    serving.stop().await;
}

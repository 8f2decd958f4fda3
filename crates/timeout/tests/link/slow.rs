//! Handlers that are slow now and then: a retry does not make the handlers faster, and the link
//! must learn this fact.

use std::f64::consts::TAU;
use std::time::Duration;

use barograph_sim::stream::AttemptFate;
use barograph_timeout::Adaptive;
use barograph_timeout::link::{Link, LinkConfig, ListenConfig, Message};
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tokio::sync::oneshot;

use crate::common::{MS, Tape, simulated};

const MESSAGES: u64 = 4000;

/// Lognormal times with a median of one second; one time in fifty is eight times as long.
fn handling(luck: &mut TestRng) -> Duration {
    let mut uniform = || (f64::from(luck.next_u32()) + 0.5) / f64::from(u32::MAX);
    let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), TAU * uniform());
    let slow = if uniform() < 0.02 { 8.0 } else { 1.0 };
    Duration::from_secs_f64(slow * (0.5 * radius * angle.cos()).exp())
}

async fn retried(seed: u8) -> u64 {
    let (connector, listener) =
        simulated(|_| AttemptFate::after(10 * MS), |_| Ok(10 * MS), ListenConfig::default());
    let luck = std::sync::Mutex::new(TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let handler = move |_: Message| {
        let takes = handling(&mut luck.lock().unwrap());
        async move {
            tokio::time::sleep(takes).await;
            Ok::<(), ()>(())
        }
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move { listener.serve(handler, async { _ = stopped.await }).await });
    let config = LinkConfig { seed: Some(1), ..LinkConfig::default() };
    let mut link = Link::new(connector, config, Tape::new(Adaptive::default()));
    let mut retried = 0;
    for _ in 0..MESSAGES {
        let receipt = link.send(b"slow").await.unwrap();
        retried += u64::from(receipt.attempts > 1);
    }
    assert_eq!(link.counters().acknowledged, MESSAGES);
    drop(stop);
    serving.await.unwrap();
    retried
}

#[tokio::test(start_paused = true)]
async fn messages_that_a_retry_does_not_speed_up_are_rarely_retried() {
    for seed in 1..=4 {
        let retried = retried(seed).await;
        eprintln!("{retried} of {MESSAGES} messages were retried");
        assert!(retried <= MESSAGES / 50, "{retried} of {MESSAGES} messages were retried");
    }
}

//! A path that loses and delays data and resets connections. With any seed, every message is
//! handled once, in order.

use std::time::Duration;

use barograph_sim::stream::{Answer, AttemptFate, AttemptInfo, SetUpDelay};
use barograph_timeout::FixedTimeout;
use barograph_timeout::link::{Link, LinkConfig, ListenConfig};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng};

use crate::common::{MS, SECOND, Tape, serve_if, simulated};

/// Fate of each exchange: about three in eight exchanges fail or are late, in one of six ways.
fn law(mut luck: TestRng) -> impl FnMut(&AttemptInfo) -> AttemptFate + Send + 'static {
    move |_| {
        let delay = (1 + luck.next_u32() % 50) * MS;
        let late = SECOND + (luck.next_u32() % 5000) * MS;
        match luck.next_u32() % 16 {
            0 => AttemptFate::lost(),
            1 => AttemptFate { arrives: Some(delay), answer: Answer::Lost },
            2 => AttemptFate::reset(delay),
            3 => AttemptFate { arrives: Some(delay), answer: Answer::Reset(2 * delay) },
            4 => AttemptFate::after(late),
            5 => AttemptFate { arrives: Some(delay), answer: Answer::After(late) },
            _ => AttemptFate { arrives: Some(delay), answer: Answer::After(delay) },
        }
    }
}

fn set_up(mut luck: TestRng) -> impl FnMut(Duration) -> SetUpDelay + Send + 'static {
    move |_| if luck.next_u32().is_multiple_of(8) { Err(5 * MS) } else { Ok(2 * MS) }
}

async fn thousand_messages(seed: u64) {
    let luck = |stream: u8| {
        let mut bytes = [stream; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
    };
    let (connector, listener) = simulated(law(luck(1)), set_up(luck(2)), ListenConfig::default());
    // The handler rejects about one copy in 32.
    let refuse = std::sync::Arc::new(std::sync::Mutex::new(luck(3)));
    let serving =
        serve_if(listener, Duration::ZERO, move |_| !refuse.lock().unwrap().next_u32().is_multiple_of(32));
    let config = LinkConfig { max_attempts: 60, seed: Some(seed), ..LinkConfig::default() };
    let mut link = Link::new(connector, config, Tape::new(FixedTimeout(200 * MS)));
    for n in 1..=MESSAGES {
        let receipt = link.send(&n.to_be_bytes()).await.unwrap();
        assert_eq!(receipt.id, n);
    }
    tokio::time::sleep(60 * SECOND).await;
    let handled = serving.handled.lock().unwrap().clone();
    let expected: Vec<_> = (1..=MESSAGES).map(|n| (n, n.to_be_bytes().to_vec())).collect();
    assert_eq!(handled, expected);
    let (sent, received) = (link.counters(), serving.listener.counters());
    assert_eq!(sent.attempts, sent.acknowledged + sent.timeouts + sent.failures);
    assert_eq!(link.estimator().ended.len() as u64, sent.attempts, "every attempt is recorded once");
    assert!(sent.timeouts > 50 && sent.failures > 50 && sent.duplicates > 20, "{sent:?}");
    assert!(sent.duplicates <= received.duplicates, "{sent:?} {received:?}");
    assert_eq!((received.handled, sent.protocol_errors, received.protocol_errors), (MESSAGES, 0, 0));
    serving.stop().await;
}

const MESSAGES: u64 = 1000;

proptest! {
    #![proptest_config(Config { cases: 12, ..Config::default() })]

    #[test]
    fn every_message_on_a_lossy_link_is_handled_once_and_in_order(seed: u64) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(thousand_messages(seed));
    }
}

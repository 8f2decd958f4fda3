//! Tests of the layer with invalid settings and with faulty services.

use std::time::Duration;

use barograph_timeout::AdaptiveConfig;
use barograph_timeout::tower::{Elapsed, RetryBudget, Targets, TargetsConfig};

use crate::{SAFE, STUCK, Server, call, cold, counts, hedging, over, retrying};

#[tokio::test(start_paused = true)]
async fn zero_and_maximum_durations_do_no_harm() {
    for (initial_timeout, max_timeout, deadline) in [
        (Duration::MAX, Duration::MAX, Duration::MAX),
        (Duration::ZERO, Duration::MAX, Duration::MAX),
        (Duration::MAX, Duration::MAX, Duration::ZERO),
        (Duration::ZERO, Duration::ZERO, Duration::ZERO),
    ] {
        let settings = TargetsConfig {
            estimator: AdaptiveConfig { initial_timeout, max_timeout, ..AdaptiveConfig::default() },
            budget: RetryBudget { share: f64::NAN, burst: u32::MAX },
            ..TargetsConfig::default()
        };
        let (targets, server) = (Targets::new(settings), Server::default());
        for layer in [over(&targets), retrying(&targets, 8), hedging(&targets), retrying(&targets, 0)] {
            let mut client = cold(layer.deadline(deadline), &server);
            server.next(STUCK, Ok(1));
            match call(&mut client, SAFE).await {
                Ok(_) => assert!(deadline > Duration::ZERO, "an answer after the deadline"),
                Err(error) => assert!(Elapsed::find(&*error).is_some(), "{error}"),
            }
            server.forget();
            assert_eq!(server.under_way(), 0);
        }
        let counts = counts(&targets);
        let ended = counts.answered + counts.timed_out + counts.superseded + counts.failed;
        assert_eq!(counts.attempts, ended, "each attempt ends once: {counts:?}");
    }
}

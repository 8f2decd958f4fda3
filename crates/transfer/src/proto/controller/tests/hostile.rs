//! Tests that the rate and the window of every controller stay usable, even if the feedback is
//! arbitrary.

use std::time::Duration;

use proptest::prelude::*;

use crate::proto::Rtt;
use crate::proto::controller::{
    Controller, ControllerConfig, ControllerKind, Delivery, DetectedLossRun, FeedbackSample,
};

/// Input of one call to a controller.
#[derive(Clone, Debug)]
struct Told {
    is_silence: bool,
    passed: Duration,
    rtt: Rtt,
    counts: [u64; 6],
    packet_bytes: u32,
    delivery: Option<Delivery>,
    losses: Vec<DetectedLossRun>,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), 0..100_000u64, any::<u64>()]
}

fn time() -> impl Strategy<Value = Duration> {
    let huge = Duration::from_secs(u64::MAX / 1_000_000);
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_nanos(1)),
        Just(huge),
        (0..1_000_000u64).prop_map(Duration::from_micros),
    ]
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-1.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MIN_POSITIVE),
        Just(f64::MAX),
        0.0..1e10
    ]
}

fn told() -> impl Strategy<Value = Told> {
    let rtt = (proptest::option::of(time()), time(), time(), time())
        .prop_map(|(latest, smoothed, variation, min)| Rtt { latest, smoothed, variation, min });
    let delivery =
        (rate(), number(), number(), any::<bool>()).prop_map(|(bytes_s, prior, now, is_app_limited)| {
            Delivery {
                bytes_s,
                prior_delivered_bytes: prior,
                delivered_bytes: now,
                in_flight_bytes: prior,
                is_app_limited,
            }
        });
    let packets = prop_oneof![Just(0), Just(1), Just(u32::MAX), any::<u32>()];
    let loss = (number(), packets.clone(), time()).prop_map(|(at, packets, sent)| DetectedLossRun {
        at,
        packets,
        bytes: at,
        sent,
        in_flight_bytes: at,
    });
    let counts = proptest::array::uniform6(number());
    (
        proptest::bool::weighted(0.1),
        time(),
        rtt,
        counts,
        packets,
        proptest::option::of(delivery),
        proptest::collection::vec(loss, 0..4),
    )
        .prop_map(|(is_silence, passed, rtt, counts, packet_bytes, delivery, losses)| Told {
            is_silence,
            passed,
            rtt,
            counts,
            packet_bytes,
            delivery,
            losses,
        })
}

fn tell(controller: &mut dyn Controller, now: Duration, told: &Told) {
    if told.is_silence {
        return controller.on_no_feedback(now);
    }
    let [acked_packets, acked_bytes, marked_packets, accounted_packets, host_lost_packets, drain_bytes_s] =
        told.counts;
    let seen = FeedbackSample {
        rtt: told.rtt,
        round_trip: told.rtt.latest,
        acked_packets,
        acked_bytes,
        marked_packets,
        delivery: told.delivery,
        losses: &told.losses,
        accounted_packets,
        host_lost_packets,
        drain_bytes_s,
        packet_bytes: told.packet_bytes,
        ..FeedbackSample::default()
    };
    controller.on_feedback(now, &seen);
}

proptest! {
    #[test]
    fn every_controller_keeps_a_valid_rate_for_any_calls(calls in proptest::collection::vec(told(), 1..40), configured in rate()) {
        for kind in ControllerKind::ALL {
            let mut controller = kind.controller(ControllerConfig { rate_bytes_s: configured, ..ControllerConfig::default() });
            let mut now = Duration::ZERO;
            for told in &calls {
                now = now.saturating_add(told.passed);
                tell(&mut *controller, now, told);
                let (rate, window) = (controller.rate_bytes_s(), controller.window_bytes());
                prop_assert!(rate > 0.0, "{kind}: {rate} after {told:?}");
                prop_assert!(rate.is_finite() || window < u64::MAX, "{kind}: neither limits after {told:?}");
                prop_assert!(window > 0, "{kind}: no window after {told:?}");
            }
        }
    }
}

use std::time::Duration;

use proptest::prelude::*;

use super::ModelController;
use crate::proto::Rtt;
use crate::proto::controller::{Controller, Delivery, DetectedLossRun, FeedbackSample};

const PACKET: u32 = 1500;

fn rtt(latest: Duration) -> Rtt {
    Rtt { latest: Some(latest), smoothed: latest, variation: latest / 8, min: latest }
}

/// Gives the model the feedback of `rounds` rounds on a path that delivers `bytes_s`. There are
/// four feedbacks in each round trip of 100 ms. Returns the time of the end (ms).
fn feed(model: &mut ModelController, from_ms: u64, rounds: u64, bytes_s: f64, is_app_limited: bool) -> u64 {
    let quarter = (bytes_s * 0.025) as u64;
    for n in 0..4 * rounds {
        let now = Duration::from_millis(from_ms + 25 * n);
        let delivered = now.as_millis() as u64 * quarter / 25;
        let seen = FeedbackSample {
            rtt: rtt(Duration::from_millis(100)),
            round_trip: Some(Duration::from_millis(100)),
            round: n / 4,
            acked_packets: quarter / u64::from(PACKET),
            acked_bytes: quarter,
            in_flight_bytes: 4 * quarter,
            delivery: Some(Delivery {
                bytes_s,
                prior_delivered_bytes: delivered.saturating_sub(4 * quarter),
                delivered_bytes: delivered,
                in_flight_bytes: 4 * quarter,
                is_app_limited,
            }),
            accounted_packets: delivered / u64::from(PACKET),
            packet_bytes: PACKET,
            ..FeedbackSample::default()
        };
        model.on_feedback(now, &seen);
    }
    from_ms + 100 * rounds
}

#[test]
fn the_model_begins_with_ten_paced_packets() {
    let model = ModelController::new(PACKET, 1);
    assert_eq!(model.window_bytes(), 15_000);
    assert!(model.rate_bytes_s() > 15_000.0 / 0.001);
}

#[test]
fn the_model_settles_at_the_delivered_bandwidth() {
    let mut model = ModelController::new(PACKET, 1);
    feed(&mut model, 1000, 40, 1e7, false);
    let rate = model.rate_bytes_s();
    assert!((0.85e7..=1.25e7).contains(&rate), "{rate}");
    // The window is between one and two bandwidth–delay products of 1 MB, plus the bytes that one
    // feedback aggregates.
    assert!((1_000_000..=2_600_000).contains(&model.window_bytes()), "{}", model.window_bytes());
}

#[test]
fn an_app_limited_sender_does_not_lower_the_rate() {
    let mut model = ModelController::new(PACKET, 1);
    let at = feed(&mut model, 1000, 40, 1e7, false);
    feed(&mut model, at, 300, 1e5, true);
    assert!(model.rate_bytes_s() > 0.85e7, "{}", model.rate_bytes_s());
    assert!(model.window_bytes() > 400_000, "{}", model.window_bytes());
}

#[test]
fn an_unused_bandwidth_probe_ends() {
    let mut model = ModelController::new(PACKET, 1);
    let mut at = feed(&mut model, 1000, 40, 1e7, false);
    let (mut raised, mut longest) = (0, 0);
    for _ in 0..200 {
        at = feed(&mut model, at, 1, 1e7, true);
        raised = if model.rate_bytes_s() > 1.1e7 { raised + 1 } else { 0 };
        longest = longest.max(raised);
    }
    // The samples look as if a receiver's drain rate limited the sender for seconds.
    assert!(longest <= 3, "raised for {longest} round trips in turn");
}

#[test]
fn silence_halves_the_rate_and_the_next_feedback_restores_the_rate() {
    let mut model = ModelController::new(PACKET, 1);
    let at = feed(&mut model, 1000, 40, 1e7, false);
    let (rate, window) = (model.rate_bytes_s(), model.window_bytes());
    model.on_no_feedback(Duration::from_millis(at));
    assert!((model.rate_bytes_s() / rate - 0.5).abs() < 1e-9);
    assert!(model.window_bytes() <= window / 2 + 1);
    for _ in 0..100 {
        model.on_no_feedback(Duration::from_millis(at));
    }
    assert_eq!(model.window_bytes(), 4 * u64::from(PACKET));
    assert_eq!(model.rate_bytes_s(), 1500.0 / 4.0);
    feed(&mut model, at, 10, 1e7, false);
    assert!(model.rate_bytes_s() > 0.4 * rate, "{}", model.rate_bytes_s());
}

prop_compose! {
    fn any_loss()(at: u64, packets: u32, bytes: u64, sent: u64, in_flight_bytes: u64) -> DetectedLossRun {
        DetectedLossRun { at, packets, bytes, sent: Duration::from_nanos(sent), in_flight_bytes }
    }
}

prop_compose! {
    fn any_delivery()(
        bytes_s in prop_oneof![any::<f64>(), 0.0..1e10],
        prior_delivered_bytes: u64,
        delivered_bytes: u64,
        in_flight_bytes: u64,
        is_app_limited: bool,
    ) -> Delivery {
        Delivery { bytes_s, prior_delivered_bytes, delivered_bytes, in_flight_bytes, is_app_limited }
    }
}

/// A time step (ns), and either feedback with arbitrary values or an expiry of the no-feedback
/// timer.
fn any_step() -> impl Strategy<Value = (u64, Option<Hostile>)> {
    let numbers = prop::array::uniform6(prop_oneof![any::<u64>(), 0_u64..1_000_000]);
    let latest = prop::option::of(prop_oneof![any::<u64>(), 0_u64..1_000_000_000]);
    let delivery = prop::option::of(any_delivery());
    let losses = prop::collection::vec(any_loss(), 0..4);
    let hostile = (numbers, latest, delivery, losses, any::<u32>());
    (0_u64..10_000_000_000, prop::option::weighted(0.9, hostile))
}

type Hostile = ([u64; 6], Option<u64>, Option<Delivery>, Vec<DetectedLossRun>, u32);

proptest! {
    #[test]
    fn rate_and_window_stay_valid_for_any_feedback(steps in prop::collection::vec(any_step(), 1..200), seed: u64) {
        let mut model = ModelController::new(PACKET, seed);
        let mut now = Duration::ZERO;
        let mut packet_bytes = PACKET;
        for (gap, step) in steps {
            now += Duration::from_nanos(gap);
            match &step {
                None => model.on_no_feedback(now),
                Some((numbers, latest, delivery, losses, packet)) => {
                    packet_bytes = *packet;
                    let latest = latest.map(Duration::from_nanos);
                    model.on_feedback(now, &FeedbackSample {
                        rtt: Rtt { latest, ..rtt(Duration::from_nanos(numbers[5])) },
                        round_trip: latest,
                        round: numbers[0],
                        acked_packets: numbers[1],
                        acked_bytes: numbers[2],
                        marked_packets: numbers[3],
                        in_flight_bytes: numbers[4],
                        delivery: *delivery,
                        losses,
                        accounted_packets: numbers[0],
                        packet_bytes,
                        ..FeedbackSample::default()
                    });
                }
            }
            let (rate, window) = (model.rate_bytes_s(), model.window_bytes());
            prop_assert!(rate.is_finite() && rate > 0.0, "rate {rate}");
            prop_assert!(window >= 4 * u64::from(packet_bytes.max(1)), "window {window} of packets of {packet_bytes}");
        }
    }
}

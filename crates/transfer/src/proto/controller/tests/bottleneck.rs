//! One flow over a bottleneck with a tail-drop queue: the flow itself causes its losses and delays.

use std::collections::VecDeque;
use std::time::Duration;

use super::path::{PACKET_BYTES, loss, rtt};
use crate::proto::Rtt;
use crate::proto::controller::{Controller, Delivery, FeedbackSample};

const STEP: Duration = Duration::from_millis(1);

/// Packets of one step, and the time when their feedback reaches the sender.
struct Batch {
    sent: Duration,
    heard: Duration,
    passed: u64,
    lost: u64,
}

/// What the flow achieved in a run.
#[derive(Debug)]
pub(super) struct Made {
    /// Delivered rate as a share of the bottleneck's rate.
    pub(super) used: f64,
    /// Share of the sent packets that were lost.
    pub(super) lost: f64,
}

/// Runs for `seconds`; only the second half is counted.
pub(super) fn run(controller: &mut dyn Controller, rate_bit_s: f64, base: Duration, seconds: u64) -> Made {
    let packet = f64::from(PACKET_BYTES);
    let rate = rate_bit_s / 8.0 / packet;
    // One bandwidth–delay product.
    let queue_max = rate * base.as_secs_f64();
    let (mut now, end) = (Duration::from_secs(1), Duration::from_secs(1 + seconds));
    let half = (now + end) / 2;
    let (mut queue, mut carry, mut accounted, mut in_flight) = (0.0f64, 0.0f64, 0u64, 0u64);
    let mut smoothed: Option<Duration> = None;
    let (mut batches, mut recent) = (VecDeque::<Batch>::new(), VecDeque::<(Duration, u64)>::new());
    let (mut sent, mut passed, mut lost) = (0u64, 0u64, 0u64);
    while now < end {
        let room = (controller.window_bytes() as f64 / packet).floor() - in_flight as f64;
        carry +=
            (controller.rate_bytes_s() * STEP.as_secs_f64() / packet).min(20.0 * rate * STEP.as_secs_f64());
        let packets = carry.min(room.max(0.0)).floor();
        carry = (carry - packets).min(1.0);
        let dropped = (queue + packets - queue_max - rate * STEP.as_secs_f64()).ceil().clamp(0.0, packets);
        queue = (queue + packets - dropped - rate * STEP.as_secs_f64()).max(0.0);
        let heard = now + base + Duration::from_secs_f64(queue / rate);
        let batch = Batch { sent: now, heard, passed: (packets - dropped) as u64, lost: dropped as u64 };
        in_flight += batch.passed + batch.lost;
        if half <= now {
            (sent, passed, lost) = (sent + packets as u64, passed + batch.passed, lost + batch.lost);
        }
        batches.push_back(batch);
        now += STEP;
        while batches.front().is_some_and(|batch| batch.heard <= now) {
            let Some(batch) = batches.pop_front() else { break };
            let latest = now - batch.sent;
            let mean = smoothed.map_or(latest, |smoothed| (smoothed * 7 + latest) / 8);
            smoothed = Some(mean);
            recent.push_back((now, batch.passed));
            while recent.front().is_some_and(|(at, _)| *at + mean < now) {
                recent.pop_front();
            }
            let acked: u64 = recent.iter().map(|(_, packets)| packets).sum();
            let losses =
                (batch.lost > 0).then(|| loss(accounted + batch.passed, batch.lost as u32, batch.sent));
            accounted += batch.passed + batch.lost;
            in_flight -= batch.passed + batch.lost;
            let delivery = Delivery {
                bytes_s: acked as f64 * packet / mean.as_secs_f64(),
                prior_delivered_bytes: 0,
                delivered_bytes: 0,
                in_flight_bytes: 0,
                is_app_limited: false,
            };
            let seen = FeedbackSample {
                rtt: Rtt { smoothed: mean, ..rtt(latest) },
                round_trip: Some(latest),
                acked_packets: batch.passed,
                acked_bytes: batch.passed * u64::from(PACKET_BYTES),
                delivery: (batch.passed > 0).then_some(delivery),
                losses: losses.as_slice(),
                accounted_packets: accounted,
                packet_bytes: PACKET_BYTES,
                ..FeedbackSample::default()
            };
            controller.on_feedback(now, &seen);
        }
    }
    let seconds = (end - half).as_secs_f64();
    Made { used: passed as f64 / seconds / rate, lost: lost as f64 / sent.max(1) as f64 }
}

//! Measures the rounds and the delivery rate of the path from acknowledged packets.

use std::time::Duration;

use crate::proto::controller::Delivery;

/// Measures the delivery rate (draft-cheng-iccrg-delivery-rate-estimation-02 §3).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeliveryRateSampler {
    /// These three fields are `C.delivered` (bytes), `C.delivered_time` and `C.first_sent_time` of
    /// the draft.
    delivered: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    /// `C.app_limited` of the draft: until this number of bytes is delivered, new packets count as
    /// sent while the sender, not the path, limited the rate.
    limited_until: u64,
    round: u64,
    /// The round ends with the acknowledgement of a packet that was sent after this number of bytes
    /// was delivered.
    round_end: u64,
    /// Snapshot of the newest packet acknowledged since the last sample.
    newest: Option<SendSnapshot>,
}

/// State of the path when a packet was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendSnapshot {
    pub(super) sent_ns: u64,
    /// `P.delivered`, `P.delivered_time`, `P.first_sent_time`.
    delivered: u64,
    delivered_ns: u64,
    first_sent_ns: u64,
    /// Bytes in flight when the packet was sent, this packet included.
    pub(super) in_flight_bytes: u64,
    is_app_limited: bool,
}

impl DeliveryRateSampler {
    /// Records that a packet of `bytes` is sent while `in_flight_bytes` are in flight.
    pub(super) fn send(&mut self, now_ns: u64, in_flight_bytes: u64, bytes: u64) -> SendSnapshot {
        if in_flight_bytes == 0 {
            (self.first_sent_ns, self.delivered_ns) = (now_ns, now_ns);
        }
        SendSnapshot {
            sent_ns: now_ns,
            delivered: self.delivered,
            delivered_ns: self.delivered_ns,
            first_sent_ns: self.first_sent_ns,
            in_flight_bytes: in_flight_bytes.saturating_add(bytes),
            is_app_limited: self.delivered < self.limited_until,
        }
    }

    /// Records that there is nothing to send while `in_flight_bytes` are in flight.
    pub(super) fn set_app_limited(&mut self, in_flight_bytes: u64) {
        self.limited_until = (self.delivered + in_flight_bytes).max(1);
    }

    /// Records that a packet of `bytes` was acknowledged.
    pub(super) fn ack(&mut self, now_ns: u64, snapshot: &SendSnapshot, bytes: u64) {
        self.delivered += bytes;
        self.delivered_ns = now_ns;
        if self
            .newest
            .is_none_or(|newest| (newest.delivered, newest.sent_ns) <= (snapshot.delivered, snapshot.sent_ns))
        {
            self.newest = Some(*snapshot);
            self.first_sent_ns = self.first_sent_ns.max(snapshot.sent_ns);
        }
    }

    /// Ends the processing of a feedback. Returns whether this feedback ended a round, and the
    /// delivery rate sample.
    pub(super) fn sample(&mut self, now_ns: u64, rtt_min: Duration) -> (bool, Option<Delivery>) {
        let Some(newest) = self.newest.take() else { return (false, None) };
        let has_round_ended = self.round_end <= newest.delivered;
        if has_round_ended {
            self.round += 1;
            self.round_end = self.delivered;
        }
        let sending_ns = newest.sent_ns.saturating_sub(newest.first_sent_ns);
        let acking_ns = now_ns.saturating_sub(newest.delivered_ns);
        let interval = Duration::from_nanos(sending_ns.max(acking_ns));
        // An interval shorter than a round trip gives no valid sample (§3.3).
        let is_sample = !interval.is_zero() && interval >= rtt_min;
        let delivery = is_sample.then(|| Delivery {
            bytes_s: (self.delivered - newest.delivered) as f64 / interval.as_secs_f64(),
            prior_delivered_bytes: newest.delivered,
            delivered_bytes: self.delivered,
            in_flight_bytes: newest.in_flight_bytes,
            is_app_limited: newest.is_app_limited,
        });
        (has_round_ended, delivery)
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_delivery_rate_of_a_steady_flow_is_measured_correctly() {
        let mut sampler = DeliveryRateSampler::default();
        // Packets of 1000 bytes, one a millisecond, are acknowledged 10 ms later, ten at a time.
        let mut snapshots = Vec::new();
        let mut last = (false, None);
        for n in 0..60u64 {
            let in_flight = (n.min(10)) * 1000;
            snapshots.push(sampler.send(n * MS, in_flight, 1000));
            if n >= 19 && n % 10 == 9 {
                let acked = (n - 19) as usize..=(n - 10) as usize;
                snapshots[acked].iter().for_each(|snapshot| sampler.ack(n * MS, snapshot, 1000));
                last = sampler.sample(n * MS, Duration::from_millis(10));
            }
        }
        let delivery = last.1.unwrap();
        assert!((delivery.bytes_s - 1e6).abs() < 1e5, "{delivery:?}");
        assert!(!delivery.is_app_limited && sampler.round() >= 2);
    }

    #[test]
    fn packets_of_an_app_limited_sender_give_app_limited_samples() {
        let mut sampler = DeliveryRateSampler::default();
        sampler.set_app_limited(0);
        let snapshot = sampler.send(0, 0, 1000);
        sampler.ack(20 * MS, &snapshot, 1000);
        let (has_round_ended, delivery) = sampler.sample(20 * MS, Duration::from_millis(20));
        assert!(has_round_ended && delivery.unwrap().is_app_limited);
        let snapshot = sampler.send(20 * MS, 0, 1000);
        sampler.ack(30 * MS, &snapshot, 1000);
        assert_eq!(
            sampler.sample(30 * MS, Duration::from_millis(20)),
            (true, None),
            "shorter than a round trip"
        );
        let snapshot = sampler.send(40 * MS, 0, 1000);
        sampler.ack(60 * MS, &snapshot, 1000);
        assert!(!sampler.sample(60 * MS, Duration::from_millis(20)).1.unwrap().is_app_limited);
    }
}

//! Limits the rate to what the receiver's host can read.

mod floor;

use std::time::Duration;

use libm::exp;

use super::limits::{NoFeedbackBackoff, packet_bytes, positive, round_trip_s};
use super::{Controller, Delivery, FeedbackSample, RATE_MAX_BYTES_S};
use floor::{Floor, Period};

/// Caps a controller's rate at the receiver's drain rate.
///
/// Host losses are not congestion and do not enter the controller's loss history, but packets that
/// the host cannot read are wasted. After a host loss the rate falls at once to slightly below the
/// drain rate, and then rises again slowly. If a lower rate only reduces goodput, the cap rises
/// again: a host that does not read at all for a while loses the same share at any rate. In a
/// window with losses of both causes (a hybrid window, Dickens §7.1), network losses reach the
/// controller and the cap applies as well.
#[derive(Debug)]
pub struct DrainLimiter {
    inner: Box<dyn Controller>,
    cap: Option<Cap>,
    delivered: RecentDelivery,
    packet_bytes: f64,
    no_feedback: NoFeedbackBackoff,
}

/// Highest delivery rate (bytes a second) in the current tenth of a second and in the tenth before.
/// In a shorter time, a host that pauses would show a rate that is far too low.
#[derive(Debug, Default)]
struct RecentDelivery {
    since: Duration,
    present: f64,
    last: f64,
}

impl RecentDelivery {
    fn update(&mut self, now: Duration, seen: &FeedbackSample<'_>) {
        let passed = now.saturating_sub(self.since).as_secs_f64();
        if passed >= QUOTA_S {
            self.last = if passed < 2.0 * QUOTA_S { self.present } else { 0.0 };
            (self.present, self.since) = (0.0, now);
        }
        let told = seen.delivery.and_then(|delivery| positive(delivery.bytes_s));
        self.present = self.present.max(told.unwrap_or(0.0));
    }

    fn greatest(&self) -> Option<f64> {
        positive(self.present.max(self.last))
    }
}

/// Assumed drain rate while the receiver's host is a limit.
#[derive(Debug)]
struct Cap {
    bytes_s: f64,
    /// Time of the last feedback with host losses.
    lost: Duration,
    /// Time until which the slow rise of the cap has been computed.
    opened: Duration,
    floor: Floor,
    counts: PeriodCounts,
    /// Acknowledged bytes a second in the last period if the host lost packets in it, else 0.
    goodput: f64,
}

#[derive(Debug)]
struct PeriodCounts {
    since: Duration,
    until: Duration,
    offered_bytes: f64,
    acked_bytes: f64,
    lost_bytes: f64,
}

impl PeriodCounts {
    fn new(now: Duration) -> Self {
        Self { since: now, until: now, offered_bytes: 0.0, acked_bytes: 0.0, lost_bytes: 0.0 }
    }

    fn count(&mut self, now: Duration, seen: &FeedbackSample<'_>, packet_bytes: f64, rate: f64) {
        let passed = now.saturating_sub(self.until).as_secs_f64();
        // Without a cap the rate may be infinite.
        self.offered_bytes += if rate.is_finite() { rate * passed } else { 0.0 };
        self.until = now;
        self.acked_bytes += seen.acked_bytes as f64;
        self.lost_bytes += seen.host_lost_packets as f64 * packet_bytes;
    }

    /// Returns the measurements of the period if the period is over, else `None`.
    fn period(&self, round_trip: f64) -> Option<Period> {
        let passed = self.until.saturating_sub(self.since).as_secs_f64();
        let lost_share = self.lost_bytes / (self.acked_bytes + self.lost_bytes).max(1.0);
        (Floor::period_s(round_trip) <= passed).then(|| Period {
            offered: self.offered_bytes / passed,
            goodput: self.acked_bytes / passed,
            lost_share,
        })
    }
}

impl DrainLimiter {
    pub fn new(inner: Box<dyn Controller>) -> Self {
        Self {
            inner,
            cap: None,
            delivered: RecentDelivery::default(),
            packet_bytes: 1.0,
            no_feedback: NoFeedbackBackoff::default(),
        }
    }

    /// The cap in bytes a second; `None` while the host is not a limit.
    pub fn cap_bytes_s(&self) -> Option<f64> {
        self.cap.as_ref().map(|cap| cap.bytes_s)
    }

    fn close(&mut self, now: Duration, seen: &FeedbackSample<'_>, round_trip: f64) {
        // The receiver does not read faster than packets are delivered, whatever it reports.
        let told = positive(seen.drain_bytes_s as f64);
        let drained = match (told, self.delivered.greatest()) {
            (Some(told), Some(delivered)) => Some(told.min(delivered)),
            (told, delivered) => told.or(delivered).or_else(|| positive(0.5 * self.rate_bytes_s())),
        };
        let Some(drained) = drained else { return };
        let least = self.packet_bytes / round_trip;
        let cap = self.cap.get_or_insert_with(|| Cap {
            bytes_s: 0.0,
            lost: now,
            opened: now,
            floor: Floor::default(),
            counts: PeriodCounts::new(now),
            goodput: 0.0,
        });
        let bytes_s = (BELOW * drained.max(cap.goodput)).max(cap.floor.bytes_s);
        cap.bytes_s = bytes_s.max(least).min(RATE_MAX_BYTES_S);
        (cap.lost, cap.opened) = (now, now);
    }

    /// Counts what the current rate delivered, and starts and ends trials of other rates
    /// ([`Floor`]).
    fn update_cap(&mut self, now: Duration, seen: &FeedbackSample<'_>, round_trip: f64, rate: f64) {
        let (packet_bytes, inner) = (self.packet_bytes, self.inner.rate_bytes_s());
        let Some(cap) = &mut self.cap else { return };
        cap.counts.count(now, seen, packet_bytes, rate);
        let Some(period) = cap.counts.period(round_trip) else { return };
        cap.counts = PeriodCounts::new(now);
        cap.goodput = if period.lost_share > 0.0 { period.goodput } else { 0.0 };
        if let Some(bytes_s) = cap.floor.on_period(period, inner) {
            cap.bytes_s = bytes_s.max(packet_bytes / round_trip).min(inner).min(RATE_MAX_BYTES_S);
            cap.opened = now;
        }
    }

    fn open(&mut self, now: Duration, round_trip: f64) {
        let Some(cap) = &mut self.cap else { return };
        let turn = round_trip.max(STALL_S);
        // A longer time without feedback gives no information, so it counts as one `turn`.
        let turns = (now.saturating_sub(cap.opened).as_secs_f64() / turn).min(1.0);
        cap.bytes_s *= exp(OPENING * turns);
        cap.opened = now;
        let quiet_s = now.saturating_sub(cap.lost).as_secs_f64();
        if (QUIET_TURNS * turn).max(QUIET_S) <= quiet_s || cap.bytes_s >= RATE_MAX_BYTES_S {
            self.cap = None;
        }
    }
}

impl Controller for DrainLimiter {
    fn on_feedback(&mut self, now: Duration, seen: &FeedbackSample<'_>) {
        self.packet_bytes = packet_bytes(seen);
        self.no_feedback.reset();
        self.delivered.update(now, seen);
        // A controller must not raise a rate that is not used. So samples count as limited by the
        // sender while the cap limits the rate.
        let (is_capped, rate) = (self.is_capped(), self.rate_bytes_s());
        let limited = |delivery: Delivery| Delivery {
            is_app_limited: delivery.is_app_limited || is_capped,
            ..delivery
        };
        self.inner.on_feedback(now, &FeedbackSample { delivery: seen.delivery.map(limited), ..*seen });
        let round_trip = round_trip_s(seen.rtt).unwrap_or(1.0);
        if seen.host_lost_packets > 0 {
            self.close(now, seen, round_trip);
        } else {
            self.open(now, round_trip);
        }
        self.update_cap(now, seen, round_trip, rate);
    }

    fn on_no_feedback(&mut self, now: Duration) {
        self.no_feedback.on_expiry();
        self.inner.on_no_feedback(now);
    }

    fn rate_bytes_s(&self) -> f64 {
        let inner = self.inner.rate_bytes_s();
        match &self.cap {
            // The controller halved its rate because no feedback came. Halve the cap too, so that
            // the cap does not hide the lower rate.
            Some(cap) => inner.min(self.no_feedback.apply(cap.bytes_s, self.packet_bytes)),
            None => inner,
        }
    }

    fn window_bytes(&self) -> u64 {
        self.inner.window_bytes()
    }

    fn is_capped(&self) -> bool {
        self.cap.as_ref().is_some_and(|cap| cap.bytes_s < self.inner.rate_bytes_s())
    }
}

/// Cap after a host loss, as a share of the drain rate. With a share of 1, the full queue would not
/// drain, and the next packet would be lost again. The 2 % below the drain rate cost at most 1 % on
/// average, because the cap rises again.
const BELOW: f64 = 0.98;

/// Share by which the cap rises in one turn. A turn lasts a round trip, or [`STALL_S`] if a round
/// trip is shorter. If the cap exceeds the drain rate by a share e, the host loss is reported after
/// about two turns. The packets wasted in these two turns are a share 2 e of the packets of one
/// turn. The excess took e / 0.0025 turns to build up, however large the buffers are. So at most
/// 0.5 % of what is sent is wasted.
const OPENING: f64 = 0.0025;

/// Minimum length of a turn (s). While a receiver waits for a few time slices of other processes
/// (Linux: at least 2.8 ms each), the receiver sends no feedback.
const STALL_S: f64 = 0.01;

/// After [`QUIET_TURNS`] turns without a host loss, and at least [`QUIET_S`] seconds, the host no
/// longer counts as a limit. In this time the cap rises by at least a factor of 1.9. If a compiler
/// or a backup still slowed the host, any buffer would be full by then.
const QUIET_TURNS: f64 = 256.0;
const QUIET_S: f64 = 10.0;

/// Period of a CPU quota in seconds (Linux's `cpu.max`). The period is as long as many time slices
/// of a scheduler.
const QUOTA_S: f64 = 0.1;

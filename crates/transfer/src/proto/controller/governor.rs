//! Keeps a sender from throwing packets away at a receiver's host.

mod floor;

use std::time::Duration;

use libm::exp;

use super::limits::{Silence, packet_bytes, positive, round_trip_s};
use super::{Controller, Delivery, RATE_MAX_BYTES_S, Seen};
use floor::{Floor, Period};

/// Caps a controller's rate at what the receiver drains.
///
/// Losses by the host are no congestion and do not enter the controller's history, but sending faster than the host reads only throws
/// packets away: when it loses some, the rate falls at once to a little less than it drains, and then opens again, slowly. Where that only
/// moves less – a host that does not read at all for a while loses the same share at any rate – it goes back. In a hybrid
/// window (Dickens §7.1) the network's losses reach the controller and the cap applies as well.
#[derive(Debug)]
pub struct Governor {
    inner: Box<dyn Controller>,
    cap: Option<Cap>,
    delivered: Delivered,
    packet_bytes: f64,
    silence: Silence,
}

/// The highest rate at which data came through (bytes a second), of this tenth of a second and the one before: over less, a host that is
/// about to read again would pass for one that hardly does.
#[derive(Debug, Default)]
struct Delivered {
    since: Duration,
    present: f64,
    last: f64,
}

impl Delivered {
    fn update(&mut self, now: Duration, seen: &Seen<'_>) {
        let passed = now.saturating_sub(self.since).as_secs_f64();
        if QUOTA_S <= passed {
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

/// What the receiver is taken to drain, while its host is a limit.
#[derive(Debug)]
struct Cap {
    bytes_s: f64,
    /// When the host lost packets last.
    lost: Duration,
    /// Until when the cap has been opened.
    opened: Duration,
    floor: Floor,
    tally: Tally,
    /// What came through in the last period (bytes a second) if the host lost packets in it, else 0.
    goodput: f64,
}

/// What a period counts.
#[derive(Debug)]
struct Tally {
    since: Duration,
    until: Duration,
    offered_bytes: f64,
    acked_bytes: f64,
    lost_bytes: f64,
}

impl Tally {
    fn new(now: Duration) -> Self {
        Self { since: now, until: now, offered_bytes: 0.0, acked_bytes: 0.0, lost_bytes: 0.0 }
    }

    fn count(&mut self, now: Duration, seen: &Seen<'_>, packet_bytes: f64, rate: f64) {
        let passed = now.saturating_sub(self.until).as_secs_f64();
        // Before the cap there may be none.
        self.offered_bytes += if rate.is_finite() { rate * passed } else { 0.0 };
        self.until = now;
        self.acked_bytes += seen.acked_bytes as f64;
        self.lost_bytes += seen.host_lost_packets as f64 * packet_bytes;
    }

    /// The period, if it is over.
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

impl Governor {
    pub fn new(inner: Box<dyn Controller>) -> Self {
        Self {
            inner,
            cap: None,
            delivered: Delivered::default(),
            packet_bytes: 1.0,
            silence: Silence::default(),
        }
    }

    /// What the receiver is taken to drain (bytes a second); `None` while its host is no limit.
    pub fn cap_bytes_s(&self) -> Option<f64> {
        self.cap.as_ref().map(|cap| cap.bytes_s)
    }

    fn close(&mut self, now: Duration, seen: &Seen<'_>, round_trip: f64) {
        // Where the receiver does not tell, what came through while it lost packets is what it drained.
        let told = positive(seen.drain_bytes_s as f64);
        let drained =
            told.or_else(|| self.delivered.greatest()).or_else(|| positive(0.5 * self.rate_bytes_s()));
        let Some(drained) = drained else { return };
        let least = self.packet_bytes / round_trip;
        let cap = self.cap.get_or_insert_with(|| Cap {
            bytes_s: 0.0,
            lost: now,
            opened: now,
            floor: Floor::default(),
            tally: Tally::new(now),
            goodput: 0.0,
        });
        let bytes_s = (BELOW * drained.max(cap.goodput)).max(cap.floor.bytes_s);
        cap.bytes_s = bytes_s.max(least).min(RATE_MAX_BYTES_S);
        (cap.lost, cap.opened) = (now, now);
    }

    /// Counts what came of the rate, and changes it for a while where it is not known whether another is better.
    fn judge(&mut self, now: Duration, seen: &Seen<'_>, round_trip: f64, rate: f64) {
        let (packet_bytes, inner) = (self.packet_bytes, self.inner.rate_bytes_s());
        let Some(cap) = &mut self.cap else { return };
        cap.tally.count(now, seen, packet_bytes, rate);
        let Some(period) = cap.tally.period(round_trip) else { return };
        cap.tally = Tally::new(now);
        cap.goodput = if 0.0 < period.lost_share { period.goodput } else { 0.0 };
        if let Some(bytes_s) = cap.floor.on_period(period, inner) {
            cap.bytes_s = bytes_s.max(packet_bytes / round_trip).min(inner).min(RATE_MAX_BYTES_S);
            cap.opened = now;
        }
    }

    fn open(&mut self, now: Duration, round_trip: f64) {
        let Some(cap) = &mut self.cap else { return };
        let turn = round_trip.max(STALL_S);
        // After a silence nothing is known of the time that passed.
        let turns = (now.saturating_sub(cap.opened).as_secs_f64() / turn).min(1.0);
        cap.bytes_s *= exp(OPENING * turns);
        cap.opened = now;
        let quiet_s = now.saturating_sub(cap.lost).as_secs_f64();
        if (QUIET_TURNS * turn).max(QUIET_S) <= quiet_s || RATE_MAX_BYTES_S <= cap.bytes_s {
            self.cap = None;
        }
    }
}

impl Controller for Governor {
    fn on_feedback(&mut self, now: Duration, seen: &Seen<'_>) {
        self.packet_bytes = packet_bytes(seen);
        self.silence.end();
        self.delivered.update(now, seen);
        // A controller that does not use its rate must not raise it: as if there had been too little to send.
        let (is_capped, rate) = (self.is_capped(), self.rate_bytes_s());
        let limited =
            |delivery: Delivery| Delivery { is_limited: delivery.is_limited || is_capped, ..delivery };
        self.inner.on_feedback(now, &Seen { delivery: seen.delivery.map(limited), ..*seen });
        let round_trip = round_trip_s(seen.rtt).unwrap_or(1.0);
        if 0 < seen.host_lost_packets {
            self.close(now, seen, round_trip);
        } else {
            self.open(now, round_trip);
        }
        self.judge(now, seen, round_trip, rate);
    }

    fn on_silence(&mut self, now: Duration) {
        self.silence.lasts();
        self.inner.on_silence(now);
    }

    fn rate_bytes_s(&self) -> f64 {
        let inner = self.inner.rate_bytes_s();
        match &self.cap {
            // The controller halved its own rate for the silence; the cap must not hide that.
            Some(cap) => inner.min(self.silence.of(cap.bytes_s, self.packet_bytes)),
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

/// How far below what it drains the cap begins: at 1 no queue that built up would drain, and the next packet would be lost again. A
/// fiftieth costs at most half of that in the mean, while it is won back.
const BELOW: f64 = 0.98;

/// By what part the cap opens a turn. When it is above the drained rate by a part e, host loss is heard of after about two turns, in which
/// 2 e of the rate is thrown away; e was e / 0.0025 turns in the making, however large the buffers are. So 0.5 % is thrown away of what is
/// sent, at the most.
const OPENING: f64 = 0.0025;

/// A turn is a round trip, but at least so long (s): a receiver that is not scheduled does not send feedback either, and waits for as
/// long as a few time slices of others (Linux: 2.8 ms each and more).
const STALL_S: f64 = 0.01;

/// Without a host loss for so many turns, in which the cap opened by 1.9, and for so long (s), the contention is over: a compiler or a
/// backup beside would have filled any buffer by then.
const QUIET_TURNS: f64 = 256.0;
const QUIET_S: f64 = 10.0;

/// The period of a CPU quota (s; Linux's `cpu.max`), and many turns of a scheduler.
const QUOTA_S: f64 = 0.1;

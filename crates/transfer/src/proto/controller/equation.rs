//! Rate from an equation over the loss event rate: the sender of RFC 5348 with a replaceable
//! equation.

use std::time::Duration;

use libm::exp2;

use super::history::{LossHistory, LossSpan, RatesAtLoss};
use super::limits::{START_BYTES, floor_bytes_s, packet_bytes, positive, round_trip_s};
use super::{Controller, FeedbackSample, RATE_MAX_BYTES_S, ResponseFunction};

/// Sender of RFC 5348 §4, without the optional parts of §4.5 and §5.5.
///
/// Slow start doubles the rate each round trip. The growth is spread over the round trip, because
/// feedback comes several times in a round trip.
#[derive(Debug)]
pub struct Equation {
    response: ResponseFunction,
    /// Number of bytes that may be sent before the first round-trip time is known.
    start_bytes: u64,
    packet_bytes: f64,
    /// Smoothed round-trip time (s); `None` before the first feedback.
    round_trip_s: Option<f64>,
    /// Sending rate (bytes a second); `None` until the first feedback or the first expiry of the
    /// no-feedback timer; until then only the initial window limits the sender.
    rate: Option<f64>,
    /// Result of the equation (bytes a second); infinite before the first loss.
    equation: f64,
    received: Received,
    history: LossHistory,
    accounted: u64,
    /// Time when the rate was last set.
    raised: Duration,
}

impl Controller for Equation {
    fn on_feedback(&mut self, now: Duration, seen: &FeedbackSample<'_>) {
        let Some(round_trip) = round_trip_s(seen.rtt) else { return };
        self.packet_bytes = packet_bytes(seen);
        self.take_back(seen);
        self.accounted = self.accounted.max(seen.accounted_packets);
        if self.round_trip_s.replace(round_trip).is_none() {
            // The initial rate is W_init / R (RFC 5348 §4.2).
            self.rate = Some(self.start_bytes as f64 / round_trip);
            self.raised = now;
        }
        let before = self.event_rate();
        let is_app_limited = seen.delivery.is_some_and(|delivery| delivery.is_app_limited);
        let measured = self.received.measure(now, seen, round_trip, before == 0.0);
        self.take_losses(now, seen, round_trip);
        let rate = self.event_rate();
        // Compute the limit of the rate (RFC 5348 §4.3, step 4).
        let limit = match measured {
            Some(measured) if is_app_limited && before < rate => {
                self.received.halve();
                self.received.keep(0.85 * measured);
                self.received.greatest()
            }
            Some(measured) if is_app_limited => {
                self.received.keep(measured);
                2.0 * self.received.greatest()
            }
            Some(measured) => {
                self.received.update(now, measured, round_trip);
                2.0 * self.received.greatest()
            }
            None => 2.0 * self.received.greatest(),
        };
        self.set_rate(now, rate, limit, round_trip);
    }

    /// Halves the rate or its limit (RFC 5348 §4.4). The timer runs only while packets are in
    /// flight, so the idle cases of §4.4 do not apply.
    fn on_no_feedback(&mut self, _: Duration) {
        let received = self.received.greatest();
        match (self.round_trip_s, self.rate) {
            (Some(_), Some(_)) if self.equation.is_finite() => {
                // The limit was either twice the receive rate, or the result of the equation.
                let limit = if 2.0 * received < self.equation { received } else { 0.5 * self.equation };
                let limit = limit.max(floor_bytes_s(self.packet_bytes));
                self.received.replace(0.5 * limit);
                self.rate = Some(self.bounded(self.equation.min(limit)));
            }
            // Before the first measurement, a round-trip time of 1 s is assumed (RFC 6298 §2.1).
            (_, rate) => self.rate = Some(self.bounded(0.5 * rate.unwrap_or(self.start_bytes as f64))),
        }
    }

    fn rate_bytes_s(&self) -> f64 {
        // Without a rate, only the window limits the sender.
        self.rate.unwrap_or(f64::INFINITY)
    }

    fn window_bytes(&self) -> u64 {
        // Once a round-trip time is known, only the rate limits the sender.
        if self.round_trip_s.is_none() { self.start_bytes } else { u64::MAX }
    }
}

impl Equation {
    /// `highspeed`: X = s w(p) / R with w of RFC 3649 §5, but at most twice the receive rate. p
    /// comes from the last eight loss intervals (RFC 5348 §5). This controller is the paper's
    /// modification of TFRC (Dickens §2.1) with the loss estimator of TFRC.
    pub fn highspeed() -> Self {
        Self::new(ResponseFunction::HighSpeed, START_BYTES)
    }

    /// `tfrc`: RFC 5348 unchanged. This controller is fair to TCP, and as slow as TCP on paths with
    /// long round trips.
    pub fn tfrc() -> Self {
        Self::new(ResponseFunction::Tfrc, TFRC_START_BYTES)
    }

    fn new(response: ResponseFunction, start_bytes: u64) -> Self {
        Self {
            response,
            start_bytes,
            packet_bytes: 1.0,
            round_trip_s: None,
            rate: None,
            equation: f64::INFINITY,
            received: Received::default(),
            history: LossHistory::default(),
            accounted: 0,
            raised: Duration::ZERO,
        }
    }

    /// Loss events per packet (0 to 1).
    pub(super) fn event_rate(&self) -> f64 {
        self.history.rate(self.accounted)
    }

    /// Removes losses that were the host's, and returns to the rates before the events that were
    /// only made of such losses. The equation then limits the rate by the events that remain. If
    /// none remains, slow start continues.
    fn take_back(&mut self, seen: &FeedbackSample<'_>) {
        for run in seen.taken_back {
            self.accounted = self.accounted.saturating_sub(run.packets.into());
            let Some(rates) = self.history.take_back(run.at, run.packets.into()) else { continue };
            if rates.received > 0.0 {
                self.received.keep(rates.received);
            }
            if self.history.is_empty() {
                self.equation = f64::INFINITY;
                self.rate = self.rate.map(|rate| rate.max(rates.sent));
            }
        }
    }

    fn take_losses(&mut self, now: Duration, seen: &FeedbackSample<'_>, round_trip: f64) {
        // RFC 5348 §6.3.1: the first interval is the interval for which the equation gives the
        // highest receive rate so far. In slow start, the highest receive rate is half of the
        // highest sending rate. If nothing arrived before the first loss, half a packet a round
        // trip is assumed.
        let reached = (self.received.greatest() * round_trip / self.packet_bytes).max(0.5);
        let reached = if reached.is_finite() { reached } else { 0.5 };
        let first_interval = 1.0 / self.response.rate(reached);
        let rates = RatesAtLoss {
            sent: self.rate.and_then(positive).unwrap_or(0.0),
            received: positive(self.received.greatest()).unwrap_or(0.0),
        };
        let round_trip_time = Duration::from_secs_f64(round_trip);
        let mut lost = |run| self.history.lost_at(run, round_trip_time, first_interval, rates);
        for loss in seen.losses {
            // The packets of a run were sent one after the other at the current rate, and all were
            // sent before `now`.
            let by_rate = self.packet_bytes / self.rate.unwrap_or(f64::INFINITY);
            let by_time = now.saturating_sub(loss.sent).as_secs_f64() / f64::from(loss.packets.max(1));
            let spacing = Duration::try_from_secs_f64(by_rate.min(by_time)).unwrap_or_default();
            lost(LossSpan { at: loss.at, packets: loss.packets.into(), sent: loss.sent, spacing });
        }
        if seen.marked_packets > 0 {
            // RFC 5348 §5.1, RFC 3168 §6.1.2: a mark counts as a loss at once. Feedback does not
            // name the marked packet. The newest acknowledged packet was sent a round trip ago.
            let sent = now.saturating_sub(seen.rtt.latest.unwrap_or(seen.rtt.smoothed));
            let at = seen.accounted_packets.saturating_sub(1);
            lost(LossSpan { at, packets: 1, sent, spacing: Duration::ZERO });
        }
    }

    fn set_rate(&mut self, now: Duration, event_rate: f64, limit: f64, round_trip: f64) {
        let start = self.start_bytes as f64 / round_trip;
        let rate = if event_rate > 0.0 {
            self.equation = self.response.window(event_rate) * self.packet_bytes / round_trip;
            self.equation.min(limit)
        } else {
            let passed = now.saturating_sub(self.raised).as_secs_f64() / round_trip;
            let doubled = self.rate.unwrap_or(start) * exp2(passed.min(1.0));
            doubled.min(limit).max(start)
        };
        self.raised = now;
        self.rate = Some(self.bounded(rate));
    }

    fn bounded(&self, rate: f64) -> f64 {
        rate.max(floor_bytes_s(self.packet_bytes)).min(RATE_MAX_BYTES_S)
    }
}

/// Initial window in bytes (RFC 5348 §4.2): W_init = min(4 s, max(2 s, 4380)) bytes, which is 4380
/// for packets of 1095 to 2190 bytes.
const TFRC_START_BYTES: u64 = 4380;

/// Receive rate (bytes a second): `X_recv_set` of RFC 5348, the highest rate in the current and the
/// previous round trip.
#[derive(Debug, Default)]
struct Received {
    /// Highest rate in the current round trip. `None` before the first measurement; then the rate
    /// counts as infinite (RFC 5348 §4.2).
    present: Option<f64>,
    last: Option<f64>,
    /// When the current round trip began.
    since: Duration,
    /// Start of the current quarter of a round trip, and the bytes acknowledged since this start.
    /// Only slow start uses these values.
    part: (Duration, u64),
}

impl Received {
    /// Receive rate that this feedback shows. In slow start the receive rate is also measured over
    /// a quarter of a round trip. The mean over a whole round trip is so old that the sending rate
    /// could grow by only half.
    fn measure(
        &mut self,
        now: Duration,
        seen: &FeedbackSample<'_>,
        round_trip: f64,
        is_start: bool,
    ) -> Option<f64> {
        let told = seen.delivery.and_then(|delivery| positive(delivery.bytes_s));
        if !is_start {
            return told;
        }
        self.part.1 = self.part.1.saturating_add(seen.acked_bytes);
        let passed = now.saturating_sub(self.part.0).as_secs_f64();
        if passed < 0.25 * round_trip {
            return told;
        }
        let counted = positive(self.part.1 as f64 / passed);
        let is_first = self.part.0.is_zero();
        self.part = (now, 0);
        if is_first { told } else { told.max_by_value(counted) }
    }

    fn greatest(&self) -> f64 {
        self.present.max_by_value(self.last).unwrap_or(f64::INFINITY)
    }

    fn update(&mut self, now: Duration, measured: f64, round_trip: f64) {
        if round_trip <= now.saturating_sub(self.since).as_secs_f64() {
            self.last = self.present.take();
            self.since = now;
        }
        self.keep(measured);
    }

    /// Adds a measurement without forgetting older ones: `Maximize X_recv_set` of RFC 5348.
    fn keep(&mut self, measured: f64) {
        self.present = self.present.max_by_value(Some(measured));
    }

    fn halve(&mut self) {
        self.present = self.present.map(|rate| 0.5 * rate);
        self.last = self.last.map(|rate| 0.5 * rate);
    }

    fn replace(&mut self, rate: f64) {
        (self.present, self.last) = (Some(rate), None);
    }
}

/// Maximum of two values, each of which may be absent.
trait MaxByValue {
    fn max_by_value(self, other: Self) -> Self;
}

impl MaxByValue for Option<f64> {
    fn max_by_value(self, other: Self) -> Self {
        match (self, other) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (one, other) => one.or(other),
        }
    }
}

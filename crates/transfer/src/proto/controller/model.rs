//! A controller that models the path's bandwidth and delay, based on BBRv3. Losses without
//! congestion do not lower its rate.
//!
//! "BBR §" cites draft-ietf-ccwg-bbr, the working group's copy of 3 August 2026 (4ce5e87).
//! Differences from BBRv3:
//! - Losses of a round are congestion only if the delay rose, packets were marked, or more than 2 %
//!   were lost (`round`).
//! - One feedback covers many packets, so the bytes in flight vary by that many packets. The window
//!   allows for this variation.
//! - A bandwidth probe ends when it gains less than a sender with half of the link would. Losses do
//!   not end a probe that gains: while the queues of other flows are full, losses do not prove
//!   congestion by this sender. How much bandwidth a sender yields depends on the number of its
//!   packets in a standing queue (`probe`).
//! - Each time the path is seen empty, the next drain of the path is postponed (`path`): a drain
//!   reduces goodput, and the delay of the empty path is already known.

mod aggregation;
mod bandwidth;
mod path;
mod probe;
mod round;
mod state;
#[cfg(test)]
mod tests;
mod undo;

use std::time::Duration;

use self::aggregation::Aggregation;
use self::bandwidth::{Bandwidth, FullBandwidthDetector};
use self::path::MinRttFilter;
use self::probe::Probe;
use self::round::Round;
use self::state::State;
use self::undo::Undo;
use super::limits::{NoFeedbackBackoff, floor_bytes_s};
use super::{Controller, FeedbackSample, RATE_MAX_BYTES_S};

/// Paces at the bandwidth that the path delivered, with about one bandwidth–delay product in
/// flight.
///
/// Random loss under 2 % does not lower the rate. The model probes for more bandwidth every 1–3 s,
/// or every 63 round trips if that is shorter. If the path was not seen empty for 5 s, the model
/// drains the path for at least 0.2 s.
#[derive(Debug)]
pub struct ModelController {
    state: State,
    probe: Probe,
    round: Round,
    bandwidth: Bandwidth,
    full_pipe: FullBandwidthDetector,
    rtt_filter: MinRttFilter,
    aggregation: Aggregation,
    /// Largest number of bytes in flight at which the last probes did not lose too many packets;
    /// infinite until too many packets were lost for the first time.
    inflight_hi: f64,
    /// Limit of bytes in flight after congestion since the last probe; infinite without congestion.
    inflight_lo: f64,
    undo: Undo,
    packet_bytes: f64,
    rate_bytes_s: f64,
    window_bytes: f64,
    no_feedback: NoFeedbackBackoff,
}

impl ModelController {
    /// Creates a model without measurements. `packet_bytes` is the size of a packet, headers
    /// included. `seed` makes the times of bandwidth probes random.
    pub fn new(packet_bytes: u32, seed: u64) -> Self {
        let packet_bytes = f64::from(packet_bytes.max(1));
        let window_bytes = INITIAL_PACKETS * packet_bytes;
        Self {
            state: State::Startup,
            probe: Probe::new(seed),
            round: Round::default(),
            bandwidth: Bandwidth::default(),
            full_pipe: FullBandwidthDetector::default(),
            rtt_filter: MinRttFilter::default(),
            aggregation: Aggregation::default(),
            inflight_hi: f64::INFINITY,
            inflight_lo: f64::INFINITY,
            undo: Undo::default(),
            packet_bytes,
            rate_bytes_s: STARTUP_GAIN * window_bytes / RTT_UNKNOWN_S,
            window_bytes,
            no_feedback: NoFeedbackBackoff::default(),
        }
    }

    /// Bandwidth–delay product (bytes) at the bandwidth in use, times `gain` (BBR §5.6.4.2).
    fn product_bytes(&self, gain: f64) -> f64 {
        match self.rtt_filter.min_rtt_s() {
            Some(rtt) if self.bandwidth.max() > 0.0 => gain * self.bandwidth.in_use() * rtt,
            _ => INITIAL_PACKETS * self.packet_bytes,
        }
    }

    fn window_floor(&self) -> f64 {
        WINDOW_PACKETS_MIN * self.packet_bytes
    }

    /// `inflight_hi` minus the headroom for other flows (BBR §5.3.3.9, InflightWithHeadroom).
    fn inflight_with_headroom(&self) -> f64 {
        let share = (1.0 - HEADROOM) * self.inflight_hi;
        share.min(self.inflight_hi - self.packet_bytes).max(self.window_floor())
    }

    fn set_rate(&mut self) {
        let rate = self.state.pacing_gain() * PACING_MARGIN * self.bandwidth.in_use();
        // BBR §5.6.2: before the pipe was full, a low sample does not lower the rate.
        if rate > 0.0 && (self.full_pipe.was_reached || rate > self.rate_bytes_s) {
            self.rate_bytes_s = rate;
        }
    }

    /// Sets the congestion window (BBR §5.6.4.6 and §5.6.4.7).
    fn set_window(&mut self, acked_bytes: f64) {
        let floor = self.window_floor();
        let mut most = self.product_bytes(self.state.window_gain());
        if self.state == State::Up {
            // If other flows keep a queue, the current round-trip time is longer than the least
            // round-trip time. To send a quarter more, the window must then be computed from the
            // current round-trip time.
            most = most.max(self.state.pacing_gain() * self.bandwidth.in_use() * self.rtt_filter.latest_s);
        }
        let most = (most + self.aggregation.extra_bytes()).max(floor);
        if self.full_pipe.was_reached {
            self.window_bytes = (self.window_bytes + acked_bytes).min(most);
        } else if self.window_bytes < most {
            self.window_bytes += acked_bytes;
        }
        let cap = match self.state {
            State::Startup | State::Up => f64::INFINITY,
            State::Drain { .. } | State::Down | State::Refill => self.inflight_hi,
            State::Cruise => {
                self.inflight_with_headroom().max(self.product_bytes(1.0) + self.aggregation.extra_bytes())
            }
            State::ProbeRtt { .. } => {
                self.inflight_with_headroom().min(self.product_bytes(PROBE_RTT_WINDOW_GAIN))
            }
        };
        self.window_bytes = self.window_bytes.min(cap.min(self.inflight_lo).max(floor)).max(floor);
    }
}

impl Controller for ModelController {
    fn on_feedback(&mut self, now: Duration, seen: &FeedbackSample<'_>) {
        let now_s = now.as_secs_f64();
        self.no_feedback.reset();
        self.packet_bytes = f64::from(seen.packet_bytes.max(1));
        let is_first_rtt = self.rtt_filter.min_rtt_s().is_none();
        self.rtt_filter.record(now_s, seen.round_trip);
        if let (true, Some(rtt)) = (is_first_rtt, self.rtt_filter.min_rtt_s()) {
            // BBR §5.6.2, InitPacingRate: the first round-trip time replaces the assumed 1 ms.
            self.rate_bytes_s = STARTUP_GAIN * INITIAL_PACKETS * self.packet_bytes / rtt;
        }
        self.take_back(seen);
        self.remember(seen);
        self.round.record(seen);
        if let Some(delivery) = &seen.delivery {
            self.bandwidth.record(delivery);
        }
        self.aggregation.record(
            now_s,
            seen.acked_bytes as f64,
            self.bandwidth.in_use(),
            self.window_bytes,
            &self.round,
        );
        self.advance(now_s, seen);
        self.round.close();
        self.set_rate();
        self.set_window(seen.acked_bytes as f64);
    }

    fn on_no_feedback(&mut self, _now: Duration) {
        // RFC 5348 §4.4 halves the rate each time. The model keeps its measurements. The window
        // grows again by the number of acknowledged bytes (BBR §5.6.4.4).
        self.no_feedback.on_expiry();
        self.window_bytes = (self.window_bytes / 2.0).max(self.window_floor());
    }

    fn rate_bytes_s(&self) -> f64 {
        let rate = self.no_feedback.apply(self.rate_bytes_s, self.packet_bytes);
        rate.max(floor_bytes_s(self.packet_bytes)).min(RATE_MAX_BYTES_S)
    }

    fn window_bytes(&self) -> u64 {
        // The cast from a float saturates.
        self.window_bytes as u64
    }
}

/// Initial window in packets (RFC 6928 §2).
const INITIAL_PACKETS: f64 = 10.0;

/// Assumed round-trip time before the first measurement (s; BBR §5.6.2).
const RTT_UNKNOWN_S: f64 = 0.001;

/// Pacing gain of Startup (BBR §5.3.1.1): 4 ln 2, the lowest gain that doubles the rate each round.
const STARTUP_GAIN: f64 = 2.77;

/// Factor on the pacing rate (BBR §5.6.2): 1 % below the bandwidth, so that queues drain.
const PACING_MARGIN: f64 = 0.99;

/// Lowest window in packets (BBR §2.5, MinPipeCwnd).
const WINDOW_PACKETS_MIN: f64 = 4.0;

/// Share of the bytes in flight that is left to other flows: 15 % (BBR §2.5, Headroom).
const HEADROOM: f64 = 0.15;

/// Smallest factor of one reduction (BBR §2.5, Beta). No reduction is larger than CUBIC's (RFC 9438
/// §4.6).
const BETA: f64 = 0.7;

/// Window gain in ProbeRTT (BBR §2.13.2, ProbeRTTCwndGain). With half of the bandwidth–delay
/// product in flight, the queue is empty and half of the path is used.
const PROBE_RTT_WINDOW_GAIN: f64 = 0.5;

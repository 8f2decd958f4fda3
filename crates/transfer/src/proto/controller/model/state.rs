//! State machine: Startup, Drain, then the four phases of ProbeBW in a cycle. ProbeRTT interrupts
//! these states (BBR §5.1).

use super::probe::UP_GAIN;
use super::{BETA, ModelController, PACING_MARGIN, STARTUP_GAIN};
use crate::proto::controller::FeedbackSample;

/// State of the controller (BBR §5.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// Startup: doubles the rate each round until the delivery rate no longer grows (BBR §5.3.1).
    Startup,
    /// Drain: drains the queue that Startup left (BBR §5.3.2).
    Drain {
        /// Round in which the state Drain began.
        since: u64,
    },
    /// ProbeBW_DOWN: sends slower than the path delivers, until the bytes in flight fit the path
    /// (BBR §5.3.3.1).
    Down,
    /// ProbeBW_CRUISE: sends as fast as the path delivers (BBR §5.3.3.2).
    Cruise,
    /// ProbeBW_REFILL: sends at the same rate for one round, with as many bytes in flight as fit
    /// the path (BBR §5.3.3.3).
    Refill,
    /// ProbeBW_UP: sends a quarter faster, to measure whether the delivery rate grows (BBR
    /// §5.3.3.4).
    Up,
    /// ProbeRTT: keeps half of the bandwidth–delay product in flight, so that the queue drains and
    /// the least round-trip time can be measured (BBR §5.3.4).
    ProbeRtt {
        /// Time (s) and round since which at most half of the bandwidth–delay product is in flight.
        low: Option<(f64, u64)>,
    },
}

impl State {
    /// Pacing gain: the pacing rate is the bandwidth times this factor (BBR §5.6.1, table).
    pub(super) fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_GAIN,
            Self::Drain { .. } => 0.5,
            Self::Down => 0.9,
            Self::Cruise | Self::Refill | Self::ProbeRtt { .. } => 1.0,
            Self::Up => UP_GAIN,
        }
    }

    /// Window gain: the window is the bandwidth–delay product times this factor (BBR §5.6.1,
    /// table). In ProbeRTT, `ModelController::set_window` limits the window further.
    pub(super) fn window_gain(self) -> f64 {
        if self == Self::Up { 2.25 } else { 2.0 }
    }

    pub(super) fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    fn is_accelerating(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}

impl ModelController {
    /// Updates the model with one feedback, and then updates the state (BBR §5.2.3).
    pub(super) fn advance(&mut self, now_s: f64, seen: &FeedbackSample<'_>) {
        self.probe.rounds += u64::from(self.round.has_ended);
        if self.round.has_ended {
            // The sender responds to the losses of a probe when the probe ends.
            let is_settled = !self.state.is_accelerating() && !self.probe.is_stopping;
            if is_settled && self.round.is_congested(&self.rtt_filter) {
                self.lower_short_term();
            }
            if is_settled && matches!(self.state, State::Down | State::Cruise) && !self.round.was_limited {
                self.on_standing_queue();
            }
        }
        match self.state {
            State::Startup => self.advance_startup(),
            State::Drain { since } => {
                let is_drained = seen.in_flight_bytes as f64 <= self.product_bytes(1.0);
                if is_drained || self.round.count > since + DRAIN_ROUNDS {
                    self.go_down(now_s);
                }
            }
            _ => {}
        }
        self.advance_probe_bw(now_s, seen);
        self.advance_probe_rtt(now_s, seen);
    }

    /// Lowers the short-term limits after a round with congestion outside probing. The new limits
    /// are what the round delivered, but at least 70 % of the old limits (BBR §5.5.10.3).
    fn lower_short_term(&mut self) {
        // A round that was paced below the bandwidth delivers less, so divide its rate by the
        // pacing gain.
        self.bandwidth.lower(self.round.bytes_s / (self.state.pacing_gain() * PACING_MARGIN));
        let before = if self.inflight_lo.is_finite() { self.inflight_lo } else { self.window_bytes };
        // The bytes that one feedback covers are in flight in addition to what the path holds.
        let delivered = self.round.flight_bytes + self.aggregation.extra_bytes();
        self.inflight_lo = delivered.max(BETA * before);
    }

    pub(super) fn forget_short_term(&mut self) {
        self.bandwidth.forget_short_term();
        self.inflight_lo = f64::INFINITY;
    }

    /// Ends Startup when the pipe is full (BBR §5.3.1.2 and §5.3.1.3). Losses in the queues of
    /// other flows do not end Startup while the rate still grows.
    fn advance_startup(&mut self) {
        let is_lossy = self.round.is_heavy(0.0) && self.round.has_many_runs();
        // If the network loses so many packets (`is_lossy`), the pipe is full, even if the
        // receiver's host limits the sender.
        if self.round.has_ended && (is_lossy || !self.round.was_limited) {
            self.full_pipe.record_round(self.round.bytes_s, is_lossy);
            if self.full_pipe.was_reached && is_lossy {
                let fits = self.product_bytes(1.0) + self.aggregation.extra_bytes();
                self.inflight_hi = fits.max(self.round.flight_bytes);
            }
        }
        if self.full_pipe.was_reached {
            self.state = State::Drain { since: self.round.count };
        }
    }

    /// Enters ProbeRTT, measures its duration, and leaves it (BBR §5.3.4.3).
    fn advance_probe_rtt(&mut self, now_s: f64, seen: &FeedbackSample<'_>) {
        let is_low = seen.in_flight_bytes as f64 <= self.window_bytes;
        match self.state {
            State::ProbeRtt { low: None } if is_low => {
                self.round.restart();
                self.state = State::ProbeRtt { low: Some((now_s, self.round.count)) };
            }
            State::ProbeRtt { low: Some((since_s, round)) }
                if now_s >= since_s + PROBE_RTT_S && self.round.count > round =>
            {
                self.leave_probe_rtt(now_s);
            }
            State::ProbeRtt { .. } => {}
            _ if self.rtt_filter.is_stale => {
                self.probe.stop();
                self.round.restart();
                self.state = State::ProbeRtt { low: None };
            }
            _ => {}
        }
    }

    /// Returns from ProbeRTT to ProbeBW or Startup (BBR §5.3.4.4).
    fn leave_probe_rtt(&mut self, now_s: f64) {
        self.rtt_filter.was_drained(now_s, self.round.least_rtt_s);
        self.forget_short_term();
        if self.full_pipe.was_reached {
            self.go_down(now_s);
            self.probe.spread_wait();
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }
}

/// Maximum number of rounds in Drain, in case the bandwidth estimate is too high (BBR §5.3.2).
const DRAIN_ROUNDS: u64 = 3;

/// Minimum duration of ProbeRTT in seconds (BBR §2.13.2, ProbeRTTDuration). Flows with round trips
/// of up to 0.2 s drain the path at the same time.
const PROBE_RTT_S: f64 = 0.2;

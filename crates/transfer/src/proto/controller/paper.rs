//! The paper's congestion control (Dickens §2).

use std::time::Duration;

use super::estimate::Cumulative;
use super::limits::{NoFeedbackBackoff, packet_bytes, round_trip_s};
use super::response::ResponseFunction;
use super::{Controller, ControllerConfig, FeedbackSample};

/// When the rate changes (Dickens §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At the end of each transmission window; all packets of a window are sent at one rate.
    Window,
    /// At a congestion event; otherwise the rate does not change.
    Rate,
}

/// FOBS: the response function of HighSpeed TCP over the long-term loss rate. Losses by the
/// receiver's CPU do not count as losses (§2.2: "no corrective action is taken"; §4.1.1: the rate
/// "was updated in a manner consistent with no packet loss").
///
/// The paper leaves these points open:
/// - Long-term loss rate: it is the number of packets lost divided by the number of packets sent,
///   since the start.
/// - Choice of the equation: the paper chooses by whether the congestion window is below 38 packets
///   (§2.1). It is the next window here, as in RFC 3649 §5; after the previous window, two windows
///   would belong to one loss rate.
/// - Start: the sender starts at the configured rate, without slow start. The first losses lower
///   the rate. The window never exceeds the number of packets that the configured rate sends in a
///   round trip.
/// - Transmission window: it is what is sent between two decisions, not what may be in flight. All
///   its packets are "put onto the network at a constant sending rate" (§2).
/// - Rate mode: the rate is the window divided by the current round-trip time.
/// - Congestion marks: each mark counts as a lost packet (RFC 3168 §5 requires the same response as
///   to a drop).
/// - Silence: each expiry of the no-feedback timer halves the rate until feedback comes (RFC 5348
///   §4.4).
/// - Lowest rate: one packet a round trip.
/// - Verdicts: losses without a verdict do not count as losses yet. Until the verdict, transmission
///   windows follow each other at a rate that does not rise.
/// - A later verdict for the CPU: these losses leave the long-term loss rate, and the rate is
///   computed again.
#[derive(Debug)]
pub struct Paper {
    mode: Mode,
    rate_max: f64,
    packet_bytes: f64,
    /// Window in packets; `None` before the first round-trip time.
    window: Option<f64>,
    /// Sending rate that the window gives (bytes a second).
    rate: f64,
    /// The transmission window ends when `accounted` reaches this number of packets.
    end: u64,
    estimate: Cumulative,
    /// Packets accounted for so far, including host losses.
    accounted: u64,
    host_lost: u64,
    /// Whether losses were charged or taken back since the rate was set.
    has_changed: bool,
    no_feedback: NoFeedbackBackoff,
}

impl Paper {
    /// Starts at [`ControllerConfig::rate_bytes_s`].
    pub fn new(mode: Mode, config: ControllerConfig) -> Self {
        let rate = config.rate();
        Self {
            mode,
            rate_max: rate,
            packet_bytes: f64::from(config.packet_bytes.max(1)),
            window: None,
            rate,
            end: 0,
            estimate: Cumulative::default(),
            accounted: 0,
            host_lost: 0,
            has_changed: false,
            no_feedback: NoFeedbackBackoff::default(),
        }
    }

    /// Returns the number of packets newly accounted for, and the number of packets that the
    /// network lost or marked.
    fn count(&mut self, seen: &FeedbackSample<'_>) -> (u64, u64) {
        let taken_back = seen.taken_back.iter().map(|run| u64::from(run.packets));
        self.estimate.take_back(taken_back.fold(0, u64::saturating_add));
        self.host_lost = self.host_lost.saturating_add(seen.host_lost_packets);
        let accounted = seen.accounted_packets.saturating_add(self.host_lost).max(self.accounted);
        let packets = accounted - self.accounted;
        self.accounted = accounted;
        let lost = seen.losses.iter().map(|loss| u64::from(loss.packets));
        (packets, lost.fold(seen.marked_packets, u64::saturating_add))
    }

    /// Begins the next transmission window. Without a verdict, neither window nor rate rises.
    fn set_window(&mut self, window: f64, round_trip: f64, is_undecided: bool) {
        let (most, rate_max) = if is_undecided { (self.window, self.rate) } else { (None, f64::INFINITY) };
        let window = most.map_or(window, |most| window.min(most));
        self.has_changed &= is_undecided;
        self.window = Some(window);
        self.rate = (window * self.packet_bytes / round_trip).min(rate_max);
        self.end = self.accounted.saturating_add(window as u64);
    }
}

impl Controller for Paper {
    fn on_feedback(&mut self, _: Duration, seen: &FeedbackSample<'_>) {
        // If the packet size changed, the window keeps its number of bytes.
        let before = std::mem::replace(&mut self.packet_bytes, packet_bytes(seen));
        self.window = self.window.map(|window| (window * before / self.packet_bytes).max(1.0));
        self.no_feedback.reset();
        let (packets, lost) = self.count(seen);
        self.estimate.record(packets, lost);
        let Some(round_trip) = round_trip_s(seen.rtt) else { return };
        let ceiling = (self.rate_max * round_trip / self.packet_bytes).max(1.0);
        if self.window.is_none() {
            self.window = Some(ceiling);
            self.end = self.accounted.saturating_add(ceiling as u64);
        }
        self.has_changed |= lost > 0 || !seen.taken_back.is_empty();
        let is_due = match self.mode {
            Mode::Window => self.end <= self.accounted || !seen.taken_back.is_empty(),
            Mode::Rate => self.has_changed,
        };
        if is_due {
            let window = ResponseFunction::HighSpeed.window(self.estimate.rate()).clamp(1.0, ceiling);
            self.set_window(window, round_trip, seen.is_undecided);
        }
    }

    fn on_no_feedback(&mut self, _: Duration) {
        self.no_feedback.on_expiry();
    }

    fn rate_bytes_s(&self) -> f64 {
        self.no_feedback.apply(self.rate, self.packet_bytes)
    }
}

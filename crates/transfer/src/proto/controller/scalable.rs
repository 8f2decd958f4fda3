//! Scalable TCP (Kelly 2003).

use std::collections::VecDeque;
use std::time::Duration;

use super::limits::{NoFeedbackBackoff, START_BYTES, packet_bytes, round_trip_s};
use super::{Controller, FeedbackSample, RATE_MAX_BYTES_S};

/// Scalable TCP (Kelly 2003). Each acknowledged packet adds 0.01 packets to the window; a round
/// trip with losses or marks reduces the window by an eighth. So the window settles at 0.08 / p
/// packets, and a window of any size recovers from a loss in the same number of round trips.
#[derive(Debug)]
pub struct Scalable {
    packet_bytes: f64,
    /// Window in packets; `None` before the first feedback.
    window: Option<f64>,
    round_trip_s: Option<f64>,
    is_start: bool,
    /// Time when the window was last reduced. Losses of packets that were sent before this time
    /// reduce the window no further.
    reduced: Option<Duration>,
    reductions: Reductions,
    no_feedback: NoFeedbackBackoff,
}

/// The last reductions of the window by losses, oldest first, so that losses of the receiver's host
/// can be taken back.
#[derive(Debug, Default)]
struct Reductions {
    last: VecDeque<Reduction>,
}

/// One reduction of the window, with the losses that it answered.
#[derive(Clone, Copy, Debug)]
struct Reduction {
    /// Position of its first lost packet.
    at: u64,
    /// Number of its lost packets.
    lost: u64,
    /// Packets by which it made the window smaller.
    packets: f64,
    was_start: bool,
}

impl Reductions {
    fn push(&mut self, reduction: Reduction) {
        if self.last.len() == REDUCTIONS {
            self.last.pop_front();
        }
        self.last.push_back(reduction);
    }

    /// Counts losses that the last reduction already answered.
    fn add(&mut self, packets: u64) {
        if let Some(last) = self.last.back_mut() {
            last.lost = last.lost.saturating_add(packets);
        }
    }

    /// Takes back losses from position `at` on. Returns the window without the reductions of which
    /// all losses are taken back, and whether slow start continues.
    fn take_back(&mut self, at: u64, packets: u64, mut window: f64) -> (f64, bool) {
        let mut is_start = false;
        let answered = self.last.iter().rposition(|reduction| reduction.at <= at);
        for reduction in self.last.range_mut(answered.map_or(0, |answered| answered + 1)..) {
            reduction.at -= packets.min(reduction.at - at);
        }
        let Some(position) = answered else { return (window, false) };
        let lost = self.last.get(position).map_or(0, |reduction| reduction.lost.saturating_sub(packets));
        if let Some(reduction) = self.last.get_mut(position) {
            reduction.lost = lost;
        }
        if lost == 0
            && let Some(undone) = self.last.remove(position)
        {
            // Later reductions would have taken their share of the larger window.
            let mut back = undone.packets;
            for later in self.last.range_mut(position..) {
                later.packets += DECREASE * back;
                back *= 1.0 - DECREASE;
            }
            window += back;
            is_start = undone.was_start && self.last.is_empty();
        }
        (window, is_start)
    }
}

impl Default for Scalable {
    fn default() -> Self {
        Self {
            packet_bytes: 1.0,
            window: None,
            round_trip_s: None,
            is_start: true,
            reduced: None,
            reductions: Reductions::default(),
            no_feedback: NoFeedbackBackoff::default(),
        }
    }
}

impl Scalable {
    /// Window (packets) after `acked` more packets were acknowledged.
    fn grown(&self, window: f64, acked: f64) -> f64 {
        if self.is_start {
            // RFC 5681 §3.1: slow start doubles the window each round trip.
            return window + acked;
        }
        // Below 100 packets the window grows like TCP's, by one packet a round trip, as in Linux
        // (net/ipv4/tcp_scalable.c). A growth of 0.01 of a few packets would be almost nothing.
        window + acked * (1.0 / window).max(INCREASE)
    }

    fn is_answered(&self, sent: Duration) -> bool {
        self.reduced.is_some_and(|reduced| sent <= reduced)
    }
}

impl Controller for Scalable {
    fn on_feedback(&mut self, now: Duration, seen: &FeedbackSample<'_>) {
        self.no_feedback.reset();
        // If the packet size changed, the window keeps its number of bytes.
        let before = std::mem::replace(&mut self.packet_bytes, packet_bytes(seen));
        self.window = self.window.map(|window| window * before / self.packet_bytes);
        self.round_trip_s = round_trip_s(seen.rtt).or(self.round_trip_s);
        let mut window = self.window.unwrap_or(START_BYTES as f64 / self.packet_bytes);
        for run in seen.taken_back {
            let (before, is_start) = self.reductions.take_back(run.at, run.packets.into(), window);
            (window, self.is_start) = (before, self.is_start || is_start);
        }
        // RFC 9002 §7.8: a window that is not used does not grow.
        if !seen.delivery.is_some_and(|delivery| delivery.is_app_limited) {
            window = self.grown(window, seen.acked_packets as f64);
        }
        // RFC 3168 §6.1.2: a mark counts as a loss, at most once in a round trip. The marked packet
        // was sent a round trip ago.
        let marked = now.saturating_sub(seen.rtt.latest.unwrap_or(seen.rtt.smoothed));
        let is_lost = seen.losses.iter().any(|loss| !self.is_answered(loss.sent));
        let lost: u64 = seen.losses.iter().map(|loss| u64::from(loss.packets)).sum();
        if is_lost || (seen.marked_packets > 0 && !self.is_answered(marked)) {
            // A mark is the network's, so a reduction with marks is never taken back.
            let at = seen.losses.first().map_or(seen.accounted_packets, |loss| loss.at);
            let (packets, was_start) = (window * DECREASE, self.is_start);
            self.reductions.push(Reduction {
                at,
                lost: lost.saturating_add(seen.marked_packets),
                packets,
                was_start,
            });
            window -= packets;
            self.reduced = Some(now);
            self.is_start = false;
        } else {
            self.reductions.add(lost);
        }
        let most = RATE_MAX_BYTES_S * self.round_trip_s.unwrap_or(1.0) / self.packet_bytes;
        self.window = Some(window.min(most).max(WINDOW_MIN));
    }

    fn on_no_feedback(&mut self, _: Duration) {
        self.no_feedback.on_expiry();
    }

    fn rate_bytes_s(&self) -> f64 {
        let (Some(window), Some(round_trip)) = (self.window, self.round_trip_s) else { return f64::INFINITY };
        let ahead = if self.is_start { AHEAD_START } else { AHEAD };
        self.no_feedback.apply(ahead * window * self.packet_bytes / round_trip, self.packet_bytes)
    }

    fn window_bytes(&self) -> u64 {
        self.window.map_or(START_BYTES, |window| (window * self.packet_bytes) as u64)
    }
}

/// Kelly 2003: growth in packets per acknowledged packet, and the share by which a loss reduces the
/// window.
const INCREASE: f64 = 0.01;
const DECREASE: f64 = 0.125;

/// Number of reductions that are kept. The losses of one window of the classifier are taken back
/// together. In 20 000 packets, a window of 200 packets or more is reduced at most 100 times, and
/// after eight reductions a third of it is left.
const REDUCTIONS: usize = 8;

/// Lowest window in packets (RFC 9002 §7.2).
const WINDOW_MIN: f64 = 2.0;

/// The pacing rate is the window divided by the round-trip time, times this factor. The factor is
/// above 1, so that the window limits the sender (RFC 9002 §7.7). Slow start needs 2, because each
/// acknowledgement releases two packets.
const AHEAD: f64 = 1.25;
const AHEAD_START: f64 = 2.0;

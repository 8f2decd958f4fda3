//! A CUBIC flow (RFC 9438) with a selective acknowledgement for each packet. Slow start ends when
//! the delay rises (RFC 9406).

use std::collections::VecDeque;
use std::time::Duration;

use libm::{cbrt, pow};

/// One TCP-like flow that sends full packets without end. The caller carries the packets, and
/// reports whether each packet was acknowledged or lost.
#[derive(Debug)]
pub struct Cubic {
    window: f64,
    threshold: f64,
    window_max: f64,
    epoch: Option<(f64, f64)>,
    window_reno: f64,
    flight: VecDeque<(Duration, bool)>,
    floor: u64,
    highest: u64,
    in_flight: u64,
    recover: u64,
    rtt_s: f64,
    rtt_min_s: f64,
    /// Time of the last acknowledgement or timeout.
    pub heard_at: Duration,
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            window: 10.0,
            threshold: f64::INFINITY,
            window_max: 0.0,
            epoch: None,
            window_reno: 0.0,
            flight: VecDeque::new(),
            floor: 0,
            highest: 0,
            in_flight: 0,
            recover: 0,
            rtt_s: 0.0,
            rtt_min_s: f64::INFINITY,
            heard_at: Duration::ZERO,
        }
    }
}

impl Cubic {
    /// Numbers of the packets to send now.
    #[must_use]
    pub fn poll(&mut self, now: Duration) -> Vec<u64> {
        let mut numbers = Vec::new();
        while (self.in_flight as f64) + 1.0 <= self.window {
            self.in_flight += 1;
            self.flight.push_back((now, false));
            numbers.push(self.floor + self.flight.len() as u64 - 1);
        }
        numbers
    }

    /// Records that this packet was acknowledged.
    pub fn acknowledge(&mut self, now: Duration, number: u64) {
        self.heard_at = now;
        let Some(at) = number.checked_sub(self.floor) else { return };
        let Some(sent) = usize::try_from(at).ok().and_then(|at| self.flight.get_mut(at)) else { return };
        sent.1 = true;
        let rtt = now.saturating_sub(sent.0).as_secs_f64();
        self.in_flight = self.in_flight.saturating_sub(1);
        self.highest = self.highest.max(number);
        self.rtt_s = if self.rtt_s > 0.0 { self.rtt_s * 0.875 + rtt * 0.125 } else { rtt };
        self.rtt_min_s = self.rtt_min_s.min(rtt);
        while self.floor + 3 < self.highest + 1 {
            let Some((_, is_acked)) = self.flight.pop_front() else { break };
            if !is_acked {
                self.in_flight = self.in_flight.saturating_sub(1);
                if self.floor >= self.recover {
                    self.back_off();
                }
            }
            self.floor += 1;
        }
        if number >= self.recover {
            self.grow(now.as_secs_f64(), rtt);
        }
    }

    /// Reduces the window after a loss (RFC 9438 §4.6 and §4.7).
    fn back_off(&mut self) {
        self.window_max =
            if self.window < self.window_max { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
        self.recover = self.floor + self.flight.len() as u64 + 1;
    }

    /// Handles a timeout: declares all packets in flight lost (RFC 9438 §4.8).
    pub fn time_out(&mut self, now: Duration) {
        self.back_off();
        self.window = 2.0;
        self.heard_at = now;
        self.floor += self.flight.len() as u64;
        self.highest = self.floor;
        self.recover = self.floor;
        self.flight.clear();
        self.in_flight = 0;
    }

    fn grow(&mut self, now_s: f64, rtt_s: f64) {
        if self.window < self.threshold {
            self.window += 1.0;
            if rtt_s > self.rtt_min_s + (self.rtt_min_s / 8.0).clamp(0.004, 0.016) {
                self.threshold = self.window;
            }
            return;
        }
        // Computes the growth of the window (RFC 9438 §4.2 and §4.3).
        let (began_s, k) = *self.epoch.get_or_insert_with(|| {
            self.window_reno = self.window;
            (now_s, cbrt((self.window_max - self.window).max(0.0) / C))
        });
        let top = self.window_max.max(self.window_reno);
        let target = C * pow(now_s - began_s + self.rtt_s - k, 3.0) + top;
        let target = target.clamp(self.window, 1.5 * self.window);
        self.window_reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.window;
        self.window = (self.window + (target - self.window) / self.window).max(self.window_reno);
    }
}

/// RFC 9438 §4.6.
const BETA: f64 = 0.7;
/// RFC 9438 §5.1.
const C: f64 = 0.4;

//! The response of HighSpeed TCP over RFC 5348's history of loss events.

use std::time::Duration;

use super::equation::Equation;
use super::limits::START_BYTES;
use super::{Controller, Response, Seen};

/// The paper's modification of TFRC (Dickens §2.1) with the estimator that TFRC has: X = s w(p) / R with RFC 3649 §5's w, p from the last
/// eight loss intervals (RFC 5348 §5), at most twice what arrives, in a slow start that doubles each round trip until the first loss event.
#[derive(Debug)]
pub struct HighSpeed(Equation);

impl Default for HighSpeed {
    fn default() -> Self {
        Self(Equation::new(Response::HighSpeed, START_BYTES))
    }
}

impl Controller for HighSpeed {
    fn name(&self) -> &'static str {
        "highspeed"
    }

    fn on_feedback(&mut self, now: Duration, seen: &Seen<'_>) {
        self.0.on_feedback(now, seen);
    }

    fn on_silence(&mut self, _: Duration) {
        self.0.on_silence();
    }

    fn rate_bytes_s(&self) -> f64 {
        self.0.rate_bytes_s()
    }

    fn window_bytes(&self) -> u64 {
        self.0.window_bytes()
    }
}

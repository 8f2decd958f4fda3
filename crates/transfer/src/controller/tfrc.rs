//! TFRC.

use std::time::Duration;

use super::equation::Equation;
use super::{Controller, Response, Seen};

/// RFC 5348 as it is: fair to TCP, and as slow where round trips are long.
#[derive(Debug)]
pub struct Tfrc(Equation);

/// RFC 5348 §4.2: W_init = min(4 s, max(2 s, 4380)) bytes, which is 4380 for packets of 1095 to 2190 bytes.
const START_BYTES: u64 = 4380;

impl Default for Tfrc {
    fn default() -> Self {
        Self(Equation::new(Response::Tfrc, START_BYTES))
    }
}

impl Controller for Tfrc {
    fn name(&self) -> &'static str {
        "tfrc"
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

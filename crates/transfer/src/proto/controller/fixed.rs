//! A fixed rate that the user chose.

use std::time::Duration;

use super::limits::{Silence, packet_bytes};
use super::{Config, Controller, FeedbackSample};

/// Sends at one rate whatever the network loses: for links without other users. If no feedback
/// comes, the rate halves as RFC 5348 §4.4 requires.
#[derive(Debug)]
pub struct Fixed {
    bytes_s: f64,
    packet_bytes: f64,
    silence: Silence,
}

impl Fixed {
    /// Sends at [`Config::rate_bytes_s`].
    pub fn new(config: Config) -> Self {
        Self {
            bytes_s: config.rate(),
            packet_bytes: f64::from(config.packet_bytes.max(1)),
            silence: Silence::default(),
        }
    }
}

impl Controller for Fixed {
    fn on_feedback(&mut self, _: Duration, seen: &FeedbackSample<'_>) {
        self.packet_bytes = packet_bytes(seen);
        self.silence.end();
    }

    fn on_silence(&mut self, _: Duration) {
        self.silence.lasts();
    }

    fn rate_bytes_s(&self) -> f64 {
        self.silence.of(self.bytes_s, self.packet_bytes)
    }
}

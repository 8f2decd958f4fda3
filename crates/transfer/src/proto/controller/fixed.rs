//! A fixed rate that the user chose.

use std::time::Duration;

use super::limits::{NoFeedbackBackoff, packet_bytes};
use super::{Controller, ControllerConfig, FeedbackSample};

/// Sends at one rate even if the network loses packets; only for links without other users. If no
/// feedback comes, the rate halves as RFC 5348 §4.4 requires.
#[derive(Debug)]
pub struct Fixed {
    bytes_s: f64,
    packet_bytes: f64,
    no_feedback: NoFeedbackBackoff,
}

impl Fixed {
    /// Sends at [`ControllerConfig::rate_bytes_s`].
    pub fn new(config: ControllerConfig) -> Self {
        Self {
            bytes_s: config.rate(),
            packet_bytes: f64::from(config.packet_bytes.max(1)),
            no_feedback: NoFeedbackBackoff::default(),
        }
    }
}

impl Controller for Fixed {
    fn on_feedback(&mut self, _: Duration, seen: &FeedbackSample<'_>) {
        self.packet_bytes = packet_bytes(seen);
        self.no_feedback.reset();
    }

    fn on_no_feedback(&mut self, _: Duration) {
        self.no_feedback.on_expiry();
    }

    fn rate_bytes_s(&self) -> f64 {
        self.no_feedback.apply(self.bytes_s, self.packet_bytes)
    }
}

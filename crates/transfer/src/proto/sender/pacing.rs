//! Packet size, and when the next packet may be sent.

use std::time::Duration;

use crate::proto::Controller;
use crate::proto::controller::FeedbackSample;
use crate::proto::pacer::Pacer;

/// The controller, with the pacer and the window that follow from it.
#[derive(Debug)]
pub(super) struct Pacing {
    /// `payload`: bytes of the object in a full packet. `overhead`: bytes that headers, seal, UDP
    /// and IP add to a packet.
    payload: u64,
    overhead: u64,
    controller: Box<dyn Controller>,
    pacer: Pacer,
    window_bytes: u64,
}

impl Pacing {
    pub(super) fn new(payload_bytes: u32, overhead_bytes: u32, controller: Box<dyn Controller>) -> Self {
        let (payload, overhead) = (u64::from(payload_bytes.max(1)), u64::from(overhead_bytes));
        Self {
            payload,
            overhead,
            pacer: Pacer::new(payload + overhead, controller.rate_bytes_s()),
            window_bytes: controller.window_bytes(),
            controller,
        }
    }

    pub(super) fn payload(&self) -> u64 {
        self.payload
    }

    pub(super) fn set_payload(&mut self, bytes: u32) {
        self.payload = u64::from(bytes.max(1));
        self.pacer.set_packet(self.full_bytes());
    }

    /// Bytes of a full packet, headers included.
    pub(super) fn full_bytes(&self) -> u64 {
        self.payload + self.overhead
    }

    /// Whether the window has room for a full packet.
    pub(super) fn has_room(&self, in_flight_bytes: u64) -> bool {
        // Allow one packet in flight for any window: a window smaller than a packet would stop the
        // transfer.
        in_flight_bytes == 0 || in_flight_bytes.saturating_add(self.full_bytes()) <= self.window_bytes
    }

    /// Whether a full packet may be sent now.
    pub(super) fn is_ready(&mut self, now: Duration) -> bool {
        self.pacer.is_ready(now)
    }

    /// Time when the next packet may be sent.
    pub(super) fn next(&self) -> Duration {
        self.pacer.next()
    }

    /// Counts a sent packet with `bytes` of the object.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.pacer.spend(bytes + self.overhead);
    }

    pub(super) fn rate_bytes_s(&self) -> f64 {
        self.pacer.rate()
    }

    pub(super) fn burst_packets(&self) -> u32 {
        self.pacer.burst_packets()
    }

    pub(super) fn is_capped(&self) -> bool {
        self.controller.is_capped()
    }

    pub(super) fn on_feedback(&mut self, now: Duration, seen: &FeedbackSample<'_>) {
        self.controller.on_feedback(now, seen);
        self.follow(now);
    }

    pub(super) fn on_no_feedback(&mut self, now: Duration) {
        self.controller.on_no_feedback(now);
        self.follow(now);
    }

    fn follow(&mut self, now: Duration) {
        self.pacer.set_rate(now, self.controller.rate_bytes_s());
        self.window_bytes = self.controller.window_bytes();
    }
}

//! What a sender keeps: what is still to be sent, what is under way, and what became of it.

use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use crate::Controller;
use crate::wire::{Feedback, Note};

/// What a sender is made of.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// Bytes of the object in a full packet.
    pub payload_bytes: u32,
    /// Bytes that headers, seal, UDP and IP add to it on the way.
    pub overhead_bytes: u32,
    /// What the numbers that are left out are drawn from: a receiver that acknowledges one of them lies.
    pub seed: u64,
    /// Whether losses are told apart; without it all are the network's.
    pub has_ear: bool,
}

/// A packet to be sent: the shell reads the range, encodes, seals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its number.
    pub number: u64,
    /// When it is sent (µs since the epoch, wrapping).
    pub sent_us: u32,
    /// What it carries of the object.
    pub range: Range<u64>,
    /// What to tell beside.
    pub note: Option<Note>,
}

/// What a receiver did that none of ours does: the transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// It acknowledged a packet that was not sent.
    #[error("the receiver acknowledged packet {0}, which was not sent")]
    NeverSent(u64),
    /// It took back an acknowledgement, or its totals fell.
    #[error("the receiver took back what it had said")]
    TakenBack,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of the object sent, those sent again among them.
    pub sent_bytes: u64,
    /// Bytes of the object acknowledged, each once.
    pub acked_bytes: u64,
    /// Packets taken for lost, and later acknowledged after all.
    pub spurious_packets: u64,
    /// Packets lost by the receiving host.
    pub lost_host: u64,
    /// Packets lost by the network.
    pub lost_network: u64,
    /// Packets lost nobody knows where, which count as the network's.
    pub lost_unknown: u64,
}

/// The sending half, of one object.
#[derive(Debug)]
pub struct Sender {
    _controller: Box<dyn Controller>,
}

impl Sender {
    /// Sends an object of `object_bytes`, of which the receiver has `held` already.
    pub fn new(
        config: SenderConfig,
        object_bytes: u64,
        held: &RangeSet<u64>,
        controller: Box<dyn Controller>,
    ) -> Self {
        let _ = (config, object_bytes, held);
        Self { _controller: controller }
    }

    /// The next packet to send at `now`, if there is one and the rate allows it.
    pub fn poll_packet(&mut self, now: Duration) -> Option<Packet> {
        let _ = now;
        None
    }

    /// Takes a feedback, of which `number` is the datagram's: an older one adds what it acknowledges, and nothing else.
    ///
    /// # Errors
    /// The receiver breaks the protocol.
    pub fn handle_feedback(
        &mut self,
        now: Duration,
        number: u64,
        feedback: &Feedback,
    ) -> Result<(), Violation> {
        let _ = (now, number, feedback);
        Ok(())
    }

    /// When [`Sender::handle_timeout`] or [`Sender::poll_packet`] has something to do next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        None
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Duration) {
        let _ = now;
    }

    /// Whether all of the object was acknowledged.
    pub fn is_done(&self) -> bool {
        false
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
}

//! The bottleneck: an emulated link, with additional features that the emulator does not have.

use std::time::Duration;

use barograph_sim::{Jitter, LinkDirection, LinkSpec, PacketFate, PacketLoss, Queue};

/// A path with equal delay in both directions and a bottleneck on the way to the receiver.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) rate_bps: u64,
    pub(crate) rtt: Duration,
    pub(crate) queue: Queue,
    pub(crate) loss: f64,
    pub(crate) jitter: Jitter,
    /// Number of bytes in the queue above which packets are marked.
    pub(crate) mark_above_bytes: Option<u64>,
    /// Size in bytes of a token bucket, which replaces the queue; `None` for a queue.
    pub(crate) policer_bytes: Option<u64>,
    /// (time, rate): from this time on the path has this rate (bit/s).
    pub(crate) changes: Vec<(Duration, u64)>,
    /// (from, to): the path loses all packets in this time.
    pub(crate) outage: Option<(Duration, Duration)>,
    pub(crate) seed: u64,
}

impl Path {
    pub(crate) fn new(mbit_s: u64, rtt_ms: u64, seed: u64) -> Self {
        Self {
            rate_bps: mbit_s * 1_000_000,
            rtt: Duration::from_millis(rtt_ms),
            queue: Queue::Bdp(1.0),
            loss: 0.0,
            jitter: Jitter::None,
            mark_above_bytes: None,
            policer_bytes: None,
            changes: Vec::new(),
            outage: None,
            seed,
        }
    }

    pub(crate) fn product_bytes(&self) -> f64 {
        self.rate_bps as f64 / 8.0 * self.rtt.as_secs_f64()
    }

    fn spec(&self) -> LinkSpec {
        // The queue keeps its length when the rate changes.
        let queue = match self.queue {
            Queue::Bdp(products) => Queue::Bytes(((products * self.product_bytes()) as u64).max(3000)),
            other => other,
        };
        LinkSpec {
            rate_bps: Some(self.rate_bps),
            delay: self.rtt / 2,
            queue,
            loss: if self.loss > 0.0 { PacketLoss::Independent(self.loss) } else { PacketLoss::None },
            jitter: self.jitter.clone(),
            seed: self.seed,
            ..LinkSpec::default()
        }
    }
}

pub(crate) struct Bottleneck {
    path: Path,
    link: LinkDirection,
    tokens: f64,
    tokens_at: Duration,
}

impl Bottleneck {
    pub(crate) fn new(path: &Path) -> Self {
        let mut spec = path.spec();
        if path.policer_bytes.is_some() {
            (spec.rate_bps, spec.queue) = (None, Queue::Unlimited);
        }
        let link = LinkDirection::new(spec).unwrap();
        Self {
            path: path.clone(),
            link,
            tokens: path.policer_bytes.unwrap_or(0) as f64,
            tokens_at: Duration::ZERO,
        }
    }

    /// Returns when a packet arrives and whether it is marked; `None` if it is lost.
    pub(crate) fn carry(&mut self, now: Duration, bytes: u32) -> Option<(Duration, bool)> {
        self.change(now);
        if self.path.outage.is_some_and(|(from, to)| (from..to).contains(&now)) {
            return None;
        }
        if let Some(depth) = self.path.policer_bytes {
            let refill = (now - self.tokens_at).as_secs_f64() * self.path.rate_bps as f64 / 8.0;
            self.tokens = (self.tokens + refill).min(depth as f64);
            self.tokens_at = now;
            if self.tokens < f64::from(bytes) {
                return None;
            }
            self.tokens -= f64::from(bytes);
        }
        let is_marked = self.path.mark_above_bytes.is_some_and(|limit| self.backlog_bytes(now) > limit);
        match self.link.send(now, bytes as usize) {
            PacketFate::Delivered { at } => Some((at, is_marked)),
            PacketFate::Lost | PacketFate::QueueFull => None,
        }
    }

    pub(crate) fn backlog_bytes(&self, now: Duration) -> u64 {
        self.link.backlog_bytes(now)
    }

    fn change(&mut self, now: Duration) {
        let Some(&(at, rate_bps)) = self.path.changes.first() else { return };
        if now < at {
            return;
        }
        self.path.changes.remove(0);
        let waiting = self.backlog_bytes(now);
        let queue = self.path.spec().queue;
        self.path.rate_bps = rate_bps;
        self.link = LinkDirection::new(LinkSpec { queue, ..self.path.spec() }).unwrap();
        // Put the waiting bytes into the new link as one packet: an idle link accepts a packet of
        // any size.
        if waiting > 0 {
            let _ = self.link.send(now, waiting as usize);
        }
    }
}

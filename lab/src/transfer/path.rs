//! The link that a table's flows share: a bottleneck of the emulator's, and behind it a host that may stall.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_sim::{Fate, LinkSpec, Loss, Model, Queue};
use barograph_transfer::testkit::{
    Cubic,
    pair::{Arrived, Link, Load, Parcel},
};

use super::hold::{Hold, Predictor, known};
use super::host::Host;

/// Bytes of a full packet, headers included: what Ethernet carries.
pub(crate) const PACKET: u32 = 1500;

/// IP, UDP, number and seal.
pub(crate) const OVERHEAD: u32 = 60;

/// A path with the same delay in both directions and a bottleneck on the way there.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) mbit_s: u64,
    pub(crate) rtt_ms: u64,
    /// Probability that a packet is lost behind the queue.
    pub(crate) loss: f64,
    pub(crate) seed: u64,
    /// The receiver's host, if it is one that stalls.
    pub(crate) host: Option<Host>,
    /// One flow of RFC 9438 beside, from the beginning.
    pub(crate) has_cubic: bool,
    /// What the sender knows of the host's stalls.
    pub(crate) hold: Hold,
}

impl Path {
    pub(crate) fn new(mbit_s: u64, rtt_ms: u64, seed: u64) -> Self {
        Self { mbit_s, rtt_ms, loss: 0.0, seed, host: None, has_cubic: false, hold: Hold::Never }
    }

    pub(crate) fn bytes_s(&self) -> f64 {
        self.mbit_s as f64 * 125_000.0
    }

    pub(crate) fn half(&self) -> Duration {
        Duration::from_millis(self.rtt_ms) / 2
    }

    /// One product of rate and round trip, but room for a burst.
    fn queue_bytes(&self) -> u64 {
        (self.mbit_s * self.rtt_ms * 125).max(QUEUE_PACKETS_MIN * u64::from(PACKET))
    }

    pub(crate) fn link(&self) -> anyhow::Result<Bottleneck> {
        let there = Model::new(LinkSpec {
            rate_bps: Some(self.mbit_s * 1_000_000),
            delay: self.half(),
            loss: if 0.0 < self.loss { Loss::Independent(self.loss) } else { Loss::None },
            queue: Queue::Bytes(self.queue_bytes()),
            seed: self.seed,
            ..LinkSpec::default()
        })?;
        Ok(Bottleneck {
            there,
            bytes_s: self.bytes_s(),
            back: self.half(),
            host: self.host.clone(),
            other: self.has_cubic.then(Other::default),
            hold: self.hold,
            predictor: (self.hold == Hold::Predicted).then(|| Predictor::new(2 * self.half())),
            waits: 0,
            waited_s: 0.0,
        })
    }
}

/// The least a queue has room for (packets).
const QUEUE_PACKETS_MIN: u64 = 32;

/// The path while it is used.
#[derive(Debug)]
pub(crate) struct Bottleneck {
    there: Model,
    bytes_s: f64,
    back: Duration,
    host: Option<Host>,
    other: Option<Other>,
    hold: Hold,
    predictor: Option<Predictor>,
    /// Packets that came to the queue, and how long each would wait there, in all.
    pub(crate) waits: u64,
    pub(crate) waited_s: f64,
}

/// The cubic flow, with the packets that are to be acknowledged.
#[derive(Debug, Default)]
struct Other {
    flow: Cubic,
    coming: VecDeque<(Duration, u64)>,
    count: Count,
}

/// What the cubic flow sent, lost and got through (packets).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) came: u64,
}

impl Other {
    fn next_at(&self) -> Duration {
        let silent = self.flow.heard_at + SILENT;
        let start = (self.count.sent == 0).then_some(Duration::ZERO);
        let acknowledged = self.coming.front().map(|(at, _)| *at);
        start.or(acknowledged).map_or(silent, |at| at.min(silent))
    }
}

/// RFC 6298 §2.4: the least time-out.
const SILENT: Duration = Duration::from_secs(1);

impl Bottleneck {
    pub(crate) fn cubic(&self) -> Count {
        self.other.as_ref().map_or(Count::default(), |other| other.count)
    }

    /// When a packet comes to the host.
    fn pass(&mut self, now: Duration, bytes: u32) -> Option<Duration> {
        self.waits += 1;
        self.waited_s += self.there.backlog_bytes(now) as f64 / self.bytes_s;
        match self.there.carry(now, bytes as usize) {
            Fate::Delivered { at } => Some(at),
            Fate::Lost | Fate::QueueFull => None,
        }
    }

    /// The cubic flow's turn.
    fn step(&mut self, now: Duration) {
        let Some(mut other) = self.other.take() else { return };
        match other.coming.front() {
            Some((at, number)) if *at <= now => {
                other.count.came += 1;
                other.flow.acknowledge(now, *number);
                other.coming.pop_front();
            }
            _ if other.flow.heard_at + SILENT <= now => other.flow.time_out(now),
            _ => {}
        }
        for number in other.flow.poll(now) {
            other.count.sent += 1;
            match self.pass(now, PACKET) {
                Some(at) => other.coming.push_back((at + self.back, number)),
                None => other.count.lost += 1,
            }
        }
        self.other = Some(other);
    }
}

impl Link for Bottleneck {
    fn carry(&mut self, now: Duration, parcel: Parcel, arrivals: &mut Vec<Arrived>) {
        let (is_marked, stamped) = (None, None);
        if let Load::Feedback(..) = parcel.load {
            // A host that stalls sends nothing either.
            let sent = self.host.as_ref().map_or(now, |host| host.runs_from(now));
            let at = sent + self.back;
            if let Some(predictor) = &mut self.predictor {
                predictor.hears(at);
            }
            arrivals.push(Arrived { at, stamped, parcel, is_marked, is_dropped: false });
            return;
        }
        let Some(came) = self.pass(now, parcel.bytes) else { return };
        let Some(host) = &mut self.host else {
            arrivals.push(Arrived { at: came, stamped, parcel, is_marked, is_dropped: false });
            return;
        };
        let read = host.take(came, parcel.bytes);
        // What is dropped raises the count that the next packet to enter the socket carries: it is read behind those that are there.
        let at = read.unwrap_or_else(|| host.last_read().max(came));
        arrivals.push(Arrived { at, stamped: Some(came), parcel, is_marked, is_dropped: read.is_none() });
    }

    fn held_until(&mut self, now: Duration, _flow: usize) -> Option<Duration> {
        match self.hold {
            Hold::Never => None,
            Hold::Predicted => self.predictor.as_mut()?.holds(now),
            // Both directions take as long.
            Hold::Known => Some(now + known(self.host.as_ref()?, now + self.back)?),
        }
    }

    fn next_at(&self) -> Option<Duration> {
        self.other.as_ref().map(Other::next_at)
    }

    fn pop(&mut self, now: Duration) -> Option<Arrived> {
        self.step(now);
        None
    }
}

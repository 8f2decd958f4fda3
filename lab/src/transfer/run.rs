//! Flows over one path in virtual time, and their results second by second.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_sim::{LinkDirection, LinkSpec, PacketFate, PacketLoss, Queue};
use barograph_transfer::testkit::controller::{ControllerConfig, ControllerKind};
use barograph_transfer::testkit::pair::{
    DatagramArrival, DatagramContent, EmulatedDatagram, FlowConfig, Link, Pair, ReceivingEnd,
};
use barograph_transfer::testkit::wire::{Feedback, GapReport, Totals};
use barograph_transfer::testkit::{Arrival, Cubic, Receiver, ReceiverConfig, Sender, SenderConfig};

use super::host::{Hold, Host, Predictor, known};
use crate::evidence::LossEvidence;
use crate::jobs;
use crate::stats::jain;

/// Delay that a receiver reports which claims that its host lost what the network lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It hides the delay before the gap.
    Hides,
    /// It reports a delay of 0, which shows no queue.
    Forges,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ours {
    pub(crate) kind: ControllerKind,
    pub(crate) start_s: u64,
    pub(crate) evidence: LossEvidence,
    pub(crate) lie: Option<Lie>,
}

impl Ours {
    pub(crate) fn new(kind: ControllerKind) -> Self {
        Self { kind, start_s: 0, evidence: LossEvidence::Counter, lie: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) path: SimPath,
    pub(crate) flows: Vec<Ours>,
    pub(crate) seconds: u64,
}

/// Progress of one flow so far.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    acked_bytes: u64,
    sent: u64,
    lost: u64,
    dropped: u64,
}

/// Progress of all flows at a whole second.
#[derive(Clone, Debug)]
struct Second {
    flows: Vec<Mark>,
    cubic: Count,
    waits: u64,
    waited_s: f64,
    lost: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct RunSamples {
    seconds: Vec<Second>,
}

impl RunSamples {
    fn between<T>(&self, from_s: u64, to_s: u64, of: impl Fn(&Second) -> T) -> (T, T) {
        let at = |second: u64| (second as usize).min(self.seconds.len() - 1);
        (of(&self.seconds[at(from_s)]), of(&self.seconds[at(to_s)]))
    }

    /// New bytes that arrived of a flow, with headers, per second.
    pub(crate) fn bytes_s(&self, flow: usize, from_s: u64, to_s: u64) -> f64 {
        let (before, after) = self.between(from_s, to_s, |second| second.flows[flow].acked_bytes);
        let packets = (after - before) as f64 / f64::from(PACKET - OVERHEAD);
        packets * f64::from(PACKET) / (to_s - from_s) as f64
    }

    pub(crate) fn lost(&self, flow: usize, from_s: u64, to_s: u64) -> f64 {
        let (before, after) = self.between(from_s, to_s, |second| second.flows[flow]);
        after.lost.saturating_sub(before.lost) as f64 / (after.sent - before.sent).max(1) as f64
    }

    /// Share of a flow's packets that the receiver's host dropped.
    pub(crate) fn dropped(&self, flow: usize, from_s: u64, to_s: u64) -> f64 {
        let (before, after) = self.between(from_s, to_s, |second| second.flows[flow]);
        (after.dropped - before.dropped) as f64 / (after.sent - before.sent).max(1) as f64
    }

    /// Bytes a second of the cubic flow, and the share of its packets that were lost.
    pub(crate) fn cubic(&self, from_s: u64, to_s: u64) -> (f64, f64) {
        let (before, after) = self.between(from_s, to_s, |second| second.cubic);
        let bytes = (after.came - before.came) as f64 * f64::from(PACKET);
        let lost = (after.lost - before.lost) as f64 / (after.sent - before.sent).max(1) as f64;
        (bytes / (to_s - from_s) as f64, lost)
    }

    /// Mean time of a packet in the queue (ms).
    pub(crate) fn queue_ms(&self, from_s: u64, to_s: u64) -> f64 {
        let (before, after) = self.between(from_s, to_s, |second| (second.waited_s, second.waits));
        1e3 * (after.0 - before.0) / (after.1 - before.1).max(1) as f64
    }

    /// Share of the packets of all flows that the bottleneck lost.
    pub(crate) fn bottleneck_loss(&self, from_s: u64, to_s: u64) -> f64 {
        let (before, after) = self.between(from_s, to_s, |second| (second.lost, second.waits));
        (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64
    }

    pub(crate) fn jain(&self, from_s: u64, to_s: u64) -> f64 {
        let count = self.seconds.first().map_or(0, |second| second.flows.len());
        let rates: Vec<f64> = (0..count).map(|flow| self.bytes_s(flow, from_s, to_s)).collect();
        jain(&rates)
    }
}

impl Case {
    pub(crate) fn go(&self) -> anyhow::Result<RunSamples> {
        let seconds = self.observe(Duration::from_secs(1), sample)?;
        Ok(RunSamples { seconds })
    }

    /// Results of `observe` on the first flow's sender, at the start and after each `step`.
    pub(crate) fn trace<T>(
        &self,
        step: Duration,
        mut observe: impl FnMut(Duration, &Sender) -> T,
    ) -> anyhow::Result<Vec<T>> {
        let samples =
            self.observe(step, |pair| Some(observe(pair.now(), &pair.flows().first()?.flow.sender)))?;
        Ok(samples.into_iter().flatten().collect())
    }

    /// Runs the flows; returns the results of `observe` at the start and after each `step`.
    fn observe<T>(&self, step: Duration, mut observe: impl FnMut(&Flows) -> T) -> anyhow::Result<Vec<T>> {
        let mut pair = Pair::new(self.path.link()?);
        for (number, ours) in self.flows.iter().enumerate() {
            pair.add(self.flow(number as u64, *ours)?);
        }
        if self.flows.is_empty() {
            // The pair needs a flow to run, so this one never starts.
            pair.add(
                self.flow(0, Ours { start_s: u64::from(u32::MAX), ..Ours::new(ControllerKind::Fixed) })?,
            );
        }
        let (mut samples, mut at) = (vec![observe(&pair)], step);
        while at <= Duration::from_secs(self.seconds) {
            pair.run(at, u64::MAX);
            samples.push(observe(&pair));
            at += step;
        }
        for running in pair.flows() {
            if let Some(violation) = &running.violation {
                anyhow::bail!("a flow violated the protocol: {violation}");
            }
        }
        Ok(samples)
    }

    fn flow(&self, number: u64, ours: Ours) -> anyhow::Result<FlowConfig<Box<dyn ReceivingEnd>>> {
        let seed = self.path.seed.wrapping_mul(16).wrapping_add(number);
        let payload_bytes = PACKET - OVERHEAD;
        let given =
            ControllerConfig { rate_bytes_s: GIVEN * self.path.bytes_s(), packet_bytes: PACKET, seed };
        let config = SenderConfig {
            payload_bytes,
            overhead_bytes: OVERHEAD,
            seed,
            classification: ours.evidence.classification(),
        };
        let sender = Sender::new(config, OBJECT_BYTES, &Default::default(), ours.kind.controller(given))?;
        let config = ReceiverConfig { feedback_bytes_max: 1400 };
        let receiver = Receiver::new(config, OBJECT_BYTES, Default::default())?;
        let receiver: Box<dyn ReceivingEnd> = match ours.lie {
            Some(lie) => Box::new(MisattributingReceiver { receiver, lie }),
            None => Box::new(receiver),
        };
        let start = Duration::from_secs(ours.start_s);
        Ok(FlowConfig {
            start,
            sender,
            receiver,
            overhead_bytes: OVERHEAD,
            has_drops: ours.evidence.has_counter(),
        })
    }
}

/// More than is sent in any run.
const OBJECT_BYTES: u64 = 1 << 44;

/// Share of the bottleneck that `fixed` sends, and at which the paper's controllers begin.
pub(crate) const GIVEN: f64 = 0.95;

/// Flows of a run, with their link.
type Flows = Pair<Bottleneck, Box<dyn ReceivingEnd>>;

fn sample(pair: &Flows) -> Second {
    let flows = pair.flows().iter().map(|running| {
        let stats = running.flow.sender.stats();
        Mark {
            acked_bytes: stats.acked_bytes,
            sent: stats.sent_packets,
            lost: stats.lost_packets - stats.spurious_packets.min(stats.lost_packets),
            dropped: u64::from(running.drops),
        }
    });
    let link = &pair.link;
    Second {
        flows: flows.collect(),
        cubic: link.cubic(),
        waits: link.waits,
        waited_s: link.waited_s,
        lost: link.lost,
    }
}

/// A receiver that attributes every loss to its host and claims to read 10 Gbit/s.
#[derive(Debug)]
struct MisattributingReceiver {
    receiver: Receiver,
    lie: Lie,
}

impl ReceivingEnd for MisattributingReceiver {
    fn take(&mut self, arrival: &Arrival) {
        self.receiver.take(arrival);
    }

    fn report(&mut self, now: Duration) -> Option<Feedback> {
        let mut feedback = self.receiver.report(now)?;
        let delay_us = (self.lie == Lie::Forges).then_some(0);
        for run in feedback.runs.iter_mut().filter(|run| run.missing > 0) {
            run.evidence = GapReport { host_drops: Some(true), is_marked: None, delay_us };
        }
        feedback.totals = Totals { drain_bytes_s: 1_250_000_000, ..feedback.totals };
        Some(feedback)
    }

    fn due(&self) -> Option<Duration> {
        self.receiver.due()
    }

    fn has_all(&self) -> bool {
        self.receiver.has_all()
    }
}

pub(crate) fn all(name: &str, cases: &[Case]) -> anyhow::Result<Vec<RunSamples>> {
    jobs::all(cases, |_| name.to_owned(), Case::go).into_iter().collect()
}

/// Bytes of a full packet including headers, as Ethernet carries.
pub(crate) const PACKET: u32 = 1500;

/// Bytes of IP, UDP, packet number and authentication tag.
pub(crate) const OVERHEAD: u32 = 60;

/// A path with the same delay in both directions and a bottleneck towards the receiver.
#[derive(Clone, Debug)]
pub(crate) struct SimPath {
    pub(crate) mbit_s: u64,
    pub(crate) rtt_ms: u64,
    /// Probability that a packet is lost after the queue.
    pub(crate) loss: f64,
    pub(crate) seed: u64,
    /// The receiver's host, if it is one that stalls.
    pub(crate) host: Option<Host>,
    /// One concurrent flow of RFC 9438, from the beginning.
    pub(crate) has_cubic: bool,
    pub(crate) hold: Hold,
}

impl SimPath {
    pub(crate) fn new(mbit_s: u64, rtt_ms: u64, seed: u64) -> Self {
        Self { mbit_s, rtt_ms, loss: 0.0, seed, host: None, has_cubic: false, hold: Hold::Never }
    }

    pub(crate) fn bytes_s(&self) -> f64 {
        self.mbit_s as f64 * 125_000.0
    }

    pub(crate) fn half(&self) -> Duration {
        Duration::from_millis(self.rtt_ms) / 2
    }

    /// Bytes of the queue: one product of rate and round trip, but room for a burst.
    fn queue_bytes(&self) -> u64 {
        (self.mbit_s * self.rtt_ms * 125).max(QUEUE_PACKETS_MIN * u64::from(PACKET))
    }

    pub(crate) fn link(&self) -> anyhow::Result<Bottleneck> {
        let there = LinkDirection::new(LinkSpec {
            rate_bps: Some(self.mbit_s * 1_000_000),
            delay: self.half(),
            loss: if self.loss > 0.0 { PacketLoss::Independent(self.loss) } else { PacketLoss::None },
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
            lost: 0,
        })
    }
}

/// The least room of a queue (packets).
const QUEUE_PACKETS_MIN: u64 = 32;

#[derive(Debug)]
pub(crate) struct Bottleneck {
    there: LinkDirection,
    bytes_s: f64,
    back: Duration,
    host: Option<Host>,
    other: Option<Other>,
    hold: Hold,
    predictor: Option<Predictor>,
    /// Packets that arrived at the queue, and the sum of their waiting times there.
    pub(crate) waits: u64,
    pub(crate) waited_s: f64,
    /// Packets that were lost at the queue or after it.
    pub(crate) lost: u64,
}

#[derive(Debug, Default)]
struct Other {
    flow: Cubic,
    coming: VecDeque<(Duration, u64)>,
    count: Count,
}

/// Packets of the cubic flow that were sent, lost and delivered.
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

/// RFC 6298 §2.4: the least retransmission timeout.
const SILENT: Duration = Duration::from_secs(1);

impl Bottleneck {
    pub(crate) fn cubic(&self) -> Count {
        self.other.as_ref().map_or(Count::default(), |other| other.count)
    }

    /// Time at which a packet arrives at the host; `None` if it is lost.
    fn pass(&mut self, now: Duration, bytes: u32) -> Option<Duration> {
        self.waits += 1;
        self.waited_s += self.there.backlog_bytes(now) as f64 / self.bytes_s;
        match self.there.send(now, bytes as usize) {
            PacketFate::Delivered { at } => Some(at),
            PacketFate::Lost | PacketFate::QueueFull => {
                self.lost += 1;
                None
            }
        }
    }

    /// Processes the next event of the cubic flow.
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
    fn carry(&mut self, now: Duration, datagram: EmulatedDatagram, arrivals: &mut Vec<DatagramArrival>) {
        let (is_marked, stamped) = (None, None);
        if let DatagramContent::Feedback(..) = datagram.content {
            // A host that stalls also sends nothing.
            let sent = self.host.as_ref().map_or(now, |host| host.runs_from(now));
            let at = sent + self.back;
            if let Some(predictor) = &mut self.predictor {
                predictor.hears(at);
            }
            arrivals.push(DatagramArrival { at, stamped, datagram, is_marked, is_dropped: false });
            return;
        }
        let Some(came) = self.pass(now, datagram.bytes) else { return };
        let Some(host) = &mut self.host else {
            arrivals.push(DatagramArrival { at: came, stamped, datagram, is_marked, is_dropped: false });
            return;
        };
        let read = host.take(came, datagram.bytes);
        // A dropped packet increases the counter that the next packet entering the socket carries,
        // which is read after those already there.
        let at = read.unwrap_or_else(|| host.last_read().max(came));
        arrivals.push(DatagramArrival {
            at,
            stamped: Some(came),
            datagram,
            is_marked,
            is_dropped: read.is_none(),
        });
    }

    fn held_until(&mut self, now: Duration, _flow: usize) -> Option<Duration> {
        match self.hold {
            Hold::Never => None,
            Hold::Predicted => self.predictor.as_mut()?.holds(now),
            // Both directions have the same delay.
            Hold::Known => Some(now + known(self.host.as_ref()?, now + self.back)?),
        }
    }

    fn next_at(&self) -> Option<Duration> {
        self.other.as_ref().map(Other::next_at)
    }

    fn pop(&mut self, now: Duration) -> Option<DatagramArrival> {
        self.step(now);
        None
    }
}

//! Helpers for tests: a link of two models, a receiver that records packets, and a controller with
//! a fixed rate.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses some of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use barograph_sim::{LinkDirection, LinkSpec, PacketFate, SeededRng};
use barograph_transfer::controller::FeedbackSample;
use barograph_transfer::testkit::pair::{
    DatagramArrival, DatagramContent, EmulatedDatagram, FlowConfig, Link, ReceivingEnd,
};
use barograph_transfer::testkit::wire::{AckRange, Feedback, GapReport, TimestampEcho, Totals};
use barograph_transfer::testkit::{Arrival, Controller, LossClassification, Sender, SenderConfig};
use rangemap::RangeSet;

pub const MS: Duration = Duration::from_millis(1);
pub const OVERHEAD: u32 = 60;

/// A link with two directions. The link may carry a packet twice, and the receiving host may drop a
/// packet.
#[derive(Debug)]
pub struct Line {
    pub there: LinkDirection,
    pub back: LinkDirection,
    rng: SeededRng,
    pub twice: f64,
    /// (stall, period): the receiving host drops packets that arrive in the first `stall` of each
    /// `period`.
    pub stall: Option<(Duration, Duration)>,
    /// (from, to): the link loses every packet that is sent in this time.
    pub outage: Option<(Duration, Duration)>,
    pub numbers: BTreeSet<u64>,
    pub is_repeated: bool,
    pub lost: u64,
}

impl Line {
    pub fn new(there: LinkSpec, back: LinkSpec) -> Self {
        let rng = SeededRng::new(there.seed, 77);
        Self {
            there: LinkDirection::new(there).unwrap(),
            back: LinkDirection::new(back).unwrap(),
            rng,
            twice: 0.0,
            stall: None,
            outage: None,
            numbers: BTreeSet::new(),
            is_repeated: false,
            lost: 0,
        }
    }
}

impl Link for Line {
    fn carry(&mut self, now: Duration, datagram: EmulatedDatagram, arrivals: &mut Vec<DatagramArrival>) {
        let model = match &datagram.content {
            DatagramContent::Data(packet) => {
                self.is_repeated |= !self.numbers.insert(packet.number);
                &mut self.there
            }
            DatagramContent::Feedback(..) => &mut self.back,
        };
        let fate = model.send(now, datagram.bytes as usize);
        let is_out = self.outage.is_some_and(|(from, to)| from <= now && now < to);
        let PacketFate::Delivered { at } = fate else {
            self.lost += 1;
            return;
        };
        if is_out {
            return;
        }
        let stalls =
            |(stall, period): (Duration, Duration)| at.as_nanos() % period.as_nanos() < stall.as_nanos();
        let is_dropped =
            matches!(datagram.content, DatagramContent::Data(_)) && self.stall.is_some_and(stalls);
        let arrived = DatagramArrival { at, stamped: None, datagram, is_marked: None, is_dropped };
        if self.rng.bernoulli(self.twice) {
            arrivals.push(DatagramArrival { at: at + MS, ..arrived.clone() });
        }
        arrivals.push(arrived);
    }
}

/// A link with one queue that all flows share. The return path only adds delay.
#[derive(Debug)]
pub struct Shared {
    pub queue: barograph_sim::QueueChain<EmulatedDatagram>,
    pub back: Duration,
}

impl Link for Shared {
    fn carry(&mut self, now: Duration, datagram: EmulatedDatagram, arrivals: &mut Vec<DatagramArrival>) {
        match datagram.content {
            DatagramContent::Data(_) => self.queue.push(now, datagram.bytes as usize, datagram),
            DatagramContent::Feedback(..) => {
                arrivals.push(DatagramArrival {
                    at: now + self.back,
                    stamped: None,
                    datagram,
                    is_marked: None,
                    is_dropped: false,
                });
            }
        }
    }

    fn next_at(&self) -> Option<Duration> {
        self.queue.next_at()
    }

    fn pop(&mut self, now: Duration) -> Option<DatagramArrival> {
        let (at, datagram) = self.queue.pop(now)?;
        Some(DatagramArrival { at, stamped: None, datagram, is_marked: None, is_dropped: false })
    }
}

/// A receiver that records the packets that arrive. The receiver reports these packets a quarter of
/// a round trip after the first unreported packet.
#[derive(Debug)]
pub struct Counter {
    pub object_bytes: u64,
    pub held: RangeSet<u64>,
    pub came: RangeSet<u64>,
    evidence: BTreeMap<u64, GapReport>,
    last_drops: Option<u32>,
    floor: u64,
    rtt: Duration,
    next: u64,
    last: Option<(u64, u32, Duration)>,
    totals: Totals,
    due: Option<Duration>,
    pending: Vec<Feedback>,
    pub runs_max: usize,
    /// The receiver's claim about every gap: whether the host dropped packets. With `None` the
    /// receiver reports the true evidence.
    pub claims: Option<bool>,
}

impl Counter {
    pub fn new(object_bytes: u64, held: RangeSet<u64>) -> Self {
        Self {
            object_bytes,
            held,
            came: RangeSet::new(),
            evidence: BTreeMap::new(),
            last_drops: None,
            floor: 0,
            rtt: 20 * MS,
            next: 0,
            last: None,
            totals: Totals::default(),
            due: None,
            pending: Vec::new(),
            runs_max: 200,
            claims: None,
        }
    }

    fn feedbacks(&mut self, now: Duration) -> Vec<Feedback> {
        self.evidence =
            self.evidence.split_off(&self.evidence.range(..=self.floor).next_back().map_or(0, |(at, _)| *at));
        let echo = self.last.map(|(number, sent_us, at)| TimestampEcho {
            number,
            sent_us,
            held_us: (now - at).as_micros() as u32,
        });
        let totals = self.totals;
        let mut all = Vec::new();
        let mut feedback = Feedback { start: self.floor, runs: Vec::new(), echo, totals };
        let mut at = self.floor;
        let ranges: Vec<_> = self.came.iter().filter(|range| range.end > self.floor).cloned().collect();
        let gap = |from: u64, to: u64| {
            let evidence =
                self.evidence.range(..=from).next_back().map(|(_, known)| *known).unwrap_or_default();
            let host_drops = self.claims.or(evidence.host_drops);
            ((to - from) as u32, GapReport { host_drops, ..evidence })
        };
        for range in ranges {
            let start = range.start.max(self.floor);
            if at < start {
                let (missing, evidence) = gap(at, start);
                match feedback.runs.last_mut() {
                    Some(run) => (run.missing, run.evidence) = (missing, evidence),
                    None => feedback.runs.push(AckRange { received: 0, missing, evidence }),
                }
                if feedback.runs.len() >= self.runs_max {
                    let next = Feedback { start, runs: Vec::new(), echo, totals };
                    all.push(std::mem::replace(&mut feedback, next));
                }
            }
            feedback.runs.push(AckRange { received: (range.end - start) as u32, ..AckRange::default() });
            at = range.end;
        }
        all.push(feedback);
        all
    }
}

impl ReceivingEnd for Counter {
    fn take(&mut self, arrival: &Arrival) {
        self.totals.packets += 1;
        self.totals.bytes += arrival.range.end - arrival.range.start;
        self.totals.marked += u64::from(arrival.is_marked == Some(true));
        if let Some(note) = arrival.note {
            self.floor = self.floor.max(note.floor);
            if note.rtt_us > 0 {
                self.rtt = Duration::from_micros(note.rtt_us.into());
            }
        }
        assert!(arrival.range.end <= self.object_bytes && arrival.range.start < arrival.range.end);
        self.due = self.due.or(Some(arrival.at + (self.rtt / 4).max(MS / 2)));
        if self.came.contains(&arrival.number) || arrival.number < self.floor {
            return;
        }
        if self.next < arrival.number {
            let host_drops = arrival.drops.map(|drops| Some(drops) != self.last_drops.or(Some(0)));
            let evidence = GapReport { host_drops, is_marked: None, delay_us: None };
            self.evidence.insert(self.next, evidence);
        }
        self.next = self.next.max(arrival.number + 1);
        self.last_drops = arrival.drops;
        self.last = Some((arrival.number, arrival.sent_us, arrival.at));
        self.came.insert(arrival.number..arrival.number + 1);
        self.held.insert(arrival.range.clone());
    }

    fn report(&mut self, now: Duration) -> Option<Feedback> {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.pending = self.feedbacks(now);
            self.pending.reverse();
        }
        self.pending.pop()
    }

    fn due(&self) -> Option<Duration> {
        self.due
    }

    fn has_all(&self) -> bool {
        self.object_bytes == 0 || self.held.gaps(&(0..self.object_bytes)).next().is_none()
    }
}

/// A controller that records its input. Its rate and window are fixed: it never slows down.
#[derive(Debug, Default)]
pub struct RecordingController {
    pub rate: f64,
    pub window: u64,
    pub input: std::sync::Arc<std::sync::Mutex<RecordedInput>>,
}

/// The input that a controller received so far.
#[derive(Clone, Debug, Default)]
pub struct RecordedInput {
    pub losses: Vec<barograph_transfer::controller::DetectedLossRun>,
    pub host_lost: u64,
    pub taken_back: u64,
    pub acked_packets: u64,
    pub accounted: u64,
    pub rates: Vec<f64>,
    pub in_flight_max: u64,
    pub silences: Vec<Duration>,
    pub rounds: u64,
}

impl Controller for RecordingController {
    fn on_feedback(&mut self, _: Duration, seen: &FeedbackSample<'_>) {
        let mut input = self.input.lock().unwrap();
        for run in seen.taken_back {
            input.accounted -= u64::from(run.packets);
            input.taken_back += u64::from(run.packets);
        }
        assert!(input.accounted <= seen.accounted_packets, "the count falls only by what is taken back");
        assert!(input.rounds <= seen.round);
        for loss in seen.losses {
            let end = input.losses.last().map_or(0, |last| last.at + u64::from(last.packets));
            let end = end.saturating_sub(input.taken_back);
            assert!(end <= loss.at && loss.packets > 0, "{loss:?} after {end}");
        }
        input.losses.extend(seen.losses);
        input.host_lost += seen.host_lost_packets;
        input.acked_packets += seen.acked_packets;
        input.accounted = seen.accounted_packets;
        input.rounds = seen.round;
        input.in_flight_max = input.in_flight_max.max(seen.in_flight_bytes);
        input.rates.extend(
            seen.delivery.filter(|delivery| !delivery.is_app_limited).map(|delivery| delivery.bytes_s),
        );
    }

    fn on_no_feedback(&mut self, now: Duration) {
        self.input.lock().unwrap().silences.push(now);
    }

    fn rate_bytes_s(&self) -> f64 {
        self.rate
    }

    fn window_bytes(&self) -> u64 {
        self.window
    }
}

pub fn flow<T: ReceivingEnd>(
    config: SenderConfig,
    object_bytes: u64,
    controller: impl Controller + 'static,
    receiver: T,
) -> FlowConfig<T> {
    let sender = Sender::new(config, object_bytes, &RangeSet::new(), Box::new(controller)).unwrap();
    FlowConfig { start: Duration::ZERO, sender, receiver, overhead_bytes: OVERHEAD, has_drops: true }
}

pub fn config(seed: u64) -> SenderConfig {
    SenderConfig {
        payload_bytes: 1200,
        overhead_bytes: OVERHEAD,
        seed,
        classification: LossClassification::Default,
    }
}

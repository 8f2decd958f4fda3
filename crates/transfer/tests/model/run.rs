//! Flows over one bottleneck in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use barograph_transfer::testkit::Cubic;
use barograph_transfer::testkit::controller::model::ModelController;

use crate::ours::{Ours, PACKET};
use crate::path::{Bottleneck, Path};

const BIN: Duration = Duration::from_millis(100);

pub(crate) enum Flow {
    Ours(Box<Ours>),
    Cubic(Box<Cubic>),
}

/// Results of a run. `delivered` (bytes), `sent` and `lost` (packets) are counted for each flow and
/// each tenth of a second. `backlog` is the number of bytes in the queue at each hundredth of a
/// second.
pub(crate) struct RunResult {
    pub(crate) delivered: Vec<Vec<u64>>,
    pub(crate) sent: Vec<Vec<u64>>,
    pub(crate) lost: Vec<Vec<u64>>,
    pub(crate) backlog: Vec<u64>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    Report(usize),
    Hear(usize),
    Acknowledge(usize, u64),
    Look,
}

pub(crate) struct Run {
    path: Path,
    bottleneck: Bottleneck,
    flows: Vec<(Duration, Flow)>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    order: u64,
    /// Time of the next `Send` event of each flow.
    due: Vec<Option<Duration>>,
    outcome: RunResult,
}

impl Run {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.clone(),
            bottleneck: Bottleneck::new(path),
            flows: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            due: Vec::new(),
            outcome: RunResult { delivered: vec![], sent: vec![], lost: vec![], backlog: vec![] },
        }
    }

    pub(crate) fn ours(self, start_s: f64) -> Self {
        self.ours_with(start_s, |_| {})
    }

    pub(crate) fn ours_with(mut self, start_s: f64, set: impl Fn(&mut Ours)) -> Self {
        let start = Duration::from_secs_f64(start_s);
        let seed = self.path.seed * 16 + self.flows.len() as u64;
        let mut ours = Ours::new(Box::new(ModelController::new(PACKET, seed)), start);
        set(&mut ours);
        self.flows.push((start, Flow::Ours(Box::new(ours))));
        self
    }

    pub(crate) fn cubic(mut self, start_s: f64) -> Self {
        self.flows.push((Duration::from_secs_f64(start_s), Flow::Cubic(Box::default())));
        self
    }

    /// Runs all flows for this number of seconds.
    pub(crate) fn go(mut self, seconds: f64) -> RunResult {
        let end = Duration::from_secs_f64(seconds);
        let bins = end.as_nanos().div_ceil(BIN.as_nanos()) as usize + 1;
        for flow in 0..self.flows.len() {
            let start = self.flows[flow].0;
            self.due.push(Some(start));
            self.plan(start, Event::Send(flow));
            if matches!(self.flows[flow].1, Flow::Ours(_)) {
                self.plan(start, Event::Report(flow));
            }
            for series in [&mut self.outcome.delivered, &mut self.outcome.sent, &mut self.outcome.lost] {
                series.push(vec![0; bins]);
            }
        }
        self.plan(Duration::ZERO, Event::Look);
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > end {
                break;
            }
            self.step(now, event);
        }
        self.outcome
    }

    fn plan(&mut self, at: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn step(&mut self, now: Duration, event: Event) {
        match event {
            Event::Look => {
                self.outcome.backlog.push(self.bottleneck.backlog_bytes(now));
                self.plan(now + Duration::from_millis(10), Event::Look);
                for flow in 0..self.flows.len() {
                    let silent =
                        |cubic: &Cubic| now > cubic.heard_at.max(self.flows[flow].0) + Duration::from_secs(1);
                    if matches!(&self.flows[flow].1, Flow::Cubic(cubic) if silent(cubic)) {
                        if let Flow::Cubic(cubic) = &mut self.flows[flow].1 {
                            cubic.time_out(now);
                        }
                        self.send(now, flow);
                    }
                }
            }
            Event::Send(flow) => {
                // Feedback may have changed the time of the next send: ignore an outdated event.
                if self.due[flow] == Some(now) {
                    self.due[flow] = None;
                    self.send(now, flow);
                }
            }
            Event::Report(flow) => {
                if let Flow::Ours(ours) = &mut self.flows[flow].1 {
                    let (bytes, next) = ours.report(now);
                    self.outcome.delivered[flow][bin(now)] += bytes;
                    self.plan(next, Event::Report(flow));
                    self.plan(now + self.path.rtt / 2, Event::Hear(flow));
                }
            }
            Event::Hear(flow) => {
                if let Flow::Ours(ours) = &mut self.flows[flow].1 {
                    let before = ours.lost_packets;
                    ours.hear(now);
                    self.outcome.lost[flow][bin(now)] += ours.lost_packets - before;
                }
                self.send(now, flow);
            }
            Event::Acknowledge(flow, number) => {
                self.outcome.delivered[flow][bin(now)] += u64::from(PACKET);
                if let Flow::Cubic(cubic) = &mut self.flows[flow].1 {
                    cubic.acknowledge(now, number);
                }
                self.send(now, flow);
            }
        }
    }

    fn send(&mut self, now: Duration, flow: usize) {
        let (numbers, next) = match &mut self.flows[flow].1 {
            Flow::Ours(ours) => ours.poll(now),
            Flow::Cubic(cubic) => (cubic.poll(now), None),
        };
        self.outcome.sent[flow][bin(now)] += numbers.len() as u64;
        for number in numbers {
            let Some((at, is_marked)) = self.bottleneck.carry(now, PACKET) else { continue };
            match &mut self.flows[flow].1 {
                Flow::Ours(ours) => ours.arrive(at, number, is_marked),
                Flow::Cubic(_) => self.plan(at + self.path.rtt / 2, Event::Acknowledge(flow, number)),
            }
        }
        if let Some(next) = next
            && self.due[flow] != Some(next)
        {
            self.due[flow] = Some(next);
            self.plan(next, Event::Send(flow));
        }
    }
}

impl RunResult {
    /// Bits a second that a flow delivered from `from_s` to `to_s`.
    pub(crate) fn bps(&self, flow: usize, from_s: f64, to_s: f64) -> f64 {
        sum(&self.delivered[flow], from_s, to_s) * 8.0 / (to_s - from_s)
    }

    /// Share of the sent packets that were lost.
    pub(crate) fn loss(&self, flow: usize, from_s: f64, to_s: f64) -> f64 {
        sum(&self.lost[flow], from_s, to_s) / sum(&self.sent[flow], from_s, to_s)
    }

    /// Mean number of bytes in the queue.
    pub(crate) fn queue_bytes(&self, from_s: f64, to_s: f64) -> f64 {
        let part = &self.backlog[(from_s * 100.0) as usize..(to_s * 100.0) as usize];
        part.iter().sum::<u64>() as f64 / part.len() as f64
    }

    /// Jain's index of all flows: (Σx)² ÷ (n Σx²).
    pub(crate) fn jain(&self, from_s: f64, to_s: f64) -> f64 {
        let rates: Vec<f64> = (0..self.delivered.len()).map(|flow| self.bps(flow, from_s, to_s)).collect();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares)
    }
}

fn bin(now: Duration) -> usize {
    (now.as_nanos() / BIN.as_nanos()) as usize
}

fn sum(bins: &[u64], from_s: f64, to_s: f64) -> f64 {
    bins[(from_s * 10.0).round() as usize..(to_s * 10.0).round() as usize].iter().sum::<u64>() as f64
}

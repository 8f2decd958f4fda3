//! A path with a fixed round-trip time, which loses every n-th packet or random packets, and a host
//! with a limited drain rate.

use std::collections::VecDeque;
use std::time::Duration;

use barograph_sim::SeededRng;

use crate::proto::Rtt;
use crate::proto::controller::{Controller, Delivery, DetectedLossRun, FeedbackSample};

pub(super) const PACKET_BYTES: u32 = 1472;
pub(super) const RTT_MS: f64 = 10.0;

/// Time between two feedbacks: a quarter of a round trip.
const STEP: Duration = Duration::from_micros(2500);
const STEPS: usize = 4;

/// Number of steps in a tenth of a second.
const TOLD_STEPS: usize = 40;

/// Capacity of the test path (packets a step), so that slow start ends.
const STEP_PACKETS_MAX: f64 = 25_000.0;

#[derive(Clone, Copy, Debug)]
pub(super) enum Losses {
    None,
    /// Every n-th packet is lost; n is this number.
    Each(u64),
    /// Each packet is lost with this chance; the second value is the seed.
    Chance(f64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// Drain rate while the host is scheduled.
    pub(super) drain_bytes_s: f64,
    pub(super) buffer_bytes: f64,
    /// Whether the host reports its drain rate. The reported rate is the mean of a tenth of a
    /// second.
    pub(super) is_told: bool,
    /// (n, m): the host runs only in the first n of each m steps.
    pub(super) scheduled: (u32, u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) losses: Losses,
    pub(super) host: Option<Host>,
}

/// Packets of one step that are in flight.
#[derive(Clone, Copy)]
struct Flight {
    sent: Duration,
    packets: u64,
    prior_acked: u64,
}

pub(super) struct State {
    pub(super) path: Path,
    pub(super) now: Duration,
    pub(super) sent: u64,
    pub(super) acked: u64,
    pub(super) host_lost: u64,
    /// Number of packets that were acknowledged, or lost by the network.
    pub(super) accounted: u64,
    flights: VecDeque<Flight>,
    /// Packets acknowledged in the last steps.
    recent: VecDeque<u64>,
    /// Fraction of a packet that remains to be sent in the next step.
    carry: f64,
    buffer: f64,
    /// Packets read in the last steps; and the fraction of a packet that the host could have read
    /// in addition.
    reads: VecDeque<u64>,
    unread: f64,
    step: u32,
    network_lost: u64,
    next_loss: u64,
    passed: u64,
    rng: SeededRng,
}

impl State {
    pub(super) fn new(path: Path) -> Self {
        let seed = if let Losses::Chance(_, seed) = path.losses { seed } else { 0 };
        let mut state = Self {
            path,
            now: Duration::from_secs(1),
            sent: 0,
            acked: 0,
            host_lost: 0,
            accounted: 0,
            flights: VecDeque::new(),
            recent: VecDeque::new(),
            carry: 0.0,
            buffer: 0.0,
            reads: VecDeque::new(),
            unread: 0.0,
            step: 0,
            network_lost: 0,
            next_loss: 0,
            passed: 0,
            rng: SeededRng::new(seed, 0),
        };
        state.next_loss = state.gap();
        state
    }

    pub(super) fn run(&mut self, controller: &mut dyn Controller, round_trips: u32) {
        for _ in 0..round_trips as usize * STEPS {
            self.send(controller);
            self.now += STEP;
            if self.flights.len() >= STEPS {
                self.arrive(controller);
            }
        }
    }

    pub(super) fn delivered_bytes_s(&self) -> f64 {
        let packets: u64 = self.recent.iter().sum();
        packets as f64 * f64::from(PACKET_BYTES) / (RTT_MS * 1e-3)
    }

    /// Gives the controller feedback with only this loss.
    pub(super) fn lose(&self, controller: &mut dyn Controller, loss: DetectedLossRun) {
        controller.on_feedback(self.now, &FeedbackSample { losses: &[loss], ..self.seen() });
    }

    /// Gives the controller feedback with only a mark.
    pub(super) fn mark(&self, controller: &mut dyn Controller) {
        controller.on_feedback(self.now, &FeedbackSample { marked_packets: 1, ..self.seen() });
    }

    fn send(&mut self, controller: &dyn Controller) {
        let packet = f64::from(PACKET_BYTES);
        let in_flight = self.sent - self.acked - self.host_lost - self.network_lost;
        let room = (controller.window_bytes() as f64 / packet - in_flight as f64).max(0.0);
        let due =
            (controller.rate_bytes_s() * STEP.as_secs_f64() / packet + self.carry).min(STEP_PACKETS_MAX);
        let packets = due.min(room.floor());
        self.carry = (due - packets.floor()).min(1.0);
        let packets = packets as u64;
        self.sent += packets;
        self.flights.push_back(Flight { sent: self.now, packets, prior_acked: self.acked });
    }

    fn arrive(&mut self, controller: &mut dyn Controller) {
        let Some(flight) = self.flights.pop_front() else { return };
        let spacing = STEP.as_secs_f64() / flight.packets.max(1) as f64;
        let end = self.passed + flight.packets;
        let mut losses = Vec::new();
        while self.next_loss < end {
            let place = self.next_loss - self.passed;
            let sent = flight.sent + Duration::from_secs_f64(spacing * place as f64);
            losses.push(loss(self.accounted + place, 1, sent));
            self.next_loss += 1 + self.gap();
        }
        self.passed = end;
        self.network_lost += losses.len() as u64;
        let came = flight.packets - losses.len() as u64;
        let (acked, host_lost) = self.read(came);
        self.acked += acked;
        self.host_lost += host_lost;
        self.accounted += acked + losses.len() as u64;
        self.recent.push_back(acked);
        if self.recent.len() > STEPS {
            self.recent.pop_front();
        }
        let is_told = self.path.host.is_some_and(|host| host.is_told) && self.reads.len() == TOLD_STEPS;
        let read: u64 = self.reads.iter().sum();
        let told = read as f64 * f64::from(PACKET_BYTES) / (TOLD_STEPS as f64 * STEP.as_secs_f64());
        let delivery = (acked > 0).then(|| Delivery {
            bytes_s: self.delivered_bytes_s(),
            prior_delivered_bytes: flight.prior_acked * u64::from(PACKET_BYTES),
            delivered_bytes: self.acked * u64::from(PACKET_BYTES),
            in_flight_bytes: 0,
            is_app_limited: false,
        });
        let seen = FeedbackSample {
            acked_packets: acked,
            acked_bytes: acked * u64::from(PACKET_BYTES),
            delivery,
            losses: &losses,
            host_lost_packets: host_lost,
            drain_bytes_s: if is_told { told as u64 } else { 0 },
            ..self.seen()
        };
        controller.on_feedback(self.now, &seen);
    }

    /// Packets that the host reads in this step, and packets dropped because its buffer was full.
    fn read(&mut self, came: u64) -> (u64, u64) {
        let Some(host) = self.path.host else {
            let kept = std::mem::take(&mut self.buffer);
            return (came + kept as u64, 0);
        };
        let packet = f64::from(PACKET_BYTES);
        self.step += 1;
        let (run, period) = host.scheduled;
        let is_scheduled = self.step % period < run;
        let drained = if is_scheduled { host.drain_bytes_s * STEP.as_secs_f64() / packet } else { 0.0 };
        let full = self.buffer + came as f64;
        let read = full.min(drained + self.unread).floor();
        self.unread = (drained + self.unread - read).min(1.0);
        let lost = (full - read - host.buffer_bytes / packet).max(0.0).floor();
        self.buffer = full - read - lost;
        self.reads.push_back(read as u64);
        if self.reads.len() > TOLD_STEPS {
            self.reads.pop_front();
        }
        (read as u64, lost as u64)
    }

    fn seen(&self) -> FeedbackSample<'static> {
        let rtt = rtt(STEP * STEPS as u32);
        FeedbackSample {
            rtt,
            round_trip: rtt.latest,
            accounted_packets: self.accounted,
            packet_bytes: PACKET_BYTES,
            ..FeedbackSample::default()
        }
    }

    /// Number of packets that arrive before the next loss.
    fn gap(&mut self) -> u64 {
        match self.path.losses {
            Losses::None => u64::MAX / 2,
            Losses::Each(packets) => packets - 1,
            // A geometrically distributed number.
            Losses::Chance(rate, _) => self.rng.exponential(-1.0 / (-rate).ln_1p()) as u64,
        }
    }
}

pub(super) fn rtt(time: Duration) -> Rtt {
    Rtt { latest: Some(time), smoothed: time, variation: Duration::ZERO, min: time }
}

pub(super) fn loss(at: u64, packets: u32, sent: Duration) -> DetectedLossRun {
    DetectedLossRun {
        at,
        packets,
        bytes: u64::from(packets) * u64::from(PACKET_BYTES),
        sent,
        in_flight_bytes: 0,
    }
}

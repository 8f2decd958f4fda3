//! Cost of the loss classifier at 1 Gbit/s, beside the cost of everything else that a sender does.
//!
//! `cargo bench -p barograph-transfer --features io,testkit --bench classifier [-- SECONDS]` sends
//! packets of 1500 bytes at 1 Gbit/s of virtual time over a path of 20 ms. The receiver reports
//! neither drops nor marks, and delays without a queue, so only the pattern of losses names causes.
//! Times are CPU milliseconds in a second of virtual time:
//!
//! - *classifier*: all calls of a `LossAttributor` that receives the losses of this transfer.
//! - *protocol*: all calls of the `Sender`, its own classifier included.
//! - *packets*: sealing the packets and sending them in trains over loopback. No program reads the
//!   socket at the other end.
//!
//! The sender's CPU time is that of the protocol and of the packets. Of several rounds, the one
//! with the least time is shown, because other work on the machine can only make a round longer.

#![allow(clippy::unwrap_used)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use barograph_sim::SeededRng;
use barograph_transfer::LossClassification;
use barograph_transfer::controller::FeedbackSample;
use barograph_transfer::testkit::io::seal::{Sealer, Suite};
use barograph_transfer::testkit::io::socket::{Socket, SocketConfig, Train};
use barograph_transfer::testkit::wire::{self, DataHead, Feedback, GapReport, Header, PacketKind};
use barograph_transfer::testkit::{
    Arrival, AttributedLoss, Controller, LossAttributor, Packet, PathContext, Receiver, ReceiverConfig,
    Sender, SenderConfig, UnattributedLoss,
};
use rangemap::RangeSet;

/// Bytes of a datagram, which are 1500 with the headers of IPv4 and UDP.
const DATAGRAM: usize = 1472;
const PACKET_BYTES: u32 = 1500;
/// Rate of the sender: 1 Gbit/s, headers included.
const RATE_BYTES_S: f64 = 125e6;
const PACKETS_IN_S: usize = 83_333;
const ONE_WAY: Duration = Duration::from_millis(10);
/// Time between two calls of the sender. It is the length of a burst at this rate.
const TICK: Duration = Duration::from_micros(250);
const TICKS_IN_S: u32 = 4000;
/// Number of packets that the sender sends in a tick.
const BURST: u32 = 21;
const ROUNDS: usize = 5;
/// The receiver's report of each gap. Without a delay, most losses would be charged at once.
const EVIDENCE: GapReport = GapReport { host_drops: None, is_marked: None, delay_us: Some(20) };
/// The object never ends.
const OBJECT_BYTES: u64 = 1 << 50;

fn main() {
    let seconds = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(4).max(1);
    println!(
        "{:<32} {:>9} {:>10} {:>10} {:>10} {:>8} {:>10} {:>12}",
        "1 Gbit/s, ms a second",
        "windows/s",
        "classifier",
        "protocol",
        "packets",
        "% core",
        "% sender",
        "% protocol"
    );
    let packets = PACKETS_IN_S * (seconds as usize + 1);
    for (name, lost) in [
        ("1 in 1000 lost", random(packets, 1e-3)),
        ("1 in 100 lost", random(packets, 1e-2)),
        ("1 in 20 lost", random(packets, 5e-2)),
        ("stalls of 300, 10 a second", stalls(packets, PACKETS_IN_S / 10, 300)),
        ("stalls of 60, 100 a second", stalls(packets, PACKETS_IN_S / 100, 60)),
        ("stalls of 300, and 1 in 1000", {
            let both = random(packets, 1e-3).into_iter().zip(stalls(packets, PACKETS_IN_S / 10, 300));
            both.map(|(one, other)| one | other).collect()
        }),
    ] {
        let rounds = (0..ROUNDS).map(|_| Transfer::new(&lost).run(seconds));
        print(name, seconds, &rounds.min_by_key(Cost::sender).unwrap());
    }
}

fn random(packets: usize, rate: f64) -> Vec<bool> {
    let mut rng = SeededRng::new(1, 0);
    (0..packets).map(|_| rng.bernoulli(rate)).collect()
}

/// Loses the first `lost` packets of every `every` packets, the first ones excepted.
fn stalls(packets: usize, every: usize, lost: usize) -> Vec<bool> {
    (0..packets).map(|index| index >= every && index % every < lost).collect()
}

/// CPU times of a transfer.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    classifier: Duration,
    protocol: Duration,
    packets: Duration,
    /// Number of windows that were classified.
    windows: u64,
}

impl Cost {
    fn sender(&self) -> Duration {
        self.protocol + self.packets
    }
}

fn print(name: &str, seconds: u32, cost: &Cost) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(seconds);
    let share = |whole: Duration| 100.0 * cost.classifier.as_secs_f64() / whole.as_secs_f64();
    println!(
        "{name:<32} {:>9.0} {:>10.3} {:>10.1} {:>10.1} {:>8.4} {:>10.3} {:>12.2}",
        cost.windows as f64 / f64::from(seconds),
        ms(cost.classifier),
        ms(cost.protocol),
        ms(cost.packets),
        share(Duration::from_secs(seconds.into())),
        share(cost.sender()),
        share(cost.protocol),
    );
}

/// Sends at 1 Gbit/s, whatever is lost.
#[derive(Debug)]
struct Steady;

impl Controller for Steady {
    fn on_feedback(&mut self, _: Duration, _: &FeedbackSample<'_>) {}

    fn on_no_feedback(&mut self, _: Duration) {}

    fn rate_bytes_s(&self) -> f64 {
        RATE_BYTES_S
    }

    fn window_bytes(&self) -> u64 {
        1 << 30
    }
}

/// A feedback on its way to the sender.
struct Returning {
    at: Duration,
    number: u64,
    feedback: Feedback,
    /// Number of packets that were sent before the receiver wrote this feedback and that did not
    /// travel any more.
    covered: u64,
}

/// A transfer in virtual time, and a second classifier that sees the same losses.
struct Transfer<'a> {
    /// For each packet in the order of sending, whether it is lost.
    lost: &'a [bool],
    now: Duration,
    sender: Sender,
    receiver: Receiver,
    outbox: Outbox,
    attributor: LossAttributor,
    /// Buffer for the causes that the second classifier reports, as a sender has one.
    attributed: Vec<AttributedLoss>,
    /// Lost runs that the second classifier does not have yet: first index, packets, sending time.
    missing: VecDeque<(u64, u32, Duration)>,
    sent: u64,
    arriving: VecDeque<(Duration, Packet)>,
    returning: VecDeque<Returning>,
    feedbacks: u64,
    cost: Cost,
}

impl<'a> Transfer<'a> {
    fn new(lost: &'a [bool]) -> Self {
        let outbox = Outbox::new();
        let payload_bytes = outbox.payload_bytes();
        let config = SenderConfig {
            payload_bytes,
            overhead_bytes: PACKET_BYTES - payload_bytes,
            seed: 1,
            classification: LossClassification::Pattern,
        };
        Self {
            lost,
            now: Duration::from_millis(1),
            sender: Sender::new(config, OBJECT_BYTES, &RangeSet::new(), Box::new(Steady)).unwrap(),
            receiver: Receiver::new(
                ReceiverConfig { feedback_bytes_max: 1400 },
                OBJECT_BYTES,
                RangeSet::new(),
            )
            .unwrap(),
            outbox,
            attributor: LossAttributor::for_classification(&LossClassification::Pattern).unwrap(),
            attributed: Vec::new(),
            missing: VecDeque::new(),
            sent: 0,
            arriving: VecDeque::new(),
            returning: VecDeque::new(),
            feedbacks: 0,
            cost: Cost::default(),
        }
    }

    /// Runs for a second until feedback is regular, and then for `seconds`, which are measured.
    fn run(mut self, seconds: u32) -> Cost {
        for tick in 0..(seconds + 1) * TICKS_IN_S {
            if tick == TICKS_IN_S {
                self.cost = Cost { windows: self.attributor.classifications(), ..Cost::default() };
            }
            self.now += TICK;
            self.send();
            self.receive();
            self.take_feedback();
            self.take_timeout();
        }
        let (ours, senders) = (self.attributor.classifications(), self.sender.classifier_runs());
        assert!(
            ours * 2 >= senders && senders * 2 >= ours,
            "both classify alike: {ours} and {senders} times"
        );
        self.cost.windows = ours - self.cost.windows;
        self.cost
    }

    fn send(&mut self) {
        let start = Instant::now();
        let mut packets = Vec::with_capacity(2 * BURST as usize);
        while let Some(packet) = self.sender.poll_packet(self.now) {
            packets.push(packet);
        }
        self.cost.protocol += start.elapsed();
        let start = Instant::now();
        self.outbox.send(&packets);
        self.cost.packets += start.elapsed();
        for packet in packets {
            if self.lost.get(self.sent as usize).copied().unwrap_or(false) {
                self.lose(self.sent);
            } else {
                self.arriving.push_back((self.now + ONE_WAY, packet));
            }
            self.sent += 1;
        }
    }

    fn lose(&mut self, index: u64) {
        match self.missing.back_mut() {
            Some((first, packets, _)) if *first + u64::from(*packets) == index => *packets += 1,
            _ => self.missing.push_back((index, 1, self.now)),
        }
    }

    fn receive(&mut self) {
        while let Some((at, packet)) = self.arriving.pop_front_if(|(at, _)| *at <= self.now) {
            let Packet { number, sent_us, range, note } = packet;
            let arrival = Arrival { number, sent_us, range, note, at, is_marked: None, drops: None };
            self.receiver.handle_data(&arrival).unwrap();
        }
        while let Some(mut feedback) = self.receiver.poll_feedback(self.now) {
            feedback.runs.iter_mut().for_each(|run| run.evidence = EVIDENCE);
            let travelling = ONE_WAY.as_micros() / TICK.as_micros();
            let covered = self.sent.saturating_sub(u64::from(BURST) * travelling as u64);
            let (at, number) = (self.now + ONE_WAY, self.feedbacks);
            self.returning.push_back(Returning { at, number, feedback, covered });
            self.feedbacks += 1;
        }
    }

    fn take_feedback(&mut self) {
        while let Some(returned) = self.returning.pop_front_if(|returned| returned.at <= self.now) {
            let start = Instant::now();
            self.sender.handle_feedback(self.now, returned.number, &returned.feedback).unwrap();
            self.cost.protocol += start.elapsed();
            self.classify(returned.covered);
        }
    }

    fn take_timeout(&mut self) {
        let start = Instant::now();
        if self.sender.poll_timeout().is_some_and(|at| at <= self.now) {
            self.sender.handle_timeout(self.now);
        }
        self.cost.protocol += start.elapsed();
    }

    /// Gives the second classifier the losses before the packet `covered`.
    fn classify(&mut self, covered: u64) {
        let context = PathContext { now: self.now, rtt: 2 * ONE_WAY, burst: BURST };
        self.attributed.clear();
        let start = Instant::now();
        while let Some((index, packets, sent)) =
            self.missing.pop_front_if(|(first, packets, _)| *first + u64::from(*packets) < covered)
        {
            let bytes = u64::from(packets * PACKET_BYTES);
            let evidence = EVIDENCE;
            let missing = UnattributedLoss { index, packets, bytes, sent, in_flight_bytes: 0, evidence };
            self.attributor.lose(context, missing, &mut self.attributed);
        }
        self.attributor.poll(context, covered, &mut self.attributed);
        self.cost.classifier += start.elapsed();
    }
}

/// Seals packets and sends them to a socket that no program reads.
struct Outbox {
    socket: Socket,
    sealer: Sealer,
    train: Vec<u8>,
    _unread: Socket,
}

impl Outbox {
    fn new() -> Self {
        let here = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let config = SocketConfig { buffer_bytes: 1 << 20, trains: true, ecn: true };
        let unread = Socket::bind(here, config).unwrap();
        let mut socket = Socket::bind(here, config).unwrap();
        socket.connect(unread.local_addr().unwrap()).unwrap();
        let sealer = Sealer::new(Suite::fastest(), &[1; 32]);
        Self { socket, sealer, train: Vec::new(), _unread: unread }
    }

    /// Bytes of the object in a full packet.
    fn payload_bytes(&self) -> u32 {
        let payload = DATAGRAM - wire::HEADER_BYTES - wire::DATA_HEAD_BYTES - self.sealer.seal_bytes();
        payload as u32
    }

    fn send(&mut self, packets: &[Packet]) {
        self.train.clear();
        for packet in packets {
            let at = self.train.len();
            let header = Header { kind: PacketKind::Data, transfer: 7, number: packet.number };
            self.train.extend_from_slice(&header.encode());
            DataHead { sent_us: packet.sent_us, offset: packet.range.start, note: packet.note }
                .encode(&mut self.train);
            self.train.resize(at + DATAGRAM, 7);
            assert!(self.sealer.seal(packet.number, &mut self.train[at..]));
        }
        if packets.is_empty() {
            return;
        }
        let train = Train { bytes: &self.train, segment: DATAGRAM };
        while self.socket.send(&[train], None).is_err() {
            self.socket.wait(true, Duration::from_millis(100)).unwrap();
        }
    }
}

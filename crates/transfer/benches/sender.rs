//! Costs of a sender and of its loss classifier.
//!
//! `cargo bench -p barograph-transfer --features testkit --bench sender` prints nanoseconds for
//! each packet that is sent and acknowledged in the steady state, as the minimum of many runs,
//! because other work on the machine can only make a run slower. One report comes for a fixed
//! number of packets and covers all packets that are not settled. Then it prints microseconds for
//! classifying a window of 20 000 packets, and nanoseconds for each of these packets.

#![allow(clippy::unwrap_used)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use barograph_transfer::controller::FeedbackSample;
use barograph_transfer::testkit::wire::{AckRange, Feedback, GapReport, TimestampEcho};
use barograph_transfer::testkit::{
    Controller, LossAttributor, LossClassification, PathContext, Sender, SenderConfig, UnattributedLoss,
};
use rangemap::RangeSet;

const PAYLOAD: u32 = 1400;
const US: Duration = Duration::from_micros(1);

#[derive(Debug)]
struct Free;

impl Controller for Free {
    fn on_feedback(&mut self, _: Duration, _: &FeedbackSample<'_>) {}

    fn on_no_feedback(&mut self, _: Duration) {}

    fn rate_bytes_s(&self) -> f64 {
        1e10
    }

    fn window_bytes(&self) -> u64 {
        1 << 30
    }
}

fn main() {
    println!("{:<44} {:>12}", "sent and acknowledged", "ns a packet");
    for (name, under_way, report, lost) in [
        ("no loss, 1000 a report", 4000, 1000, 0),
        ("no loss, 100 a report", 4000, 100, 0),
        ("1 in 100 lost, 1000 a report", 4000, 1000, 100),
        ("1 in 100 lost, 200 000 under way", 200_000, 1000, 100),
        ("1 in 10 lost, 1000 a report", 4000, 1000, 10),
    ] {
        let least = (0..20).map(|_| steady(under_way, report, lost)).fold(f64::INFINITY, f64::min);
        println!("{name:<44} {least:>12.1}");
    }
    println!("{:<44} {:>12} {:>12}", "the loss attributor, a window of 20 000", "us a look", "ns a packet");
    for (name, every, packets) in [
        ("1 in 1000 lost", 1000, 1),
        ("1 in 100 lost", 100, 1),
        ("1 in 20 lost", 20, 1),
        ("stalls of 100 in 10 000", 10_000, 100),
    ] {
        let least = (0..50).map(|_| look(every, packets)).fold(f64::INFINITY, f64::min);
        println!("{name:<44} {least:>12.1} {:>12.2}", least * 1e3 / LossAttributor::WINDOW_PACKETS as f64);
    }
}

/// Returns the mean time for a packet in nanoseconds, measured over half a million packets.
fn steady(under_way: u64, report: u64, lost_every: u64) -> f64 {
    let config = SenderConfig {
        payload_bytes: PAYLOAD,
        overhead_bytes: 72,
        seed: 1,
        classification: LossClassification::Default,
    };
    let mut sender = Sender::new(config, 1 << 61, &RangeSet::new(), Box::new(Free)).unwrap();
    // Packets in the order sent, each as (number, time, lost). A sender skips some numbers, so
    // reports are built from the numbers in this list.
    let mut sent: Vec<(u64, u32, bool)> = Vec::new();
    let mut now = Duration::from_millis(1);
    let (mut next, mut floor, mut reports) = (0usize, 0u64, 0u64);
    let (mut spent, mut packets) = (Duration::ZERO, 0u64);
    while packets < 500_000 {
        now += US * u32::try_from(report).unwrap_or(1);
        let start = Instant::now();
        let mut count = 0;
        let mut at = now;
        while count < report {
            match sender.poll_packet(at) {
                Some(packet) => {
                    count += 1;
                    floor = packet.note.map_or(floor, |note| note.floor);
                    sent.push((
                        packet.number,
                        packet.sent_us,
                        lost_every > 0 && packet.number % lost_every == 7,
                    ));
                }
                None => at += US * 7,
            }
        }
        spent += start.elapsed();
        now = now.max(at);
        if (sent.len() as u64) < under_way {
            continue;
        }
        packets += report;
        let upto = sent.len() - under_way as usize + report as usize;
        let feedback = draw(&sent, floor, upto, now);
        let start = Instant::now();
        reports += 1;
        if let Err(violation) = sender.handle_feedback(now, reports, black_box(&feedback)) {
            panic!("{violation}");
        }
        if sender.poll_timeout().is_some_and(|at| at <= now) {
            sender.handle_timeout(now);
        }
        spent += start.elapsed();
        next = next.max(upto);
    }
    spent.as_nanos() as f64 / packets as f64
}

/// The report of a receiver after the first `upto` packets of `sent`.
fn draw(sent: &[(u64, u32, bool)], floor: u64, upto: usize, now: Duration) -> Feedback {
    let from = sent.partition_point(|(number, ..)| *number < floor);
    let mut feedback = Feedback { start: floor, ..Feedback::default() };
    let mut at = floor;
    let evidence = GapReport { host_drops: None, is_marked: None, delay_us: Some(20) };
    for (number, sent_us, _) in sent[from..upto].iter().filter(|(.., is_lost)| !is_lost) {
        let missing = u32::try_from(number - at).unwrap_or(0);
        match feedback.runs.last_mut() {
            Some(run) if missing > 0 => {
                (run.missing, run.evidence) = (missing, evidence);
                feedback.runs.push(AckRange { received: 1, ..AckRange::default() });
            }
            Some(run) => run.received += 1,
            None if missing > 0 => {
                feedback.runs.push(AckRange { received: 0, missing, evidence });
                feedback.runs.push(AckRange { received: 1, ..AckRange::default() });
            }
            None => feedback.runs.push(AckRange { received: 1, ..AckRange::default() }),
        }
        at = number + 1;
        let held_us = 5;
        feedback.echo = Some(TimestampEcho { number: *number, sent_us: *sent_us, held_us });
    }
    let _ = now;
    feedback
}

/// Returns the time to classify a window once, in microseconds. Of every `every` packets, `packets`
/// packets are lost.
fn look(every: u64, packets: u32) -> f64 {
    let mut attributor = LossAttributor::default();
    let mut attributed = Vec::new();
    let context = |now| PathContext { now, rtt: Duration::from_secs(1), burst: 4 };
    let mut spent = Duration::ZERO;
    for turn in 0..3u32 {
        let first = u64::from(turn) * LossAttributor::WINDOW_PACKETS;
        let now = Duration::from_secs(10) * turn;
        for index in (first + every / 2..first + LossAttributor::WINDOW_PACKETS).step_by(every as usize) {
            let evidence = GapReport { delay_us: Some(20), ..GapReport::default() };
            let missing =
                UnattributedLoss { index, packets, bytes: 1500, sent: now, in_flight_bytes: 0, evidence };
            attributor.lose(context(now), missing, &mut attributed);
        }
        let start = Instant::now();
        attributor.poll(
            context(now + Duration::from_secs(5)),
            first + LossAttributor::WINDOW_PACKETS,
            &mut attributed,
        );
        spent = start.elapsed();
        attributed.clear();
    }
    assert_eq!(attributor.classifications(), 3, "each turn had its look");
    spent.as_nanos() as f64 / 1e3
}

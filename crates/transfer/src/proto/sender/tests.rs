#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::sent_packets::PROBES_RESERVED;
use super::*;
use crate::proto::controller::FeedbackSample;
use crate::proto::wire::{AckRange, Feedback, GapReport, TimestampEcho, Totals};

const MS: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Free;

impl Controller for Free {
    fn on_feedback(&mut self, _: Duration, _: &FeedbackSample<'_>) {}

    fn on_no_feedback(&mut self, _: Duration) {}

    fn rate_bytes_s(&self) -> f64 {
        f64::INFINITY
    }
}

/// A controller with a window of 10 500 bytes. The controller records the packet length of the last
/// feedback, and how many feedbacks measured a round-trip time.
#[derive(Debug)]
struct FeedbackRecorder(Arc<AtomicU32>, Arc<AtomicU32>);

impl Controller for FeedbackRecorder {
    fn on_feedback(&mut self, _: Duration, seen: &FeedbackSample<'_>) {
        self.0.store(seen.packet_bytes, Ordering::Relaxed);
        self.1.fetch_add(seen.round_trip.is_some().into(), Ordering::Relaxed);
    }

    fn on_no_feedback(&mut self, _: Duration) {}

    fn rate_bytes_s(&self) -> f64 {
        f64::INFINITY
    }

    fn window_bytes(&self) -> u64 {
        10_500
    }
}

fn sender(object_bytes: u64, seed: u64) -> Sender {
    let config = SenderConfig {
        payload_bytes: 1000,
        overhead_bytes: 50,
        seed,
        classification: LossClassification::Default,
    };
    Sender::new(config, object_bytes, &RangeSet::new(), Box::new(Free)).unwrap()
}

/// Sends up to `packets` packets now.
fn send(sender: &mut Sender, now: Duration, packets: usize) -> Vec<Packet> {
    std::iter::from_fn(|| sender.poll_packet(now)).take(packets).collect()
}

fn runs(start: u64, runs: &[(u32, u32)]) -> Feedback {
    let run = |(received, missing): &(u32, u32)| AckRange {
        received: *received,
        missing: *missing,
        evidence: GapReport::default(),
    };
    Feedback { start, runs: runs.iter().map(run).collect(), ..Feedback::default() }
}

#[test]
fn feedback_cannot_acknowledge_unsent_packets() {
    let mut sender = sender(100_000_000, 3);
    let sent = send(&mut sender, MS, 9000);
    let end = sent.last().map_or(0, |packet| packet.number + 1);
    let taken: Vec<u64> = sent.iter().map(|packet| packet.number).collect();
    let skipped = (0..end).filter(|number| taken.binary_search(number).is_err());
    assert!(skipped.clone().count() >= 2);
    for number in skipped.clone().chain([end, end + 1000, u64::MAX - 1, u64::MAX]) {
        let error = sender.handle_feedback(2 * MS, 0, &runs(number, &[(1, 0)]));
        assert_eq!(error, Err(ProtocolViolation::NeverSent(number)));
        let echo = Some(TimestampEcho { number, sent_us: 1000, held_us: 0 });
        let error = sender.handle_feedback(2 * MS, 0, &Feedback { echo, ..Feedback::default() });
        assert_eq!(error, Err(ProtocolViolation::NeverSent(number)));
    }
    assert_eq!(
        sender.handle_feedback(2 * MS, 0, &runs(end - 1, &[(2, 0)])),
        Err(ProtocolViolation::NeverSent(end))
    );
    let all = sender.handle_feedback(2 * MS, 0, &runs(0, &[(u32::try_from(end).unwrap_or_default(), 0)]));
    assert_eq!(all.err(), skipped.clone().next().map(ProtocolViolation::NeverSent));
    assert_eq!(sender.stats().acked_bytes, 0);
}

#[test]
fn feedback_cannot_withdraw_an_acknowledgement() {
    let mut sender = sender(1_000_000, 3);
    send(&mut sender, MS, 100);
    assert_eq!(sender.handle_feedback(10 * MS, 5, &runs(0, &[(0, 1), (9, 5), (5, 0)])), Ok(()));
    // An older feedback may come late, and reports only what was known when it was sent.
    assert_eq!(sender.handle_feedback(11 * MS, 4, &runs(0, &[(0, 3), (1, 0)])), Ok(()));
    let error = sender.handle_feedback(12 * MS, 6, &runs(8, &[(1, 6), (5, 0)]));
    assert_eq!(error, Err(ProtocolViolation::TakenBack));
    let totals = Totals { packets: 7, bytes: 7000, marked: 1, drain_bytes_s: 9 };
    assert_eq!(sender.handle_feedback(13 * MS, 7, &Feedback { totals, ..runs(0, &[]) }), Ok(()));
    for less in
        [Totals { packets: 6, ..totals }, Totals { bytes: 0, ..totals }, Totals { marked: 0, ..totals }]
    {
        let error = sender.handle_feedback(14 * MS, 8, &Feedback { totals: less, ..runs(0, &[]) });
        assert_eq!(error, Err(ProtocolViolation::TakenBack));
    }
    let drained = Totals { drain_bytes_s: 1, ..totals };
    assert_eq!(sender.handle_feedback(15 * MS, 9, &Feedback { totals: drained, ..runs(0, &[]) }), Ok(()));
}

#[test]
fn an_echo_with_impossible_times_gives_no_rtt_sample() {
    let mut sender = sender(1_000_000, 3);
    let sent = send(&mut sender, 5 * MS, 10);
    let sent_us = sent.first().map_or(0, |packet| packet.sent_us);
    let mut number = 0;
    let mut hear = |now, packet, sent_us, held_us| {
        let echo = Some(TimestampEcho { number: packet, sent_us, held_us });
        number += 1;
        // The first packet did not arrive, so all later packets are kept.
        let feedback = Feedback { echo, ..runs(0, &[(0, 1), (7, 2)]) };
        assert_eq!(sender.handle_feedback(now, number, &feedback), Ok(()));
        sender.rtt()
    };
    assert_eq!(hear(25 * MS, 1, sent_us + 1, 0).latest, None, "a time that it did not have");
    assert_eq!(hear(25 * MS, 9, sent_us, 0).latest, None, "a packet that did not come");
    assert_eq!(hear(25 * MS, 1, sent_us, u32::MAX).latest, Some(20 * MS), "held since before it was sent");
    assert_eq!(hear(26 * MS, 1, sent_us, 0).latest, Some(20 * MS), "twice");
    assert_eq!(hear(45 * MS, 2, sent_us, 1 << 31).smoothed, 22_500 * MS / 1000);
}

#[test]
fn an_object_longer_than_the_largest_offset_is_refused() {
    let config = SenderConfig {
        payload_bytes: 1000,
        overhead_bytes: 50,
        seed: 3,
        classification: LossClassification::Default,
    };
    let new = |bytes| Sender::new(config.clone(), bytes, &RangeSet::new(), Box::new(Free)).map(|_| ());
    assert_eq!(new((1 << 62) - 1), Ok(()));
    assert_eq!(new(1 << 62), Err(TooLong(1 << 62)));
}

#[test]
fn a_new_payload_length_applies_to_the_next_packets() {
    let seen = Arc::new(AtomicU32::new(0));
    let config = SenderConfig {
        payload_bytes: 1000,
        overhead_bytes: 50,
        seed: 3,
        classification: LossClassification::Default,
    };
    let controller = Box::new(FeedbackRecorder(seen.clone(), Arc::default()));
    let mut sender = Sender::new(config, 100_000, &RangeSet::new(), controller).unwrap();
    // A window of 10 500 bytes holds ten packets of 1050 bytes.
    assert_eq!(send(&mut sender, MS, 99).len(), 10);
    assert_eq!(sender.limit(), SendLimit::Window);
    // The path carries shorter packets: lost ranges are cut into shorter packets, and more packets
    // fit the window.
    sender.set_payload_bytes(450);
    assert_eq!(sender.handle_feedback(20 * MS, 1, &runs(0, &[(0, 2), (8, 0)])), Ok(()));
    assert_eq!(seen.load(Ordering::Relaxed), 500);
    let sent = send(&mut sender, 20 * MS, 99);
    let ranges: Vec<_> = sent.iter().map(|packet| packet.range.clone()).take(6).collect();
    assert_eq!(ranges, [0..450, 450..900, 900..1350, 1350..1800, 1800..1988, 9988..10_438]);
    assert_eq!((sent.len(), sender.in_flight_bytes()), (21, 21 * 500 - 250 - 12));
    assert_eq!(sender.kept().0[0], sender.kept().0[1]);
    // The path carries longer packets again.
    sender.set_payload_bytes(1950);
    assert_eq!(sender.handle_feedback(40 * MS, 2, &runs(2, &[(29, 0)])), Ok(()));
    let sent = send(&mut sender, 40 * MS, 99);
    assert_eq!((sent.len(), seen.load(Ordering::Relaxed), sender.payload_bytes()), (5, 2000, 1950));
    assert!(sent.iter().all(|packet| packet.range.end - packet.range.start == 1950));
}

#[test]
fn an_rtt_sample_is_reported_once() {
    let measured = Arc::new(AtomicU32::new(0));
    let config = SenderConfig {
        payload_bytes: 1000,
        overhead_bytes: 50,
        seed: 3,
        classification: LossClassification::Default,
    };
    let controller = Box::new(FeedbackRecorder(Arc::default(), measured.clone()));
    let mut sender = Sender::new(config, 100_000, &RangeSet::new(), controller).unwrap();
    let sent_us = send(&mut sender, MS, 99).first().unwrap().sent_us;
    let echo = Some(TimestampEcho { number: 0, sent_us, held_us: 0 });
    for (number, came) in (1..).zip([2, 4, 6]) {
        // Each feedback acknowledges more packets, and all feedbacks echo the first packet.
        let feedback = Feedback { echo, ..runs(0, &[(came, 0)]) };
        assert_eq!(sender.handle_feedback(20 * MS * came, number, &feedback), Ok(()));
    }
    assert_eq!(measured.load(Ordering::Relaxed), 1);
}

#[test]
fn probes_use_the_reduced_payload_length() {
    let mut sender = sender(3000 - 12, 3);
    assert_eq!(send(&mut sender, MS, 99).len(), 3);
    assert_eq!(sender.limit(), SendLimit::Object);
    sender.set_payload_bytes(400);
    let mut now = MS;
    for _ in 0..3 {
        now = now.max(sender.probe_at().unwrap());
        sender.handle_timeout(now);
        let probe = sender.poll_packet(now).unwrap();
        assert_eq!(probe.range, 0..388, "each with a note");
    }
    // Only the probes arrived: all other bytes of the long packets are sent again.
    assert_eq!(sender.handle_feedback(now + 20 * MS, 1, &runs(0, &[(0, 3), (3, 0)])), Ok(()));
    let at = sender.loss_at().unwrap_or(now + 20 * MS);
    sender.handle_timeout(at);
    let again: Vec<_> = send(&mut sender, at, 99).into_iter().map(|packet| packet.range).collect();
    assert_eq!(again.first(), Some(&(388..788)));
    assert_eq!(again.iter().map(|range| range.end - range.start).sum::<u64>(), 2600);
}

#[test]
fn sender_memory_is_bounded_without_feedback() {
    let mut sender = sender(1 << 61, 3);
    let most = PACKETS_MAX - PROBES_RESERVED;
    assert_eq!(send(&mut sender, MS, usize::MAX).len(), most);
    let mut probes = 0;
    let (mut steps, mut now) = (0, MS);
    // The sender probes for more than an hour, with one packet each time.
    while let Some(at) = sender.poll_timeout().filter(|_| steps < 10_000) {
        now = now.max(at);
        sender.handle_timeout(now);
        probes += send(&mut sender, now, 9).len();
        steps += 1;
    }
    assert!(now > Duration::from_secs(9_000), "{now:?}");
    assert_eq!(sender.sent_packets.len(), PACKETS_MAX);
    assert!(probes > 2 * PROBES_RESERVED, "it goes on asking: {probes}");
    assert!(sender.silence(now) >= now - MS);
    let given_up = sender.stats().lost_packets;
    assert_eq!(given_up as usize, probes - PROBES_RESERVED);
    // When the last packet is acknowledged, all other packets are declared lost, and memory becomes
    // free.
    let last = sender.numbers.end() - 1;
    assert_eq!(sender.handle_feedback(now, 1, &runs(last, &[(1, 0)])), Ok(()));
    let at = sender.loss_at().unwrap_or_default();
    sender.handle_timeout(now.max(at));
    assert_eq!(sender.stats().lost_packets, given_up + PACKETS_MAX as u64 - 1);
    assert!(send(&mut sender, now, 9).len() == 9 && sender.sent_packets.len() < PACKETS_MAX / 2);
}

#[test]
fn a_full_packet_memory_frees_space_when_packets_are_lost_by_time() {
    let mut sender = sender(1 << 40, 3);
    let sent = send(&mut sender, MS, usize::MAX);
    assert_eq!(sent.len(), PACKETS_MAX - PROBES_RESERVED);
    let last = sent.last().map_or(0, |packet| packet.number);
    assert_eq!(sender.handle_feedback(20 * MS, 1, &runs(last, &[(1, 0)])), Ok(()));
    let mut now = 20 * MS;
    for _ in 0..20 {
        let Some(at) = sender.poll_timeout() else { panic!("it waits for nothing at {now:?}") };
        now = now.max(at);
        sender.handle_timeout(now);
        if !send(&mut sender, now, 9).is_empty() && sender.stats().lost_packets > 0 {
            return;
        }
    }
    panic!("nothing is sent any more");
}

#[test]
fn a_lost_part_of_a_report_causes_no_packet_losses() {
    let mut sender = sender(10_000_000, 3);
    send(&mut sender, MS, 300);
    assert_eq!(sender.handle_feedback(20 * MS, 1, &runs(0, &[(50, 1), (9, 0)])), Ok(()));
    assert_eq!(sender.stats().lost_packets, 1);
    // The feedback datagram with number 2, which covered packets 60 to 199, is lost.
    assert_eq!(sender.handle_feedback(21 * MS, 3, &runs(200, &[(50, 1), (49, 0)])), Ok(()));
    assert_eq!(sender.stats().lost_packets, 1);
    assert_eq!(sender.handle_feedback(25 * MS, 4, &runs(50, &[(0, 1), (149, 0)])), Ok(()));
    assert_eq!(sender.handle_feedback(25 * MS, 5, &runs(200, &[(50, 1), (49, 0)])), Ok(()));
    assert_eq!((sender.stats().lost_packets, sender.stats().spurious_packets), (2, 0));
}

#[test]
fn a_queue_that_fills_causes_no_packet_losses() {
    let mut sender = sender(10_000_000, 3);
    let echo =
        |packet: &Packet| Some(TimestampEcho { number: packet.number, sent_us: packet.sent_us, held_us: 0 });
    let first = send(&mut sender, MS, 10);
    let feedback = Feedback { echo: echo(&first[0]), ..runs(0, &[(10, 0)]) };
    assert_eq!(sender.handle_feedback(21 * MS, 1, &feedback), Ok(()));
    let second = send(&mut sender, 30 * MS, 10);
    // The round-trip time rose from 20 ms to 60 ms, and two packets overtook packet 11.
    let feedback = Feedback { echo: echo(&second[3]), ..runs(0, &[(11, 1), (2, 0)]) };
    assert_eq!(sender.handle_feedback(90 * MS, 2, &feedback), Ok(()));
    assert_eq!(sender.stats().lost_packets, 0);
    assert_eq!(sender.loss_at(), Some(97_500 * MS / 1000), "9/8 of the last round-trip time");
    sender.handle_timeout(95 * MS);
    assert_eq!(sender.handle_feedback(96 * MS, 3, &runs(0, &[(20, 0)])), Ok(()));
    assert_eq!((sender.stats().lost_packets, sender.stats().spurious_packets), (0, 0));
}

#[test]
fn a_repeated_report_changes_nothing() {
    let mut sender = sender(100_000_000, 1);
    send(&mut sender, MS, 900);
    let report = runs(0, &[(300, 2), (200, 1), (300, 0)]);
    assert_eq!(sender.handle_feedback(20 * MS, 1, &report), Ok(()));
    let (stats, settled) = (sender.stats(), sender.settled_and_kept());
    assert_eq!((stats.acked_bytes, stats.lost_packets), (800_000 - 12, 3), "the first has a note");
    for number in 2..20 {
        assert_eq!(sender.handle_feedback(21 * MS, number, &report), Ok(()));
    }
    assert_eq!((sender.stats(), sender.settled_and_kept()), (stats, settled));
}

#[test]
fn feedback_without_new_information_counts_as_silence() {
    let mut sender = sender(100_000_000, 1);
    send(&mut sender, MS, 900);
    let timer = sender.no_feedback_at();
    assert_eq!(send(&mut sender, 10 * MS, 1).len(), 1);
    assert_eq!(sender.no_feedback_at(), timer, "sending does not restart the timer");
    let report = runs(0, &[(300, 0)]);
    assert_eq!(sender.handle_feedback(20 * MS, 5, &report), Ok(()));
    let (timer, probe) = (sender.no_feedback_at(), sender.probe_at());
    // Reports that are repeated, replayed or older.
    for (number, report) in [(6, &report), (5, &report), (2, &report), (1, &runs(0, &[(310, 0)]))] {
        assert_eq!(sender.handle_feedback(500 * MS, number, report), Ok(()));
        assert_eq!((sender.no_feedback_at(), sender.probe_at()), (timer, probe), "{number}");
        assert_eq!(sender.silence(520 * MS), 500 * MS);
    }
    assert_eq!(sender.stats().acked_bytes, 310_000 - 12);
    let totals = Totals { packets: 900, ..Totals::default() };
    assert_eq!(sender.handle_feedback(500 * MS, 7, &Feedback { totals, ..runs(0, &[]) }), Ok(()));
    assert_eq!(sender.silence(520 * MS), 20 * MS);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_sender_keeps_its_invariants_for_any_feedback(data in prop::collection::vec(any::<u8>(), 0..600)) {
        crate::testkit::fuzz::fuzz_sender(&data);
    }
}

impl Sender {
    fn settled_and_kept(&self) -> (u64, usize) {
        (self.losses.settled(), self.sent_packets.len())
    }
}

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::proto::wire::{AckRange, NUMBER_MAX};
use crate::testkit::fuzz::{Checked, Step, fuzz_receiver};

const CONFIG: ReceiverConfig = ReceiverConfig { feedback_bytes_max: 1_200 };

fn receiver(object_bytes: u64) -> Receiver {
    Receiver::new(CONFIG, object_bytes, RangeSet::new()).unwrap()
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Packet `number`, with the bytes that this packet has if no packet is lost. The packet was sent
/// at `number` ms, and arrived 10 ms later.
fn packet(number: u64) -> Arrival {
    Arrival {
        number,
        sent_us: number as u32 * 1_000,
        range: number * 100..(number + 1) * 100,
        note: None,
        at: us(number * 1_000 + 10_000),
        is_marked: Some(false),
        drops: Some(9),
    }
}

/// The only datagram of the round that is due next.
fn feedback(receiver: &mut Receiver) -> Feedback {
    let mut round = feedback_round(receiver);
    assert_eq!(round.len(), 1);
    round.remove(0)
}

fn feedback_round(receiver: &mut Receiver) -> Vec<Feedback> {
    let due = receiver.poll_timeout().unwrap();
    std::iter::from_fn(|| receiver.poll_feedback(due)).collect()
}

fn counts(feedback: &Feedback) -> Vec<(u32, u32)> {
    feedback.runs.iter().map(|run| (run.received, run.missing)).collect()
}

#[test]
fn feedback_reports_gaps_with_their_evidence() {
    let mut receiver = receiver(10_000);
    for number in [2, 3] {
        assert_eq!(receiver.handle_data(&packet(number)), Ok(NewBytes::All));
    }
    // Packet 4 waits 700 µs in a queue that drops packets 5 and 6 and marks packet 7.
    let waited = Arrival { at: packet(4).at + us(700), ..packet(4) };
    receiver.handle_data(&waited).unwrap();
    receiver.handle_data(&Arrival { is_marked: Some(true), ..packet(7) }).unwrap();
    // The socket drops packet 8.
    receiver.handle_data(&Arrival { drops: Some(10), ..packet(9) }).unwrap();
    // For the gap before packet 11, only the delay is known.
    receiver.handle_data(&Arrival { drops: None, is_marked: None, ..packet(11) }).unwrap();
    let told = feedback(&mut receiver);
    assert_eq!((told.start, counts(&told)), (0, vec![(0, 2), (3, 2), (1, 1), (1, 1), (1, 0)]));
    let known = |host_drops, is_marked, delay_us| GapReport { host_drops, is_marked, delay_us };
    let evidence: Vec<GapReport> = told.runs.iter().map(|run| run.evidence).collect();
    let expected = [
        GapReport::default(),
        known(Some(false), Some(true), Some(700)),
        known(Some(true), Some(true), Some(0)),
        known(None, None, Some(0)),
        GapReport::default(),
    ];
    assert_eq!(evidence, expected);
    assert_eq!(told.totals, Totals { packets: 6, bytes: 600, marked: 1, drain_bytes_s: 0 });
    assert_eq!(told.echo.map(|echo| (echo.number, echo.sent_us)), Some((11, 11_000)));
}

#[test]
fn without_arrival_times_of_the_kernel_the_delay_is_unknown() {
    let mut receiver = receiver(10_000);
    receiver.omit_delays();
    for number in [0, 1] {
        receiver.handle_data(&packet(number)).unwrap();
    }
    // Packet 2 waited 30 ms in the socket of a busy host, which dropped packet 3.
    let waited = packet(2).at + us(30_000);
    receiver.handle_data(&Arrival { at: waited, ..packet(2) }).unwrap();
    receiver.handle_data(&Arrival { at: waited, drops: None, ..packet(4) }).unwrap();
    let told = feedback(&mut receiver);
    assert_eq!(counts(&told), [(3, 1), (1, 0)]);
    let unknown = GapReport { host_drops: None, is_marked: Some(false), delay_us: None };
    assert_eq!(told.runs.first().map(|run| run.evidence), Some(unknown));
}

#[test]
fn late_packets_fill_gaps_and_copies_are_refused() {
    let mut receiver = receiver(10_000);
    for number in [0, 10, 5, 1, 9] {
        assert_eq!(receiver.handle_data(&packet(number)), Ok(NewBytes::All));
    }
    assert_eq!(counts(&feedback(&mut receiver)), [(2, 3), (1, 3), (2, 0)]);
    for number in [0, 5, 9, 10] {
        assert_eq!(receiver.handle_data(&packet(number)), Err(Refusal::Repeated(number)));
    }
    for number in [2, 4, 3, 7, 6, 8] {
        assert_eq!(receiver.handle_data(&packet(number)), Ok(NewBytes::All));
    }
    let told = feedback(&mut receiver);
    assert_eq!((counts(&told), told.totals.packets), (vec![(11, 0)], 15));
    assert_eq!(receiver.held().iter().collect::<Vec<_>>(), [&(0..1_100)]);
}

#[test]
fn pieces_of_a_gap_keep_the_evidence_of_the_gap() {
    let mut receiver = receiver(10_000);
    receiver.handle_data(&packet(0)).unwrap();
    receiver.handle_data(&Arrival { drops: Some(12), ..packet(9) }).unwrap();
    receiver.handle_data(&packet(4)).unwrap();
    let told = feedback(&mut receiver);
    let gap = |missing| AckRange {
        received: 1,
        missing,
        evidence: GapReport { host_drops: Some(true), is_marked: Some(false), delay_us: Some(0) },
    };
    assert_eq!(told.runs, [gap(3), gap(4), AckRange { received: 1, ..AckRange::default() }]);
}

#[test]
fn the_receiver_forgets_packets_below_the_floor() {
    let mut receiver = receiver(100_000);
    for number in [0, 3, 7, 9] {
        receiver.handle_data(&packet(number)).unwrap();
    }
    let note =
        |floor, number| Arrival { note: Some(SenderReport { floor, rtt_us: 1_000 }), ..packet(number) };
    receiver.handle_data(&note(5, 10)).unwrap();
    let told = feedback(&mut receiver);
    assert_eq!((told.start, counts(&told)), (5, vec![(0, 2), (1, 1), (2, 0)]));
    assert_eq!(receiver.handle_data(&packet(4)), Err(Refusal::Repeated(4)));
    // An old note does not lower the floor, and a note does not raise the floor above the number of
    // the packet that carries the note.
    receiver.handle_data(&note(2, 5)).unwrap();
    receiver.handle_data(&note(u64::MAX, 20)).unwrap();
    let told = feedback(&mut receiver);
    assert_eq!((told.start, counts(&told)), (20, vec![(1, 0)]));
}

#[test]
fn held_ranges_are_not_written_again() {
    let held = [100..250, 400..500, 5_000..9_999].into_iter().collect();
    let mut receiver = Receiver::new(CONFIG, 1_000, held).unwrap();
    assert_eq!(receiver.held().iter().cloned().collect::<Vec<_>>(), [100..250, 400..500], "of the object");
    let mut number = 0;
    let mut take = |range| {
        number += 1;
        receiver.handle_data(&Arrival { range, ..packet(number) })
    };
    let part = |range| Ok(NewBytes::Parts(Vec::from([range])));
    assert_eq!(take(0..100), Ok(NewBytes::All));
    assert_eq!(take(100..200), Ok(NewBytes::Nothing));
    assert_eq!(take(200..300), part(250..300));
    assert_eq!(take(300..400), Ok(NewBytes::All));
    assert_eq!(take(700..700), Ok(NewBytes::Nothing));
    assert_eq!(take(450..550), part(500..550));
    assert_eq!(take(950..1_000), Ok(NewBytes::All));
    assert_eq!(take(540..960), part(550..950));
    let beyond = Refusal::Beyond { end: 1_001, object_bytes: 1_000 };
    assert_eq!(take(950..1_001), Err(beyond));
    assert!(receiver.is_complete());
    assert_eq!(receiver.held().iter().collect::<Vec<_>>(), [&(0..1_000)]);
}

#[test]
fn a_hostile_sender_cannot_exceed_the_memory_limit_of_a_receiver() {
    // Only every other number arrives, with every other byte.
    let mut receiver = receiver(1 << 40);
    let every_other = |number: u64, step: u64| Arrival {
        range: number * step..number * step + 1,
        at: us(number),
        ..packet(number)
    };
    let [(_, gaps_max), (_, ranges_max)] = receiver.kept();
    for number in 0..gaps_max as u64 {
        receiver.handle_data(&every_other(number * 2 + 1, 1)).unwrap();
    }
    let next = gaps_max as u64 * 2;
    assert_eq!(receiver.handle_data(&every_other(next + 1, 1)), Err(Refusal::TooFar(next + 1)));
    assert_eq!(receiver.handle_data(&every_other(next, 1)), Ok(NewBytes::All), "without a gap it is taken");
    assert_eq!(receiver.handle_data(&every_other(next - 2, 1)), Ok(NewBytes::All), "or into one");
    // A packet with a note that raises the floor is accepted, although there was no memory for this
    // packet before.
    let note = Some(SenderReport { floor: next - 10, rtt_us: 0 });
    receiver.handle_data(&Arrival { note, ..every_other(next + 2, 1) }).unwrap();
    for number in next + 3..next + 3 + ranges_max as u64 {
        let _ = receiver.handle_data(&every_other(number, 3));
    }
    assert_eq!(receiver.kept()[1].0, ranges_max);
    let refused = receiver.handle_data(&every_other(next + 3 + ranges_max as u64, 3));
    assert_eq!(refused, Err(Refusal::Scattered(ranges_max)));
    let mut fill = every_other(next + 3 + ranges_max as u64, 3);
    fill.range = (next + 5) * 3 + 1..(next + 5) * 3 + 3;
    assert_eq!(receiver.handle_data(&fill), Ok(NewBytes::All), "holes can be filled");
    let told = feedback_round(&mut receiver);
    assert!(told.iter().all(|feedback| feedback.encode(&mut vec![], 1_200) == Some(feedback.runs.len())));
}

#[test]
fn packet_numbers_after_an_outage_are_accepted_and_larger_jumps_refused() {
    let mut receiver = receiver(1_000);
    let at_number = |number| Arrival { number, ..packet(1) };
    assert_eq!(receiver.handle_data(&at_number(1 << 30)), Err(Refusal::TooFar(1 << 30)));
    assert_eq!(receiver.handle_data(&at_number((1 << 30) - 1)), Ok(NewBytes::All));
    let far = 1 << 31;
    assert_eq!(receiver.handle_data(&at_number(far)), Err(Refusal::TooFar(far)));
    assert_eq!(receiver.handle_data(&at_number(u64::MAX)), Err(Refusal::TooFar(u64::MAX)));
    // Numbers that 32 bits cannot count are forgotten.
    for jump in 1..=5 {
        receiver.handle_data(&at_number(((jump + 1) << 30) - 1)).unwrap();
    }
    let told = feedback(&mut receiver);
    assert_eq!((told.start, told.end()), (4 << 30, 6 << 30));
}

#[test]
fn the_largest_values_do_not_overflow() {
    assert_eq!(Receiver::new(CONFIG, NUMBER_MAX + 1, RangeSet::new()).err(), Some(TooLong(NUMBER_MAX + 1)));
    let mut receiver = Receiver::new(CONFIG, NUMBER_MAX, RangeSet::new()).unwrap();
    let end =
        Arrival { range: NUMBER_MAX - 9..NUMBER_MAX, sent_us: u32::MAX, at: Duration::MAX, ..packet(0) };
    assert_eq!(receiver.handle_data(&end), Ok(NewBytes::All));
    let before = Arrival { range: NUMBER_MAX - 20..NUMBER_MAX - 5, ..packet(1) };
    let new = NUMBER_MAX - 20..NUMBER_MAX - 9;
    assert_eq!(receiver.handle_data(&before), Ok(NewBytes::Parts(Vec::from([new]))));
    assert_eq!(receiver.held().iter().collect::<Vec<_>>(), [&(NUMBER_MAX - 20..NUMBER_MAX)]);
    assert!(receiver.poll_feedback(Duration::MAX).is_some());
    assert!(receiver.poll_timeout().is_none_or(|due| due == Duration::MAX));
    #[expect(clippy::reversed_empty_ranges, reason = "nobody keeps the caller from it")]
    let reversed = Arrival { range: 9..2, ..packet(2) };
    assert_eq!(receiver.handle_data(&reversed), Ok(NewBytes::Nothing));
}

#[test]
fn feedback_that_does_not_fit_continues_in_the_next_datagram() {
    let mut receiver = receiver(1 << 30);
    for number in 0..1_000 {
        receiver.handle_data(&packet(number * 3)).unwrap();
    }
    let told = feedback_round(&mut receiver);
    // A run has 4 bytes: received, missing, evidence, and a delay of 0.
    assert_eq!(told.len(), 4);
    assert!(told.windows(2).all(|pair| pair[0].end() == pair[1].start));
    assert_eq!(told.iter().map(|feedback| feedback.runs.len()).sum::<usize>(), 1_000);
    let ends = told.last().map(|last| (last.end(), last.runs.last().map(|run| run.missing)));
    assert_eq!(ends, Some((2_998, Some(0))));
}

#[test]
fn feedback_bytes_are_limited_by_the_received_bytes() {
    let mut receiver = receiver(1 << 30);
    let empty = |number: u64, at| Arrival {
        range: 0..0,
        note: Some(SenderReport { floor: 0, rtt_us: 1 }),
        at: us(at),
        ..packet(number)
    };
    let (gaps, mut came, mut told, mut told_bytes) = (60_000, 0, 0, 0);
    for number in 0..gaps {
        receiver.handle_data(&empty(number * 2, 0)).unwrap();
        came += 28;
    }
    // Then one packet arrives each millisecond, for two seconds.
    for ms in 0..2_000 {
        receiver.handle_data(&empty(gaps * 2 + ms, ms * 1_000)).unwrap();
        came += 28;
        let now = us(ms * 1_000 + 500);
        for feedback in std::iter::from_fn(|| receiver.poll_feedback(now)) {
            assert!(!feedback.runs.is_empty());
            (told, told_bytes) = (told + 1, told_bytes + feedback.bytes() as u64);
        }
    }
    // Each packet may cause one datagram with one run. Apart from these datagrams, feedback has no
    // more bytes than arrived.
    assert!(told <= 2_001 + came / 1_200, "{told} datagrams for {came} bytes");
    let least = 2_001 * Feedback::BYTES_MIN as u64;
    assert!(told_bytes <= least + came, "{told_bytes} bytes for {came}");
}

#[test]
fn the_last_bytes_are_reported_at_once() {
    let mut receiver = receiver(300);
    receiver.handle_data(&packet(0)).unwrap();
    assert!(receiver.poll_feedback(packet(0).at).is_some(), "the first packet, too");
    receiver.handle_data(&Arrival { at: packet(0).at + us(1), ..packet(1) }).unwrap();
    assert_eq!(receiver.poll_feedback(packet(0).at + us(1)), None);
    let last = Arrival { at: packet(0).at + us(2), ..packet(2) };
    receiver.handle_data(&last).unwrap();
    assert!(receiver.is_complete());
    let told = receiver.poll_feedback(last.at + us(50)).unwrap();
    assert_eq!(counts(&told), [(3, 0)]);
    assert_eq!(told.echo, Some(TimestampEcho { number: 2, sent_us: 2_000, held_us: 50 }));
}

#[test]
fn feedback_reports_the_drain_rate() {
    let mut receiver = receiver(1 << 30);
    receiver.handle_data(&packet(0)).unwrap();
    assert_eq!(feedback(&mut receiver).totals.drain_bytes_s, 0);
    for number in 1..300 {
        let drops = Some(9 + number as u32 / 50);
        receiver.handle_data(&Arrival { drops, ..packet(number) }).unwrap();
    }
    // 100 bytes arrive each millisecond.
    assert_eq!(feedback(&mut receiver).totals.drain_bytes_s, 100_000);
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u64..60).prop_map(|bytes| Step::InOrder { skipped: 0, bytes }),
        2 => (0_u64..9, 0_u64..60).prop_map(|(skipped, bytes)| Step::InOrder { skipped, bytes }),
        3 => (0_u64..30, 0_u64..2_100, 0_u64..80)
            .prop_map(|(back, offset, bytes)| Step::Late { back, offset, bytes }),
        1 => (any::<u64>(), 0_u64..2_100, 0_u64..80)
            .prop_map(|(number, offset, bytes)| Step::Anywhere { number, offset, bytes }),
        1 => (0_u32..33).prop_map(|shift| Step::Jump { shift }),
        1 => (0_u64..200, any::<u32>())
            .prop_map(|(floor_back, rtt_us)| Step::SenderReport { floor_back, rtt_us }),
        2 => (0_u64..20_000).prop_map(|us| Step::Wait { us }),
        1 => (0_u32..9).prop_map(|count| Step::Drop { count }),
        2 => Just(Step::Report),
    ]
}

proptest! {
    #[test]
    fn feedback_and_held_ranges_equal_the_received_packets(
        object_bytes in 0_u64..2_000, held in (0_u64..2_000, 0_u64..2_000),
        steps in proptest::collection::vec(step(), 0..300),
    ) {
        let mut checked = Checked::new(object_bytes, held).unwrap();
        steps.into_iter().for_each(|step| checked.step(step));
        checked.finish();
    }

    #[test]
    fn a_receiver_survives_any_operations(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz_receiver(&bytes);
    }
}

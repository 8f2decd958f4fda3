//! Time that a receiver needs for one packet, without the read from the socket.
//!
//! `cargo bench -p barograph-transfer --features testkit --bench receiver` prints nanoseconds for
//! each packet: the minimum of many runs, because other work on the machine can only make a run
//! slower.
//!
//! - Columns: time to handle a packet; time to handle a packet and encode feedback; time to decode
//!   and handle a packet and encode feedback; datagrams and bytes of feedback for 100 packets
//!   (sealed, without IP and UDP).
//! - Rows: in order; losses at random or in bursts, where lost packets are sent again a round trip
//!   later; neighbours swapped.
//!
//! A round trip is 2 ms, and 3 million packets arrive each second.

#![allow(clippy::unwrap_used)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use barograph_transfer::testkit::wire::{
    DataHead, HEADER_BYTES, Header, PacketKind, SEAL_BYTES, SenderReport,
};
use barograph_transfer::testkit::{Arrival, Receiver, ReceiverConfig};
use rangemap::RangeSet;

const PACKETS: u64 = 300_000;
const PAYLOAD: u64 = 1428;
/// Number of packets that arrive in a round trip.
const FLIGHT: u64 = 6_000;
const RUNS: usize = 30;

fn main() {
    println!(
        "{:<28} {:>8} {:>14} {:>14} {:>12} {:>8}",
        "ns a packet", "take", "with feedback", "with decoding", "feedback, %", "bytes"
    );
    row("in order", &arrivals(|_, _| false, false));
    row("1 % lost at random", &arrivals(|_, random| random.is_multiple_of(100), false));
    row("10 % lost at random", &arrivals(|_, random| random.is_multiple_of(10), false));
    row("1 % lost in bursts of 100", &arrivals(|number, _| number / 100 % 100 == 99, false));
    row("neighbours change places", &arrivals(|_, _| false, true));
}

fn row(name: &str, arrivals: &[Arrival]) {
    let datagrams: Vec<Vec<u8>> = arrivals.iter().map(datagram).collect();
    let take = least_ns(arrivals.len(), || {
        let mut receiver = receiver();
        arrivals.iter().filter(|arrival| receiver.handle_data(black_box(arrival)).is_ok()).count()
    });
    let with_feedback = least_ns(arrivals.len(), || {
        let mut receiver = receiver();
        let (mut fresh, mut out) = (0, Vec::with_capacity(1_500));
        for arrival in arrivals {
            fresh += usize::from(receiver.handle_data(black_box(arrival)).is_ok());
            report(&mut receiver, arrival.at, &mut out);
        }
        fresh
    });
    let with_decoding = least_ns(arrivals.len(), || {
        let mut receiver = receiver();
        let (mut fresh, mut out) = (0, Vec::with_capacity(1_500));
        for (arrival, datagram) in arrivals.iter().zip(&datagrams) {
            let Ok((header, body)) = Header::decode(black_box(datagram)) else { continue };
            let Ok((head, _)) = DataHead::decode(body) else { continue };
            let range = head.offset..head.offset + PAYLOAD;
            let Header { number, .. } = header;
            let DataHead { sent_us, note, .. } = head;
            let decoded = Arrival { number, sent_us, range, note, ..arrival.clone() };
            fresh += usize::from(receiver.handle_data(&decoded).is_ok());
            report(&mut receiver, arrival.at, &mut out);
        }
        fresh
    });
    let (mut receiver, mut out, mut datagrams, mut bytes) = (receiver(), Vec::new(), 0, 0);
    for arrival in arrivals {
        let _ = receiver.handle_data(arrival);
        while let Some(feedback) = receiver.poll_feedback(arrival.at) {
            out.clear();
            feedback.encode(&mut out, 1_400);
            datagrams += 1;
            bytes += HEADER_BYTES + out.len() + SEAL_BYTES;
        }
    }
    let [datagrams, bytes] = [datagrams, bytes].map(|count| count as f64 * 100.0 / arrivals.len() as f64);
    println!(
        "{name:<28} {take:>8.1} {with_feedback:>14.1} {with_decoding:>14.1} {datagrams:>12.2} {bytes:>8.1}"
    );
}

/// Polls feedback after each packet. A real receiver does so after each batch of packets.
fn report(receiver: &mut Receiver, now: Duration, out: &mut Vec<u8>) {
    while let Some(feedback) = receiver.poll_feedback(now) {
        out.clear();
        assert!(black_box(feedback.encode(out, 1_400)).is_some());
    }
}

fn receiver() -> Receiver {
    let config = ReceiverConfig { feedback_bytes_max: 1_400 };
    Receiver::new(config, 1 << 40, RangeSet::new()).unwrap()
}

fn datagram(arrival: &Arrival) -> Vec<u8> {
    let header = Header { kind: PacketKind::Data, transfer: 1, number: arrival.number };
    let mut datagram = header.encode().to_vec();
    let head = DataHead { sent_us: arrival.sent_us, offset: arrival.range.start, note: arrival.note };
    head.encode(&mut datagram);
    datagram
}

/// The packets of an object that arrive. Lost packets are sent again a round trip later. Every
/// 1000th packet has a note.
fn arrivals(is_lost: impl Fn(u64, u64) -> bool, are_swapped: bool) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let (mut state, mut fresh, mut again) = (7_u64, 0, std::collections::VecDeque::new());
    for number in 0..PACKETS {
        let place = match again.front() {
            Some((due, place)) if *due <= number => {
                let place: u64 = *place;
                again.pop_front();
                place
            }
            _ => {
                fresh += 1;
                fresh - 1
            }
        };
        // Linear congruential generator with the constants of Knuth's MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if is_lost(number, state >> 33) {
            again.push_back((number + FLIGHT, place));
            continue;
        }
        let floor = number.saturating_sub(FLIGHT * 2);
        arrivals.push(Arrival {
            number,
            sent_us: (number / 3) as u32,
            range: place * PAYLOAD..(place + 1) * PAYLOAD,
            note: number.is_multiple_of(1_000).then_some(SenderReport { floor, rtt_us: 2_000 }),
            at: Duration::from_nanos(number * 333 + 1_000_000),
            is_marked: Some(false),
            drops: Some(0),
        });
    }
    if are_swapped {
        for pair in arrivals.chunks_exact_mut(2) {
            pair.swap(0, 1);
            if let [first, second] = pair {
                std::mem::swap(&mut first.at, &mut second.at);
            }
        }
    }
    arrivals
}

fn least_ns(packets: usize, mut work: impl FnMut() -> usize) -> f64 {
    let run = |_| {
        let start = Instant::now();
        assert_eq!(black_box(work()), packets, "each is taken");
        start.elapsed().as_nanos() as f64 / packets as f64
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

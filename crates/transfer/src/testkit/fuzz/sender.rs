//! Fuzzer of the sender.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rangemap::RangeSet;

use crate::proto::controller::FeedbackSample;
use crate::proto::wire::{AckRange, Feedback, GapReport, TimestampEcho, Totals};
use crate::proto::{Controller, LossClassification, SendLimit, Sender, SenderConfig};

/// Runs a sender through the steps that `data` encodes. Each step is a byte and its arguments. In
/// these steps time passes, packets are sent, some packets arrive, and a receiver reports them. One
/// step in sixteen is a false report.
pub fn fuzz_sender(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut next = || bytes.next();
    let (Some(object), Some(payload), Some(rate)) = (next(), next(), next()) else { return };
    let object_bytes = u64::from(object) << 5;
    let config = SenderConfig {
        payload_bytes: u32::from(payload),
        overhead_bytes: 9,
        seed: rate.into(),
        classification: match rate & 7 {
            0 | 2 | 4 => LossClassification::Default,
            6 => LossClassification::Pattern,
            1 => LossClassification::Paper,
            3 => LossClassification::Counter,
            _ => LossClassification::None,
        },
    };
    let controller = Checked { rate: f64::from(rate).exp2() - 1.0, accounted: 0, losses_end: 0 };
    let Ok(mut sender) = Sender::new(config, object_bytes, &RangeSet::new(), Box::new(controller)) else {
        return;
    };
    let (mut now, mut number, mut far) = (Duration::ZERO, 0, Far::default());
    let mut last = Feedback::default();
    while let Some(step) = next() {
        let arg = next().unwrap_or(0);
        match step % 8 {
            0..3 => {
                let payload_bytes = sender.payload_bytes().into();
                for packet in std::iter::from_fn(|| sender.poll_packet(now)).take(arg.into()) {
                    assert!(packet.range.start < packet.range.end && packet.range.end <= object_bytes);
                    assert!(packet.range.end - packet.range.start <= payload_bytes);
                    let bytes = packet.range.end - packet.range.start;
                    let floor = packet.note.map_or(0, |note| note.floor);
                    let sent = Sent { sent_us: packet.sent_us, bytes, floor };
                    assert!(far.sent.insert(packet.number, sent).is_none(), "a number twice");
                }
            }
            3 if step >= 240 => sender.set_payload_bytes(arg.into()),
            3 => now += Duration::from_micros(u64::from(arg) << (step / 8)),
            4 => now = now.max(sender.poll_timeout().unwrap_or(now)).min(now + Duration::from_secs(99)),
            5..7 => {
                // A round trip of up to 32 ms.
                now += Duration::from_millis(u64::from(step / 8));
                number += 1;
                far.arrive(arg);
                last = far.feedback(u32::from(arg) << 3);
                let heard = sender.handle_feedback(now, number, &last);
                assert!(far.has_lied || heard.is_ok(), "{heard:?} of {last:?}");
            }
            // Deliver the last feedback again, with the same or an older number.
            _ if step < 128 => {
                let heard = sender.handle_feedback(now, number.saturating_sub(u64::from(step / 64)), &last);
                assert!(far.has_lied || heard.is_ok(), "{heard:?} of {last:?}");
            }
            _ => {
                far.has_lied = true;
                number += u64::from(step / 32);
                let top = far.sent.last_key_value().map_or(0, |(number, _)| *number);
                let start = if step & 16 == 0 { top.saturating_sub(arg.into()) } else { u64::from(arg) / 4 };
                let feedback = Feedback {
                    start,
                    runs: (0..arg % 5).map(|_| run(&mut next)).collect(),
                    echo: (step & 8 == 0).then_some(TimestampEcho {
                        number: top,
                        sent_us: now.as_micros() as u32,
                        held_us: 9,
                    }),
                    totals: Totals { packets: u64::from(step), ..far.totals },
                };
                // A receiver that breaks the protocol ends the transfer. Here the sender continues,
                // and must still keep its invariants.
                let _ = sender.handle_feedback(now, number, &feedback);
            }
        }
        sender.handle_timeout(now);
        check(&sender, object_bytes);
    }
    finish(&mut sender, now);
}

/// Checks the invariants that must always be true.
fn check(sender: &Sender, object_bytes: u64) {
    let ([counted, summed], kept) = sender.kept();
    assert_eq!(counted, summed);
    assert!(kept <= Sender::PACKETS_MAX);
    let stats = sender.stats();
    assert!(stats.acked_bytes <= object_bytes && stats.spurious_packets <= stats.lost_packets, "{stats:?}");
    let told = stats.lost_host + stats.lost_network + stats.lost_unknown;
    assert!(told <= stats.lost_packets, "{stats:?}");
    assert_eq!(sender.is_done(), stats.acked_bytes == object_bytes);
    assert_eq!(sender.poll_timeout().is_none(), sender.is_done(), "what is not done goes on");
    let rtt = sender.rtt();
    assert!(rtt.latest.is_none_or(|latest| rtt.min <= latest), "{rtt:?}");
    assert!(sender.limit() != SendLimit::Memory, "so much does not fit an object of 8 kB");
}

/// State of the receiving end: which packets were sent, and which of these arrived.
#[derive(Debug, Default)]
struct Far {
    sent: BTreeMap<u64, Sent>,
    came: BTreeSet<u64>,
    floor: u64,
    newest: Option<u64>,
    totals: Totals,
    has_lied: bool,
}

#[derive(Debug)]
struct Sent {
    sent_us: u32,
    bytes: u64,
    floor: u64,
}

impl Far {
    /// Delivers packets that have not arrived so far. Skips some packets, and delivers the
    /// following packets in order or in reverse order.
    fn arrive(&mut self, arg: u8) {
        let (pass, take) = (usize::from(arg >> 5), usize::from(arg & 31));
        let waiting = self.sent.keys().filter(|number| self.floor <= **number && !self.came.contains(number));
        let mut coming: Vec<u64> = waiting.copied().skip(pass).take(take).collect();
        if arg & 1 == 1 {
            coming.reverse();
        }
        for number in coming {
            let Some(sent) = self.sent.get(&number) else { continue };
            self.floor = self.floor.max(sent.floor.min(number));
            self.totals.packets += 1;
            self.totals.bytes += sent.bytes;
            self.totals.marked += u64::from(number % 16 == 3);
            self.came.insert(number);
            self.newest = Some(number);
        }
    }

    /// Returns the report of a receiver, in one datagram.
    fn feedback(&self, held_us: u32) -> Feedback {
        let echo = self.newest.and_then(|number| self.sent.get(&number).map(|sent| (number, sent)));
        let echo = echo.map(|(number, sent)| TimestampEcho { number, sent_us: sent.sent_us, held_us });
        let mut runs: Vec<AckRange> = Vec::new();
        let mut at = self.floor;
        for number in self.came.range(self.floor..) {
            if runs.is_empty() || at < *number {
                // Missing packets belong to the run before them; the first run may have no received
                // packets.
                let missing = (number - at) as u32;
                match runs.last_mut() {
                    Some(run) => (run.missing, run.evidence) = (missing, evidence(at as u8)),
                    None if missing > 0 => {
                        runs.push(AckRange { received: 0, missing, evidence: evidence(at as u8) });
                    }
                    None => {}
                }
                runs.push(AckRange::default());
            }
            if let Some(run) = runs.last_mut() {
                run.received += 1;
            }
            at = number + 1;
        }
        Feedback { start: self.floor, runs, echo, totals: self.totals }
    }
}

/// Only time passes, without packets and reports. Timers must be on time, and their number must be
/// small.
fn finish(sender: &mut Sender, mut now: Duration) {
    let start = now;
    let mut steps = 0;
    while let Some(at) = sender.poll_timeout().filter(|_| now < start + Duration::from_secs(3600)) {
        now = now.max(at);
        sender.handle_timeout(now);
        steps += 1 + std::iter::from_fn(|| sender.poll_packet(now)).count();
        assert!(steps < STEPS_MAX, "{steps} steps in {:?}", now - start);
    }
}

fn run(next: &mut impl FnMut() -> Option<u8>) -> AckRange {
    let mut byte = || next().unwrap_or(0);
    let (received, missing, known) = (byte(), byte(), byte());
    // Returns a count that is usually small and sometimes the maximum.
    let many = |count: u8| if count == u8::MAX { u32::MAX } else { u32::from(count) / 8 };
    AckRange { received: many(received), missing: many(missing), evidence: evidence(known) }
}

fn evidence(known: u8) -> GapReport {
    GapReport {
        host_drops: [None, Some(false), Some(true)][usize::from(known) % 3],
        is_marked: (known & 64 != 0).then_some(known & 128 != 0),
        delay_us: (known & 32 != 0).then_some(u32::from(known) << 24),
    }
}

/// A controller that checks its input.
#[derive(Debug)]
struct Checked {
    rate: f64,
    accounted: u64,
    losses_end: u64,
}

impl Controller for Checked {
    fn on_feedback(&mut self, _: Duration, seen: &FeedbackSample<'_>) {
        for run in seen.taken_back {
            let end = run.at + u64::from(run.packets);
            assert!(run.packets > 0 && end <= self.losses_end, "{run:?} of {}", self.losses_end);
            self.losses_end -= u64::from(run.packets);
            self.accounted -= u64::from(run.packets);
        }
        assert!(self.accounted <= seen.accounted_packets, "the count falls only by what is taken back");
        self.accounted = seen.accounted_packets;
        for loss in seen.losses {
            assert!(self.losses_end <= loss.at && loss.packets > 0, "{loss:?} after {}", self.losses_end);
            self.losses_end = loss.at + u64::from(loss.packets);
        }
    }

    fn on_no_feedback(&mut self, _: Duration) {
        self.rate /= 2.0;
    }

    fn rate_bytes_s(&self) -> f64 {
        self.rate
    }

    fn window_bytes(&self) -> u64 {
        1 << 16
    }
}

/// Maximum number of steps. The number is enough for an object of 8160 bytes in packets of at least
/// one byte. It is also enough for an hour without feedback, with one packet and one timer every
/// four seconds.
const STEPS_MAX: usize = 20_000;

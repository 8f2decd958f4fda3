//! What a sender's fuzzer does.

use std::collections::BTreeSet;
use std::time::Duration;

use rangemap::RangeSet;

use crate::controller::Seen;
use crate::wire::{Echo, Evidence, Feedback, Run, Totals};
use crate::{Controller, Sender, SenderConfig};

/// Does with a sender what `data` says, in steps of a byte and what it needs: time passes, packets go, and a receiver tells truths and lies.
///
/// # Panics
/// When the sender breaks a promise.
pub fn fuzz_sender(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut next = || bytes.next();
    let (Some(object), Some(payload), Some(rate)) = (next(), next(), next()) else { return };
    let object_bytes = u64::from(object) << 5;
    let config = SenderConfig {
        payload_bytes: u32::from(payload),
        overhead_bytes: 9,
        seed: rate.into(),
        has_ear: rate & 1 == 0,
    };
    let controller = Checked { rate: f64::from(rate).exp2() - 1.0, settled: 0, losses_end: 0 };
    let Ok(mut sender) = Sender::new(config, object_bytes, &RangeSet::new(), Box::new(controller)) else {
        return;
    };
    let (mut now, mut number, mut numbers) = (Duration::ZERO, 0, BTreeSet::new());
    while let Some(step) = next() {
        let arg = next().unwrap_or(0);
        match step % 8 {
            0..3 => {
                for packet in std::iter::from_fn(|| sender.poll_packet(now)).take(arg.into()) {
                    assert!(packet.range.start < packet.range.end && packet.range.end <= object_bytes);
                    assert!(numbers.insert(packet.number), "a number twice");
                }
            }
            3 => now += Duration::from_micros(u64::from(arg) << (step / 8)),
            4 => now = now.max(sender.poll_timeout().unwrap_or(now)).min(now + Duration::from_secs(99)),
            _ => {
                number += u64::from(step / 32);
                let top = numbers.last().copied().unwrap_or(0);
                let start = if step & 16 == 0 { top.saturating_sub(arg.into()) } else { u64::from(arg) / 4 };
                let feedback = Feedback {
                    start,
                    runs: (0..arg % 5).map(|_| run(&mut next)).collect(),
                    echo: (step & 8 == 0).then_some(Echo {
                        number: top,
                        sent_us: now.as_micros() as u32,
                        held_us: 9,
                    }),
                    totals: Totals { packets: u64::from(step), ..Totals::default() },
                };
                // A receiver that breaks the protocol is heard no more; here it is, which must not matter.
                let _ = sender.handle_feedback(now, number, &feedback);
            }
        }
        sender.handle_timeout(now);
        let ([counted, summed], kept) = sender.kept();
        assert_eq!(counted, summed);
        assert!(kept <= Sender::PACKETS_MAX);
        let stats = sender.stats();
        assert!(
            stats.acked_bytes <= object_bytes && stats.spurious_packets <= stats.lost_packets,
            "{stats:?}"
        );
        let told = stats.lost_host + stats.lost_network + stats.lost_unknown;
        assert!(told <= stats.lost_packets, "{stats:?}");
        assert_eq!(sender.is_done(), stats.acked_bytes == object_bytes);
        assert_eq!(sender.poll_timeout().is_none(), sender.is_done(), "what is not done goes on");
    }
    finish(&mut sender, now);
}

/// Time alone passes: there are timers, each in its time, and few of them.
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

fn run(next: &mut impl FnMut() -> Option<u8>) -> Run {
    let mut byte = || next().unwrap_or(0);
    let (received, missing, known) = (byte(), byte(), byte());
    // Mostly few, and sometimes as many as there can be.
    let many = |count: u8| if count == u8::MAX { u32::MAX } else { u32::from(count) / 8 };
    let evidence = Evidence {
        host_drops: [None, Some(false), Some(true)][usize::from(known) % 3],
        is_marked: (known & 64 != 0).then_some(known & 128 != 0),
        delay_us: (known & 32 != 0).then_some(u32::from(known) << 24),
    };
    Run { received: many(received), missing: many(missing), evidence }
}

/// Checks what it is told.
#[derive(Debug)]
struct Checked {
    rate: f64,
    settled: u64,
    losses_end: u64,
}

impl Controller for Checked {
    fn name(&self) -> &'static str {
        "checked"
    }

    fn on_feedback(&mut self, _: Duration, seen: &Seen<'_>) {
        assert!(self.settled <= seen.settled_packets, "settled packets never fall");
        self.settled = seen.settled_packets;
        for loss in seen.losses {
            assert!(self.losses_end <= loss.at && 0 < loss.packets, "{loss:?} after {}", self.losses_end);
            self.losses_end = loss.at + u64::from(loss.packets);
        }
    }

    fn on_silence(&mut self, _: Duration) {
        self.rate /= 2.0;
    }

    fn rate_bytes_s(&self) -> f64 {
        self.rate
    }

    fn window_bytes(&self) -> u64 {
        1 << 16
    }
}

/// Of an object of 8160 bytes, in packets of one at the least; in an hour of silence one packet goes in four seconds, and a timer beside it.
const STEPS_MAX: usize = 20_000;

//! Schedule of feedback: when to report.

use std::time::Duration;

use crate::proto::wire::{DATA_HEAD_BYTES, HEADER_BYTES};

/// Computes when the next round of feedback is due. A round is one datagram or several.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    rtt: Option<Duration>,
    /// Arrival time of the first packet that was not reported yet.
    unreported_since: Option<Duration>,
    has_gap: bool,
    is_urgent: bool,
    /// When the last round began, and its number of datagrams.
    last: Option<Duration>,
    datagrams: u32,
    packets: u64,
    /// Number of rounds since the last packet arrived.
    repeats: u32,
    /// Bytes that arrived minus bytes of feedback that was sent.
    pub(super) credit_bytes: u64,
}

impl Schedule {
    /// Sets the round-trip time that the sender measured.
    pub(super) fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = Some(rtt.min(RTT_MAX));
    }

    /// Records a packet to report. The packet arrived at `at`; `opens_gap` if it opened a gap.
    #[inline]
    pub(super) fn on_packet(&mut self, at: Duration, opens_gap: bool) {
        if self.unreported_since.is_none() {
            self.unreported_since = Some(at);
        }
        self.has_gap |= opens_gap;
        self.packets += 1;
        self.repeats = 0;
    }

    /// Makes the next round due at once, because the object is complete.
    pub(super) fn on_complete(&mut self) {
        self.is_urgent = true;
    }

    /// Time when the next round is due, if no packet arrives earlier.
    pub(super) fn due(&self) -> Option<Duration> {
        let rtt = self.rtt.unwrap_or(RTT_UNKNOWN);
        match (self.unreported_since, self.last) {
            (Some(since), None) => Some(since),
            (Some(since), Some(_)) if self.is_urgent => Some(since),
            (Some(_), Some(last)) => {
                let period = rtt / if self.has_gap { PER_RTT_GAP } else { PER_RTT };
                let is_earned = PACKETS_EACH * u64::from(self.datagrams) <= self.packets;
                let rest =
                    if is_earned { Duration::ZERO } else { rtt.clamp(REST_MIN, REST_MAX) * self.datagrams };
                Some(last.saturating_add(period.max(rest)))
            }
            (None, Some(last)) if self.repeats < REPEATS => {
                Some(last.saturating_add(rtt.max(REST_MAX) * (1 << self.repeats)))
            }
            (None, _) => None,
        }
    }

    pub(super) fn begin(&mut self, now: Duration) {
        if self.unreported_since.take().is_none() {
            self.repeats += 1;
        }
        (self.has_gap, self.is_urgent) = (false, false);
        (self.last, self.datagrams, self.packets) = (Some(now), 0, 0);
    }

    /// Increases the credit by the length of a packet that was read. `bytes` is the number of bytes
    /// of the object in the packet.
    #[inline]
    pub(super) fn earn(&mut self, bytes: u64) {
        self.credit_bytes = self.credit_bytes.saturating_add(bytes).saturating_add(PACKET_BYTES);
    }

    /// Counts a datagram of the round, and subtracts its `bytes` from the credit.
    pub(super) fn on_datagram(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes as u64);
    }
}

/// Number of rounds of feedback in a round trip. RFC 5348 §6.2 requires one round. With four
/// rounds, a loss is reported at most a quarter of a round trip late, and the window of the sender
/// grows in four steps.
const PER_RTT: u32 = 4;

/// Number of rounds of feedback in a round trip while a gap was not reported yet.
const PER_RTT_GAP: u32 = 16;

/// Number of received packets for each datagram of feedback. So feedback has 1.6 % of the packets,
/// less than the 2 % that it may have in a fast flow.
const PACKETS_EACH: u64 = 64;

/// Bytes of the header and the head, which a packet has in addition to the bytes of the object.
/// Feedback is also counted with its header. The seals of packets and of feedback are not counted.
const PACKET_BYTES: u64 = (HEADER_BYTES + DATA_HEAD_BYTES) as u64;

/// Longest pause after a round, for each of its datagrams, if fewer packets than [`PACKETS_EACH`]
/// arrive. A thousand small datagrams a second are no load for any path or host.
const REST_MAX: Duration = Duration::from_millis(1);

/// Minimum pause after a round, for each of its datagrams. If a round trip is shorter than 1 ms,
/// the pause is a round trip, so that each round trip has a report. Whatever round trip a sender
/// claims, the receiver sends at most one datagram for each 64 packets, plus ten thousand datagrams
/// a second.
const REST_MIN: Duration = Duration::from_micros(100);

/// Round-trip time that is assumed before the sender reports one. A sender that has no round-trip
/// time yet waits for the first report, so reports are sent every millisecond.
const RTT_UNKNOWN: Duration = Duration::from_millis(1);

/// Maximum round-trip time. A longer time that a sender claims is replaced by this time, because
/// otherwise no report might be sent for minutes. If the real round trip is longer, it has more
/// than four reports.
const RTT_MAX: Duration = Duration::from_secs(1);

/// Number of repeated rounds after the round that reports the last packet. The first repeated round
/// is sent after a round trip (at least 1 ms). Each further round waits twice as long as the round
/// before. If the path loses a tenth of the reports, all six reports of the last packets are lost
/// once in a million cases. In such a case the sender must send a probe.
const REPEATS: u32 = 5;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Number of rounds in one second. A packet arrives each `packet_us`, a round has `datagrams`
    /// datagrams, and a gap occurs after each `gap_each` packets.
    fn rounds(rtt_us: u64, packet_us: f64, datagrams: u32, gap_each: u64) -> usize {
        let mut schedule = Schedule::default();
        schedule.set_rtt(us(rtt_us));
        let (mut rounds, mut packet) = (0, 0_u64);
        loop {
            let at = us((packet as f64 * packet_us) as u64);
            if us(1_000_000) <= at {
                return rounds;
            }
            while schedule.due().is_some_and(|due| due <= at) {
                schedule.begin(schedule.due().unwrap().max(at.saturating_sub(us(packet_us as u64))));
                (0..datagrams).for_each(|_| schedule.on_datagram(60));
                rounds += 1;
            }
            schedule.on_packet(at, packet % gap_each == 1);
            packet += 1;
        }
    }

    #[test]
    fn feedback_is_sent_four_times_per_round_trip_and_below_2_percent() {
        let never = u64::MAX;
        // 100 000 packets a second.
        assert!((39..=41).contains(&rounds(100_000, 10.0, 1, never)), "100 ms: each 25 ms");
        assert!((390..=401).contains(&rounds(10_000, 10.0, 1, never)), "10 ms: each 2.5 ms");
        assert!((1_500..=1_563).contains(&rounds(2_000, 10.0, 1, never)), "2 ms: each 64 packets, 0.64 ms");
        assert!((1_500..=1_563).contains(&rounds(1_000, 10.0, 1, never)), "1 ms: likewise");
        assert!((1_500..=1_563).contains(&rounds(1_000, 10.0, 1, 10)), "gaps make no more of them");
        assert!((4_900..=5_001).contains(&rounds(200, 10.0, 1, never)), "0.2 ms: one a round trip");
        assert!((9_900..=10_001).contains(&rounds(1, 10.0, 1, never)), "ten thousand at most");
        // With a gap in every 10 packets, reports are more frequent.
        assert!((155..=161).contains(&rounds(100_000, 10.0, 1, 10)), "100 ms: each 6.25 ms");
        // Rounds of 20 datagrams, and a million packets a second.
        assert!((39..=41).contains(&rounds(100_000, 1.0, 20, never)), "as often where packets are many");
        assert!((700..=782).contains(&rounds(1_000, 1.0, 20, never)), "each 1280 packets");
        // 100 packets a second, and a round trip of 50 ms.
        assert!((49..=101).contains(&rounds(50_000, 10_000.0, 1, never)), "each packet, or each other");
    }

    #[test]
    fn the_last_report_is_repeated_a_limited_number_of_times() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.due(), None);
        schedule.on_packet(us(500), false);
        assert_eq!(schedule.due(), Some(us(500)), "the first at once");
        schedule.set_rtt(us(8_000));
        schedule.begin(us(600));
        schedule.on_datagram(60);
        schedule.on_packet(us(700), false);
        assert_eq!(schedule.due(), Some(us(2_600)), "a quarter of a round trip later");
        schedule.on_packet(us(800), true);
        assert_eq!(schedule.due(), Some(us(1_600)), "a gap sooner, but not more than one a millisecond");
        schedule.on_complete();
        assert_eq!(schedule.due(), Some(us(700)));
        let mut times = vec![];
        while let Some(due) = schedule.due() {
            schedule.begin(due.max(us(1_000)));
            schedule.on_datagram(60);
            times.push(due.as_micros() as u64);
        }
        assert_eq!(times, [700, 9_000, 25_000, 57_000, 121_000, 249_000]);
    }
}

//! Loss detection: which packets are declared lost, and when.

use std::ops::Range;
use std::time::Duration;

use super::object::Object;
use super::reorder::ReorderingWindow;
use super::sent_packets::{PACKETS_MAX, SentPacket, SentPackets, SentState};
use crate::proto::Rtt;
use crate::proto::loss_attributor::UnattributedLoss;
use crate::proto::wire::Evidence;

/// Detects lost packets by later acknowledgements and by reported gaps.
#[derive(Debug, Default)]
pub(super) struct LossDetector {
    reorder: ReorderingWindow,
    /// All packets below this index are settled.
    settled: u64,
    /// Highest acknowledged index plus one: now, and before the report that is being processed.
    acked_to: u64,
    acked_to_before: u64,
    /// The newest datagram of a report, with the earlier datagrams of this report, covered the
    /// packets below this index.
    surveyed: u64,
    /// Whether the newest report, with those that it continues, covers all packets from the first
    /// unsettled one on.
    is_whole: bool,
    /// Value of `settled` at the end of the last round (or two round trips), and of the one before.
    /// Lost packets below the second are forgotten; others may still arrive.
    round_ends: [u64; 2],
    rounded: Duration,
    has_lost_in_round: bool,
    pub(super) lost_packets: u64,
    /// Lost packets that were acknowledged later.
    pub(super) spurious_packets: u64,
}

impl LossDetector {
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    pub(super) fn ack(&mut self, index: u64) {
        self.acked_to = self.acked_to.max(index + 1);
    }

    /// Records the acknowledgement of a packet that was declared lost.
    pub(super) fn find(&mut self, index: u64, round: u64) {
        self.spurious_packets += 1;
        // The previous report did not include this packet, so all later packets in that report
        // overtook it.
        self.reorder.grow(self.acked_to_before.saturating_sub(index + 1), round);
    }

    /// Updates the index below which reports show which packets are missing.
    ///
    /// A report of many gaps takes several datagrams. If one of these is lost, the packets that it
    /// covered must not count as missing. `covered` are the indices that this datagram covers;
    /// `is_next` if it follows the newest one before it.
    pub(super) fn survey(&mut self, covered: Range<u64>, is_next: bool, sent_packets: &SentPackets) {
        let is_first = sent_packets.next_open(self.settled..covered.start).is_none();
        self.is_whole = is_first || self.is_whole && is_next && covered.start <= self.surveyed;
        if self.is_whole {
            self.surveyed = covered.end;
        }
    }

    pub(super) fn end_report(&mut self) {
        self.acked_to_before = self.acked_to;
    }

    /// Ends the processing of a report with new information; a round may have ended with it.
    pub(super) fn end_round(&mut self, now: Duration, is_round: bool, rtt: &Rtt) {
        if is_round && std::mem::take(&mut self.has_lost_in_round) {
            self.reorder.calm_down();
        }
        // If only the first datagram of each report arrives, rounds do not end; yet the floor must
        // rise.
        if is_round || self.rounded + rtt.longer() * 2 <= now {
            self.rounded = now;
            self.round_ends = [self.settled, self.round_ends[0]];
        }
    }

    /// When the oldest overtaken packet is declared lost.
    pub(super) fn due(&self, sent_packets: &SentPackets, rtt: &Rtt) -> Option<Duration> {
        self.lost_at(sent_packets.next_open(self.settled..self.acked_to)?, sent_packets, rtt)
    }

    fn lost_at(&self, index: u64, sent_packets: &SentPackets, rtt: &Rtt) -> Option<Duration> {
        let sent = Duration::from_nanos(sent_packets.get(index)?.snapshot.sent_ns);
        // If no report has covered the packet, wait longer: such a report may still be in flight.
        let factor = if index < self.surveyed { 1 } else { UNCOVERED_FACTOR };
        Some(sent + self.reorder.time(rtt) * factor)
    }

    /// Declares packets lost that were overtaken long enough ago; and, if the newest report
    /// `is_new`, packets that it covered and that enough others overtook. Calls `lost` with runs of
    /// them.
    pub(super) fn detect(
        &mut self,
        now: Duration,
        is_new: bool,
        rtt: &Rtt,
        sent_packets: &mut SentPackets,
        object: &mut Object,
        mut lost: impl FnMut(UnattributedLoss),
    ) {
        let covered_to = if is_new && self.is_whole { self.surveyed } else { 0 };
        let mut run: Option<UnattributedLoss> = None;
        let mut range = 0..0;
        loop {
            let next = sent_packets.next_open(self.settled..self.acked_to);
            self.settled = next.unwrap_or(self.settled.max(self.acked_to));
            let Some(index) = next else { break };
            let is_overtaken = index < covered_to && self.reorder.packets() < self.acked_to - index;
            if !is_overtaken && self.lost_at(index, sent_packets, rtt).is_none_or(|at| now < at) {
                break;
            }
            let Some(sent) = self.lose(index, sent_packets) else { break };
            if !sent.is_copied {
                if range.end == sent.start {
                    range.end = sent.range().end;
                } else {
                    object.lose(std::mem::replace(&mut range, sent.range()));
                }
            }
            match &mut run {
                Some(run) if run.index + u64::from(run.packets) == index && sent.evidence.is_none() => {
                    run.packets += 1;
                    run.bytes += sent_packets.bytes(&sent);
                }
                _ => {
                    let evidence = sent.evidence.unwrap_or_else(|| evidence_before(index, sent_packets));
                    run.replace(missing(index, &sent, evidence, sent_packets))
                        .into_iter()
                        .for_each(&mut lost);
                }
            }
        }
        object.lose(range);
        run.into_iter().for_each(lost);
    }

    /// Declares the oldest packet lost, to make room for a probe. Its bytes are sent again, unless
    /// a probe carries them.
    pub(super) fn give_up_oldest(
        &mut self,
        sent_packets: &mut SentPackets,
        object: &mut Object,
    ) -> Option<UnattributedLoss> {
        let index = sent_packets.first();
        let is_under_way = sent_packets.get(index).is_some_and(|sent| sent.state == SentState::InFlight);
        let lost = is_under_way.then(|| self.lose(index, sent_packets)).flatten();
        self.settled = self.settled.max(index + 1);
        lost.map(|sent| {
            if !sent.is_copied {
                object.lose(sent.range());
            }
            missing(index, &sent, sent.evidence.unwrap_or_default(), sent_packets)
        })
    }

    fn lose(&mut self, index: u64, sent_packets: &mut SentPackets) -> Option<SentPacket> {
        let sent = sent_packets.settle(index, SentState::Lost)?;
        self.settled = self.settled.max(index + 1);
        self.lost_packets += 1;
        self.has_lost_in_round = true;
        Some(sent)
    }

    /// Lost packets below this index may be forgotten.
    pub(super) fn forgets_below(&self, sent_packets: &SentPackets) -> u64 {
        // A lost packet that is kept takes room from packets to send.
        if sent_packets.len() < PACKETS_MAX / 2 { self.round_ends[1] } else { self.settled }
    }
}

fn missing(
    index: u64,
    sent: &SentPacket,
    evidence: Evidence,
    sent_packets: &SentPackets,
) -> UnattributedLoss {
    UnattributedLoss {
        index,
        packets: 1,
        bytes: sent_packets.bytes(sent),
        sent: Duration::from_nanos(sent.snapshot.sent_ns),
        in_flight_bytes: sent.snapshot.in_flight_bytes,
        evidence,
    }
}

/// Evidence of the gap that continues at this packet.
fn evidence_before(index: u64, sent_packets: &SentPackets) -> Evidence {
    let lost_before = |back: &u64| {
        let sent = index.checked_sub(*back).and_then(|before| sent_packets.get(before));
        sent.filter(|sent| sent.state == SentState::Lost)
    };
    let mut gap = (1..=EVIDENCE_BACK).map_while(|back| lost_before(&back));
    gap.find_map(|sent| sent.evidence).unwrap_or_default()
}

/// Factor on the time until a packet is declared lost that no report covered: the receiver has time
/// to report twice more.
const UNCOVERED_FACTOR: u32 = 3;
/// Maximum number of packets before this one, in the same gap, that are searched for the gap's
/// evidence. A gap is usually declared lost as a whole.
const EVIDENCE_BACK: u64 = 4096;

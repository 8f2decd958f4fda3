//! Loss detection: which packets are declared lost, and when.

use std::ops::Range;
use std::time::Duration;

use super::object::Object;
use super::reorder::ReorderingMargin;
use super::sent_packets::{PACKETS_MAX, SentPacket, SentPackets, SentState};
use crate::proto::Rtt;
use crate::proto::loss_attributor::UnattributedLoss;
use crate::proto::wire::GapReport;

/// Detects lost packets by later acknowledgements and by reported gaps.
#[derive(Debug, Default)]
pub(super) struct LossDetector {
    reorder: ReorderingMargin,
    /// All packets below this index are settled: acknowledged or declared lost.
    settled: u64,
    /// The newest datagram of feedback, with the earlier datagrams of its round of feedback,
    /// covered the packets below this index.
    covered_to: u64,
    /// Whether the newest datagram of feedback, with the earlier datagrams of its round of
    /// feedback, covers all packets from the first unsettled packet on.
    is_whole: bool,
    /// Values of `settled` at the end of the sender's last round, and at the end of the round
    /// before. If no round ends for two round-trip times, the values are updated nevertheless. Lost
    /// packets below the index `round_ends[1]` are forgotten. Lost packets from this index on may
    /// still arrive, and are kept if there is room for them.
    round_ends: [u64; 2],
    /// Time when `round_ends` changed last.
    round_ended: Duration,
    has_lost_in_round: bool,
    pub(super) lost_packets: u64,
    /// Number of lost packets that were acknowledged later.
    pub(super) spurious_packets: u64,
}

/// Packets that the newest datagram of feedback covers.
#[derive(Debug)]
pub(super) struct Coverage {
    /// Indices of these packets.
    pub(super) indices: Range<u64>,
    /// Whether the datagram directly follows the datagram that was the newest before.
    pub(super) is_next: bool,
}

impl LossDetector {
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Records the acknowledgement of a packet that was declared lost. `acked_to_before` is the
    /// highest index that was acknowledged before this feedback, plus one.
    pub(super) fn ack_lost(&mut self, index: u64, acked_to_before: u64, round: u64) {
        self.spurious_packets += 1;
        // The feedback before this one did not acknowledge the packet, so all later packets that
        // were acknowledged before this feedback overtook the packet.
        self.reorder.grow(acked_to_before.saturating_sub(index + 1), round);
    }

    /// Updates what is kept for each round of the sender, after feedback with new information.
    /// `has_round_ended` is true if this feedback ended a round.
    pub(super) fn update_rounds(&mut self, now: Duration, has_round_ended: bool, rtt: &Rtt) {
        if has_round_ended && std::mem::take(&mut self.has_lost_in_round) {
            self.reorder.calm_down();
        }
        // If only the first datagram of each round of feedback arrives, rounds of the sender do not
        // end. Yet the floor of the notes (spec §6, 1) must rise.
        if has_round_ended || self.round_ended + rtt.longer() * 2 <= now {
            self.round_ended = now;
            self.round_ends = [self.settled, self.round_ends[0]];
        }
    }

    /// Time at which the oldest overtaken packet is declared lost.
    pub(super) fn due(&self, sent_packets: &SentPackets, rtt: &Rtt) -> Option<Duration> {
        self.lost_at(sent_packets.next_open(self.settled..sent_packets.acked_to())?, sent_packets, rtt)
    }

    fn lost_at(&self, index: u64, sent_packets: &SentPackets, rtt: &Rtt) -> Option<Duration> {
        let sent = Duration::from_nanos(sent_packets.get(index)?.snapshot.sent_ns);
        // If no feedback has covered the packet, wait longer: such feedback may still be in flight.
        let factor = if index < self.covered_to { 1 } else { UNCOVERED_FACTOR };
        Some(sent + self.reorder.time(rtt) * factor)
    }

    /// Declares lost all packets that were overtaken long enough ago. `coverage` is given for
    /// feedback that is newer than all earlier feedback. Then also declares lost the packets that
    /// this round of feedback covered and that enough other packets overtook. Calls `lost` with
    /// each run of these packets.
    pub(super) fn detect(
        &mut self,
        now: Duration,
        coverage: Option<Coverage>,
        rtt: &Rtt,
        sent_packets: &mut SentPackets,
        object: &mut Object,
        mut lost: impl FnMut(UnattributedLoss),
    ) {
        let missing_below = coverage.map_or(0, |coverage| self.cover(coverage, sent_packets));
        let acked_to = sent_packets.acked_to();
        let mut run: Option<UnattributedLoss> = None;
        let mut range = 0..0;
        loop {
            let next = sent_packets.next_open(self.settled..acked_to);
            self.settled = next.unwrap_or(self.settled.max(acked_to));
            let Some(index) = next else { break };
            let is_overtaken = index < missing_below && self.reorder.packets() < acked_to - index;
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
                    run.replace(unattributed_loss(index, &sent, evidence, sent_packets))
                        .into_iter()
                        .for_each(&mut lost);
                }
            }
        }
        object.lose(range);
        run.into_iter().for_each(lost);
    }

    /// Updates the index below which feedback shows which packets are missing. Returns this index,
    /// or 0 if an earlier datagram of this round of feedback is missing.
    ///
    /// A round of feedback with many gaps takes several datagrams. If one of these datagrams is
    /// lost, the packets that this datagram covered must not count as missing.
    fn cover(&mut self, coverage: Coverage, sent_packets: &SentPackets) -> u64 {
        let Coverage { indices: covered, is_next } = coverage;
        let is_first = sent_packets.next_open(self.settled..covered.start).is_none();
        self.is_whole = is_first || self.is_whole && is_next && covered.start <= self.covered_to;
        if !self.is_whole {
            return 0;
        }
        self.covered_to = covered.end;
        self.covered_to
    }

    /// Declares the oldest packet lost, to make room for a probe. The bytes of this packet are sent
    /// again, unless a probe already carried them.
    pub(super) fn give_up_oldest(
        &mut self,
        sent_packets: &mut SentPackets,
        object: &mut Object,
    ) -> Option<UnattributedLoss> {
        let index = sent_packets.first();
        let is_in_flight = sent_packets.get(index).is_some_and(|sent| sent.state == SentState::InFlight);
        let lost = is_in_flight.then(|| self.lose(index, sent_packets)).flatten();
        self.settled = self.settled.max(index + 1);
        lost.map(|sent| {
            if !sent.is_copied {
                object.lose(sent.range());
            }
            unattributed_loss(index, &sent, sent.evidence.unwrap_or_default(), sent_packets)
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
        // Each lost packet that is kept takes memory that new packets need.
        if sent_packets.len() < PACKETS_MAX / 2 { self.round_ends[1] } else { self.settled }
    }
}

fn unattributed_loss(
    index: u64,
    sent: &SentPacket,
    evidence: GapReport,
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

/// Returns the evidence of the gap that contains this packet.
fn evidence_before(index: u64, sent_packets: &SentPackets) -> GapReport {
    let lost_before = |back: &u64| {
        let sent = index.checked_sub(*back).and_then(|before| sent_packets.get(before));
        sent.filter(|sent| sent.state == SentState::Lost)
    };
    let mut gap = (1..=EVIDENCE_BACK).map_while(|back| lost_before(&back));
    gap.find_map(|sent| sent.evidence).unwrap_or_default()
}

/// Factor on the time until a packet that no feedback covered is declared lost: the receiver has
/// time for two more reports.
const UNCOVERED_FACTOR: u32 = 3;
/// Maximum number of earlier packets in the same gap that are searched for the gap's evidence. A
/// gap is usually declared lost as a whole.
const EVIDENCE_BACK: u64 = 4096;

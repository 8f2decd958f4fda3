//! Which packets are taken for lost, and when.

use std::time::Duration;

use barograph_loss::Cause;

use super::Sender;
use super::book::{Fate, PACKETS_MAX, Sent};
use crate::proto::ear::{Heard, Missing};
use crate::proto::wire::Evidence;

impl Sender {
    /// When the oldest packet that was overtaken counts as lost.
    pub(super) fn loss_at(&self) -> Option<Duration> {
        let oldest = self.book.next_open(self.settled..self.acked_to)?;
        self.lost_at(oldest)
    }

    fn lost_at(&self, index: u64) -> Option<Duration> {
        let sent = Duration::from_nanos(self.book.get(index)?.stamp.sent_ns);
        // Where the receiver has not told of it, its word may be under way still.
        let patience = if index < self.heeded.surveyed { 1 } else { UNTOLD_PATIENCE };
        Some(sent + self.reorder.time(&self.rtt) * patience)
    }

    /// Takes packets for lost that were overtaken by enough packets, of those below `surveyed`, or long enough ago.
    pub(super) fn detect_losses(&mut self, now: Duration, surveyed: u64) {
        let mut run: Option<Missing> = None;
        let mut range = 0..0;
        loop {
            let next = self.book.next_open(self.settled..self.acked_to);
            self.settled = next.unwrap_or(self.settled.max(self.acked_to));
            let Some(index) = next else { break };
            let is_overtaken = index < surveyed && self.reorder.packets() < self.acked_to - index;
            if !is_overtaken && self.lost_at(index).is_none_or(|at| now < at) {
                break;
            }
            let Some(sent) = self.book.get(index).copied() else { break };
            self.book.settle(index, Fate::Lost, self.overhead);
            self.settled = index + 1;
            self.stats.lost_packets += 1;
            self.has_lost_in_round = true;
            if !sent.is_copied {
                if range.end == sent.start {
                    range.end = sent.range().end;
                } else {
                    self.object.lose(std::mem::replace(&mut range, sent.range()));
                }
            }
            let bytes = u64::from(sent.len) + self.overhead;
            match &mut run {
                Some(run) if run.index + u64::from(run.packets) == index && sent.evidence.is_none() => {
                    run.packets += 1;
                    run.bytes += bytes;
                }
                _ => {
                    let evidence = sent.evidence.unwrap_or_else(|| self.evidence_before(index));
                    let stamp = sent.stamp;
                    let (sent, in_flight_bytes) =
                        (Duration::from_nanos(stamp.sent_ns), stamp.in_flight_bytes);
                    let next = Missing { index, packets: 1, bytes, sent, in_flight_bytes, evidence };
                    self.lose(now, run.replace(next));
                }
            }
        }
        self.object.lose(range);
        self.lose(now, run);
    }

    /// Takes the oldest packet for lost, to have room for one that asks for an answer: whatever it carried is sent again.
    pub(super) fn give_up_oldest(&mut self, now: Duration) {
        self.forget();
        let index = self.book.first();
        let is_under_way = |sent: &Sent| sent.fate == Fate::InFlight;
        if self.book.len() < PACKETS_MAX {
            return;
        }
        if let Some(sent) = self.book.get(index).copied().filter(is_under_way) {
            self.book.settle(index, Fate::Lost, self.overhead);
            self.stats.lost_packets += 1;
            self.has_lost_in_round = true;
            if !sent.is_copied {
                self.object.lose(sent.range());
            }
            let missing = Missing {
                index,
                packets: 1,
                bytes: u64::from(sent.len) + self.overhead,
                sent: Duration::from_nanos(sent.stamp.sent_ns),
                in_flight_bytes: sent.stamp.in_flight_bytes,
                evidence: sent.evidence.unwrap_or_default(),
            };
            self.lose(now, Some(missing));
        }
        self.settled = self.settled.max(index + 1);
        self.forget();
    }

    /// What is known of the gap that goes on at this packet.
    fn evidence_before(&self, index: u64) -> Evidence {
        let lost_before = |back: &u64| {
            let sent = index.checked_sub(*back).and_then(|before| self.book.get(before));
            sent.filter(|sent| sent.fate == Fate::Lost)
        };
        let mut gap = (1..=EVIDENCE_BACK).map_while(|back| lost_before(&back));
        gap.find_map(|sent| sent.evidence).unwrap_or_default()
    }

    /// A run of packets was taken for lost.
    fn lose(&mut self, now: Duration, run: Option<Missing>) {
        let Some(missing) = run else { return };
        let moment = self.moment(now);
        match &mut self.ear {
            Some(ear) => ear.lose(moment, missing, &mut self.news.heard),
            None => self.news.heard.push(Heard { missing, cause: Cause::Network, is_taken_back: false }),
        }
    }
}

/// A packet that no report has told of is not taken for lost before the receiver had the time to report again, and again.
const UNTOLD_PATIENCE: u32 = 3;
/// Packets back in a gap, at the most, to where the receiver told of it: a gap is mostly taken for lost at once.
const EVIDENCE_BACK: u64 = 4096;

//! Packets that were sent and may still be acknowledged.

use std::collections::VecDeque;
use std::ops::Range;

use crate::proto::wire::GapReport;

use super::delivery_rate::SendSnapshot;

/// State of each packet that a receiver may still report on, by its index.
///
/// At most [`PACKETS_MAX`] packets are kept, which take 21 MB.
#[derive(Clone, Debug)]
pub(super) struct SentPackets {
    /// Packets from index `first` on.
    packets: VecDeque<SentPacket>,
    first: u64,
    /// Highest acknowledged index plus one.
    acked_to: u64,
    /// One bit for each packet. A bit is 1 if the packet is not acknowledged, so in flight or lost.
    /// A search skips acknowledged packets 64 at a time.
    open: Box<[u64; WORDS]>,
    /// Bytes of a packet in addition to its bytes of the object.
    overhead: u64,
    in_flight_bytes: u64,
    in_flight_packets: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SentPacket {
    /// Offset in the object at which the packet's range starts.
    pub(super) start: u64,
    pub(super) len: u32,
    pub(super) state: SentState,
    /// Whether a probe carries the same bytes. If so, the bytes are not sent again when this packet
    /// is lost.
    pub(super) is_copied: bool,
    pub(super) snapshot: SendSnapshot,
    /// Evidence that the receiver reported for a gap that begins at this packet.
    pub(super) evidence: Option<GapReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentState {
    InFlight,
    Lost,
    Acked,
}

impl SentPacket {
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + u64::from(self.len)
    }
}

impl SentPackets {
    pub(super) fn new(overhead: u64) -> Self {
        Self {
            packets: VecDeque::new(),
            first: 0,
            acked_to: 0,
            open: Box::new([0; WORDS]),
            overhead,
            in_flight_bytes: 0,
            in_flight_packets: 0,
        }
    }

    /// Index of the next packet to be sent.
    pub(super) fn end(&self) -> u64 {
        self.first + self.packets.len() as u64
    }

    /// Lowest index that is still kept.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Highest acknowledged index plus one; 0 if no packet was acknowledged.
    pub(super) fn acked_to(&self) -> u64 {
        self.acked_to
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether all memory is used except the part reserved for probes.
    pub(super) fn is_full(&self) -> bool {
        PACKETS_MAX - PROBES_RESERVED <= self.len()
    }

    /// Bytes of a packet on the wire, headers included.
    pub(super) fn bytes(&self, sent: &SentPacket) -> u64 {
        u64::from(sent.len) + self.overhead
    }

    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    pub(super) fn in_flight_packets(&self) -> u64 {
        self.in_flight_packets
    }

    /// Adds a packet that is sent now. The caller checks that `len` is below [`PACKETS_MAX`].
    pub(super) fn push(&mut self, sent: SentPacket) {
        let index = self.end();
        self.open[word(index)] |= 1 << (index % 64);
        self.packets.push_back(sent);
        self.in_flight_bytes += self.bytes(&sent);
        self.in_flight_packets += 1;
    }

    pub(super) fn get(&self, index: u64) -> Option<&SentPacket> {
        self.packets.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut SentPacket> {
        self.packets.get_mut(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    /// Records that a packet was acknowledged or declared lost, so the packet is no longer in
    /// flight. Returns the previous state of the packet.
    pub(super) fn settle(&mut self, index: u64, state: SentState) -> Option<SentPacket> {
        let sent = self.get_mut(index)?;
        let was = *sent;
        sent.state = state;
        if was.state == SentState::InFlight {
            self.in_flight_bytes = self.in_flight_bytes.saturating_sub(self.bytes(&was));
            self.in_flight_packets = self.in_flight_packets.saturating_sub(1);
        }
        if state == SentState::Acked {
            self.acked_to = self.acked_to.max(index + 1);
            self.open[word(index)] &= !(1 << (index % 64));
        }
        Some(was)
    }

    /// Returns the index of the first packet in the range that is not acknowledged. Such a packet
    /// is in flight or declared lost.
    pub(super) fn next_open(&self, range: Range<u64>) -> Option<u64> {
        let (mut at, end) = (range.start.max(self.first), range.end.min(self.end()));
        while at < end {
            let rest = self.open[word(at)] >> (at % 64);
            if rest != 0 {
                let found = at + u64::from(rest.trailing_zeros());
                return Some(found).filter(|found| *found < end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Whether no packet in the range is acknowledged. Packets that are not kept are ignored.
    pub(super) fn are_open(&self, range: Range<u64>) -> bool {
        let (mut at, end) = (range.start.max(self.first), range.end.min(self.end()));
        while at < end {
            let to = end.min((at / 64 + 1) * 64);
            let wanted = (u64::MAX >> (64 - (to - at))) << (at % 64);
            if self.open[word(at)] & wanted != wanted {
                return false;
            }
            at = to;
        }
        true
    }

    /// Removes the oldest packets as long as they are acknowledged, or lost and below index
    /// `lost_below`.
    pub(super) fn forget(&mut self, lost_below: u64) {
        while let Some(front) = self.packets.front() {
            match front.state {
                SentState::Acked => {}
                SentState::Lost if self.first < lost_below => {
                    self.open[word(self.first)] &= !(1 << (self.first % 64));
                }
                SentState::Lost | SentState::InFlight => break,
            }
            self.packets.pop_front();
            self.first += 1;
        }
    }
}

fn word(index: u64) -> usize {
    (index / 64) as usize % WORDS
}

/// Maximum number of packets that are kept, counted from the oldest kept packet. This number is
/// enough for 30 Gbit/s over 100 ms in packets of 1472 bytes.
pub(super) const PACKETS_MAX: usize = 1 << 18;
/// Number of packets that are reserved for probes when the memory is full. Without feedback, about
/// one probe is sent every 4 s, so the reserve lasts an hour. After an hour, the oldest packet is
/// declared lost for each probe.
pub(super) const PROBES_RESERVED: usize = 1024;
/// Number of words of `open`. The first packet may be in the middle of a word, so `PACKETS_MAX`
/// packets can occupy `PACKETS_MAX / 64 + 1` words; twice `PACKETS_MAX / 64` is enough.
const WORDS: usize = PACKETS_MAX / 64 * 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent_packets(packets: u64) -> SentPackets {
        let mut sent_packets = SentPackets::new(2);
        for start in 0..packets {
            let sent = SentPacket {
                start,
                len: 1,
                state: SentState::InFlight,
                is_copied: false,
                snapshot: SendSnapshot::default(),
                evidence: None,
            };
            sent_packets.push(sent);
        }
        sent_packets
    }

    proptest! {
        #[test]
        fn open_packets_are_found(acked in proptest::collection::btree_set(0u64..400, 0..400), from in 0u64..420, length in 0u64..420) {
            let mut sent_packets = sent_packets(400);
            acked.iter().for_each(|index| _ = sent_packets.settle(*index, SentState::Acked));
            prop_assert_eq!(sent_packets.in_flight_bytes(), 3 * (400 - acked.len() as u64));
            sent_packets.forget(0);
            let range = from..from + length;
            let expected = range.clone().find(|index| *index < 400 && !acked.contains(index));
            prop_assert_eq!(sent_packets.next_open(range.clone()), expected);
            let kept = sent_packets.first()..400;
            let all = range.clone().all(|index| !kept.contains(&index) || !acked.contains(&index));
            prop_assert_eq!(sent_packets.are_open(range), all);
        }
    }

    #[test]
    fn lost_packets_are_kept_until_reported_and_the_ring_wraps() {
        let mut sent_packets = sent_packets(100);
        (0..50).for_each(|index| _ = sent_packets.settle(index, SentState::Lost));
        sent_packets.forget(10);
        assert_eq!(
            (sent_packets.first(), sent_packets.next_open(0..100), sent_packets.in_flight_packets()),
            (10, Some(10), 50)
        );
        // Words are reused, and all their bits are 0 then.
        for turn in 0..3 * WORDS as u64 {
            for _ in 0..64 {
                let index = sent_packets.end();
                sent_packets.push(*sent_packets.get(index - 1).unwrap_or_else(|| panic!("turn {turn}")));
                if let Some(sent) = sent_packets.get_mut(index) {
                    sent.state = SentState::InFlight;
                }
                sent_packets.settle(index - 20, SentState::Acked);
            }
            (10..100).for_each(|index| _ = sent_packets.settle(index, SentState::Acked));
            sent_packets.forget(0);
        }
        assert_eq!((sent_packets.len(), sent_packets.in_flight_packets()), (20, 20));
        assert!(sent_packets.are_open(sent_packets.first()..sent_packets.end()));
    }
}

//! Ranges of the object that are still to be sent.

use std::ops::Range;

use rangemap::RangeSet;

/// State of the object's bytes: acknowledged, lost, or never sent.
///
/// The number of ranges is limited by the caller's `held` and the packets in flight, because new
/// bytes wait until lost bytes were sent again.
#[derive(Clone, Debug)]
pub(super) struct Object {
    bytes: u64,
    /// Ranges that the receiver has.
    held: RangeSet<u64>,
    /// Lost ranges, which are sent again before new ranges.
    lost: RangeSet<u64>,
    /// Next range that was never sent; it ends where the receiver's next range begins.
    new: Range<u64>,
    /// Bytes that the receiver does not have.
    missing: u64,
}

impl Object {
    pub(super) fn new(bytes: u64, held: &RangeSet<u64>) -> Self {
        let mut held_within = RangeSet::new();
        let mut missing = bytes;
        // Ranges beyond the object's end are ignored.
        for range in
            held.iter().map(|range| range.start..range.end.min(bytes)).filter(|range| !range.is_empty())
        {
            missing -= length(&range);
            held_within.insert(range);
        }
        let mut object = Self { bytes, held: held_within, lost: RangeSet::new(), new: 0..0, missing };
        object.new = object.next_new(0);
        object
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Whether any range waits to be sent.
    pub(super) fn has_next(&self) -> bool {
        !self.new.is_empty() || !self.lost.is_empty()
    }

    /// Bytes that the receiver has.
    pub(super) fn held_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.missing)
    }

    /// The range from which [`Object::take`] takes next.
    pub(super) fn next(&self) -> Option<Range<u64>> {
        self.lost.first().cloned().or_else(|| Some(self.new.clone()).filter(|new| !new.is_empty()))
    }

    /// The first range at or after `from` that was never sent; empty if there is none.
    pub(super) fn unsent(&self, from: u64) -> Range<u64> {
        if from < self.new.end { from.max(self.new.start)..self.new.end } else { self.next_new(from) }
    }

    /// Removes and returns the next range to send, of at most `payload` bytes. Lost ranges come
    /// first.
    pub(super) fn take(&mut self, payload: u64) -> Option<Range<u64>> {
        if let Some(range) = self.lost.first() {
            let range = range.start..range.end.min(range.start.saturating_add(payload));
            self.lost.remove(range.clone());
            return Some(range);
        }
        if self.new.is_empty() {
            return None;
        }
        let end = self.new.end.min(self.new.start.saturating_add(payload));
        let range = self.new.start..end;
        self.new.start = end;
        if self.new.is_empty() {
            self.new = self.next_new(end);
        }
        Some(range)
    }

    /// Records that the receiver has this range. Returns how many of its bytes are new.
    pub(super) fn ack(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let fresh = self.held.gaps(&range).map(|gap| length(&gap)).sum();
        if fresh > 0 {
            if !self.lost.is_empty() {
                self.lost.remove(range.clone());
            }
            self.held.insert(range);
            self.missing = self.missing.saturating_sub(fresh);
        }
        fresh
    }

    /// Records that this range was lost. The bytes of the range that the receiver does not have are
    /// sent again.
    pub(super) fn lose(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        for gap in self.held.gaps(&range) {
            self.lost.insert(gap);
        }
    }

    fn next_new(&self, from: u64) -> Range<u64> {
        if self.bytes <= from {
            return from..from;
        }
        self.held.gaps(&(from..self.bytes)).next().unwrap_or(from..from)
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_ranges_are_not_sent_and_lost_ranges_are_sent_first() {
        let held: RangeSet<u64> = [0..10, 25..30, 90..2000].into_iter().collect();
        let mut object = Object::new(100, &held);
        assert_eq!(object.take(8), Some(10..18));
        assert_eq!(object.take(8), Some(18..25));
        object.lose(10..25);
        assert_eq!(object.ack(12..14), 2);
        assert_eq!(object.take(8), Some(10..12));
        assert_eq!(object.take(8), Some(14..22));
        assert_eq!(object.take(8), Some(22..25));
        assert_eq!(object.take(80), Some(30..90));
        assert_eq!((object.take(8), object.has_next(), object.is_complete()), (None, false, false));
        assert_eq!(object.ack(10..90), 73);
        assert!(object.is_complete());
    }

    #[test]
    fn an_empty_object_is_complete() {
        let object = Object::new(0, &RangeSet::new());
        assert!(object.is_complete() && !object.has_next());
    }
}

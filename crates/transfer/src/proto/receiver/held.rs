//! Ranges of the object that the receiver holds.

use std::ops::Range;

use rangemap::RangeSet;

use super::NewBytes;
use crate::proto::wire::NUMBER_MAX;

/// Ranges of the object that the receiver holds. The range that grew last is stored separately, so
/// that a packet that continues this range costs only two comparisons.
#[derive(Debug)]
pub(super) struct ReceivedRanges {
    /// All ranges, without the bytes that were added to `last` since `last` was stored here.
    stored: RangeSet<u64>,
    /// The range that grew last; empty before the first packet.
    last: Range<u64>,
    is_stored: bool,
    /// Start of the next range above `last`.
    room_end: u64,
    bytes: u64,
    object_bytes: u64,
}

impl ReceivedRanges {
    /// Creates the set for an object of `object_bytes`, of which the receiver already holds the
    /// ranges `stored`. Ranges beyond the object's end are ignored.
    pub(super) fn new(object_bytes: u64, mut stored: RangeSet<u64>) -> Self {
        if object_bytes < u64::MAX {
            stored.remove(object_bytes..u64::MAX);
        }
        let bytes = stored.iter().map(|range| range.end - range.start).sum();
        Self { stored, last: 0..0, is_stored: true, room_end: 0, bytes, object_bytes }
    }

    /// Adds `range`, which is within the object. Returns which of its bytes are new. Returns
    /// `None`, and changes nothing, if there would be too many ranges.
    #[inline]
    pub(super) fn take(&mut self, range: &Range<u64>) -> Option<NewBytes> {
        if range.start == self.last.end && range.start < range.end && range.end <= self.room_end {
            self.last.end = range.end;
            self.is_stored = false;
            self.bytes += range.end - range.start;
            return Some(NewBytes::All);
        }
        self.take_apart(range)
    }

    pub(super) fn ranges(&mut self) -> &RangeSet<u64> {
        self.store();
        &self.stored
    }

    pub(super) fn is_complete(&self) -> bool {
        self.bytes == self.object_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.stored.len()
    }

    fn take_apart(&mut self, range: &Range<u64>) -> Option<NewBytes> {
        if range.end <= range.start {
            return Some(NewBytes::Nothing);
        }
        self.store();
        let parts: Vec<Range<u64>> = self.stored.gaps(range).collect();
        if parts.is_empty() {
            return Some(NewBytes::Nothing);
        }
        let is_whole = parts.len() == 1 && parts.first() == Some(range);
        let is_alone = is_whole
            && !self.stored.contains(&range.end)
            && !range.start.checked_sub(1).is_some_and(|before| self.stored.contains(&before));
        if is_alone && self.stored.len() >= RANGES_MAX {
            return None;
        }
        self.bytes += parts.iter().map(|part| part.end - part.start).sum::<u64>();
        self.stored.insert(range.clone());
        self.last = self.stored.get(&range.start).unwrap_or(range).clone();
        // No range ends beyond the object, and no object is longer than [`NUMBER_MAX`].
        let above = self.last.end..self.last.end.max(NUMBER_MAX).saturating_add(1);
        self.room_end = self.stored.gaps(&above).next().map_or(above.end, |gap| gap.end);
        Some(if is_whole { NewBytes::All } else { NewBytes::Parts(parts) })
    }

    fn store(&mut self) {
        if !self.is_stored {
            self.stored.insert(self.last.clone());
            self.is_stored = true;
        }
    }
}

/// Maximum number of ranges, which take 8 MiB. Each lost packet leaves a hole until its bytes are
/// sent again, so this maximum is twice the maximum number of gaps. Only a packet that would begin
/// a new range is refused, so that holes can still be filled.
pub(super) const RANGES_MAX: usize = 1 << 17;

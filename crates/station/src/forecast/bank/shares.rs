//! Number of series of each source, reserved room, and sources that lose series to others.

use std::collections::{BTreeMap, BTreeSet};

use barograph_forecast::Name;

#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// Number of series by source, for sources with any.
    counts: BTreeMap<Name, usize>,
    /// Number of series reserved for each source.
    reserved: BTreeMap<Name, usize>,
    /// Sources that lose series if others need room: members of a mesh and pages, not applications
    /// or this host.
    guests: BTreeSet<Name>,
}

impl Shares {
    pub(super) fn add(&mut self, source: &Name) {
        *self.counts.entry(source.clone()).or_default() += 1;
    }

    pub(super) fn count_again<'a>(&mut self, sources: impl Iterator<Item = &'a Name>) {
        self.counts.clear();
        sources.for_each(|source| self.add(source));
    }

    /// Decreases the number of series of `source` by one.
    pub(super) fn take_one(&mut self, source: &Name) {
        match self.count_of(source) {
            0 | 1 => {
                self.counts.remove(source);
                // The source is marked again when it adds a series.
                self.guests.remove(source);
            }
            count => drop(self.counts.insert(source.clone(), count - 1)),
        }
    }

    pub(super) fn reserve(&mut self, reserved: BTreeMap<Name, usize>) {
        self.reserved = reserved;
    }

    pub(super) fn note_guest(&mut self, source: &Name) {
        if !self.guests.contains(source) {
            self.guests.insert(source.clone());
        }
    }

    /// The guest with the most series beyond its reservation, if one has any.
    pub(super) fn furthest_above_reserve(&self) -> Option<&Name> {
        let above = |guest: &&Name| self.count_of(guest).saturating_sub(self.reserved_for(guest));
        self.guests.iter().max_by_key(above).filter(|guest| 0 < above(guest))
    }

    pub(super) fn count_of(&self, source: &Name) -> usize {
        self.counts.get(source).copied().unwrap_or(0)
    }

    pub(super) fn reserved_for(&self, source: &Name) -> usize {
        self.reserved.get(source).copied().unwrap_or(0)
    }

    /// Number of reserved series that are free; `taken` returns the number of series of a source.
    pub(super) fn unused(&self, taken: impl Fn(&Name) -> Option<usize>) -> usize {
        let unused =
            |(source, reserved): (&Name, &usize)| reserved.saturating_sub(taken(source).unwrap_or(0));
        self.reserved.iter().map(unused).sum()
    }
}

//! How many series each source has and is to find room for, and whose make room for others.

use std::collections::{BTreeMap, BTreeSet};

use barograph_forecast::Name;

#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    /// How many series each source has, where it has any.
    counts: BTreeMap<Name, usize>,
    /// How many series each source is to find room for.
    reserved: BTreeMap<Name, usize>,
    /// Sources whose series make room for others: members of a mesh and pages, not applications or this host.
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

    /// A series of `source` is gone.
    pub(super) fn take_one(&mut self, source: &Name) {
        match self.count_of(source) {
            0 | 1 => {
                self.counts.remove(source);
                // It is noted again with its next series.
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

    /// The guest with the most series beyond its reserve, if one has any.
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

    /// How many of the reserved series are free where each source has `taken`.
    pub(super) fn unused(&self, taken: impl Fn(&Name) -> Option<usize>) -> usize {
        let unused =
            |(source, reserved): (&Name, &usize)| reserved.saturating_sub(taken(source).unwrap_or(0));
        self.reserved.iter().map(unused).sum()
    }
}

//! Number of series of each source, reserved room, and sources that lose series to other sources.

use std::collections::{BTreeMap, BTreeSet};

use barograph_forecast::Name;

#[derive(Clone, Debug, Default)]
pub(super) struct SeriesQuota {
    /// Number of series of each source that has at least one series.
    counts: BTreeMap<Name, usize>,
    /// Number of series reserved for each source.
    reserved: BTreeMap<Name, usize>,
    /// Sources that lose series if others need room: members of a mesh and pages, not applications
    /// or this host.
    evictable: BTreeSet<Name>,
}

impl SeriesQuota {
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
                self.evictable.remove(source);
            }
            count => drop(self.counts.insert(source.clone(), count - 1)),
        }
    }

    pub(super) fn reserve(&mut self, reserved: BTreeMap<Name, usize>) {
        self.reserved = reserved;
    }

    pub(super) fn mark_evictable(&mut self, source: &Name) {
        if !self.evictable.contains(source) {
            self.evictable.insert(source.clone());
        }
    }

    /// The evictable source with the largest number of series beyond its reservation; `None` if no
    /// source has such series.
    pub(super) fn furthest_above_reserve(&self) -> Option<&Name> {
        let above = |source: &&Name| self.count_of(source).saturating_sub(self.reserved_for(source));
        self.evictable.iter().max_by_key(above).filter(|source| above(source) > 0)
    }

    pub(super) fn count_of(&self, source: &Name) -> usize {
        self.counts.get(source).copied().unwrap_or(0)
    }

    pub(super) fn reserved_for(&self, source: &Name) -> usize {
        self.reserved.get(source).copied().unwrap_or(0)
    }

    /// Number of reserved series that are free; `taken` returns the number of series of a source.
    pub(super) fn unused_reserve(&self, taken: impl Fn(&Name) -> Option<usize>) -> usize {
        let unused =
            |(source, reserved): (&Name, &usize)| reserved.saturating_sub(taken(source).unwrap_or(0));
        self.reserved.iter().map(unused).sum()
    }
}

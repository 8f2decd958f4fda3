//! Sequence numbers of one origin that were ever stored, as runs without a gap.
//!
//! This set makes appends idempotent and the watermark correct, also after retention removed the
//! records. A healthy origin has one run, however many records it wrote.

use std::collections::BTreeMap;

/// A set of sequence numbers; all are at least 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeqSet {
    /// First number of a run → its last number. Runs neither overlap nor touch.
    runs: BTreeMap<u64, u64>,
}

impl SeqSet {
    /// Adds `seq`; `false` if the set had it already.
    pub(super) fn insert(&mut self, seq: u64) -> bool {
        let before = self.runs.range(..=seq).next_back().map(|(&first, &last)| (first, last));
        let first = match before {
            Some((_, last)) if seq <= last => return false,
            Some((first, last)) if last + 1 == seq => first,
            _ => seq,
        };
        let last = self.runs.remove(&(seq + 1)).unwrap_or(seq);
        self.runs.insert(first, last);
        true
    }

    /// Adds each number from `first` to `last`; `false` if the set had all of them already.
    pub(super) fn insert_run(&mut self, first: u64, last: u64) -> bool {
        let near: Vec<_> = self.runs_between(first.saturating_sub(1), last.saturating_add(1)).collect();
        if near.iter().any(|&(from, to)| from <= first && last <= to) {
            return false;
        }
        let lowest = near.first().map_or(first, |&(from, _)| from.min(first));
        let highest = near.last().map_or(last, |&(_, to)| to.max(last));
        for (from, _) in near {
            self.runs.remove(&from);
        }
        self.runs.insert(lowest, highest);
        true
    }

    /// Returns whether the run from `first` to `last` overlaps or touches a run of the set. If so,
    /// adding these numbers makes no further run.
    pub(super) fn touches(&self, first: u64, last: u64) -> bool {
        self.runs_between(first.saturating_sub(1), last.saturating_add(1)).next().is_some()
    }

    /// Adds a run that was read from the archive. Runs come in order and do not touch.
    pub(super) fn push_run(&mut self, first: u64, last: u64) {
        self.runs.insert(first, last);
    }

    pub(super) fn contains(&self, seq: u64) -> bool {
        self.runs.range(..=seq).next_back().is_some_and(|(_, &last)| seq <= last)
    }

    /// Highest number; 0 if the set is empty.
    pub(super) fn highest(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(_, &last)| last)
    }

    pub(super) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Returns the runs that overlap the range from `lowest` to `highest`, as (first, last), in
    /// ascending order.
    pub(super) fn runs_between(&self, lowest: u64, highest: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = self.runs.range(..lowest).next_back().filter(|&(_, &last)| lowest <= last);
        before.into_iter().chain(self.runs.range(lowest..=highest)).map(|(&first, &last)| (first, last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn seq_set_equals_a_plain_set_of_numbers(seqs in proptest::collection::vec(1_u64..40, 0..80)) {
            let mut held = SeqSet::default();
            let mut model = BTreeSet::new();
            for seq in seqs {
                prop_assert_eq!(held.contains(seq), model.contains(&seq));
                prop_assert_eq!(held.insert(seq), model.insert(seq));
                let flat: Vec<u64> = held.runs_between(0, 99).flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(flat, model.iter().copied().collect::<Vec<_>>());
                let ends: Vec<_> = held.runs_between(0, 99).collect();
                prop_assert_eq!(ends.len(), held.run_count());
                let mut wider = held.clone();
                let (run, last) = (seq.saturating_sub(2).max(1), seq + 3);
                let touched = held.touches(run, last);
                prop_assert_eq!(wider.insert_run(run, last), !(run..=last).all(|seq| model.contains(&seq)));
                prop_assert!(wider.run_count() <= held.run_count() + usize::from(!touched));
                let union: BTreeSet<u64> = model.iter().copied().chain(run..=last).collect();
                let flat: Vec<u64> = wider.runs_between(0, 99).flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(flat, union.into_iter().collect::<Vec<_>>());
                let ends_wider: Vec<_> = wider.runs_between(0, 99).collect();
                prop_assert!(ends_wider.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{:?}", ends_wider);
                let near: Vec<_> = held.runs_between(seq, seq + 5).collect();
                let expected = ends.iter().copied().filter(|&(first, last)| seq <= last && first <= seq + 5);
                prop_assert_eq!(near, expected.collect::<Vec<_>>());
                prop_assert!(ends.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "runs touch: {:?}", ends);
            }
        }
    }
}

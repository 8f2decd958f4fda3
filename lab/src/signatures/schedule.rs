//! Which runs a round of a set has, and which of them are made at the same time; pure.

use std::collections::BTreeSet;

use super::plan::{Kind, Need};

/// A run of a set. Kind, aim and number determine its design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    /// Whether it aims at the lowest band of losses.
    pub(crate) is_low: bool,
}

/// The runs of a round, one of each kind. In a full set every third round aims at the lowest band.
pub(crate) fn round(round: u64, kinds: &[Kind], is_full: bool) -> Vec<Slot> {
    let is_low = is_full && round % LOW_EVERY == LOW_EVERY - 1;
    let first = round * stride(kinds);
    kinds.iter().zip(first..).map(|(kind, number)| Slot { number, kind: *kind, is_low }).collect()
}

/// The round of a run's number.
pub(crate) fn round_of(number: u64, kinds: &[Kind]) -> u64 {
    number / stride(kinds)
}

/// Numbers of a round: an odd count, so that each kind has even and odd numbers, by which readers
/// halve a set.
fn stride(kinds: &[Kind]) -> u64 {
    kinds.len() as u64 | 1
}

/// Divides runs into groups of at most `at_once` that are made at the same time. Kinds of `alone`
/// have groups of their own.
pub(crate) fn groups(slots: &[Slot], at_once: usize, alone: &BTreeSet<Kind>) -> Vec<Vec<Slot>> {
    let needs = |slot: &Slot| if alone.contains(&slot.kind) { Need::All } else { slot.kind.need() };
    let of = |need: Need| slots.iter().copied().filter(move |slot| needs(slot) == need);
    let mut little = of(Need::Little);
    let beside = |slot: Slot| -> Vec<Slot> {
        std::iter::once(slot).chain(little.by_ref().take(at_once.max(1) - 1)).collect()
    };
    let mut groups: Vec<Vec<Slot>> = of(Need::Much).map(beside).collect();
    let rest: Vec<Slot> = little.collect();
    groups.extend(rest.chunks(at_once.max(1)).map(<[Slot]>::to_vec));
    groups.extend(of(Need::All).map(|slot| vec![slot]));
    groups
}

/// Every third round: the goals at the lowest losses are small, and once the others are reached, no
/// other round takes time.
const LOW_EVERY: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(groups: &[Vec<Slot>]) -> Vec<String> {
        let name =
            |group: &Vec<Slot>| group.iter().map(|slot| slot.kind.to_string()).collect::<Vec<_>>().join("+");
        groups.iter().map(name).collect()
    }

    #[test]
    fn runs_of_the_network_go_in_pairs_and_those_of_the_host_alone() {
        let slots = round(0, &Kind::all(), true);
        let pairs = names(&groups(&slots, 2, &BTreeSet::new()));
        let expected = [
            "tcp+random",
            "red+poisson",
            "codel+cbr",
            "series+onoff",
            "self+incast",
            "outage",
            "gen",
            "preempt",
            "quota",
            "slow",
            "hyb-random",
            "hyb-poisson",
            "hyb-onoff",
            "hyb-tcp",
            "hyb-incast",
        ];
        assert_eq!(pairs, expected);
        let alone = groups(&slots, 1, &BTreeSet::new());
        assert_eq!(alone.len(), slots.len());
        let red: Kind = "red".parse().unwrap();
        let pairs = names(&groups(&slots, 2, &BTreeSet::from([red])));
        assert!(
            pairs.contains(&"red".to_owned()) && pairs.contains(&"codel+poisson".to_owned()),
            "{pairs:?}"
        );
    }

    #[test]
    fn every_run_of_a_round_is_in_one_group() {
        let slots = round(4, &Kind::all(), true);
        for at_once in 0..=4 {
            let mut all = groups(&slots, at_once, &BTreeSet::new()).concat();
            all.sort_by_key(|slot| slot.number);
            assert_eq!(all, slots, "{at_once} at once");
        }
    }

    #[test]
    fn numbers_are_unique_and_each_kind_has_even_and_odd_ones() {
        let kinds = Kind::all();
        let slots: Vec<Slot> = (0..9).flat_map(|number| round(number, &kinds, true)).collect();
        let numbers: BTreeSet<u64> = slots.iter().map(|slot| slot.number).collect();
        assert_eq!(numbers.len(), slots.len());
        for kind in &kinds {
            for is_low in [false, true] {
                let of_kind = slots.iter().filter(|slot| slot.kind == *kind && slot.is_low == is_low);
                let parities: BTreeSet<u64> = of_kind.map(|slot| slot.number % 2).collect();
                assert_eq!(parities.len(), 2, "{kind}, low: {is_low}");
            }
        }
        assert!(slots.iter().all(|slot| numbers.contains(&slot.number) && round_of(slot.number, &kinds) < 9));
        assert_eq!(round_of(round(7, &kinds, true)[19].number, &kinds), 7);
    }

    #[test]
    fn only_a_full_set_aims_at_low_losses() {
        let aims =
            |is_full| (0..6).map(|number| round(number, &Kind::all(), is_full)[0].is_low).collect::<Vec<_>>();
        assert_eq!(aims(true), [false, false, true, false, false, true]);
        assert_eq!(aims(false), [false; 6]);
    }
}

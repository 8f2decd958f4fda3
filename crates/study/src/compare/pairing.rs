//! Pairs the values of two series that are nearest in time (JavaNws §4.2).

use barograph_probe::reduce::median;

/// Two series paired by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairing {
    /// Indices in the first and in the second series, increasing in both.
    pub pairs: Vec<(usize, usize)>,
    /// Number of values of the first series without a partner.
    pub unpaired_a: usize,
    /// Number of values of the second series without a partner.
    pub unpaired_b: usize,
    /// Median time between the two values of a pair, in seconds; 0 without pairs.
    pub time_difference_median_s: f64,
    /// Longest time between the two values of a pair, in seconds; 0 without pairs.
    pub time_difference_max_s: f64,
}

impl Pairing {
    /// Pairs two series of times, in seconds; times must not decrease.
    ///
    /// "Two values taken nearest in time form a pair" (JavaNws §4.2): the two values that are
    /// nearest in time form the first pair. The two nearest of the remaining values form the next
    /// pair, and so on. No value lies between the two values of a pair. So pairs follow each other
    /// in time, and one missing value does not shift all later pairs. If two distances are equal,
    /// the earlier pair is formed first. Takes O(n log n).
    #[must_use]
    pub fn of(a_s: &[f64], b_s: &[f64]) -> Self {
        let order = merged(a_s, b_s);
        let distance_s = |i: usize| order[i + 1].time_s - order[i].time_s;
        let is_pair = |i: &usize| order[*i].of_b != order[i + 1].of_b;
        let mut neighbours: Vec<usize> = (0..order.len().saturating_sub(1)).filter(is_pair).collect();
        neighbours.sort_by(|i, j| distance_s(*i).total_cmp(&distance_s(*j)).then(i.cmp(j)));

        let mut is_taken = vec![false; order.len()];
        let mut distances_s = Vec::new();
        let mut pairs = Vec::new();
        for i in neighbours {
            if is_taken[i] || is_taken[i + 1] {
                continue;
            }
            (is_taken[i], is_taken[i + 1]) = (true, true);
            let (one, other) = (&order[i], &order[i + 1]);
            pairs.push(if one.of_b { (other.index, one.index) } else { (one.index, other.index) });
            // Distances come in ascending order.
            distances_s.push(distance_s(i));
        }
        pairs.sort_unstable();
        Self {
            unpaired_a: a_s.len() - pairs.len(),
            unpaired_b: b_s.len() - pairs.len(),
            time_difference_median_s: median(&distances_s).unwrap_or(0.0),
            time_difference_max_s: distances_s.last().copied().unwrap_or(0.0),
            pairs,
        }
    }
}

/// A value in the common order of time: its time, its series, and its index in that series.
struct TimedIndex {
    time_s: f64,
    of_b: bool,
    index: usize,
}

/// Both series in one order of time; at equal times the first series comes first.
fn merged(a_s: &[f64], b_s: &[f64]) -> Vec<TimedIndex> {
    let indices = |times_s: &[f64], of_b: bool| -> Vec<TimedIndex> {
        times_s
            .iter()
            .enumerate()
            .map(|(index, time_s)| TimedIndex { time_s: *time_s, of_b, index })
            .collect()
    };
    let mut order = indices(a_s, false);
    order.extend(indices(b_s, true));
    // A stable sort, which is fast on two runs that are sorted already.
    order.sort_by(|one, other| one.time_s.total_cmp(&other.time_s));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_nearest_values_are_paired_and_unpaired_values_are_counted() {
        let pairing = Pairing::of(&[0.0, 10.0, 20.0, 30.0], &[1.0, 19.5, 22.0]);
        assert_eq!(pairing.pairs, [(0, 0), (2, 1), (3, 2)], "22 is nearest to 20, but 19.5 is nearer still");
        assert_eq!((pairing.unpaired_a, pairing.unpaired_b), (1, 0));
        assert_eq!((pairing.time_difference_median_s, pairing.time_difference_max_s), (1.0, 8.0));
    }

    #[test]
    fn values_measured_in_alternating_order_are_paired_correctly() {
        // The values come in the order A B, B A, A B. The two values of each pair are 1 s apart,
        // and 3 s lie between two pairs.
        let pairing = Pairing::of(&[0.0, 5.0, 8.0], &[1.0, 4.0, 9.0]);
        assert_eq!(pairing.pairs, [(0, 0), (1, 1), (2, 2)]);
        assert_eq!((pairing.unpaired_a, pairing.unpaired_b, pairing.time_difference_max_s), (0, 0, 1.0));
    }

    #[test]
    fn a_pause_of_one_series_shifts_no_pair() {
        let a: Vec<f64> = (0..100).map(f64::from).collect();
        let b: Vec<f64> = a.iter().filter(|t| !(40.0..60.0).contains(*t)).map(|t| t + 0.1).collect();
        let pairing = Pairing::of(&a, &b);
        assert_eq!((pairing.pairs.len(), pairing.unpaired_a, pairing.unpaired_b), (80, 20, 0));
        assert!(pairing.pairs.iter().all(|(i, j)| (b[*j] - a[*i] - 0.1).abs() < 1e-9));
    }

    #[test]
    fn empty_and_extreme_series_are_paired() {
        assert_eq!(Pairing::of(&[], &[]), Pairing::default());
        assert_eq!(Pairing::of(&[1.0], &[]).unpaired_a, 1);
        let same = Pairing::of(&[3.0; 4], &[3.0; 4]);
        assert_eq!((same.pairs.len(), same.time_difference_max_s), (1, 0.0), "time cannot tell them apart");
        assert_eq!(Pairing::of(&[-1e308], &[1e308]).pairs, [(0, 0)], "however far");
    }

    fn times() -> impl Strategy<Value = Vec<f64>> {
        // All times are distinct, because for equal times the result would depend on their order.
        prop::collection::btree_set(0..100_000u32, 0..60)
            .prop_map(|set| set.into_iter().map(|t| f64::from(t) / 7.0).collect())
    }

    proptest! {
        #[test]
        fn pairs_are_in_time_order_and_leave_no_unpaired_neighbours(a in times(), b in times()) {
            let Pairing { pairs, unpaired_a, unpaired_b, time_difference_max_s, time_difference_median_s } = Pairing::of(&a, &b);
            prop_assert!(pairs.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1));
            prop_assert_eq!((pairs.len() + unpaired_a, pairs.len() + unpaired_b), (a.len(), b.len()));
            prop_assert_eq!(pairs.is_empty(), a.is_empty() || b.is_empty());
            prop_assert!(time_difference_median_s <= time_difference_max_s);
            // Two neighbours from different series cannot both be without a partner, because they
            // would form a pair.
            let mut left: Vec<(f64, bool, bool)> = Vec::new();
            for (times, of_b) in [(&a, false), (&b, true)] {
                let is_paired = |i: usize| pairs.iter().any(|pair| i == if of_b { pair.1 } else { pair.0 });
                left.extend(times.iter().enumerate().map(|(i, time)| (*time, of_b, is_paired(i))));
            }
            left.sort_by(|one, other| one.0.total_cmp(&other.0));
            prop_assert!(left.windows(2).all(|two| two[0].1 == two[1].1 || two[0].2 || two[1].2));
        }

        #[test]
        fn swapping_the_series_gives_the_same_pairs(a in times(), b in times()) {
            prop_assume!(a.iter().all(|time| !b.contains(time)));
            let mirrored: Vec<_> = Pairing::of(&b, &a).pairs.into_iter().map(|(i, j)| (j, i)).collect();
            prop_assert_eq!(Pairing::of(&a, &b).pairs, mirrored);
        }
    }
}

//! Order of windows for fitting, and assignment of runs to parts.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::LabelledWindow;

/// Sorts the windows. The order of the numbers changes the last digits of a sum, and a model should
/// not depend on the order of the files.
pub(super) fn in_order<'a>(windows: impl IntoIterator<Item = &'a LabelledWindow>) -> Vec<&'a LabelledWindow> {
    let mut windows: Vec<_> = windows.into_iter().collect();
    windows.sort_by(|one, other| compare(one, other));
    windows
}

/// Compares windows by all values that the fit uses.
fn compare(one: &LabelledWindow, other: &LabelledWindow) -> Ordering {
    let names = |window: &LabelledWindow| (window.metrics.packets, window.cause, window.metrics.lost);
    let known =
        |window: &LabelledWindow| (window.evidence.burst, window.evidence.host_drops, window.evidence.marks);
    let delay_s = |window: &LabelledWindow| window.evidence.delay_s.unwrap_or(f64::NEG_INFINITY);
    names(one)
        .cmp(&names(other))
        .then_with(|| (&one.kind, &one.run).cmp(&(&other.kind, &other.run)))
        .then_with(|| known(one).cmp(&known(other)))
        .then_with(|| delay_s(one).total_cmp(&delay_s(other)))
        .then_with(|| {
            let gaps = |window: &'_ LabelledWindow| {
                window.signature.loss_runs().map(|gap| (gap.received, gap.lost)).collect::<Vec<_>>()
            };
            gaps(one).cmp(&gaps(other))
        })
}

/// Assigns each run to one of `parts`. Each run has a kind. The runs of each kind are assigned to
/// the parts one after another, so that each part has runs of every kind. The runs are assigned in
/// the order of their names, unless `arrange` changes this order.
///
/// A run with two kinds counts as a run of the kind that comes first in alphabetical order. If
/// `parts` is 0, there is one part.
///
/// ```
/// use barograph_loss::assign_folds;
///
/// let runs = [("tcp", "r1"), ("tcp", "r3"), ("gen", "r2"), ("tcp", "r1")];
/// let part_of = assign_folds(runs, 2, |_| ());
/// assert_eq!((part_of["r2"], part_of["r1"], part_of["r3"]), (0, 1, 0));
/// ```
pub fn assign_folds<'a>(
    runs: impl IntoIterator<Item = (&'a str, &'a str)>,
    parts: usize,
    mut arrange: impl FnMut(&mut Vec<&'a str>),
) -> BTreeMap<&'a str, usize> {
    let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (kind, run) in runs {
        kinds.entry(kind).or_default().insert(run);
    }
    let mut part_of = BTreeMap::new();
    for runs in kinds.into_values() {
        let mut runs: Vec<_> = runs.into_iter().collect();
        arrange(&mut runs);
        for run in runs {
            let next = part_of.len() % parts.max(1);
            part_of.entry(run).or_insert(next);
        }
    }
    part_of
}

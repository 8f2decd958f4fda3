//! Whether further evidence ever lowers the share of right verdicts: verdicts by kind, cause and
//! evidence.

use std::collections::BTreeSet;

use barograph_loss::Label;

use super::judge::{Judged, Kinds, Method, VerdictOutcome, cause_name, is_in_range, percent, runs, those};
use crate::table::{Table, cells};

/// Sets of evidence that are compared. The kernel's counter is left out, because it is the label.
const SETS: [Method; 4] = [Method::Pattern, Method::Burst, Method::DelayAlone, Method::Delay];

/// Indices in [`SETS`]: the second set has all evidence of the first set, and more.
const FURTHER: [(usize, usize); 5] = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)];

/// Largest number of points by which further evidence may lower the share of right verdicts.
const LOWERED_MAX: f64 = 1.0;

/// Table of the windows of this length, one row for each kind and cause, in the range of the
/// classifiers.
pub(crate) fn matrix(judged: &[Judged<'_>], packets: u32) -> String {
    let judged = those(judged, |window| window.signature.packets() == packets && is_in_range(window));
    let mut table = Table::new(["kind", "cause", "windows (runs)"])
        .text_columns(2)
        .and(SETS.map(Method::name))
        .and(["lowered by, points"]);
    let mut lowered_most: f64 = 0.0;
    for cause in [Label::Host, Label::Network] {
        let of_cause = those(judged.iter().copied(), |window| window.cause == cause);
        let kinds: BTreeSet<&str> = of_cause.iter().map(|judged| judged.window.kind.as_str()).collect();
        for kind in kinds.into_iter().map(Some).chain([None]) {
            let has = |of: &str| kind.map_or(Kinds::All.has(of), |kind| kind == of);
            let of = those(of_cause.iter().copied(), |window| has(&window.kind));
            if of.is_empty() {
                continue;
            }
            let shares = SETS.map(|method| Shares::of(&of, method));
            let lowered = lowered_by(&shares);
            lowered_most = lowered_most.max(lowered);
            let first = cells![
                kind.unwrap_or(Kinds::All.name()),
                cause_name(cause),
                format!("{} ({})", of.len(), runs(&of))
            ];
            let cells = shares.iter().map(Shares::cell);
            table.push(first.into_iter().chain(cells).chain([percent(lowered / 100.0)]));
        }
    }
    let met = if lowered_most <= LOWERED_MAX { "met" } else { "missed" };
    format!(
        "{table}\nFloor: further evidence lowers the share of right verdicts by at most {LOWERED_MAX} point in every row: {lowered_most:.1} at the most, {met}.\n"
    )
}

/// Shares of the verdicts on windows with one cause, 0 to 1.
struct Shares {
    right: f64,
    wrong: f64,
    hybrid: f64,
    inconclusive: f64,
}

impl Shares {
    fn of(judged: &[&Judged<'_>], method: Method) -> Self {
        let share = |outcome| {
            let count = judged.iter().filter(|judged| judged.outcome(method) == outcome).count();
            count as f64 / judged.len() as f64
        };
        Self {
            right: share(VerdictOutcome::Right),
            wrong: share(VerdictOutcome::Wrong),
            hybrid: share(VerdictOutcome::Hybrid),
            inconclusive: share(VerdictOutcome::Inconclusive),
        }
    }

    fn cell(&self) -> String {
        let hybrid = if self.hybrid > 0.0 { format!(" + {}", percent(self.hybrid)) } else { String::new() };
        let [right, wrong, inconclusive] = [self.right, self.wrong, self.inconclusive].map(percent);
        format!("{right} / {wrong} / {inconclusive}{hybrid}")
    }
}

/// Largest number of points by which further evidence lowers the share of right verdicts; 0 if it
/// lowers none.
fn lowered_by(shares: &[Shares; SETS.len()]) -> f64 {
    let lowered = |(less, more): (usize, usize)| 100.0 * (shares[less].right - shares[more].right);
    FURTHER.into_iter().map(lowered).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use barograph_loss::{Classifier, PaperClassifier};

    use super::super::judge::Models;
    use super::super::judge::tests::made;
    use super::*;

    #[test]
    fn the_largest_loss_by_further_evidence_is_found() {
        let of = |right: [f64; 4]| {
            lowered_by(&right.map(|right| Shares {
                right,
                wrong: 0.0,
                hybrid: 0.0,
                inconclusive: 1.0 - right,
            }))
        };
        assert_eq!(of([0.5, 0.5, 0.75, 0.75]), 0.0);
        assert_eq!(of([0.5, 0.75, 0.25, 0.5]), 25.0);
        assert_eq!(of([0.25, 0.25, 1.0, 0.5]), 50.0);
        // The delay is no further evidence than the burst.
        assert_eq!(of([0.25, 1.0, 0.25, 1.0]), 0.0);
    }

    #[test]
    fn the_matrix_has_a_row_for_each_kind_and_one_for_all() {
        let windows = made(20_000, 2, 3, 5);
        let models = Models::new(PaperClassifier::shipped(), Classifier::shipped());
        let judged = models.classify(&windows);
        let text = matrix(&judged, 20_000);
        assert_eq!(text.matches(Kinds::All.name()).count(), 2, "{text}");
        assert!(text.contains("6 (2)") && text.contains("Floor: further evidence"), "{text}");
        assert_eq!(matrix(&judged, 10_000).matches(Kinds::All.name()).count(), 0);
    }
}

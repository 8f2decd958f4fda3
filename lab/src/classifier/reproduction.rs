//! The paper's classifier here against the same in an earlier experiment of ours: what of a difference is the sample, and what the fit.

use barograph_loss::{Cause, Labelled, PaperClassifier, fit_paper};

use super::judge::{Judged, Method, Models, Outcome, Split, parts_of};
use super::kinds::{BANDS, FLOORS_AT, Kinds, band_of, cause_name, is_in_range};
use super::rates::{cell, percent, rates};
use super::references::{EARLIER, Earlier};
use crate::stats::range;
use crate::table::{Table, cells};

/// The table; nothing where a cause has no window of the paper's kinds.
pub(crate) fn table(windows: &[Labelled], seed: u64) -> anyhow::Result<String> {
    let compared: Vec<&Labelled> = windows.iter().filter(|window| is_compared(window)).collect();
    let of = |cause| compared.iter().copied().filter(|window| window.cause == cause).collect::<Vec<_>>();
    let causes = [Cause::Host, Cause::Network].map(|cause| (cause, of(cause)));
    if causes.iter().any(|(_, of)| of.is_empty()) {
        return Ok(String::new());
    }
    let header = causes.iter().flat_map(|(cause, of)| {
        [format!("{}, {} windows", cause_name(*cause), of.len()), "within 3 points".to_owned()]
    });
    let mut table = Table::new([format!("windows of {FLOORS_AT} packets, the paper's kinds")]).and(header);
    let mut add = |name: &str, cells: [[String; 2]; 2]| {
        table.push(cells![name].into_iter().chain(cells.into_iter().flatten()));
    };
    add(
        "the earlier experiment, twice as many runs, five-fold",
        causes_of(|cause| [earlier(cause).map_or(String::new(), Earlier::papers), String::new()]),
    );
    let owned: Vec<Labelled> = compared.iter().copied().cloned().collect();
    for (name, model) in [
        ("its curves, as they are, on these windows", PaperClassifier::read(CURVES)?),
        ("ours, fitted on these windows themselves", fit_paper(&owned)?.classifier),
    ] {
        let judged = Models::of_papers(model).judge(&owned);
        add(name, causes_of(|cause| judged_cells(&judged, cause, seed)));
    }
    let judged = Split::Five.judge(windows, seed)?;
    let five: Vec<Judged<'_>> = judged.into_iter().filter(|judged| is_compared(judged.window)).collect();
    add("ours, five-fold, this seed's parts", causes_of(|cause| judged_cells(&five, cause, seed)));
    let dealt: Vec<Dealt> =
        (0..DEALS).map(|deal| Dealt::new(windows, seed + deal)).collect::<anyhow::Result<_>>()?;
    add(
        &format!("…, parts dealt {DEALS} times: mean [least, most right]"),
        causes_of(|cause| mean_cells(&dealt, cause, |dealt| dealt.shares(cause))),
    );
    add(
        "…, bands of loss as frequent as in the earlier experiment",
        causes_of(|cause| mean_cells(&dealt, cause, |dealt| dealt.shares_by_band(cause))),
    );
    Ok(format!("{LEGEND}{table}"))
}

const LEGEND: &str = "\n## The paper's classifier against an earlier experiment\n\nRight [interval] / wrong / inconclusive, %, loss 0.00008–0.05; is right within 3 points \
    of the earlier experiment's, and wrong at most 3 points above?\n\n";

fn causes_of(cells: impl Fn(Cause) -> [String; 2]) -> [[String; 2]; 2] {
    [Cause::Host, Cause::Network].map(cells)
}

fn is_compared(window: &Labelled) -> bool {
    window.signature.packets() == FLOORS_AT && Kinds::Papers.has(&window.kind) && is_in_range(window)
}

fn earlier(cause: Cause) -> Option<&'static Earlier> {
    EARLIER.iter().find(|earlier| (earlier.kinds, earlier.cause) == (Kinds::Papers, cause))
}

fn judged_cells(judged: &[Judged<'_>], cause: Cause, seed: u64) -> [String; 2] {
    let of: Vec<&Judged<'_>> = judged.iter().filter(|judged| judged.window.cause == cause).collect();
    let found = rates(&of, Method::Paper, seed);
    let verdict = found
        .as_ref()
        .zip(earlier(cause))
        .map(|(found, earlier)| earlier.is_near(found.right.value, found.wrong.value));
    [cell(found.as_ref()), verdict.unwrap_or_default()]
}

/// What one deal of the runs into fifths comes to: windows by cause, band and outcome.
struct Dealt([[[u32; 3]; BANDS.len() - 1]; 2]);

impl Dealt {
    /// Each fifth is judged by curves fitted on the other four.
    fn new(windows: &[Labelled], seed: u64) -> anyhow::Result<Self> {
        let part_of = parts_of(windows, PARTS, seed);
        let mut counts = Self(Default::default());
        for part in 0..PARTS {
            let is_judged = |window: &&Labelled| part_of[window.run.as_str()] == part;
            let compared = || windows.iter().filter(|window| is_compared(window));
            let fitted: Vec<Labelled> = compared().filter(|window| !is_judged(window)).cloned().collect();
            let model = fit_paper(&fitted)?.classifier;
            for window in compared().filter(is_judged) {
                let outcome = Outcome::of(model.diagnose(&window.metrics).verdict, window.cause);
                counts.0[index(window.cause)][band_of(window)][outcome_index(outcome)] += 1;
            }
        }
        Ok(counts)
    }

    /// Right, wrong, inconclusive.
    fn shares(&self, cause: Cause) -> [f64; 3] {
        let of = &self.0[index(cause)];
        let all: u32 = of.iter().flatten().sum();
        [0, 1, 2].map(|outcome| of.iter().map(|band| f64::from(band[outcome])).sum::<f64>() / f64::from(all))
    }

    /// The same if each band had as many windows as the earlier experiment's; of a band without windows here nothing is known, and it is left out.
    fn shares_by_band(&self, cause: Cause) -> [f64; 3] {
        let (mut sums, mut weights) = ([0.0; 3], 0.0);
        for (band, weight) in self.0[index(cause)].iter().zip(EARLIER_BANDS[index(cause)]) {
            let all: u32 = band.iter().sum();
            if 0 < all {
                weights += weight;
                for (sum, count) in sums.iter_mut().zip(band) {
                    *sum += weight * f64::from(*count) / f64::from(all);
                }
            }
        }
        sums.map(|sum| sum / weights)
    }
}

fn mean_cells(dealt: &[Dealt], cause: Cause, shares: impl Fn(&Dealt) -> [f64; 3]) -> [String; 2] {
    let all: Vec<[f64; 3]> = dealt.iter().map(shares).collect();
    let [right, wrong, inconclusive] =
        [0, 1, 2].map(|outcome| all.iter().map(|shares| shares[outcome]).sum::<f64>() / all.len() as f64);
    let (least, most) = range(all.iter().map(|shares| shares[0]));
    let shown = format!(
        "{} [{}, {}] / {} / {}",
        percent(right),
        percent(least),
        percent(most),
        percent(wrong),
        percent(inconclusive)
    );
    [shown, earlier(cause).map_or(String::new(), |earlier| earlier.is_near(right, wrong))]
}

fn index(cause: Cause) -> usize {
    usize::from(cause != Cause::Host)
}

fn outcome_index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Right => 0,
        Outcome::Wrong => 1,
        Outcome::Hybrid | Outcome::Inconclusive => 2,
    }
}

/// As the other tables have.
const PARTS: usize = 5;

/// Their spread is that of the luck of a deal; with 30 its mean is known to a sixth of that.
const DEALS: u64 = 30;

/// Windows of the earlier experiment in each of [`BANDS`], CPU and network.
const EARLIER_BANDS: [[f64; BANDS.len() - 1]; 2] = [[3.0, 10.0, 63.0, 97.0], [108.0, 86.0, 74.0, 182.0]];

/// What the earlier experiment fitted on all its windows of this length, these among them.
const CURVES: &str = "format = \"barograph-loss-paper\"
version = 1
fitted_on = { windows = 623, runs = 0 }

[[models]]
packets = 20000
windows = 623
low = { cpu = { mean = 0.76, sd = 0.05 }, network = { mean = 0.07, sd = 0.17 } }
cpu = { a = 0.305, b = -0.19, sd = 0.014 }
network = { a = 0.469, b = 5.48, c = -0.262, d = -304.0, sd = 0.053 }
";

#[cfg(test)]
mod tests {
    use super::super::judge::tests::made;
    use super::*;

    #[test]
    fn the_earlier_curves_are_read_and_windows_of_the_other_kinds_change_nothing() {
        let mut windows = made(FLOORS_AT, 6, 12, 3);
        let text = table(&windows, 1).unwrap();
        assert!(text.contains("its curves, as they are") && text.contains("dealt 30 times"), "{text}");
        let mut others = made(FLOORS_AT, 6, 12, 4);
        others.iter_mut().for_each(|window| {
            window.kind = "slow".to_owned();
            window.run = format!("other {}", window.run);
        });
        windows.extend(others);
        // Other kinds have other runs, which changes how these are dealt; nothing that is not dealt changes.
        let with_others = table(&windows, 1).unwrap();
        let fixed = |text: &str| {
            text.lines()
                .filter(|line| line.contains("themselves") || line.contains("its curves"))
                .collect::<String>()
        };
        assert_eq!(fixed(&with_others), fixed(&text));
        windows.retain(|window| window.kind == "slow");
        assert_eq!(table(&windows, 1).unwrap(), "");
    }

    #[test]
    fn bands_count_as_often_as_in_the_earlier_experiment() {
        let mut dealt = Dealt(Default::default());
        // Network: 1 of 2 right in the first band, 3 of 3 wrong in the last; the others have none.
        dealt.0[1][0] = [1, 0, 1];
        dealt.0[1][3] = [0, 3, 0];
        assert_eq!(dealt.shares(Cause::Network), [0.2, 0.6, 0.2]);
        let [right, wrong, inconclusive] = dealt.shares_by_band(Cause::Network);
        assert!((right - 54.0 / 290.0).abs() < 1e-12 && (inconclusive - right).abs() < 1e-12);
        assert!((wrong - 182.0 / 290.0).abs() < 1e-12);
    }

    #[test]
    fn nearness_is_of_both_numbers() {
        let earlier = earlier(Cause::Network).unwrap();
        assert_eq!([earlier.is_near(0.81, 0.05), earlier.is_near(0.86, 0.0)], ["met", "met"]);
        assert_eq!(earlier.is_near(0.735, 0.02), "missed by 6.8");
        assert_eq!(earlier.is_near(0.833, 0.088), "missed by 2.0");
    }
}

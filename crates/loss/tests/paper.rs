//! The paper's classifier on real labelled signatures, if they are beside the repository.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "what the default classifier is told of a window")]
mod open;

use barograph_loss::{
    Evidence, FitReport, Label, LabelledWindow, PAPER_KINDS, PaperClassifier, Verdict, assign_folds,
    fit_paper,
};

#[test]
fn the_shipped_model_equals_the_fit_on_the_papers_kinds() {
    let Some(windows) = windows() else { return };
    let windows: Vec<_> = windows.into_iter().filter(is_papers).collect();
    let fit = fit_paper(&windows).unwrap();
    assert_eq!(fit.left_out, []);
    for report in FitReport::of(&fit.classifier, &windows) {
        println!("{report:#?}");
        for curve in [&report.network, &report.host] {
            assert!(curve.within.is_some_and(|shares| shares[1] > 0.9), "far from normal: {report:?}");
        }
    }
    assert_eq!(fit.classifier, PaperClassifier::shipped(), "scripts/fit-models makes the shipped one");
}

/// The published shares of right / wrong / inconclusive windows are 76.3 / 0.6 / 23.1 for the CPU
/// and 83.3 / 3.8 / 12.9 for the network, on twice as many runs. The limits are loose enough for
/// fewer runs, and strict enough to reject a classifier that guesses.
#[test]
fn held_out_runs_are_classified_at_the_published_rates() {
    let Some(windows) = windows() else { return };
    for packets in [10_000, 20_000, 100_000] {
        for (kinds, is_of) in
            [("the paper's kinds", is_papers as fn(&LabelledWindow) -> bool), ("all but outage", is_pure)]
        {
            let windows: Vec<_> = windows
                .iter()
                .filter(|window| window.metrics.packets == packets && is_of(window))
                .cloned()
                .collect();
            for (cause, [right, wrong, inconclusive]) in
                [Label::Host, Label::Network].into_iter().zip(held_out(&windows))
            {
                let all = right + wrong + inconclusive;
                let [right, wrong, inconclusive] =
                    [right, wrong, inconclusive].map(|count| 100.0 * f64::from(count) / f64::from(all));
                println!(
                    "{packets} packets, {kinds}, {cause:?}: {right:.1} / {wrong:.1} / {inconclusive:.1} of {all}"
                );
                if packets == 20_000 && kinds == "the paper's kinds" {
                    assert!(right > 65.0 && wrong < 6.0);
                }
            }
        }
    }
}

/// Counts right, wrong and inconclusive windows of the host and of the network. A model that was
/// fitted on the other four fifths of the runs judges each window. Without a model, all windows are
/// inconclusive.
fn held_out(windows: &[LabelledWindow]) -> [[u32; 3]; 2] {
    let folds =
        assign_folds(windows.iter().map(|window| (window.kind.as_str(), window.run.as_str())), 5, |_| ());
    let mut counts = [[0; 3]; 2];
    for fold in 0..5 {
        let (tested, fitted): (Vec<_>, Vec<_>) =
            windows.iter().cloned().partition(|window| folds[window.run.as_str()] == fold);
        let classifier = fit_paper(&fitted).map(|fit| fit.classifier).ok();
        for window in
            tested.iter().filter(|window| PaperClassifier::LOSS_RATES.contains(&window.signature.loss_rate()))
        {
            let verdict = classifier.as_ref().map(|classifier| classifier.diagnose(&window.metrics).verdict);
            let said = match verdict {
                Some(Verdict::Host) => Some(Label::Host),
                Some(Verdict::Network) => Some(Label::Network),
                _ => None,
            };
            let of = usize::from(window.cause == Label::Network);
            counts[of][said.map_or(2, |said| usize::from(said != window.cause))] += 1;
        }
    }
    counts
}

fn is_papers(window: &LabelledWindow) -> bool {
    PAPER_KINDS.contains(&window.kind.as_str())
}

fn is_pure(window: &LabelledWindow) -> bool {
    window.kind != "outage" && !window.kind.starts_with("hyb")
}

/// Windows of one cause, without evidence beside the pattern.
fn windows() -> Option<Vec<LabelledWindow>> {
    let labelled = open::windows()?.into_iter().map(|window| window.labelled);
    let pure = labelled.filter(|window| window.cause != Label::Both);
    Some(pure.map(|window| LabelledWindow { evidence: Evidence::default(), ..window }).collect())
}

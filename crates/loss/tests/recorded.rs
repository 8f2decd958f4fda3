//! The shipped classifiers on the runs of `tests/recorded`. Neither the classifiers nor their
//! thresholds were fitted on these runs.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "what the tests of the open signatures need")]
mod open;

use std::collections::BTreeSet;
use std::path::Path;

use barograph_loss::{Classifier, Diagnosis, Evidence, Label, PaperClassifier, Verdict};
use open::{EvidenceSet, Score, Window, windows_in};

/// Reads the windows of 10 000 and 20 000 packets.
fn windows() -> Vec<Window> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    windows_in(&folder, &[10_000, 20_000])
}

/// Windows that are scored, as for the open signatures. The losses of these windows have one cause
/// and are not an outage, and the loss rate is in the classifier's range.
fn scored(windows: &[Window]) -> impl Iterator<Item = &Window> + Clone {
    let has_one_cause = |window: &&Window| window.labelled.cause != Label::Both;
    windows.iter().filter(has_one_cause).filter(|window| window.is_in_range() && !window.is_outage())
}

/// Scores of the host's and of the network's windows.
fn scores<'a>(
    windows: impl Iterator<Item = &'a Window> + Clone,
    verdict: impl Fn(&Window) -> Verdict,
) -> [Score; 2] {
    [Label::Host, Label::Network].map(|cause| {
        let of_cause = windows.clone().filter(|window| window.labelled.cause == cause);
        of_cause.fold(Score::default(), |score, window| score.with(cause, verdict(window)))
    })
}

#[test]
fn the_set_has_enough_windows_of_each_cause_and_kind() {
    let windows = windows();
    for (cause, kinds_min) in [(Label::Host, 4), (Label::Network, 6)] {
        let of_cause: Vec<_> = scored(&windows).filter(|window| window.labelled.cause == cause).collect();
        let kinds: BTreeSet<_> = of_cause.iter().map(|window| window.labelled.kind.as_str()).collect();
        assert!(
            of_cause.len() >= 50 && kinds.len() >= kinds_min,
            "{cause:?}: {} of {kinds:?}",
            of_cause.len()
        );
    }
}

#[test]
fn the_default_classifier_meets_its_floors_on_recorded_windows() {
    let windows = windows();
    let classifier = Classifier::shipped();
    for (told, floors) in EvidenceSet::ALL.into_iter().zip(FLOORS) {
        let scores =
            scores(scored(&windows), |window| window.diagnose(&classifier, &window.evidence(told)).verdict);
        let [host, network] = scores;
        println!(
            "{told:?}: right/wrong % of the host's {:.1}/{:.1} of {}, of the network's {:.1}/{:.1} of {}",
            host.right(),
            host.wrong(),
            host.all,
            network.right(),
            network.wrong(),
            network.all
        );
        for (score, floor) in scores.into_iter().zip(floors) {
            assert!(floor <= score.right() && score.wrong() <= WRONG_MAX, "{told:?}: {score:?}");
        }
    }
}

#[test]
fn the_kernel_drop_count_decides_every_recorded_window() {
    for window in windows() {
        let evidence = Evidence { host_drops: Some(window.host), ..Evidence::default() };
        let Diagnosis { verdict, lost_host, evidence_used, .. } =
            window.diagnose(&Classifier::shipped(), &evidence);
        assert!(!evidence_used.disbelieved && lost_host == window.host, "{}", window.labelled.run);
        match window.labelled.cause {
            Label::Host => assert_eq!(verdict, Verdict::Host, "{}", window.labelled.run),
            Label::Network => assert_eq!(verdict, Verdict::Network, "{}", window.labelled.run),
            Label::Both => {}
        }
    }
}

#[test]
fn the_papers_classifier_meets_its_floors_on_recorded_windows() {
    let windows = windows();
    let classifier = PaperClassifier::shipped();
    let papers = scored(&windows).filter(|window| window.is_papers()).collect::<Vec<_>>();
    let scores = scores(papers.into_iter(), |window| classifier.diagnose(&window.labelled.metrics).verdict);
    for score in scores {
        println!("right/wrong %: {:.1}/{:.1} of {}", score.right(), score.wrong(), score.all);
        assert!(score.right() >= PAPER_RIGHT_MIN && score.wrong() <= PAPER_WRONG_MAX, "{score:?}");
    }
}

/// Lowest share of right verdicts on the host's and on the network's windows (%), for each of
/// [`EvidenceSet::ALL`]: 3 to 4 points below the share of the shipped classifier on this set when
/// the set was recorded (93.0 and 97.4; 88.0 and 97.6; 93.0 and 95.8; 91.0 and 95.8). These limits
/// detect a change that costs accuracy; they claim nothing about other hosts.
const FLOORS: [[f64; 2]; 4] = [[90.0, 94.0], [85.0, 94.0], [90.0, 92.0], [88.0, 92.0]];
/// Highest share of wrong verdicts (%): two of the 100 windows of the host. So few windows cannot
/// confirm the 0.8 % of the open signatures.
const WRONG_MAX: f64 = 2.0;
/// The same limits for the paper's classifier (recorded: 79.4 and 53.9 % right, no wrong verdicts).
const PAPER_RIGHT_MIN: f64 = 50.0;
const PAPER_WRONG_MAX: f64 = 10.0;

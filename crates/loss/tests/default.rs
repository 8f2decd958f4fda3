//! The default classifier on the open signatures, which are not part of the repository.
#![allow(clippy::unwrap_used)]

mod open;

use std::collections::BTreeMap;

use barograph_loss::{Classifier, Diagnosis, Evidence, Label, LabelledWindow, LossPattern, Verdict};
use open::{EvidenceSet, Score, Window, counts, cross_validated, windows};

/// Number of parts into which the runs are divided. Each model is fitted without one part.
const FOLDS: usize = 8;

#[test]
fn held_out_runs_are_classified_within_the_documented_rates() {
    let Some(windows) = windows() else { return };
    let judge = |classifier: &Classifier, window: &Window| {
        EvidenceSet::ALL.map(|told| window.diagnose(classifier, &window.evidence(told)))
    };
    let judged = cross_validated(&windows, FOLDS, judge);
    let mut found_right = Vec::new();
    for (index, told) in EvidenceSet::ALL.into_iter().enumerate() {
        for packets in [10_000, 20_000, 100_000] {
            let of_length =
                |window: &Window| window.labelled.signature.packets() == packets && window.is_in_range();
            let judged = windows.iter().zip(&judged).map(|(window, judged)| (window, &judged[index]));
            let judged: Vec<_> = judged.filter(|(window, _)| of_length(window)).collect();
            println!("{packets} packets, {told:?}");
            let papers = report("the paper's kinds", &judged, |window| window.is_papers());
            let all = report("all kinds", &judged, |window| !window.is_outage());
            print_undecided(&judged);
            let one_cause = judged.iter().filter(|(window, _)| window.labelled.cause != Label::Both);
            assert_eq!(one_cause.filter(|(_, diagnosis)| diagnosis.verdict == Verdict::Hybrid).count(), 0);
            if packets == 20_000 {
                // Without the delay the CPU's are what this model reaches: less than the goal of 95
                // (lab/results/classifier.md).
                let floors = if told.delay { [97.0, 97.0, 97.0, 97.0] } else { [92.0, 97.0, 90.0, 95.0] };
                let found = [papers[0], papers[1], all[0], all[1]];
                assert!(found.iter().zip(floors).all(|(score, floor)| score.right() >= floor), "{found:?}");
                assert!(found.iter().all(|score| score.wrong() <= 0.8), "{found:?}");
                found_right.push(found.map(|score| score.right()));
            }
        }
    }
    // Further evidence lowers the share of right verdicts by at most one point.
    for (less, more) in [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)] {
        let shares = || found_right[less].iter().zip(&found_right[more]);
        assert!(shares().all(|(less, more)| less - more <= 1.0), "{less} {more}: {found_right:?}");
    }
}

/// Prints and returns the scores of host and network.
fn report(name: &str, judged: &[(&Window, &Diagnosis)], has: impl Fn(&Window) -> bool) -> [Score; 2] {
    let scores = [Label::Host, Label::Network].map(|cause| {
        let of_cause = judged.iter().filter(|(window, _)| window.labelled.cause == cause && has(window));
        of_cause.fold(Score::default(), |score, (_, diagnosis)| score.with(cause, diagnosis.verdict))
    });
    let [host, network] =
        scores.map(|score| format!("{:.1}/{:.1} of {}", score.right(), score.wrong(), score.all));
    println!("  {name}, right/wrong %: cpu {host}, network {network}");
    scores
}

fn print_undecided(judged: &[(&Window, &Diagnosis)]) {
    let mut left = BTreeMap::new();
    let mut hybrids = BTreeMap::new();
    for (window, diagnosis) in judged {
        let LabelledWindow { cause, kind, .. } = &window.labelled;
        let what = (kind.as_str(), window.burst, format!("{:?} {:?}", diagnosis.verdict, diagnosis.pattern));
        match cause {
            Label::Both => *hybrids.entry(what).or_insert(0) += 1,
            cause if Score::default().with(*cause, diagnosis.verdict).right == 0 => {
                *left.entry(what).or_insert(0) += 1
            }
            _ => {}
        }
    }
    println!("  left (kind, burst, verdict, pattern): {left:?}\n  hybrids: {hybrids:?}");
}

#[test]
fn outages_are_recognised_by_the_drop_count_and_the_delay_does_not_change_them() {
    let Some(windows) = windows() else { return };
    let classifier = Classifier::shipped();
    for window in windows.iter().filter(|window| window.is_outage()) {
        let by = |delay| window.diagnose(&classifier, &window.evidence(EvidenceSet { burst: true, delay }));
        assert_eq!(by(true).pattern, Some(LossPattern::Outage));
        assert_eq!((by(true).verdict, by(true).lost_host), (by(false).verdict, by(false).lost_host));
        let counted = window.diagnose(&classifier, &Evidence { host_drops: Some(0), ..Evidence::default() });
        assert_eq!((counted.verdict, counted.lost_network), (Verdict::Network, window.labelled.metrics.lost));
    }
}

#[test]
fn true_drop_counts_are_always_accepted_and_false_ones_rejected() {
    let Some(windows) = windows() else { return };
    // For windows with losses of the network, claim that the host dropped all, a half and a tenth
    // of the lost packets.
    let parts = [1, 2, 10];
    for told in EvidenceSet::ALL {
        let judge = |classifier: &Classifier, window: &Window| {
            let claim = |host| {
                window.diagnose(classifier, &Evidence { host_drops: Some(host), ..window.evidence(told) })
            };
            (claim(window.host), parts.map(|part| claim(window.labelled.metrics.lost.div_ceil(part))))
        };
        let judged = cross_validated(&windows, FOLDS, judge);
        let mut believed: BTreeMap<u32, [[(u32, u32); 3]; 2]> = BTreeMap::new();
        for (window, (truth, lies)) in windows.iter().zip(&judged) {
            let LabelledWindow { cause, kind, run, metrics, .. } = &window.labelled;
            assert!(
                !truth.evidence_used.disbelieved && truth.lost_host == window.host,
                "{run} {kind} {truth:?}"
            );
            match cause {
                Label::Host => assert_eq!(truth.verdict, Verdict::Host, "{run} {kind}"),
                Label::Network => assert_eq!(truth.verdict, Verdict::Network, "{run} {kind}"),
                Label::Both => {}
            }
            if *cause == Label::Network && window.is_in_range() && !window.is_outage() {
                let half = &mut believed.entry(metrics.packets).or_default()[window.half()];
                for (lie, (yes, all)) in lies.iter().zip(half) {
                    (*yes, *all) = (*yes + u32::from(lie.evidence_used.host_drops), *all + 1);
                }
            }
        }
        println!(
            "{told:?}: false claims believed of all, a half, a tenth, by even and odd runs: {believed:?}"
        );
        // Some false claims of all losses are still believed: claims of one run without a queue,
        // and claims of runs as long as stalls.
        let most = [0.15, 0.15, 0.35];
        let halves = believed.values().flatten().flat_map(|half| half.iter().zip(most));
        assert_eq!(halves.clone().count(), 18);
        assert!(
            halves.clone().all(|((yes, all), most)| f64::from(*yes) <= most * f64::from(*all)),
            "{told:?}"
        );
    }
}

#[test]
fn true_drop_counts_of_each_gap_are_always_accepted() {
    let Some(windows) = windows() else { return };
    let counts = counts();
    for told in EvidenceSet::ALL {
        let judge = |classifier: &Classifier, window: &Window| {
            let LabelledWindow { signature, metrics, run, .. } = &window.labelled;
            let gaps = counts[run].of_window(window);
            assert_eq!(gaps.len(), metrics.gaps as usize, "{run}");
            let known = window.evidence(told);
            let gaps = gaps.iter().copied();
            let diagnosis = classifier.diagnose_gaps(signature, metrics, &known, gaps, |_, _, _| ());
            assert!(
                diagnosis.evidence_used.host_drops && !diagnosis.evidence_used.disbelieved,
                "{run} {diagnosis:?}"
            );
            (window.host, diagnosis.lost_host)
        };
        let judged = cross_validated(&windows, FOLDS, judge);
        let (host, told) = judged
            .iter()
            .fold((0u64, 0u64), |(a, b), (host, told)| (a + u64::from(*host), b + u64::from(*told)));
        assert!(host > 100_000 && told as f64 <= 1.01 * host as f64, "{host} {told}");
    }
}

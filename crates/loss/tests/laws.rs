//! Properties of every window, with any model.
#![allow(missing_docs, clippy::unwrap_used)]

use barograph_loss::fuzzing::assert_sound;
use barograph_loss::{
    Cause, Classifier, Evidence, GapEvidence, LossRun, Meter, Metrics, PaperClassifier, Signature, Verdict,
    read_line,
};
use proptest::prelude::*;

/// Lengths of received and lost runs, for short and long windows.
fn runs() -> impl Strategy<Value = Vec<u32>> {
    let pair = (prop_oneof![0u32..20, 0u32..3000], prop_oneof![1u32..4, 1u32..200]);
    prop::collection::vec(pair, 0..40)
        .prop_map(|pairs| pairs.into_iter().flat_map(|(received, lost)| [received, lost]).collect())
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let some = |range: std::ops::Range<u32>| prop::option::of(range);
    (some(1..64), prop::option::of(0.0..0.1), some(0..300), some(0..50))
        .prop_map(|(burst, delay_s, host_drops, marks)| Evidence { burst, delay_s, host_drops, marks })
}

/// A line for `read_line`, as bits or as run lengths.
fn line(signature: &Signature, evidence: &Evidence, as_bits: bool) -> String {
    let fates: Vec<String> = signature
        .loss_runs()
        .map(|gap| {
            if as_bits {
                "1".repeat(gap.received as usize) + &"0".repeat(gap.lost as usize)
            } else {
                format!("{},{}", gap.received, gap.lost)
            }
        })
        .collect();
    let mut line = fates.join(if as_bits { "" } else { "," });
    if as_bits {
        let told = line.len();
        line += &"1".repeat(signature.packets() as usize - told);
    } else if line.is_empty() {
        line = signature.packets().to_string();
    }
    let us = |delay_s: f64| (delay_s * 1e6).to_string();
    let known = [
        ("burst", evidence.burst.map(|burst| burst.to_string())),
        ("delay_us", evidence.delay_s.map(us)),
        ("host_drops", evidence.host_drops.map(|drops| drops.to_string())),
        ("marks", evidence.marks.map(|marks| marks.to_string())),
    ];
    for (key, value) in known {
        line += &value.map(|value| format!("\t{key}={value}")).unwrap_or_default();
    }
    line
}

proptest! {
    #[test]
    fn every_diagnosis_is_consistent_with_the_metrics(runs in runs(), tail in 0u32..5000, evidence in evidence()) {
        let window = runs.iter().sum::<u32>() + tail;
        let signature = Signature::from_runs(window, runs).unwrap();
        let metrics = Meter::new().measure(&signature);
        assert_sound(&PaperClassifier::shipped().diagnose(&metrics), &metrics);
        assert_sound(&Classifier::shipped().diagnose(&signature, &metrics, &evidence), &metrics);
    }

    #[test]
    fn every_gap_is_reported_once(runs in runs(), tail in 0u32..5000, known in prop::collection::vec(
        (prop::option::of(0u32..20), prop::option::of(0.0..0.1), prop::option::of(any::<bool>())), 0..40,
    )) {
        let window = runs.iter().sum::<u32>() + tail;
        let signature = Signature::from_runs(window, runs).unwrap();
        let metrics = Meter::new().measure(&signature);
        let gaps = known.into_iter().map(|(host_drops, delay_s, is_marked)| GapEvidence { host_drops, delay_s, is_marked });
        let mut lost = 0;
        let mut told = Vec::new();
        let diagnosis = Classifier::shipped().diagnose_gaps(
            &signature, &metrics, &Evidence::default(), gaps.clone(), |gap, cause, p| {
                assert!((0.0..=1.0).contains(&p));
                lost += gap.lost;
                told.push((gap, cause, p));
            },
        );
        assert_sound(&diagnosis, &metrics);
        prop_assert!(lost == 0 || lost == metrics.lost, "{lost} of {}", metrics.lost);
        // A list of the same gaps gives the same diagnosis.
        let each = signature.loss_runs().zip(gaps.chain(std::iter::repeat(GapEvidence::default())));
        let mut by_list = Vec::new();
        let of_list = Classifier::shipped().diagnose_runs(window, &Evidence::default(), each, |gap, cause, p| {
            by_list.push((gap, cause, p));
        });
        prop_assert_eq!((of_list, by_list), (diagnosis, told));
    }

    #[test]
    fn a_line_of_bits_or_runs_parses_to_the_same_signature_and_evidence(runs in runs(), tail in 1u32..500, evidence in evidence()) {
        let window = runs.iter().sum::<u32>() + tail;
        let signature = Signature::from_runs(window, runs).unwrap();
        let mut read = Signature::new();
        for (as_bits, window) in [(true, None), (false, Some(window))] {
            let text = line(&signature, &evidence, as_bits);
            let line = read_line(&text, window, &mut read).unwrap().unwrap();
            prop_assert_eq!(&read, &signature);
            prop_assert_eq!(
                (line.evidence.burst, line.evidence.host_drops, line.evidence.marks),
                (evidence.burst, evidence.host_drops, evidence.marks)
            );
            let off = line.evidence.delay_s.unwrap_or(-1.0) - evidence.delay_s.unwrap_or(-1.0);
            prop_assert!(off.abs() < 1e-12);
        }
    }
}

#[test]
fn windows_under_seventeen_packets_and_without_loss_are_inconclusive() {
    let (paper, best) = (PaperClassifier::shipped(), Classifier::shipped());
    let drops = Evidence { host_drops: Some(3), delay_s: Some(0.01), ..Evidence::default() };
    for (window, runs) in [(1, &[][..]), (1, &[0, 1]), (16, &[4, 3]), (1000, &[])] {
        let signature = Signature::from_runs(window, runs.iter().copied()).unwrap();
        let metrics: Metrics = Meter::new().measure(&signature);
        for diagnosis in [paper.diagnose(&metrics), best.diagnose(&signature, &metrics, &drops)] {
            assert_eq!(diagnosis.verdict, Verdict::Inconclusive, "{window} {runs:?}");
            assert_sound(&diagnosis, &metrics);
        }
    }
}

#[test]
fn no_memory_is_allocated_after_the_first_window() {
    let (paper, best) = (PaperClassifier::shipped(), Classifier::shipped());
    let (mut signature, mut meter) = (Signature::new(), Meter::new());
    let lines: Vec<String> = (1..50u32)
        .map(|n| {
            format!(
                "{}\tburst=4\tdelay_us=900\thost_drops={n}",
                vec![format!("{},{n}", 7 * n); 100].join(",")
            )
        })
        .collect();
    let mut lost = 0u64;
    let mut judge = |text: &str| {
        let line = read_line(text, Some(100_000), &mut signature).unwrap().unwrap();
        let metrics = meter.measure(&signature);
        let pattern = Evidence { host_drops: None, ..line.evidence };
        for evidence in [line.evidence, pattern, Evidence::default()] {
            lost += u64::from(best.diagnose(&signature, &metrics, &evidence).lost_unknown);
        }
        let gaps = signature
            .loss_runs()
            .map(|gap| GapEvidence { host_drops: Some(gap.lost), ..GapEvidence::default() });
        let say = |_, cause, _| lost += u64::from(cause == Cause::Host);
        best.diagnose_gaps(&signature, &metrics, &pattern, gaps, say);
        lost += u64::from(paper.diagnose(&metrics).lost_unknown);
    };
    judge(&lines[0]);
    let counted = allocation_counter::measure(|| lines.iter().for_each(|line| judge(line)));
    assert_eq!(counted.count_total, 0, "{counted:?}, {lost}");
    // Check that the counter counts allocations at all.
    assert_eq!(allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1);
}

#[test]
fn gaps_that_do_not_fit_their_window_have_an_unknown_cause() {
    let gap = |received, lost| (LossRun { received, lost }, GapEvidence::default());
    for (packets, gaps) in [
        (299, vec![gap(100, 200)]),
        (u32::MAX, vec![gap(0, u32::MAX)]),
        (20_000, vec![gap(u32::MAX, u32::MAX); 3]),
    ] {
        let mut causes = Vec::new();
        let diagnosis = Classifier::shipped().diagnose_runs(
            packets,
            &Evidence::default(),
            gaps.iter().copied(),
            |_, cause, _| causes.push(cause),
        );
        assert_eq!(diagnosis.verdict, Verdict::Inconclusive);
        assert_eq!(causes, vec![Cause::Unknown; gaps.len()]);
    }
}

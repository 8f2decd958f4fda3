//! The default classifier with the shipped model, on generated windows.
#![allow(clippy::unwrap_used)]

use barograph_loss::{
    Cause, Classifier, Diagnosis, Evidence, EvidenceUsed, GapEvidence, LossPattern, Meter, ModelError,
    Signature, Verdict,
};
use proptest::prelude::*;

fn evidence(change: impl FnOnce(&mut Evidence)) -> Evidence {
    let mut evidence = Evidence::default();
    change(&mut evidence);
    evidence
}

fn signature(runs: impl IntoIterator<Item = u32>) -> Signature {
    Signature::from_runs(20_000, runs).unwrap()
}

fn diagnose(signature: &Signature, evidence: &Evidence) -> Diagnosis {
    Classifier::shipped().diagnose(signature, &Meter::new().measure(signature), evidence)
}

/// Numbers that look random and are always the same (Knuth's multiplicative hash).
fn scattered(count: u32, below: u32) -> impl Iterator<Item = u32> {
    (1..=count).map(move |index| (index.wrapping_mul(2_654_435_761) >> 8) % below)
}

/// Single losses, on average `apart` packets apart.
fn singles(count: u32, apart: u32) -> Vec<u32> {
    scattered(count, 2 * apart).flat_map(|received| [received + 1, 1]).collect()
}

/// Losses of a queue that is full from time to time. A full queue drops a few packets close to each
/// other.
fn bunches() -> Vec<u32> {
    let bunch = |pause: u32| [pause + 200, 2, 5, 1, 3, 3, 9, 1, 4, 2];
    scattered(20, 900).flat_map(bunch).collect()
}

#[test]
fn stalls_are_classified_as_host() {
    for runs in [vec![7000, 120], vec![3000, 60, 2000, 150, 5000, 90], vec![9000, 35, 800, 50]] {
        let stalled = signature(runs);
        for known in [evidence(|_| ()), evidence(|e| e.burst = Some(1)), evidence(|e| e.delay_s = Some(5e-6))]
        {
            let diagnosis = diagnose(&stalled, &known);
            assert_eq!(
                (diagnosis.verdict, diagnosis.lost_host),
                (Verdict::Host, stalled.lost()),
                "{diagnosis:?}"
            );
            assert!(
                diagnosis.evidence_used.pattern && diagnosis.evidence_used.delay == known.delay_s.is_some()
            );
            assert_eq!(diagnosis.evidence_used.burst, known.burst.is_some());
        }
    }
}

#[test]
fn single_losses_and_bunches_are_classified_as_network() {
    let periodic = [106, 1].repeat(150);
    for runs in [singles(40, 200), bunches(), periodic] {
        let lossy = signature(runs);
        for known in [evidence(|_| ()), evidence(|e| e.burst = Some(4)), evidence(|e| e.delay_s = Some(2e-3))]
        {
            let diagnosis = diagnose(&lossy, &known);
            assert_eq!(
                (diagnosis.verdict, diagnosis.lost_network),
                (Verdict::Network, lossy.lost()),
                "{diagnosis:?}"
            );
        }
    }
}

#[test]
fn the_kernel_drop_counter_decides_the_verdict() {
    let mixed = signature([300, 1, 4000, 90, 10, 1, 2000, 60, 500, 1]);
    for (drops, verdict) in
        [(150, Verdict::Host), (90, Verdict::Hybrid), (0, Verdict::Network), (153, Verdict::Host)]
    {
        let diagnosis = diagnose(&mixed, &evidence(|e| e.host_drops = Some(drops)));
        assert_eq!(
            (diagnosis.verdict, diagnosis.lost_host, diagnosis.lost_network),
            (verdict, drops, 153 - drops)
        );
        assert_eq!(diagnosis.p_host, f64::from(drops) / 153.0);
        assert!(
            diagnosis.evidence_used.host_drops
                && !diagnosis.evidence_used.pattern
                && !diagnosis.evidence_used.disbelieved
        );
    }
    let more = diagnose(&mixed, &evidence(|e| e.host_drops = Some(1000)));
    assert_eq!((more.verdict, more.lost_host, more.evidence_used.disbelieved), (Verdict::Host, 153, true));
}

#[test]
fn a_drop_count_that_contradicts_a_clear_network_pattern_is_rejected() {
    for runs in [singles(150, 60), bunches()] {
        let lossy = signature(runs);
        let claim = evidence(|e| e.host_drops = Some(lossy.lost()));
        let diagnosis = diagnose(&lossy, &claim);
        assert_eq!((diagnosis.verdict, diagnosis.lost_network), (Verdict::Network, lossy.lost()));
        assert!(
            diagnosis.evidence_used.disbelieved
                && !diagnosis.evidence_used.host_drops
                && diagnosis.evidence_used.pattern
        );
        let gaps = lossy.loss_runs().map(|_| GapEvidence { host_drops: Some(1), ..GapEvidence::default() });
        let gaps: Vec<_> = gaps.collect();
        let metrics = Meter::new().measure(&lossy);
        let by_gap = Classifier::shipped().diagnose_gaps(
            &lossy,
            &metrics,
            &Evidence::default(),
            gaps.iter().copied(),
            |_, cause, _| {
                assert_eq!(cause, Cause::Network);
            },
        );
        assert!(by_gap.evidence_used.disbelieved && by_gap.verdict == Verdict::Network);
    }
}

#[test]
fn network_runs_reject_a_false_drop_count_and_stalls_accept_a_true_one() {
    for runs in [singles(150, 60), bunches()] {
        let lossy = signature(runs.clone());
        for part in [2, 10, 30] {
            for known in [None, Some(2e-3)] {
                let claim = evidence(|e| (e.host_drops, e.delay_s) = (Some(lossy.lost() / part), known));
                let diagnosis = diagnose(&lossy, &claim);
                assert_eq!((diagnosis.verdict, diagnosis.lost_network), (Verdict::Network, lossy.lost()));
                assert!(
                    diagnosis.evidence_used.disbelieved && !diagnosis.evidence_used.host_drops,
                    "{part} {diagnosis:?}"
                );
            }
        }
        // Add a stall of 40 packets. The host's claim of these 40 drops is believed.
        let stalled = signature([runs, vec![500, 40]].concat());
        let diagnosis = diagnose(&stalled, &evidence(|e| e.host_drops = Some(40)));
        assert_eq!((diagnosis.lost_host, diagnosis.lost_network), (40, lossy.lost()), "{diagnosis:?}");
        assert!(diagnosis.evidence_used.host_drops && !diagnosis.evidence_used.disbelieved);
        // With a drop count for each gap, a claim of drops in the stall is believed. A claim of
        // drops in a third of the other gaps is not believed.
        let metrics = Meter::new().measure(&stalled);
        for (claims, believed) in [([false, true], true), ([true, false], false)] {
            let counted = stalled.loss_runs().enumerate().map(|(index, gap)| {
                let is_claimed = if gap.lost == 40 { claims[1] } else { claims[0] && index % 3 == 0 };
                GapEvidence { host_drops: Some(u32::from(is_claimed)), ..GapEvidence::default() }
            });
            let counted: Vec<_> = counted.collect();
            let gaps = counted.iter().copied();
            let told = Classifier::shipped().diagnose_gaps(
                &stalled,
                &metrics,
                &Evidence::default(),
                gaps,
                |_, _, _| (),
            );
            assert_eq!(
                (told.evidence_used.host_drops, told.evidence_used.disbelieved),
                (believed, !believed),
                "{told:?}"
            );
        }
    }
}

#[test]
fn a_drop_count_for_few_short_runs_is_checked_against_delay_and_marks() {
    let few = signature([6000, 2, 3000, 3]);
    let lone = signature([6000, 1]);
    let claim = |lossy: &Signature, delay, marks| {
        let claimed = Some(lossy.lost());
        diagnose(lossy, &evidence(|e| (e.host_drops, e.delay_s, e.marks) = (claimed, delay, marks)))
    };
    for lossy in [&few, &lone] {
        assert!(claim(lossy, Some(1e-6), None).evidence_used.host_drops);
        assert!(claim(lossy, Some(20e-3), None).evidence_used.disbelieved);
        assert!(claim(lossy, None, Some(0)).evidence_used.host_drops);
        assert!(claim(lossy, None, Some(50)).evidence_used.disbelieved);
        // A host may stall while there is a queue.
        let stalled = signature([6000, 90, 3000, 120]);
        assert!(claim(&stalled, Some(20e-3), Some(50)).evidence_used.host_drops);
    }
}

#[test]
fn marks_without_a_drop_count_rule_out_the_verdict_host() {
    for runs in [vec![9000, 40], vec![3000, 60, 2000, 150, 5000, 90]] {
        let stalled = signature(runs);
        assert_eq!(diagnose(&stalled, &evidence(|e| e.marks = Some(0))).verdict, Verdict::Host);
        let marked = diagnose(&stalled, &evidence(|e| e.marks = Some(1)));
        assert_eq!((marked.verdict, marked.lost_unknown), (Verdict::Inconclusive, stalled.lost()));
        assert!(marked.evidence_used.marks && marked.p_host <= 0.5);
        let counted = evidence(|e| (e.marks, e.host_drops) = (Some(1), Some(stalled.lost())));
        assert_eq!(diagnose(&stalled, &counted).verdict, Verdict::Host);
    }
    // If the pattern is undecided, marks shift the probability towards the network.
    let open = signature([9000, 2]);
    let [plain, marked] = [None, Some(3)].map(|marks| diagnose(&open, &evidence(|e| e.marks = marks)).p_host);
    assert!(plain > 0.05 && marked < plain / 2.0, "{plain} {marked}");
}

#[test]
fn more_marks_than_received_packets_are_capped_and_reported() {
    let stalled = signature([9000, 40]);
    for (marks, disbelieved) in [(19_960, false), (19_961, true), (u32::MAX, true)] {
        let diagnosis = diagnose(&stalled, &evidence(|e| e.marks = Some(marks)));
        assert_eq!((diagnosis.evidence_used.disbelieved, diagnosis.evidence_used.marks), (disbelieved, true));
        assert_eq!(diagnosis.verdict, Verdict::Inconclusive);
    }
    // If no packet arrived, none can be marked.
    let all_lost = diagnose(&signature([0, 20_000]), &evidence(|e| e.marks = Some(5)));
    assert_eq!((all_lost.evidence_used.disbelieved, all_lost.evidence_used.marks), (true, false));
}

/// Evidence on delays before losses and on the burst, in all combinations of these values.
fn combinations(delays: &[Option<f64>], bursts: &[Option<u32>]) -> Vec<Evidence> {
    let known = |delay_s: &Option<f64>| {
        let delay_s = *delay_s;
        bursts.iter().map(move |burst| evidence(|e| (e.delay_s, e.burst) = (delay_s, *burst)))
    };
    delays.iter().flat_map(known).collect()
}

#[test]
fn an_outage_seen_once_is_not_the_hosts() {
    // 60 ms to 1 s at 20 000 packets a second. A few other losses change nothing.
    for lost in [1200, 4800, 12_000, 19_999] {
        for before in [vec![0], vec![1, 1, 500]] {
            let outage = Signature::from_runs(20_000 + 600, [before, vec![lost]].concat()).unwrap();
            for known in combinations(&[None, Some(0.0), Some(1e-3)], &[None, Some(1), Some(16)]) {
                let diagnosis = diagnose(&outage, &known);
                assert_eq!(
                    (diagnosis.verdict, diagnosis.pattern, diagnosis.lost_host),
                    (Verdict::Inconclusive, Some(LossPattern::Outage), 0),
                    "{lost} {known:?}"
                );
            }
            let counted = diagnose(&outage, &evidence(|e| e.host_drops = Some(0)));
            assert_eq!(
                (counted.verdict, counted.pattern, counted.lost_network),
                (Verdict::Network, Some(LossPattern::Outage), outage.lost())
            );
        }
    }
    // The limit is in units of the sender's burst.
    let run = signature([5000, 1200]);
    let by_bursts = |burst| diagnose(&run, &evidence(|e| (e.delay_s, e.burst) = (Some(0.0), Some(burst))));
    assert_eq!(by_bursts(59).verdict, Verdict::Inconclusive);
    assert_eq!((by_bursts(60).verdict, by_bursts(60).pattern), (Verdict::Host, None));
    // A run is not doubted if its length was measured for the host's losses: up to 5 % of a window.
    let known = evidence(|e| e.delay_s = Some(0.0));
    assert_eq!(diagnose(&signature([5000, 1000]), &known).verdict, Verdict::Host);
    let long = Signature::from_runs(100_000, [5000, 1700]).unwrap();
    assert_eq!(diagnose(&long, &known).verdict, Verdict::Host);
}

/// A host with a quota of a quarter of a processor. Of 2375 packets in each period of 100 ms, it
/// loses 1100 to 1699 in one run.
fn quota(periods: u32) -> Signature {
    let runs = scattered(periods, 600).flat_map(|lost| [1275 - lost, 1100 + lost]);
    Signature::from_runs(2375 * periods, runs).unwrap()
}

#[test]
fn long_stalls_that_recur_are_the_hosts_with_and_without_delay() {
    for periods in 2..=8 {
        let stalled = quota(periods);
        let delays = [None, Some(0.0), Some(100e-6), Some(1e-3)];
        for known in combinations(&delays, &[None, Some(1), Some(16), Some(64)]) {
            let diagnosis = diagnose(&stalled, &known);
            assert_eq!(
                (diagnosis.verdict, diagnosis.lost_host),
                (Verdict::Host, stalled.lost()),
                "{periods} {known:?} {diagnosis:?}"
            );
        }
        // The same with a delay before each gap, as a transfer has it.
        let gaps = (0..periods)
            .map(|gap| GapEvidence { delay_s: Some(f64::from(gap) * 10e-6), ..GapEvidence::default() });
        let metrics = Meter::new().measure(&stalled);
        let burst = evidence(|e| e.burst = Some(16));
        let by_gap = Classifier::shipped().diagnose_gaps(&stalled, &metrics, &burst, gaps, |_, cause, _| {
            assert_eq!(cause, Cause::Host);
        });
        assert_eq!(by_gap.verdict, Verdict::Host);
    }
    // Five stalls that lose 5 % of the window, with a few short runs of the same cause.
    for runs in [[900, 200].repeat(5), [[900, 400].repeat(5), [300, 60].repeat(2)].concat()] {
        for known in combinations(&[None, Some(0.0)], &[None, Some(1)]) {
            assert_eq!(diagnose(&signature(runs.clone()), &known).verdict, Verdict::Host);
        }
    }
}

#[test]
fn heavy_overload_of_a_queue_is_the_networks() {
    // Sixty percent of the packets are lost, in runs of one to five.
    for gaps in [400, 1000, 4000] {
        let runs: Vec<_> = scattered(gaps, 15).flat_map(|draw| [1 + draw / 5, 1 + draw % 5]).collect();
        let overloaded = Signature::from_runs(runs.iter().sum(), runs).unwrap();
        assert!((0.58..0.62).contains(&overloaded.loss_rate()));
        for known in combinations(&[None, Some(2e-3), Some(20e-3)], &[None, Some(1), Some(16)]) {
            let diagnosis = diagnose(&overloaded, &known);
            assert_eq!(
                (diagnosis.verdict, diagnosis.lost_network),
                (Verdict::Network, overloaded.lost()),
                "{gaps} {known:?}"
            );
        }
    }
}

#[test]
fn without_drop_count_or_signs_of_a_stall_the_verdict_is_not_host() {
    let told = |packets: u32, runs: &[u32], known: &Evidence| {
        let window = Signature::from_runs(packets, runs.iter().copied()).unwrap();
        Classifier::shipped().diagnose(&window, &Meter::new().measure(&window), known)
    };
    // For a run that is at most as long as a burst of the sender, the pattern alone does not name
    // the host. For a run that is one packet longer, the pattern may name the host.
    for (packets, lost, burst) in [(20_000, 16, 16), (20_000, 32, 32), (100_000, 8, 8)] {
        for delay_s in [None, Some(300e-6)] {
            let known = evidence(|e| (e.burst, e.delay_s) = (Some(burst), delay_s));
            assert!(told(packets, &[1000, lost], &known).p_host <= 0.5, "{lost} {burst}");
        }
    }
    let burst = evidence(|e| e.burst = Some(32));
    assert!(
        told(20_000, &[1000, 32], &burst).p_host <= 0.5 && told(20_000, &[1000, 33], &burst).p_host > 0.5
    );
    // A run shorter than a burst is the host's if the pattern alone says so, unless there was a
    // queue.
    let pattern = told(100_000, &[1000, 8], &Evidence::default());
    let part = |delay_s| told(100_000, &[1000, 8], &evidence(|e| (e.burst, e.delay_s) = (Some(16), delay_s)));
    assert_eq!((pattern.verdict, part(None).verdict), (Verdict::Host, Verdict::Host));
    assert!(part(Some(300e-6)).p_host <= 0.5);
    // Loss rates below the measured range.
    for (packets, runs) in [(100_000, [1000, 2]), (1 << 24, [1000, 5]), (100_000, [1000, 7])] {
        let rare = told(packets, &runs, &Evidence::default());
        assert!(rare.p_host <= 0.5 && rare.evidence_used.extrapolated, "{runs:?}");
    }
    assert!(told(100_000, &[1000, 8], &Evidence::default()).p_host > 0.5);
    // A long queueing delay.
    let delayed = |delay_s| evidence(|e| (e.burst, e.delay_s) = (Some(1), Some(delay_s)));
    assert!(told(20_000, &[1000, 60], &delayed(4e-3)).p_host <= 0.5);
    assert_eq!(told(20_000, &[1000, 60], &delayed(3e-3)).verdict, Verdict::Host);
    // With the drop counter as evidence, the host is named even if a run is only as long as a
    // burst.
    let counted = |lost| evidence(|e| (e.burst, e.host_drops) = (Some(16), Some(lost)));
    assert_eq!(told(20_000, &[1000, 16], &counted(16)).verdict, Verdict::Host);
}

#[test]
fn regular_single_losses_without_queue_delay_are_a_policer_pattern() {
    let policed = signature([106, 1].repeat(150));
    let known = |delay| evidence(|e| e.delay_s = delay);
    assert_eq!(diagnose(&policed, &known(Some(4e-6))).pattern, Some(LossPattern::Policer));
    assert_eq!(diagnose(&policed, &known(Some(2e-3))).pattern, None);
    assert_eq!(diagnose(&policed, &known(None)).pattern, None);
    assert_eq!(diagnose(&signature(singles(150, 60)), &known(Some(4e-6))).pattern, None);
}

#[test]
fn a_hybrid_window_is_split_between_host_and_network() {
    let mut runs = singles(150, 60);
    for at in [20, 120, 220] {
        runs.splice(at..at, [300, 90]);
    }
    let hybrid = signature(runs);
    let diagnosis = diagnose(&hybrid, &Evidence::default());
    assert_eq!((diagnosis.verdict, diagnosis.lost_host, diagnosis.lost_network), (Verdict::Hybrid, 270, 150));
    assert!(diagnosis.p_host > 0.05 && diagnosis.p_host < 0.95);
}

#[test]
fn network_runs_of_all_lengths_are_not_split() {
    // A queue makes a few runs of two packets and one run of five packets. RED can cause a run of
    // six packets. Such a run is long enough for a split, but too short for a stall. A run of
    // sixty packets counts as a stall.
    for (longest, verdict) in [(5, Verdict::Network), (6, Verdict::Network), (60, Verdict::Hybrid)] {
        let mut runs = singles(60, 150);
        runs.splice(20..20, [300, 2, 90, 2, 900, longest]);
        let queued = signature(runs);
        let diagnosis = diagnose(&queued, &evidence(|e| e.burst = Some(1)));
        assert_eq!(diagnosis.verdict, verdict, "{diagnosis:?}");
        if longest > 6 {
            // A run as long as a burst of the sender is not a stall.
            let sent = evidence(|e| e.burst = Some(60));
            assert_ne!(diagnose(&queued, &sent).verdict, Verdict::Hybrid);
            continue;
        }
        // A delay before the losses is evidence against such a short stall.
        let delayed = evidence(|e| (e.burst, e.delay_s) = (Some(1), Some(20e-3)));
        assert_eq!(diagnose(&queued, &delayed).verdict, Verdict::Network);
    }
}

#[test]
fn gaps_are_classified_by_their_own_evidence() {
    let mixed = signature([1000, 90, 3000, 1, 500, 2, 2000, 120, 1000, 3]);
    let gap = |host_drops, delay_s, is_marked| GapEvidence { host_drops, delay_s, is_marked };
    let metrics = Meter::new().measure(&mixed);
    let told = |gaps: &[GapEvidence]| {
        let mut heard = Vec::new();
        let say = |_, cause, p: f64| {
            assert!((0.0..=1.0).contains(&p));
            heard.push(cause);
        };
        let shipped = Classifier::shipped();
        (shipped.diagnose_gaps(&mixed, &metrics, &Evidence::default(), gaps.iter().copied(), say), heard)
    };
    use Cause::{Host, Network};
    // With GRO, the counter counts buffers, so the classifier uses only whether its increase is 0.
    let counted = [5, 0, 0, 1, 0].map(|drops| gap(Some(drops), None, None));
    let (diagnosis, heard) = told(&counted);
    assert_eq!(heard, [Host, Network, Network, Host, Network]);
    assert_eq!((diagnosis.lost_host, diagnosis.lost_network, diagnosis.lost_unknown), (210, 6, 0));
    assert_eq!((diagnosis.verdict, diagnosis.evidence_used.host_drops), (Verdict::Host, true));
    let delayed = [2e-6, 3e-3, 3e-3, 1e-6, 3e-3].map(|delay| gap(None, Some(delay), None));
    assert_eq!(told(&delayed).1, [Host, Network, Network, Host, Network]);
    assert!(told(&delayed).0.evidence_used.delay);
    let marked = [false, true, true, false, true].map(|is_marked| gap(None, None, Some(is_marked)));
    let (diagnosis, heard) = told(&marked);
    assert_eq!(heard, [Host, Network, Network, Host, Network]);
    assert!(diagnosis.evidence_used.marks && !diagnosis.evidence_used.host_drops);
    // Without evidence on gaps, the result is the same as for the whole window.
    let (alone, whole) = (told(&[]).0, diagnose(&mixed, &Evidence::default()));
    assert!((alone.p_host - whole.p_host).abs() < 1e-9);
    assert_eq!(
        (alone.verdict, alone.lost_host, alone.evidence_used),
        (whole.verdict, whole.lost_host, whole.evidence_used)
    );
}

#[test]
fn windows_that_are_short_or_without_loss_are_inconclusive() {
    let shipped = Classifier::shipped();
    let counted = evidence(|e| e.host_drops = Some(1));
    for (packets, runs) in [(0, vec![]), (1, vec![1]), (1, vec![0, 1]), (16, vec![3, 9]), (20_000, vec![])] {
        let few = Signature::from_runs(packets, runs).unwrap();
        for known in [Evidence::default(), counted] {
            let metrics = Meter::new().measure(&few);
            let diagnosis = shipped.diagnose(&few, &metrics, &known);
            assert_eq!(
                (diagnosis.verdict, diagnosis.p_host, diagnosis.lost_unknown),
                (Verdict::Inconclusive, 0.5, few.lost())
            );
            let by_gap = shipped.diagnose_gaps(&few, &metrics, &known, std::iter::empty(), |_, cause, _| {
                assert_eq!(cause, Cause::Unknown)
            });
            assert_eq!((by_gap.verdict, by_gap.lost_unknown), (Verdict::Inconclusive, few.lost()));
        }
    }
    let all_lost = diagnose(&signature([0, 20_000]), &Evidence::default());
    assert_eq!(
        (all_lost.verdict, all_lost.pattern, all_lost.evidence_used),
        (Verdict::Inconclusive, Some(LossPattern::Outage), EvidenceUsed::default()),
        "without a packet that arrived there is no pattern to rest on"
    );
}

#[test]
fn windows_outside_the_fitted_range_are_reported_as_extrapolated() {
    let shipped = Classifier::shipped();
    let found = |packets, runs: &[u32], known: &Evidence| {
        let window = Signature::from_runs(packets, runs.iter().copied()).unwrap();
        let metrics = Meter::new().measure(&window);
        let of_gaps = shipped.diagnose_gaps(&window, &metrics, known, std::iter::empty(), |_, _, _| ());
        let found = shipped.diagnose(&window, &metrics, known).evidence_used;
        assert_eq!(of_gaps.evidence_used, found);
        found
    };
    let by_pattern = EvidenceUsed { pattern: true, ..EvidenceUsed::default() };
    let extrapolated = EvidenceUsed { extrapolated: true, ..by_pattern };
    // The shortest fitted windows have a fifth of 10 000 packets.
    for (packets, expected) in [
        (17, extrapolated),
        (1999, extrapolated),
        (2000, by_pattern),
        (100_000, by_pattern),
        (100_001, extrapolated),
    ] {
        let lost = if packets > 2000 { 8 } else { 1 };
        assert_eq!(
            found(packets, &[9, lost], &Evidence::default()).extrapolated,
            expected.extrapolated,
            "{packets}"
        );
    }
    assert_eq!(found(100_000, &[9, 7], &Evidence::default()), extrapolated);
    assert_eq!(found(20_000, &[9000, 1000], &Evidence::default()), by_pattern);
    assert_eq!(found(20_000, &[9000, 1001], &Evidence::default()), extrapolated);
    // The kernel's count needs no model, and a window that is too short gets no verdict.
    let counted = evidence(|e| e.host_drops = Some(1001));
    assert_eq!(
        found(20_000, &[9000, 1001], &counted),
        EvidenceUsed { host_drops: true, ..EvidenceUsed::default() }
    );
    assert_eq!(found(16, &[9, 7], &Evidence::default()), EvidenceUsed::default());
}

#[test]
fn a_minor_cause_with_exactly_5_percent_does_not_make_a_window_hybrid() {
    let counted = |host, network| {
        let known = evidence(|e| e.host_drops = Some(host));
        let told = diagnose(&signature([1000, host, 1000, network]), &known);
        (told.verdict, told.lost_host, told.lost_network)
    };
    // If one cause has 19 of 20 losses, the probability is 0.95. This probability gives a verdict,
    // although the other cause has a share of 5 %.
    assert_eq!(counted(1900, 100), (Verdict::Host, 1900, 100));
    assert_eq!(counted(100, 1900), (Verdict::Network, 100, 1900));
    assert_eq!(counted(1899, 101), (Verdict::Hybrid, 1899, 101));
    assert_eq!(counted(101, 1899), (Verdict::Hybrid, 101, 1899));
}

#[test]
fn a_written_model_reads_back_equal() {
    let shipped = Classifier::shipped();
    assert_eq!(Classifier::read(&shipped.write()).unwrap(), shipped);
}

#[test]
fn invalid_models_are_rejected_with_a_reason() {
    let good = Classifier::shipped().write();
    let invalid = |model: &str| match Classifier::read(model) {
        Err(ModelError::Invalid(what)) => what,
        other => panic!("{other:?}"),
    };
    for other in [1, 3] {
        let changed = good.replace("version = 2", &format!("version = {other}"));
        assert_eq!(Classifier::read(&changed), Err(ModelError::Version(other)));
    }
    invalid("");
    invalid("\u{0}\u{1}");
    invalid(&good.replace("version = 2", "version = -1"));
    invalid(&good.replace("version = 2", "version = 99999999999999999999"));
    assert!(invalid("format = \"barograph-loss-default\"\nversion = 2").contains("packets"));
    for lengths in ["{ low = 16, high = 20 }", "{ low = 21, high = 20 }", "{ low = 20, high = 16777217 }"] {
        let model = format!("format = \"barograph-loss-default\"\nversion = 2\npackets = {lengths}");
        assert!(invalid(&model).contains("windows of "), "{lengths}");
        assert!(invalid(&model.replace(lengths, "{ low = 17, high = 20 }")).contains("[pattern] is missing"));
    }
    for (index, _) in good.match_indices('\n').filter(|(index, _)| index + 1 < good.len()) {
        assert!(Classifier::read(&good[..index]).is_err(), "cut at {index}");
    }
    let first = good.find("queue = ").unwrap() + 8;
    let end = first + good[first..].find(',').unwrap();
    for number in ["nan", "inf", "-inf", "1e300", "1001.0", "\"1\"", "[]"] {
        let bad = format!("{}{number}{}", &good[..first], &good[end..]);
        assert!(Classifier::read(&bad).is_err(), "{number}");
    }
    assert!(invalid(&good.replace("isolated = ", "lonely = ")).contains("`isolated` is missing"));
    assert!(
        invalid(&format!("{good}\n[more]\nbase = {{ queue = 1.0, link = 1.0 }}\n"))
            .contains("unknown section [more]")
    );
    assert!(
        invalid(&format!("{good}\nmore = {{ low = 0.0, high = 1.0, queue = 1.0, link = 1.0 }}\n"))
            .contains("unknown feature `more`")
    );
    assert!(invalid(&format!("{good}{}", "#".repeat(1 << 20))).contains("bytes"));
}

proptest! {
    /// A model with a random change is rejected, or its diagnoses have a probability from 0 to 1.
    #[test]
    fn a_changed_model_causes_no_panic(at in any::<proptest::sample::Index>(), with in ".{0,3}") {
        let good = Classifier::shipped().write();
        let at = at.index(good.len());
        let changed = format!("{}{with}{}", &good[..at], &good[at + 1..]);
        if let Ok(classifier) = Classifier::read(&changed) {
            let window = signature(bunches());
            let p_host = classifier.diagnose(&window, &Meter::new().measure(&window), &Evidence::default()).p_host;
            prop_assert!((0.0..=1.0).contains(&p_host));
        }
    }

    /// For any losses and claims, the diagnosis has a probability, and its counts add up.
    #[test]
    fn any_evidence_gives_a_probability_and_counts_that_add_up(
        runs in proptest::collection::vec(0u32..300, 0..60),
        burst in proptest::option::of(any::<u32>()),
        delay in proptest::option::of(any::<f64>()),
        drops in proptest::option::of(prop_oneof![0u32..3000, any::<u32>()]),
        marks in proptest::option::of(any::<u32>()),
        gaps in proptest::collection::vec((proptest::option::of(0u32..3), proptest::option::of(any::<f64>()), any::<Option<bool>>()), 0..40),
    ) {
        let signature = signature(runs);
        let metrics = Meter::new().measure(&signature);
        let known = evidence(|e| (e.burst, e.delay_s, e.host_drops, e.marks) = (burst, delay, drops, marks));
        let gaps = gaps.into_iter().map(|(host_drops, delay_s, is_marked)| GapEvidence { host_drops, delay_s, is_marked });
        let gaps: Vec<_> = gaps.collect();
        let shipped = Classifier::shipped();
        let (mut heard, mut lost) = (0, 0);
        let by_gap = shipped.diagnose_gaps(&signature, &metrics, &known, gaps.into_iter(), |gap, _, p| {
            (heard, lost) = (heard + 1, lost + gap.lost);
            assert!((0.0..=1.0).contains(&p));
        });
        prop_assert_eq!((heard, lost), (metrics.gaps, metrics.lost));
        for diagnosis in [by_gap, shipped.diagnose(&signature, &metrics, &known)] {
            prop_assert!((0.0..=1.0).contains(&diagnosis.p_host));
            prop_assert_eq!(diagnosis.lost_host + diagnosis.lost_network + diagnosis.lost_unknown, metrics.lost);
        }
    }
}

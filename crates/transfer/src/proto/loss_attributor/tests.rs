#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use super::*;

const MS: Duration = Duration::from_millis(1);
const BURST: u32 = 2;

fn context(now: Duration) -> PathContext {
    PathContext { now, rtt: 20 * MS, burst: BURST }
}

fn missing(index: u64, packets: u32, evidence: GapReport) -> UnattributedLoss {
    UnattributedLoss {
        index,
        packets,
        bytes: u64::from(packets) * 1500,
        sent: Duration::ZERO,
        in_flight_bytes: 0,
        evidence,
    }
}

/// Declares these runs (index, packets) lost, with one packet sent each microsecond, and calls
/// `poll` each time it is due. Returns the lost packets by their last cause, and how many were the
/// host's before.
fn lose(attributor: &mut LossAttributor, runs: &[(u64, u32)], evidence: GapReport) -> ([u64; 3], u64) {
    let mut attributed = Vec::new();
    let mut late = Duration::ZERO;
    for (index, packets) in runs {
        let now = Duration::from_micros(index + 500);
        while let Some(due) = attributor.due().filter(|due| *due <= now) {
            attributor.poll(context(due), *index, &mut attributed);
        }
        attributor.lose(context(now), missing(*index, *packets, evidence), &mut attributed);
        late = late.max(attributor.due().map_or(Duration::ZERO, |due| due - now));
    }
    let end = runs.last().map_or(0, |(index, packets)| index + u64::from(*packets) + 1000);
    while let Some(due) = attributor.due() {
        attributor.poll(context(due), end, &mut attributed);
    }
    assert!(late <= 20 * MS, "told within a round trip");
    let mut told = [0; 3];
    let mut withdrawn = 0;
    for attributed in attributed {
        let packets = u64::from(attributed.missing.packets);
        told[attributed.cause as usize] += packets;
        if let Some((before, _)) = attributed.before {
            told[before as usize] -= packets;
            withdrawn += if before == Cause::Host { packets } else { 0 };
        }
    }
    (told, withdrawn)
}

/// Long runs of losses, far apart, like the losses that stalls cause.
fn stalls() -> Vec<(u64, u32)> {
    (1..12).map(|n| (n * 5000 + n * n * 37 % 1000, 100 + (n * 53 % 90) as u32)).collect()
}

/// A link that loses one packet in 200 at random.
fn single() -> Vec<(u64, u32)> {
    let mut state = 9u64;
    let draw = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).is_multiple_of(200)
    };
    let lost: Vec<bool> = (0..60_000).map(draw).collect();
    (0u64..).zip(lost).filter(|(_, lost)| *lost).map(|(index, _)| (index, 1)).collect()
}

fn lost(runs: &[(u64, u32)]) -> u64 {
    runs.iter().map(|(_, packets)| u64::from(*packets)).sum()
}

/// A gap without a queue before it.
fn quiet() -> GapReport {
    GapReport { delay_us: Some(0), ..GapReport::default() }
}

fn claim(host_drops: bool) -> GapReport {
    GapReport { host_drops: Some(host_drops), ..quiet() }
}

#[test]
fn the_drop_count_of_the_kernel_is_used_at_once() {
    let (runs, lost_all) = (stalls(), lost(&stalls()));
    assert_eq!(lose(&mut LossAttributor::default(), &runs, claim(true)), ([lost_all, 0, 0], 0));
    let mut attributor = LossAttributor::default();
    assert_eq!(lose(&mut attributor, &runs, claim(false)), ([0, lost_all, 0], 0));
    assert_eq!(attributor.classifications(), 0, "nothing was left to ask");
    let mut attributed = Vec::new();
    let mut attributor = LossAttributor::default();
    attributor.lose(context(MS), missing(50, 3, claim(true)), &mut attributed);
    assert_eq!(attributed.iter().map(|attributed| attributed.cause).collect::<Vec<_>>(), [Cause::Host]);
}

#[test]
fn without_a_drop_count_the_loss_pattern_decides() {
    let lost_all = lost(&stalls());
    let (told, _) = lose(&mut LossAttributor::default(), &stalls(), quiet());
    assert_eq!(told.iter().sum::<u64>(), lost_all);
    assert!(told[0] * 10 >= lost_all * 7 && told[1] == 0, "{told:?} of stalls");
    let lost_all = lost(&single());
    let mut attributor = LossAttributor::default();
    let (told, _) = lose(&mut attributor, &single(), quiet());
    assert_eq!(told.iter().sum::<u64>(), lost_all);
    assert_eq!(told[0], 0, "{told:?} of a lossy link");
    assert!(
        attributor.classifications() <= 4,
        "{} classifications in three round trips",
        attributor.classifications()
    );
}

#[test]
fn a_claim_against_a_clear_pattern_is_withdrawn_and_then_ignored() {
    let lost_all = lost(&single());
    let (told, back) = lose(&mut LossAttributor::default(), &single(), claim(true));
    // The receiver's claims are used in the first round trip, and then withdrawn.
    assert_eq!((told.iter().sum::<u64>(), told[0]), (lost_all, 0), "{told:?}");
    assert!(back > 0 && back * 4 < lost_all, "{back} of {lost_all}");
}

#[test]
fn lost_packets_that_arrive_late_are_not_reported() {
    let mut attributor = LossAttributor::default();
    let mut attributed = Vec::new();
    attributor.lose(context(MS), missing(100, 5, quiet()), &mut attributed);
    attributor.lose(context(MS), missing(200, 1, quiet()), &mut attributed);
    let forgotten = Some(Cause::Unknown);
    assert_eq!(
        [102, 200, 7, 102].map(|index| attributor.ack_lost(index, 1500)),
        [None, None, forgotten, forgotten]
    );
    attributor.poll(context(400 * MS), 300, &mut attributed);
    let told: Vec<_> = attributed
        .iter()
        .map(|attributed| (attributed.missing.index, attributed.missing.packets, attributed.missing.bytes))
        .collect();
    assert_eq!(told, [(100, 2, 3000), (103, 2, 3000)]);
    assert_eq!(attributor.ack_lost(101, 1500), Some(Cause::Network));
}

#[test]
fn losses_are_classified_before_they_leave_the_window() {
    let mut attributor = LossAttributor::default();
    let mut attributed = Vec::new();
    for n in 0..400u64 {
        attributor.lose(context(MS), missing(n * 500, 1, quiet()), &mut attributed);
    }
    assert!(
        (8..=10).contains(&attributor.classifications()),
        "{} classifications at 200 000 packets",
        attributor.classifications()
    );
    assert!(
        attributed.len() >= 350 && attributed.iter().all(|attributed| attributed.cause != Cause::Host),
        "{}",
        attributed.len()
    );
    // A run longer than the window has an unknown cause.
    attributor.lose(context(MS), missing(300_000, 50_000, quiet()), &mut attributed);
    attributor.poll(context(100 * MS), 350_010, &mut attributed);
    assert_eq!(
        attributed.last().map(|attributed| (attributed.missing.packets, attributed.cause)),
        Some((50_000, Cause::Unknown))
    );
}

#[test]
fn the_attributor_allocates_no_memory_after_the_first_round() {
    let mut attributor = LossAttributor::default();
    let runs = single();
    let mut attributed = Vec::with_capacity(2 * runs.len());
    let mut turn = |attributor: &mut LossAttributor, turn: u64| {
        attributed.clear();
        let (from, start) = (turn * 60_000, MS * (60 * turn) as u32);
        for (index, packets) in &runs {
            let now = start + Duration::from_micros(*index);
            attributor.poll(context(now), from + index, &mut attributed);
            attributor.lose(context(now), missing(from + index, *packets, quiet()), &mut attributed);
        }
        attributed.len()
    };
    let first = turn(&mut attributor, 0);
    let again = allocation_counter::measure(|| assert!(turn(&mut attributor, 1) * 2 > first));
    assert_eq!(again.count_total, 0);
}

/// Calls `poll` each time it is due, up to `until`. Packets below `settled` are settled.
fn poll(attributor: &mut LossAttributor, until: Duration, settled: u64) -> Vec<(Duration, AttributedLoss)> {
    let mut reports = Vec::new();
    while let Some(due) = attributor.due().filter(|due| *due <= until) {
        let mut attributed = Vec::new();
        attributor.poll(context(due), settled, &mut attributed);
        reports.extend(attributed.into_iter().map(|attributed| (due, attributed)));
    }
    reports
}

/// Packets of a run that is long enough for an outage (`docs/spec/classify.md`, §2).
const OUTAGE: u32 = 1500;

/// One run that is as long as an outage, after a delay that shows no queue.
fn outage(index: u64) -> UnattributedLoss {
    missing(index, OUTAGE, quiet())
}

#[test]
fn a_loss_without_a_verdict_is_charged_at_its_deadline() {
    let mut attributor = LossAttributor::default();
    let mut attributed = Vec::new();
    attributor.lose(context(MS), outage(5000), &mut attributed);
    assert!(attributed.is_empty() && !attributor.is_undecided());
    let deadline = MS + LossAttributor::deadline(20 * MS);
    assert_eq!(deadline, 351 * MS);
    assert_eq!(poll(&mut attributor, deadline - MS, 7000), []);
    assert_eq!((attributor.is_undecided(), attributor.pending()), (true, OUTAGE.into()));
    let reports = poll(&mut attributor, deadline, 7000);
    let told: Vec<_> = reports
        .iter()
        .map(|(at, told)| (*at, told.missing.index, told.cause, told.settled_by, told.before))
        .collect();
    assert_eq!(told, [(deadline, 5000, Cause::Unknown, SettledBy::Nothing, None)]);
    assert_eq!((attributor.is_undecided(), attributor.pending(), attributor.due()), (false, 0, None));
    // The next one is charged at the first look, half a round trip later.
    let now = 400 * MS;
    attributor.lose(context(now), outage(27_000), &mut attributed);
    let reports = poll(&mut attributor, now + 20 * MS, 29_000);
    assert_eq!(
        reports.iter().map(|(at, told)| (*at, told.cause)).collect::<Vec<_>>(),
        [(now + 10 * MS, Cause::Unknown)]
    );
    // So many packets later, losses wait again.
    let index = 5000 + u64::from(OUTAGE) + LossAttributor::NO_WAIT_PACKETS + 30_000;
    attributor.lose(context(2000 * MS), outage(index), &mut attributed);
    assert_eq!(poll(&mut attributor, 2340 * MS, index + 2000), []);
    assert_eq!(attributor.pending(), u64::from(OUTAGE));
}

#[test]
fn a_pending_loss_is_charged_before_it_leaves_the_window() {
    let mut attributor = LossAttributor::default();
    let mut attributed = Vec::new();
    attributor.lose(context(MS), outage(5000), &mut attributed);
    poll(&mut attributor, 100 * MS, 7000);
    let later = 5000 + LossAttributor::WINDOW_PACKETS + 1;
    attributor.lose(context(100 * MS), missing(later, 1, quiet()), &mut attributed);
    let told: Vec<_> = attributed.iter().map(|told| (told.missing.index, told.cause)).collect();
    assert_eq!(told, [(5000, Cause::Unknown)]);
}

#[test]
fn a_verdict_for_the_host_takes_back_what_was_charged_without_a_verdict() {
    let mut attributor = LossAttributor::default();
    let mut attributed = Vec::new();
    // Two stalls in fewer packets than a pattern needs.
    for (index, packets) in [(300, 120), (900, 140)] {
        attributor.lose(context(MS), missing(index, packets, quiet()), &mut attributed);
    }
    let charged = poll(&mut attributor, 400 * MS, 1500);
    let causes = |reports: &[(Duration, AttributedLoss)]| {
        reports.iter().map(|(_, told)| (told.missing.index, told.cause, told.before)).collect::<Vec<_>>()
    };
    assert_eq!(causes(&charged), [(300, Cause::Unknown, None), (900, Cause::Unknown, None)]);
    // In the following packets the stalls go on.
    let mut reports = Vec::new();
    for (n, (index, packets)) in stalls().into_iter().take(3).enumerate() {
        let now = 400 * MS + 50 * MS * n as u32;
        attributor.lose(context(now), missing(index, packets, quiet()), &mut attributed);
        reports.extend(poll(&mut attributor, now + 40 * MS, index + 1000));
    }
    let before = Some((Cause::Unknown, SettledBy::Nothing));
    for index in [300, 900] {
        let of = |told: &&(u64, Cause, Option<(Cause, SettledBy)>)| told.0 == index;
        assert_eq!(causes(&reports).iter().find(of), Some(&(index, Cause::Host, before)));
    }
}

#[test]
fn a_loss_over_a_long_queue_or_beside_a_mark_is_charged_at_once() {
    let long = GapReport { delay_us: Some(5000), ..GapReport::default() };
    let marked = GapReport { is_marked: Some(true), ..quiet() };
    for (evidence, settled_by) in [(long, SettledBy::Delay), (marked, SettledBy::Marks)] {
        let mut attributed = Vec::new();
        LossAttributor::default().lose(context(MS), missing(500, 2, evidence), &mut attributed);
        let told: Vec<_> = attributed.iter().map(|told| (told.cause, told.settled_by)).collect();
        assert_eq!(told, [(Cause::Network, settled_by)]);
        // The paper's classifier has no such evidence.
        let mut paper = LossAttributor::for_classification(&LossClassification::Paper).unwrap();
        attributed.clear();
        paper.lose(context(MS), missing(500, 2, evidence), &mut attributed);
        assert_eq!((attributed.len(), paper.pending()), (0, 2));
    }
}

#[test]
fn a_claim_without_a_delay_is_charged_at_once() {
    let mut attributed = Vec::new();
    let hidden = GapReport { host_drops: Some(true), ..GapReport::default() };
    let mut attributor = LossAttributor::default();
    attributor.lose(context(MS), missing(500, 2, hidden), &mut attributed);
    assert_eq!(attributed.first().map(|told| told.cause), Some(Cause::Network));
    // A pattern of few runs does not name the host either.
    attributor.lose(context(MS), missing(5000, 200, hidden), &mut attributed);
    poll(&mut attributor, 40 * MS, 8000);
    assert_eq!(attributor.ack_lost(5000, 1500), Some(Cause::Network));
}

#[test]
fn a_loss_without_a_delay_waits_once_in_a_million_packets() {
    // A loss that expires, and one that the network is blamed for.
    let wait = |attributor: &mut LossAttributor, runs: &[(u64, u32)]| {
        let mut attributed = Vec::new();
        for (index, packets) in runs {
            attributor.lose(context(MS), missing(*index, *packets, GapReport::default()), &mut attributed);
        }
        assert_eq!(attributor.pending(), lost(runs));
        let end = runs.last().map_or(0, |(index, packets)| index + u64::from(*packets)) + 1000;
        poll(attributor, 400 * MS, end);
        assert_eq!(attributor.pending(), 0);
        end
    };
    let singles: Vec<_> = single().into_iter().take_while(|(index, _)| *index < 15_000).collect();
    for runs in [&[(5000, 300)][..], &singles] {
        let mut attributor = LossAttributor::default();
        let end = wait(&mut attributor, runs);
        for (after, evidence, waits) in [
            (LossAttributor::NO_WAIT_PACKETS + 1, GapReport::default(), false),
            (LossAttributor::NO_WAIT_PACKETS + 2000, quiet(), true),
            (LossAttributor::DELAY_NEEDED_PACKETS - 1, GapReport::default(), false),
            (LossAttributor::DELAY_NEEDED_PACKETS, GapReport::default(), true),
        ] {
            let (mut attributor, mut attributed) = (attributor.clone(), Vec::new());
            attributor.lose(context(2000 * MS), missing(end + after, 1, evidence), &mut attributed);
            let charged: Vec<_> =
                attributed.iter().filter(|told| told.missing.index == end + after).collect();
            assert_eq!(charged.is_empty(), waits, "{after} packets later");
        }
    }
}

#[test]
fn stalls_of_a_host_that_reports_no_delay_are_not_charged() {
    let mut attributor = LossAttributor::default();
    // Five or six in 20 000 packets.
    let runs: Vec<_> = stalls().into_iter().map(|(index, packets)| (index * 3 / 5, packets)).collect();
    let lost_all = lost(&runs);
    let (told, _) = lose(&mut attributor, &runs, GapReport::default());
    assert!(told[0] * 10 >= lost_all * 7 && told[1] == 0, "{told:?} of {lost_all}");
    // After a verdict for the host, the next loss waits, too.
    let mut attributed = Vec::new();
    attributor.lose(context(100 * MS), missing(62_000, 100, GapReport::default()), &mut attributed);
    assert_eq!(attributed, []);
}

#[test]
fn a_window_of_many_gaps_is_classified_more_rarely() {
    let classifications = |every: usize| {
        let mut attributor = LossAttributor::default();
        let mut attributed = Vec::new();
        for index in (0..100_000u64).step_by(every) {
            let now = Duration::from_micros(10 * index);
            attributor.lose(context(now), missing(index, 1, quiet()), &mut attributed);
            attributor.poll(context(now), index + 1, &mut attributed);
        }
        attributor.classifications()
    };
    let (few, many, most) = (classifications(1000), classifications(20), classifications(2));
    // A second has 50 round trips. 1000 gaps or more are classified every 0.1 s.
    assert!((33..=50).contains(&few), "{few}");
    assert!((11..=17).contains(&many), "{many}");
    assert!((9..=14).contains(&most), "{most}");
}

#[test]
fn each_choice_of_a_classifier_uses_its_own_evidence() {
    let first = |classification, evidence| {
        let mut attributor = LossAttributor::for_classification(&classification).unwrap();
        let mut attributed = Vec::new();
        attributor.lose(context(MS), missing(500, 2, evidence), &mut attributed);
        attributed.first().map(|told| (told.cause, told.settled_by))
    };
    let host = Some((Cause::Host, SettledBy::Counter));
    assert_eq!(first(LossClassification::Default, claim(true)), host);
    assert_eq!(first(LossClassification::Counter, claim(true)), host);
    assert_eq!(first(LossClassification::Pattern, claim(true)), None);
    assert_eq!(first(LossClassification::Paper, claim(true)), None);
    let nothing = Some((Cause::Network, SettledBy::Nothing));
    assert_eq!(first(LossClassification::Counter, quiet()), nothing);
    assert!(LossAttributor::for_classification(&LossClassification::None).is_none());
}

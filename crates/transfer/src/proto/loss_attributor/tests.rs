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
/// `poll` each time it is due. Returns the lost packets by cause, and the packets with a withdrawn
/// cause.
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
    let mut back = 0;
    for attributed in attributed {
        let packets = u64::from(attributed.missing.packets);
        told[attributed.cause as usize] += packets;
        back += if attributed.before.is_some() { packets } else { 0 };
    }
    (told, back)
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

fn claim(host_drops: bool) -> GapReport {
    GapReport { host_drops: Some(host_drops), ..GapReport::default() }
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
    let (told, back) = lose(&mut LossAttributor::default(), &stalls(), GapReport::default());
    assert_eq!(told.iter().sum::<u64>() - back, lost_all);
    assert!(told[0] * 10 >= lost_all * 7 && told[1] == 0, "{told:?} of stalls");
    let lost_all = lost(&single());
    let mut attributor = LossAttributor::default();
    let (told, _) = lose(&mut attributor, &single(), GapReport::default());
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
    // The receiver's claims are used in the first round trip, and then withdrawn. Each loss that
    // waits for a cause is reported once.
    assert_eq!(told.iter().sum::<u64>() - back, lost_all);
    assert_eq!(told[0], back, "all that was the host's was taken back: {told:?}");
    assert!(back > 0 && back * 4 < lost_all, "{back} of {lost_all}");
}

#[test]
fn lost_packets_that_arrive_late_are_not_reported() {
    let mut attributor = LossAttributor::default();
    let mut attributed = Vec::new();
    attributor.lose(context(MS), missing(100, 5, GapReport::default()), &mut attributed);
    attributor.lose(context(MS), missing(200, 1, GapReport::default()), &mut attributed);
    let forgotten = Some(Cause::Unknown);
    assert_eq!(
        [102, 200, 7, 102].map(|index| attributor.ack_lost(index, 1500)),
        [None, None, forgotten, forgotten]
    );
    attributor.poll(context(40 * MS), 300, &mut attributed);
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
        attributor.lose(context(MS), missing(n * 500, 1, GapReport::default()), &mut attributed);
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
    attributor.lose(context(MS), missing(300_000, 50_000, GapReport::default()), &mut attributed);
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
            attributor.lose(
                context(now),
                missing(from + index, *packets, GapReport::default()),
                &mut attributed,
            );
        }
        attributed.len()
    };
    let first = turn(&mut attributor, 0);
    let again = allocation_counter::measure(|| assert!(turn(&mut attributor, 1) * 2 > first));
    assert_eq!(again.count_total, 0);
}

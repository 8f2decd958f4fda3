use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

mod gain;

const fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("host{i}")).collect()
}

fn planner(config: PlanConfig, peers: &[String]) -> Planner {
    let mut planner = Planner::new("me", config, Duration::ZERO).unwrap();
    planner.set_peers(peers.iter().map(String::as_str));
    planner
}

fn forecast(goodput_bit_s: f64) -> PairForecast {
    PairForecast { goodput_bit_s, settles_in: Duration::from_millis(500) }
}

/// Runs one turn when it is due, without refusals.
fn turn(planner: &mut Planner, cost: Option<Cost>) -> (Duration, PlannedTest) {
    let now = planner.next_at();
    let next = planner.next(now).expect("there are peers, and none refused");
    let cost = cost.unwrap_or(next.expected);
    planner.record_test(now + cost.duration, &next.peer, cost, 1e8);
    (now, next)
}

#[test]
fn an_advanced_turn_does_not_start_before_the_budget_allows_it() {
    let mut planner = planner(PlanConfig::default(), &names(3));
    planner.advance_next_turn(seconds(1));
    assert!(planner.next_at() <= seconds(1));
    let cheap = Cost { duration: seconds(2), bytes: 1000 };
    let (now, _) = turn(&mut planner, Some(cheap));
    planner.advance_next_turn(now + seconds(20));
    assert_eq!(planner.next_at(), now + seconds(20));
    planner.advance_next_turn(now + seconds(60));
    assert_eq!(planner.next_at(), now + seconds(20), "it only brings forward");
    let (now, _) = turn(&mut planner, Some(Cost { duration: seconds(5), bytes: 1000 }));
    let earned = planner.next_at();
    planner.advance_next_turn(now);
    assert!(now + seconds(300) < planner.next_at() && planner.next_at() <= earned, "two seconds are owed");
}

#[test]
fn the_first_test_of_a_pair_is_full_and_later_one_in_twenty() {
    let peers = names(5);
    let mut planner = planner(PlanConfig::default(), &peers);
    for _ in 0..5 {
        assert_eq!(turn(&mut planner, None).1.kind, TestKind::Full);
    }
    peers.iter().for_each(|peer| planner.set_forecast(peer, forecast(1e8)));
    let full = (0..2000).filter(|_| turn(&mut planner, None).1.kind == TestKind::Full).count();
    assert!((70..130).contains(&full), "{full}");
}

#[test]
fn expected_cost_follows_the_forecast() {
    let mut planner = planner(PlanConfig::default(), &names(1));
    let cap = PlanConfig::default().budget.test_cap();
    assert_eq!(turn(&mut planner, None).1.expected, cap);
    planner.set_forecast("host0", forecast(1e8));
    planner.set_forecast("unknown", forecast(1e8));
    let settled = (0..100).map(|_| turn(&mut planner, None).1).find(|next| next.kind == TestKind::Settled);
    let half_a_second = Cost { duration: Duration::from_millis(500), bytes: 6_250_000 };
    assert_eq!(settled.unwrap().expected, half_a_second);
    for goodput_bit_s in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
        planner.set_forecast("host0", PairForecast { goodput_bit_s, settles_in: seconds(99) });
        assert_eq!(turn(&mut planner, None).1.expected, cap, "{goodput_bit_s}");
    }
}

#[test]
fn full_tests_are_paced_by_time_and_by_bytes() {
    for (bytes, expected_s) in [(1_000_000, 1429), (625_000_000, 5143), (10_000, 1429)] {
        let mut planner = planner(PlanConfig::default(), &names(3));
        let cost = Cost { duration: seconds(5), bytes };
        let starts: Vec<_> = (0..20).map(|_| turn(&mut planner, Some(cost)).0).collect();
        let mean = (starts[19] - starts[2]).as_secs_f64() / 17.0;
        assert!((mean - expected_s as f64).abs() < 0.02 * expected_s as f64, "{mean} s, {bytes} bytes");
    }
    // The paper's plan has no budget, so its turns do not wait for a budget.
    let mut planner = planner(PlanConfig::paper(), &names(3));
    let cost = Cost { duration: seconds(5), bytes: 625_000_000 };
    let starts: Vec<_> = (0..20).map(|_| turn(&mut planner, Some(cost)).0).collect();
    assert!((starts[19] - starts[0]).as_secs_f64() / 19.0 < 330.0);
}

#[test]
fn a_peer_that_refused_is_tested_first_after_its_back_off() {
    let peers = names(6);
    let mut planner = planner(PlanConfig::default(), &peers);
    for _ in 0..12 {
        turn(&mut planner, None);
    }
    let now = planner.next_at();
    let first = planner.next(now).unwrap();
    planner.record_refusal(now, &first.peer, seconds(2));
    let second = planner.next(now).unwrap();
    assert_ne!(first.peer, second.peer);
    planner.record_test(now, &second.peer, second.expected, 1e8);
    assert_eq!(turn(&mut planner, None).1.peer, first.peer);
    assert_eq!(planner.turn_counts(), TurnCounts { tests: 14, skipped: 0, refusals: 1, deferrals: 0 });
}

#[test]
fn a_turn_is_skipped_after_four_refusals_and_long_back_offs_are_capped() {
    let peers = names(6);
    let mut planner = planner(PlanConfig::default(), &peers);
    let now = planner.next_at();
    for _ in 0..4 {
        let next = planner.next(now).unwrap();
        planner.record_refusal(now, &next.peer, Duration::MAX);
    }
    assert_eq!(planner.next(now), None);
    assert_eq!(planner.turn_counts().skipped, 1);
    // The back-off is at most a quarter of an hour, and at most 1.5 times as long with jitter. So
    // every peer can be tested again.
    let mut met = BTreeMap::new();
    while planner.next_at() < now + seconds(6 * 1375) {
        met.insert(turn(&mut planner, Some(Cost::default())).1.peer, ());
    }
    assert_eq!(met.len(), 6);
}

#[test]
fn a_turn_postponed_by_its_own_host_is_kept() {
    let mut planner = planner(PlanConfig::default(), &names(3));
    let now = planner.next_at();
    let next = planner.next(now).unwrap();
    planner.postpone(now, seconds(7));
    assert_eq!(planner.next(now), None);
    assert_eq!(planner.next_at(), now + seconds(7));
    assert_eq!(planner.next(now + seconds(7)), Some(next));
    planner.postpone(now, Duration::MAX);
    assert_eq!(planner.next_at(), now + seconds(3600));
}

#[test]
fn a_dead_peer_takes_at_most_its_share_of_turns() {
    let peers = names(8);
    let mut planner = planner(PlanConfig::default(), &peers);
    let (mut dead, mut all) = (0, 0);
    while planner.next_at() < seconds(1_000_000) {
        let now = planner.next_at();
        let Some(next) = planner.next(now) else { continue };
        all += 1;
        if *next.peer == *"host3" {
            dead += 1;
            planner.record_failure(now + seconds(5), &next.peer, Cost { duration: seconds(5), bytes: 0 });
        } else {
            planner.set_forecast(&next.peer, forecast(1e8));
            planner.record_test(now + seconds(1), &next.peer, next.expected, 1e8);
        }
    }
    assert!(0 < dead && dead <= all / 8, "{dead} of {all}");
}

#[test]
fn a_hundred_stations_started_together_spread_their_first_tests() {
    let peers = names(100);
    let firsts: Vec<(Duration, Arc<str>)> = peers
        .iter()
        .map(|host| {
            let mut planner = Planner::new(host, PlanConfig::default(), Duration::ZERO).unwrap();
            planner.set_peers(peers.iter().map(String::as_str));
            let at = planner.next_at();
            (at, planner.next(at).unwrap().peer)
        })
        .collect();
    let at_once = |at: Duration| firsts.iter().filter(|(t, _)| at <= *t && *t < at + seconds(5)).count();
    let most = firsts.iter().map(|(at, _)| at_once(*at)).max().unwrap();
    // 100 turns in 300 s are 1.7 turns in 5 s on average.
    assert!(most <= 8, "{most} turns within 5 s");
    let mut targets = BTreeMap::new();
    firsts.iter().for_each(|(_, peer)| *targets.entry(peer).or_insert(0) += 1);
    assert!(*targets.values().max().unwrap() <= 6, "{targets:?}");
    assert!(firsts.iter().all(|(at, _)| *at < seconds(300)));
}

#[test]
fn the_papers_list_has_each_peer_once_in_random_order_and_is_then_renewed() {
    let peers = names(12);
    let mut planner = planner(PlanConfig::paper(), &peers);
    let cycle = |planner: &mut Planner, n: usize| -> Vec<String> {
        (0..n).map(|_| turn(planner, None).1.peer.to_string()).collect()
    };
    let first = cycle(&mut planner, 5);
    planner.set_peers(names(13).iter().map(String::as_str));
    let rest = cycle(&mut planner, 7);
    let mut all = [first.clone(), rest].concat();
    let order = all.clone();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 12, "{order:?}");
    assert!(!all.contains(&"host12".to_owned()));
    let mut second = cycle(&mut planner, 13);
    assert_ne!(second[..12], order);
    second.sort();
    second.dedup();
    assert_eq!(second.len(), 13);
}

#[test]
fn a_mesh_of_one_station_has_turns_without_tests() {
    let mut planner = planner(PlanConfig::default(), &["me".to_owned()]);
    for _ in 0..3 {
        let now = planner.next_at();
        assert_eq!(planner.next(now), None);
        assert!(now + seconds(270) <= planner.next_at());
    }
    assert_eq!(planner.turn_counts(), TurnCounts::default());
}

#[test]
fn a_flapping_peer_gets_its_share_of_turns() {
    let peers = names(10);
    let mut planner = planner(PlanConfig::default(), &peers);
    peers.iter().for_each(|peer| planner.set_forecast(peer, forecast(1e8)));
    let mut flapping = 0;
    for _ in 0..500 {
        planner.set_peers(peers[1..].iter().map(String::as_str));
        planner.set_peers(peers.iter().map(String::as_str));
        flapping += usize::from(*turn(&mut planner, None).1.peer == *"host0");
    }
    assert!((40..=60).contains(&flapping), "{flapping} of 500");
    // After a day the peer is new, and the number of departed peers is bounded.
    planner.set_peers(peers[1..].iter().map(String::as_str));
    planner.next(planner.now + DEPARTED_FOR);
    planner.set_peers(peers.iter().map(String::as_str));
    assert_eq!(planner.pairs["host0"].last, None);
    planner.set_peers(names(DEPARTED_MAX + 20).iter().map(String::as_str));
    planner.set_peers([]);
    assert!(planner.departed.len() <= DEPARTED_MAX);
}

#[test]
fn turn_lengths_vary_so_that_stations_do_not_stay_synchronized() {
    let mut planner = planner(PlanConfig::default(), &names(5));
    let starts: Vec<_> = (0..200).map(|_| turn(&mut planner, Some(Cost::default())).0).collect();
    let steps: Vec<f64> = starts.windows(2).map(|two| (two[1] - two[0]).as_secs_f64()).collect();
    assert!(steps.iter().all(|step| (270.0..=330.0).contains(step)), "{steps:?}");
    assert!(steps.iter().any(|step| *step < 280.0) && steps.iter().any(|step| *step > 320.0), "{steps:?}");
}

#[test]
fn a_host_in_two_groups_runs_tests_at_half_the_rate() {
    let mut planner = planner(PlanConfig::default(), &names(3));
    planner.set_groups(2);
    let cost = Cost { duration: seconds(5), bytes: 1_000_000 };
    let starts: Vec<_> = (0..20).map(|_| turn(&mut planner, Some(cost)).0).collect();
    let mean = (starts[19] - starts[2]).as_secs_f64() / 17.0;
    assert!((mean - 2857.0).abs() < 60.0, "{mean} s");
    assert!(Duration::from_secs(12 * 2857) <= planner.revisit_bound());
}

proptest! {
    #[test]
    fn every_pair_is_tested_within_the_bound_on_turns(
        errors in prop::collection::vec(0.0..1.2_f64, 2..50),
        arrivals in prop::collection::vec((0..400_usize, 1..6_usize), 0..20),
        seed in any::<u64>(),
        is_paper in any::<bool>(),
    ) {
        let policy = if is_paper { SelectionPolicy::Paper } else { SelectionPolicy::Gain };
        let mut planner = planner(PlanConfig { seed, policy, ..PlanConfig::default() }, &names(errors.len()));
        let mut known = errors.len();
        // Step in which each peer was last tested, or in which the peer joined.
        let mut last: BTreeMap<String, usize> = names(known).into_iter().map(|name| (name, 0)).collect();
        let mut cycle_of_peers = known;
        for step in 1..=500_usize {
            for (_, more) in arrivals.iter().filter(|(at, _)| *at == step) {
                known += more;
                planner.set_peers(names(known).iter().map(String::as_str));
                names(known).into_iter().for_each(|name| { last.entry(name).or_insert(step); });
                cycle_of_peers = known;
            }
            let before = planner.next_at();
            let (_, next) = turn(&mut planner, Some(Cost { duration: seconds(1), bytes: 1 << 20 }));
            planner.set_forecast(&next.peer, forecast(1e8 * (1.0 + errors[step % errors.len()])));
            let cap = planner.config.budget.test_cap();
            prop_assert!(planner.next_at() - before <= planner.config.turn_max(cap));
            let waited = step - last[&*next.peer];
            // The current list of `SelectionPolicy::Paper` is finished before a new list is made.
            let bound = policy.turns_max(cycle_of_peers as u32) as usize + usize::from(is_paper);
            prop_assert!(waited <= bound, "{} waited {waited} of {bound} turns", next.peer);
            last.insert(next.peer.to_string(), step);
        }
        let oldest = last.values().map(|at| 500 - at).max().unwrap();
        prop_assert!(oldest <= policy.turns_max(cycle_of_peers as u32) as usize);
    }

    #[test]
    fn new_peers_wait_at_most_two_cycles_and_starve_no_other_peer(
        n in 2..30_usize, more in 1..60_usize, seed in any::<u64>(),
    ) {
        let mut planner = planner(PlanConfig { seed, ..PlanConfig::default() }, &names(n));
        (0..n).for_each(|_| { turn(&mut planner, None); });
        // There is a new peer in each turn, because one peer leaves and returns under a different
        // name.
        let mut came: BTreeMap<String, usize> = BTreeMap::new();
        let mut last: BTreeMap<String, usize> = names(n).into_iter().map(|name| (name, 0)).collect();
        let peers = n + more;
        for step in 1..=6 * peers {
            let new: Vec<String> = (0..more).map(|i| format!("new{i}.{}", (step + i) / more)).collect();
            new.iter().for_each(|name| { came.entry(name.clone()).or_insert(step); });
            planner.set_peers(names(n).iter().chain(&new).map(String::as_str));
            let (_, next) = turn(&mut planner, None);
            if let Some(last) = last.get_mut(&*next.peer) {
                prop_assert!(step - *last <= 4 * peers, "{} waited {}", next.peer, step - *last);
                *last = step;
            } else {
                prop_assert!(step - came[&*next.peer] <= 2 * peers);
            }
        }
        prop_assert!(last.values().all(|at| 6 * peers - at <= 4 * peers), "{last:?}");
    }

    #[test]
    fn every_new_peer_has_a_turn_within_two_cycles(
        n in 2..30_usize, more in 1..60_usize, waited in 0..200_usize, seed in any::<u64>(),
    ) {
        let mut planner = planner(PlanConfig { seed, ..PlanConfig::default() }, &names(n));
        (0..n + waited).for_each(|_| { turn(&mut planner, None); });
        planner.set_peers(names(n + more).iter().map(String::as_str));
        let turns: Vec<PlannedTest> = (0..2 * (n + more)).map(|_| turn(&mut planner, None).1).collect();
        for i in n..n + more {
            prop_assert!(turns.iter().any(|next| *next.peer == *format!("host{i}")), "host{i}");
        }
    }
}

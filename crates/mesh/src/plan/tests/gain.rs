//! What the plan learns from the gains of tests.

use super::*;
use crate::plan::gain::PairGains;

/// Runs 1000 turns with the given rates of hosts, and counts the turns of each host. The forecast
/// of a pair is half its last rate and half its last forecast.
fn turns_of(rates: impl Fn(&str, u32) -> f64) -> BTreeMap<String, u32> {
    let peers = names(10);
    let mut planner = planner(PlanConfig::default(), &peers);
    let mut turns = BTreeMap::new();
    let mut known = BTreeMap::new();
    for step in 0..1000 {
        let now = planner.next_at();
        let next = planner.next(now).unwrap();
        let rate = rates(&next.peer, step);
        planner.record_test(now, &next.peer, Cost::default(), rate);
        let known = known.entry(next.peer.clone()).or_insert(rate);
        *known += (rate - *known) / 2.0;
        planner.set_forecast(&next.peer, forecast(*known));
        *turns.entry(next.peer.to_string()).or_insert(0) += 1;
    }
    turns
}

#[test]
fn a_pair_with_a_changing_mean_gets_more_turns_than_a_noisier_pair() {
    // The mean rate of host 0 changes between − 40 % and + 40 % every 50 turns. The rate of host 1
    // varies by ± 60 % in each turn, and the rates of the other hosts by ± 4 %.
    let rates = |host: &str, step: u32| {
        let sign = f64::from(crate::rng::hash_rank(1, &step.to_string()) as u32 & 1) * 2.0 - 1.0;
        match host {
            "host0" => 1e8 * (1.0 + 0.4 * (f64::from(step / 50 % 2) * 2.0 - 1.0)),
            "host1" => 1e8 * (1.0 + 0.6 * sign),
            _ => 1e8 * (1.0 + 0.04 * sign),
        }
    };
    let turns = turns_of(rates);
    let others = turns.iter().filter(|(host, _)| !["host0", "host1"].contains(&host.as_str()));
    assert!(turns["host1"] < turns["host0"], "{turns:?}");
    assert!(others.map(|(_, turns)| *turns).max().unwrap() < turns["host0"] / 2, "{turns:?}");
}

#[test]
fn one_of_two_pairs_can_have_two_turns_in_a_row() {
    let mut planner = planner(PlanConfig::default(), &names(2));
    let mut peers = Vec::new();
    for step in 0..200_u32 {
        let now = planner.next_at();
        let next = planner.next(now).unwrap();
        let rate = if *next.peer == *"host0" && step / 7 % 2 == 0 { 2e8 } else { 1e8 };
        planner.record_test(now, &next.peer, Cost::default(), rate);
        planner.set_forecast(&next.peer, forecast(rate));
        peers.push(next.peer);
    }
    assert!(peers.windows(2).any(|two| two[0] == two[1]), "{peers:?}");
}

#[test]
fn gain_counts_the_turns_since_the_last_test_including_failed_ones() {
    let mut planner = planner(PlanConfig::default(), &names(1));
    // The tests of turns 1, 4 and 6 measure 1e8, 2e8 and 2e8 bit/s. Each forecast is the last rate.
    for (turn, rate) in [(1, Some(1e8)), (2, None), (3, None), (4, Some(2e8)), (5, None), (6, Some(2e8))] {
        let now = planner.next_at().max(Duration::from_secs(turn * 10_000));
        match rate {
            Some(rate) => {
                planner.record_test(now, "host0", Cost::default(), rate);
                planner.set_forecast("host0", forecast(rate));
            }
            None => planner.record_failure(now, "host0", Cost::default()),
        }
    }
    // Because of the test in turn 4, the error in turn 6 is 0 instead of 1e8, which is 0.6 of the
    // mean rate of 5/3 e8. The test before turn 4 was 3 turns earlier.
    let gained = planner.pairs["host0"].gains.gained();
    assert!((gained.0 - 0.6).abs() < 1e-9 && gained.1 == 3.0, "{gained:?}");
}

#[test]
fn pairs_without_valid_rates_are_tested_by_age() {
    for rate in [0.0, f64::NAN, f64::INFINITY, -1.0, f64::MAX] {
        let turns = turns_of(|_, _| rate);
        assert!(turns.values().all(|turns| *turns == 100), "{rate}: {turns:?}");
    }
}

#[test]
fn absurd_forecasts_of_one_pair_do_not_affect_other_pairs() {
    let (mut absurd, other) = (PairGains::default(), PairGains::default());
    for turn in 1..10 {
        absurd.learn(turn, Some(f64::MAX), f64::MIN_POSITIVE);
    }
    let prior = GainPrior::new([&absurd, &other].into_iter());
    assert!(prior.sqrt_gain(&absurd).is_finite() && prior.sqrt_gain(&other) > 0.0, "{absurd:?}, {prior:?}");
}

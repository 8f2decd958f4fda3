use proptest::prelude::*;

use super::*;

const fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn cost(s: f64, bytes: u64) -> Cost {
    Cost { duration: Duration::from_secs_f64(s), bytes }
}

#[test]
fn seven_full_tests_fit_into_an_hour_at_one_per_cent() {
    let mut budget = Budget::new(BudgetConfig::default()).unwrap();
    let mut starts = Vec::new();
    let mut now = Duration::ZERO;
    while now < seconds(3600) {
        let role = if starts.len() % 2 == 0 { Role::Source } else { Role::Target };
        let peer = format!("peer{}", starts.len());
        match budget.reserve(now, role, &peer, cost(5.0, 1000)) {
            Ok(reservation) => {
                starts.push(now);
                now += seconds(5);
                budget.settle(now, reservation, cost(5.0, 1000));
            }
            Err(wait) => now += wait,
        }
    }
    assert_eq!(starts.len(), 7, "{starts:?}");
}

#[test]
fn the_reported_wait_is_exact() {
    let mut budget = Budget::new(BudgetConfig::default()).unwrap();
    for at in [0, 100, 200, 300, 310, 320] {
        let reservation = budget.reserve(seconds(at), Role::Source, "b", cost(5.0, 0)).unwrap();
        budget.settle(seconds(at + 5), reservation, cost(5.0, 0));
    }
    // Six tests cost 30 s, more than three quarters of 36 s. So the next test must wait until the
    // first one is an hour old.
    assert_eq!(budget.reserve(seconds(400), Role::Source, "b", cost(5.0, 0)), Err(seconds(3605 - 400)));
    assert!(budget.reserve(seconds(3605), Role::Source, "b", cost(5.0, 0)).is_ok());
}

#[test]
fn no_peer_can_use_the_share_of_other_peers() {
    let mut budget = Budget::new(BudgetConfig::default()).unwrap();
    let reservation = budget.reserve(seconds(0), Role::Target, "greedy", cost(5.0, 0)).unwrap();
    budget.settle(seconds(5), reservation, cost(5.0, 0));
    assert_eq!(budget.reserve(seconds(5), Role::Target, "greedy", cost(5.0, 0)), Err(seconds(3600)));
    assert!(budget.reserve(seconds(5), Role::Target, "other", cost(5.0, 0)).is_ok());
    // If the mesh has only one peer, that peer may use the whole half.
    let mut budget = Budget::new(BudgetConfig::default()).unwrap();
    budget.set_peers(1);
    for at in [0, 10, 20, 30] {
        let reservation = budget.reserve(seconds(at), Role::Target, "only", cost(5.0, 0)).unwrap();
        budget.settle(seconds(at), reservation, cost(5.0, 0));
    }
    assert!(budget.reserve(seconds(40), Role::Target, "only", cost(5.0, 0)).is_err());
}

#[test]
fn a_full_test_leaves_a_peer_its_short_tests_which_have_a_limit_of_their_own() {
    let mut budget = Budget::new(BudgetConfig::default()).unwrap();
    let mut test = |at, expected_s: f64| {
        let reservation = budget.reserve(seconds(at), Role::Target, "b", cost(expected_s, 0)).ok()?;
        // Every test takes longer than expected.
        budget.settle(seconds(at), reservation, cost(expected_s + 1.0, 0));
        Some(())
    };
    assert!(test(0, 5.0).is_some());
    assert_eq!(test(10, 5.0), None, "6 s are more than an eighth of 36 s");
    assert_eq!(test(20, 2.1), None, "not a short test");
    for at in [30, 40] {
        assert!(test(at, 2.0).is_some(), "{at}");
    }
    assert_eq!(test(50, 2.0), None, "short tests took 6 s");
}

#[test]
fn a_fast_peer_with_full_and_short_tests_leaves_bytes_for_other_peers() {
    let config = BudgetConfig::default();
    let mut budget = Budget::new(config).unwrap();
    let of_short = config.short_test_max();
    let requests = [cost(2.1, 155_000_000), config.test_cap(), cost(2.0, 400_000_000)];
    let mut taken = 0;
    for expected in requests.into_iter().chain([cost(1.0, 78_000_000), of_short, of_short]) {
        if let Ok(reservation) = budget.reserve(seconds(1), Role::Target, "fast", expected) {
            budget.settle(seconds(1), reservation, expected);
            taken += expected.bytes;
        }
    }
    assert_eq!(taken, 155_000_000 + 625_000_000 + 78_000_000 + of_short.bytes);
    assert!(budget.reserve(seconds(1), Role::Target, "other", cost(2.0, 50_000_000)).is_ok());
}

#[test]
fn a_restart_does_not_renew_the_budget() {
    let config = BudgetConfig::default();
    let mut before = Budget::new(config).unwrap();
    for (at, peer) in [(1000, "b"), (2000, "d")] {
        let reservation = before.reserve(seconds(at), Role::Target, peer, cost(5.0, 7)).unwrap();
        before.settle(seconds(at + 5), reservation, cost(5.0, 7));
    }
    // The station is killed during a third test.
    let _ = before.reserve(seconds(2100), Role::Source, "c", cost(5.0, 0)).unwrap();
    let past = before.export(seconds(2100));
    let mut after = Budget::new(config).unwrap();
    after.import(seconds(0), past);
    let spent = after.spent(seconds(0));
    assert_eq!((spent.target, spent.tests), (cost(10.0, 14), 3));
    assert_eq!(spent.source, config.test_cap(), "its cost is unknown");
    // The second test ended 95 s before the restart.
    assert_eq!(after.reserve(seconds(0), Role::Target, "d", cost(5.0, 0)), Err(seconds(3505)));
    assert_eq!(after.spent(seconds(3504)).tests, 2);
    assert_eq!(after.spent(seconds(3600)).tests, 0, "no longer than an hour");
}

#[test]
fn one_test_runs_at_a_time_and_a_cancelled_test_is_free() {
    let mut budget = Budget::new(BudgetConfig::default()).unwrap();
    let first = budget.reserve(seconds(0), Role::Source, "b", cost(5.0, 9)).unwrap();
    assert_eq!(budget.reserve(seconds(1), Role::Target, "c", cost(5.0, 9)), Err(seconds(5)));
    budget.cancel(first);
    assert_eq!(budget.spent(seconds(2)), BudgetUsage::default());
    assert!(budget.reserve(seconds(2), Role::Target, "c", cost(5.0, 9)).is_ok());
}

#[test]
fn the_number_of_tests_without_cost_is_bounded() {
    let mut budget = Budget::new(BudgetConfig::default()).unwrap();
    for _ in 0..TESTS_PER_HOUR_MAX {
        let reservation = budget.reserve(seconds(1), Role::Source, "b", Cost::default()).unwrap();
        budget.settle(seconds(1), reservation, Cost::default());
    }
    assert_eq!(budget.reserve(seconds(1), Role::Source, "b", Cost::default()), Err(seconds(3600)));
}

#[test]
fn invalid_budgets_are_rejected_with_the_value() {
    let config = BudgetConfig::default();
    for share in [0.0, -0.5, 1.5, f64::NAN] {
        let error = BudgetConfig { share, ..config }.check().unwrap_err();
        assert!(error.to_string().contains(&share.to_string()), "{error}");
    }
    let error = BudgetConfig { share: 0.001, ..config }.check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "a test of 5s does not fit into an hour: a share of 0.001 is 3.6s; use a larger share or a shorter test"
    );
    assert_eq!(BudgetConfig { bytes_per_hour: 1, ..config }.check(), Err(BudgetError::Bytes(1)));
    assert_eq!(BudgetConfig::paper().check(), Ok(()));
}

#[derive(Clone, Debug)]
struct Attempt {
    wait_s: u64,
    is_source: bool,
    peer: u8,
    expected: Cost,
    actual: Cost,
    /// Time by which the clock advances during the test. The clock may stand still or jump.
    runs_s: u64,
}

fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
    let times = || prop_oneof![3 => 0..3_u64, 3 => 0..400_u64, 1 => 3000..8000_u64];
    let costs = || (0..=5000_u64, 0..=700_000_000_u64);
    let attempt = (times(), any::<bool>(), 0..5_u8, costs(), costs(), times());
    prop::collection::vec(attempt, 1..120).prop_map(|all| {
        all.into_iter()
            .map(|(wait_s, is_source, peer, expected, actual, runs_s)| {
                let cost = |(ms, bytes)| Cost { duration: Duration::from_millis(ms), bytes };
                let actual = cost(actual).at_most(BudgetConfig::default().test_cap());
                Attempt { wait_s, is_source, peer, expected: cost(expected), actual, runs_s }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn tests_exceed_the_hourly_budget_by_at_most_one_test(attempts in attempts(), share in 0.002..0.05_f64) {
        let config = BudgetConfig { share, ..BudgetConfig::default() };
        let mut budget = Budget::new(config).unwrap();
        let mut now = Duration::ZERO;
        let mut tests: Vec<(Duration, Duration, Attempt)> = Vec::new();
        for attempt in attempts {
            now += seconds(attempt.wait_s);
            let role = if attempt.is_source { Role::Source } else { Role::Target };
            let start = now;
            if let Ok(reservation) = budget.reserve(now, role, &attempt.peer.to_string(), attempt.expected) {
                now += seconds(attempt.runs_s);
                // A time before the latest time seen counts as the latest time seen.
                let settled_at = now.saturating_sub(seconds(attempt.wait_s));
                budget.settle(settled_at, reservation, attempt.actual);
                tests.push((start, settled_at.max(start), attempt));
            }
        }
        let limit = config.per_hour();
        for from in tests.iter().map(|&(_, end, _)| end).chain([Duration::ZERO]) {
            let inside = |kept: &dyn Fn(&Attempt) -> bool| {
                let window = tests.iter().filter(|(start, end, _)| from < *end && *start <= from + HOUR);
                window.filter(|(_, _, attempt)| kept(attempt)).fold(
                    (Cost::default(), Cost::default()),
                    |(sum, _), (_, _, attempt)| (sum.plus(attempt.actual), attempt.actual),
                )
            };
            let (all, last) = inside(&|_| true);
            prop_assert!(all.fits(limit.plus(last)), "{all:?} in an hour of {limit:?}");
            for is_source in [true, false] {
                let (sum, last) = inside(&|attempt| attempt.is_source == is_source);
                prop_assert!(sum.fits(limit.plus(last)) && sum.duration <= limit.duration * 3 / 4 + last.duration, "{sum:?} by one end of {limit:?}");
            }
            let (sum, last) = inside(&|attempt| !attempt.is_source && attempt.peer == 0);
            // An eighth for all tests and an eighth for short tests, each plus less than one test.
            let short = Cost { bytes: limit.bytes / 16, ..limit.of(8) };
            let most = limit.of(8).plus(short).plus(last).plus(config.test_cap());
            prop_assert!(sum.fits(most), "{sum:?} by one peer, of {limit:?}");
        }
    }

    #[test]
    fn a_peer_that_waits_the_reported_time_is_admitted(attempts in attempts()) {
        let mut budget = Budget::new(BudgetConfig::default()).unwrap();
        let mut now = Duration::ZERO;
        for attempt in attempts {
            let role = if attempt.is_source { Role::Source } else { Role::Target };
            let peer = attempt.peer.to_string();
            let reservation = match budget.reserve(now, role, &peer, attempt.expected) {
                Ok(reservation) => reservation,
                Err(wait) => {
                    prop_assert!(wait <= HOUR);
                    now += wait;
                    budget.reserve(now, role, &peer, attempt.expected).unwrap()
                }
            };
            budget.settle(now, reservation, attempt.actual);
        }
    }
}

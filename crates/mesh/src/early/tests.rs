use super::*;

const fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// A path to one peer in virtual time.
struct SimulatedPath {
    name: &'static str,
    rate_bit_s: f64,
    /// Spread of the rates of trains, in natural logarithms.
    spread: f64,
    /// Rates that were measured, newest last.
    measured: Vec<f64>,
    /// Times at which early tests ended.
    tests: Vec<Duration>,
}

/// A host with its paths. Its forecast is the median of the last five goodputs, so it follows a
/// change after three tests.
struct Simulation {
    early: EarlyTests,
    rng: SeededRng,
    now: Duration,
    paths: Vec<SimulatedPath>,
    spent: Cost,
}

impl Simulation {
    fn new(names: &[&'static str]) -> Self {
        let now = Duration::ZERO;
        let path = |&name: &&'static str| SimulatedPath {
            name,
            rate_bit_s: 100e6,
            spread: 0.02,
            measured: vec![100e6; 5],
            tests: Vec::new(),
        };
        let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, now);
        early.set_peers(now, names.iter().map(|name| (*name, true)));
        let paths = names.iter().map(path).collect();
        Self { early, rng: SeededRng::new(1, "paths"), now, paths, spent: Cost::default() }
    }

    fn path(&mut self, name: &str) -> &mut SimulatedPath {
        self.paths.iter_mut().find(|path| path.name == name).unwrap()
    }

    /// Runs in ticks of a second, as the station does. A test takes a second.
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += seconds(1);
            let now = self.now;
            if let Some(peer) = self.early.next_train(now) {
                let rate = self.train(&peer);
                self.early.record_train(now, &peer, Some(rate));
            }
            let paths = &self.paths;
            let Some(test) = self.early.next_test(now, |peer| forecast(paths, peer)) else { continue };
            self.now += seconds(1);
            let now = self.now;
            let path = self.path(&test.peer);
            let rate = path.rate_bit_s;
            path.measured.push(rate);
            path.tests.push(now);
            let cost = Cost { duration: seconds(1), bytes: 1_000_000 };
            self.spent = self.spent.plus(cost);
            self.early.record_test(now, &test, cost, true);
            self.early.observe(now, &test.peer, WatchedQuantity::Goodput, rate, None);
        }
    }

    /// Rate of a train: a lognormal with the spread of the path (Box and Muller, 1958).
    fn train(&mut self, peer: &str) -> f64 {
        let (radius, angle) = (self.rng.uniform(), self.rng.uniform());
        let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let path = self.path(peer);
        path.rate_bit_s * (normal * path.spread).exp()
    }
}

fn forecast(paths: &[SimulatedPath], peer: &str) -> Option<f64> {
    let path = paths.iter().find(|path| path.name == peer)?;
    let mut newest = path.measured[path.measured.len() - 5..].to_vec();
    newest.sort_unstable_by(f64::total_cmp);
    Some(newest[2])
}

const FIVE: [&str; 5] = ["b", "c", "d", "e", "f"];

#[test]
fn the_forecast_follows_a_fall_to_a_tenth_within_a_minute_with_five_peers() {
    // At each phase of the trains, soon after the start and later.
    for after_s in (30..55).chain(300..325) {
        let mut simulation = Simulation::new(&FIVE);
        simulation.run(seconds(after_s));
        assert_eq!(simulation.spent, Cost::default(), "nothing has changed");
        simulation.path("c").rate_bit_s = 10e6;
        simulation.run(seconds(60));
        assert_eq!(forecast(&simulation.paths, "c"), Some(10e6), "fall at {after_s} s");
        let tests: Vec<usize> = simulation.paths.iter().map(|path| path.tests.len()).collect();
        assert_eq!(tests, [0, 3, 0, 0, 0], "no other path is tested");
        assert_eq!(simulation.early.counts().tests, [1, 0, 0, 2]);
    }
}

#[test]
fn a_change_of_the_own_access_is_seen_on_all_paths_at_once() {
    let mut simulation = Simulation::new(&FIVE);
    simulation.run(seconds(300));
    simulation.paths.iter_mut().for_each(|path| path.rate_bit_s = 10e6);
    simulation.run(seconds(90));
    for peer in FIVE {
        assert_eq!(forecast(&simulation.paths, peer), Some(10e6), "{peer}");
    }
}

#[test]
fn a_single_outlier_and_lost_trains_bring_no_test_forward() {
    let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
    early.set_peers(Duration::ZERO, [("b", true)]);
    let mut now = Duration::ZERO;
    let rates = [[100e6; 6].as_slice(), &[10e6, 1e9, 100e6, 100e6]].concat();
    for rate in rates.into_iter().map(Some).chain([None, Some(f64::NAN), Some(0.0), None]) {
        now += seconds(20);
        early.record_train(now, "b", rate);
        assert_eq!(early.next_test(now, |_| Some(100e6)), None, "{rate:?}");
    }
    assert_eq!((early.counts().trains, early.counts().trains_lost), (10, 4));
    // Lost trains neither confirm a suspicion nor remove it.
    for rate in [Some(10e6), None, Some(10e6)] {
        assert_eq!(early.next_test(now, |_| Some(100e6)), None);
        early.record_train(now, "b", rate);
    }
    let test = early.next_test(now, |_| Some(100e6)).unwrap();
    assert_eq!((&*test.peer, test.reason), ("b", EarlyTestReason::Train));
}

#[test]
fn a_rise_is_confirmed_by_a_second_train_too() {
    let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
    early.set_peers(Duration::ZERO, [("b", true)]);
    for _ in 0..5 {
        early.record_train(Duration::ZERO, "b", Some(10e6));
    }
    for expected in [None, Some("b")] {
        early.record_train(seconds(1), "b", Some(100e6));
        let test = early.next_test(seconds(1), |_| Some(10e6));
        assert_eq!(test.as_ref().map(|test| &*test.peer), expected);
    }
}

#[test]
fn trains_to_a_silent_peer_become_rare_and_an_old_peer_gets_none() {
    let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
    early.set_peers(Duration::ZERO, [("silent", true), ("old", false)]);
    let mut sent = 0;
    for at in 0..3600 {
        if let Some(peer) = early.next_train(seconds(at)) {
            assert_eq!(&*peer, "silent");
            early.record_train(seconds(at), &peer, None);
            sent += 1;
        }
    }
    assert!((10..20).contains(&sent), "{sent}");
}

#[test]
fn trains_use_a_hundredth_of_a_slow_link_at_most() {
    for (rate_bit_s, trains) in [(1e6, 740..=760), (1e3, 118..=122), (f64::MIN_POSITIVE, 118..=122)] {
        let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
        early.set_peers(Duration::ZERO, [("b", true)]);
        let mut sent = 0;
        for at in 0..36_000 {
            if let Some(peer) = early.next_train(seconds(at)) {
                early.record_train(seconds(at), &peer, Some(rate_bit_s));
                sent += 1;
            }
        }
        assert!(trains.contains(&sent), "{sent} at {rate_bit_s} bit/s");
    }
}

#[test]
fn the_rate_of_all_trains_is_bounded() {
    let names: Vec<String> = (0..100).map(|peer| format!("h{peer}")).collect();
    let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
    early.set_peers(Duration::ZERO, names.iter().map(|name| (name.as_str(), true)));
    let mut sent = 0;
    for at in 0..40_000 {
        if let Some(peer) = early.next_train(seconds(at)) {
            early.record_train(seconds(at), &peer, Some(1e8));
            sent += 1;
        }
    }
    // One train in 4 s on average. The first ones come a little more often.
    assert!((9_500..10_600).contains(&sent), "{sent}");
}

#[test]
fn noisy_trains_and_a_changing_path_cost_a_bounded_part_of_the_budget() {
    let mut simulation = Simulation::new(&FIVE);
    simulation.paths.iter_mut().for_each(|path| path.spread = 1.0);
    for hour in 0..48 {
        // Each path changes four times an hour.
        for quarter in 0..4 {
            let factor = if quarter % 2 == 0 { 0.1 } else { 10.0 };
            simulation.paths.iter_mut().for_each(|path| path.rate_bit_s *= factor);
            simulation.run(seconds(900));
        }
        // 18 s at first, then 3.6 s an hour, and less than one test more.
        let most_s = 18.0 + 3.6 * f64::from(hour + 1) + 1.0;
        let spent_s = simulation.spent.duration.as_secs_f64();
        assert!(spent_s <= most_s, "{spent_s} s after {} h", hour + 1);
    }
    assert!(simulation.spent.duration > seconds(100), "changes were tested: {:?}", simulation.spent);
}

#[test]
fn a_peer_that_reports_false_changes_leaves_early_tests_for_others() {
    let mut simulation = Simulation::new(&FIVE);
    for round in 0..240 {
        let factor = if round % 2 == 0 { 0.1 } else { 10.0 };
        simulation.path("b").rate_bit_s *= factor;
        simulation.run(seconds(180));
    }
    let tests = simulation.path("b").tests.len();
    assert!((6..=6 + 12).contains(&tests), "six, and one an hour: {tests}");
    simulation.path("f").rate_bit_s = 10e6;
    simulation.run(seconds(60));
    assert_eq!(forecast(&simulation.paths, "f"), Some(10e6));
}

#[test]
fn a_peer_that_leaves_and_returns_gets_no_further_tests() {
    let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
    let mut now = Duration::ZERO;
    let mut tests = 0;
    for _ in 0..20 {
        early.set_peers(now, [("b", true)]);
        for rate in [1e8; 15].into_iter().chain([1e7, 1e7]) {
            early.record_train(now, "b", Some(rate));
        }
        if let Some(test) = early.next_test(now, |_| None) {
            early.record_test(now, &test, Cost::default(), false);
            tests += 1;
        }
        early.set_peers(now, []);
        assert_eq!(early.next_test(now, |_| None), None, "the peer is gone");
        now += seconds(60);
    }
    assert_eq!(tests, 6);
    early.set_peers(now + 7 * HOUR, []);
    assert!(early.pairs.is_empty(), "its tests are earned again");
}

#[test]
fn a_shift_of_delay_or_loss_brings_a_test_forward() {
    for (what, reason) in
        [(WatchedQuantity::Rtt, EarlyTestReason::Rtt), (WatchedQuantity::Loss, EarlyTestReason::Loss)]
    {
        let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
        early.set_peers(Duration::ZERO, [("b", false), ("c", false)]);
        for at in [10, 20, 30] {
            early.observe(seconds(at), "b", what, 0.2, Some((0.0, 0.1)));
            early.observe(seconds(at), "c", what, 0.05, Some((0.0, 0.1)));
            assert_eq!(early.next_test(seconds(at), |_| Some(1e8)), None);
        }
        early.observe(seconds(40), "b", what, 0.2, Some((0.0, 0.1)));
        assert_eq!(early.next_test(seconds(40), |_| Some(1e8)), Some(EarlyTest { peer: "b".into(), reason }));
    }
}

#[test]
fn a_goodput_outside_its_interval_is_tested_again_unless_the_forecast_has_followed() {
    for (forecast_bit_s, is_tested) in [(100e6, true), (20e6, true), (12e6, false)] {
        let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
        early.set_peers(Duration::ZERO, [("b", false)]);
        early.observe(seconds(1), "b", WatchedQuantity::Goodput, 100e6, Some((90e6, 110e6)));
        assert_eq!(early.next_test(seconds(10), |_| Some(1e6)), None, "inside its interval");
        early.observe(seconds(10), "b", WatchedQuantity::Goodput, 10e6, Some((90e6, 110e6)));
        assert_eq!(early.next_test(seconds(11), |_| Some(100e6)), None, "the path rests");
        let test = early.next_test(seconds(15), |_| Some(forecast_bit_s));
        assert_eq!(test.is_some(), is_tested, "{forecast_bit_s}");
    }
}

#[test]
fn a_refused_test_is_tried_again_and_given_up_after_ten_minutes() {
    let mut early = EarlyTests::new("a", BudgetConfig::default(), 1, Duration::ZERO);
    early.set_peers(Duration::ZERO, [("b", true)]);
    for rate in [1e8; 5].into_iter().chain([1e7, 1e7]) {
        early.record_train(Duration::ZERO, "b", Some(rate));
    }
    let mut asked = Vec::new();
    for at in 0..1000 {
        if let Some(test) = early.next_test(seconds(at), |_| Some(1e8)) {
            asked.push(at);
            early.record_refusal(seconds(at), &test.peer, HOUR);
        }
    }
    assert_eq!(asked, (0..=10).map(|minute| minute * 60).collect::<Vec<_>>());
    assert_eq!(early.counts().tests, [0; 4], "a refused test is not counted");
}

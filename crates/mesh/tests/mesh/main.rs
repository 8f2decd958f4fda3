//! Simulated meshes in virtual time: the promises of the plan hold for the whole mesh.
#![allow(missing_docs, clippy::unwrap_used)]

mod simulation;

use std::time::Duration;

use barograph_mesh::{Cost, PlanConfig};
use simulation::{Faults, Mesh};

const fn hours(h: u64) -> Duration {
    Duration::from_secs(3600 * h)
}

#[test]
fn a_hundred_stations_skip_few_turns() {
    let mut mesh = Mesh::flat(100, PlanConfig::default(), Faults::NONE);
    mesh.know_all();
    mesh.run(hours(24));
    mesh.assert_budgets_hold();
    let report = mesh.report();
    println!("100 stations, 24 h: {report:?}");
    assert!(report.tests > 0.9 * 100.0 * 24.0 * 12.0, "{report:?}");
    assert!(report.skipped_share <= 0.05, "{report:?}");
}

#[test]
fn a_hundred_stations_with_full_tests_only_skip_few_turns() {
    let mut mesh = Mesh::flat(100, PlanConfig::default(), Faults::NONE);
    mesh.settles_in = Duration::from_secs(5);
    mesh.run(hours(24));
    mesh.assert_budgets_hold();
    let report = mesh.report();
    println!("100 stations, full tests, 24 h: {report:?}");
    assert!(report.skipped_share <= 0.05, "{report:?}");
}

#[test]
fn all_pairs_of_20_stations_are_tested_within_the_bound() {
    let mut mesh = Mesh::flat(20, PlanConfig::default(), Faults::NONE);
    mesh.run(hours(48));
    mesh.assert_budgets_hold();
    let report = mesh.report();
    println!("20 stations, 48 h: {report:?}, bound {:?}", mesh.bound());
    assert!(report.gap_max <= mesh.bound(), "{report:?}, bound {:?}", mesh.bound());
    // Each host has 19 peers and one turn in five minutes. With equal errors, the mean time between
    // two tests of a pair would be 95 minutes.
    assert!(report.gap_mean < 1.15 * 5700.0, "{report:?}");
}

#[test]
fn stations_with_faults_keep_the_budget_and_the_bound() {
    for seed in 0..5 {
        let config = PlanConfig { seed, ..PlanConfig::default() };
        let mut mesh = Mesh::flat(20, config, Faults { message: 0.01, test: 0.05, result: 0.01 });
        mesh.run(hours(48));
        mesh.assert_budgets_hold();
        let report = mesh.report();
        println!("20 stations with faults, 48 h: {report:?}");
        assert!(report.gap_max <= mesh.bound(), "{report:?}, bound {:?}", mesh.bound());
    }
}

#[test]
fn ten_thousand_stations_at_a_thousand_sites_keep_budget_and_bound() {
    let mut mesh =
        Mesh::sites(1000, 10, PlanConfig::default(), Faults { message: 0.01, test: 0.01, result: 0.01 });
    mesh.know_all();
    mesh.run(hours(4));
    let busiest = mesh.assert_budgets_hold();
    let report = mesh.report();
    println!("10 000 stations, 4 h: {report:?}, the busiest hour took {busiest:.2} of a budget");
    // Check that the load comes near the budget; otherwise this test shows nothing.
    assert!(busiest > 0.8, "{busiest}");
    assert!(report.skipped_share <= 0.05, "{report:?}");
    // The bound is for pairs that no representative tests: pairs of a host with 1008 peers wait for
    // days. All costs are known and small, so a turn takes five minutes ± 10 %.
    let bound = Duration::from_secs(4 * 9 * 330);
    assert!(report.gap_max <= bound && bound < hours(4), "{report:?}, bound {bound:?}");
}

#[test]
fn sites_with_full_tests_only_keep_the_bounds_of_all_hosts() {
    for (seed, sites, hosts) in [(0, 6, 5), (1, 6, 5), (2, 10, 3), (3, 3, 8)] {
        let mut mesh = Mesh::sites(sites, hosts, PlanConfig { seed, ..PlanConfig::default() }, Faults::NONE);
        mesh.settles_in = Duration::from_secs(5);
        mesh.know_all();
        mesh.run(hours(96));
        let busiest = mesh.assert_budgets_hold();
        assert!(busiest > 0.9, "{busiest}");
        for (kind, station) in [("hosts", 1), ("representatives", 0)] {
            let (report, bound) = (mesh.report_like(station), mesh.bound_of(station));
            println!(
                "{sites} sites of {hosts}, full tests, 96 h, {kind}: {report:?}, bound {bound:?}, busiest {busiest:.2}"
            );
            assert!(report.gap_max <= bound && bound < hours(96), "{kind}: {report:?}, bound {bound:?}");
        }
    }
}

#[test]
fn the_papers_plan_keeps_its_budget_and_bound() {
    for (seed, hosts) in [(0, 10), (1, 10), (2, 20), (3, 4)] {
        let config = PlanConfig { seed, ..PlanConfig::paper() };
        let mut mesh = Mesh::flat(hosts, config, Faults::NONE);
        mesh.settles_in = Duration::from_secs(5);
        mesh.run(hours(48));
        mesh.assert_budgets_hold();
        let report = mesh.report();
        println!("{hosts} stations by the paper, 48 h: {report:?}, bound {:?}", mesh.bound());
        assert!(report.gap_mean < 1.1 * (hosts - 1) as f64 * 300.0, "{report:?}");
        assert!(report.gap_max <= mesh.bound(), "{report:?}, bound {:?}", mesh.bound());
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]

    #[test]
    fn small_meshes_keep_every_budget(
        seed: u64,
        sites in 1..4_usize,
        hosts in 1..6_usize,
        settles_ms in 50..5000_u64,
        share in 0.002..0.05_f64,
        message in 0.0..0.3_f64,
        test in 0.0..0.3_f64,
        result in 0.0..0.3_f64,
    ) {
        let mut config = PlanConfig { seed, ..PlanConfig::default() };
        config.budget.share = share;
        // A mesh of one host has no test.
        let hosts = if sites == 1 { hosts + 1 } else { hosts };
        let mut mesh = Mesh::sites(sites, hosts, config, Faults { message, test, result });
        mesh.settles_in = Duration::from_millis(settles_ms);
        mesh.run(hours(12));
        mesh.assert_budgets_hold();
        let report = mesh.report();
        proptest::prop_assert!(report.tests > 0.0, "{report:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_mesh() {
    let run = |seed| {
        let config = PlanConfig { seed, ..PlanConfig::default() };
        let mut mesh = Mesh::flat(10, config, Faults { message: 0.05, test: 0.1, result: 0.05 });
        mesh.run(hours(6));
        format!("{:?}", mesh.report())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_station_that_requests_endlessly_gets_at_most_its_share() {
    let mut mesh = Mesh::flat(20, PlanConfig::default(), Faults::NONE);
    mesh.greedy = Some(0);
    mesh.run(hours(12));
    mesh.assert_budgets_hold();
    let report = mesh.report();
    println!("20 stations, one greedy, 12 h: {report:?}");
    let full = Cost { duration: Duration::from_secs(5), bytes: 0 };
    // In each hour, the tests of one peer may take an eighth of 36 s, plus less than one full test.
    // The limit has one hour more than the 12 simulated hours.
    let most = (full.duration.as_secs_f64() * 0.9 + 5.0) * 13.0;
    assert!(mesh.taken_by_greedy().as_secs_f64() <= most, "{:?}", mesh.taken_by_greedy());
    assert!(report.skipped_share <= 0.1, "{report:?}");
}

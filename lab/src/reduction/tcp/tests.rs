//! A small run over loopback and, if permitted, through a bottleneck.

use std::time::Duration;

use barograph_sim::{Link, LinkSpec, PacketLoss, network_or_skip};
use indicatif::ProgressBar;

use super::turns::{Hosts, Plan, StrategyResult, StrategyRun, take_turns};
use crate::reduction::strategy::Strategy;

const PLAN: Plan = Plan {
    nodes: 7,
    integers: 4096,
    tries: 4,
    seed: 3,
    sets: 1,
    pilot: 1,
    blocks: 2,
    turn: 2,
    time_max: Duration::from_secs(60),
};

/// Every node checks its maxima, and every turn checks that each message was handled once, so
/// returning is enough; the tests also check the counts.
fn run(hosts: &Hosts, strategies: &[Strategy]) -> Vec<StrategyResult> {
    let new = |strategy: &Strategy| StrategyRun::new(hosts, &PLAN, *strategy, 0.1).expect("nodes");
    let mut runs: Vec<StrategyRun> = strategies.iter().map(new).collect();
    take_turns(hosts, &PLAN, &mut runs, &ProgressBar::hidden()).expect("every node has the result once");
    runs.into_iter().map(StrategyRun::finish).collect()
}

#[test]
fn a_tree_over_loopback_computes_the_maxima_once() {
    let hosts = Hosts::loopback().expect("a runtime");
    let outcomes = run(&hosts, &[Strategy::Static(600.0), Strategy::Default]);
    for outcome in &outcomes {
        let run = outcome.run(4 * PLAN.integers as u64);
        assert_eq!((run.times.len(), run.sends), (4, 4 * 12));
        assert!(run.times.iter().all(|time| 0.0 < *time && *time < 30.0), "{:?}", run.times);
    }
    // A timeout of one minute cuts off nothing; one that learns may, if the machine stops for a
    // while.
    let uncut = outcomes[0].run(4 * PLAN.integers as u64);
    assert_eq!((uncut.retried, uncut.retries, uncut.abandoned(), outcomes[0].duplicates), (0, 0, 0, 0));
}

#[test]
fn a_message_without_attempts_left_is_waited_for_and_handled_once() {
    let network = network_or_skip!(Link::symmetric(LinkSpec {
        delay: Duration::from_millis(10),
        ..LinkSpec::default()
    }));
    let hosts = Hosts::joined(network).expect("runtimes in the namespaces");
    // Scaled by a tenth: 5 ms, a quarter of the round trip.
    let mut run = StrategyRun::new(&hosts, &PLAN, Strategy::Static(0.05), 0.1).expect("nodes that listen");
    let reduced = run.reduce(&hosts, &PLAN, 2, &ProgressBar::hidden()).expect("the result, once");
    let sent: Vec<_> = reduced.iter().flat_map(|reduced| &reduced.sent).collect();
    assert_eq!(sent.len(), 2 * 12);
    assert!(sent.iter().all(|sent| sent.abandoned && sent.attempts == PLAN.tries + 1), "{sent:?}");
}

#[test]
fn a_tree_over_a_lossy_bottleneck_computes_the_maxima_once() {
    let network = network_or_skip!(Link::symmetric(LinkSpec {
        delay: Duration::from_millis(5),
        rate_bps: Some(20_000_000),
        loss: PacketLoss::Independent(0.01),
        seed: 5,
        ..LinkSpec::default()
    }));
    let hosts = Hosts::joined(network).expect("runtimes in the namespaces");
    let traffic = hosts.start_traffic(1).expect("sockets");
    let strategies = [Strategy::Static(2.0), Strategy::Default];
    let new = |strategy: &Strategy| StrategyRun::new(&hosts, &PLAN, *strategy, 0.1).expect("nodes");
    let mut runs: Vec<StrategyRun> = strategies.iter().map(new).collect();
    for run in &mut runs {
        let reduced = run.reduce(&hosts, &PLAN, 3, &ProgressBar::hidden()).expect("the result, once");
        assert_eq!(reduced.len(), 3);
        // Two levels up and two down, each over a delay both ways.
        assert!(reduced.iter().all(|reduced| reduced.time_s > 0.03), "{reduced:?}");
        assert_eq!(reduced.iter().map(|reduced| reduced.sent.len()).sum::<usize>(), 3 * 12);
    }
    assert!(traffic.iter().all(|traffic| traffic.bytes() > 0));
    let report = hosts.network().and_then(|network| network.report()).expect("a relay");
    assert!(report.forward.forwarded > 500 && report.back.forwarded > 500, "{report:?}");
}

//! The reduction: values go up a binary tree of nodes, and the result goes back down.

use barograph_sim::Scenario;

use super::engine::{Network, Sent};
use super::run::Run;
use super::strategy::Strategy;

/// Runs `sets` times the scenario's reductions on the same links one after the other; the timeouts start
/// anew in each set.
///
/// The time of a reduction is the longest, over all nodes, from sending to the parent until the final
/// result arrives.
pub(crate) fn run(scenario: &Scenario, sets: usize, strategy: Strategy, look_on: impl FnMut(Sent)) -> Run {
    run_owned(scenario, sets, strategy, &owners(scenario.nodes), look_on)
}

/// The same where `owners` says which paths share what their host learns.
pub(crate) fn run_owned(
    scenario: &Scenario,
    sets: usize,
    strategy: Strategy,
    owners: &[usize],
    mut look_on: impl FnMut(Sent),
) -> Run {
    let mut network = Network::new(scenario, scenario.nodes - 1, strategy, owners);
    let mut start = 0.0;
    for reduction in 0..sets * scenario.reductions {
        if 0 < reduction && reduction.is_multiple_of(scenario.reductions) {
            network.forget(strategy, owners);
        }
        let end = reduce(&mut network, scenario.nodes, reduction, start, &mut look_on);
        network.finished(end - start);
        start = next_start(scenario, reduction, end);
    }
    network.run
}

/// When the round after `round` starts, which ended at `end`.
pub(crate) fn next_start(scenario: &Scenario, round: usize, end: f64) -> f64 {
    match scenario.period_s {
        Some(period) => end.max((round + 1) as f64 * period),
        None => end + scenario.pause_s,
    }
}

/// The node that sends on each path: the child on the way up, its parent on the way down.
pub(crate) fn owners(nodes: usize) -> Vec<usize> {
    (1..nodes).flat_map(|child| [child, (child - 1) / 2]).collect()
}

/// When the last node has the result.
fn reduce(
    network: &mut Network<'_>,
    nodes: usize,
    reduction: usize,
    start: f64,
    look_on: &mut impl FnMut(Sent),
) -> f64 {
    // When a node may send to its parent: the leaves at once, the others when both children have sent.
    let mut ready = vec![start; nodes];
    for child in (1..nodes).rev() {
        let sent = network.send_one(2 * (child - 1), reduction, ready[child], look_on);
        let parent = (child - 1) / 2;
        ready[parent] = ready[parent].max(sent);
    }
    let mut end = start;
    let mut arrived = ready;
    for child in 1..nodes {
        let from = arrived[(child - 1) / 2];
        arrived[child] = network.send_one(2 * (child - 1) + 1, reduction, from, look_on);
        end = end.max(arrived[child]);
    }
    end
}

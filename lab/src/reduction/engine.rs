//! Messages in virtual time, each under the timeout of its link; the reduction that sends them; and
//! its results.

use std::time::Duration;

use barograph_sim::{LinkSimulation, Scenario, SimulatedAttempt, SimulatedResponse};
use barograph_timeout::{AttemptOutcome, MAX_TIMEOUT, MessageAttempts, TimeoutEstimator};
use serde::Serialize;

use super::strategy::Strategy;
use crate::stats::Summary;
use crate::table::number;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) path: usize,
    pub(crate) reduction: usize,
    /// Timeout of the first attempt.
    pub(crate) timeout_s: f64,
    /// From the start of the first attempt to the acknowledgement.
    pub(crate) took_s: f64,
    pub(crate) attempts: u32,
}

/// The links of a scenario in virtual time, with a timeout for each path.
pub(crate) struct Network<'a> {
    scenario: &'a Scenario,
    simulation: LinkSimulation<'a>,
    paths: Vec<Box<dyn TimeoutEstimator + Send>>,
    hedged: bool,
    pub(crate) run: Run,
    /// Whether a message of this round used up its tries.
    abandoning: bool,
}

impl<'a> Network<'a> {
    /// `links` links as `scenario` describes them, with a timeout for each path; `owners` has the
    /// sending node of each path.
    pub(crate) fn new(scenario: &'a Scenario, links: usize, strategy: Strategy, owners: &[usize]) -> Self {
        let simulation = LinkSimulation::new(scenario, links);
        let (paths, hedged) = (strategy.timeouts(owners, 1.0), strategy.is_hedged());
        Self { scenario, simulation, paths, hedged, run: Run::default(), abandoning: false }
    }

    pub(crate) fn forget(&mut self, strategy: Strategy, owners: &[usize]) {
        self.paths = strategy.timeouts(owners, 1.0);
    }

    /// Records the time of a reduction, or of anything else that is timed as a whole.
    pub(crate) fn finished(&mut self, took_s: f64) {
        self.run.times.push(took_s);
        self.run.gave_up.push(std::mem::take(&mut self.abandoning));
    }

    /// Sends the message that the scenario draws for this path; see [`Self::send`].
    pub(crate) fn send_one(
        &mut self,
        path: usize,
        round: usize,
        start: f64,
        look_on: &mut impl FnMut(Sent),
    ) -> f64 {
        self.send(path, round, start, self.simulation.bytes(path, round), look_on)
    }

    /// Sends one message at `start` and returns the time of its acknowledgement.
    ///
    /// If the message uses up its tries, its round counts as abandoned. It is then sent once more
    /// without a timeout, so that every round has a time and enters the means.
    pub(crate) fn send(
        &mut self,
        path: usize,
        reduction: usize,
        start: f64,
        bytes: u64,
        look_on: &mut impl FnMut(Sent),
    ) -> f64 {
        let reconnect_s = self.simulation.reconnect_s(path);
        let mut message = MessageAttempts::begun_at(bytes, self.scenario.tries, seconds(start));
        let (mut at, mut attempts, mut given_up, mut first_timeout) = (start, 0, false, 0.0);
        loop {
            let attempt = message.attempt(seconds(at));
            let timeout =
                if given_up { f64::INFINITY } else { self.paths[path].timeout(&attempt).as_secs_f64() };
            if attempts == 0 {
                first_timeout = timeout;
            }
            let try_ = SimulatedAttempt { path, reduction, number: attempts, at, bytes };
            let response = self.simulation.respond(&try_);
            attempts += 1;
            let in_time = response.takes_s <= timeout;
            if in_time && !response.broken {
                at += response.takes_s;
                if !given_up {
                    self.paths[path].record(&attempt, AttemptOutcome::Completed(seconds(response.takes_s)));
                }
                break;
            }
            if !in_time && self.hedged && attempt.number == 0 && !attempt.is_last() {
                message.advance();
                attempts += 1;
                let (took, answered) = self.hedge(&try_, response, timeout, &message);
                at += took;
                if answered {
                    break;
                }
            } else {
                let ended = self.ended(path, at, response, timeout);
                if !given_up {
                    self.paths[path].record(&attempt, ended);
                }
                at += response.takes_s.min(timeout);
            }
            self.paths[path].record_connect(seconds(reconnect_s));
            at += reconnect_s;
            given_up = !message.advance();
            self.abandoning |= given_up;
        }
        self.run.count(bytes, attempts, at - start);
        look_on(Sent { path, reduction, timeout_s: first_timeout, took_s: at - start, attempts });
        at
    }

    /// How an attempt that began at `at` ended without an answer in time: it was cut off, unless
    /// its connection broke before.
    fn ended(&mut self, path: usize, at: f64, response: SimulatedResponse, timeout: f64) -> AttemptOutcome {
        if response.takes_s <= timeout {
            return AttemptOutcome::Failed(seconds(response.takes_s));
        }
        if !response.broken {
            self.simulation.cancelled(path, at, at + response.takes_s);
        }
        AttemptOutcome::TimedOut(seconds(timeout))
    }

    /// Sends a copy at the timeout and keeps the first attempt running. Returns the time of the
    /// quicker one from the start of the first, and whether there was an answer; if not, both have
    /// broken after this time. If the link is congested, both share the bottleneck, each at half
    /// its rate.
    fn hedge(
        &mut self,
        first: &SimulatedAttempt,
        response: SimulatedResponse,
        timeout: f64,
        message: &MessageAttempts,
    ) -> (f64, bool) {
        let SimulatedAttempt { path, at, .. } = *first;
        let reconnect_s = self.simulation.reconnect_s(path);
        let copy_at = at + timeout + reconnect_s;
        let copy = self.simulation.respond(&SimulatedAttempt { number: 1, at: copy_at, ..*first });
        let shared = if response.congested || copy.congested { 2.0 } else { 1.0 };
        // Times from the decision to send the copy.
        let first_rest = shared * (response.takes_s - timeout);
        let copy_rest = shared * (reconnect_s + copy.takes_s);
        let link = &mut self.paths[path];
        link.record_connect(seconds(reconnect_s));
        let first_attempt =
            MessageAttempts::begun_at(first.bytes, self.scenario.tries, seconds(at)).attempt(seconds(at));
        let copy_attempt = message.attempt(seconds(copy_at));
        link.record(&first_attempt, AttemptOutcome::Hedged(seconds(timeout)));
        if response.broken && copy.broken {
            let took = timeout + first_rest.max(copy_rest);
            link.record(&copy_attempt, AttemptOutcome::Failed(seconds(copy.takes_s)));
            link.record(&first_attempt, AttemptOutcome::Failed(seconds(response.takes_s)));
            return (took, false);
        }
        // If one breaks, the other continues.
        let copy_wins = response.broken || !copy.broken && copy_rest < first_rest;
        let took = timeout + if copy_wins { copy_rest } else { first_rest };
        let copy_ran = (took - timeout - reconnect_s).max(0.0);
        if copy_wins {
            link.record(&copy_attempt, AttemptOutcome::Completed(seconds(copy_ran)));
            link.record(&first_attempt, AttemptOutcome::Cancelled(seconds(took)));
            if !response.broken {
                self.simulation.cancelled(path, at, at + response.takes_s);
            }
        } else {
            link.record(&copy_attempt, AttemptOutcome::Cancelled(seconds(copy_ran)));
            link.record(&first_attempt, AttemptOutcome::Completed(seconds(took)));
            if !copy.broken {
                self.simulation.cancelled(path, copy_at, copy_at + copy.takes_s);
            }
        }
        (took, true)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(MAX_TIMEOUT)
}

/// Runs the scenario's reductions `sets` times, one after another on the same links. The timeouts
/// start without knowledge in each set.
///
/// The time of a reduction is the longest, over all nodes, from sending to the parent until the
/// final result arrives.
pub(crate) fn run_tree(
    scenario: &Scenario,
    sets: usize,
    strategy: Strategy,
    look_on: impl FnMut(Sent),
) -> Run {
    run_tree_owned(scenario, sets, strategy, &owners(scenario.nodes), look_on)
}

/// As [`run_tree`]; `owners` decides which paths share what their host learns.
pub(crate) fn run_tree_owned(
    scenario: &Scenario,
    sets: usize,
    strategy: Strategy,
    owners: &[usize],
    mut look_on: impl FnMut(Sent),
) -> Run {
    let mut network = Network::new(scenario, scenario.nodes - 1, strategy, owners);
    let mut start = 0.0;
    for reduction in 0..sets * scenario.reductions {
        if reduction > 0 && reduction.is_multiple_of(scenario.reductions) {
            network.forget(strategy, owners);
        }
        let end = reduce_tree(&mut network, scenario.nodes, reduction, start, &mut look_on);
        network.finished(end - start);
        start = next_start(scenario, reduction, end);
    }
    network.run
}

/// Start of the round after `round`, which ended at `end`.
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

/// Returns the time when the last node has the result.
fn reduce_tree(
    network: &mut Network<'_>,
    nodes: usize,
    reduction: usize,
    start: f64,
    look_on: &mut impl FnMut(Sent),
) -> f64 {
    // When a node may send to its parent: leaves at once, the others when both children have sent.
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

#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(crate) times: Vec<f64>,
    /// Whether a message of the reduction used up its tries.
    pub(crate) gave_up: Vec<bool>,
    pub(crate) sends: u64,
    pub(crate) retried: u64,
    pub(crate) retries: u64,
    /// Bytes of messages, and of copies beyond the first.
    pub(crate) bytes: (u64, u64),
    /// The static timeout of this run, if it is the best of several.
    pub(crate) best_s: Option<f64>,
    pub(crate) longest_s: f64,
    /// Over real links: messages of which an earlier copy had arrived.
    pub(crate) duplicates: u64,
}

impl Run {
    pub(crate) fn count(&mut self, bytes: u64, attempts: u32, took_s: f64) {
        self.longest_s = self.longest_s.max(took_s);
        let extra = u64::from(attempts.saturating_sub(1));
        self.sends += 1;
        self.retried += u64::from(extra > 0);
        self.retries += extra;
        self.bytes.0 += bytes;
        self.bytes.1 += extra * bytes;
    }

    /// Number of reductions in which a message used up its tries.
    pub(crate) fn abandoned(&self) -> usize {
        self.gave_up.iter().filter(|gave_up| **gave_up).count()
    }

    /// The best static timeout as tables show it behind a number; empty if there is none.
    pub(crate) fn best(&self) -> String {
        self.best_s.map_or(String::new(), |best| format!(" ({best:.2} s)"))
    }
}

/// Results of a run; the names of the fields are those of the JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) strategy: String,
    pub(crate) mean_s: f64,
    pub(crate) p95_s: f64,
    pub(crate) max_s: f64,
    pub(crate) sd_s: f64,
    /// Share of messages that were sent more than once.
    pub(crate) retried_share: f64,
    /// Copies beyond the first for each message that was sent more than once; 0 if none was.
    pub(crate) retries_per_retried: f64,
    /// Bytes of copies beyond the first, as a share of the bytes of all messages.
    pub(crate) extra_bytes_share: f64,
    pub(crate) abandoned: usize,
}

impl Row {
    pub(crate) fn of(strategy: Strategy, run: &Run) -> Self {
        let summary = Summary::of(&run.times);
        Self {
            strategy: strategy.name(),
            mean_s: summary.mean,
            p95_s: summary.p95,
            max_s: summary.max,
            sd_s: summary.sd,
            retried_share: run.retried as f64 / run.sends as f64,
            retries_per_retried: if run.retried == 0 { 0.0 } else { run.retries as f64 / run.retried as f64 },
            extra_bytes_share: run.bytes.1 as f64 / run.bytes.0 as f64,
            abandoned: run.abandoned(),
        }
    }

    /// Retries for each retried message, as tables show it.
    pub(crate) fn retries(&self, decimals: usize) -> String {
        number((self.retried_share > 0.0).then_some(self.retries_per_retried), decimals)
    }
}

//! Runs strategies in turns on the same network, so that all run in the same conditions.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use barograph_sim::{
    DirectionCounts, Host, InvalidRun, Link, LinkSpec, Network, PacketLoss, Queue, RelayOptions, RelayReport,
    SeededRng,
};
use indicatif::ProgressBar;
use tokio::runtime::{Builder, Handle, Runtime};

use super::nodes::{Reduced, Round, Tree, timeouts};
use super::tables::Blocks;
use crate::emulation::{Traffic, forget_connections, set_tcp};
use crate::reduction::engine::{Run, owners};
use crate::reduction::strategy::Strategy;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    /// Integers of each node, 4 bytes each.
    pub(crate) integers: usize,
    pub(crate) tries: u32,
    pub(crate) seed: u64,
    /// Networks that run at the same time, each with timeouts without knowledge.
    pub(crate) sets: usize,
    /// Reductions without a timeout before a set, to measure how long messages take.
    pub(crate) pilot: usize,
    /// Turns of each strategy in a set.
    pub(crate) blocks: usize,
    pub(crate) turn: usize,
    /// No block begins after this time.
    pub(crate) time_max: Duration,
}

pub(crate) struct StrategyRun {
    pub(crate) strategy: Strategy,
    tree: Tree,
    rounds: u64,
    /// Blocks in which the emulator kept up.
    blocks: Vec<Vec<Reduced>>,
}

impl StrategyRun {
    /// A strategy without knowledge; numbers set by hand are `scale` times the paper's.
    pub(crate) fn new(hosts: &Hosts, plan: &Plan, strategy: Strategy, scale: f64) -> anyhow::Result<Self> {
        let estimators = timeouts(strategy, &owners(plan.nodes), scale, plan.tries)?;
        let tree = Tree::start(hosts, plan.nodes, estimators, plan.tries)?;
        Ok(Self { strategy, tree, rounds: 0, blocks: Vec::new() })
    }

    pub(crate) fn reduce(
        &mut self,
        hosts: &Hosts,
        plan: &Plan,
        count: usize,
        bar: &ProgressBar,
    ) -> anyhow::Result<Vec<Reduced>> {
        let mut done = Vec::new();
        for _ in 0..count {
            let round = Round::draw(plan.nodes, plan.integers, plan.seed, self.rounds as usize);
            self.rounds += 1;
            done.push(self.tree.reduce(hosts, &Arc::new(round))?);
            bar.inc(1);
        }
        let (handled, _) = self.tree.handled_and_duplicates();
        let sent = self.rounds * 2 * (plan.nodes as u64 - 1);
        ensure!(handled == sent, "{handled} messages were handled, {sent} were sent");
        Ok(done)
    }

    pub(crate) fn finish(self) -> StrategyResult {
        let (_, duplicates) = self.tree.handled_and_duplicates();
        StrategyResult { strategy: self.strategy, blocks: self.blocks, duplicates }
    }
}

pub(crate) struct StrategyResult {
    pub(crate) strategy: Strategy,
    /// Blocks in which the emulator kept up.
    blocks: Vec<Vec<Reduced>>,
    /// Copies that arrived and were not handled again, over all blocks.
    pub(crate) duplicates: u64,
}

impl StrategyResult {
    /// Adds the result of the same strategy in another set.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.blocks.extend(other.blocks);
        self.duplicates += other.duplicates;
    }

    pub(crate) fn times(&self) -> Blocks {
        let times = |block: &Vec<Reduced>| block.iter().map(|reduced| reduced.time_s).collect();
        self.blocks.iter().map(times).collect()
    }

    /// Number of messages with needless retries, because an earlier copy had arrived.
    pub(crate) fn needless_retries(&self) -> usize {
        let sent = self.blocks.iter().flatten().flat_map(|reduced| &reduced.sent);
        sent.filter(|sent| sent.duplicate).count()
    }

    /// Converts the result to a run of the engine.
    pub(crate) fn run(&self, message_bytes: u64) -> Run {
        let mut run = Run::default();
        for reduced in self.blocks.iter().flatten() {
            run.times.push(reduced.time_s);
            run.gave_up.push(reduced.sent.iter().any(|sent| sent.abandoned));
            for sent in &reduced.sent {
                run.count(message_bytes, sent.attempts, sent.took_s);
            }
        }
        run
    }
}

/// Gives every strategy a turn in every block, in random order; returns why blocks were left out.
pub(crate) fn take_turns(
    hosts: &Hosts,
    plan: &Plan,
    runs: &mut [StrategyRun],
    bar: &ProgressBar,
) -> anyhow::Result<Vec<InvalidRun>> {
    let mut draws = SeededRng::new(plan.seed, 1);
    let (began, mut watch, mut voids) = (Instant::now(), Watch::begin(hosts), Vec::new());
    for _ in 0..plan.blocks {
        if began.elapsed() > plan.time_max {
            break;
        }
        let mut order: Vec<usize> = (0..runs.len()).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, draws.index_below(last + 1));
        }
        let mut turns: Vec<Option<Vec<Reduced>>> = vec![None; runs.len()];
        for index in order {
            bar.set_message(runs[index].strategy.name());
            turns[index] = Some(runs[index].reduce(hosts, plan, plan.turn, bar)?);
        }
        match watch.block(hosts) {
            Some(void) => voids.push(void),
            None => {
                for (run, turn) in runs.iter_mut().zip(turns) {
                    run.blocks.extend(turn);
                }
            }
        }
    }
    Ok(voids)
}

/// Checks after each block whether the emulator was its bottleneck.
struct Watch {
    last: Option<RelayReport>,
}

impl Watch {
    fn begin(hosts: &Hosts) -> Self {
        Self { last: hosts.network().and_then(|network| network.report()) }
    }

    fn block(&mut self, hosts: &Hosts) -> Option<InvalidRun> {
        let now = hosts.network()?.report()?;
        let before = self.last.replace(now.clone())?;
        since(&now, &before).invalid_reason()
    }
}

/// The report of what happened after `before`. Numbers that cannot be subtracted, the mean wait and
/// the quantiles of the lateness, remain those since the start. The peak of the processor's time is
/// known only if it is new; otherwise the mean replaces it.
fn since(now: &RelayReport, before: &RelayReport) -> RelayReport {
    let (wall, cpu) = (now.wall.saturating_sub(before.wall), now.cpu.saturating_sub(before.cpu));
    let mean = cpu.as_secs_f64() / wall.as_secs_f64().max(f64::MIN_POSITIVE);
    RelayReport {
        forward: counts_since(&now.forward, &before.forward),
        back: counts_since(&now.back, &before.back),
        wall,
        cpu,
        cpu_peak: if before.cpu_peak < now.cpu_peak { now.cpu_peak } else { mean },
        device_drops: now.device_drops - before.device_drops,
        ..now.clone()
    }
}

fn counts_since(now: &DirectionCounts, before: &DirectionCounts) -> DirectionCounts {
    DirectionCounts {
        forwarded: now.forwarded - before.forwarded,
        forwarded_bytes: now.forwarded_bytes - before.forwarded_bytes,
        lost: now.lost - before.lost,
        queue_full: now.queue_full - before.queue_full,
        late: now.late - before.late,
        overflow: now.overflow - before.overflow,
        ignored: now.ignored - before.ignored,
        read_errors: now.read_errors - before.read_errors,
        write_errors: now.write_errors - before.write_errors,
    }
}

/// Runtimes for the nodes. A socket stays in the namespace of the thread that makes it, so each
/// host has its own threads.
pub(crate) struct Hosts {
    // Declared first, so dropped first: tasks end before their network.
    runtimes: Vec<Runtime>,
    addresses: Vec<IpAddr>,
    network: Option<Network>,
}

impl Hosts {
    pub(crate) fn joined(network: Network) -> anyhow::Result<Self> {
        let hosts = [&network.a, &network.b];
        for host in hosts {
            // The algorithm of most TCPs of the paper's time.
            set_tcp(host, "tcp_congestion_control", CONGESTION_CONTROL)?;
        }
        forget_connections(&network)?;
        // Threads of a runtime start in the namespace of the thread that makes it.
        let runtimes = hosts.map(|host| host.run(runtime));
        let runtimes = runtimes.into_iter().map(|made| Ok(made??)).collect::<anyhow::Result<_>>()?;
        let addresses = hosts.map(|host| host.v4().into()).to_vec();
        Ok(Self { runtimes, addresses, network: Some(network) })
    }

    /// Only this host, without a network.
    #[cfg(test)]
    pub(crate) fn loopback() -> anyhow::Result<Self> {
        Ok(Self {
            runtimes: vec![runtime()?],
            addresses: vec![std::net::Ipv4Addr::LOCALHOST.into()],
            network: None,
        })
    }

    /// Host of a node: levels of the tree alternate, so that every message passes the bottleneck.
    pub(crate) fn of_node(&self, node: usize) -> (&Handle, IpAddr) {
        let index = (node + 1).ilog2() as usize % self.runtimes.len();
        (self.runtimes[index].handle(), self.addresses[index])
    }

    /// Starts background traffic in both directions, if there is a network: [`QUIET`] of the
    /// bottleneck's rate, and at times [`LOUD`] of it.
    pub(crate) fn start_traffic(&self, seed: u64) -> anyhow::Result<Vec<Traffic>> {
        let hosts = self.network.as_ref().map(|network| [[&network.a, &network.b], [&network.b, &network.a]]);
        let start = |(side, hosts): (usize, [&Host; 2])| {
            let mut draws = SeededRng::new(seed, side as u64);
            let (mut loud, mut until) = (false, Duration::ZERO);
            Traffic::start(hosts, move |now| {
                if until <= now {
                    loud = !loud;
                    until =
                        now + Duration::from_secs_f64(draws.exponential(if loud { LOUD_S } else { QUIET_S }));
                }
                RATE_BPS as f64 * if loud { LOUD } else { QUIET }
            })
        };
        hosts.into_iter().flatten().enumerate().map(start).collect()
    }

    /// The network between the hosts, if there is one.
    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

pub(crate) fn bottleneck(seed: u64) -> Link {
    let spec = LinkSpec {
        delay: DELAY,
        rate_bps: Some(RATE_BPS),
        queue: Queue::Bdp(QUEUE_BDP),
        loss: LOSS,
        seed,
        ..LinkSpec::default()
    };
    // A fifth of the delay, as in the emulator's default for the shortest path that it supports.
    Link::symmetric_with(spec, RelayOptions { late: DELAY / 5, ..RelayOptions::default() })
}

pub(crate) fn about() -> String {
    format!(
        "{} Mbit/s and {} ms each way with a queue of {} ms, losses in bursts ({:.1} % of the packets), {}",
        RATE_BPS / 1_000_000,
        DELAY.as_millis(),
        (2.0 * QUEUE_BDP * DELAY.as_secs_f64() * 1000.0).round(),
        100.0 * LOSS.mean(),
        CONGESTION_CONTROL
    )
}

/// One-way delay across a continent. A message then takes some 0.1 s, a fifth of the paper's. The
/// least retransmission timeout has the same ratio: 0.2 s today, 1 s in the paper's time (RFC 2988
/// §2.4).
const DELAY: Duration = Duration::from_millis(15);

/// A relay carries this rate on two processors with everything else; sixteen leaves that send at
/// the same time take 0.2 s.
const RATE_BPS: u64 = 40_000_000;

/// Room for the first windows of sixteen leaves.
const QUEUE_BDP: f64 = 4.0;

/// At times the path loses most packets for some hundreds of them: whole windows are lost, with
/// their retransmissions, so that TCP falls back to its timer and doubles it. Frequency and length
/// were chosen only by messages that are never cut off, so that the longest of them take as many
/// medians as in the simulated P1; the report shows both tails.
const LOSS: PacketLoss =
    PacketLoss::Bursts { enter: 0.00015, leave: 0.003, good_loss: 0.0005, bad_loss: 0.7 };
const CONGESTION_CONTROL: &str = "reno";

/// Shares of the bottleneck's rate: low traffic that varies its loss, and periods in which other
/// traffic leaves a third to the messages.
const QUIET: f64 = 0.05;
const LOUD: f64 = 0.65;

/// Mean lengths, exponential: a fifth of the time is loud, each time about as long as a reduction.
const QUIET_S: f64 = 4.0;
const LOUD_S: f64 = 1.0;

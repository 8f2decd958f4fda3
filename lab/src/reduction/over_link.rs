//! The reduction over the real link code: each path has a link and a listener of its own, joined by a
//! simulated path in tokio's paused time.
//!
//! It differs from [`super::tree`] in what a scenario cannot say:
//! - Timers are exact to 1 ms, so each wait may be up to 1 ms longer, and what happens within the same
//!   millisecond may happen in another order. A scenario of milliseconds is coarse here.
//! - Connections stand before the first reduction: setting up the first one of a path takes no time, every
//!   later one what the scenario says. The link times that apart, with a timer of its own (RFC 6298, 3 s at
//!   least): a set-up that takes longer than it allows fails, and counts as a try.
//! - After a failure – a reset – a link waits before it tries again. Here it does not, as in the engine.
//! - The links of a node learn side by side, in the order of time; the engine computes one send after the
//!   other. What the default shares among the links of a host comes in another order, and so its timeouts
//!   differ a little.
//! - The acknowledgement takes no time: a scenario's response time is that of the message's way and the
//!   handling; so a node goes on when its child or parent hears that it has arrived.
//! - A message that used up its tries is sent once more under another identifier, so a copy that arrives late
//!   may reach the application beside it; the application knows it by the number of its reduction.

mod node;
mod path;

use anyhow::{Context, bail, ensure};
use barograph_sim::{Scenario, Weather};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until};

use super::run::Run;
use super::strategy::Strategy;
use super::tree::{next_start, owners};
use node::Node;

pub(crate) use path::Copies;

/// Runs the scenario's reductions once, over real links.
///
/// # Errors
/// A scenario that links cannot carry; a message that was handled twice, or a maximum that is wrong.
pub(crate) fn run(scenario: &Scenario, strategy: Strategy, copies: Copies) -> anyhow::Result<Run> {
    run_owned(scenario, strategy, copies, &owners(scenario.nodes))
}

fn run_owned(
    scenario: &Scenario,
    strategy: Strategy,
    copies: Copies,
    owners: &[usize],
) -> anyhow::Result<Run> {
    ensure!(!strategy.is_hedged(), "{}: a link sends no copy beside the first", strategy.name());
    let (least, most) = node::sizes(scenario);
    if least < node::BYTES_MIN || BYTES_MAX < most {
        bail!(
            "over links a message must have {} to {BYTES_MAX} bytes, not {least} to {most}",
            node::BYTES_MIN
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.context("cannot start a runtime")?;
    LocalSet::new().block_on(&runtime, all(scenario, strategy, copies, owners))
}

async fn all(
    scenario: &Scenario,
    strategy: Strategy,
    copies: Copies,
    owners: &[usize],
) -> anyhow::Result<Run> {
    let weather = Arc::new(Mutex::new(Weather::owned(scenario.clone(), scenario.nodes - 1)));
    let timeouts = strategy.timeouts(owners, 1.0);
    let (mut nodes, servers) = node::tree(scenario, &weather, timeouts, copies);
    let epoch = Instant::now();
    let (mut run, mut start) = (Run::default(), 0.0);
    for reduction in 0..scenario.reductions {
        sleep_until(epoch + Duration::try_from_secs_f64(start)?).await;
        let began = Instant::now();
        let mut gave_up = false;
        nodes = reduce(nodes, reduction, |sent| {
            run.count(sent.bytes, sent.attempts, sent.took.as_secs_f64());
            run.duplicates += u64::from(sent.duplicate);
            gave_up |= sent.gave_up;
        })
        .await?;
        run.times.push(began.elapsed().as_secs_f64());
        run.gave_up.push(gave_up);
        start = next_start(scenario, reduction, epoch.elapsed().as_secs_f64());
    }
    drop(nodes);
    servers.stop(scenario.reductions as u64, run.abandoned() == 0).await?;
    Ok(run)
}

/// One reduction of all nodes, which start together.
async fn reduce(
    nodes: Vec<Node>,
    reduction: usize,
    mut look_on: impl FnMut(node::Sent),
) -> anyhow::Result<Vec<Node>> {
    let mut tasks = JoinSet::new();
    for node in nodes {
        tasks.spawn_local(node.reduce(reduction));
    }
    let mut back = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let (node, sent) = ended??;
        sent.into_iter().for_each(&mut look_on);
        back.push(node);
    }
    Ok(back)
}

/// What a link and a listener allow unless told otherwise.
const BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests;

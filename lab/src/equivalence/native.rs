//! The native communicator: the probes as `barograph probe` makes them, one sample at a time.

use std::time::Duration;

use anyhow::Context as _;
use barograph_probe::io::{Cancel, Context, run_one};
use barograph_probe::{Direction, Experiment, Measured, Target};
use barograph_sim::Network;
use barograph_study::compare::Kernel;

use super::asked::{Asked, Quantity};

/// One sample on a connection of its own, in seconds, or in bit/s without any correction; with what the kernel said.
pub(crate) fn measure(
    network: &Network,
    target: &Target,
    asked: &Asked,
    cancel: &Cancel,
) -> anyhow::Result<(f64, Kernel)> {
    let experiment = match asked.quantity {
        Quantity::Rtt => Experiment::Rtt { n: 1 },
        Quantity::RttNagle => Experiment::RttNagle { n: 1 },
        Quantity::Goodput => Experiment::Goodput { direction: Direction::Up, bytes: asked.bytes },
    };
    let measured = one(network, target, experiment, DEADLINE, asked.write_bytes, cancel)?;
    let kernel = measured
        .tcp_info
        .map(|info| Kernel { retrans: Some(info.total_retrans.into()), min_rtt_s: info.min_rtt_s });
    Ok((measured.raw.unwrap_or(measured.value), kernel.unwrap_or_default()))
}

/// The times of `n` exchanges one after another on one connection, in seconds.
pub(crate) fn exchanges(
    network: &Network,
    target: &Target,
    n: u32,
    cancel: &Cancel,
) -> anyhow::Result<Vec<f64>> {
    Ok(one(network, target, Experiment::Rtt { n }, DEADLINE, None, cancel)?.samples)
}

/// An experiment of one quantity from the near host.
pub(crate) fn one(
    network: &Network,
    target: &Target,
    experiment: Experiment,
    deadline: Duration,
    write_bytes: Option<usize>,
    cancel: &Cancel,
) -> anyhow::Result<Measured> {
    let mut context = Context { deadline, cancel: cancel.clone(), ..Context::default() };
    context.write_bytes = write_bytes.unwrap_or(context.write_bytes);
    let mut readings = network.a.run(|| run_one(target, experiment, &context))?;
    let reading = readings.pop().context("an experiment gives a reading")?;
    Ok(reading.result?)
}

/// Far beyond what any sample takes on these links.
const DEADLINE: Duration = Duration::from_secs(60);

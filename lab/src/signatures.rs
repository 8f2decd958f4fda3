//! `lab signatures`: real loss signatures with the kernel's own truth of who lost what, made on this machine.

mod cut;
#[cfg(target_os = "linux")]
mod files;
mod goals;
#[cfg(target_os = "linux")]
pub(crate) mod host;
mod kind;
#[cfg(target_os = "linux")]
mod make;
pub(crate) mod plan;
#[cfg(target_os = "linux")]
mod receiver;
#[cfg(target_os = "linux")]
pub(crate) mod sender;
#[cfg(target_os = "linux")]
mod session;
mod tally;

use std::path::PathBuf;

use kind::Kind;

/// What `lab signatures` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that the files are written to; those of an earlier set are replaced.
    #[arg(long, required_unless_present = "receiver")]
    out: Option<PathBuf>,
    /// Only these kinds, of: random, poisson, cbr, onoff, tcp, self, incast, outage, red, codel, series, gen, preempt,
    /// quota, slow; and hyb- before any of the network's.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Runs of each kind.
    #[arg(long, default_value_t = 2)]
    runs: u32,
    /// Seconds of each run; those through the relay, which carries fewer packets, are three times as long. [default: 6; with --full 60]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// What all runs are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the times of the paper's process generator are divided by; 1 is the paper's.
    #[arg(long, default_value_t = 100.0)]
    scale: f64,
    /// Goes on until there are 5000 windows of 20 000 for each cause, and 1200 of 100 000 at losses of 0.00008 to 0.0005.
    #[arg(long, conflicts_with = "runs")]
    full: bool,
    /// The longest that --full goes on: twice what it takes at the pace of two processors.
    #[arg(long, default_value_t = 24.0)]
    hours: f64,
    /// What the receiver is, when the experiment starts it.
    #[arg(long, hide = true, num_args = 4, value_names = ["BUFFER", "WORK_NS", "CPU", "EXPECTED"])]
    receiver: Option<Vec<u64>>,
}

/// Signatures are made with Linux's network namespaces and drop counters.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { out: _, kinds: _, runs: _, seconds: _, seed: _, scale: _, full: _, hours: _, receiver: _ } =
        args;
    barograph_sim::say_skipped("lab signatures needs Linux's network namespaces");
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use session::run;

/// Packets of the windows that are cut.
const LENGTHS: [u32; 3] = [10_000, 20_000, 100_000];

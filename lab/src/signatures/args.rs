//! What `lab signatures` is asked, and the windows that it cuts.

use std::path::PathBuf;

use super::kind::Kind;

/// What `lab signatures` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that the files are written to; those of an earlier set are replaced.
    #[arg(long, required_unless_present = "receiver")]
    pub(crate) out: Option<PathBuf>,
    /// Only these kinds, of: random, poisson, cbr, onoff, tcp, self, incast, outage, red, codel, series, gen, preempt,
    /// quota, slow; and hyb- before any of the network's.
    #[arg(long, value_delimiter = ',')]
    pub(crate) kinds: Vec<Kind>,
    /// Runs of each kind.
    #[arg(long, default_value_t = 2)]
    pub(crate) runs: u32,
    /// Seconds of each run; those through the relay, which carries fewer packets, are three times as long. [default: 6; with --full 60]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: Option<u32>,
    /// What all runs are drawn from.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// What the times of the paper's process generator are divided by; 1 is the paper's.
    #[arg(long, default_value_t = 100.0)]
    pub(crate) scale: f64,
    /// Goes on until there are 5000 windows of 20 000 for each cause, and 1200 of 100 000 at losses of 0.00008 to 0.0005.
    #[arg(long, conflicts_with = "runs")]
    pub(crate) full: bool,
    /// The longest that --full goes on: twice what it takes at the pace of two processors.
    #[arg(long, default_value_t = 24.0)]
    pub(crate) hours: f64,
    /// What the receiver is, when the experiment starts it.
    #[arg(long, hide = true, num_args = 4, value_names = ["BUFFER", "WORK_NS", "CPU", "EXPECTED"])]
    pub(crate) receiver: Option<Vec<u64>>,
}

/// Packets of the windows that are cut.
pub(crate) const LENGTHS: [u32; 3] = [10_000, WINDOW, LARGE];

/// The lengths that goals are counted in.
pub(crate) const WINDOW: u32 = 20_000;
pub(crate) const LARGE: u32 = 100_000;

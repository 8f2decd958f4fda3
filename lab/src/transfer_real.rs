//! `lab transfer-real`: transfers between two hosts of this machine, over real sockets, beside what others do on the same links.

#[cfg(target_os = "linux")]
mod beside;
#[cfg(target_os = "linux")]
mod busy;
#[cfg(target_os = "linux")]
mod cells;
#[cfg(target_os = "linux")]
mod cross;
#[cfg(target_os = "linux")]
mod fairness;
#[cfg(target_os = "linux")]
mod figures;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod flow;
#[cfg(target_os = "linux")]
mod goal;
#[cfg(target_os = "linux")]
mod job;
#[cfg(target_os = "linux")]
mod line_rate;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod mover;
#[cfg(target_os = "linux")]
mod output;
#[cfg(target_os = "linux")]
mod path;
#[cfg(target_os = "linux")]
mod peer;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod role;
#[cfg(target_os = "linux")]
mod session;
#[cfg(target_os = "linux")]
mod tool;
#[cfg(target_os = "linux")]
mod uncontended;

use std::path::PathBuf;

use clap::ValueEnum;

/// What `lab transfer-real` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    parts: Vec<Part>,
    /// How long each run is measured (s). [default: 2; with --full 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,
    /// Longer runs, more pairs, and all of the paths.
    #[arg(long)]
    full: bool,
    /// Only rows of `uncontended`, `files` and `fairness`, and columns of `network` and `cross`, whose names have one of these in them.
    #[arg(long, value_name = "TEXT", value_delimiter = ';')]
    only: Vec<String>,
    /// Only paths of `network` and `cross` whose names have one of these in them, as `300 Mbit/s` or `100 ms, 0.1 %`.
    #[arg(long, value_name = "TEXT", value_delimiter = ';')]
    paths: Vec<String>,
    /// How many cells of `network`, `cross` and `fairness` may run at once, where the relay carries that many; what is void then is run again alone.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_once)]
    at_once: usize,
    /// Only say how long it would take.
    #[arg(long)]
    plan: bool,
    /// Write figures of `network` and `uncontended` there.
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// What losses, loads and probes are drawn from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where files come from and go to in `files`; else the system's folder for temporary ones.
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// The program `barograph`, of a release build.
    #[arg(long, value_name = "FILE", default_value = "target/release/barograph")]
    program: PathBuf,
    /// Print JSON, a line for each row.
    #[arg(long)]
    json: bool,
    /// What a process is that the experiment starts.
    #[arg(long, hide = true)]
    role: Option<String>,
}

/// The parts of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Alone between two hosts, from memory to memory: the machine's limit, the peers, ours
    Uncontended,
    /// From disk to disk: one file, one to a slow disk, and many small ones, beside the peers that copy files
    Files,
    /// Section 5 of the paper: a fixed rate, with and without the classifier beside the transfer
    LineRate,
    /// To a host that does not always read
    Busy,
    /// Through bottlenecks with delay and loss: every controller, and the peers
    Network,
    /// Beside datagrams that come and go, and beside TCP: throughput, and what the others keep
    Cross,
    /// Beside cubic and bbr, and among four of a kind
    Fairness,
    /// Section 8 of the paper: to a busy host whose other processor has time to spare
    Mover,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Uncontended,
        Self::Files,
        Self::LineRate,
        Self::Busy,
        Self::Network,
        Self::Cross,
        Self::Fairness,
        Self::Mover,
    ];
}

/// More than the processors of any machine that this was tried on would carry.
fn at_once(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=16).contains(count)).ok_or_else(|| "1 to 16".to_owned())
}

/// Transfers are measured with Linux's network namespaces.
#[cfg(not(target_os = "linux"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args {
        parts: _,
        seconds: _,
        full: _,
        only: _,
        paths: _,
        at_once: _,
        plan: _,
        figures: _,
        seed: _,
        disk: _,
        program: _,
        json: _,
        role: _,
    } = args;
    barograph_sim::say_skipped("lab transfer-real needs Linux's network namespaces");
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) use session::run;

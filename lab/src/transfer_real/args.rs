//! What `lab transfer-real` is asked.

use std::path::PathBuf;

use clap::ValueEnum;

/// What `lab transfer-real` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::ALL)]
    pub(crate) parts: Vec<Part>,
    /// How long each run is measured (s). [default: 2; with --full 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: Option<u64>,
    /// Longer runs, more pairs, and all of the paths.
    #[arg(long)]
    pub(crate) full: bool,
    /// Only rows of `uncontended`, `files` and `fairness`, and columns of `network` and `cross`, whose names have one of these in them.
    #[arg(long, value_name = "TEXT", value_delimiter = ';')]
    pub(crate) only: Vec<String>,
    /// Only paths of `network` and `cross` whose names have one of these in them, as `300 Mbit/s` or `100 ms, 0.1 %`.
    #[arg(long, value_name = "TEXT", value_delimiter = ';')]
    pub(crate) paths: Vec<String>,
    /// How many cells of `network`, `cross` and `fairness` may run at once, where the relay carries that many; what is void then is run again alone.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_once)]
    pub(crate) at_once: usize,
    /// Only say how long it would take.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Write figures of `network` and `uncontended` there.
    #[arg(long, value_name = "DIR")]
    pub(crate) figures: Option<PathBuf>,
    /// What losses, loads and probes are drawn from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where files come from and go to in `files`; else the system's folder for temporary ones.
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    /// The program `barograph`, of a release build.
    #[arg(long, value_name = "FILE", default_value = "target/release/barograph")]
    pub(crate) program: PathBuf,
    /// Print JSON, a line for each row.
    #[arg(long)]
    pub(crate) json: bool,
    /// What a process is that the experiment starts.
    #[arg(long, hide = true)]
    pub(crate) role: Option<String>,
}

/// The parts of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
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
    pub(crate) const ALL: [Self; 8] = [
        Self::Uncontended,
        Self::Files,
        Self::LineRate,
        Self::Busy,
        Self::Network,
        Self::Cross,
        Self::Fairness,
        Self::Mover,
    ];

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// More than the processors of any machine that this was tried on would carry.
fn at_once(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| (1..=16).contains(count)).ok_or_else(|| "1 to 16".to_owned())
}

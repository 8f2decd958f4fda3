//! What `lab equivalence` is asked.

use std::path::PathBuf;

use clap::ValueEnum;

/// What `lab equivalence` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pairs of each quantity on each link; 0 leaves tables 3 to 5 out.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) pairs: u32,
    /// Only these links.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [LinkName::Slow, LinkName::Fast, LinkName::Loopback])]
    pub(crate) links: Vec<LinkName>,
    /// Pairs of each row of table 6, the control of buffers; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) buffer_pairs: u32,
    /// Rounds of table 7 on each link, the page's default goodput beside a native transfer of 16 MiB; 0 leaves it out.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) rate_rounds: u32,
    /// Bytes of a transfer; the paper's are 64 KiB.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=16 << 20))]
    pub(crate) bytes: u64,
    /// Write the series as CSV, and the figures as SVG, into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Delays in seconds to replay as jitter, instead of seeded ones; their mean is taken off the links' delay.
    #[arg(long, value_name = "FILE")]
    pub(crate) jitter: Option<PathBuf>,
    /// Which clock the page has: the finer one needs a station that isolates its page.
    #[arg(long, value_enum, default_value_t = ClockName::Fine)]
    pub(crate) clock: ClockName,
    /// The browser.
    #[arg(long, value_name = "FILE", env = "CHROMIUM", default_value = "/usr/bin/chromium")]
    pub(crate) chromium: PathBuf,
    /// Print JSON: one object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The links of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkName {
    /// 2 Mbit/s, 95 ms: the paper's wide-area paths
    Slow,
    /// 100 Mbit/s, 20 ms
    Fast,
    /// 500 Mbit/s, 20 ms
    Faster,
    /// The host itself, without jitter
    Loopback,
}

/// How fine the page's clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClockName {
    /// As on a secure origin: isolated from other origins
    Fine,
    /// As on a plain http address
    Coarse,
}

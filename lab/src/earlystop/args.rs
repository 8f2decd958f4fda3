//! What `lab earlystop` is asked.

use std::path::PathBuf;

/// What `lab earlystop` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Every cell of the grid, instead of a set in which each pair of levels meets.
    #[arg(long, conflicts_with = "cells")]
    pub(crate) full: bool,
    /// Only the cell of this name, such as `300 Mbit/s, 100 ms, bbr, 0.1 % loss`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["full", "cells"])]
    pub(crate) only: Option<String>,
    /// Only so many cells, for a quick look.
    #[arg(long, value_name = "N")]
    pub(crate) cells: Option<usize>,
    /// Seed of the losses, and of which cells stand for the others.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Tests of full length in each cell: the first of 10 s, the others of 5 s, each in turn with one of iperf3.
    /// Four calibrate what comes after
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..=100))]
    pub(crate) tests: u32,
    /// Tests in each cell that may end early.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) early: u32,
    /// Leave iperf3 out: tests of 10 s alone, to see what a rule would have done with them
    #[arg(long)]
    pub(crate) without_iperf3: bool,
    /// Write the samples of each long test as CSV into this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print JSON: one object.
    #[arg(long)]
    pub(crate) json: bool,
}

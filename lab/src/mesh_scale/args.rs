//! How to run the experiment, and what stations join.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::nats::{Cluster, program};

/// How to run the experiment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stations, beside the one that keeps the mesh's history.
    #[arg(long, default_value_t = 100)]
    pub(super) stations: usize,
    /// How long they are watched when all have settled [default: 2; with --tests the longest wait of a pair that the plan promises]
    #[arg(long)]
    pub(super) minutes: Option<f64>,
    /// Let them test each other, with time made shorter, instead of watching what they cost when idle.
    #[arg(long)]
    pub(super) tests: bool,
    /// With --tests: stations of a site, which are those that test each other.
    #[arg(long, default_value_t = 20)]
    pub(super) group: usize,
    /// How long they are left alone before that, in seconds.
    #[arg(long, default_value_t = 30.0)]
    pub(super) settle_s: f64,
    /// What they join.
    #[arg(long, value_enum, default_value_t = Engine::Nats)]
    pub(super) engine: Engine,
    /// The program `barograph`, of a release build.
    #[arg(long, default_value = "target/release/barograph")]
    pub(super) program: PathBuf,
    /// The program `nats-server` [default: NATS_SERVER, else on the path]
    #[arg(long)]
    pub(super) server: Option<PathBuf>,
    /// A setting of every station, such as probe.period_s=30; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub(super) json: bool,
}

/// What holds a mesh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// Three servers, three copies of each record.
    Nats,
    /// A station that the others join.
    Remote,
}

impl Args {
    /// The servers that stations join, if it is servers.
    pub(super) fn cluster(&self, directory: &Path) -> anyhow::Result<Option<Cluster>> {
        if self.engine == Engine::Remote {
            return Ok(None);
        }
        let server = program(self.server.as_deref()).context("there is no nats-server")?;
        Cluster::start(&server, directory, SERVERS).map(Some)
    }
}

/// The smallest cluster that stands a loss.
const SERVERS: usize = 3;

//! What a mesh loses when its parts die: a station that appends without a pause, what holds the mesh together – a
//! station that was joined, one NATS server, or three – and an archive, each a process of its own, and one
//! fault a row.

mod child;
mod mesh;
mod scenario;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::nats::program;
use crate::output::Output;
use crate::table::number;

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    if let Some(part) = args.child {
        return child::run(part, args);
    }
    let server = program(args.server.as_deref());
    let output = Output::new(args.out.as_deref().or(page), args.json);
    output.begin(TITLE)?;
    output.print(Row::HEAD)?;
    let began = Instant::now();
    let mut failed = 0;
    for engine in Engine::ALL.into_iter().filter(|engine| args.engine.is_none_or(|only| only == *engine)) {
        if engine != Engine::Remote && server.is_none() {
            eprintln!(
                "SKIPPED: {}: there is no nats-server (scripts/install-test-needs gets it)",
                engine.shown()
            );
            continue;
        }
        let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only));
        for scenario in scenario::of(engine).filter(|scenario| wanted(scenario.name)) {
            eprintln!("{:>5.0} s: {}, {}", began.elapsed().as_secs_f64(), engine.shown(), scenario.name);
            let row = scenario.run(engine, server.as_deref());
            let row = row.with_context(|| format!("{}, `{}`", engine.shown(), scenario.name));
            let row = match row {
                Ok(Some(row)) => row,
                Ok(None) => continue,
                // The others are run all the same.
                Err(error) => {
                    eprintln!("FAILED: {error:#}");
                    failed += 1;
                    continue;
                }
            };
            if let Some(sign) = &row.sign {
                eprintln!("        noticed by: {sign}");
            }
            output.json(&row)?;
            output.print(&row.to_string())?;
        }
    }
    ensure!(failed == 0, "{failed} rows failed");
    Ok(())
}

const TITLE: &str = "\
# What a mesh loses when its parts die

[The lab's README](../README.md#what-a-mesh-loses-when-its-parts-die) has what each column means.

";

/// How to run the experiment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What holds the mesh together [default: each in turn]
    #[arg(long, value_enum)]
    pub(super) engine: Option<Engine>,
    /// The program `nats-server` [default: NATS_SERVER, else on the path]
    #[arg(long)]
    pub(super) server: Option<PathBuf>,
    /// Only the scenarios whose name holds this.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Print each row as a line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Write the table to this file, too.
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
    /// What this process is, when the experiment starts it.
    #[arg(long, hide = true)]
    pub(super) child: Option<Part>,
    /// The state directory of that part.
    #[arg(long, hide = true, default_value = ".")]
    pub(super) directory: PathBuf,
    /// The addresses of the NATS servers, or the URL of the station to join.
    #[arg(long, hide = true, default_value = "")]
    pub(super) at: String,
    /// Where a whole station listens.
    #[arg(long, hide = true)]
    pub(super) listen: Option<SocketAddr>,
    /// The file with the credentials for the NATS servers.
    #[arg(long, hide = true)]
    pub(super) credentials: Option<PathBuf>,
    /// How many servers keep a record.
    #[arg(long, hide = true, default_value_t = 1)]
    pub(super) replicas: u8,
}

/// What holds a mesh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// A station that the others join, and its archive.
    Remote,
    /// One NATS server, and an archive beside it.
    Nats,
    /// Three NATS servers that each keep every record, and an archive.
    Cluster,
}

impl Engine {
    pub(super) const ALL: [Self; 3] = [Self::Remote, Self::Nats, Self::Cluster];

    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Remote => "a joined station",
            Self::Nats => "one NATS server",
            Self::Cluster => "three NATS servers",
        }
    }
}

/// Which part of the mesh a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Appends and forwards.
    Station,
    /// A whole station that keeps what the mesh holds, beside NATS.
    Archive,
    /// A whole station that is joined, and keeps what the mesh holds.
    Host,
}

impl Part {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Station => "station",
            Self::Archive => "archive",
            Self::Host => "host",
        }
    }
}

#[derive(serde::Serialize)]
pub(super) struct Row {
    pub(super) mesh: &'static str,
    pub(super) fault: &'static str,
    /// Records that the station acknowledged, and how many of its records the archive has.
    pub(super) acknowledged: usize,
    pub(super) archived: u64,
    /// Acknowledged and not in the archive.
    pub(super) lost: usize,
    /// In the archive once more than once.
    pub(super) double: u64,
    /// From the fault's first moment until a station reported anything; `None` = none did.
    pub(super) noticed_s: Option<f64>,
    /// What was reported first.
    pub(super) sign: Option<String>,
    /// From the fault's end until what was acknowledged before it was confirmed by the mesh, another append was
    /// acknowledged, and forecasts learnt new values.
    pub(super) recovered_s: f64,
    /// From how many of the station's values the joined station, or the archive, forecasts.
    pub(super) forecast_from: u64,
    /// The longest time between two acknowledgements.
    pub(super) longest_gap_s: f64,
    /// Acknowledged and not yet confirmed by the mesh, at most.
    pub(super) most_waiting: u64,
    /// Peers that the parts reported as lost, each time.
    pub(super) peers_lost: u64,
    pub(super) read_only_s: u64,
}

impl Row {
    pub(super) const HEAD: &'static str = "\
| mesh | fault | acknowledged | in the archive | lost | double | noticed (s) | recovered (s) | forecasts from \
| longest gap (s) | most waiting | peers lost | read-only (s) |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
";
}

impl fmt::Display for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mesh, fault, acknowledged, archived, lost, double, recovered_s, forecast_from, .. } = self;
        let Self { longest_gap_s, most_waiting, peers_lost, read_only_s, .. } = self;
        let noticed = number(self.noticed_s, 1);
        write!(out, "| {mesh} | {fault} | {acknowledged} | {archived} | {lost} | {double} | {noticed} ")?;
        write!(out, "| {recovered_s:.1} | {forecast_from} | {longest_gap_s:.2} | {most_waiting} ")?;
        writeln!(out, "| {peers_lost} | {read_only_s} |")
    }
}

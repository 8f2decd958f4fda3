//! `lab mesh-losses`: what a mesh loses when its parts die. A station appends continuously, the
//! mesh's engine is a joined station, one NATS server or three, and an archive keeps the records.
//! Each is a process of its own. Each row of the table has one fault.

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
                "SKIPPED: {}: nats-server was not found (scripts/install-test-needs installs it)",
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
                // The other rows are measured nevertheless.
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

[mesh-losses-columns.md](mesh-losses-columns.md) explains the columns.

";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Engine of the mesh [default: each in turn]
    #[arg(long, value_enum)]
    pub(super) engine: Option<Engine>,
    /// Program `nats-server` [default: NATS_SERVER, else the one on the path]
    #[arg(long)]
    pub(super) server: Option<PathBuf>,
    /// Measure only the scenarios with this text in their name.
    #[arg(long)]
    pub(super) only: Option<String>,
    /// Print each row as a line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Write the table to this file, too.
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
    /// Part of the mesh that this process is; the experiment sets it.
    #[arg(long, hide = true)]
    pub(super) child: Option<Part>,
    /// State directory of this part of the mesh.
    #[arg(long, hide = true, default_value = ".")]
    pub(super) directory: PathBuf,
    /// Addresses of the NATS servers, or the URL of the station to join.
    #[arg(long, hide = true, default_value = "")]
    pub(super) at: String,
    /// Address at which a whole station listens.
    #[arg(long, hide = true)]
    pub(super) listen: Option<SocketAddr>,
    /// File with the credentials for the NATS servers.
    #[arg(long, hide = true)]
    pub(super) credentials: Option<PathBuf>,
    /// Number of servers that keep each record.
    #[arg(long, hide = true, default_value_t = 1)]
    pub(super) replicas: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// A station that the others join, with its archive.
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

/// Part of the mesh that a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Appends records and forwards them to the mesh.
    Station,
    /// A whole station with the mesh's archive, beside NATS.
    Archive,
    /// A whole station that the other joins, with the mesh's archive.
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
    /// Records that the station acknowledged; `archived` counts those of its records in the
    /// archive.
    pub(super) acknowledged: usize,
    pub(super) archived: u64,
    /// Acknowledged records that are not in the archive.
    pub(super) lost: usize,
    /// Surplus copies of records in the archive.
    pub(super) double: u64,
    /// From the start of the fault until a station reported anything; `None` if none did.
    pub(super) noticed_s: Option<f64>,
    /// The first report after the fault began.
    pub(super) sign: Option<String>,
    /// From the end of the fault until the mesh has confirmed all earlier acknowledged records,
    /// another append was acknowledged, and forecasts include new values.
    pub(super) recovered_s: f64,
    /// Number of the station's values that the joined station, or the archive, forecasts from.
    pub(super) forecast_from: u64,
    /// The longest time between two acknowledgements.
    pub(super) longest_gap_s: f64,
    /// Largest number of acknowledged records that the mesh had not confirmed.
    pub(super) most_waiting: u64,
    /// Number of reports of a lost peer by any part.
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

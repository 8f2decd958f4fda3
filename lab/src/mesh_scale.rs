//! `lab mesh-scale`: many real stations on one machine, each a process of its own, joined to three
//! NATS servers or to one station. It measures the cost of an idle station, or the turns of
//! stations that test each other.

mod station;
mod turns;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::http::get;
use crate::machine::now_s;
use crate::nats::{Cluster, program};
use crate::output::Output;
use crate::stats::sorted;
use crate::table::{Table, cells};
use station::{Cost, MET_WITHIN, POLL_INTERVAL, Station, Usage, machine_busy_s, wait_until_met};

#[derive(Serialize)]
struct Report {
    stations: usize,
    engine: Engine,
    set: Vec<String>,
    /// From the first station's start until every station has all others as peers.
    met_s: f64,
    /// Peers that a station lost or did not see while the mesh was idle.
    lost: usize,
    /// Latency experiments of all stations in a second.
    experiments_per_s: f64,
    failed: f64,
    skipped: f64,
    watched_s: f64,
    /// Mean number of busy processors, out of `processors`.
    busy: f64,
    processors: usize,
    each: Vec<Usage>,
    /// Usage of the station that keeps the history; then that of the NATS servers.
    #[serde(rename = "keeper")]
    archive: Usage,
    servers: Vec<Usage>,
    /// From a kill -9 until the first station reported it, half of them, and the last.
    noticed_s: Option<[f64; 3]>,
}

pub(crate) fn run(args: &Args, page: Option<&Path>) -> anyhow::Result<()> {
    ensure!(args.stations >= 2, "--stations must be 2 or more, not {}", args.stations);
    let directory = tempfile::tempdir()?;
    let output = Output::new(page, args.json);
    output.begin("# What a station costs in a mesh of many\n\n")?;
    if args.tests {
        let report = turns::measure(args, directory.path())?;
        output.json(&report)?;
        return output.print(&report.to_string());
    }
    let report = measure(args, directory.path())?;
    output.json(&report)?;
    output.print(&report.to_string())
}

fn measure(args: &Args, directory: &Path) -> anyhow::Result<Report> {
    let cluster = args.cluster(directory)?;
    let began = Instant::now();
    let archive = Station::archive(&args.program, directory, cluster.as_ref(), &args.set)?;
    let mut stations = (0..args.stations)
        .map(|index| Station::member(&args.program, directory, index, cluster.as_ref(), &archive, &args.set))
        .collect::<anyhow::Result<Vec<_>>>()?;
    wait_until_met(&mut stations, args.stations)?;
    let met_s = began.elapsed().as_secs_f64();
    eprintln!("{} stations have met after {met_s:.1} s", args.stations);
    thread::sleep(Duration::from_secs_f64(args.settle_s));

    let settled = now_s()?;
    let (watched, busy) = (Instant::now(), machine_busy_s()?);
    let all = || stations.iter().chain([&archive]);
    let before: Vec<Cost> = all().map(|station| Cost::of(station.id())).collect::<anyhow::Result<_>>()?;
    let ids: Vec<u32> =
        cluster.iter().flat_map(|cluster| (0..cluster.len()).filter_map(|i| cluster.id(i))).collect();
    let servers_before: Vec<Cost> = ids.iter().map(|id| Cost::of(*id)).collect::<anyhow::Result<_>>()?;
    let counts_before = counts(&stations)?;
    thread::sleep(Duration::from_secs_f64(args.minutes.unwrap_or(MINUTES) * 60.0));
    let watched_s = watched.elapsed().as_secs_f64();
    let each: Vec<Usage> = all()
        .zip(&before)
        .map(|(station, before)| Usage::since(station.id(), before))
        .collect::<anyhow::Result<_>>()?;
    let servers = ids.iter().zip(&servers_before).map(|(id, before)| Usage::since(*id, before));
    let servers = servers.collect::<anyhow::Result<Vec<_>>>()?;
    let busy = (machine_busy_s()? - busy) / watched_s;
    let counts_after = counts(&stations)?;
    let lost = unseen(&stations, settled)?;
    let noticed_s = kill_one(&mut stations)?;
    let (archive, each) = each.split_last().context("there is an archive")?;
    let of = |index: usize| counts_after[index] - counts_before[index];
    Ok(Report {
        stations: args.stations,
        engine: args.engine,
        set: args.set.clone(),
        met_s,
        lost,
        experiments_per_s: of(0) / watched_s,
        failed: of(1),
        skipped: of(2),
        watched_s,
        busy,
        processors: thread::available_parallelism().map_or(1, usize::from),
        each: each.to_vec(),
        archive: archive.clone(),
        servers,
        noticed_s: Some(noticed_s),
    })
}

/// Latency experiments, failed ones and skipped ones, of all stations since their start.
fn counts(stations: &[Station]) -> anyhow::Result<[f64; 3]> {
    let mut sums = [0.0; 3];
    for station in stations {
        for (sum, count) in sums.iter_mut().zip(station.counts()?) {
            *sum += count;
        }
    }
    Ok(sums)
}

/// Peers that the stations do not see, or lost and found again after `settled`, summed over
/// stations.
fn unseen(stations: &[Station], settled: f64) -> anyhow::Result<usize> {
    let mut unseen = 0;
    for station in stations {
        let answer = get(station.address, "/v1/peers")?;
        let peers = answer["peers"].as_array().context("peers are a list")?;
        let steady = |peer: &&Value| {
            peer["state"] == "up" && peer["since_s"].as_f64().is_some_and(|since| since < settled)
        };
        unseen += stations.len() - peers.iter().filter(steady).count();
    }
    Ok(unseen)
}

/// Kills the last station. Returns the times after which the first, half and all of the others had
/// it as lost, by their own clocks.
fn kill_one(stations: &mut Vec<Station>) -> anyhow::Result<[f64; 3]> {
    let victim = stations.pop().context("there are stations")?;
    let name = victim.name.clone();
    drop(victim);
    let (killed, killed_at) = (Instant::now(), now_s()?);
    let mut waiting: Vec<&Station> = stations.iter().collect();
    let mut times = Vec::new();
    while !waiting.is_empty() {
        ensure!(
            killed.elapsed() < MET_WITHIN,
            "{} stations did not report the loss of {name}",
            waiting.len()
        );
        waiting.retain(|station| {
            let lost_at = lost_at(station, &name);
            times.extend(lost_at.map(|at| at - killed_at));
            lost_at.is_none()
        });
        thread::sleep(POLL_INTERVAL);
    }
    let times = sorted(times);
    Ok([times[0], times[times.len() / 2], times[times.len() - 1]])
}

/// Time (s since 1970) since which a station has had its peer `name` as lost.
fn lost_at(station: &Station, name: &str) -> Option<f64> {
    let answer = get(station.address, "/v1/peers").ok()?;
    let peer = answer["peers"].as_array()?.iter().find(|peer| peer["host"] == name)?;
    peer["since_s"].as_f64().filter(|_| peer["state"] == "lost")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stations, met_s, lost, experiments_per_s, failed, skipped, watched_s, .. } = self;
        writeln!(f, "{stations} stations, {:?}, {}", self.engine, self.set.join(" "))?;
        writeln!(
            f,
            "\nAll had met after {met_s:.1} s. In {watched_s:.0} s {lost} of {} registrations were missed, \
             {experiments_per_s:.1} experiments a second ran, {failed} failed, {skipped} were skipped; {:.2} of {} \
             processors were busy.",
            stations * stations,
            self.busy,
            self.processors
        )?;
        if let Some([first, half, last]) = self.noticed_s {
            writeln!(
                f,
                "A kill -9 was noticed after {first:.1} s by the first, {half:.1} s by half, {last:.1} s by all."
            )?;
        }
        let mut table =
            Table::new(["", "RSS (MB)", "anonymous", "of files", "PSS (MB)", "threads", "% of a core"]);
        let mut row = |name: &str, usage: &Usage| {
            let Usage([memory @ .., threads, core_percent]) = usage;
            let memory = memory.iter().map(|megabytes| format!("{megabytes:.1}"));
            let rest = cells![format!("{threads:.0}"), format!("{core_percent:.2}")];
            table.push([name.to_owned()].into_iter().chain(memory).chain(rest));
        };
        row("a station, median", &Usage::at(&self.each, 0.5));
        row("a station, largest", &Usage::at(&self.each, 1.0));
        row("the station that keeps the history", &self.archive);
        self.servers.iter().for_each(|usage| row("a NATS server", usage));
        write!(f, "\n{table}")
    }
}

/// Enough for 0.01 % of a core to be several ticks.
const MINUTES: f64 = 2.0;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stations, in addition to the one that keeps the mesh's history.
    #[arg(long, default_value_t = 100)]
    pub(super) stations: usize,
    /// How long to watch the settled stations, in minutes [default: 2; with --tests the longest
    /// wait of a pair that the plan promises]
    #[arg(long)]
    pub(super) minutes: Option<f64>,
    /// Let the stations test each other in compressed time, instead of measuring idle ones.
    #[arg(long)]
    pub(super) tests: bool,
    /// With --tests: stations of a site; those of one site test each other.
    #[arg(long, default_value_t = 20)]
    pub(super) group: usize,
    /// Idle time before measuring, in seconds.
    #[arg(long, default_value_t = 30.0)]
    pub(super) settle_s: f64,
    /// Engine that the stations join.
    #[arg(long, value_enum, default_value_t = Engine::Nats)]
    pub(super) engine: Engine,
    /// Program `barograph`, of a release build.
    #[arg(long, default_value = "target/release/barograph")]
    pub(super) program: PathBuf,
    /// Program `nats-server` [default: NATS_SERVER, else the one on the path]
    #[arg(long)]
    pub(super) server: Option<PathBuf>,
    /// A setting of every station, such as probe.period_s=30; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// Three servers, three copies of each record.
    Nats,
    /// A station that the others join.
    Remote,
}

impl Args {
    /// Starts the NATS servers that stations join, if the engine is NATS.
    pub(super) fn cluster(&self, directory: &Path) -> anyhow::Result<Option<Cluster>> {
        if self.engine == Engine::Remote {
            return Ok(None);
        }
        let server = program(self.server.as_deref())
            .context("nats-server was not found (scripts/install-test-needs installs it)")?;
        Cluster::start(&server, directory, SERVERS).map(Some)
    }
}

/// The smallest cluster that survives the loss of a server.
const SERVERS: usize = 3;

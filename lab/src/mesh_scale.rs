//! Many real stations on one machine, each a process of its own, joined to three NATS servers or to one station: what
//! one costs when nothing happens, or what becomes of their turns when they test each other.

mod station;
mod turns;
mod usage;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;

use self::station::Station;
use self::usage::{Cost, Usage, machine_busy_s};
use crate::http::get;
use crate::nats::{Cluster, program};

/// How to run the experiment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stations, beside the one that keeps the mesh's history.
    #[arg(long, default_value_t = 100)]
    stations: usize,
    /// How long they are watched when all have settled [default: 2; with --tests the longest wait of a pair that the plan promises]
    #[arg(long)]
    minutes: Option<f64>,
    /// Let them test each other, with time made shorter, instead of watching what they cost when idle.
    #[arg(long)]
    tests: bool,
    /// With --tests: stations of a site, which are those that test each other.
    #[arg(long, default_value_t = 20)]
    group: usize,
    /// How long they are left alone before that, in seconds.
    #[arg(long, default_value_t = 30.0)]
    settle_s: f64,
    /// What they join.
    #[arg(long, value_enum, default_value_t = Engine::Nats)]
    engine: Engine,
    /// The program `barograph`, of a release build.
    #[arg(long, default_value = "target/release/barograph")]
    program: PathBuf,
    /// The program `nats-server` [default: NATS_SERVER, else on the path]
    #[arg(long)]
    server: Option<PathBuf>,
    /// A setting of every station, such as probe.period_s=30; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// What holds a mesh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Engine {
    /// Three servers, three copies of each record.
    Nats,
    /// A station that the others join.
    Remote,
}

/// What was seen.
#[derive(Serialize)]
struct Report {
    stations: usize,
    engine: Engine,
    set: Vec<String>,
    /// From the first station's start until the last had all others for peers.
    met_s: f64,
    /// Peers that some station lost, or did not see, while nothing happened.
    lost: usize,
    /// Latency experiments of all stations in a second.
    experiments_per_s: f64,
    failed: f64,
    skipped: f64,
    watched_s: f64,
    /// Busy processors, of how many.
    busy: f64,
    processors: usize,
    each: Vec<Usage>,
    /// The station that keeps the history, and the NATS servers.
    keeper: Usage,
    servers: Vec<Usage>,
    /// From a kill -9 until a station knew: of the first, of half of them, of the last.
    noticed_s: Option<[f64; 3]>,
}

/// Runs the mesh and prints what it cost.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(2 <= args.stations, "a mesh has two stations or more, not {}", args.stations);
    let directory = tempfile::tempdir()?;
    if args.tests {
        return turns::run(args, directory.path());
    }
    let report = measure(args, directory.path())?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

fn measure(args: &Args, directory: &Path) -> anyhow::Result<Report> {
    let cluster = args.cluster(directory)?;
    let began = Instant::now();
    let keeper = Station::keeper(&args.program, directory, cluster.as_ref(), &args.set)?;
    let mut stations = (0..args.stations)
        .map(|index| Station::member(&args.program, directory, index, cluster.as_ref(), &keeper, &args.set))
        .collect::<anyhow::Result<Vec<_>>>()?;
    wait_until_met(&mut stations, args.stations)?;
    let met_s = began.elapsed().as_secs_f64();
    eprintln!("{} stations have met after {met_s:.1} s", args.stations);
    thread::sleep(Duration::from_secs_f64(args.settle_s));

    let settled = now_s()?;
    let (watched, busy) = (Instant::now(), machine_busy_s()?);
    let all = || stations.iter().chain([&keeper]);
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
    let (keeper, each) = each.split_last().context("there is a keeper")?;
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
        keeper: keeper.clone(),
        servers,
        noticed_s: Some(noticed_s),
    })
}

impl Args {
    /// The servers that stations join, if it is servers.
    fn cluster(&self, directory: &Path) -> anyhow::Result<Option<Cluster>> {
        if self.engine == Engine::Remote {
            return Ok(None);
        }
        let server = program(self.server.as_deref()).context("there is no nats-server")?;
        Cluster::start(&server, directory, SERVERS).map(Some)
    }
}

/// Waits until every station has so many others for peers.
fn wait_until_met(stations: &mut [Station], others: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    let others = others as u64;
    for station in stations {
        loop {
            ensure!(!station.has_ended(), "{} has ended: {}", station.name, station.log());
            let up = get(station.address, "/v1/mesh").map(|mesh| mesh["peers"]["up"].as_u64());
            match up {
                Ok(Some(up)) if up == others => break,
                up => ensure!(
                    began.elapsed() < MET_WITHIN,
                    "{} sees {up:?} of {others} after {MET_WITHIN:?}: {}",
                    station.name,
                    station.log()
                ),
            }
            thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

/// Latency experiments, those that failed, and those skipped, of all stations since their start.
fn counts(stations: &[Station]) -> anyhow::Result<[f64; 3]> {
    let mut sums = [0.0; 3];
    for station in stations {
        for (sum, count) in sums.iter_mut().zip(station.counts()?) {
            *sum += count;
        }
    }
    Ok(sums)
}

/// How many peers all stations together do not see, or lost and found again after `settled`.
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

/// Kills the last station; the times after which the first, half and all of the others knew, by their own account.
fn kill_one(stations: &mut Vec<Station>) -> anyhow::Result<[f64; 3]> {
    let victim = stations.pop().context("there are stations")?;
    let name = victim.name.clone();
    drop(victim);
    let (killed, killed_at) = (Instant::now(), now_s()?);
    let mut waiting: Vec<&Station> = stations.iter().collect();
    let mut times = Vec::new();
    while !waiting.is_empty() {
        ensure!(killed.elapsed() < MET_WITHIN, "{} stations never missed {name}", waiting.len());
        waiting.retain(|station| {
            let lost_at = lost_at(station, &name);
            times.extend(lost_at.map(|at| at - killed_at));
            lost_at.is_none()
        });
        thread::sleep(LOOK_EVERY);
    }
    times.sort_by(f64::total_cmp);
    Ok([times[0], times[times.len() / 2], times[times.len() - 1]])
}

/// Since when a station has missed its peer `name`, in seconds since 1970.
fn lost_at(station: &Station, name: &str) -> Option<f64> {
    let answer = get(station.address, "/v1/peers").ok()?;
    let peer = answer["peers"].as_array()?.iter().find(|peer| peer["host"] == name)?;
    peer["since_s"].as_f64().filter(|_| peer["state"] == "lost")
}

/// Seconds since 1970.
fn now_s() -> anyhow::Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

fn print(report: &Report) {
    let Report { stations, met_s, lost, experiments_per_s, failed, skipped, watched_s, .. } = report;
    println!("{stations} stations, {:?}, {}", report.engine, report.set.join(" "));
    println!(
        "\nAll had met after {met_s:.1} s. In {watched_s:.0} s {lost} of {} registrations were missed, \
         {experiments_per_s:.1} experiments a second ran, {failed} failed, {skipped} were skipped; {:.2} of {} \
         processors were busy.",
        stations * stations,
        report.busy,
        report.processors
    );
    if let Some([first, half, last]) = report.noticed_s {
        println!(
            "A kill -9 was noticed after {first:.1} s by the first, {half:.1} s by half, {last:.1} s by all."
        );
    }
    println!("\n| | RSS (MB) | anonymous | of files | PSS (MB) | threads | % of a core |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let row = |name: &str, usage: &Usage| {
        let Usage { rss_mb, anonymous_mb, file_mb, pss_mb, threads, core_percent } = usage;
        println!(
            "| {name} | {rss_mb:.1} | {anonymous_mb:.1} | {file_mb:.1} | {pss_mb:.1} | {threads:.0} | {core_percent:.2} |"
        );
    };
    row("a station, median", &Usage::at(&report.each, 0.5));
    row("a station, largest", &Usage::at(&report.each, 1.0));
    row("the one that keeps the history", &report.keeper);
    for usage in &report.servers {
        row("a NATS server", usage);
    }
}

/// Enough for 0.01 % of a core to be several ticks.
const MINUTES: f64 = 2.0;
/// The smallest cluster that stands a loss.
const SERVERS: usize = 3;
/// A hundred stations start one after the other on two processors.
const MET_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(100);

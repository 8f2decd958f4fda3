//! A real station: `barograph up` with its own state directory, on a port that the system chooses.

use std::fs::read_to_string;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::http::{get, post, text};
use crate::nats::Cluster;
use crate::process::Process;
use crate::stats::{Rank, quantile, sorted};

pub(super) struct Station {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    process: Process,
    log: PathBuf,
}

impl Station {
    /// Starts the station that keeps the mesh's history: an archive beside NATS, or the station
    /// that others join.
    pub(super) fn archive(
        program: &Path,
        directory: &Path,
        cluster: Option<&Cluster>,
        set: &[String],
    ) -> anyhow::Result<Self> {
        let mut command = command(program, directory, "keeper", cluster, set);
        if cluster.is_some() {
            command.args(["--set", "mesh.archive=true"]);
        }
        // All stations send requests to it, from one address.
        command.args(["--set", "limits.connections_max=4096", "--set", "limits.streams_max=1024"]);
        Self::start(command, directory, "keeper")
    }

    pub(super) fn member(
        program: &Path,
        directory: &Path,
        index: usize,
        cluster: Option<&Cluster>,
        archive: &Self,
        set: &[String],
    ) -> anyhow::Result<Self> {
        let name = format!("station{index:03}");
        let mut command = command(program, directory, &name, cluster, set);
        // Its peers must sign their requests, as peers on other hosts must.
        command.args(["--set", "loopback_needs_token=true"]);
        if cluster.is_none() {
            let invitation = post(archive.address, "/v1/invitations", &json!({ "name": name }))?;
            let token = invitation["token"].as_str().context("an invitation has a token")?;
            command.env("BAROGRAPH_JOIN_TOKEN", token).args(["--join", &archive.address.to_string()]);
        }
        Self::start(command, directory, &name)
    }

    fn start(mut command: Command, directory: &Path, name: &str) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log)?);
        let mut process = Process::spawn(&mut command)?;
        let mut line = String::new();
        BufReader::new(process.take_stdout().context("its output is a pipe")?).read_line(&mut line)?;
        let address =
            line.trim().rsplit_once("://").and_then(|(_, at)| at.trim_end_matches('/').parse().ok());
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        let address = address.with_context(|| format!("{name} does not listen: {line} {}", said()))?;
        Ok(Self { name: name.to_string(), address, process, log })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Latency experiments, failed ones and skipped ones, since its start.
    pub(super) fn counts(&self) -> anyhow::Result<[f64; 3]> {
        let text = text(self.address, "/metrics")?;
        let is_latency = |line: &str| LATENCY.iter().any(|quantity| line.contains(quantity));
        let failed = sum(&text, |line| line.starts_with("barograph_failures_total") && is_latency(line));
        let values = sum(&text, |line| line.starts_with("barograph_values_total") && is_latency(line));
        Ok([values + failed, failed, sum(&text, |line| line.starts_with("barograph_probes_skipped_total"))])
    }

    /// Tests that it started: with a rate, failed, and refused by one end, since its start.
    pub(super) fn tests(&self) -> anyhow::Result<[f64; 3]> {
        let text = text(self.address, "/metrics")?;
        let of = |result: &str| {
            let line = format!("barograph_mesh_tests_total{{role=\"source\",result=\"{result}\"}}");
            sum(&text, |text| text.starts_with(&line))
        };
        Ok([of("done"), of("failed"), of("refused")])
    }
}

pub(super) fn wait_until_met(stations: &mut [Station], others: usize) -> anyhow::Result<()> {
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
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

fn sum(text: &str, wanted: impl Fn(&str) -> bool) -> f64 {
    let lines = text.lines().filter(|line| wanted(line));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

fn command(
    program: &Path,
    directory: &Path,
    name: &str,
    cluster: Option<&Cluster>,
    set: &[String],
) -> Command {
    let mut command = Command::new(program);
    command.args(["up", "--listen", "127.0.0.1:0", "--no-default-targets", "--log", "warn", "--host", name]);
    command.arg("--state").arg(directory.join(name));
    // Without the environment, so that files and variables of the user's own station have no
    // effect.
    command.env_clear().env("HOME", directory);
    if let Some(cluster) = cluster {
        let servers: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
        command.args(["--set", &format!("mesh.nats={}", servers.join(",")), "--set", "mesh.nats_replicas=3"]);
    }
    for pair in set {
        command.args(["--set", pair]);
    }
    command
}

/// Each latency experiment with a peer gives one of these.
const LATENCY: [&str; 4] =
    ["quantity=\"rtt\"", "quantity=\"loss\"", "quantity=\"rtt_loaded\"", "quantity=\"loss_loaded\""];
/// A hundred stations start one after another on two processors.
pub(super) const MET_WITHIN: Duration = Duration::from_secs(180);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Processor time of a process so far, and the time of reading it.
pub(super) struct Cost {
    busy_s: f64,
    at: Instant,
}

/// Memory now, and the share of a processor over a time: one number for each of [`FIGURES`].
#[derive(Clone, Debug)]
pub(super) struct Usage(pub(super) [f64; 6]);

/// Keys in the JSON. PSS is the size of each page divided by the number of processes that use it.
const FIGURES: [&str; 6] = ["rss_mb", "anonymous_mb", "file_mb", "pss_mb", "threads", "core_percent"];

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(FIGURES.iter().zip(self.0))
    }
}

impl Cost {
    pub(super) fn of(id: u32) -> anyhow::Result<Self> {
        Ok(Self { busy_s: busy_s(id)?, at: Instant::now() })
    }
}

impl Usage {
    pub(super) fn since(id: u32, before: &Cost) -> anyhow::Result<Self> {
        let core = (busy_s(id)? - before.busy_s) / before.at.elapsed().as_secs_f64();
        let status = read_to_string(format!("/proc/{id}/status"))?;
        let smaps = read_to_string(format!("/proc/{id}/smaps_rollup"))?;
        let mb = |text: &str, key: &str| anyhow::Ok(number(text, key)? * 1024.0 / 1e6);
        let [rss, anonymous, file] = ["VmRSS:", "RssAnon:", "RssFile:"].map(|key| mb(&status, key));
        let threads = number(&status, "Threads:")?;
        Ok(Self([rss?, anonymous?, file?, mb(&smaps, "Pss:")?, threads, 100.0 * core]))
    }

    /// The quantile `share` of each figure by itself.
    pub(super) fn at(all: &[Self], share: f64) -> Self {
        Self(std::array::from_fn(|figure| {
            let of_all = sorted(all.iter().map(|usage| usage.0[figure]));
            quantile(&of_all, share, Rank::Nearest).unwrap_or(f64::NAN)
        }))
    }
}

/// Busy time of all processors of the machine since it started (s).
pub(super) fn machine_busy_s() -> anyhow::Result<f64> {
    let text = read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // user, nice, system, then (after idle and waiting for disks) interrupts.
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index)).sum::<f64>();
    Ok(busy / TICKS_PER_S)
}

/// User and system time (s) of a process with all its threads, including ended ones.
fn busy_s(id: u32) -> anyhow::Result<f64> {
    let text = read_to_string(format!("/proc/{id}/stat"))?;
    // The process name may contain spaces and ends with the last parenthesis; `utime` is field 14.
    let rest = text.rsplit_once(')').context("the process has no name")?.1;
    let ticks: Vec<f64> =
        rest.split_whitespace().skip(11).take(2).map_while(|word| word.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_S)
}

fn number(text: &str, key: &str) -> anyhow::Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).with_context(|| format!("there is no {key}"))
}

/// `USER_HZ`, 100 on every architecture that Linux runs a station on.
const TICKS_PER_S: f64 = 100.0;

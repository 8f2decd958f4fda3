//! A real station: `barograph up` with a state directory of its own, on a port that the system chose.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::http::{get, post, text};
use crate::nats::Cluster;
use crate::process::Process;

/// A station that runs.
pub(super) struct Station {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    process: Process,
    log: PathBuf,
}

impl Station {
    /// The one that keeps the mesh's history: an archive beside NATS, or the station that others join.
    pub(super) fn keeper(
        program: &Path,
        directory: &Path,
        cluster: Option<&Cluster>,
        set: &[String],
    ) -> anyhow::Result<Self> {
        let mut command = command(program, directory, "keeper", cluster, set);
        if cluster.is_some() {
            command.args(["--set", "mesh.archive=true"]);
        }
        // It is asked by all of them, from one address.
        command.args(["--set", "limits.connections_max=4096", "--set", "limits.streams_max=1024"]);
        Self::start(command, directory, "keeper")
    }

    /// Station number `index`.
    pub(super) fn member(
        program: &Path,
        directory: &Path,
        index: usize,
        cluster: Option<&Cluster>,
        keeper: &Self,
        set: &[String],
    ) -> anyhow::Result<Self> {
        let name = format!("station{index:03}");
        let mut command = command(program, directory, &name, cluster, set);
        // Its peers sign, as those on other hosts must.
        command.args(["--set", "loopback_needs_token=true"]);
        if cluster.is_none() {
            let invitation = post(keeper.address, "/v1/invitations", &json!({ "name": name }))?;
            let token = invitation["token"].as_str().context("an invitation has a token")?;
            command.env("BAROGRAPH_JOIN_TOKEN", token).args(["--join", &keeper.address.to_string()]);
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

    /// What it has complained of.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Latency experiments, those that failed, and those skipped, since its start.
    pub(super) fn counts(&self) -> anyhow::Result<[f64; 3]> {
        let text = text(self.address, "/metrics")?;
        let is_latency = |line: &str| LATENCY.iter().any(|quantity| line.contains(quantity));
        let failed = sum(&text, |line| line.starts_with("barograph_failures_total") && is_latency(line));
        let values = sum(&text, |line| line.starts_with("barograph_values_total") && is_latency(line));
        Ok([values + failed, failed, sum(&text, |line| line.starts_with("barograph_probes_skipped_total"))])
    }

    /// Tests that it started and that gave a rate, that gave none, and that one end refused, since its start.
    pub(super) fn tests(&self) -> anyhow::Result<[f64; 3]> {
        let text = text(self.address, "/metrics")?;
        let of = |result: &str| {
            let line = format!("barograph_mesh_tests_total{{role=\"source\",result=\"{result}\"}}");
            sum(&text, |text| text.starts_with(&line))
        };
        Ok([of("done"), of("failed"), of("refused")])
    }
}

/// Waits until every station has so many others for peers.
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
            thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}

/// The sum of the samples of some lines.
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
    // A file or variables of this user's own station are not this one's.
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

/// Each latency experiment of a peer gives one of these.
const LATENCY: [&str; 4] =
    ["quantity=\"rtt\"", "quantity=\"loss\"", "quantity=\"rtt_loaded\"", "quantity=\"loss_loaded\""];
/// A hundred stations start one after the other on two processors.
pub(super) const MET_WITHIN: Duration = Duration::from_secs(180);
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

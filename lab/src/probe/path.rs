//! The emulated paths, and the repetition of void attempts.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path as FilePath;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use barograph_probe::io::{ResponderLimits, exchange_on_timer, run_one};
use barograph_probe::{Direction, Experiment, MeasuredValue, Target};
use barograph_sim::{Link, LinkSpec, Network, PacketLoss, Queue};
use indicatif::ProgressBar;
use serde::Deserialize;
use tempfile::TempDir;

use super::Verdict;
use crate::emulation::{Responder, forget_connections, invalid_reason, ping_pong, set_tcp};
use crate::process::Process;
use crate::tool::{Ended, find, run};
use crate::{iperf, machine};

/// A path between two hosts: the same both ways, except for loss, which occurs only towards the far
/// host.
#[derive(Clone)]
pub(crate) struct ProbePath {
    pub(crate) name: String,
    rtt: Duration,
    rate_bps: Option<u64>,
    loss: f64,
    /// Congestion control of TCP, where it matters.
    congestion: Option<String>,
}

impl ProbePath {
    pub(crate) fn of_ms(rtt_ms: u64) -> Self {
        let rtt = Duration::from_millis(rtt_ms);
        Self { name: format!("{rtt_ms} ms"), rtt, rate_bps: None, loss: 0.0, congestion: None }
    }

    /// A path with delay and rate, and a queue of one bandwidth–delay product. TCP uses
    /// `congestion`, or the kernel's default.
    pub(crate) fn shaped(rtt_ms: u64, rate_bps: u64, congestion: Option<&str>) -> Self {
        let congestion = congestion.map_or_else(machine::congestion, str::to_owned);
        let name = format!("{rtt_ms} ms, {} Mbit/s, {congestion}", rate_bps / 1_000_000);
        Self { name, rate_bps: Some(rate_bps), congestion: Some(congestion), ..Self::of_ms(rtt_ms) }
    }

    /// A path with delay and independent loss towards the far host, so that a request is lost with
    /// this probability and a response never.
    pub(crate) fn lossy(rtt_ms: u64, loss: f64) -> Self {
        let name = format!("{rtt_ms} ms, {:.0} % loss", loss * 100.0);
        Self { name, loss, ..Self::of_ms(rtt_ms) }
    }

    pub(crate) fn rtt_s(&self) -> f64 {
        self.rtt.as_secs_f64()
    }

    fn link(&self, seed: u64) -> Link {
        let queue = if self.rate_bps.is_some() { Queue::Bdp(1.0) } else { Queue::Unlimited };
        let spec =
            LinkSpec { delay: self.rtt / 2, rate_bps: self.rate_bps, queue, seed, ..LinkSpec::default() };
        let forward = LinkSpec { loss: PacketLoss::Independent(self.loss), ..spec.clone() };
        Link::Relay { forward, back: spec, options: Default::default() }
    }
}

/// Shared by all measurements: the progress bar, and the time until which attempts are repeated.
pub(crate) struct ProbeTestbed {
    bar: ProgressBar,
    repeat_until: Instant,
}

pub(crate) struct Unanswered {
    pub(crate) verdict: Verdict,
    pub(crate) why: String,
}

impl ProbeTestbed {
    pub(crate) fn new(bar: ProgressBar, repeats: Duration) -> Self {
        Self { bar, repeat_until: Instant::now() + repeats }
    }

    pub(crate) fn begin(&self, step: &str) {
        self.bar.set_message(step.to_owned());
    }

    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }

    pub(crate) fn may_repeat(&self) -> bool {
        Instant::now() < self.repeat_until
    }

    /// Runs `work` on a fresh network, at most [`ATTEMPTS`] times if the emulator was the
    /// bottleneck. Returns the value and the number of void attempts before it.
    pub(crate) fn on<T>(
        &self,
        path: &ProbePath,
        work: impl Fn(&Network) -> anyhow::Result<T>,
    ) -> Result<(T, u32), Unanswered> {
        let mut attempt = 0;
        loop {
            let unanswered = match once(path, attempt.into(), &work) {
                Ok(value) => return Ok((value, attempt)),
                Err(unanswered) if unanswered.verdict != Verdict::Void => return Err(unanswered),
                Err(unanswered) => unanswered,
            };
            attempt += 1;
            if attempt >= ATTEMPTS || !self.may_repeat() {
                return Err(unanswered);
            }
        }
    }
}

/// One attempt on a fresh network; on a void network a failure counts as void.
pub(crate) fn once<T>(
    path: &ProbePath,
    seed: u64,
    work: &impl Fn(&Network) -> anyhow::Result<T>,
) -> Result<T, Unanswered> {
    let failed = |error: anyhow::Error| Unanswered { verdict: Verdict::Failed, why: format!("{error:#}") };
    let network = Network::new(path.link(seed)).map_err(|error| failed(error.into()))?;
    let prepare = || {
        forget_connections(&network)?;
        let hosts = [&network.a, &network.b];
        let congestion = path.congestion.iter();
        congestion
            .flat_map(|name| hosts.map(|host| (host, name)))
            .try_for_each(|(host, name)| set_tcp(host, "tcp_congestion_control", name))
    };
    prepare().map_err(failed)?;
    let result = work(&network);
    match invalid_reason(&network) {
        Some(why) => Err(Unanswered { verdict: Verdict::Void, why }),
        None => result.map_err(failed),
    }
}

pub(crate) fn responder(network: &Network) -> anyhow::Result<Responder> {
    Responder::start(&network.b, ResponderLimits::default())
}

/// Results of `experiment` from the near host, a value for each of its quantities.
pub(crate) fn measure(
    network: &Network,
    target: &Target,
    experiment: Experiment,
    rtt_forecast_s: Option<f64>,
) -> anyhow::Result<Vec<MeasuredValue>> {
    let context =
        barograph_probe::io::ProbeContext { deadline: DEADLINE, rtt_forecast_s, ..Default::default() };
    let readings = network.a.run(|| run_one(target, experiment, &context))?;
    let name = |quantity| format!("{quantity:?} of {target}");
    readings.into_iter().map(|reading| reading.result.with_context(|| name(reading.quantity))).collect()
}

/// Latencies of `n` timed exchanges, as between stations; all must be answered.
pub(crate) fn latencies(network: &Network, target: &Target, n: u32) -> anyhow::Result<Vec<f64>> {
    let context = barograph_probe::io::ProbeContext { deadline: DEADLINE, ..Default::default() };
    let paced = network.a.run(|| exchange_on_timer(target, n, Duration::from_millis(20), &context))?;
    Ok(paced.result?.samples)
}

const ATTEMPTS: u32 = 4;
const DEADLINE: Duration = Duration::from_secs(30);

/// Two threads, one connection, two bytes, blocking calls: the least that a round trip needs.
pub(crate) struct BarePingPong(TcpStream);

impl BarePingPong {
    pub(crate) fn start(network: &Network) -> anyhow::Result<Self> {
        Ok(Self(ping_pong(network, LIMIT)?))
    }

    pub(crate) fn exchange(&mut self, n: u32) -> anyhow::Result<Vec<f64>> {
        let mut bytes = [0; 2];
        let one = |_| {
            let began = Instant::now();
            self.0.write_all(&bytes)?;
            self.0.read_exact(&mut bytes)?;
            Ok(began.elapsed().as_secs_f64())
        };
        (0..n).map(one).collect()
    }
}

/// qperf's server in the far host, until dropped.
pub(crate) struct Qperf {
    _server: Process,
}

impl Qperf {
    pub(crate) fn is_here() -> bool {
        find("qperf").is_some()
    }

    pub(crate) fn start(network: &Network) -> anyhow::Result<Self> {
        Ok(Self { _server: Process::spawn(network.b.command("qperf").stdout(Stdio::null()))? })
    }

    /// Mean time (s) of an exchange of two bytes each way, measured for `seconds`.
    pub(crate) fn round_trip_s(&self, network: &Network, seconds: u32) -> anyhow::Result<f64> {
        let (to, seconds) = (network.b.v4().to_string(), seconds.to_string());
        let words = ["qperf", "-ws", "5", "-t", &seconds, "-m", "2", "-uu", "-e", "7", &to, "tcp_lat"];
        let Ended::Done(text) = run(&network.a, &words, LIMIT.as_secs())? else {
            bail!("qperf did not end in time")
        };
        let ns = text.lines().find_map(|line| line.split_once("latency")?.1.trim().strip_prefix('='));
        let ns = ns.and_then(|rest| rest.trim().strip_suffix(" ns"));
        let one_way_ns: f64 =
            ns.with_context(|| format!("qperf printed {text:?}"))?.trim().replace(',', "").parse()?;
        // qperf divides by the messages of both ways.
        Ok(2.0 * one_way_ns / 1e9)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    pub(crate) bits_per_second: f64,
}

/// Runs iperf3 from the near host with `bytes` bytes; returns what its receiver measured.
pub(crate) fn iperf3(network: &Network, direction: Direction, bytes: u64) -> anyhow::Result<Received> {
    let bytes = bytes.to_string();
    let options: &[&str] = if direction == Direction::Down { &["-n", &bytes, "-R"] } else { &["-n", &bytes] };
    let mut report = iperf::measured(network, LIMIT.as_secs(), options)?;
    Ok(serde_json::from_value(report["end"]["sum_received"].take())?)
}

/// nginx in the far host, with its own configuration, until dropped.
pub(crate) struct Nginx {
    address: SocketAddr,
    _running: Process,
    _folder: TempDir,
}

impl Nginx {
    /// Starts `program` on a free port, and returns when it listens.
    pub(crate) fn start(network: &Network, program: &FilePath) -> anyhow::Result<Self> {
        let host = &network.b;
        // The port is free again at once, and no other program runs in this namespace.
        let address = host.run(|| TcpListener::bind((host.v4(), 0))?.local_addr())??;
        let folder = tempfile::Builder::new().prefix("barograph-nginx").tempdir()?;
        let config = folder.path().join("nginx.conf");
        fs::write(&config, configuration(folder.path(), address))?;
        let mut command = host.command(&program.to_string_lossy());
        command.arg("-p").arg(folder.path()).arg("-c").arg(&config);
        let mut running = Process::spawn(command.stdin(Stdio::null()).stderr(Stdio::null()))?;
        let began = Instant::now();
        // The host connects to itself, so that nothing crosses the path before the measurement.
        while host.run(|| TcpStream::connect_timeout(&address, LIMIT))?.is_err() {
            ensure!(!running.has_ended(), "nginx ended before it listened");
            ensure!(began.elapsed() < LIMIT, "nginx does not listen after {LIMIT:?}");
        }
        Ok(Self { address, _running: running, _folder: folder })
    }

    pub(crate) fn url(&self) -> anyhow::Result<Target> {
        Ok(Target::parse(&format!("http://{}/", self.address))?)
    }
}

/// One process without privileges to drop; everything that it writes is in its own folder.
fn configuration(folder: &FilePath, address: SocketAddr) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n\
         http {{\n    access_log off;\n{temporary}    server {{\n        listen {address};\n        \
         location / {{ return 200 \"{}\"; }}\n    }}\n}}\n",
        "barograph ".repeat(100)
    )
}

const LIMIT: Duration = Duration::from_secs(30);

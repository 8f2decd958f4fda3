//! What the probes are compared with: a bare ping-pong, qperf, iperf3, and nginx as a server that knows nothing of us.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use barograph_probe::{Direction, Target};
use barograph_sim::Network;
use serde::Deserialize;
use tempfile::TempDir;

use crate::emulation::ping_pong;
use crate::iperf;
use crate::process::Process;
use crate::tool::{Ended, find, run};

/// Two threads, one connection, two bytes, blocking: nothing that could be left out.
pub(crate) struct BarePingPong(TcpStream);

impl BarePingPong {
    /// The answering end is in the far host.
    pub(crate) fn start(network: &Network) -> anyhow::Result<Self> {
        Ok(Self(ping_pong(network, LIMIT)?))
    }

    /// The times of `n` exchanges, in seconds.
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
    /// Whether it is here.
    pub(crate) fn is_here() -> bool {
        find("qperf").is_some()
    }

    pub(crate) fn start(network: &Network) -> anyhow::Result<Self> {
        Ok(Self { _server: Process::spawn(network.b.command("qperf").stdout(Stdio::null()))? })
    }

    /// The mean time of an exchange of two bytes each way, over so many seconds, in seconds.
    pub(crate) fn round_trip_s(&self, network: &Network, seconds: u32) -> anyhow::Result<f64> {
        let (to, seconds) = (network.b.v4().to_string(), seconds.to_string());
        let words = ["qperf", "-ws", "5", "-t", &seconds, "-m", "2", "-uu", "-e", "7", &to, "tcp_lat"];
        let Ended::Done(text) = run(&network.a, &words, LIMIT.as_secs())? else {
            bail!("qperf did not end in time")
        };
        let ns = text.lines().find_map(|line| line.split_once("latency")?.1.trim().strip_prefix('='));
        let ns = ns.and_then(|rest| rest.trim().strip_suffix(" ns"));
        let one_way_ns: f64 =
            ns.with_context(|| format!("qperf said {text:?}"))?.trim().replace(',', "").parse()?;
        // qperf divides by the messages of both ways.
        Ok(2.0 * one_way_ns / 1e9)
    }
}

/// What iperf3 says of one transfer.
#[derive(Debug, Deserialize)]
pub(crate) struct Received {
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// Their rate in bit/s.
    pub(crate) bits_per_second: f64,
}

/// iperf3 from the near host: what its receiver saw of `bytes` bytes.
pub(crate) fn iperf3(network: &Network, direction: Direction, bytes: u64) -> anyhow::Result<Received> {
    let bytes = bytes.to_string();
    let options: &[&str] = if direction == Direction::Down { &["-n", &bytes, "-R"] } else { &["-n", &bytes] };
    let mut report = iperf::measured(network, LIMIT.as_secs(), options)?;
    Ok(serde_json::from_value(report["end"]["sum_received"].take())?)
}

/// nginx in the far host, with a configuration of its own, until dropped.
pub(crate) struct Nginx {
    address: SocketAddr,
    _running: Process,
    _folder: TempDir,
}

impl Nginx {
    /// Starts `program` on a free port, and returns when it listens.
    pub(crate) fn start(network: &Network, program: &Path) -> anyhow::Result<Self> {
        let host = &network.b;
        // Free again at once, and nobody else is in this namespace.
        let address = host.run(|| TcpListener::bind((host.v4(), 0))?.local_addr())??;
        let folder = tempfile::Builder::new().prefix("barograph-nginx").tempdir()?;
        let config = folder.path().join("nginx.conf");
        fs::write(&config, configuration(folder.path(), address))?;
        let mut command = host.command(&program.to_string_lossy());
        command.arg("-p").arg(folder.path()).arg("-c").arg(&config);
        let mut running = Process::spawn(command.stdin(Stdio::null()).stderr(Stdio::null()))?;
        let began = Instant::now();
        // A connection from the host itself: nothing crosses the path before the measurement.
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

/// One process without privileges to drop, everything that it writes in its own folder.
fn configuration(folder: &Path, address: SocketAddr) -> String {
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

/// Nothing here takes longer when it works.
const LIMIT: Duration = Duration::from_secs(30);

//! What the probes are compared with: a bare ping-pong, qperf, iperf3, and nginx as a server that knows nothing of us.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use barograph_probe::{Direction, Target};
use barograph_sim::{Host, Network};
use serde::Deserialize;
use tempfile::TempDir;

/// Two threads, one connection, two bytes, blocking: nothing that could be left out.
pub(crate) struct BarePingPong(TcpStream);

impl BarePingPong {
    /// The answering end is in the far host.
    pub(crate) fn start(network: &Network) -> anyhow::Result<Self> {
        let listener = network.b.run(|| TcpListener::bind((network.b.v4(), 0)))??;
        let to = listener.local_addr()?;
        // Ends with the connection; the other end never goes without closing it.
        thread::spawn(move || echo(&listener));
        let stream = network.a.run(|| TcpStream::connect_timeout(&to, LIMIT))??;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self(stream))
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

fn echo(listener: &TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut bytes = [0; 2];
    loop {
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes)?;
    }
}

/// qperf's server in the far host, until dropped.
pub(crate) struct Qperf {
    _server: Running,
}

impl Qperf {
    /// Whether it is here.
    pub(crate) fn is_here() -> bool {
        Command::new("qperf")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    pub(crate) fn start(network: &Network) -> anyhow::Result<Self> {
        Ok(Self { _server: Running(network.b.command("qperf").stdout(Stdio::null()).spawn()?) })
    }

    /// The mean time of an exchange of two bytes each way, over so many seconds, in seconds.
    pub(crate) fn round_trip_s(&self, network: &Network, seconds: u32) -> anyhow::Result<f64> {
        let to = network.b.v4().to_string();
        let mut client = network.a.command("timeout");
        client.arg(LIMIT.as_secs().to_string());
        client.args([
            "qperf",
            "-ws",
            "5",
            "-t",
            &seconds.to_string(),
            "-m",
            "2",
            "-uu",
            "-e",
            "7",
            &to,
            "tcp_lat",
        ]);
        let output = client.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
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
    let inside = |host: &Host| {
        let mut command = host.command("timeout");
        command.args([LIMIT.as_secs().to_string().as_str(), "iperf3"]);
        command
    };
    // Each namespace has its ports for itself, and ends what still runs in it.
    let mut server =
        Running(inside(&network.b).args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped()).spawn()?);
    let output = server.0.stdout.take().context("iperf3's output is piped")?;
    let mut lines = BufReader::new(output).lines();
    if !lines.any(|line| line.is_ok_and(|line| line.contains("Server listening"))) {
        bail!("iperf3's server ended before it listened");
    }
    let mut client = inside(&network.a);
    client.args(["-c", &network.b.v4().to_string(), "-J", "-n", &bytes.to_string()]);
    if direction == Direction::Down {
        client.arg("-R");
    }
    let output = client.output()?;
    let mut report: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("iperf3's report is no JSON")?;
    if let Some(error) = report.get("error") {
        bail!("iperf3: {error}");
    }
    Ok(serde_json::from_value(report["end"]["sum_received"].take())?)
}

/// Whether iperf3 is here.
pub(crate) fn has_iperf3() -> bool {
    Command::new("iperf3")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// nginx in the far host, with a configuration of its own, until dropped.
pub(crate) struct Nginx {
    address: SocketAddr,
    _running: Running,
    _folder: TempDir,
}

impl Nginx {
    /// The path of the program, if it is here; Debian keeps it out of an ordinary user's path.
    pub(crate) fn program() -> Option<&'static str> {
        let runs = |program: &&str| {
            Command::new(program)
                .arg("-v")
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        ["nginx", "/usr/sbin/nginx"].into_iter().find(runs)
    }

    /// Starts `program` on a free port, and returns when it listens.
    pub(crate) fn start(network: &Network, program: &str) -> anyhow::Result<Self> {
        let host = &network.b;
        // Free again at once, and nobody else is in this namespace.
        let address = host.run(|| TcpListener::bind((host.v4(), 0))?.local_addr())??;
        let folder = tempfile::Builder::new().prefix("barograph-nginx").tempdir()?;
        let config = folder.path().join("nginx.conf");
        fs::write(&config, configuration(folder.path(), address))?;
        let mut command = host.command(program);
        command.arg("-p").arg(folder.path()).arg("-c").arg(&config);
        let mut running = Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let began = Instant::now();
        // A connection from the host itself: nothing crosses the path before the measurement.
        while host.run(|| TcpStream::connect_timeout(&address, LIMIT))?.is_err() {
            if let Some(status) = running.0.try_wait()? {
                bail!("nginx ended before it listened: {status}");
            }
            if LIMIT < began.elapsed() {
                bail!("nginx does not listen after {LIMIT:?}");
            }
        }
        Ok(Self { address, _running: running, _folder: folder })
    }

    pub(crate) fn url(&self) -> anyhow::Result<Target> {
        Ok(Target::parse(&format!("http://{}/", self.address))?)
    }
}

/// One process without privileges to drop, everything that it writes in its own folder.
fn configuration(folder: &std::path::Path, address: SocketAddr) -> String {
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

/// A program that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Nothing here takes longer when it works.
const LIMIT: Duration = Duration::from_secs(30);

//! One network with a station, perhaps a competing flow, and what is measured on it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use barograph_probe::io::{Context, Limits, Listener, stream};
use barograph_probe::{StreamPlan, Streamed, Target};
use barograph_sim::{Host, Network};

use super::grid::Cell;
use super::study::BYTES_MAX;

/// A network of a cell.
pub(crate) struct Bench {
    cell: Cell,
    // Declared before the network: what runs in the hosts ends before they go.
    _competitor: Option<Competitor>,
    station: Listener,
    network: Network,
}

impl Bench {
    pub(crate) fn new(cell: Cell, seed: u64) -> anyhow::Result<Self> {
        let network = Network::new(cell.link(seed))?;
        let at = (network.b.v4(), 0).into();
        let limits = Limits { transfer_bytes_max: BYTES_MAX, ..Limits::default() };
        let station = network.b.run(|| Listener::start(at, limits))??;
        let competitor = cell.has_competitor.then(|| Competitor::start(&network)).transpose()?;
        Ok(Self { cell, _competitor: competitor, station, network })
    }

    /// A stream of ours.
    pub(crate) fn stream(&self, plan: StreamPlan) -> anyhow::Result<Streamed> {
        let target = Target::parse(&self.station.address().to_string())?;
        let plan = StreamPlan { congestion: Some(self.cell.congestion.to_owned()), ..plan };
        Ok(self.network.a.run(|| stream(&target, &plan, &Context::default()))??)
    }

    /// What iperf3's receiver saw in `seconds`, in bit/s.
    pub(crate) fn iperf3(&self, seconds: u32) -> anyhow::Result<f64> {
        let inside = |host: &Host| {
            let mut command = host.command("timeout");
            command.args([(seconds + GRACE_S).to_string().as_str(), "iperf3"]);
            command
        };
        let mut server = inside(&self.network.b)
            .args(["-s", "-1", "--forceflush"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let answer = self.iperf3_client(&mut server, inside(&self.network.a), seconds);
        // It ends by itself after one test; after a failure it has to be told.
        if answer.is_err() {
            let _ = server.kill();
        }
        let _ = server.wait();
        answer
    }

    fn iperf3_client(
        &self,
        server: &mut std::process::Child,
        mut client: Command,
        seconds: u32,
    ) -> anyhow::Result<f64> {
        let output = server.stdout.take().context("iperf3's output is piped")?;
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(output));
        if !lines.any(|line| line.is_ok_and(|line| line.contains("Server listening"))) {
            bail!("iperf3's server ended before it listened");
        }
        let to = self.network.b.v4().to_string();
        client.args(["-c", &to, "-J", "-t", &seconds.to_string(), "-C", self.cell.congestion]);
        let output = client.output()?;
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("iperf3's report is no JSON")?;
        if let Some(error) = report.get("error") {
            bail!("iperf3: {error}");
        }
        report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 tells no rate")
    }

    /// The largest share of a core that the emulator used; none where the kernel carries the link.
    pub(crate) fn cpu_peak(&self) -> Option<f64> {
        self.network.report().map(|report| report.cpu_peak)
    }

    /// Why what was measured here is no evidence, if so.
    pub(crate) fn void(&self) -> Option<String> {
        self.network.report().and_then(|report| report.void()).map(|void| void.to_string())
    }
}

/// A cubic flow that has had the path for itself for a while.
struct Competitor {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Competitor {
    fn start(network: &Network) -> anyhow::Result<Self> {
        let listener = network.b.run(|| TcpListener::bind((network.b.v4(), 0)))??;
        let to = listener.local_addr()?;
        let mut sender = network.a.run(|| TcpStream::connect_timeout(&to, TICK * 50))??;
        let (mut receiver, _) = listener.accept()?;
        socket2::SockRef::from(&sender).set_tcp_congestion(b"cubic")?;
        sender.set_write_timeout(Some(TICK))?;
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let sink = thread::spawn(move || {
            let mut buffer = vec![0; BLOCK_BYTES];
            while receiver.read(&mut buffer).is_ok_and(|read| 0 < read) {}
        });
        let source = thread::spawn({
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            move || {
                let block = vec![0; BLOCK_BYTES];
                while !stop.load(Ordering::Relaxed) {
                    // What does not fit in a tick is tried again.
                    let written = sender.write(&block).unwrap_or(0);
                    sent.fetch_add(written as u64, Ordering::Relaxed);
                }
            }
        });
        let competitor = Self { stop, threads: vec![source, sink] };
        let began = Instant::now();
        while began.elapsed() < HEAD_START {
            thread::sleep(TICK);
        }
        if sent.load(Ordering::Relaxed) == 0 {
            bail!("the competing flow does not flow");
        }
        Ok(competitor)
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Long enough that slow start is over, and the competing flow has met its first losses.
const HEAD_START: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(100);
const BLOCK_BYTES: usize = 64 * 1024;
/// More than iperf3 needs to begin and to end.
const GRACE_S: u32 = 20;

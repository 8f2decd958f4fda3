//! One network with a station, perhaps a competing flow, and what is measured on it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use barograph_probe::io::{Context, Limits, stream};
use barograph_probe::{StreamPlan, Streamed};
use barograph_sim::Network;

use super::grid::Cell;
use crate::emulation::Responder;
use crate::iperf;
use crate::jobs::Task;

/// A network of a cell.
pub(crate) struct Bench {
    cell: Cell,
    // Declared before the network: what runs in the hosts ends before they go.
    _competitor: Option<Competitor>,
    station: Responder,
    network: Network,
}

impl Bench {
    pub(crate) fn new(cell: Cell, seed: u64) -> anyhow::Result<Self> {
        let network = Network::new(cell.link(seed))?;
        let limits = Limits { transfer_bytes_max: BYTES_MAX, ..Limits::default() };
        let station = Responder::start(&network.b, limits)?;
        let competitor = cell.has_competitor.then(|| Competitor::start(&network)).transpose()?;
        Ok(Self { cell, _competitor: competitor, station, network })
    }

    /// A stream of ours.
    pub(crate) fn stream(&self, plan: StreamPlan) -> anyhow::Result<Streamed> {
        let target = self.station.target()?;
        let plan = StreamPlan { congestion: Some(self.cell.congestion.to_owned()), ..plan };
        Ok(self.network.a.run(|| stream(&target, &plan, &Context::default()))??)
    }

    /// What iperf3's receiver saw in `seconds`, in bit/s.
    pub(crate) fn iperf3(&self, seconds: u32) -> anyhow::Result<f64> {
        let options = ["-t", &seconds.to_string(), "-C", self.cell.congestion];
        let report = iperf::measured(&self.network, u64::from(seconds) + iperf::GRACE_S, &options)?;
        report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 tells no rate")
    }

    /// The largest share of a core that the emulator used; none where the kernel carries the link.
    pub(crate) fn cpu_peak(&self) -> Option<f64> {
        self.network.report().map(|report| report.cpu_peak)
    }

    /// Why what was measured here is no evidence, if so.
    pub(crate) fn void(&self) -> Option<String> {
        crate::emulation::void(&self.network)
    }
}

/// A cubic flow that has had the path for itself for a while.
struct Competitor {
    _source: Task<()>,
}

impl Competitor {
    fn start(network: &Network) -> anyhow::Result<Self> {
        let listener = network.b.run(|| TcpListener::bind((network.b.v4(), 0)))??;
        let to = listener.local_addr()?;
        let mut sender = network.a.run(|| TcpStream::connect_timeout(&to, TICK * 50))??;
        let (mut receiver, _) = listener.accept()?;
        socket2::SockRef::from(&sender).set_tcp_congestion(b"cubic")?;
        sender.set_write_timeout(Some(TICK))?;
        // Ends with the connection.
        thread::spawn(move || {
            let mut buffer = vec![0; BLOCK_BYTES];
            while receiver.read(&mut buffer).is_ok_and(|read| 0 < read) {}
        });
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let source = Task::start(move |stop| {
            let block = vec![0; BLOCK_BYTES];
            while !stop.load(Ordering::Relaxed) {
                // What does not fit in a tick is tried again.
                let written = sender.write(&block).unwrap_or(0);
                count.fetch_add(written as u64, Ordering::Relaxed);
            }
        });
        thread::sleep(HEAD_START);
        if sent.load(Ordering::Relaxed) == 0 {
            bail!("the competing flow does not flow");
        }
        Ok(Self { _source: source })
    }
}

/// Long enough that slow start is over, and the competing flow has met its first losses.
const HEAD_START: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(100);
const BLOCK_BYTES: usize = 64 * 1024;
/// Ten seconds at 1.7 Gbit/s, so that time ends every long test.
pub(crate) const BYTES_MAX: u64 = 2 << 30;

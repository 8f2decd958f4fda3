//! Cells of the grid: all of them, or a subset that covers all pairs of levels. A testbed is one
//! cell as an emulated network with a station.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use barograph_probe::io::{ProbeContext, ResponderLimits, stream};
use barograph_probe::{StreamPlan, StreamResult};
use barograph_sim::{Link, LinkSpec, Network, PacketLoss, Queue};

use crate::emulation::Responder;
use crate::iperf;
use crate::jobs::Task;

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Cell {
    pub(crate) rate_mbit_s: u64,
    /// `None` is the kernel's own link, without delay or loss.
    pub(crate) rtt_ms: Option<u64>,
    pub(crate) congestion: &'static str,
    pub(crate) loss: f64,
    pub(crate) has_competitor: bool,
}

impl Cell {
    pub(crate) fn name(&self) -> String {
        let Self { rate_mbit_s, congestion, loss, .. } = self;
        let rtt = self.rtt_ms.map_or_else(|| "native".to_owned(), |ms| format!("{ms} ms"));
        let competitor = if self.has_competitor { ", competing" } else { "" };
        let lossy = if *loss > 0.0 { format!(", {} % loss", loss * 100.0) } else { String::new() };
        format!("{rate_mbit_s} Mbit/s, {rtt}, {congestion}{lossy}{competitor}")
    }

    /// The queue holds one bandwidth–delay product, but at least 10 ms: real links have no shorter
    /// queues, and one of 1 ms would drop packets of a sender's own bursts. Losses occur in the
    /// direction of the data only.
    pub(crate) fn link(&self, seed: u64) -> Link {
        let rate_bps = self.rate_mbit_s * 1_000_000;
        let Some(rtt_ms) = self.rtt_ms else { return Link::Veth { rate_bps: Some(rate_bps) } };
        let queue_ms = rtt_ms.max(QUEUE_MS_MIN);
        let back = LinkSpec {
            delay: Duration::from_micros(rtt_ms * 500),
            rate_bps: Some(rate_bps),
            queue: Queue::Bytes(rate_bps / 8 * queue_ms / 1000),
            seed: !seed,
            ..LinkSpec::default()
        };
        let loss = if self.loss > 0.0 { PacketLoss::Independent(self.loss) } else { PacketLoss::None };
        let forward = LinkSpec { loss, seed, ..back.clone() };
        Link::Relay { forward, back, options: Default::default() }
    }

    fn levels(&self) -> [u64; 5] {
        let rtt = self.rtt_ms.unwrap_or(0);
        let congestion = u64::from(self.congestion == CONGESTION[0]);
        [self.rate_mbit_s, rtt, congestion, u64::from(self.loss > 0.0), u64::from(self.has_competitor)]
    }

    /// All pairs of levels of different factors in this cell.
    fn pairs(&self) -> impl Iterator<Item = Pair> {
        let levels = self.levels();
        (0..levels.len()).flat_map(move |a| (0..a).map(move |b| (a, levels[a], b, levels[b])))
    }
}

/// Two factors, each with its level.
type Pair = (usize, u64, usize, u64);

/// All cells: emulated paths up to 300 Mbit/s; 1 Gbit/s only on the kernel's own link, because no
/// relay carries it.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for congestion in CONGESTION {
        for has_competitor in [false, true] {
            for (rate_mbit_s, rtt_ms) in RATES.iter().flat_map(|rate| RTTS_MS.map(|rtt| (*rate, rtt))) {
                for loss in LOSSES {
                    let rtt_ms = Some(rtt_ms);
                    cells.push(Cell { rate_mbit_s, rtt_ms, congestion, loss, has_competitor });
                }
            }
            let rtt_ms = None;
            cells.push(Cell { rate_mbit_s: NATIVE_RATE, rtt_ms, congestion, loss: 0.0, has_competitor });
        }
    }
    cells
}

/// Chooses [`COVERING`] cells. Each next cell is the one with the most pairs that were met least;
/// `seed` decides between equals.
pub(crate) fn covering(seed: u64) -> Vec<Cell> {
    let mut left = all();
    let mut met: BTreeMap<Pair, u32> = BTreeMap::new();
    let mut chosen = Vec::new();
    while chosen.len() < COVERING && !left.is_empty() {
        // Each time a pair is met, its weight falls to a sixteenth, so that one new pair outweighs
        // all ten of a cell that were met before.
        let worth = |cell: &Cell| -> f64 {
            cell.pairs().map(|pair| 0.0625f64.powi(met.get(&pair).copied().unwrap_or(0) as i32)).sum()
        };
        let tie =
            |index: usize| (index as u64 ^ seed << 32).wrapping_mul(MIX).rotate_left(31).wrapping_mul(MIX);
        let best = (0..left.len())
            .max_by(|a, b| worth(&left[*a]).total_cmp(&worth(&left[*b])).then(tie(*a).cmp(&tie(*b))));
        let Some(best) = best else { break };
        let cell = left.remove(best);
        for pair in cell.pairs() {
            *met.entry(pair).or_default() += 1;
        }
        chosen.push(cell);
    }
    chosen
}

const RATES: [u64; 4] = [10, 50, 100, 300];
const NATIVE_RATE: u64 = 1000;
const RTTS_MS: [u64; 3] = [1, 20, 100];
const CONGESTION: [&str; 2] = ["cubic", "bbr"];
const LOSSES: [f64; 2] = [0.0, 0.001];
const QUEUE_MS_MIN: u64 = 10;
/// 2⁶⁴ divided by the golden ratio, as in SplitMix64: an odd number that spreads small ones.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// As many as fit in 35 minutes.
const COVERING: usize = 24;

pub(crate) struct CellTestbed {
    cell: Cell,
    // Fields are dropped in this order: the programs in the hosts end before the network.
    _competitor: Option<Competitor>,
    station: Responder,
    network: Network,
}

impl CellTestbed {
    pub(crate) fn new(cell: Cell, seed: u64) -> anyhow::Result<Self> {
        let network = Network::new(cell.link(seed))?;
        let limits = ResponderLimits { transfer_bytes_max: BYTES_MAX, ..ResponderLimits::default() };
        let station = Responder::start(&network.b, limits)?;
        let competitor = cell.has_competitor.then(|| Competitor::start(&network)).transpose()?;
        Ok(Self { cell, _competitor: competitor, station, network })
    }

    pub(crate) fn stream(&self, plan: StreamPlan) -> anyhow::Result<StreamResult> {
        let target = self.station.target()?;
        let plan = StreamPlan { congestion: Some(self.cell.congestion.to_owned()), ..plan };
        Ok(self.network.a.run(|| stream(&target, &plan, &ProbeContext::default()))??)
    }

    /// Rate (bit/s) that iperf3's receiver measures in `seconds`.
    pub(crate) fn iperf3(&self, seconds: u32) -> anyhow::Result<f64> {
        let options = ["-t", &seconds.to_string(), "-C", self.cell.congestion];
        let report = iperf::measured(&self.network, u64::from(seconds) + iperf::GRACE_S, &options)?;
        report["end"]["sum_received"]["bits_per_second"].as_f64().context("iperf3 reports no rate")
    }

    /// Largest share of a core that the emulator used; `None` if the kernel carries the link.
    pub(crate) fn cpu_peak(&self) -> Option<f64> {
        self.network.report().map(|report| report.cpu_peak)
    }

    pub(crate) fn invalid_reason(&self) -> Option<String> {
        crate::emulation::invalid_reason(&self.network)
    }
}

/// A cubic flow that starts some time before the test and competes with it.
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
        // This thread ends with the connection.
        thread::spawn(move || {
            let mut buffer = vec![0; BLOCK_BYTES];
            while receiver.read(&mut buffer).is_ok_and(|read| read > 0) {}
        });
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let source = Task::start(move |stop| {
            let block = vec![0; BLOCK_BYTES];
            while !stop.load(Ordering::Relaxed) {
                // Bytes that do not fit within a tick are sent in the next one.
                let written = sender.write(&block).unwrap_or(0);
                count.fetch_add(written as u64, Ordering::Relaxed);
            }
        });
        thread::sleep(HEAD_START);
        if sent.load(Ordering::Relaxed) == 0 {
            bail!("the competing flow sent no bytes");
        }
        Ok(Self { _source: source })
    }
}

/// Long enough for slow start and the first losses of the competing flow.
const HEAD_START: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(100);
const BLOCK_BYTES: usize = 64 * 1024;
/// Ten seconds at 1.7 Gbit/s, so that time ends every long test.
pub(crate) const BYTES_MAX: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_pair_of_levels_occurs_in_the_chosen_cells() {
        let pairs = |cells: &[Cell]| cells.iter().flat_map(Cell::pairs).collect::<BTreeSet<_>>();
        assert_eq!(all().len(), 100);
        for seed in 0..20 {
            let chosen = covering(seed);
            assert_eq!(chosen.len(), COVERING);
            assert_eq!(pairs(&chosen), pairs(&all()), "{seed}");
        }
        assert_ne!(covering(1), covering(2));
    }
}

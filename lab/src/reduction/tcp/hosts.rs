//! Two hosts in which tasks run: network namespaces with a bottleneck between them, or this one alone.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use barograph_sim::{Host, Link, LinkSpec, Loss, Network, Queue, RelayOptions};
use tokio::runtime::{Builder, Handle, Runtime};

/// Runtimes for the nodes. Sockets stay in the namespace of the thread that makes them, so each host has
/// threads of its own.
pub(crate) struct Hosts {
    // Declared first, so dropped first: tasks end before their network goes.
    runtimes: Vec<Runtime>,
    addresses: Vec<IpAddr>,
    network: Option<Network>,
}

impl Hosts {
    /// The two hosts of a network.
    pub(crate) fn joined(network: Network) -> anyhow::Result<Self> {
        let hosts = [&network.a, &network.b];
        for host in hosts {
            // What most of TCP did in the paper's days, and no connection that starts with what another
            // strategy's have learnt.
            set(host, "tcp_congestion_control", CONGESTION_CONTROL)?;
            set(host, "tcp_no_metrics_save", "1")?;
        }
        // Threads that a runtime starts are where the thread was that made it.
        let runtimes = hosts.map(|host| host.run(runtime));
        let runtimes = runtimes.into_iter().map(|made| Ok(made??)).collect::<anyhow::Result<_>>()?;
        let addresses = hosts.map(|host| host.v4().into()).to_vec();
        Ok(Self { runtimes, addresses, network: Some(network) })
    }

    /// This host alone, without a network.
    #[cfg(test)]
    pub(crate) fn loopback() -> anyhow::Result<Self> {
        Ok(Self {
            runtimes: vec![runtime()?],
            addresses: vec![std::net::Ipv4Addr::LOCALHOST.into()],
            network: None,
        })
    }

    /// Where a node runs: levels of the tree take turns, so that every message goes through the bottleneck.
    pub(crate) fn of_node(&self, node: usize) -> (&Handle, IpAddr) {
        self.of_side((node + 1).ilog2() as usize)
    }

    /// One of the two hosts.
    pub(crate) fn of_side(&self, side: usize) -> (&Handle, IpAddr) {
        let index = side % self.runtimes.len();
        (self.runtimes[index].handle(), self.addresses[index])
    }

    /// The network between them, if there is one.
    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
}

/// Changes a setting of TCP in one host alone.
fn set(host: &Host, setting: &str, value: &str) -> anyhow::Result<()> {
    let path = format!("/proc/sys/net/ipv4/{setting}");
    host.run(|| std::fs::write(&path, value))?.with_context(|| format!("cannot write {path}"))
}

/// The bottleneck.
pub(crate) fn bottleneck(seed: u64) -> Link {
    let spec = LinkSpec {
        delay: DELAY,
        rate_bps: Some(RATE_BPS),
        queue: Queue::Bdp(QUEUE_BDP),
        loss: LOSS,
        seed,
        ..LinkSpec::default()
    };
    // A fifth of the delay, as the emulator's own default is of the shortest path that it is used for.
    Link::symmetric_with(spec, RelayOptions { late: DELAY / 5, ..RelayOptions::default() })
}

/// What is said of the bottleneck in the report.
pub(crate) fn about() -> String {
    format!(
        "{} Mbit/s and {} ms each way with a queue of {} ms, losses in bursts ({:.1} % of the packets), {}",
        RATE_BPS / 1_000_000,
        DELAY.as_millis(),
        (2.0 * QUEUE_BDP * DELAY.as_secs_f64() * 1000.0).round(),
        100.0 * LOSS.mean(),
        CONGESTION_CONTROL
    )
}

/// A continent's width, one way. A message then takes some 0.1 s, a fifth of the paper's; so is the least
/// retransmission timeout of today's TCP (0.2 s) of that of the paper's days (1 s, RFC 2988 §2.4).
const DELAY: Duration = Duration::from_millis(15);

/// What a relay carries beside everything else on two processors; sixteen leaves that send at once take
/// 0.2 s.
pub(crate) const RATE_BPS: u64 = 40_000_000;

/// Room for the first windows of sixteen leaves.
const QUEUE_BDP: f64 = 4.0;

/// Now and then a path loses most of what it is given for some hundreds of packets: whole windows go, and
/// retransmissions with them, so that TCP falls back to its timer, and doubles it. How often and how long was
/// chosen by messages that are never cut off alone, so that the longest take as many medians as those of the
/// simulated P1; the report has both tails.
const LOSS: Loss = Loss::Bursts { enter: 0.00015, leave: 0.003, good_loss: 0.0005, bad_loss: 0.7 };

const CONGESTION_CONTROL: &str = "reno";

//! Two hosts in which tasks run: network namespaces with a bottleneck between them, or this one alone.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use barograph_sim::{Chance, Host, Link, LinkSpec, Loss, Network, Queue, RelayOptions};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::emulation::{Traffic, forget_connections, set_tcp};

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
            // What most of TCP did in the paper's days.
            set_tcp(host, "tcp_congestion_control", CONGESTION_CONTROL)?;
        }
        forget_connections(&network)?;
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
        let index = (node + 1).ilog2() as usize % self.runtimes.len();
        (self.runtimes[index].handle(), self.addresses[index])
    }

    /// Background traffic from both hosts to the other, where there is a network: [`QUIET`] of the bottleneck's rate, and
    /// [`LOUD`] of it in spells.
    pub(crate) fn start_traffic(&self, seed: u64) -> anyhow::Result<Vec<Traffic>> {
        let hosts = self.network.as_ref().map(|network| [[&network.a, &network.b], [&network.b, &network.a]]);
        let start = |(side, hosts): (usize, [&Host; 2])| {
            let mut draws = Chance::new(seed, side as u64);
            let (mut loud, mut until) = (false, Duration::ZERO);
            Traffic::start(hosts, move |now| {
                if until <= now {
                    loud = !loud;
                    until =
                        now + Duration::from_secs_f64(draws.exponential(if loud { LOUD_S } else { QUIET_S }));
                }
                RATE_BPS as f64 * if loud { LOUD } else { QUIET }
            })
        };
        hosts.into_iter().flatten().enumerate().map(start).collect()
    }

    /// The network between them, if there is one.
    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).enable_all().build()
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
const RATE_BPS: u64 = 40_000_000;

/// Room for the first windows of sixteen leaves.
const QUEUE_BDP: f64 = 4.0;

/// Now and then a path loses most of what it is given for some hundreds of packets: whole windows go, and
/// retransmissions with them, so that TCP falls back to its timer, and doubles it. How often and how long was
/// chosen by messages that are never cut off alone, so that the longest take as many medians as those of the
/// simulated P1; the report has both tails.
const LOSS: Loss = Loss::Bursts { enter: 0.00015, leave: 0.003, good_loss: 0.0005, bad_loss: 0.7 };

const CONGESTION_CONTROL: &str = "reno";

/// Shares of the bottleneck's rate: a murmur that keeps its loss moving, and spells in which others leave
/// the messages a third.
const QUIET: f64 = 0.05;
const LOUD: f64 = 0.65;

/// Mean lengths, exponential: a fifth of the time is loud, for about as long as a reduction takes.
const QUIET_S: f64 = 4.0;
const LOUD_S: f64 = 1.0;

//! Five hosts, each behind a link of its own, and the host that asks.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use barograph_sim::{Host, Link, LinkChange, LinkSpec, Network, Queue, RelayOptions, SeededRng};

use crate::emulation::{invalid_reason, set_tcp};
use crate::jobs::Task;

/// The asking host and five others around a router. Rates and delays vary until this is dropped.
pub(super) struct Hosts {
    // This field is first, so that the links stop changing before they are removed.
    _variation: Task<()>,
    pub(super) links: Arc<Vec<HostLink>>,
    core: Network,
}

/// A host and its link.
pub(super) struct HostLink {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    pub(super) shape: LinkShape,
    network: Network,
    state: Mutex<LinkState>,
}

/// Usual properties of a link, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinkShape {
    /// Usual rate in bit/s.
    pub(super) rate_bps: f64,
    pub(super) rtt: Duration,
}

/// Present factors of a link's rate and delay.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LinkState {
    rate: f64,
    delay: f64,
    has_fallen: bool,
}

impl Hosts {
    /// Makes the hosts and their links, which vary with this seed.
    pub(super) fn new(seed: u64) -> anyhow::Result<Self> {
        let core = Network::new(Link::Veth { rate_bps: None }).context("this study emulates a network")?;
        let (asker, router) = (&core.a, &core.b);
        // The flush removes the IPv6 addresses, which the other hosts cannot reach.
        asker.configure(&format!(
            "addr flush dev {DEVICE}\n\
                 addr add {ASKER}/24 dev {DEVICE}\n\
                 route add default via {ROUTER}\n"
        ))?;
        router.configure(&format!("addr flush dev {DEVICE}\naddr add {ROUTER}/24 dev {DEVICE}\n"))?;
        set_tcp(router, "ip_forward", "1")?;
        prepare(asker)?;
        let links = SHAPES.iter().enumerate().map(|(index, (rate_bps, rtt_ms))| {
            let shape = LinkShape { rate_bps: *rate_bps, rtt: Duration::from_millis(*rtt_ms) };
            HostLink::new(index, shape, router, seed)
        });
        let links = Arc::new(links.collect::<anyhow::Result<Vec<_>>>()?);
        let mut variations: Vec<_> = (0..).map(|link| variation(seed, link)).take(links.len()).collect();
        let varied = Arc::clone(&links);
        let variation = Task::start(move |stop| {
            while !stop.load(Ordering::Relaxed) {
                for (link, [rate, delay]) in varied.iter().zip(&mut variations) {
                    let (rate, delay) = (rate.step(), delay.step());
                    link.update(|state| (state.rate, state.delay) = (rate, delay));
                }
                thread::sleep(STEP);
            }
        });
        Ok(Self { _variation: variation, links, core })
    }

    pub(super) fn asker(&self) -> &Host {
        &self.core.a
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.links.iter().map(|link| link.name.as_str()).collect()
    }

    /// Why measurements are void, for each link with a reason.
    pub(super) fn doubts(&self) -> Vec<String> {
        let doubt = |link: &HostLink| Some(format!("{}: {}", link.name, invalid_reason(&link.network)?));
        self.links.iter().filter_map(doubt).collect()
    }
}

impl HostLink {
    fn new(index: usize, shape: LinkShape, router: &Host, seed: u64) -> anyhow::Result<Self> {
        let LinkShape { rate_bps, rtt } = shape;
        let queue_bytes = rate_bps / 8.0 * rtt.max(QUEUE_MIN).as_secs_f64();
        let spec = LinkSpec {
            rate_bps: Some(rate_bps as u64),
            delay: rtt / 2,
            queue: Queue::Bytes(queue_bytes as u64),
            seed: seed + index as u64,
            ..LinkSpec::default()
        };
        let options = RelayOptions { offload: true, ..RelayOptions::default() };
        let network = Network::new(Link::symmetric_with(spec, options))?;
        let number = index as u8 + 1;
        let address = Ipv4Addr::new(203, 0, 113, number);
        connect(&network, router, number, address)?;
        prepare(&network.b)?;
        let state = Mutex::new(LinkState { rate: 1.0, delay: 1.0, has_fallen: false });
        Ok(Self { name: format!("host{number}"), address, shape, network, state })
    }

    pub(super) fn host(&self) -> &Host {
        &self.network.b
    }

    /// Lets the rate fall to [`FALLEN`] of the usual one, or rise again.
    pub(super) fn set_fallen(&self, has_fallen: bool) {
        self.update(|state| state.has_fallen = has_fallen);
    }

    /// The rate now (bit/s).
    pub(super) fn rate_bps(&self) -> f64 {
        let state = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.shape.at(state).rate_bps as f64
    }

    fn update(&self, change: impl FnOnce(&mut LinkState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let change = self.shape.at(*state);
        self.network.change(change, change).expect("all factors keep rates and delays in range");
    }
}

impl LinkShape {
    fn at(&self, state: LinkState) -> LinkChange {
        let share = if state.has_fallen { FALLEN } else { 1.0 };
        LinkChange {
            rate_bps: (self.rate_bps * state.rate * share).round() as u64,
            delay: (self.rtt / 2).mul_f64(state.delay),
        }
    }
}

/// A factor that varies around 1: its logarithm is a Gaussian process with correlation 1/e after
/// [`MEMORY`].
struct Variation {
    rng: SeededRng,
    deviation: f64,
    state: f64,
}

impl Variation {
    fn new(seed: u64, stream: u64, deviation: f64) -> Self {
        let mut rng = SeededRng::new(seed, stream);
        let state = rng.normal();
        Self { rng, deviation, state }
    }

    /// The factor one [`STEP`] later.
    fn step(&mut self) -> f64 {
        let kept = (-STEP.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.state = kept * self.state + (1.0 - kept * kept).sqrt() * self.rng.normal();
        (self.deviation * self.state.clamp(-STATE_MAX, STATE_MAX)).exp()
    }
}

/// Variations of the rate and of the delay of a link.
fn variation(seed: u64, link: u64) -> [Variation; 2] {
    [Variation::new(seed, 2 * link, RATE_DEVIATION), Variation::new(seed, 2 * link + 1, DELAY_DEVIATION)]
}

/// Connects the near end of a link with the router, and gives its host an address.
fn connect(network: &Network, router: &Host, number: u8, address: Ipv4Addr) -> anyhow::Result<()> {
    let (near, host) = (&network.a, &network.b);
    let [gateway, up] = [1, 2].map(|end| Ipv4Addr::new(198, 51, 100, 4 * number + end));
    let peer = router.name();
    // All networks of the emulator have the same addresses, so they are replaced.
    near.configure(&format!(
        "addr flush dev {DEVICE}\n\
             link add up0 type veth peer name port{number} netns {peer}\n\
             addr add {up}/30 dev up0\n\
             link set up0 up\n\
             route add {address}/32 dev {DEVICE}\n\
             route add default via {gateway} dev up0\n"
    ))?;
    router.configure(&format!(
        "addr add {gateway}/30 dev port{number}\n\
             link set port{number} up\n\
             route add {address}/32 via {up}\n"
    ))?;
    host.configure(&format!(
        "addr flush dev {DEVICE}\n\
             addr add {address}/32 dev {DEVICE}\n\
             route add default dev {DEVICE}\n"
    ))?;
    set_tcp(near, "ip_forward", "1")
}

/// Settings of TCP at a host that sends or receives.
fn prepare(host: &Host) -> anyhow::Result<()> {
    // Each connection begins without what an earlier one learned.
    set_tcp(host, "tcp_no_metrics_save", "1")?;
    // The defaults of 4 and 6 MiB, of which a window is only a part, limit the longest path.
    set_tcp(host, "tcp_wmem", "4096 16384 33554432")?;
    set_tcp(host, "tcp_rmem", "4096 131072 33554432")
}

/// Addresses reserved for documentation (RFC 5737), as the hosts' and the links'.
pub(super) const ASKER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Device of every host that the emulator makes.
const DEVICE: &str = "link0";

/// Usual rate (bit/s) and round-trip time (ms) of each host. The faster a link, the longer it is:
/// the nearest host is best for 10 kB, the farthest one for 100 MB, and for 10 MB all are close.
/// 100 MB to the slowest host take 14 s.
const SHAPES: [(f64, u64); 5] = [(60e6, 10), (80e6, 25), (110e6, 50), (150e6, 90), (200e6, 160)];

/// Share of the usual rate that is left after a fall.
pub(super) const FALLEN: f64 = 0.1;

/// Queues hold a round trip, and at least 50 ms: segments of 64 KiB must fit.
const QUEUE_MIN: Duration = Duration::from_millis(50);

/// Standard deviation of the logarithm of the rate, and of the delay: another flow now and then,
/// and short queues elsewhere on the path.
pub(super) const RATE_DEVIATION: f64 = 0.15;
pub(super) const DELAY_DEVIATION: f64 = 0.03;

/// Tests of the warm-up reach a host every 12 s, so their rates must differ by then. The longest
/// transfers average over about one such time.
pub(super) const MEMORY: Duration = Duration::from_secs(12);

/// A twelfth of the memory, so that the factor changes by a few percent at once.
const STEP: Duration = Duration::from_secs(1);

/// Limit of the state in standard deviations, so that rates and times have a range.
const STATE_MAX: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{mean, population_deviation, range};

    #[test]
    fn rates_vary_around_the_usual_one_and_depend_on_the_seed_only() {
        let factors = |seed| -> Vec<f64> {
            let mut variation = Variation::new(seed, 0, RATE_DEVIATION);
            (0..20_000).map(|_| variation.step()).collect()
        };
        let all = factors(1);
        assert_eq!(all, factors(1));
        assert_ne!(all[0], factors(2)[0]);
        let logarithms: Vec<f64> = all.iter().map(|factor| factor.ln()).collect();
        assert!(mean(&logarithms).abs() < 0.02, "{}", mean(&logarithms));
        assert!((population_deviation(&logarithms) / RATE_DEVIATION - 1.0).abs() < 0.1);
        let (low, high) = range(all.into_iter());
        assert!(0.6 < low && high < 1.6, "{low} to {high}");
    }

    #[test]
    fn a_fall_leaves_a_tenth_of_the_rate_and_the_delay() {
        let shape = LinkShape { rate_bps: 50e6, rtt: Duration::from_millis(20) };
        let state = LinkState { rate: 1.2, delay: 0.5, has_fallen: false };
        let delay = Duration::from_millis(5);
        assert_eq!(shape.at(state), LinkChange { rate_bps: 60_000_000, delay });
        let fallen = LinkState { has_fallen: true, ..state };
        assert_eq!(shape.at(fallen), LinkChange { rate_bps: 6_000_000, delay });
    }
}

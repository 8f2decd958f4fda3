//! Two hosts and the link between them, set up by `new` and torn down by `drop`.

use crate::{
    Error, LinkSpec, Model, Report,
    namespace::{Namespace, system},
    relay::Relay,
    tun,
};
use std::{
    fmt::Write,
    net::{Ipv4Addr, Ipv6Addr},
    process::Command,
    time::Duration,
};

/// Host A's addresses. Each network is alone in its namespaces, so all networks use the same addresses,
/// those reserved for documentation (RFC 5737 §3, RFC 3849 §2).
pub const A_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Host A's IPv6 address.
pub const A_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Host B's IPv4 address.
pub const B_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Host B's IPv6 address.
pub const B_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// What joins the hosts.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a link is described once a run, and never kept in numbers")]
pub enum Link {
    /// A relay in user space, for everything that a [`LinkSpec`] can say. It carries some 200 Mbit/s of full
    /// packets in a release build, half of that in a debug build.
    Relay {
        /// From A to B.
        forward: LinkSpec,
        /// From B to A.
        back: LinkSpec,
        /// How the relay works.
        options: RelayOptions,
    },
    /// The kernel's own `veth` pair without delay or loss, for rates that a relay cannot carry.
    Veth {
        /// Rate in bit/s of each direction, held by a `tbf` with 50 ms of queue; `None` is unshaped.
        rate_bps: Option<u64>,
    },
}

/// How the relay works.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// A packet that leaves later than this behind its time is counted as late; when more than 1 % are, the
    /// run is void. Default 1 ms: a fifth of the shortest path that the experiments emulate.
    pub late: Duration,
    /// How long before a departure the relay stops sleeping and spins. Default zero; 50 µs gives a precision
    /// of some microseconds for up to a whole core.
    pub spin: Duration,
    /// Whether the relay asks for real-time scheduling (`SCHED_FIFO`), so that what is measured cannot
    /// starve it. Default true; without the right to it the relay goes on without.
    pub realtime: bool,
}

/// Two hosts joined by a link. Dropping it, also in a panic, removes both with all that runs in them.
#[derive(Debug)]
pub struct Network {
    // Declared first, so dropped first: the devices close before their namespaces go.
    relay: Option<Relay>,
    /// The host with [`A_V4`] and [`A_V6`].
    pub a: Host,
    /// The host with [`B_V4`] and [`B_V6`].
    pub b: Host,
}

/// A network namespace that acts as a host.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Link {
    /// A relay that treats both directions alike, with the default options. The seed of the way back is
    /// derived from the seed of the way there, so that the two are independent.
    pub fn symmetric(spec: LinkSpec) -> Self {
        Self::symmetric_with(spec, RelayOptions::default())
    }

    /// As [`symmetric`](Self::symmetric), with other options.
    pub fn symmetric_with(spec: LinkSpec, options: RelayOptions) -> Self {
        let back = LinkSpec { seed: spec.seed ^ BACK_SEED, ..spec.clone() };
        Self::Relay { forward: spec, back, options }
    }
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self { late: Duration::from_millis(1), spin: Duration::ZERO, realtime: true }
    }
}

impl Network {
    /// Makes both hosts and the link; when it returns, packets flow. Leftovers of killed processes are
    /// removed on the way.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without root (see [`network_or_skip!`](crate::network_or_skip)),
    /// [`Error::BadSpec`] for a link that cannot be, and [`Error::Command`] or [`Error::Io`] when the system
    /// fails; nothing is left behind then.
    pub fn new(link: Link) -> Result<Self, Error> {
        match link {
            Link::Relay { forward, back, options } => {
                let models = [Model::new(forward)?, Model::new(back)?];
                let [a, b] = Host::pair()?;
                let tuns = [a.open_tun()?, b.open_tun()?];
                a.bring_up()?;
                b.bring_up()?;
                let relay = Relay::start(tuns, models, options)?;
                Ok(Self { relay: Some(relay), a, b })
            }
            Link::Veth { rate_bps } => {
                let [a, b] = Host::pair()?;
                let peer = b.namespace.name();
                a.namespace
                    .configure(&format!("link add {DEVICE} type veth peer name {DEVICE} netns {peer}\n"))?;
                for host in [&a, &b] {
                    host.bring_up()?;
                    rate_bps.map_or(Ok(()), |rate| host.shape(rate))?;
                }
                Ok(Self { relay: None, a, b })
            }
        }
    }

    /// What the relay did and cost since it started; `None` for a link that the kernel carries.
    pub fn report(&self) -> Option<Report> {
        let mut report = self.relay.as_ref()?.report();
        report.device_drops = self.a.device_drops() + self.b.device_drops();
        Some(report)
    }
}

impl Host {
    /// The host's IPv4 address.
    pub fn v4(&self) -> Ipv4Addr {
        self.v4
    }

    /// The host's IPv6 address.
    pub fn v6(&self) -> Ipv6Addr {
        self.v6
    }

    /// The name of its namespace, for `ip netns exec`.
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Runs `work` on a fresh thread inside the host and returns its result. A socket that it makes stays in
    /// this host, whichever thread uses it later; threads that it starts are inside, too.
    ///
    /// # Errors
    /// [`Error::Io`] when the namespace cannot be entered.
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.namespace.run(work)
    }

    /// A command that will run `program` inside the host. What still runs there when the network is dropped
    /// is killed.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(), program]);
        command
    }

    fn pair() -> Result<[Self; 2], Error> {
        let [a, b] = Namespace::pair()?;
        Ok([Self { namespace: a, v4: A_V4, v6: A_V6 }, Self { namespace: b, v4: B_V4, v6: B_V6 }])
    }

    fn open_tun(&self) -> Result<std::fs::File, Error> {
        self.run(|| tun::open(DEVICE))?
    }

    fn bring_up(&self) -> Result<(), Error> {
        let mut lines = String::from("link set lo up\n");
        let Self { v4, v6, .. } = self;
        // Writing to a string cannot fail. Without `nodad` the address would first be tried for a second.
        let _ = writeln!(lines, "addr add {v4}/24 dev {DEVICE}");
        let _ = writeln!(lines, "addr add {v6}/64 dev {DEVICE} nodad");
        let _ = writeln!(lines, "link set {DEVICE} mtu {MTU} txqueuelen {DEVICE_QUEUE} up");
        self.namespace.configure(&lines)
    }

    fn shape(&self, rate_bps: u64) -> Result<(), Error> {
        let (rate, burst) = (format!("{rate_bps}bit"), format!("{}b", tbf_burst_bytes(rate_bps)));
        let namespace = self.name();
        let arguments = [
            "-n", namespace, "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", &rate, "burst", &burst,
            "latency", "50ms",
        ];
        system("tc", &arguments, "").map(drop)
    }

    /// Packets that the device dropped before the relay could read them.
    fn device_drops(&self) -> u64 {
        // The thread's own view: the process's lies outside the namespace.
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        self.run(read).map_or(0, |table| send_drops(&table, DEVICE))
    }
}

/// The packets that a device of `/proc/net/dev` dropped on sending: the twelfth column behind its name.
fn send_drops(table: &str, device: &str) -> u64 {
    let row = table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    row.and_then(|row| row.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
}

/// A `tbf` sends at most a burst a timer tick; 4 ms (250 Hz) is the longest tick in use, and 16 KB lets a
/// slow link pass some full packets.
fn tbf_burst_bytes(rate_bps: u64) -> u64 {
    (rate_bps / 8 / 250).max(16_000)
}

/// The link's device, of the same name in both hosts.
const DEVICE: &str = "link0";

/// Ethernet's; also what most paths carry.
const MTU: u32 = 1500;

/// The device's own queue in packets, so long that queueing is left to the model.
const DEVICE_QUEUE: u32 = 10_000;

/// Any constant will do: it only has to make two seeds of one.
const BACK_SEED: u64 = 0x6261_636b_6261_636b;

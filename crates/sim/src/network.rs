//! Two hosts and the link between them, created by `new` and removed by `drop`.

use crate::{
    Error, Hop, LinkChange, LinkDirection, LinkSpec, RelayReport,
    namespace::{Namespace, system},
    relay::PacketRelay,
    tun,
};
use std::{
    fmt::Write,
    net::{Ipv4Addr, Ipv6Addr},
    process::Command,
    time::Duration,
};

/// Host A's IPv4 address. Each network is alone in its namespaces, so all networks use the same
/// addresses, which are reserved for documentation (RFC 5737 §3, RFC 3849 §2).
pub const A_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Host A's IPv6 address.
pub const A_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Host B's IPv4 address.
pub const B_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Host B's IPv6 address.
pub const B_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// The link between the hosts.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a link is described once a run, and never kept in numbers")]
pub enum Link {
    /// A relay in user space, with all features of [`LinkSpec`]. The relay carries about 200 Mbit/s
    /// of full packets in a release build, and about 100 Mbit/s in a debug build.
    Relay {
        /// Direction from A to B.
        forward: LinkSpec,
        /// Direction from B to A.
        back: LinkSpec,
        /// Options of the relay.
        options: RelayOptions,
    },
    /// A `veth` pair of the kernel without delay or loss, for rates above those of the relay.
    Veth {
        /// Rate in bit/s of each direction, limited by a `tbf` with 50 ms of queue; `None` is
        /// unlimited.
        rate_bps: Option<u64>,
    },
    /// A queue of the kernel between the hosts, for rates above those of the relay.
    Switch(Switch),
}

/// A bridge in its own namespace, with a bottleneck on its port to B: `htb` for the rate, over
/// `pfifo` for the queue (tail drop). The hosts do not send segments of several packets (TSO), so
/// that the queue contains single packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Switch {
    /// Rate in bit/s towards B, counted in bytes of the Ethernet frame; `None` is no bottleneck.
    pub rate_bps: Option<u64>,
    /// Maximum number of packets waiting at the bottleneck.
    pub queue_packets: u32,
    /// Probability from 0 to 1 that a packet to B is lost, independent of other packets. The kernel
    /// draws the losses.
    pub loss: f64,
}

/// Options of the relay.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// Maximum delay of a departure after its scheduled time. A packet with a longer delay counts
    /// as late. If more than 1 % of the packets are late, the run is void. Default 1 ms: a fifth of
    /// the shortest path that the experiments emulate.
    pub late: Duration,
    /// Time before a departure at which the relay stops sleeping and spins. Default zero; 50 µs
    /// gives a precision of some microseconds and uses up to a whole core.
    pub spin: Duration,
    /// Whether the relay requests real-time scheduling (`SCHED_FIFO`), so that the measured
    /// programs cannot starve the relay. Default true; without the permission, the relay runs
    /// without real-time scheduling.
    pub realtime: bool,
    /// Queues in series that packets from A to B pass before the link. Default none.
    pub queues: Vec<Hop>,
    /// Seed of the queues with random drops.
    pub queues_seed: u64,
    /// Whether the hosts pass TCP segments of several packets at once (TSO). A segment is counted,
    /// queued and lost as one packet, and arrives as one when its last bit does. The relay then
    /// carries some hundreds of Mbit/s. Default false.
    pub offload: bool,
}

/// Two hosts joined by a link. Dropping the network, also in a panic, removes both hosts and kills
/// all processes in the hosts.
#[derive(Debug)]
pub struct Network {
    // This field is first, so it is dropped first: the devices close before their namespaces are
    // removed.
    relay: Option<PacketRelay>,
    switch: Option<Namespace>,
    /// Host with the addresses [`A_V4`] and [`A_V6`].
    pub a: Host,
    /// Host with the addresses [`B_V4`] and [`B_V6`].
    pub b: Host,
}

/// The port of a [`Switch`] to B.
#[derive(Debug, Clone)]
pub struct SwitchPort {
    switch: String,
}

/// A network namespace that acts as a host.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Link {
    /// A relay with the same parameters in both directions and the default options. The seed of the
    /// direction from B to A is derived from the seed of the direction from A to B, so that the two
    /// directions are independent.
    pub fn symmetric(spec: LinkSpec) -> Self {
        Self::symmetric_with(spec, RelayOptions::default())
    }

    /// A relay as in [`symmetric`](Self::symmetric), but with these options.
    pub fn symmetric_with(spec: LinkSpec, options: RelayOptions) -> Self {
        let back = LinkSpec { seed: spec.seed ^ BACK_SEED, ..spec.clone() };
        Self::Relay { forward: spec, back, options }
    }
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            late: Duration::from_millis(1),
            spin: Duration::ZERO,
            realtime: true,
            queues: Vec::new(),
            queues_seed: 0,
            offload: false,
        }
    }
}

impl Network {
    /// Creates both hosts and the link; packets flow when this function returns. The function also
    /// removes the leftovers of killed processes.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without root (see [`network_or_skip!`](crate::network_or_skip)),
    /// [`Error::BadSpec`] for an invalid link, and [`Error::Command`] or [`Error::Io`] if the
    /// system fails. After an error, no part of the network is left behind.
    pub fn new(link: Link) -> Result<Self, Error> {
        match link {
            Link::Relay { forward, back, options } => {
                let models = [LinkDirection::new(forward)?, LinkDirection::new(back)?];
                let [a, b] = Host::pair()?;
                let tuns = [a.open_tun(options.offload)?, b.open_tun(options.offload)?];
                a.bring_up()?;
                b.bring_up()?;
                let relay = PacketRelay::start(tuns, models, options)?;
                Ok(Self { relay: Some(relay), switch: None, a, b })
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
                Ok(Self { relay: None, switch: None, a, b })
            }
            Link::Switch(spec) => {
                let [a, b] = Host::pair()?;
                let switch = a.namespace.sibling()?;
                spec.join(&switch, &a, &b)?;
                Ok(Self { relay: None, switch: Some(switch), a, b })
            }
        }
    }

    /// The port of the switch to B; `None` for other links.
    pub fn port(&self) -> Option<SwitchPort> {
        Some(SwitchPort { switch: self.switch.as_ref()?.name().to_owned() })
    }

    /// Changes rate and delay of a relay, from A to B and from B to A, for packets that arrive from
    /// now on. Earlier packets keep their times, and a queue keeps its limit in bytes.
    ///
    /// # Errors
    /// [`Error::BadSpec`] if a value is outside its range, or if the link is in the kernel.
    pub fn change(&self, forward: LinkChange, back: LinkChange) -> Result<(), Error> {
        let changes = [forward, back];
        changes.iter().try_for_each(LinkChange::check)?;
        let Some(relay) = &self.relay else {
            let value = "in the kernel".to_owned();
            return Err(Error::BadSpec { field: "link", value, expected: "a relay" });
        };
        relay.change(changes);
        Ok(())
    }

    /// Statistics and cost of the relay since it started; `None` for a link in the kernel.
    pub fn report(&self) -> Option<RelayReport> {
        let mut report = self.relay.as_ref()?.report();
        report.device_drops = self.a.device_drops() + self.b.device_drops();
        Some(report)
    }
}

impl Network {
    /// Number of packets to B that the link has dropped so far, because the queue was full or by
    /// simulated loss. Packets that the kernel of host A sends by itself count too. If the kernel
    /// carries segments of several packets, one segment counts once.
    ///
    /// # Errors
    /// [`Error::Command`] if the kernel does not report the count.
    pub fn dropped(&self) -> Result<u64, Error> {
        if let Some(report) = self.report() {
            return Ok(report.forward.lost + report.forward.queue_full);
        }
        let namespace = self.switch.as_ref().map_or_else(|| self.a.name(), Namespace::name);
        let device = if self.switch.is_some() { TO_B } else { DEVICE };
        system("tc", &["-s", "-n", namespace, "qdisc", "show", "dev", device], "")
            .map(|text| queue_drops(&text))
    }
}

/// Sums the drops of all queues except `htb` (`tc -s qdisc`). The drops of `htb` repeat the drops
/// of the queues below it.
fn queue_drops(text: &str) -> u64 {
    let mut is_leaf = false;
    let mut drops = 0;
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("qdisc ") {
            is_leaf = !kind.starts_with("htb ");
        } else if let Some((_, told)) = line.split_once("(dropped ").filter(|_| is_leaf) {
            drops += told.split(',').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    drops
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

    /// Name of the host's namespace, for `ip netns exec`.
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Runs lines of `ip` commands inside the host, in a single process.
    ///
    /// # Errors
    /// [`Error`] if `ip` fails, or does not end in time.
    pub fn configure(&self, lines: &str) -> Result<(), Error> {
        self.namespace.configure(lines)
    }

    /// Runs `work` on a new thread inside the host and returns its result. A socket created in
    /// `work` stays in this host, whichever thread uses it later. Threads started in `work` run
    /// inside the host too.
    ///
    /// # Errors
    /// [`Error::Io`] if the namespace cannot be entered.
    ///
    /// # Panics
    /// If `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        self.namespace.run(work)
    }

    /// A command that runs `program` inside the host. Dropping the network kills the programs that
    /// still run there.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(), program]);
        command
    }

    fn pair() -> Result<[Self; 2], Error> {
        let [a, b] = Namespace::pair()?;
        Ok([Self { namespace: a, v4: A_V4, v6: A_V6 }, Self { namespace: b, v4: B_V4, v6: B_V6 }])
    }

    fn open_tun(&self, offload: bool) -> Result<std::fs::File, Error> {
        self.run(|| tun::open(DEVICE, offload))?
    }

    fn bring_up(&self) -> Result<(), Error> {
        let mut lines = String::from("link set lo up\n");
        let Self { v4, v6, .. } = self;
        // Writing to a string cannot fail. Without `nodad`, duplicate address detection would delay
        // the address by a second.
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
        // Read the file of this thread, because the file of the process is outside the namespace.
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        self.run(read).map_or(0, |table| send_drops(&table, DEVICE))
    }
}

impl SwitchPort {
    /// Opens or closes the port for packets to B; initially it is open. The function returns after
    /// some milliseconds, when the change is complete.
    ///
    /// # Errors
    /// [`Error::Command`] if the port is already in that state, or the network is gone.
    pub fn set_open(&self, is_open: bool) -> Result<(), Error> {
        let line = if is_open {
            format!("filter del dev {TO_B} parent 1: protocol all prio 1\n")
        } else {
            // A BPF program that matches every packet.
            format!(
                "filter add dev {TO_B} parent 1: protocol all prio 1 bpf bytecode \"1,6 0 0 4294967295\" flowid 1:20\n"
            )
        };
        system("tc", &["-n", &self.switch, "-batch", "-"], &line).map(drop)
    }
}

impl Switch {
    fn join(&self, switch: &Namespace, a: &Host, b: &Host) -> Result<(), Error> {
        self.check()?;
        let mut lines = String::from("link add switch type bridge\n");
        for (port, host) in [(TO_A, a), (TO_B, b)] {
            let peer = host.name();
            let _ = writeln!(lines, "link add {port} type veth peer name {DEVICE} netns {peer}");
            let _ = writeln!(lines, "link set {port} master switch up");
        }
        lines.push_str("link set switch up\n");
        switch.configure(&lines)?;
        for host in [a, b] {
            host.bring_up()?;
            // Without this setting, TCP passes segments of up to 64 KiB, which a veth pair never
            // splits.
            host.namespace.configure(&format!("link set {DEVICE} gso_max_segs 1\n"))?;
        }
        system("tc", &["-n", switch.name(), "-batch", "-"], &self.bottleneck()).map(drop)
    }

    fn check(&self) -> Result<(), Error> {
        let bad = |field, value: String, expected| Err(Error::BadSpec { field, value, expected });
        if !(0.0..=1.0).contains(&self.loss) {
            return bad("switch.loss", self.loss.to_string(), "a probability, 0 to 1");
        }
        match self.rate_bps {
            Some(rate) if !(1_000..=UNLIMITED_BPS).contains(&rate) => {
                bad("switch.rate_bps", rate.to_string(), "1e3 to 1e11 bit/s, or none")
            }
            _ if self.queue_packets == 0 => bad("switch.queue_packets", "0".into(), "1 or more"),
            _ => Ok(()),
        }
    }

    /// Lines for `tc`: a class for the bottleneck, and a class from which no packet leaves. A
    /// program of classic BPF selects the packets for the class from which no packet leaves.
    fn bottleneck(&self) -> String {
        let Self { queue_packets, loss, .. } = self;
        let rate = self.rate_bps.unwrap_or(UNLIMITED_BPS);
        let mut lines = format!(
            "qdisc add dev {TO_B} root handle 1: htb default 10\n\
             class add dev {TO_B} parent 1: classid 1:10 htb rate {rate}bit burst 3000b cburst 3000b quantum 1514\n\
             qdisc add dev {TO_B} parent 1:10 pfifo limit {queue_packets}\n\
             class add dev {TO_B} parent 1: classid 1:20 htb rate {UNLIMITED_BPS}bit quantum 1514\n\
             qdisc add dev {TO_B} parent 1:20 blackhole\n"
        );
        if *loss > 0.0 {
            // Load the ancillary random word; the packet matches if the word is below the
            // threshold.
            let threshold = (loss * 2_f64.powi(32)) as u32;
            let _ = writeln!(
                lines,
                "filter add dev {TO_B} parent 1: protocol all prio 2 bpf bytecode \
                 \"4,32 0 0 {RANDOM_WORD},53 1 0 {threshold},6 0 0 4294967295,6 0 0 0\" flowid 1:20"
            );
        }
        lines
    }
}

/// Packets that a device in `/proc/net/dev` dropped on sending: the twelfth column after the name
/// of the device.
fn send_drops(table: &str, device: &str) -> u64 {
    let row = table.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    row.and_then(|row| row.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
}

/// Burst size in bytes. A `tbf` sends at most one burst in each timer tick. 4 ms (250 Hz) is the
/// longest tick in use, and 16 KB lets a slow link pass some full packets.
fn tbf_burst_bytes(rate_bps: u64) -> u64 {
    (rate_bps / 8 / 250).max(16_000)
}

/// Name of the link's device, the same in both hosts.
const DEVICE: &str = "link0";

/// Names of the switch's ports.
const TO_A: &str = "to-a";
const TO_B: &str = "to-b";

/// A rate above that of a veth pair, in bit/s.
const UNLIMITED_BPS: u64 = 100_000_000_000;

/// Offset of a random word in classic BPF: SKF_AD_OFF + SKF_AD_RANDOM (linux/filter.h).
const RANDOM_WORD: u32 = 0xffff_f038;

/// MTU of Ethernet and of most paths, in bytes.
const MTU: u32 = 1500;

/// Queue of the device in packets, so long that only the model limits queueing.
const DEVICE_QUEUE: u32 = 10_000;

/// Constant that derives the seed of the direction from B to A. Any value is suitable.
const BACK_SEED: u64 = 0x6261_636b_6261_636b;

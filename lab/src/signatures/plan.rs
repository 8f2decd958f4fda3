//! Kinds of loss, and the design of a run, drawn from a seed; pure.

use std::fmt;
use std::str::FromStr;

use barograph_sim::{CodelParameters, Discipline, Hop, RedParameters, SeededRng};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::LARGE;
use super::cut::Label;
use crate::output::name;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Net {
    Random,
    Poisson,
    Cbr,
    Onoff,
    Tcp,
    #[value(name = "self")]
    SelfInduced,
    Incast,
    Outage,
    Red,
    Codel,
    Series,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Cpu {
    Gen,
    Preempt,
    Quota,
    Slow,
}

/// One of the network's kinds, one of the host's, or one of the network's with the paper's
/// generator at the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Net(Net),
    Cpu(Cpu),
    Hyb(Net),
}

/// Default kinds of hybrids: the paper's kinds, and incast, which has long runs of losses.
const HYBRIDS: [Net; 5] = [Net::Random, Net::Poisson, Net::Onoff, Net::Tcp, Net::Incast];

impl Kind {
    pub(crate) fn all() -> Vec<Self> {
        let net = Net::value_variants().iter().map(|net| Self::Net(*net));
        let cpu = Cpu::value_variants().iter().map(|cpu| Self::Cpu(*cpu));
        net.chain(cpu).chain(HYBRIDS.map(Self::Hyb)).collect()
    }

    pub(crate) fn net(self) -> Option<Net> {
        match self {
            Self::Net(net) | Self::Hyb(net) => Some(net),
            Self::Cpu(_) => None,
        }
    }

    pub(crate) fn cpu(self) -> Option<Cpu> {
        match self {
            Self::Net(_) => None,
            Self::Cpu(cpu) => Some(cpu),
            Self::Hyb(_) => Some(Cpu::Gen),
        }
    }

    /// Cause of the losses by design.
    pub(crate) fn class(self) -> Label {
        match self {
            Self::Net(_) => Label::Net,
            Self::Cpu(_) => Label::Cpu,
            Self::Hyb(_) => Label::Hyb,
        }
    }

    /// Whether its packets go through the relay, which carries fewer of them.
    pub(crate) fn is_relayed(self) -> bool {
        matches!(self.net(), Some(Net::Red | Net::Codel | Net::Series))
    }

    /// Share of the machine that its runs need.
    pub(crate) fn need(self) -> Need {
        match self {
            Self::Cpu(_) | Self::Hyb(_) => Need::All,
            Self::Net(Net::Tcp | Net::Red | Net::Codel | Net::Series) => Need::Much,
            Self::Net(_) => Need::Little,
        }
    }

    /// Whether single windows can lose only 8 to 50 of 100 000 packets. A quota loses hundreds in
    /// each of many periods, or nothing.
    pub(crate) fn can_be_low(self) -> bool {
        !matches!(self, Self::Hyb(_) | Self::Net(Net::Outage) | Self::Cpu(Cpu::Quota))
    }
}

/// What else can run beside a run, on two processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing else: what competes with the receiver is the cause of the losses.
    All,
    /// Runs that need little: a relay or iperf3 works beside the sender.
    Much,
    /// Other runs of the network: the kernel queues and drops the packets.
    Little,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) => f.write_str(&name(*net)),
            Self::Hyb(net) => write!(f, "hyb-{}", name(*net)),
            Self::Cpu(cpu) => f.write_str(&name(*cpu)),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let net = |name: &str| Net::from_str(name, false);
        let hybrid = |_| net(name.strip_prefix("hyb-").unwrap_or_default()).map(Self::Hyb);
        let cpu = |_| Cpu::from_str(name, false).map(Self::Cpu);
        net(name).map(Self::Net).or_else(cpu).or_else(hybrid).map_err(|_| {
            let names: Vec<String> = Self::all().iter().map(ToString::to_string).collect();
            format!("not a kind; the kinds are {}", names.join(", "))
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Design {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) pps: u32,
    /// Packets that are sent at once.
    pub(crate) burst: u32,
    /// As the kernel counts it: bytes including its own overhead.
    pub(crate) receive_buffer: usize,
    pub(crate) path: Path,
    /// Other senders, all alike.
    pub(crate) others: Option<Others>,
    pub(crate) tcp_flows: u32,
    /// Lengths of outages (ms, from and to) and the mean time between them (ms). Switching the port
    /// adds to both.
    pub(crate) outage_ms: Option<([f64; 2], f64)>,
    pub(crate) host: Option<Host>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Path {
    Switch { rate_bps: Option<u64>, queue_packets: u32, loss: f64 },
    Relay(Vec<Hop>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Others {
    pub(crate) sources: u32,
    /// Packets per second of each source, while it sends.
    pub(crate) pps: f64,
    pub(crate) burst: u32,
    /// Exponential times between bursts; otherwise equal times.
    pub(crate) is_poisson: bool,
    /// Mean time (ms, exponential) for which a source sends, and is silent; 0 means that it always
    /// sends.
    pub(crate) on_ms: f64,
    pub(crate) off_ms: f64,
}

/// Load that keeps the receiver from reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Host {
    /// Up to `busy` processes for a while, then none (Dickens §3.1.4); times in ms, divided by
    /// `scale`.
    Gen {
        busy: u32,
        run_ms: [f64; 2],
        sleep_ms: [f64; 2],
        scale: f64,
    },
    /// A thread of higher priority: length of its stalls and mean time between them (ms).
    Preempt {
        stall_ms: [f64; 2],
        every_ms: f64,
    },
    /// A quota in each period, as a share of what the receiver needs.
    Quota {
        period_us: u32,
        share_of_need: f64,
    },
    Slow {
        work_ns: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    /// Whether a run lasts for a whole number of windows of [`LARGE`] packets, at least one, in
    /// about `seconds`.
    pub(crate) has_whole_windows: bool,
    /// Divisor of the generator's times.
    pub(crate) scale: f64,
}

impl Design {
    /// Draws the design of run `number`; `low` aims at losses of 0.00008 to 0.0005 in windows of
    /// 100 000.
    pub(crate) fn draw(kind: Kind, low: bool, number: u64, setting: &Setting) -> Self {
        let mut draw = Draw(SeededRng::new(setting.seed, number));
        let mut design = Self {
            kind,
            seed: draw.0.next_u64(),
            seconds: setting.seconds,
            pps: draw.of(&[20_000, 30_000, 40_000]),
            burst: draw.of(&[1, 1, 4, 16, 32]),
            receive_buffer: draw.of(&[212_992, 425_984, 851_968]),
            path: Path::Switch { rate_bps: None, queue_packets: 1000, loss: 0.0 },
            others: None,
            tcp_flows: 0,
            outage_ms: None,
            host: None,
        };
        if let Some(net) = kind.net() {
            design.draw_network(net, low, &mut draw);
        }
        match kind.cpu() {
            Some(cpu) => {
                if low {
                    // A buffer that lasts longer than the time slices of other tasks, 4 ms with 250
                    // ticks a second, and the fewest possible packets in such a slice.
                    (design.pps, design.receive_buffer) = (LOW_PPS, LOW_BUFFER);
                } else if cpu == Cpu::Gen {
                    // With smaller buffers the loss exceeds the range of the classifiers.
                    design.receive_buffer = draw.of(&[425_984, 851_968, 1_703_936]);
                }
                design.host = Some(design.draw_host(cpu, low, setting.scale, &mut draw));
            }
            None => design.receive_buffer = BUFFER_OF_NET_RUNS,
        }
        if setting.has_whole_windows {
            design.seconds = whole_windows_s(design.pps, setting.seconds);
        } else if kind.is_relayed() {
            design.seconds *= RELAY_STRETCH;
        }
        design
    }

    fn draw_network(&mut self, net: Net, low: bool, draw: &mut Draw) {
        match net {
            Net::Random => {
                // In a hybrid, enough loss to be seen beside the host's.
                let least = if matches!(self.kind, Kind::Hyb(_)) { 1e-3 } else { 1e-4 };
                let loss = draw.log(least, if low { 5e-4 } else { 4e-2 });
                self.path = Path::Switch { rate_bps: None, queue_packets: 1000, loss };
            }
            Net::Outage => self.outage_ms = Some(([0.0, 15.0], draw.log(300.0, 1500.0))),
            Net::SelfInduced => {
                let excess = if low { draw.log(1e-4, 5e-4) } else { draw.log(3e-4, 4e-2) };
                self.bottleneck(f64::from(self.pps) / (1.0 + excess), draw.of(&[32, 64]));
            }
            Net::Tcp => {
                self.pps = draw.of(&[10_000, 15_000, 20_000]);
                self.tcp_flows = if low { 1 } else { draw.of(&[1, 2, 4]) };
                let queue = if low { 1000 } else { draw.of(&[250, 500, 1000]) };
                let share = draw.linear(0.4, 0.6);
                self.bottleneck(f64::from(self.pps) / share, queue);
            }
            Net::Poisson | Net::Cbr | Net::Onoff | Net::Incast => self.draw_contention(net, low, draw),
            Net::Red | Net::Codel | Net::Series => self.draw_relay(net, low, draw),
        }
    }

    /// Other traffic in the same queue, which together with this flow comes close to the rate.
    fn draw_contention(&mut self, net: Net, low: bool, draw: &mut Draw) {
        self.pps = draw.of(&[10_000, 15_000, 20_000]);
        let rate_pps = f64::from(self.pps) / draw.linear(0.45, 0.6);
        let rest = |load: f64| (rate_pps * load - f64::from(self.pps)).max(100.0);
        let others = Others { sources: 1, pps: 0.0, burst: 1, is_poisson: false, on_ms: 0.0, off_ms: 0.0 };
        let (queue, others) = match net {
            Net::Poisson => {
                let load = if low { draw.linear(0.92, 0.97) } else { draw.linear(0.96, 1.03) };
                let others = Others { burst: draw.of(&[1, 4]), is_poisson: true, sources: 8, ..others };
                (draw.of(&[32, 128]), Others { pps: rest(load) / 8.0, ..others })
            }
            Net::Cbr => {
                let load = 1.0 + if low { draw.log(1e-4, 4e-4) } else { draw.log(5e-4, 3e-2) };
                let sources = draw.of(&[2, 8]);
                let others = Others { burst: draw.of(&[1, 1, 4]), sources, ..others };
                (draw.of(&[32, 64]), Others { pps: rest(load) / f64::from(sources), ..others })
            }
            Net::Onoff => {
                let load = if low { draw.linear(0.75, 0.85) } else { draw.linear(0.8, 0.98) };
                let (on_ms, idle) = (draw.of(&[0.3, 2.0, 20.0]), draw.linear(0.3, 1.0));
                let others =
                    Others { burst: draw.of(&[1, 4]), sources: 8, on_ms, off_ms: on_ms * idle, ..others };
                (draw.of(&[128, 500]), Others { pps: rest(load) / 8.0 * (1.0 + idle), ..others })
            }
            _ => {
                let every = if low { (400.0, 1500.0) } else { (60.0, 500.0) };
                let others =
                    Others { on_ms: draw.of(&[1.0, 3.0]), off_ms: draw.log(every.0, every.1), ..others };
                (draw.of(&[32, 128]), Others { pps: rate_pps * draw.linear(2.0, 3.0), ..others })
            }
        };
        self.others = Some(others);
        self.bottleneck(rate_pps, queue);
    }

    fn draw_relay(&mut self, net: Net, low: bool, draw: &mut Draw) {
        (self.pps, self.burst) = (RELAY_PPS, draw.of(&[1, 4, 16]));
        let load = if low { draw.linear(0.9, 0.98) } else { draw.linear(1.0, 1.06) };
        let (sources, sum) = (4, f64::from(self.pps) * draw.linear(0.2, 0.4));
        let others = Others { sources, pps: sum / 4.0, burst: 1, is_poisson: true, on_ms: 0.0, off_ms: 0.0 };
        self.others = Some(others);
        let rate_bps = (f64::from(self.pps) + sum) / load * IP_BYTES * 8.0;
        let hop = |draw: &mut Draw, net| {
            let rate_bps = (rate_bps * draw.linear(1.0, 1.02)) as u64;
            let discipline = match net {
                Net::Red => {
                    // The paper's advice: max_th at least twice min_th, w_q of 0.002, max_p of 1/50
                    // and more (§6, §7).
                    let min_packets = draw.linear(5.0, 20.0);
                    let (max_packets, max_probability) = (3.0 * min_packets, draw.linear(0.02, 0.1));
                    Discipline::Red(RedParameters {
                        min_packets,
                        max_packets,
                        max_probability,
                        weight: 0.002,
                    })
                }
                Net::Codel => Discipline::Codel(CodelParameters::default()),
                _ => Discipline::TailDrop,
            };
            Hop { rate_bps, queue_packets: draw.of(&[64, 128, 256]), discipline }
        };
        let mixed = [Net::Cbr, Net::Red, Net::Codel];
        let hops = match net {
            Net::Series => (0..draw.of(&[2, 3])).map(|_| draw.of(&mixed)).collect(),
            _ => vec![net],
        };
        self.path = Path::Relay(hops.into_iter().map(|net| hop(draw, net)).collect());
    }

    fn bottleneck(&mut self, packets_per_s: f64, queue_packets: u32) {
        let rate_bps = Some((packets_per_s * FRAME_BYTES * 8.0) as u64);
        self.path = Path::Switch { rate_bps, queue_packets, loss: 0.0 };
    }

    fn draw_host(&self, cpu: Cpu, low: bool, scale: f64, draw: &mut Draw) -> Host {
        // Time that the receiver may stall until its buffer is full.
        let full_ms = self.receive_buffer as f64 / TRUE_BYTES / f64::from(self.pps) * 1e3;
        match cpu {
            Cpu::Gen if low => {
                // The longest times are a little too long, and as rare as needed.
                let scale = 7000.0 / (1.15 * full_ms);
                let sleep_ms = [0.0, LOW_WINDOW_MS * draw.log(0.1, 0.4)];
                Host::Gen { busy: 7, run_ms: [1000.0 / scale, 7000.0 / scale], sleep_ms, scale }
            }
            Cpu::Gen => Host::Gen {
                busy: 7,
                run_ms: [1000.0 / scale, 7000.0 / scale],
                sleep_ms: [0.0, 20_000.0 / scale],
                scale,
            },
            Cpu::Preempt if low => {
                // One stall in three is too long by a few packets. A full buffer loses some more,
                // because the kernel empties it by quarters.
                let every_ms = LOW_WINDOW_MS * draw.log(0.15, 0.5);
                Host::Preempt { stall_ms: [0.9 * full_ms, 1.05 * full_ms], every_ms }
            }
            Cpu::Preempt => {
                let longest_ms = full_ms * draw.linear(1.3, 2.5);
                let stall_ms = [longest_ms * draw.of(&[0.1, 0.5]), longest_ms];
                Host::Preempt { stall_ms, every_ms: draw.log(30.0, 400.0) }
            }
            Cpu::Quota => Host::Quota {
                // The last is the kernel's default, and that of containers.
                period_us: draw.of(&[10_000, 20_000, 50_000, 100_000]),
                share_of_need: draw.linear(0.75, 1.05),
            },
            Cpu::Slow => {
                let share = if low { draw.linear(0.7, 0.9) } else { draw.linear(0.75, 0.9) };
                Host::Slow { work_ns: (share * 1e9 / f64::from(self.pps)) as u64 }
            }
        }
    }

    /// The settings as JSON, for readers of the runs.
    pub(crate) fn config(&self) -> Value {
        let mut config = json!({ "pps": self.pps, "batch": self.burst, "rcvbuf": self.receive_buffer });
        match &self.path {
            Path::Switch { rate_bps: Some(rate), queue_packets, .. } => {
                config["q"] = json!([rate / 1_000_000, queue_packets, "p"]);
            }
            Path::Switch { loss, .. } if *loss > 0.0 => config["p"] = json!(loss),
            Path::Switch { .. } => {}
            Path::Relay(hops) => {
                let shown =
                    |hop: &Hop| json!([hop.rate_bps, hop.queue_packets, format!("{:?}", hop.discipline)]);
                config["relay"] = hops.iter().map(shown).collect();
            }
        }
        if let Some(Others { sources, pps, burst, is_poisson, on_ms, off_ms }) = self.others {
            config["bg"] = json!({ "bg": sources, "bgpps": pps, "bgbatch": burst, "poisson": is_poisson, "on": on_ms, "off": off_ms });
        }
        if self.tcp_flows > 0 {
            config["tcp"] = json!(self.tcp_flows);
        }
        if let Some((length_ms, every_ms)) = self.outage_ms {
            config["outage"] = json!([length_ms, every_ms]);
        }
        let (name, value) = match self.host {
            None => return config,
            Some(Host::Gen { busy, run_ms, sleep_ms, scale }) => {
                config["scale"] = json!(scale);
                ("gen", json!([busy, run_ms[0], run_ms[1], sleep_ms[1]]))
            }
            Some(Host::Preempt { stall_ms, every_ms }) => {
                ("spin", json!([stall_ms[0], stall_ms[1], every_ms]))
            }
            Some(Host::Quota { period_us, share_of_need }) => ("quota", json!([period_us, share_of_need])),
            Some(Host::Slow { work_ns }) => ("work", json!(work_ns)),
        };
        config[name] = value;
        config
    }
}

/// Duration (s) of a run of about `seconds` with whole windows of [`LARGE`] packets, at least one,
/// and a few packets more.
fn whole_windows_s(pps: u32, seconds: f64) -> f64 {
    let windows = (seconds * f64::from(pps) / f64::from(LARGE)).round().max(1.0);
    (windows * f64::from(LARGE) + SPARE_PACKETS) / f64::from(pps)
}

struct Draw(SeededRng);

impl Draw {
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.index_below(choices.len())]
    }

    fn linear(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.0.uniform()
    }

    /// Draws so that each factor is equally frequent.
    fn log(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.0.uniform())
    }
}

/// Bytes of a datagram: the size of the paper's packets.
pub(crate) const PAYLOAD_BYTES: usize = 1024;

/// With the headers of UDP and IPv4, as the relay counts; and with Ethernet's, as `htb` counts.
const IP_BYTES: f64 = (PAYLOAD_BYTES + 28) as f64;
const FRAME_BYTES: f64 = IP_BYTES + 14.0;

/// Bytes that the kernel charges a receive buffer for such a packet: 2 KiB of data and the
/// `sk_buff` (92 packets fill its default of 212 992).
const TRUE_BYTES: f64 = 2304.0;

/// Packets a second and buffer of the host's runs that aim at low loss: 185 packets, 9 ms.
const LOW_PPS: u32 = 20_000;
const LOW_BUFFER: usize = 425_984;

/// Time that such a run takes for a window of [`LARGE`] packets (ms).
const LOW_WINDOW_MS: f64 = LARGE as f64 / LOW_PPS as f64 * 1e3;

/// So large that the socket never drops: seconds of packets.
const BUFFER_OF_NET_RUNS: usize = 256 << 20;

/// Packets of a run with whole windows that no window needs. A run ends with the last packet that
/// was received; a host that stalls at the end loses up to 70 ms of packets after that.
const SPARE_PACKETS: f64 = 4000.0;

/// Half of what a relay carries on two processors that also have other work.
const RELAY_PPS: u32 = 8_000;

/// Relayed runs without whole windows are longer by this factor in return.
pub(crate) const RELAY_STRETCH: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kinds_parse_back() {
        for kind in Kind::all() {
            assert_eq!(kind.to_string().parse::<Kind>().unwrap(), kind);
        }
        assert_eq!("hyb-cbr".parse::<Kind>().unwrap(), Kind::Hyb(Net::Cbr));
        assert!("hyb-gen".parse::<Kind>().unwrap_err().contains("preempt"));
    }

    #[test]
    fn a_design_depends_only_on_seed_and_number() {
        let setting = Setting { seed: 1, seconds: 6.0, has_whole_windows: false, scale: 100.0 };
        for kind in Kind::all() {
            for (number, low) in [(3, false), (4, true)] {
                let design = Design::draw(kind, low, number, &setting);
                assert_eq!(design, Design::draw(kind, low, number, &setting));
                assert_eq!(design.host.is_none(), design.receive_buffer == BUFFER_OF_NET_RUNS, "{kind}");
                assert!(design.config()["pps"].is_u64());
                let others = design.others.map_or(0.0, |others| others.pps * f64::from(others.sources));
                assert!((0.0..300_000.0).contains(&others), "{kind}: {others}");
            }
        }
    }

    #[test]
    fn a_run_of_whole_windows_is_about_as_long_as_asked_for_and_has_at_least_one() {
        let setting = Setting { seed: 1, seconds: 10.0, has_whole_windows: true, scale: 100.0 };
        for (kind, number) in Kind::all().into_iter().zip(0..) {
            let design = Design::draw(kind, false, number, &setting);
            let packets = f64::from(design.pps) * design.seconds;
            let rest = packets % f64::from(LARGE);
            assert!((rest - SPARE_PACKETS).abs() < 1.0 && f64::from(LARGE) <= packets, "{kind}: {packets}");
            assert!((8.0..14.0).contains(&design.seconds), "{kind}: {} s", design.seconds);
        }
        assert_eq!(whole_windows_s(10_000, 1.0), 10.4);
        assert_eq!(whole_windows_s(40_000, 10.0), 10.1);
    }

    #[test]
    fn the_papers_generator_is_scaled_and_records_the_scale() {
        let setting = Setting { seed: 1, seconds: 6.0, has_whole_windows: false, scale: 50.0 };
        let design = Design::draw(Kind::Cpu(Cpu::Gen), false, 0, &setting);
        assert_eq!(design.config()["gen"], json!([7, 20.0, 140.0, 400.0]));
        assert_eq!(design.config()["scale"], json!(50.0));
    }
}

//! Makes runs: hosts, paths, transfers, and their disturbances.

use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use barograph_probe::io::CancellationToken;
use barograph_sim::{Link, LinkSpec, Network, RelayOptions, SeededRng, Switch};
use nix::unistd::gettid;

use super::cut::Trace;
use super::host::{Cpus, Load, draw, pin, request_realtime};
use super::plan::{Design, Path};
use super::receiver::Receiver;
use super::sender::{Lane, send};
use crate::emulation::invalid_reason;
use crate::iperf;
use crate::jobs::{Task, sleep};
use crate::process::Process;

pub(crate) enum Made {
    Trace(Trace),
    /// The emulator was the bottleneck, or the sender did not keep its pace.
    Void(String),
    Stopped,
}

/// Makes runs at the same time, in networks of their own. This takes as long as the longest run,
/// and some seconds more. A run fails if this machine cannot do something, or a part failed.
/// Nothing is left behind.
pub(crate) fn make(designs: &[Design], cpus: Cpus, stop: &CancellationToken) -> Vec<anyhow::Result<Made>> {
    let runs: Vec<anyhow::Result<Run<'_>>> = designs.iter().map(|design| Run::start(design, cpus)).collect();
    let lanes: Vec<Lane<'_>> = runs.iter().flatten().map(Run::lane).collect();
    let behind = send_all(&lanes, cpus, stop).map_err(|error| format!("{error:#}"));
    let finish = |run: Run<'_>| run.finish(behind.clone().map_err(anyhow::Error::msg)?, stop);
    runs.into_iter().map(|run| run.and_then(finish)).collect()
}

/// Sends the packets of all runs. Returns the total time in which the sender was late.
fn send_all(lanes: &[Lane<'_>], cpus: Cpus, stop: &CancellationToken) -> anyhow::Result<Duration> {
    if lanes.is_empty() {
        return Ok(Duration::ZERO);
    }
    let work = || -> anyhow::Result<Duration> {
        pin(cpus.sender)?;
        // Real-time priority, so that no other process delays the sender. It runs without if not
        // permitted.
        let _ = request_realtime(gettid().as_raw(), SENDER_PRIORITY);
        Ok(send(lanes, stop))
    };
    let Ok(behind) = thread::scope(|scope| scope.spawn(work).join()) else { bail!("the sender panicked") };
    behind
}

/// A run with its hosts ready. The fields are dropped in this order: first the load, the network
/// last.
struct Run<'a> {
    load: Option<Load>,
    outages: Option<Task<()>>,
    flows: Option<[Process; 2]>,
    receiver: Receiver,
    own: UdpSocket,
    others: UdpSocket,
    /// Receives the packets of the other sources; drops them when its buffer is full.
    _sink: UdpSocket,
    network: Network,
    design: &'a Design,
}

impl<'a> Run<'a> {
    fn start(design: &'a Design, cpus: Cpus) -> anyhow::Result<Self> {
        let network = Network::new(link(design))?;
        let receiver = Receiver::start(&network, design, cpus)?;
        let sink = network.b.run(|| UdpSocket::bind((network.b.v4(), 0)))??;
        let connected = |to| -> anyhow::Result<UdpSocket> {
            let socket = network.a.run(|| UdpSocket::bind((network.a.v4(), 0)))??;
            socket2::SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER)?;
            socket.connect(to)?;
            Ok(socket)
        };
        let (own, others) = (connected(receiver.address())?, connected(sink.local_addr()?)?);
        let flows = (design.tcp_flows > 0).then(|| start_flows(&network, design)).transpose()?;
        let outages =
            design.outage_ms.map(|outage| start_outages(&network, outage, design.seed)).transpose()?;
        let load = design
            .host
            .map(|host| Load::start(host, cpus, receiver.process_id(), design.seed))
            .transpose()?;
        Ok(Self { load, outages, flows, receiver, own, others, _sink: sink, network, design })
    }

    fn lane(&self) -> Lane<'_> {
        Lane { design: self.design, own: &self.own, others: &self.others }
    }

    /// Ends the run; its sender was late by `behind` in all.
    fn finish(self, behind: Duration, stop: &CancellationToken) -> anyhow::Result<Made> {
        let Self { network, receiver, load, outages, flows, design, .. } = self;
        // The load ends before the receiver is stopped, which still has to read the rest.
        drop((load, outages, flows));
        if stop.is_cancelled() {
            return Ok(Made::Stopped);
        }
        let arrivals = receiver.finish()?;
        if let Some(why) = invalid_reason(&network) {
            return Ok(Made::Void(why));
        }
        let behind_s = behind.as_secs_f64();
        if BEHIND_MAX * design.seconds < behind_s {
            return Ok(Made::Void(format!("the sender was late by {behind_s:.1} s in all")));
        }
        let trace = Trace::new(arrivals, REORDER_MARGIN);
        let expected = f64::from(design.pps) * design.seconds;
        if (trace.packets as f64) < 0.2 * expected {
            bail!("{} of {expected:.0} packets were sent", trace.packets);
        }
        Ok(Made::Trace(trace))
    }
}

fn link(design: &Design) -> Link {
    match &design.path {
        Path::Switch { rate_bps, queue_packets, loss } => {
            Link::Switch(Switch { rate_bps: *rate_bps, queue_packets: *queue_packets, loss: *loss })
        }
        Path::Relay(hops) => Link::Relay {
            forward: LinkSpec::default(),
            back: LinkSpec::default(),
            options: RelayOptions {
                queues: hops.clone(),
                queues_seed: design.seed,
                ..RelayOptions::default()
            },
        },
    }
}

/// TCP flows by iperf3 through the same queue: server and client.
fn start_flows(network: &Network, design: &Design) -> anyhow::Result<[Process; 2]> {
    let server = iperf::serve(&network.b, PORT)?;
    let (to, port) = (network.b.v4().to_string(), PORT.to_string());
    let seconds = (design.seconds.ceil() as u32 + FLOWS_LONGER_S).to_string();
    let flows = design.tcp_flows.to_string();
    let mut client = network.a.command("iperf3");
    client.args(["-c", &to, "-p", &port, "-P", &flows, "-t", &seconds]);
    Ok([server, Process::spawn(client.stdout(Stdio::null()).stderr(Stdio::null()))?])
}

/// Outages in which the switch forwards nothing.
fn start_outages(
    network: &Network,
    (length_ms, every_ms): ([f64; 2], f64),
    seed: u64,
) -> anyhow::Result<Task<()>> {
    let port = network.port().context("outages need a switch")?;
    Ok(Task::start(move |stop| {
        let mut rng = SeededRng::new(seed, 3);
        while !stop.load(Ordering::Relaxed) {
            sleep(Duration::from_secs_f64(rng.exponential(every_ms / 1e3)), stop);
            let length = draw(&mut rng, length_ms);
            // If this fails there are no outages; the table then shows that.
            let _ = port.set_open(false);
            thread::sleep(length);
            let _ = port.set_open(true);
        }
    }))
}

/// A packet is lost if this many packets overtake it: some milliseconds, and far more than two
/// processors reorder.
const REORDER_MARGIN: u64 = 200;

/// Largest share of the time that a sender may be late. One with real-time priority misses a
/// twentieth of the time; with more than this the queue does not get the intended load.
const BEHIND_MAX: f64 = 0.2;

/// A large size, of which the kernel grants what it permits. A sender that waits for its buffer
/// would not keep its pace.
const SEND_BUFFER: usize = 4 << 20;
const PORT: u16 = 5201;

/// The client starts before the packets, and before other runs that are made at the same time; it
/// is killed at the end.
const FLOWS_LONGER_S: u32 = 10;

/// Below the relay's priority (10), because the relay carries the packets.
const SENDER_PRIORITY: u8 = 5;

//! A flow of ours beside other traffic on the same path: the rate of each, for every controller.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use barograph_sim::Network;
use barograph_transfer::controller::ControllerKind;
use serde_json::json;

use super::flow::{Flow, FlowResult, Ours, now_ms};
use super::path::BottleneckPath;
use super::session::{AROUND, Lanes, Plan, Session};
use crate::emulation::invalid_reason;
use crate::iperf;
use crate::signatures::plan::Others;
use crate::signatures::sender::Timeline;
use crate::stats::mean_of_some;
use crate::table::{Table, dash, percent};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Other {
    Tcp {
        congestion: &'static str,
        flows: u32,
    },
    /// Datagrams of four sources. Each sends at an eighth of the bottleneck for a second, then is
    /// silent for a second (means; exponential): a quarter of the bottleneck on average, up to half
    /// of it.
    OnOff,
}

/// Length of a run, and the time from which it is measured (s).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) seconds: u64,
    pub(crate) from: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct CompetitionResult {
    pub(crate) ours_bps: f64,
    pub(crate) other_bps: f64,
    /// Rate that the other traffic sent, if nothing makes it slow down.
    pub(crate) offered_bps: Option<f64>,
    /// Median queueing delay of our flow: its smoothed round trip minus the path's.
    pub(crate) queue_ms: Option<f64>,
    pub(crate) invalid_reason: Option<String>,
}

impl Other {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp { congestion, flows: 1 } => congestion.to_owned(),
            Self::Tcp { congestion, flows } => format!("{flows} × {congestion}"),
            Self::OnOff => "on-off datagrams".to_owned(),
        }
    }
}

pub(crate) fn beside(
    path: &BottleneckPath,
    kind: ControllerKind,
    other: Other,
    window: Window,
    seed: u64,
) -> anyhow::Result<CompetitionResult> {
    let network = Network::new(path.link())?;
    let Window { seconds, from } = window;
    let ours = ours(path, kind, seed);
    let (result, began_ms, other_bps, offered_bps) = match other {
        Other::Tcp { congestion, flows } => {
            let _server = iperf::serve(&network.b, PORT)?;
            let flow = Flow::start(&network, &ours)?;
            let began_ms = now_ms();
            let (time, flows) = (seconds.to_string(), flows.to_string());
            let options = ["-i", "1", "-t", &time, "-C", congestion, "-P", &flows];
            let report =
                iperf::report(&network.a, (network.b.v4(), PORT), seconds + iperf::GRACE_S, &options);
            let result = flow.stop()?;
            let report = report?;
            let intervals = report["intervals"].as_array().context("iperf3 reports no intervals")?;
            let rates = intervals.iter().skip(from as usize);
            let rates: Vec<f64> =
                rates.filter_map(|interval| interval["sum"]["bits_per_second"].as_f64()).collect();
            (result, began_ms, mean_of_some(&rates).unwrap_or(0.0), None)
        }
        Other::OnOff => {
            let flow = Flow::start(&network, &ours)?;
            let began_ms = now_ms();
            let datagrams = on_off(&network, path, window, seed);
            let result = flow.stop()?;
            let [sent, came] = datagrams?.map(|count| count as f64 * PACKET_BITS / (seconds - from) as f64);
            (result, began_ms, came, Some(sent))
        }
    };
    let (from_ms, to_ms) = (began_ms + 1000 * from, began_ms + 1000 * seconds);
    Ok(CompetitionResult {
        ours_bps: result.bps(from_ms, to_ms),
        other_bps,
        offered_bps,
        queue_ms: queue_ms(&result, path, from_ms, to_ms),
        invalid_reason: invalid_reason(&network),
    })
}

/// Sends until the window ends; returns the datagrams that were sent and those that arrived within
/// it.
fn on_off(network: &Network, path: &BottleneckPath, window: Window, seed: u64) -> anyhow::Result<[u64; 2]> {
    let to = network.b.run(|| UdpSocket::bind((network.b.v4(), 0)))??;
    let from = network.a.run(|| UdpSocket::bind((network.a.v4(), 0)))??;
    from.connect(to.local_addr()?)?;
    to.set_read_timeout(Some(TICK))?;
    let (sent, came, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let counts = || [sent.load(Ordering::Relaxed), came.load(Ordering::Relaxed)];
    let mut timeline = Timeline::of_others(others(path), seed);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 2048];
            while !is_over.load(Ordering::Relaxed) {
                if to.recv(&mut buffer).is_ok() {
                    came.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        scope.spawn(|| {
            let began = Instant::now();
            while let Some(event) = timeline.next().filter(|_| !is_over.load(Ordering::Relaxed)) {
                // A silence may be longer than the run.
                while began.elapsed() < event.due && !is_over.load(Ordering::Relaxed) {
                    thread::sleep(event.due.saturating_sub(began.elapsed()).min(TICK));
                }
                for _ in 0..event.burst {
                    // A packet that the kernel refuses counts as lost.
                    let _ = from.send(&[0; DATAGRAM_BYTES]);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        thread::sleep(Duration::from_secs(window.from));
        let before = counts();
        thread::sleep(Duration::from_secs(window.seconds - window.from));
        let after = counts();
        is_over.store(true, Ordering::Relaxed);
        Ok([after[0] - before[0], after[1] - before[1]])
    })
}

fn others(path: &BottleneckPath) -> Others {
    let pps = path.bps() as f64 / 8.0 / PACKET_BITS;
    Others { sources: 4, pps, burst: 4, is_poisson: false, on_ms: 1000.0, off_ms: 1000.0 }
}

pub(crate) fn ours(path: &BottleneckPath, kind: ControllerKind, seed: u64) -> Ours {
    let rate_bytes_s = (kind == ControllerKind::Fixed).then_some(path.bps() as f64 / 8.0);
    Ours { rate_bytes_s, seed, ..Ours::new(kind) }
}

/// Median of a flow's smoothed round trips minus the path's round trip.
pub(crate) fn queue_ms(result: &FlowResult, path: &BottleneckPath, from_ms: u64, to_ms: u64) -> Option<f64> {
    let [median, _] = result.rtts_s(from_ms, to_ms)?;
    Some((1e3 * median - path.rtt_ms as f64).max(0.0))
}

const PORT: u16 = 5202;

/// Payload of a full Ethernet packet over IPv4 and UDP; then the whole packet in bits, as the relay
/// counts.
const DATAGRAM_BYTES: usize = 1472;
const PACKET_BITS: f64 = 8.0 * 1500.0;
const TICK: Duration = Duration::from_millis(50);

const OTHERS: [Other; 3] = [
    Other::OnOff,
    Other::Tcp { congestion: "cubic", flows: 1 },
    Other::Tcp { congestion: "cubic", flows: 4 },
];

fn paths(session: &Session) -> Vec<BottleneckPath> {
    let all =
        [20, 100].map(|rtt_ms| BottleneckPath { mbit_s: MBIT_S, rtt_ms, loss: 0.0, seed: session.seed });
    all.into_iter().filter(|path| session.wants_path(&path.name())).collect()
}

fn window(session: &Session) -> Window {
    let seconds = LONGER * session.seconds;
    Window { seconds, from: (seconds / 3).min(START_S) }
}

fn plan_of(session: &Session, path: &BottleneckPath, cells: usize) -> Plan {
    let each = Duration::from_secs(window(session).seconds) + AROUND;
    Plan::of(cells as u64, each, path.at_once(session))
}

pub(crate) fn plan(session: &Session) -> Plan {
    let cells = session.kinds().len() * OTHERS.len();
    paths(session).iter().map(|path| plan_of(session, path, cells)).sum()
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let (kinds, window) = (session.kinds(), window(session));
    let legend = format!(
        "{MBIT_S} Mbit/s, no random loss, a queue of one product; both begin together, {} s, counted after {} s. Cells: ours / the others (Mbit/s; ours \
         without headers, iperf3's without, the datagrams' with). On-off datagrams: four sources, each 1/8 of the bottleneck for 1 s, then silent for \
         1 s (means); in parentheses what % of theirs arrived. cubic: iperf3. * The emulator was late or lost packets itself; – it did not run.",
        window.seconds, window.from
    );
    let table = Table::new(["round trip, others"]).and(kinds.iter().map(|kind| kind.name()));
    let names = OTHERS.iter().map(|other| format!("100 ms, {}", other.name()));
    session.report.begin("Beside other traffic", &legend, table, names)?;
    for path in paths(session) {
        let mut lanes = Lanes::new(path.at_once(session));
        for other in OTHERS {
            let name = format!("{} ms, {}", path.rtt_ms, other.name());
            let measure = |kind: &ControllerKind| {
                let measure = || beside(&path, *kind, other, window, session.seed);
                session.cell(format!("{name}: {kind}"), plan_of(session, &path, 1), measure)
            };
            let is_invalid = |found: &anyhow::Result<CompetitionResult>| {
                found.as_ref().map_or(true, |of| of.invalid_reason.is_some())
            };
            let found = lanes.run(&kinds, measure, is_invalid);
            let cells: Vec<String> = std::iter::once(name).chain(found.iter().map(cell)).collect();
            let rows = kinds.iter().zip(&found).map(|(kind, found)| {
                let of = found.as_ref().ok();
                json!({
                    "mbit_s": MBIT_S, "rtt_ms": path.rtt_ms, "beside": other.name(), "controller": kind.name(),
                    "bit_s": of.map(|of| of.ours_bps), "others_bit_s": of.map(|of| of.other_bps),
                    "others_offered_bit_s": of.and_then(|of| of.offered_bps), "queue_ms": of.and_then(|of| of.queue_ms),
                    "void": of.and_then(|of| of.invalid_reason.clone()),
                    "failure": found.as_ref().err().map(|error| format!("{error:#}")),
                })
            });
            session.report.row(&cells, rows.collect())?;
        }
    }
    session.report.end(&[])
}

fn cell(found: &anyhow::Result<CompetitionResult>) -> String {
    let Ok(of) = found else { return dash() };
    let arrived = of.offered_bps.filter(|offered| *offered > 0.0);
    let arrived =
        arrived.map_or_else(String::new, |offered| format!(" ({})", percent(of.other_bps / offered)));
    let mark = if of.invalid_reason.is_some() { "*" } else { "" };
    format!("{:.1} / {:.1}{arrived}{mark}", of.ours_bps / 1e6, of.other_bps / 1e6)
}

const MBIT_S: u64 = 100;

/// Other traffic varies, and cubic takes seconds to find its share.
const LONGER: u64 = 3;
const START_S: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_traffic_takes_a_quarter_of_the_path() {
        let path = BottleneckPath { mbit_s: 100, rtt_ms: 20, loss: 0.0, seed: 1 };
        let mut timeline = Timeline::of_others(others(&path), 7);
        let (mut packets, end) = (0, Duration::from_secs(400));
        while let Some(event) = timeline.next().filter(|event| event.due < end) {
            packets += event.burst;
        }
        let share = f64::from(packets) * PACKET_BITS / 400.0 / path.bps() as f64;
        assert!((0.22..0.28).contains(&share), "{share}");
    }

    #[test]
    fn a_cell_shows_the_rates_of_both_flows() {
        let of = CompetitionResult {
            ours_bps: 70.25e6,
            other_bps: 24e6,
            offered_bps: Some(25e6),
            queue_ms: None,
            invalid_reason: Some("late".to_owned()),
        };
        assert_eq!(cell(&Ok(of.clone())), "70.2 / 24.0 (96.0)*");
        assert_eq!(
            cell(&Ok(CompetitionResult { offered_bps: None, invalid_reason: None, ..of })),
            "70.2 / 24.0"
        );
        assert_eq!(cell(&Err(anyhow::anyhow!("no iperf3"))), "–");
    }
}

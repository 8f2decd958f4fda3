//! Contention at the paper's round trip, 65 ms: for the receiver's processor, for the network, and
//! for both. Losses are classified with the receiver's counter, by the pattern alone, or not at all
//! (Dickens §4.1.1, over real sockets).

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use barograph_sim::Network;
use barograph_transfer::controller::ControllerKind;
use serde_json::{Value, json};

use super::busy::GENERATOR;
use super::flow::{Flow, Ours, SenderResult, SettledLosses, measured};
use super::path::BottleneckPath;
use super::session;
use super::session::{AROUND, Bound, Plan, Session, for_people};
use crate::emulation::{Traffic, invalid_reason};
use crate::evidence::LossEvidence;
use crate::jobs::Task;
use crate::signatures::host::{Group, Load, limit_to, pin};
use crate::stats::median;
use crate::table::{Table, cells, dash, factor, list, number};

/// What keeps the receiver from reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostLoad {
    /// The paper's generator, as in `busy`.
    Generator,
    /// A control group's quota.
    Quota,
    /// Threads that always compute.
    Hogs,
}

/// What competes with the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contention {
    name: &'static str,
    host: Option<HostLoad>,
    /// Whether other datagrams share the bottleneck.
    has_traffic: bool,
}

const CONTENTIONS: [Contention; 5] = [
    Contention { name: "generator", host: Some(HostLoad::Generator), has_traffic: false },
    Contention { name: "quota", host: Some(HostLoad::Quota), has_traffic: false },
    Contention { name: "hogs", host: Some(HostLoad::Hogs), has_traffic: false },
    Contention { name: "network", host: None, has_traffic: true },
    Contention { name: "network and generator", host: Some(HostLoad::Generator), has_traffic: true },
];

/// `paper` reacts to the long-term loss rate, `highspeed` to loss events, and `model` is the
/// default.
const KINDS: [ControllerKind; 3] = [ControllerKind::Paper, ControllerKind::HighSpeed, ControllerKind::Model];

/// Load of a run; ends when dropped.
struct RunningLoad {
    _load: Option<Load>,
    _quota: Option<Group>,
    _hogs: Vec<Task<()>>,
    _traffic: Option<Traffic>,
}

impl Contention {
    fn start(
        self,
        session: &Session,
        network: &Network,
        receiver: u32,
        seed: u64,
    ) -> anyhow::Result<RunningLoad> {
        let cpus = session.cpus;
        let is = |load| self.host == Some(load);
        let generator = is(HostLoad::Generator).then(|| Load::start(GENERATOR, cpus, receiver, seed));
        let quota = is(HostLoad::Quota).then(|| limit_to(receiver, QUOTA_US, PERIOD_US));
        let hogs = if is(HostLoad::Hogs) { HOGS } else { 0 };
        let traffic = self.has_traffic.then(|| Traffic::start([&network.a, &network.b], traffic_bps));
        Ok(RunningLoad {
            _load: generator.transpose()?,
            _quota: quota.transpose()?,
            _hogs: (0..hogs).map(|_| hog(cpus.receiver)).collect::<anyhow::Result<_>>()?,
            _traffic: traffic.transpose()?,
        })
    }
}

/// A thread that computes on a processor until it is dropped. An error if it cannot be bound to
/// this processor: elsewhere it would not compete.
fn hog(cpu: usize) -> anyhow::Result<Task<()>> {
    let (pinned, is_pinned) = mpsc::channel();
    let task = Task::start(move |stop| {
        let result = pin(cpu);
        let runs = result.is_ok();
        // Ignore an error: the receiving end waits until it has the result.
        let _ = pinned.send(result);
        while runs && !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    is_pinned.recv().context("the hog ended")??;
    Ok(task)
}

/// Rate of the other datagrams (bit/s) at a time since the start: on and off by turns.
fn traffic_bps(since: Duration) -> f64 {
    let is_on = (since.as_millis() / TRAFFIC_TURN.as_millis()).is_multiple_of(2);
    if is_on { TRAFFIC_SHARE * MBIT_S as f64 * 1e6 } else { 0.0 }
}

fn path(seed: u64) -> BottleneckPath {
    BottleneckPath { mbit_s: MBIT_S, rtt_ms: RTT_MS, loss: 0.0, seed }
}

fn kinds(session: &Session) -> Vec<ControllerKind> {
    session.kinds_of(&KINDS, &KINDS)
}

fn contentions(session: &Session) -> Vec<Contention> {
    CONTENTIONS.into_iter().filter(|contention| session.wants_path(contention.name)).collect()
}

/// Measured time of a run; shorter without `--full`.
fn run_time(session: &Session) -> Duration {
    if session.is_full { session.time() } else { LONGER * session.time() }
}

fn plan_of(session: &Session, cells: u64) -> Plan {
    Plan::of(cells, path(session.seed).start() + run_time(session) + AROUND, 1)
}

pub(crate) fn plan(session: &Session) -> Plan {
    let cells = contentions(session).len() * kinds(session).len() * LossEvidence::ALL.len();
    plan_of(session, ROUNDS * cells as u64)
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let legend = format!(
        "{MBIT_S} Mbit/s, {RTT_MS} ms, a queue of one product, sealed; the receiver has a buffer of {} kB and is pinned to one processor, the sender to \
         the other. generator: that of `busy`. quota: {} of {} ms. hogs: {HOGS} threads that always compute on the receiver's processor. network: \
         datagrams at {} % of the bottleneck for {} s, then none for as long. Goodput (Mbit/s) of {ROUNDS} runs, {} after {} of start; the three kinds of \
         evidence take turns. counter: the receiver's kernel counts its drops. pattern: the sender ignores this counter, and the drain rate that the \
         receiver measures with it. none: all losses count as the network's. `paper` begins at {} % of the bottleneck. Settled by: evidence that settled the cause of lost packets, all runs together; \
         expired: no verdict in time; taken back: charged to the network first. * The emulator was late or lost packets itself; – it did not run.",
        2 * BUFFER / 1000,
        QUOTA_US / 1000,
        PERIOD_US / 1000,
        100.0 * TRAFFIC_SHARE,
        TRAFFIC_TURN.as_secs(),
        for_people(run_time(session)),
        for_people(path(session.seed).start()),
        100.0 * GIVEN,
    );
    let table = Table::titled(
        "contention | controller | counter | pattern | none | counter ÷ none | pattern ÷ none | \
         counter: settled by | pattern: settled by",
    )
    .text_columns(2);
    let names = contentions(session).into_iter().map(|contention| contention.name.to_owned());
    session.report.begin("Contention at 65 ms", &legend, table, names)?;
    let mut lines = Vec::new();
    for contention in contentions(session) {
        let cells = measure(session, contention, &mut lines);
        for of_kind in cells.chunks(LossEvidence::ALL.len()) {
            let [counter, pattern, none] = of_kind else { continue };
            lines.extend(floors(contention, counter, pattern, none));
            let rows = of_kind.iter().flat_map(|cell| cell.rows(contention)).collect();
            session.report.row(&row(contention, counter, pattern, none), rows)?;
        }
    }
    session.report.end(&lines)
}

/// Runs of one controller with one kind of evidence.
struct Cell {
    kind: ControllerKind,
    evidence: LossEvidence,
    runs: Vec<ContentionRun>,
}

#[derive(Clone, Debug, Default)]
struct ContentionRun {
    bps: f64,
    sender: SenderResult,
    socket_drops: u64,
    invalid_reason: Option<String>,
}

/// Cells of one contention: for each controller, one for each kind of evidence.
fn measure(session: &Session, contention: Contention, lines: &mut Vec<String>) -> Vec<Cell> {
    let new =
        |kind: ControllerKind| LossEvidence::ALL.map(|evidence| Cell { kind, evidence, runs: Vec::new() });
    let mut cells: Vec<Cell> = kinds(session).into_iter().flat_map(new).collect();
    for round in 0..ROUNDS {
        for of_kind in cells.chunks_mut(LossEvidence::ALL.len()) {
            // Each round begins with another kind, so that a machine that slows down favours none.
            of_kind.rotate_left(1);
            for cell in of_kind {
                let what = format!("{}: {}, {}", contention.name, cell.kind, cell.evidence.name());
                let run = || one(session, contention, cell.kind, cell.evidence, session.seed + round);
                match session.cell(&what, plan_of(session, 1), run) {
                    Ok(run) => cell.runs.push(run),
                    Err(error) => lines.push(format!("- {what} did not run: {error:#}\n")),
                }
            }
        }
    }
    for of_kind in cells.chunks_mut(LossEvidence::ALL.len()) {
        of_kind.sort_by_key(|cell| LossEvidence::ALL.iter().position(|evidence| *evidence == cell.evidence));
    }
    cells
}

fn one(
    session: &Session,
    contention: Contention,
    kind: ControllerKind,
    evidence: LossEvidence,
    seed: u64,
) -> anyhow::Result<ContentionRun> {
    let path = path(seed);
    let ours = Ours {
        evidence,
        rate_bytes_s: Some(GIVEN * path.bps() as f64 / 8.0),
        receive_buffer: BUFFER,
        receiver_cpu: Some(session.cpus.receiver),
        sender_cpu: Some(session.cpus.sender),
        seed,
        ..Ours::new(kind)
    };
    let network = Network::new(path.link())?;
    let waiting = Flow::prepare(&network, &ours)?;
    let load = contention.start(session, &network, waiting.process_id(), seed)?;
    let flow = waiting.go(&network)?;
    let [from_ms, to_ms] = measured(path.start(), run_time(session));
    // The load ends before the receiver is stopped, which still has to respond.
    drop(load);
    let (socket_drops, invalid_reason) = (flow.socket_drops(&network)?, invalid_reason(&network));
    let result = flow.stop()?;
    Ok(ContentionRun { bps: result.bps(from_ms, to_ms), sender: result.sender, socket_drops, invalid_reason })
}

impl Cell {
    fn median_bps(&self) -> Option<f64> {
        let rates: Vec<f64> = self.runs.iter().map(|run| run.bps).collect();
        median(&rates)
    }

    /// Median rate as a multiple of that of `other`.
    fn gain(&self, other: &Self) -> Option<f64> {
        Some(self.median_bps()? / other.median_bps().filter(|bps| *bps > 0.0)?)
    }

    /// Goodput of each run (Mbit/s).
    fn goodputs(&self) -> String {
        if self.runs.is_empty() {
            return dash();
        }
        list(self.runs.iter().map(|run| {
            let mark = if run.invalid_reason.is_some() { "*" } else { "" };
            number(Some(run.bps / 1e6), 1) + mark
        }))
    }

    /// Lost packets of all runs by the evidence that settled them; without evidence that settled
    /// none.
    fn settled(&self) -> String {
        let sum = |of: fn(&SettledLosses) -> u64| -> u64 {
            self.runs.iter().map(|run| of(&run.sender.settled)).sum()
        };
        let parts = SETTLED.map(|(name, of)| (name, sum(of)));
        let shown = parts.iter().filter(|(_, packets)| *packets > 0);
        let shown: Vec<String> = shown.map(|(name, packets)| format!("{name} {packets}")).collect();
        if shown.is_empty() { dash() } else { list(shown) }
    }

    fn rows(&self, contention: Contention) -> Vec<Value> {
        let row = |(round, run): (usize, &ContentionRun)| {
            let sender = &run.sender;
            json!({
                "contention": contention.name, "controller": self.kind.name(), "evidence": self.evidence.name(),
                "mbit_s": MBIT_S, "rtt_ms": RTT_MS, "round": round, "bit_s": run.bps, "sent_packets": sender.sent_packets,
                "lost_packets": sender.lost_packets, "lost_host": sender.lost_host, "lost_network": sender.lost_network,
                "lost_unknown": sender.lost_unknown, "settled": sender.settled, "socket_drops": run.socket_drops,
                "void": run.invalid_reason,
            })
        };
        self.runs.iter().enumerate().map(row).collect()
    }
}

/// Name and number of the losses that one kind of evidence settled.
type Count = (&'static str, fn(&SettledLosses) -> u64);

const SETTLED: [Count; 7] = [
    ("counter", |settled| settled.counter),
    ("marks", |settled| settled.marks),
    ("delay", |settled| settled.delay),
    ("pattern", |settled| settled.pattern),
    ("expired", |settled| settled.expired),
    ("taken back", |settled| settled.taken_back),
    ("pending", |settled| settled.pending),
];

fn row(contention: Contention, counter: &Cell, pattern: &Cell, none: &Cell) -> Vec<String> {
    let gain = |of: &Cell| of.gain(none).map_or_else(dash, factor);
    cells![
        contention.name,
        counter.kind.name(),
        counter.goodputs(),
        pattern.goodputs(),
        none.goodputs(),
        gain(counter),
        gain(pattern),
        counter.settled(),
        pattern.settled(),
    ]
}

/// Floors and goal of `paper`, where only the host loses packets.
fn floors(contention: Contention, counter: &Cell, pattern: &Cell, none: &Cell) -> Vec<String> {
    if contention.has_traffic || counter.kind != ControllerKind::Paper {
        return Vec::new();
    }
    let line = |what: &str, least: f64, of: &Cell| {
        let what = format!("{}: paper, {what} ÷ none", contention.name);
        session::goal_line(&what, Bound::Least(least), of.gain(none))
    };
    vec![
        line("pattern", PATTERN_FLOOR, pattern),
        line("pattern (goal)", PATTERN_GOAL, pattern),
        line("counter", COUNTER_FLOOR, counter),
    ]
}

/// Gains of `paper` over no classifier.
const PATTERN_FLOOR: f64 = 10.0;
const PATTERN_GOAL: f64 = 50.0;
const COUNTER_FLOOR: f64 = 50.0;

/// At 300 Mbit/s the emulator is often late beside both ends on two processors (`network`), and at
/// 100 Mbit/s the quota below would suffice.
const MBIT_S: u64 = 200;
/// Dickens §5: "approximately 65 milliseconds".
const RTT_MS: u64 = 65;

/// Half of Linux's default, because the kernel doubles the request.
const BUFFER: usize = 106_496;

/// Share of the bottleneck at which `paper` begins, as in `network`.
const GIVEN: f64 = 0.98;

/// The least quota of Linux. With 5 of 100 ms our receiver drains 320 to 600 Mbit/s (`busy`), so it
/// needs 2 to 3 of 100 ms here.
const QUOTA_US: u32 = 1_000;
const PERIOD_US: u32 = 100_000;

/// As many threads as the paper's generator runs at most.
const HOGS: usize = 7;

/// More than the rest of the bottleneck that `paper` leaves at its start, so that the queue fills.
const TRAFFIC_SHARE: f64 = 0.6;
/// Many round trips, so that each controller responds to both.
const TRAFFIC_TURN: Duration = Duration::from_secs(1);

/// Runs of each cell. Their order differs between rounds.
const ROUNDS: u64 = 2;

/// Without `--full` a run is this many times as long as one of throughput: it has dozens of the
/// generator's cycles, of 0.3 s on average.
const LONGER: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(evidence: LossEvidence, mbit_s: &[f64], settled: SettledLosses) -> Cell {
        let sender = SenderResult { settled, ..SenderResult::default() };
        let run = |mbit_s: &f64| ContentionRun {
            bps: 1e6 * mbit_s,
            sender: sender.clone(),
            ..ContentionRun::default()
        };
        Cell { kind: ControllerKind::Paper, evidence, runs: mbit_s.iter().map(run).collect() }
    }

    fn three() -> [Cell; 3] {
        let none = SettledLosses::default();
        [
            cell(LossEvidence::Counter, &[60.0, 80.0], SettledLosses { counter: 7, ..none }),
            cell(
                LossEvidence::Pattern,
                &[20.0],
                SettledLosses { pattern: 5, expired: 2, pending: 1, ..none },
            ),
            cell(LossEvidence::None, &[1.0, 1.0], none),
        ]
    }

    #[test]
    fn a_row_has_all_runs_and_the_ratios_of_their_medians() {
        let [counter, pattern, none] = three();
        let row = row(CONTENTIONS[0], &counter, &pattern, &none);
        let shown =
            ["60.0, 80.0", "20.0", "1.0, 1.0", "70", "20", "counter 14", "pattern 5, expired 2, pending 1"];
        assert_eq!(row[..2], ["generator", "paper"]);
        assert_eq!(row[2..], shown);
        let rows = counter.rows(CONTENTIONS[0]);
        assert_eq!((rows.len(), &rows[1]["settled"]["counter"]), (2, &json!(7)));
        assert_eq!((&rows[1]["evidence"], &rows[1]["round"]), (&json!("counter"), &json!(1)));
    }

    #[test]
    fn floors_hold_for_paper_where_only_the_host_loses() {
        let [counter, pattern, none] = three();
        let lines = floors(CONTENTIONS[0], &counter, &pattern, &none).concat();
        assert_eq!((lines.matches(", met").count(), lines.matches("MISSED").count()), (2, 1), "{lines}");
        assert!(floors(CONTENTIONS[3], &counter, &pattern, &none).is_empty());
        let lost = Cell { runs: Vec::new(), ..none };
        assert!(floors(CONTENTIONS[0], &counter, &pattern, &lost).concat().contains("not measured"));
    }

    #[test]
    fn other_datagrams_take_a_share_of_the_path_half_of_the_time() {
        let at = |ms| traffic_bps(Duration::from_millis(ms)) / 1e6;
        assert_eq!([at(0), at(999), at(1000), at(1999), at(2000)], [120.0, 120.0, 0.0, 0.0, 120.0]);
    }
}

//! Shares that a flow of ours leaves to others: to cubic, to bbr, and to its own kind.

use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use barograph_sim::Network;
use barograph_transfer::controller::ControllerKind;
use serde_json::{Value, json};

use super::cross::{CompetitionResult, Other, Window, beside, ours, queue_ms};
use super::flow::{Flow, FlowResult, now_ms};
use super::path::BottleneckPath;
use super::session;
use super::session::{AROUND, Bound, Lanes, Plan, Session};
use crate::emulation::invalid_reason;
use crate::stats::{fair_from, jain};
use crate::table::{Table, dash, number, percent};

const MBIT_S: u64 = 100;
const HALF_BPS: f64 = MBIT_S as f64 * 1e6 / 2.0;
const FLOWS: u64 = 4;
/// Time between the starts of flows of one kind (s).
const APART_S: u64 = 2;
/// The goal is fairness within this time of the last start (s).
const FULL_S: u64 = 30;
/// Without `--full` a run is this many times as long as one of throughput, because shares settle
/// slowly.
const LONGER: u64 = 8;
/// Shares are taken after this part of a run: the first sixth is the start.
const SETTLED: u64 = 6;
const JAIN: f64 = 0.95;
/// Time over which Jain's index is taken (s).
const SPAN_S: u64 = 7;

#[derive(Clone, Copy)]
enum What {
    Four,
    Beside(&'static str),
}

/// Four first: it takes longest, and two concurrent jobs should end together.
const JOBS: [(u64, What); 6] = [
    (20, What::Four),
    (100, What::Four),
    (20, What::Beside("cubic")),
    (20, What::Beside("bbr")),
    (100, What::Beside("cubic")),
    (100, What::Beside("bbr")),
];

enum FairnessCell {
    Four(Four),
    Beside(CompetitionResult),
}

impl FairnessCell {
    fn is_invalid(&self) -> bool {
        match self {
            Self::Four(four) => four.is_invalid,
            Self::Beside(beside) => beside.invalid_reason.is_some(),
        }
    }
}

/// Time for which two flows share the path; shorter without `--full`.
fn seconds(session: &Session) -> u64 {
    if session.is_full { FULL_S } else { LONGER * session.seconds }
}

fn path(session: &Session, rtt_ms: u64) -> BottleneckPath {
    BottleneckPath { mbit_s: MBIT_S, rtt_ms, loss: 0.0, seed: session.seed }
}

fn plan_of(session: &Session, what: What) -> Plan {
    let seconds = match what {
        What::Four => APART_S * (FLOWS - 1) + FULL_S + SPAN_S,
        What::Beside(_) => seconds(session),
    };
    let each = Duration::from_secs(seconds) + AROUND;
    Plan::of(1, each, session.at_once)
}

pub(crate) fn plan(session: &Session) -> Plan {
    let of_kind = || JOBS.iter().map(|(_, what)| plan_of(session, *what)).sum::<Plan>();
    session.kinds().iter().map(|_| of_kind()).sum()
}

pub(crate) fn run(session: &Session) -> anyhow::Result<()> {
    let seconds = seconds(session);
    let legend = format!(
        "{MBIT_S} Mbit/s, a queue of one product, {seconds} s. Beside a flow of iperf3 from the same moment: what ours / the other gets of half the \
         bottleneck after the first sixth, and the median queue that ours meets (its smoothed round trip less the path's). Four of a kind that start \
         {APART_S} s apart, for {} s after the last start: Jain's index after {} s of them, from when on it stays at {JAIN} over {SPAN_S} s (s, from \
         the last start; never: not within {FULL_S} s), and their sum. * The emulator was late or lost packets itself; – it did not run.",
        FULL_S + SPAN_S,
        FULL_S / SETTLED
    );
    let table = Table::titled(
        "controller, round trip | ours / cubic | queue (ms) | ours / bbr | queue (ms) | Jain of four | \
         fair after (s) | % of the bottleneck | queue (ms)",
    );
    let names = session.kinds().into_iter().map(|kind| format!("{kind}, 100 ms"));
    session.report.begin("Fairness", &legend, table, names)?;
    let mut goals = Vec::new();
    let mut lanes = Lanes::new(session.at_once);
    for kind in session.kinds() {
        let measure = |(rtt_ms, what): &(u64, What)| {
            let path = path(session, *rtt_ms);
            let plan = plan_of(session, *what);
            match what {
                What::Four => session.cell(format!("four of {kind}, {rtt_ms} ms"), plan, || {
                    four(session, &path, kind).map(FairnessCell::Four)
                }),
                What::Beside(congestion) => {
                    let window = Window { seconds, from: seconds / SETTLED };
                    let other = Other::Tcp { congestion, flows: 1 };
                    session.cell(format!("{kind} beside {congestion}, {rtt_ms} ms"), plan, || {
                        beside(&path, kind, other, window, session.seed).map(FairnessCell::Beside)
                    })
                }
            }
        };
        let is_invalid =
            |found: &anyhow::Result<FairnessCell>| found.as_ref().map_or(true, FairnessCell::is_invalid);
        let mut found = lanes.run(&JOBS, measure, is_invalid);
        for rtt_ms in [20, 100] {
            let mut row = Row::new(kind, rtt_ms);
            for ((_, what), found) in JOBS.iter().zip(&mut found).filter(|((of, _), _)| *of == rtt_ms) {
                row.add(*what, found);
            }
            goals.extend(row.goals());
            session.report.row(&row.cells(), row.numbers)?;
        }
    }
    session.report.end(&goals)
}

struct Row {
    kind: ControllerKind,
    rtt_ms: u64,
    cubic: Option<CompetitionResult>,
    bbr: Option<CompetitionResult>,
    four: Option<Four>,
    numbers: Vec<Value>,
}

impl Row {
    fn new(kind: ControllerKind, rtt_ms: u64) -> Self {
        Self { kind, rtt_ms, cubic: None, bbr: None, four: None, numbers: Vec::new() }
    }

    fn add(&mut self, what: What, found: &anyhow::Result<FairnessCell>) {
        let mut numbers = json!({ "controller": self.kind.name(), "rtt_ms": self.rtt_ms });
        let beside =
            if let What::Beside(congestion) = what { json!(congestion) } else { json!(self.kind.name()) };
        numbers["beside"] = beside;
        match found {
            Ok(FairnessCell::Beside(of)) => {
                numbers["of_equal_share"] = json!(of.ours_bps / HALF_BPS);
                numbers["others_of_equal_share"] = json!(of.other_bps / HALF_BPS);
                numbers["queue_ms"] = json!(of.queue_ms);
                numbers["void"] = json!(of.invalid_reason);
                let cell =
                    if matches!(what, What::Beside("cubic")) { &mut self.cubic } else { &mut self.bbr };
                *cell = Some(of.clone());
            }
            Ok(FairnessCell::Four(four)) => {
                numbers["four_jain"] = json!(four.jain);
                numbers["fair_after_s"] = json!(four.fair_after_s);
                numbers["four_share"] = json!(four.share);
                numbers["queue_ms"] = json!(four.queue_ms);
                numbers["is_void"] = json!(four.is_invalid);
                self.four = Some(four.clone());
            }
            Err(error) => numbers["failure"] = json!(format!("{error:#}")),
        }
        self.numbers.push(numbers);
    }

    fn cells(&self) -> Vec<String> {
        let queue = |ms: Option<f64>| number(ms, 1);
        let mut cells = vec![format!("{}, {} ms", self.kind, self.rtt_ms)];
        for beside in [&self.cubic, &self.bbr] {
            let Some(of) = beside else {
                cells.extend([dash(), dash()]);
                continue;
            };
            let shares = format!("{:.2} / {:.2}", of.ours_bps / HALF_BPS, of.other_bps / HALF_BPS);
            cells.extend([shares + mark(of.invalid_reason.is_some()), queue(of.queue_ms)]);
        }
        match &self.four {
            Some(four) => cells.extend([
                format!("{:.3}{}", four.jain, mark(four.is_invalid)),
                four.fair_after_s.map_or_else(|| "never".to_owned(), |second| second.to_string()),
                percent(four.share),
                queue(four.queue_ms),
            ]),
            None => cells.extend([dash(), dash(), dash(), dash()]),
        }
        cells
    }

    /// Goals of the default controller; void runs do not count.
    fn goals(&self) -> Vec<String> {
        if self.kind != ControllerKind::DEFAULT {
            return Vec::new();
        }
        let share =
            self.cubic.as_ref().filter(|of| of.invalid_reason.is_none()).map(|of| of.ours_bps / HALF_BPS);
        let four = self.four.as_ref().filter(|four| !four.is_invalid);
        let of = |what: &str| format!("{} ms: {what}", self.rtt_ms);
        let (fair, in_time) =
            (of("seconds after the last start from when on four stay fair"), Bound::Most(FULL_S as f64));
        vec![
            session::goal_line(&of("beside cubic ÷ an equal share"), Bound::Within(0.5, 2.0), share),
            session::goal_line(&of("Jain's index of four"), Bound::Least(JAIN), four.map(|four| four.jain)),
            match four.map(|four| four.fair_after_s) {
                Some(None) => session::goal_never(&fair, in_time),
                after => session::goal_line(&fair, in_time, after.flatten().map(|seconds| seconds as f64)),
            },
        ]
    }
}

#[derive(Clone, Debug)]
struct Four {
    jain: f64,
    /// Time since the last start (s).
    fair_after_s: Option<u64>,
    share: f64,
    queue_ms: Option<f64>,
    is_invalid: bool,
}

fn four(session: &Session, path: &BottleneckPath, kind: ControllerKind) -> anyhow::Result<Four> {
    let network = Network::new(path.link())?;
    let mut flows = Vec::new();
    for number in 0..FLOWS {
        if number > 0 {
            thread::sleep(Duration::from_secs(APART_S));
        }
        flows.push(Flow::start(&network, &ours(path, kind, session.seed + number))?);
    }
    // The last start, including the time of set-up.
    let last_ms = now_ms();
    let to_ms = last_ms + 1000 * (FULL_S + SPAN_S);
    thread::sleep(Duration::from_millis(to_ms.saturating_sub(now_ms())));
    let is_invalid = invalid_reason(&network).is_some();
    let results = flows.into_iter().map(Flow::stop).collect::<anyhow::Result<Vec<FlowResult>>>()?;
    let from_ms = last_ms + 1000 * (FULL_S / SETTLED);
    let between = |from_ms: u64, to_ms: u64| -> Vec<f64> {
        results.iter().map(|result| result.bps(from_ms, to_ms)).collect()
    };
    let shares = between(from_ms, to_ms);
    let is_fair =
        |second: u64| jain(&between(last_ms + 1000 * second, last_ms + 1000 * (second + SPAN_S))) >= JAIN;
    let first = results.first().ok_or_else(|| anyhow!("no flow"))?;
    Ok(Four {
        jain: jain(&shares),
        fair_after_s: fair_from(0, FULL_S, is_fair),
        share: shares.iter().sum::<f64>() / path.bps() as f64,
        queue_ms: queue_ms(first, path, from_ms, to_ms),
        is_invalid,
    })
}

fn mark(is_invalid: bool) -> &'static str {
    if is_invalid { "*" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_never_fair_misses_its_goal_and_a_void_run_is_not_measured() {
        let mut row = Row::new(ControllerKind::DEFAULT, 20);
        let last = |row: &Row| row.goals().pop().unwrap_or_default();
        assert!(last(&row).ends_with("not measured\n"));
        let mut four = Four { jain: 0.5, fair_after_s: None, share: 1.0, queue_ms: None, is_invalid: false };
        row.four = Some(four.clone());
        assert!(last(&row).ends_with("never, MISSED\n"), "{}", last(&row));
        four.fair_after_s = Some(FULL_S);
        row.four = Some(four.clone());
        assert!(last(&row).ends_with("met\n"), "{}", last(&row));
        (four.fair_after_s, four.is_invalid) = (None, true);
        row.four = Some(four);
        assert!(last(&row).ends_with("not measured\n"));
    }
}

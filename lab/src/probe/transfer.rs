//! `goodput` and `goodput_down` against iperf3: the same bytes on the same path, in turns.

use anyhow::Context;
use barograph_forecast::{Battery, Config, Loss};
use barograph_probe::{Direction, Experiment, Plan};
use barograph_sim::{Network, say_skipped};

use super::path::{Bench, Path, Unanswered, measure, once, responder};
use super::peer::iperf3;
use super::row::{Goal, Question, Row, Unit, Verdict};
use crate::iperf;
use crate::stats::median;

/// Progress: one for each pair of transfers.
pub(crate) fn steps(quick: bool) -> u64 {
    cases(quick).iter().map(|case| u64::from(case.pairs) * DIRECTIONS.len() as u64).sum()
}

/// Both directions in each case.
pub(crate) fn rows(bench: &Bench, quick: bool) -> Vec<Row> {
    let present = iperf::is_here();
    if !present {
        say_skipped("iperf3 is not installed");
    }
    let compare_or_skip = |(case, direction): (&Case, Direction)| {
        if present {
            return compare(bench, case, direction);
        }
        let [_, corrected] = questions(direction, &case.path());
        vec![corrected.unanswered(Verdict::Skipped, "iperf3 is not installed".to_owned())]
    };
    let cases = cases(quick).iter().flat_map(|case| DIRECTIONS.map(|direction| (case, direction)));
    cases.flat_map(compare_or_skip).collect()
}

/// A path, and how much is transferred on it.
struct Case {
    rate_bps: u64,
    /// The sender's algorithm; `None` is the kernel's default.
    congestion: Option<&'static str>,
    /// What the bytes take at the path's rate.
    seconds: f64,
    /// Transfers of each, in each direction.
    pairs: u32,
}

impl Case {
    fn path(&self) -> Path {
        Path::shaped(RTT_MS, self.rate_bps, self.congestion)
    }

    fn bytes(&self) -> u64 {
        (self.rate_bps as f64 / 8.0 * self.seconds) as u64
    }
}

/// With the kernel's default, and with the algorithm that every kernel has, which loses once a queue is full.
fn cases(quick: bool) -> &'static [Case] {
    if quick {
        return &[Case { rate_bps: 50_000_000, congestion: None, seconds: 1.5, pairs: 3 }];
    }
    &[
        Case { rate_bps: 50_000_000, congestion: Some("reno"), seconds: 2.5, pairs: 3 },
        Case { rate_bps: 50_000_000, congestion: None, seconds: 2.5, pairs: 5 },
        Case { rate_bps: 100_000_000, congestion: None, seconds: 2.5, pairs: 5 },
    ]
}

/// One transfer of each.
struct Pair {
    raw: f64,
    corrected: f64,
    iperf3: f64,
    /// Bytes that iperf3's receiver counted.
    iperf3_bytes: u64,
}

/// Pairs, each on a fresh network, until enough are good.
fn compare(bench: &Bench, case: &Case, direction: Direction) -> Vec<Row> {
    let (path, bytes) = (case.path(), case.bytes());
    let [raw, corrected] = questions(direction, &path);
    let (mut pairs, mut void, mut why) = (Vec::new(), 0, String::new());
    for attempt in 0..2 * case.pairs {
        if case.pairs <= pairs.len() as u32 || (case.pairs <= attempt && !bench.may_repeat()) {
            break;
        }
        bench.begin(&format!("{}, {}", corrected.measure, path.name));
        // Each goes first as often as the other.
        let ours_first = attempt % 2 == 0;
        match once(&path, attempt.into(), &|network: &Network| pair(network, direction, bytes, ours_first)) {
            Ok(pair) => {
                pairs.push(pair);
                bench.done();
            }
            Err(Unanswered { verdict: Verdict::Void, why: reason }) => {
                void += 1;
                why = reason;
            }
            Err(Unanswered { verdict, why }) => return vec![corrected.unanswered(verdict, why)],
        }
    }
    let note = format!("{} pairs of {:.1} MB, {void} void", pairs.len(), bytes as f64 / 1e6);
    if (pairs.len() as u32) < case.pairs.div_ceil(2) {
        return vec![corrected.unanswered(Verdict::Void, format!("{note}; {why}"))];
    }
    let of =
        |value: fn(&Pair) -> f64| median(&pairs.iter().map(value).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let theirs = of(|pair| pair.iperf3);
    let arrived = of(|pair| pair.iperf3_bytes as f64) / bytes as f64;
    let detail = format!("{note}; iperf3 counted {:.2} % of the bytes", arrived * 100.0);
    vec![
        raw.answered(of(|pair| pair.raw), theirs, note),
        corrected.answered(of(|pair| pair.corrected), theirs, detail),
    ]
}

/// Measures the round trip as a station does, forecasts it, and then makes the two transfers.
fn pair(network: &Network, direction: Direction, bytes: u64, ours_first: bool) -> anyhow::Result<Pair> {
    let station = responder(network)?;
    let target = station.target()?;
    let mut battery = Battery::new(&Config::default());
    for _ in 0..3 {
        let rtt = Experiment::Rtt { n: Plan::RTT_EXCHANGES };
        battery.update(measure(network, &target, rtt, None)?.remove(0).value)?;
    }
    let rtt_forecast_s = battery.forecast(Loss::Absolute).map(|forecast| forecast.value);
    let goodput = || {
        let experiment = Experiment::Goodput { direction, bytes };
        let measured = measure(network, &target, experiment, rtt_forecast_s)?.remove(0);
        anyhow::Ok((measured.value, measured.raw.context("goodput has a raw rate")?))
    };
    let ((corrected, raw), received) = if ours_first {
        (goodput()?, iperf3(network, direction, bytes)?)
    } else {
        let received = iperf3(network, direction, bytes)?;
        (goodput()?, received)
    };
    Ok(Pair { raw, corrected, iperf3: received.bits_per_second, iperf3_bytes: received.bytes })
}

fn questions(direction: Direction, path: &Path) -> [Question; 2] {
    let name = match direction {
        Direction::Up => "goodput",
        Direction::Down => "goodput_down",
    };
    ["raw", "corrected"].map(|kind| Question {
        measure: format!("{name}, {kind}"),
        path: path.name.clone(),
        unit: Unit::Megabits,
        peer: "iperf3",
        goal: Goal::Within(0.05),
    })
}

const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

const RTT_MS: u64 = 20;

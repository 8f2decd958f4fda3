//! Round-trip experiments, and goodput in turns with iperf3.

use anyhow::{Context, ensure};
use barograph_forecast::{Battery, BatteryConfig, Objective};
use barograph_probe::{Direction, Experiment, Plan, Target};
use barograph_sim::{Network, report_skipped};

use super::path::{
    BarePingPong, Nginx, ProbePath, ProbeTestbed, Qperf, Unanswered, iperf3, latencies, measure, once,
    responder,
};
use super::{Comparison, Goal, Row, Unit, Verdict};
use crate::iperf;
use crate::stats::{mean, median};
use crate::tool::find;

/// Steps of progress: three on each path, then handshakes, datagrams, two responses and the loss.
pub(crate) const STEPS: u64 = 3 * PATHS_MS.len() as u64 + 5;

pub(crate) fn rows(testbed: &ProbeTestbed, quick: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for rtt_ms in PATHS_MS {
        let path = ProbePath::of_ms(rtt_ms);
        rows.push(round_trip(testbed, &path, turns(rtt_ms, quick)));
        rows.push(latency(testbed, &path, if quick { 2 } else { 6 }));
        rows.extend(stall(testbed, &path, if quick { 5 } else { 11 }));
    }
    let path = ProbePath::of_ms(SIMPLE_MS);
    let n = if quick { 11 } else { 51 };
    rows.push(against_path(testbed, &path, "connect", n, |network| {
        let station = responder(network)?;
        Ok(measure(network, &station.target()?, Experiment::Connect { n }, None)?.remove(0).value)
    }));
    rows.push(against_path(testbed, &path, "rtt_udp", n, |network| {
        let station = responder(network)?;
        let mut measured = measure(network, &station.target()?, Experiment::Loss { n }, None)?;
        let lost = measured.remove(0).value;
        ensure!(lost == 0.0, "{:.0} % lost on a path without loss", lost * 100.0);
        Ok(measured.remove(0).value)
    }));
    rows.push(against_path(testbed, &path, "response_time of a responder", n, |network| {
        responses(network, &responder(network)?.url()?, n)
    }));
    rows.push(response_of_nginx(testbed, &path, n));
    rows.push(loss(testbed, if quick { 2 } else { 6 }));
    rows
}

/// `rtt` in turns with the bare ping-pong on the same path.
fn round_trip(testbed: &ProbeTestbed, path: &ProbePath, turns: u32) -> Row {
    let comparison = Comparison::new("rtt", path, Unit::Milliseconds, "bare ping-pong", Goal::Within(0.01));
    let exchanges = |network: &Network| {
        let (station, mut bare) = (responder(network)?, BarePingPong::start(network)?);
        let target = station.target()?;
        let ours = || {
            let experiment = Experiment::Rtt { n: EXCHANGES };
            Ok(measure(network, &target, experiment, None)?.remove(0).samples)
        };
        let (ours_s, bare_s) = in_turns(turns, ours, || bare.exchange(EXCHANGES))?;
        Ok((median(&ours_s).context("nothing measured")?, median(&bare_s).context("nothing measured")?))
    };
    comparison.measure_both(testbed, path, format!("{turns} turns of {EXCHANGES} each"), exchanges)
}

/// Mean latency of timed exchanges, in turns with the mean of qperf's request–response of the same
/// size.
fn latency(testbed: &ProbeTestbed, path: &ProbePath, turns: u32) -> Row {
    let peer = "qperf tcp_lat, 2 bytes";
    let comparison = Comparison::new("latency, mean", path, Unit::Milliseconds, peer, Goal::Within(0.05));
    if !Qperf::is_here() {
        report_skipped("qperf is not installed");
        testbed.done();
        return comparison.row_without_value(Verdict::Skipped, "qperf is not installed".to_owned());
    }
    // qperf divides its time by whole exchanges: with a hundred of them the incomplete last one is
    // an error of 1 %.
    let seconds = (100.0 * path.rtt_s()).ceil().max(1.0) as u32;
    let note = format!("{turns} turns: {TIMED} exchanges, {seconds} s of qperf");
    comparison.measure_both(testbed, path, note, |network| {
        let (station, qperf) = (responder(network)?, Qperf::start(network)?);
        let target = station.target()?;
        let theirs = || Ok(vec![qperf.round_trip_s(network, seconds)?]);
        let (ours_s, theirs_s) = in_turns(turns, || latencies(network, &target, TIMED), theirs)?;
        Ok((mean(&ours_s), mean(&theirs_s)))
    })
}

/// Values of both in turns; each goes first equally often.
fn in_turns(
    turns: u32,
    mut ours: impl FnMut() -> anyhow::Result<Vec<f64>>,
    mut theirs: impl FnMut() -> anyhow::Result<Vec<f64>>,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut ours_s, mut theirs_s) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        for is_ours in [turn % 2 == 0, turn % 2 != 0] {
            if is_ours { ours_s.extend(ours()?) } else { theirs_s.extend(theirs()?) }
        }
    }
    Ok((ours_s, theirs_s))
}

/// `rtt_nagle`, and the delayed acknowledgement in it: the second byte waits for the
/// acknowledgement of the first, so that an exchange takes two round trips and the delay.
fn stall(testbed: &ProbeTestbed, path: &ProbePath, n: u32) -> Vec<Row> {
    let nagle = Comparison::new("rtt_nagle", path, Unit::Milliseconds, "rtt", Goal::None);
    let of_stall = Goal::Between(0.035, 0.060);
    let stall = Comparison::new("rtt_nagle − 2 rtt", path, Unit::Milliseconds, "40 ms", of_stall);
    testbed.begin(&format!("rtt_nagle, {}", path.name));
    let outcome = testbed.on(path, |network| {
        let station = responder(network)?;
        let target = station.target()?;
        let rtt = measure(network, &target, Experiment::Rtt { n: EXCHANGES }, None)?.remove(0).value;
        let nagle = measure(network, &target, Experiment::RttNagle { n }, None)?.remove(0).value;
        Ok((nagle, rtt))
    });
    testbed.done();
    match outcome {
        Ok(((value, rtt), invalid)) => {
            let note = format!("{n} exchanges{}", Comparison::repeated(invalid));
            let of_stall = stall.row(value - 2.0 * rtt, DELAYED_ACK_S, note.clone());
            vec![nagle.row(value, rtt, note), of_stall]
        }
        Err(Unanswered { verdict, why }) => vec![stall.row_without_value(verdict, why)],
    }
}

fn against_path(
    testbed: &ProbeTestbed,
    path: &ProbePath,
    name: &str,
    n: u32,
    work: impl Fn(&Network) -> anyhow::Result<f64>,
) -> Row {
    one_round_trip(name, path)
        .measure_both(testbed, path, n.to_string(), |network| Ok((work(network)?, path.rtt_s())))
}

fn one_round_trip(name: &str, path: &ProbePath) -> Comparison {
    Comparison::new(name, path, Unit::Milliseconds, "the path", Goal::Within(0.05))
}

fn response_of_nginx(testbed: &ProbeTestbed, path: &ProbePath, n: u32) -> Row {
    const NAME: &str = "response_time of nginx";
    let Some(program) = find("nginx") else {
        report_skipped("nginx is not installed");
        testbed.done();
        return one_round_trip(NAME, path)
            .row_without_value(Verdict::Skipped, "nginx is not installed".to_owned());
    };
    against_path(testbed, path, NAME, n, |network| {
        responses(network, &Nginx::start(network, &program)?.url()?, n)
    })
}

fn responses(network: &Network, url: &Target, n: u32) -> anyhow::Result<f64> {
    let last_byte = |_| {
        let mut measured = measure(network, url, Experiment::ResponseTime, None)?;
        measured.pop().map(|last_byte| last_byte.value).context("nothing measured")
    };
    let times: Vec<f64> = (0..n).map(last_byte).collect::<anyhow::Result<_>>()?;
    median(&times).context("nothing measured")
}

/// Share of lost datagrams over many runs, against the binomial distribution.
fn loss(testbed: &ProbeTestbed, rounds: u32) -> Row {
    let path = ProbePath::lossy(SIMPLE_MS, LOSS);
    let datagrams = rounds * AT_ONCE * DATAGRAMS;
    let deviation = (LOSS * (1.0 - LOSS) / f64::from(datagrams)).sqrt();
    let goal = Goal::Between(LOSS - DEVIATIONS * deviation, LOSS + DEVIATIONS * deviation);
    let comparison = Comparison::new("loss", &path, Unit::Percent, "the path", goal);
    let note = format!("{} runs of {DATAGRAMS}, {DEVIATIONS} deviations", rounds * AT_ONCE);
    comparison.measure_both(testbed, &path, note, |network| {
        let station = responder(network)?;
        let target = station.target()?;
        let many = || -> anyhow::Result<f64> {
            let one =
                |_| Ok(measure(network, &target, Experiment::Loss { n: DATAGRAMS }, None)?.remove(0).value);
            (0..rounds).map(one).sum()
        };
        // At the same time, because most of a run is waiting.
        let sum: anyhow::Result<f64> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(many)).collect();
            runs.into_iter().map(|run| run.join().expect("measuring does not panic")).sum()
        });
        Ok((sum? / f64::from(rounds * AT_ONCE), LOSS))
    })
}

/// Number of turns: more on a shorter path, where the machine's own noise is a larger share and a
/// turn costs less.
fn turns(rtt_ms: u64, quick: bool) -> u32 {
    let (fewest, sum_ms) = if quick { (4, 80) } else { (12, 240) };
    u32::try_from(sum_ms / rtt_ms).unwrap_or(fewest).max(fewest)
}

impl Comparison {
    /// Measures our value and the peer's on the path and returns the row; `note` gives the number
    /// of runs.
    fn measure_both(
        self,
        testbed: &ProbeTestbed,
        path: &ProbePath,
        note: String,
        work: impl Fn(&Network) -> anyhow::Result<(f64, f64)>,
    ) -> Row {
        testbed.begin(&format!("{}, {}", self.measure, path.name));
        let outcome = testbed.on(path, work);
        testbed.done();
        match outcome {
            Ok(((ours, theirs), invalid)) => self.row(ours, theirs, note + &Self::repeated(invalid)),
            Err(Unanswered { verdict, why }) => self.row_without_value(verdict, why),
        }
    }

    fn repeated(invalid: u32) -> String {
        if invalid == 0 { String::new() } else { format!(", after {invalid} void") }
    }
}

const PATHS_MS: [u64; 3] = [5, 20, 50];

/// Round-trip time of the path for all that is measured on one path only.
const SIMPLE_MS: u64 = 20;

/// Exchanges of one turn, as many as a station makes at a time.
const EXCHANGES: u32 = barograph_probe::Plan::RTT_EXCHANGES;

/// Timed exchanges of one turn; they take a second.
const TIMED: u32 = 50;

/// Linux's shortest delay of an acknowledgement (`TCP_DELACK_MIN`, `include/net/tcp.h`).
const DELAYED_ACK_S: f64 = 0.040;
const LOSS: f64 = 0.1;

/// Datagrams of one run, and concurrent runs, fewer than a responder admits from one address.
const DATAGRAMS: u32 = 50;
const AT_ONCE: u32 = 8;

/// Four standard deviations are exceeded by chance once in 16 000 times.
const DEVIATIONS: f64 = 4.0;

pub(crate) fn transfer_steps(quick: bool) -> u64 {
    cases(quick).iter().map(|case| u64::from(case.pairs) * DIRECTIONS.len() as u64).sum()
}

pub(crate) fn transfer_rows(testbed: &ProbeTestbed, quick: bool) -> Vec<Row> {
    let present = iperf::is_here();
    if !present {
        report_skipped("iperf3 is not installed");
    }
    let compare_or_skip = |(case, direction): (&Case, Direction)| {
        if present {
            return compare(testbed, case, direction);
        }
        let [_, corrected] = comparisons(direction, &case.path());
        vec![corrected.row_without_value(Verdict::Skipped, "iperf3 is not installed".to_owned())]
    };
    let cases = cases(quick).iter().flat_map(|case| DIRECTIONS.map(|direction| (case, direction)));
    cases.flat_map(compare_or_skip).collect()
}

/// A path and the transfers on it.
struct Case {
    rate_bps: u64,
    /// Congestion control of the sender; `None` is the kernel's default.
    congestion: Option<&'static str>,
    seconds: f64,
    /// Pairs of transfers in each direction.
    pairs: u32,
}

impl Case {
    fn path(&self) -> ProbePath {
        ProbePath::shaped(RTT_MS, self.rate_bps, self.congestion)
    }

    fn bytes(&self) -> u64 {
        (self.rate_bps as f64 / 8.0 * self.seconds) as u64
    }
}

/// With the kernel's default, and with Reno, which every kernel has and which loses once a queue is
/// full.
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

struct Pair {
    raw: f64,
    corrected: f64,
    iperf3: f64,
    iperf3_bytes: u64,
}

/// Measures pairs, each on a fresh network, until enough are valid.
fn compare(testbed: &ProbeTestbed, case: &Case, direction: Direction) -> Vec<Row> {
    let (path, bytes) = (case.path(), case.bytes());
    let [raw, corrected] = comparisons(direction, &path);
    let (mut pairs, mut invalid, mut why) = (Vec::new(), 0, String::new());
    for attempt in 0..2 * case.pairs {
        if case.pairs <= pairs.len() as u32 || (case.pairs <= attempt && !testbed.may_repeat()) {
            break;
        }
        testbed.begin(&format!("{}, {}", corrected.measure, path.name));
        // Each goes first equally often.
        let ours_first = attempt % 2 == 0;
        match once(&path, attempt.into(), &|network: &Network| pair(network, direction, bytes, ours_first)) {
            Ok(pair) => {
                pairs.push(pair);
                testbed.done();
            }
            Err(Unanswered { verdict: Verdict::Void, why: reason }) => {
                invalid += 1;
                why = reason;
            }
            Err(Unanswered { verdict, why }) => return vec![corrected.row_without_value(verdict, why)],
        }
    }
    let note = format!("{} pairs of {:.1} MB, {invalid} void", pairs.len(), bytes as f64 / 1e6);
    if (pairs.len() as u32) < case.pairs.div_ceil(2) {
        return vec![corrected.row_without_value(Verdict::Void, format!("{note}; {why}"))];
    }
    let of =
        |value: fn(&Pair) -> f64| median(&pairs.iter().map(value).collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let theirs = of(|pair| pair.iperf3);
    let arrived = of(|pair| pair.iperf3_bytes as f64) / bytes as f64;
    let detail = format!("{note}; iperf3 counted {:.2} % of the bytes", arrived * 100.0);
    vec![raw.row(of(|pair| pair.raw), theirs, note), corrected.row(of(|pair| pair.corrected), theirs, detail)]
}

/// Measures the round trip as a station does, forecasts it, and then makes the two transfers.
fn pair(network: &Network, direction: Direction, bytes: u64, ours_first: bool) -> anyhow::Result<Pair> {
    let station = responder(network)?;
    let target = station.target()?;
    let mut battery = Battery::new(&BatteryConfig::default());
    for _ in 0..3 {
        let rtt = Experiment::Rtt { n: Plan::RTT_EXCHANGES };
        battery.update(measure(network, &target, rtt, None)?.remove(0).value)?;
    }
    let rtt_forecast_s = battery.forecast(Objective::Absolute).map(|forecast| forecast.value);
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

fn comparisons(direction: Direction, path: &ProbePath) -> [Comparison; 2] {
    let name = match direction {
        Direction::Up => "goodput",
        Direction::Down => "goodput_down",
    };
    let of = |kind| {
        Comparison::new(&format!("{name}, {kind}"), path, Unit::Megabits, "iperf3", Goal::Within(0.05))
    };
    ["raw", "corrected"].map(of)
}

const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];
const RTT_MS: u64 = 20;

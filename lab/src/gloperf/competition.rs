//! What a test takes from a competing flow, and adds to the bottleneck's queue.
//!
//! "What is the best metric for 'intrusiveness'? The number of bytes transferred? […] The bandwidth
//! actually denied to other flows? The congestion precipitated at routers along the path?" (Gloperf
//! §4.) An emulated path allows to measure both.

use std::io::{Read as _, Write as _};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use barograph_probe::calibration::Calibration;
use barograph_probe::io::{ProbeContext, ResponderLimits, stream};
use barograph_probe::stream::{EarlyStopPolicy, StreamEnd};
use barograph_probe::{StreamPlan, StreamResult, Target};
use barograph_sim::{Host, Link, LinkSpec, Network, Queue};
use indicatif::ProgressBar;

use super::campaign::CONGESTION;
use super::findings;
use crate::calibrated::Calibrated;
use crate::emulation::{Responder, forget_connections, ping_pong};
use crate::jobs::Task;
use crate::stats::{Rank, median, quantile, sorted};
use crate::table::{Table, cells, list};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Ends after [`TEST_S`] in any case.
    Full,
    /// Ends as a station's test does on a path that full tests beside the same flow have
    /// calibrated; after [`TEST_S`] if its estimate is rejected.
    Early,
}

struct Run {
    test: StreamResult,
    /// Rate (bit/s) of the competing flow before, during and after the test. During an early test
    /// means until its end.
    competing_bps: [f64; 3],
    /// Bytes that the competing flow sent less than at its earlier rate, from the start of the test
    /// until [`AFTER_S`] after the end of a full test: the same time for both endings.
    denied_bytes: f64,
    /// Medians of round-trip times (s) in the same phases.
    rtt_s: [f64; 3],
    /// The 95th percentile (s) during the test.
    rtt_high_s: f64,
    /// Packets that found the queue full in the whole run.
    dropped: u64,
    /// Why the run is void because of the emulator, if it is.
    invalid_reason: Option<String>,
}

/// Measures the runs of both kinds and reports them. Full tests come first: they calibrate the path
/// for the others.
pub(crate) fn report(runs: u32, seed: u64) -> anyhow::Result<String> {
    let runs = u64::from(runs);
    let full = runs.max(Calibration::TESTS_MIN);
    let bar = ProgressBar::new(full + runs);
    let (mut path, mut all) = (Calibrated::new(), Vec::new());
    for i in 0..full + runs {
        let ending = if i < full { Ending::Full } else { Ending::Early };
        let early = if ending == Ending::Early { path.early() } else { None };
        let run = run(early, seed + i)?;
        bar.inc(1);
        if run.invalid_reason.is_none() {
            path.learn(&run.test, early.is_some())?;
        }
        all.push((ending, run));
    }
    bar.finish_and_clear();
    Ok(table(&all))
}

fn run(early: Option<EarlyStopPolicy>, seed: u64) -> anyhow::Result<Run> {
    let spec = LinkSpec {
        rate_bps: Some(RATE_BPS),
        delay: RTT / 2,
        queue: Queue::Bdp(1.0),
        seed,
        ..LinkSpec::default()
    };
    let network = Network::new(Link::symmetric(spec))?;
    forget_connections(&network)?;
    // Each flow has its own responder, because a responder accepts one bulk test at a time.
    let responder = || Responder::start(&network.b, ResponderLimits::default());
    let (first, second) = (responder()?, responder()?);
    let (competitor, tested) = (first.target()?, second.target()?);
    let pings = pings(&network)?;
    let began = Instant::now();
    let (competing, test, from_s) = thread::scope(|scope| {
        let competing = scope.spawn(|| send(&network.a, &competitor, ALL_S, None));
        thread::sleep(Duration::from_secs_f64(TEST_AT_S).saturating_sub(began.elapsed()));
        let from_s = began.elapsed().as_secs_f64();
        let test = send(&network.a, &tested, TEST_S, early);
        (competing.join(), test, from_s)
    });
    let competing = competing.map_err(|_| anyhow!("the competing flow's thread panicked"))??;
    let (test, rtts) = (test?, pings.finish().unwrap_or_default());
    let report = network.report().context("a relay has a report")?;
    // The competing flow's own clock begins one handshake after ours: a thousandth of a phase.
    let acked = |from_s: f64, to_s: f64| acked_bytes(&competing, to_s) - acked_bytes(&competing, from_s);
    let to_s = from_s + test.duration_s;
    let phases = [(SETTLED_S, from_s), (from_s, to_s), (to_s + RECOVERY_S, ALL_S - 0.5)];
    let rates = phases.map(|(from_s, to_s)| 8.0 * acked(from_s, to_s) / (to_s - from_s));
    let until_s = from_s + TEST_S + AFTER_S;
    let rtts_of = |(from_s, to_s): (f64, f64)| {
        let within = rtts.iter().filter(|(at_s, _)| (from_s..to_s).contains(at_s));
        within.map(|(_, rtt_s)| *rtt_s).collect::<Vec<f64>>()
    };
    let during = sorted(rtts_of(phases[1]));
    Ok(Run {
        competing_bps: rates,
        denied_bytes: rates[0] / 8.0 * (until_s - from_s) - acked(from_s, until_s),
        rtt_s: phases.map(|phase| median(&rtts_of(phase)).unwrap_or(f64::NAN)),
        rtt_high_s: quantile(&during, 0.95, Rank::Above).unwrap_or(f64::NAN),
        dropped: report.forward.queue_full,
        invalid_reason: report.invalid_reason().map(|reason| reason.to_string()),
        test,
    })
}

fn send(
    host: &Host,
    target: &Target,
    seconds: f64,
    early: Option<EarlyStopPolicy>,
) -> anyhow::Result<StreamResult> {
    let congestion = Some(CONGESTION.to_owned());
    let plan = StreamPlan { seconds, congestion, early, ..StreamPlan::full() };
    let context = ProbeContext { deadline: DEADLINE, ..ProbeContext::default() };
    Ok(host.run(|| stream(target, &plan, &context))??)
}

/// Bytes acknowledged until `at_s`; after the last sample, all of them.
fn acked_bytes(streamed: &StreamResult, at_s: f64) -> f64 {
    let last = || streamed.samples.as_slice().last().map_or(0.0, |last| last.acked_bytes as f64);
    findings::acked_bytes(streamed.samples.as_slice(), at_s).unwrap_or_else(last)
}

fn pings(network: &Network) -> anyhow::Result<Task<Vec<(f64, f64)>>> {
    let mut tcp = ping_pong(network, DEADLINE)?;
    let began = Instant::now();
    Ok(Task::start(move |stop| {
        let (mut rtts, mut bytes) = (Vec::new(), [0; 2]);
        while !stop.load(Ordering::Relaxed) {
            let at = Instant::now();
            if tcp.write_all(&bytes).and_then(|()| tcp.read_exact(&mut bytes)).is_err() {
                break;
            }
            rtts.push(((at - began).as_secs_f64(), at.elapsed().as_secs_f64()));
            thread::sleep(PING_EVERY);
        }
        rtts
    }))
}

fn table(all: &[(Ending, Run)]) -> String {
    let mut table = Table::titled(
        "test | runs | ended early | length s | test Mbit/s | test MB | \
         competing Mbit/s before, during, after | denied MB | denied ÷ sent | \
         queue ms before, during, after | 95th | drops",
    );
    for (ending, name) in [(Ending::Full, "full"), (Ending::Early, "may end early")] {
        let runs: Vec<&Run> = all
            .iter()
            .filter(|(of, run)| *of == ending && run.invalid_reason.is_none())
            .map(|(_, run)| run)
            .collect();
        let middle = |of: &dyn Fn(&Run) -> f64| {
            median(&runs.iter().map(|run| of(run)).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let phases = |of: &dyn Fn(&Run, usize) -> f64| {
            list([0, 1, 2].map(|phase| format!("{:.1}", middle(&|run| of(run, phase)))))
        };
        // The round-trip time beyond the path's delay is time in the queue.
        let queue_ms = |rtt_s: f64| 1e3 * (rtt_s - RTT.as_secs_f64());
        table.push(cells![
            name,
            runs.len(),
            runs.iter().filter(|run| matches!(run.test.ended, StreamEnd::Early(_))).count(),
            format!("{:.2}", middle(&|run| run.test.duration_s)),
            format!("{:.1}", middle(&|run| run.test.rate_bit_s() / 1e6)),
            format!("{:.2}", middle(&|run| run.test.bytes as f64 / 1e6)),
            phases(&|run, phase| run.competing_bps[phase] / 1e6),
            format!("{:.2}", middle(&|run| run.denied_bytes / 1e6)),
            format!("{:.2}", middle(&|run| run.denied_bytes / run.test.bytes as f64)),
            phases(&|run, phase| queue_ms(run.rtt_s[phase])),
            format!("{:.1}", middle(&|run| queue_ms(run.rtt_high_s))),
            format!("{:.0}", middle(&|run| run.dropped as f64)),
        ]);
    }
    let voids: Vec<&str> = all.iter().filter_map(|(_, run)| run.invalid_reason.as_deref()).collect();
    let told = if voids.is_empty() { String::new() } else { format!(" ({})", voids.join("; ")) };
    format!(
        "{:.0} Mbit/s, {} ms, a queue of one bandwidth–delay product ({:.0} ms), one competing {CONGESTION} flow. Medians; \
         queue: round trips less the path's delay; denied: what the competing flow moved less than before over the same \
         {:.0} s from the test's begin. Void: {} of {} runs{told}.\n\n{}",
        RATE_BPS as f64 / 1e6,
        RTT.as_millis(),
        1e3 * RTT.as_secs_f64(),
        TEST_S + AFTER_S,
        voids.len(),
        all.len(),
        table
    )
}

/// The emulator carries this rate with ease on a busy machine; the delay is one between
/// neighbouring countries.
const RATE_BPS: u64 = 30_000_000;
const RTT: Duration = Duration::from_millis(40);

/// The paper's longest test.
const TEST_S: f64 = 10.0;

/// The competing flow has the path to itself for 7 s, of which the first 2 s are its start. After
/// the test it has 3 s to recover before it is measured again.
const SETTLED_S: f64 = 2.0;
const TEST_AT_S: f64 = 7.0;
const RECOVERY_S: f64 = 3.0;
const AFTER_S: f64 = 4.0;

/// Within the limit of a responder, by default 30 s.
const ALL_S: f64 = 23.0;

/// A packet of 60 bytes every 20 ms is a negligible load.
const PING_EVERY: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_secs(10);

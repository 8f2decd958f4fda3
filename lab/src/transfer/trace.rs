//! The first seconds of `paper` to a busy host: rate, verdicts and estimate of the loss rate over
//! time, with a figure.

use std::path::Path;
use std::time::Duration;

use barograph_transfer::controller::ControllerKind;
use barograph_transfer::testkit::Sender;
use serde_json::json;

use super::contention::{BUFFERS, MBIT_S, RTT_MS, busy_path};
use super::host::Busy;
use super::run::{Case, Ours};
use crate::evidence::LossEvidence;
use crate::figure::{Axis, Chart, Layer, Shape, charts, highest, ticks};
use crate::output::{name, save};
use crate::table::{Section, Table, cells};

const BUSY: Busy = Busy::Generator;
/// Linux's default socket buffer (bytes), which the generator's stalls overrun.
const BUFFER: u64 = BUFFERS[1];

/// Without a counter, the rate is lost or kept within this time (s).
const SECONDS: u64 = 10;
/// Some round trips, so that a window of `paper` has a sample.
const STEP: Duration = Duration::from_millis(50);

/// Times of the rows of the table (s).
const ROWS_S: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0];

const FIGURE: &str = "transfer-trace.svg";

/// Writes the figure into the folder `out`.
pub(crate) fn table(seed: u64, out: &Path) -> anyhow::Result<Section> {
    let traces = traces(SECONDS, seed)?;
    save(out, FIGURE, &figure(&traces)?)?;
    Ok(section(&traces))
}

/// State of a sender at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Time since the start (s).
    at_s: f64,
    rate_mbit_s: f64,
    /// Packets lost since the start, by verdict: the host's, and those charged to the network.
    host: u64,
    charged: u64,
    /// Lost packets without a verdict.
    pending: u64,
    /// Packets charged to the network first and to the host later.
    taken_back: u64,
    /// The controller's estimate: packets charged to the network, of all packets acknowledged or
    /// lost since the start.
    estimate: f64,
}

impl Sample {
    fn new(at: Duration, sender: &Sender) -> Self {
        let stats = sender.stats();
        let charged = stats.lost_network + stats.lost_unknown;
        let acked = stats.acked_bytes / u64::from(sender.payload_bytes());
        let counted = acked + charged + stats.lost_host;
        Self {
            at_s: at.as_secs_f64(),
            rate_mbit_s: sender.rate_bytes_s() / 125_000.0,
            host: stats.lost_host,
            charged,
            pending: stats.pending,
            taken_back: stats.taken_back,
            estimate: charged as f64 / counted.max(1) as f64,
        }
    }
}

/// Samples of a run with one kind of evidence.
struct Trace {
    evidence: LossEvidence,
    samples: Vec<Sample>,
}

/// Traces in the order of [`LossEvidence::ALL`].
fn traces(seconds: u64, seed: u64) -> anyhow::Result<Vec<Trace>> {
    let path = busy_path(BUSY, BUFFER, 0.0, seed, Duration::from_secs(seconds));
    let trace = |evidence: LossEvidence| {
        let flow = Ours { evidence, ..Ours::new(ControllerKind::Paper) };
        let case = Case { path: path.clone(), flows: vec![flow], seconds };
        anyhow::Ok(Trace { evidence, samples: case.trace(STEP, Sample::new)? })
    };
    LossEvidence::ALL.into_iter().map(trace).collect()
}

fn section(traces: &[Trace]) -> Section {
    let mut table = Table::new(["time (s)"])
        .and(traces.iter().map(|trace| format!("rate, {}", trace.evidence.name())))
        .and(traces.iter().map(|trace| format!("estimate, {}", trace.evidence.name())))
        .and(VERDICTS.map(|(verdict, _)| format!("pattern: {verdict}")));
    for at_s in ROWS_S {
        let samples: Vec<&Sample> = traces.iter().filter_map(|trace| sample_at(trace, at_s)).collect();
        // A trace that ends earlier has no row.
        let [_, pattern, _] = samples.as_slice() else { continue };
        let rates = samples.iter().map(|sample| format!("{:.1}", sample.rate_mbit_s));
        let estimates = samples.iter().map(|sample| format!("{:.5}", sample.estimate));
        let verdicts = VERDICTS.map(|(_, of)| of(pattern).to_string());
        table.push(cells![at_s].into_iter().chain(rates).chain(estimates).chain(verdicts));
    }
    let rows = traces.iter().flat_map(|trace| {
        trace.samples.iter().map(move |sample| {
            json!({
                "controller": ControllerKind::Paper.name(), "host": name(BUSY), "buffer_bytes": BUFFER,
                "evidence": trace.evidence.name(), "at_s": sample.at_s, "rate_mbit_s": sample.rate_mbit_s,
                "lost_host": sample.host, "charged": sample.charged, "pending": sample.pending,
                "taken_back": sample.taken_back, "estimate": sample.estimate,
            })
        })
    });
    let legend = format!(
        "`paper`, {MBIT_S} Mbit/s, {RTT_MS} ms, to the {}'s host with a buffer of {} kB, as in \"A busy host\": with the receiver's counter, by the \
         pattern alone, and without a classifier. Rate: what the controller permits (Mbit/s). Estimate: packets charged to the network, of all since \
         the start. The other columns are packets lost since the start by their verdict: of the host; charged to the network; pending, without a \
         verdict yet; taken back, charged first and the host's later. Also as a [figure](../figures/{FIGURE}).",
        name(BUSY),
        BUFFER / 1000,
    );
    Section::new("The first seconds of `paper` to a busy host", &legend, &table, rows.collect())
}

/// The last sample at a time or before; `None` if the trace ends earlier.
fn sample_at(trace: &Trace, at_s: f64) -> Option<&Sample> {
    let is_long = trace.samples.last().is_some_and(|last| at_s <= last.at_s + 0.5 * STEP.as_secs_f64());
    let before = trace.samples.iter().take_while(|sample| sample.at_s <= at_s + 0.5 * STEP.as_secs_f64());
    before.last().filter(|_| is_long)
}

/// Name of a verdict, and its packets.
type Verdicts = (&'static str, fn(&Sample) -> u64);

const VERDICTS: [Verdicts; 4] = [
    ("the host's", |sample| sample.host),
    ("charged", |sample| sample.charged),
    ("pending", |sample| sample.pending),
    ("taken back", |sample| sample.taken_back),
];

/// Rate, verdicts by the pattern, and estimate, one below the other.
fn figure(traces: &[Trace]) -> anyhow::Result<String> {
    let time = || {
        let seconds: Vec<f64> = (0..=SECONDS / 2).map(|half| 2.0 * half as f64).collect();
        Axis::linear("time (s)", 0.0, SECONDS as f64).with_ticks(ticks(&seconds, ""))
    };
    let log = |name: &str, low: f64, high: f64| Axis::log(name, low, high).with_ticks(ticks(&POWERS, ""));
    let lines = |of: fn(&Sample) -> f64| -> Vec<Layer> {
        let line = |(trace, colour): (&Trace, usize)| {
            let points = trace.samples.iter().map(|sample| (sample.at_s, of(sample))).collect();
            Layer::new(trace.evidence.name(), Shape::Thin, points, colour)
        };
        traces.iter().zip(COLOURS).map(line).collect()
    };
    let by_pattern = traces.iter().filter(|trace| trace.evidence == LossEvidence::Pattern);
    let verdicts: Vec<Layer> = by_pattern
        .flat_map(|trace| {
            VERDICTS.into_iter().enumerate().map(move |(colour, (verdict, of))| {
                let points = trace.samples.iter().map(|sample| (sample.at_s, of(sample) as f64)).collect();
                Layer::new(verdict, Shape::Thin, points, colour)
            })
        })
        .collect();
    let most = highest(&verdicts);
    let most = POWERS.into_iter().find(|power| most.max(10.0) <= *power).unwrap_or(most);
    let panels = [
        Chart::new("Rate of paper", time(), log("Mbit/s", 0.1, 1000.0), lines(|sample| sample.rate_mbit_s)),
        Chart::new("Verdicts by the pattern alone", time(), log("packets", 1.0, most), verdicts),
        Chart::new(
            "Estimate of the loss rate",
            time(),
            log("lost", 1e-5, 1.0),
            lines(|sample| sample.estimate),
        ),
    ];
    charts(&panels, 1)
}

/// Ticks of the logarithmic axes, each of which shows those in its range.
const POWERS: [f64; 12] = [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];

/// Colours of the traces: as indices of the figure's colours.
const COLOURS: [usize; 3] = [2, 0, 3];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_shows_that_the_rate_collapses_without_a_classifier() {
        let traces = traces(4, 3).unwrap();
        let last = |evidence: LossEvidence| {
            let trace = traces.iter().find(|trace| trace.evidence == evidence).unwrap();
            *trace.samples.last().unwrap()
        };
        let (counter, pattern, none) =
            (last(LossEvidence::Counter), last(LossEvidence::Pattern), last(LossEvidence::None));
        assert!(10.0 * none.rate_mbit_s < counter.rate_mbit_s, "{none:?} {counter:?}");
        assert!(none.host == 0 && 0 < none.charged && 0.0 < none.estimate, "{none:?}");
        assert!(0 < counter.host && counter.estimate < none.estimate, "{counter:?}");
        assert!(0 < pattern.host + pattern.charged + pattern.pending, "{pattern:?}");
        // Each 50 ms, from the start to the end.
        assert!(traces.iter().all(|trace| trace.samples.len() == 81));

        let section = section(&traces);
        assert_eq!(section.rows.len(), 3 * 81);
        assert!(section.text.contains("| 4 "), "{}", section.text);
        assert!(!section.text.contains("| 7 "), "the trace has no such time: {}", section.text);
        let figure = figure(&traces).unwrap();
        for text in ["Rate of paper", "taken back", "pattern", "none", "0.00001"] {
            assert!(figure.contains(text), "no {text}");
        }
    }
}

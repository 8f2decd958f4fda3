//! Dickens Table 1 with our runs: which windows lose packets, and which verdicts they get, comes
//! from whole runs and not from the paper's counts.

use std::collections::HashMap;

use anyhow::Context as _;
use barograph_loss::{Label, LabelledWindow, LossRun, Meter, Verdict};
use barograph_sim::SeededRng;

use super::super::judge::{BANDS, Judged, Method, VerdictOutcome, percent, those};
use super::super::tables::{TABLE_2, TRANSFERS, Transfer};
use super::super::windows::Run;
use super::{Estimate, PACKETS, PATH, SEEDS, mbit, pick, tilt};
use crate::stats::range;
use crate::table::{Table, cells, dash, factor};

/// Simulates transfers that are made of our runs, for each classifier. `judged` has the verdicts
/// on the windows of these runs.
pub(super) fn table(judged: &[Judged<'_>], runs: &[Run], seed: u64) -> anyhow::Result<String> {
    let pool = those(judged, |window| window.cause == Label::Host && window.signature.packets() == PACKETS);
    let known: HashMap<WindowKey, usize> =
        pool.iter().enumerate().map(|(index, judged)| (key(judged.window), index)).collect();
    let (mut host_runs, mut meter, mut left_out) = (Vec::new(), Meter::new(), 0);
    for run in runs.iter().filter(|run| run.is_host) {
        let mut windows = Vec::new();
        run.cut_all(PACKETS, &mut meter, |window| windows.push(window)).with_context(|| run.name.clone())?;
        match HostRun::of(&windows, &known) {
            Some(run) => host_runs.push(run),
            // A run that is shorter than a window cannot be used, and is not counted.
            None => left_out += usize::from(!windows.is_empty()),
        }
    }
    if host_runs.is_empty() {
        return Ok(format!(
            "\n{TITLE}\n\nNo run of {PACKETS} packets or more has losses by the CPU alone.\n"
        ));
    }
    let mut text = format!("\n{TITLE}\n\n");
    let (least, most) = range(host_runs.iter().map(|run| run.loss_rate));
    text += &format!(
        "{} runs in which only the CPU lost packets, of {} windows of {PACKETS} packets with and without losses (long-term loss {least:.5} to {most:.5}); {left_out} \
         more runs had a window with another cause, or without a verdict. A transfer is a sequence of {} windows: whole runs, drawn so that the \
         long-term loss is about the paper's; means of {SEEDS} seeds. Events: windows with losses / those that lost at least {}. Right, called \
         network and neither: % of the latter, by models not fitted on the window's run. Payload without → with the classifier, Mb/s; the ceiling is {}.\n\n",
        host_runs.len(),
        host_runs.iter().map(|run| run.windows.len()).sum::<usize>(),
        Transfer::WINDOWS,
        BANDS[0],
        mbit(PATH.ceiling_packets() * PATH.payload_bytes * 8.0 / PATH.round_trip_s),
    );
    let mut table = Table::titled(
        "long-term loss, the paper's | classifier | measured | events / in range | right | called network | \
         neither | packets, cumulative | events, RFC 5348",
    )
    .text_columns(2);
    let papers_rates =
        TABLE_2.into_iter().filter(|(cause, ..)| *cause == Label::Host).map(|(.., rates)| rates);
    for (transfer, papers) in TRANSFERS.iter().zip(papers_rates) {
        let Some(weights) = weights(&host_runs, transfer.loss_rate) else {
            text += &format!("No mixture of the runs has a long-term loss of {}.\n\n", transfer.loss_rate);
            continue;
        };
        let mut mean = Measured::default();
        for seed in seed..seed + SEEDS {
            mean.add(&pool, &drawn(&host_runs, &weights, seed));
        }
        for method in 0..METHODS.len() {
            table.push(mean.cells(transfer, method));
        }
        table.push(papers_cells(transfer, papers));
    }
    Ok(if table.is_empty() { text } else { text + &table.to_string() })
}

const TITLE: &str = "## Table 1, with labels measured in each transfer";

/// Classifiers, with their names. A sender always knows its own burst.
const METHODS: [(Method, &str); 3] =
    [(Method::Paper, "the paper's"), (Method::Burst, "ours, by pattern"), (Method::Counter, "counter")];

/// Estimates of the columns of throughput.
const ESTIMATES: [Estimate; 2] = [Estimate::Cumulative, Estimate::LossEvents];

/// Random stream of the seed for the order of the runs.
const RUNS_STREAM: u64 = 4;

/// A window's run and gaps (packets received before each, and lost).
type WindowKey = (String, Vec<(u32, u32)>);

fn key(window: &LabelledWindow) -> WindowKey {
    let gaps = window.signature.loss_runs().map(|gap| (gap.received, gap.lost));
    (window.run.clone(), gaps.collect())
}

/// A run in which only the host lost packets.
#[derive(Clone, Debug, PartialEq)]
struct HostRun {
    /// For each window its index in the pool, or `None` if it lost nothing.
    windows: Vec<Option<usize>>,
    loss_rate: f64,
}

impl HostRun {
    /// `None` without windows, or if a window with losses has another cause or is not known.
    fn of(windows: &[Option<LabelledWindow>], known: &HashMap<WindowKey, usize>) -> Option<Self> {
        if windows.is_empty() {
            return None;
        }
        let is_host = |window: &LabelledWindow| window.cause == Label::Host;
        let index = |window: &Option<LabelledWindow>| match window {
            None => Some(None),
            Some(window) => known.get(&key(window)).filter(|_| is_host(window)).map(|index| Some(*index)),
        };
        let lost: u32 = windows.iter().flatten().map(|window| window.signature.lost()).sum();
        let loss_rate = f64::from(lost) / (f64::from(PACKETS) * windows.len() as f64);
        Some(Self { windows: windows.iter().map(index).collect::<Option<_>>()?, loss_rate })
    }
}

/// Weights with which runs are drawn so that the windows lose this share of the packets in the
/// mean; `None` if no weights do.
fn weights(runs: &[HostRun], loss_rate: f64) -> Option<Vec<f64>> {
    let rates: Vec<f64> = runs.iter().map(|run| run.loss_rate).collect();
    // Weights of windows. A run with more windows is drawn less often for the same weight.
    let windows = tilt(&rates, loss_rate)?;
    let raw: Vec<f64> =
        windows.iter().zip(runs).map(|(weight, run)| weight / run.windows.len() as f64).collect();
    let all: f64 = raw.iter().sum();
    Some(raw.into_iter().map(|weight| weight / all).collect())
}

/// The windows of one transfer.
fn drawn(runs: &[HostRun], weights: &[f64], seed: u64) -> Vec<Option<usize>> {
    let (mut rng, mut windows) = (SeededRng::new(seed, RUNS_STREAM), Vec::new());
    while windows.len() < Transfer::WINDOWS {
        windows.extend_from_slice(&runs[pick(weights, &mut rng)].windows);
    }
    windows.truncate(Transfer::WINDOWS);
    windows
}

/// Sums of events, verdicts and throughputs over transfers.
#[derive(Debug, Default)]
struct Measured {
    transfers: f64,
    packets: f64,
    lost: f64,
    events: f64,
    in_range: f64,
    /// For each classifier, the events in range that it calls the CPU's, the network's, and
    /// neither.
    verdicts: [[f64; 3]; METHODS.len()],
    /// Throughputs (bit/s) by estimate, without and with each classifier.
    without: [f64; ESTIMATES.len()],
    with: [[f64; ESTIMATES.len()]; METHODS.len()],
}

impl Measured {
    fn add(&mut self, pool: &[&Judged<'_>], windows: &[Option<usize>]) {
        let lossy = || windows.iter().flatten().map(|index| pool[*index]);
        self.transfers += 1.0;
        self.packets += f64::from(PACKETS) * windows.len() as f64;
        self.lost += lossy().map(|judged| f64::from(judged.window.signature.lost())).sum::<f64>();
        self.events += lossy().count() as f64;
        for judged in lossy().filter(|judged| BANDS[0] <= judged.window.signature.loss_rate()) {
            self.in_range += 1.0;
            for ((method, _), verdicts) in METHODS.iter().zip(&mut self.verdicts) {
                let verdict = match judged.outcome(*method) {
                    VerdictOutcome::Right => 0,
                    VerdictOutcome::Wrong => 1,
                    VerdictOutcome::Hybrid | VerdictOutcome::Inconclusive => 2,
                };
                verdicts[verdict] += 1.0;
            }
        }
        self.simulate(pool, windows);
    }

    fn simulate(&mut self, pool: &[&Judged<'_>], windows: &[Option<usize>]) {
        let gaps: Vec<Vec<LossRun>> =
            pool.iter().map(|judged| judged.window.signature.loss_runs().collect()).collect();
        // Throughput with the windows that the sender attributes to the network.
        let reach = |estimate: Estimate, is_host: &dyn Fn(&Judged<'_>) -> bool| {
            let windows = windows.iter().map(|window| match window {
                Some(index) if !is_host(pool[*index]) => gaps[*index].as_slice(),
                _ => &[],
            });
            PATH.throughput_bit_s(windows, &mut *estimate.start())
        };
        for (at, estimate) in ESTIMATES.into_iter().enumerate() {
            self.without[at] += reach(estimate, &|_| false);
            for ((method, _), with) in METHODS.iter().zip(&mut self.with) {
                with[at] += reach(estimate, &|judged| judged.diagnosis(*method).verdict == Verdict::Host);
            }
        }
    }

    /// Row of the classifier at this position of [`METHODS`].
    fn cells(&self, transfer: &Transfer, method: usize) -> Vec<String> {
        let [right, network, neither] = self.verdicts[method].map(|count| count / self.in_range.max(1.0));
        let throughputs = self.without.iter().zip(self.with[method]).map(|(without, with)| {
            let [without, with] = [*without, with].map(|bit_s| bit_s / self.transfers);
            format!("{} → {} (×{})", mbit(without), mbit(with), factor(with / without))
        });
        let cells = cells![
            transfer.loss_rate,
            METHODS[method].1,
            format!("{:.5}", self.lost / self.packets),
            format!("{:.0} / {:.0}", self.events / self.transfers, self.in_range / self.transfers),
            percent(right),
            percent(network),
            percent(neither),
        ];
        cells.into_iter().chain(throughputs).collect()
    }
}

/// Row of the paper's own Table 1.
fn papers_cells(transfer: &Transfer, [right, network, neither]: [&str; 3]) -> Vec<String> {
    let (with, without) = (transfer.with_mbit_s, transfer.without_mbit_s);
    cells![
        transfer.loss_rate,
        "as printed by the paper",
        transfer.loss_rate,
        format!("{} / {}", transfer.lossy, transfer.lossy - transfer.below_range),
        right,
        network,
        neither,
        format!("{without} → {with} (×{})", factor(with / without)),
        dash(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::judge::Models;
    use super::super::super::judge::tests::made;

    use super::*;

    /// Runs of the windows of a pool, each after some windows without losses.
    fn runs_of(pool: &[&Judged<'_>]) -> Vec<HostRun> {
        let run = |(index, judged): (usize, &&Judged<'_>)| {
            let clean = 10 + index % 40;
            let windows: Vec<Option<usize>> = std::iter::repeat_n(None, clean).chain([Some(index)]).collect();
            let loss_rate = judged.window.signature.loss_rate() / windows.len() as f64;
            HostRun { windows, loss_rate }
        };
        pool.iter().enumerate().map(run).collect()
    }

    #[test]
    fn a_run_keeps_its_windows_in_order_and_has_only_losses_of_the_host() {
        let windows = made(PACKETS, 1, 2, 3);
        let host: Vec<&LabelledWindow> =
            windows.iter().filter(|window| window.cause == Label::Host).collect();
        let network = windows.iter().find(|window| window.cause == Label::Network).unwrap();
        let known = host.iter().enumerate().map(|(index, window)| (key(window), index)).collect();
        let run = [None, Some(host[1].clone()), None, Some(host[0].clone())];
        let found = HostRun::of(&run, &known).unwrap();
        assert_eq!(found.windows, [None, Some(1), None, Some(0)]);
        let lost = f64::from(host[0].signature.lost() + host[1].signature.lost());
        assert!((found.loss_rate - lost / 400_000.0).abs() < 1e-12);
        assert_eq!(HostRun::of(&[Some(network.clone())], &known), None);
        assert_eq!(HostRun::of(&[Some(host[0].clone())], &HashMap::new()), None);
        assert_eq!(HostRun::of(&[], &known), None);
    }

    #[test]
    fn events_verdicts_and_loss_are_those_of_the_drawn_runs() {
        let windows = made(PACKETS, 4, 6, 5);
        let judged = Models::fit(&windows).unwrap().classify(&windows);
        let pool = those(&judged, |window| window.cause == Label::Host);
        let runs = runs_of(&pool);
        let target = 0.000_35;
        let weights = weights(&runs, target).unwrap();
        let transfer = drawn(&runs, &weights, 1);
        assert_eq!(transfer, drawn(&runs, &weights, 1));
        assert_ne!(transfer, drawn(&runs, &weights, 2));
        let mut found = Measured::default();
        found.add(&pool, &transfer);
        assert_eq!(found.events as usize, transfer.iter().flatten().count());
        assert_eq!(found.in_range, found.events, "each window loses at least 0.001");
        assert!((0.7..1.4).contains(&(found.lost / found.packets / target)), "{found:?}");
        // The counter is always right, so that its transfers lose nothing of their rate.
        assert_eq!(found.verdicts[2], [found.in_range, 0.0, 0.0]);
        let ceiling = PATH.ceiling_packets() * PATH.payload_bytes * 8.0 / PATH.round_trip_s;
        assert!((found.with[2][0] / ceiling - 1.0).abs() < 1e-9, "{found:?}");
        assert!(20.0 * found.without[0] < ceiling, "{found:?}");
        assert!(found.verdicts.iter().all(|verdicts| verdicts.iter().sum::<f64>() == found.in_range));
        let cells = found.cells(&TRANSFERS[0], 2);
        assert_eq!((cells[1].as_str(), cells[4].as_str()), ("counter", "100"));
    }

    #[test]
    fn no_weights_reach_a_loss_that_all_runs_exceed() {
        let run = |loss_rate| HostRun { windows: vec![None], loss_rate };
        assert_eq!(weights(&[run(0.001), run(0.01)], 0.000_35), None);
        assert_eq!(weights(&[], 0.000_35), None);
        let longer = HostRun { windows: vec![None; 3], loss_rate: 0.0 };
        let weights = weights(&[longer, run(0.001)], 0.0005).unwrap();
        // Half of the windows are of each run, so the longer one is drawn a third as often.
        assert!((weights[0] - 0.25).abs() < 1e-6 && (weights[1] - 0.75).abs() < 1e-6, "{weights:?}");
    }
}
